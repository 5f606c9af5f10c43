package dataset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

func ptr(s string) *string { return &s }

// plain is a row that every rule keeps; its solutions are verdicts for fakeRun.
func plain(statement string) Row {
	return Row{
		Question: ptr(statement), Solutions: ptr(`["pass"]`), InputOutput: ptr(`{"inputs": ["1\n", "2\n"], "outputs": ["1\n", "2\n"]}`),
		Source: ptr("codeforces"), StarterCode: ptr(""),
	}
}

// fakeRun takes the program's text as what happens to it.
func fakeRun(_ context.Context, code string, tests []judge.Test) (judge.Verdict, error) {
	kinds := map[string][]judge.Kind{
		"pass":   {judge.Accepted},
		"wrong":  {judge.WrongAnswer},
		"partly": {judge.Accepted, judge.WrongAnswer},
		"crash":  {judge.Accepted, judge.RuntimeError},
	}[code]
	if kinds == nil {
		return judge.Verdict{}, fault.New(fault.Infrastructure, "fakeRun", "no sandbox")
	}
	v := judge.Verdict{FormatOK: true, Kind: judge.Accepted, Total: len(tests)}
	for i := range tests {
		k := kinds[min(i, len(kinds)-1)]
		if k == judge.Accepted {
			v.Passed++
		} else if v.Kind == judge.Accepted {
			v.Kind = k
		}
		v.Tests = append(v.Tests, judge.TestVerdict{Kind: k})
	}
	return v, nil
}

// passAll passes every program.
func passAll(ctx context.Context, _ string, tests []judge.Test) (judge.Verdict, error) {
	return fakeRun(ctx, "pass", tests)
}

func options() ShardOptions {
	return ShardOptions{
		Name: "s", MaxPrompt: 50, MaxCell: 50_000, Tries: 3, Parallel: 3, Run: fakeRun,
		CountPrompt: func(s string) (int, error) { return len(strings.Fields(s)), nil },
	}
}

func shard[T any](t testing.TB, rows []T, opts ...parquet.WriterOption) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := parquet.NewGenericWriter[T](&buf, opts...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// input is a shard with the options to prepare it.
type input struct {
	data []byte
	o    ShardOptions
}

func prepare(t testing.TB, rows []Row, o ShardOptions) input {
	t.Helper()
	return input{shard(t, rows, parquet.MaxRowsPerRowGroup(5)), o}
}

// checkAll gives bytes to the rules of a shard.
func checkAll(ctx context.Context, data []byte, o ShardOptions) (out []Checked, err error) {
	_, err = checkRows(ctx, bytes.NewReader(data), int64(len(data)), 0, o, func(c Checked) error {
		out = append(out, c)
		return nil
	})
	return out, err
}

func decode(t testing.TB, in input) []Checked {
	t.Helper()
	out, err := checkAll(t.Context(), in.data, in.o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPrepareShard_rules(t *testing.T) {
	t.Parallel()
	long, huge := strings.Repeat("7", 900), strings.Repeat("1234567890", 913)+"1"
	tests := []struct {
		name   string
		change func(*Row)
		want   Reason
		tests  []judge.Test // of a kept row; nil for the plain ones
	}{
		{"plain", func(*Row) {}, Kept, nil},
		{"all else null", func(r *Row) { r.Source, r.StarterCode = nil, nil }, Kept, nil},
		{
			"lines", func(r *Row) { r.InputOutput = ptr(`{"inputs":[["1","2"],"3"],"outputs":[[],"\n4 "]}`) },
			Kept,
			[]judge.Test{{Input: "1\n2", Output: ""}, {Input: "3", Output: "\n4 "}},
		},
		{
			"bare numbers", func(r *Row) { r.InputOutput = ptr(`{"inputs":[` + long + `,-1.50e3],"outputs":["a",0]}`) },
			Kept,
			[]judge.Test{{Input: long, Output: "a"}, {Input: "-1.50e3", Output: "0"}},
		},
		{
			"an integer of 9,131 digits", func(r *Row) { r.InputOutput = ptr(`{"inputs":[` + huge + `,"a"],"outputs":["b",-` + huge + `]}`) },
			Kept,
			[]judge.Test{{Input: huge, Output: "b"}, {Input: "a", Output: "-" + huge}},
		},
		{
			"white space stays", func(r *Row) { r.InputOutput = ptr(`{"inputs":[" \t1\r\n\n"],"outputs":["\n\n 2  "]}`) },
			Kept,
			[]judge.Test{{Input: " \t1\r\n\n", Output: "\n\n 2  "}},
		},
		{
			"empty tests are tests", func(r *Row) { r.InputOutput = ptr(`{"inputs":["",[]],"outputs":["",[""]]}`) },
			Kept,
			[]judge.Test{{}, {}},
		},
		{"other keys", func(r *Row) { r.InputOutput = ptr(`{"x":[{}],"inputs":["a"],"outputs":["b"]}`) }, Kept, []judge.Test{{Input: "a", Output: "b"}}},
		{"blank starter code", func(r *Row) { r.StarterCode = ptr(" \n\t") }, Kept, nil},
		{"empty fn_name", func(r *Row) { r.InputOutput = ptr(`{"fn_name":"","inputs":["a"],"outputs":["b"]}`) }, Kept, []judge.Test{{Input: "a", Output: "b"}}},
		{"a platform's class, no fn_name", func(r *Row) {
			r.StarterCode = ptr("#User function Template for python3\nclass Solution:\n    def f(self, n, arr):\n")
			r.InputOutput = ptr(`{"inputs":["n = 3\narr[] = {1,2,3}"],"outputs":["6"]}`)
		}, CallBased, nil},
		{"null fn_name", func(r *Row) { r.InputOutput = ptr(`{"fn_name":null,"inputs":["a"],"outputs":["b"]}`) }, Kept, []judge.Test{{Input: "a", Output: "b"}}},
		{"large cell", func(r *Row) { r.Tags = ptr(strings.Repeat("x", 50_001)) }, CellTooLarge, nil},
		{"null statement", func(r *Row) { r.Question = nil }, BadStatement, nil},
		{"blank statement", func(r *Row) { r.Question = ptr(" \n\t") }, BadStatement, nil},
		{"not UTF-8", func(r *Row) { r.Question = ptr("a\xffb") }, BadStatement, nil},
		{"NUL", func(r *Row) { r.Question = ptr("a\x00b") }, BadStatement, nil},
		{"starter code", func(r *Row) { r.StarterCode = ptr("class Solution:") }, CallBased, nil},
		{"fn_name", func(r *Row) { r.InputOutput = ptr(`{"fn_name":"f","inputs":[[1]],"outputs":[2]}`) }, CallBased, nil},
		{"fn_name before a broken test", func(r *Row) { r.InputOutput = ptr(`{"inputs":[{}],"outputs":[2],"fn_name":"f"}`) }, CallBased, nil},
		{"null tests", func(r *Row) { r.InputOutput = nil }, BadTests, nil},
		{"cut off", func(r *Row) { r.InputOutput = ptr(`{"inputs":["1`) }, BadTests, nil},
		{"two values", func(r *Row) { r.InputOutput = ptr(`{"inputs":["1"],"outputs":["1"]} {}`) }, BadTests, nil},
		{"no lists", func(r *Row) { r.InputOutput = ptr(`{"inputs":"1","outputs":"1"}`) }, BadTests, nil},
		{"list of numbers", func(r *Row) { r.InputOutput = ptr(`{"inputs":[[1,2]],"outputs":["1"]}`) }, BadTests, nil},
		{"list of lists", func(r *Row) { r.InputOutput = ptr(`{"inputs":[[["1"]]],"outputs":["1"]}`) }, BadTests, nil},
		{"true", func(r *Row) { r.InputOutput = ptr(`{"inputs":["1"],"outputs":[true]}`) }, BadTests, nil},
		{"blank tests", func(r *Row) { r.InputOutput = ptr("") }, BadTests, nil},
		{"a list", func(r *Row) { r.InputOutput = ptr(`[["1"],["1"]]`) }, BadTests, nil},
		{"a Python literal", func(r *Row) { r.InputOutput = ptr(`{'inputs': ['1'], 'outputs': ['1']}`) }, BadTests, nil},
		{"not a number", func(r *Row) { r.InputOutput = ptr(`{"inputs":[NaN],"outputs":["1"]}`) }, BadTests, nil},
		{"deep", func(r *Row) { r.InputOutput = ptr(`{"inputs":[` + strings.Repeat("[", 400) + `],"outputs":["1"]}`) }, BadTests, nil},
		{"a null test", func(r *Row) { r.InputOutput = ptr(`{"inputs":[null],"outputs":["1"]}`) }, BadTests, nil},
		{"a null line", func(r *Row) { r.InputOutput = ptr(`{"inputs":[["1",null]],"outputs":["1"]}`) }, BadTests, nil},
		{"null is no object of tests", func(r *Row) { r.InputOutput = ptr(`null`) }, NoTests, nil},
		{"more inputs", func(r *Row) { r.InputOutput = ptr(`{"inputs":["1","2"],"outputs":["1"]}`) }, UnequalTests, nil},
		{"no outputs", func(r *Row) { r.InputOutput = ptr(`{"inputs":["1"]}`) }, UnequalTests, nil},
		{"unequal", func(r *Row) { r.InputOutput = ptr(`{"inputs":["1"],"outputs":[]}`) }, UnequalTests, nil},
		{"empty", func(r *Row) { r.InputOutput = ptr(`{"inputs":[],"outputs":[]}`) }, NoTests, nil},
		{"null lists", func(r *Row) { r.InputOutput = ptr(`{"inputs":null}`) }, NoTests, nil},
		{"picture_num", func(r *Row) { r.PictureNum = ptr("3") }, Image, nil},
		{"no picture", func(r *Row) { r.PictureNum = ptr("0") }, Kept, nil},
		{"null picture_num", func(r *Row) { r.PictureNum = nil }, Kept, nil},
		{"picture_num is no number", func(r *Row) { r.PictureNum = ptr("none") }, Kept, nil},
		{"picture_num with blanks", func(r *Row) { r.PictureNum = ptr(" 2\n") }, Image, nil},
		{"tag", func(r *Row) { r.Tags = ptr(`["Interactive"]`) }, SpecialJudge, nil},
		{"list of other tags", func(r *Row) { r.RawTags, r.SkillTypes = ptr(`['math', "it's"]`), ptr("['x']") }, Kept, nil},
		{"raw tag", func(r *Row) { r.RawTags = ptr(`['math', "*special"]`) }, SpecialJudge, nil},
		{"bad tags", func(r *Row) { r.RawTags, r.Tags = ptr(`['math`), ptr("None") }, Kept, nil},
		{"solutions no JSON", func(r *Row) { r.Solutions = ptr(`['pass']`) }, BadSolutions, nil},
		{"solutions no list", func(r *Row) { r.Solutions = ptr(`"pass"`) }, BadSolutions, nil},
		{"solutions with a number", func(r *Row) { r.Solutions = ptr(`["pass", 1]`) }, BadSolutions, nil},
		{"solutions with null", func(r *Row) { r.Solutions = ptr(`[null, "pass"]`) }, Kept, nil},
		{"null solutions", func(r *Row) { r.Solutions = nil }, NoSolution, nil},
		{"blank solutions", func(r *Row) { r.Solutions = ptr(`["", " \n"]`) }, NoSolution, nil},
		{"long prompt", func(r *Row) { r.Question = ptr(strings.Repeat("word ", 51)) }, PromptTooLong, nil},
		{"all wrong", func(r *Row) { r.Solutions = ptr(`["wrong","crash"]`) }, ReferenceFailed, nil},
		{"third try", func(r *Row) { r.Solutions = ptr(`["wrong","crash","pass"]`) }, Kept, nil},
		{"tries are bounded", func(r *Row) { r.Solutions = ptr(`["wrong","wrong","wrong","pass"]`) }, ReferenceFailed, nil},
		{"disagreement", func(r *Row) { r.Solutions = ptr(`["partly","pass"]`) }, ReferencesDisagree, nil},
		{"a crash is no disagreement", func(r *Row) { r.Solutions = ptr(`["crash","pass"]`) }, Kept, nil},
	}
	rows := make([]Row, len(tests))
	for i, tt := range tests {
		rows[i] = plain("Statement of " + tt.name)
		tt.change(&rows[i])
	}
	got := decode(t, prepare(t, rows, options()))
	if len(got) != len(tests) {
		t.Fatalf("%d rows, want %d", len(got), len(tests))
	}
	for i, tt := range tests {
		c := got[i]
		if c.Decision.Reason != tt.want || c.Decision.Row != int64(i) || c.Decision.ID != fmt.Sprintf("s/%05d", i) {
			t.Errorf("%s: %+v, want %s in row %d", tt.name, c.Decision, tt.want, i)
		}
		if (c.Problem != nil) != (tt.want == Kept) {
			t.Errorf("%s: problem %v with decision %s", tt.name, c.Problem, tt.want)
		}
		if tt.tests != nil {
			if diff := cmp.Diff(tt.tests, c.Tests); diff != "" {
				t.Errorf("%s: tests (-want +got):\n%s", tt.name, diff)
			}
		}
	}
}

func TestPrepareShard_wording(t *testing.T) {
	t.Parallel()
	for statement, want := range map[string]Reason{
		"If there are several answers, print any of them.":     SpecialJudge,
		"Print any suitable array.":                            SpecialJudge,
		"Multiple answers are accepted.":                       SpecialJudge,
		"Print the edges in any\norder.":                       SpecialJudge,
		"You can print each letter in any case.":               SpecialJudge,
		"The absolute or relative error must not exceed 1e-6.": SpecialJudge,
		"Your error must be below $10^{-6}$.":                  SpecialJudge,
		"Precision of 10 ^ -9 is enough.":                      SpecialJudge,
		"This is an interactive problem.":                      SpecialJudge,
		"1 <= n <= 10^{5} and |a| <= 10^9, -10^{9} too.":       Kept,
		"Ages are 10-20. Print the absolute difference.":       Kept,
		"Many valid tickets were sold; are any of the even?":   Kept,
		"Flush the toilet 10 times.":                           Kept,
		"Output any of the shortest ones.":                     SpecialJudge,
		"If there are many such trees, output one.":            SpecialJudge,
		"If there is more than one answer, choose.":            SpecialJudge,
		"There are several possible answers.":                  SpecialJudge,
		"There may be multiple solutions.":                     SpecialJudge,
		"Find any such pair.":                                  SpecialJudge,
		"Print them in arbitrary order.":                       SpecialJudge,
		"Any valid schedule will do.":                          SpecialJudge,
		"Print YES in upper case or lower case.":               SpecialJudge,
		"The checker is case-insensitive.":                     SpecialJudge,
		"You can print every letter in any register.":          SpecialJudge,
		"Your answer is considered correct if it is close.":    SpecialJudge,
		"The error must not exceed 1e-6.":                      SpecialJudge,
		"Do not forget to flush the output.":                   SpecialJudge,
		"Use fflush(stdout) after each query.":                 SpecialJudge,
		"10^{-9} <= x":                                         SpecialJudge,
		"x is between 10**-3 and 1.":                           SpecialJudge,
		"Print the only answer, in upper case.":                Kept,
		"Customers stand in order; print the order.":           Kept,
		"Insert 1e6 elements.":                                 Kept,
		"as shown in the image below":                          Image,
		"look at the following figure":                         Image,
		"see the diagram shown":                                Image,
		"<IMAGE>":                                              Image,
		"See <image> for details.":                             Image,
		"See [Image] for details.":                             Image,
		"![](http://example.org/a.png)":                        Image,
		"The picture below shows it.":                          Image,
		"The figure of the dancer counts; draw no picture.":    Kept,
	} {
		c := decode(t, prepare(t, []Row{plain(statement)}, options()))[0]
		if c.Decision.Reason != want {
			t.Errorf("%q: %s (%s), want %s", statement, c.Decision.Reason, c.Decision.Evidence, want)
		}
	}
}

// Each column may be null: then a rule says so, or nothing depends on it.
func TestPrepareShard_nullColumns(t *testing.T) {
	t.Parallel()
	want := map[string]Reason{"question": BadStatement, "input_output": BadTests, "solutions": NoSolution}
	columns := parquet.SchemaOf(Row{}).Fields()
	rows := make([]Row, len(columns))
	for i := range rows {
		full := strings.Repeat("A statement of many words ", 2) + columns[i].Name()
		v := reflect.ValueOf(&rows[i]).Elem()
		for f := range v.NumField() {
			v.Field(f).Set(reflect.ValueOf(ptr("['x']")))
		}
		rows[i].Question, rows[i].Solutions, rows[i].StarterCode = ptr(full), plain("").Solutions, ptr("")
		rows[i].InputOutput, rows[i].PictureNum, rows[i].URL = plain("").InputOutput, ptr("0"), ptr("https://example.org/"+columns[i].Name())
		for f := range v.NumField() {
			if name, _, _ := strings.Cut(v.Type().Field(f).Tag.Get("parquet"), ","); name == columns[i].Name() {
				v.Field(f).SetZero()
			}
		}
	}
	got := decode(t, prepare(t, append(rows, Row{}), options()))
	for i, c := range columns {
		reason := want[c.Name()]
		if reason == "" {
			reason = Kept
		}
		if d := got[i].Decision; d.Reason != reason {
			t.Errorf("null %s: %s (%s), want %s", c.Name(), d.Reason, d.Evidence, reason)
		}
	}
	if d := got[len(columns)].Decision; len(columns) != 17 || d.Reason != BadStatement {
		t.Errorf("%d columns; all null: %s, want 17 and bad_statement", len(columns), d.Reason)
	}
}

// However a writer lays out the same rows, they are read as the same.
func TestPrepareShard_layouts(t *testing.T) {
	t.Parallel()
	type needed struct {
		InputOutput string `parquet:"input_output,dict"`
		Question    string `parquet:"question,plain"`
		Extra       int64  `parquet:"extra"`
		Solutions   string `parquet:"solutions,delta"`
		StarterCode string `parquet:"starter_code"`
	}
	all := family("layout", 300)
	few := make([]needed, len(all))
	for i, r := range all {
		all[i].Source = nil
		few[i] = needed{*r.InputOutput, *r.Question, 1, *r.Solutions, *r.StarterCode}
	}
	want := decode(t, input{shard(t, all), options()})
	if len(want) != len(all) || want[299].Problem.Statement != *all[299].Question {
		t.Fatalf("%d rows, the last is %+v", len(want), want[len(want)-1])
	}
	layouts := map[string][]byte{}
	for _, version := range []int{1, 2} {
		for _, codec := range []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Zstd} {
			for _, group := range []int64{7, 1000} {
				o := []parquet.WriterOption{parquet.DataPageVersion(version), parquet.Compression(codec), parquet.MaxRowsPerRowGroup(group), parquet.PageBufferSize(512)}
				name := fmt.Sprintf("pages %d, %s, groups of %d", version, codec, group)
				layouts[name], layouts[name+", few columns"] = shard(t, all, o...), shard(t, few, o...)
			}
		}
	}
	for name, data := range layouts {
		got := decode(t, input{data, options()})
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(place{}, Checked{})); diff != "" {
			t.Errorf("%s (-want +got):\n%.2000s", name, diff)
		}
		var from []Checked
		_, err := checkRows(t.Context(), bytes.NewReader(data), int64(len(data)), 123, options(), func(c Checked) error { from = append(from, c); return nil })
		if diff := cmp.Diff(want[123:], from, cmp.AllowUnexported(place{}, Checked{})); diff != "" || err != nil {
			t.Errorf("%s, from row 123: %v (-want +got):\n%.2000s", name, err, diff)
		}
	}
}

func TestPrepareShard_faults(t *testing.T) {
	t.Parallel()
	good := shard(t, []Row{plain("a"), plain("b")})
	type other struct {
		Question string `parquet:"question"`
	}
	type numbers struct {
		Question    string `parquet:"question"`
		Solutions   string `parquet:"solutions"`
		InputOutput int64  `parquet:"input_output"`
		StarterCode string `parquet:"starter_code"`
	}
	for name, data := range map[string][]byte{
		"empty": nil, "no parquet": []byte(strings.Repeat("no parquet ", 10)), "cut off": good[:len(good)/2],
		"other columns": shard(t, []other{{"a"}}), "numbers": shard(t, []numbers{{"a", "[]", 1, ""}}),
	} {
		_, err := checkAll(t.Context(), data, options())
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "s") {
			t.Errorf("%s: %v, want Corrupt", name, err)
		}
	}
	r := plain("a")
	r.Solutions = ptr(`["wrong", "the sandbox fails here"]`)
	data := shard(t, []Row{r})
	if _, err := checkAll(t.Context(), data, options()); !fault.Is(err, fault.Infrastructure) {
		t.Errorf("a failing sandbox: %v, want Infrastructure", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := checkAll(ctx, good, options()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v, want context.Canceled", err)
	}
}

// TestPrepareShard_damage flips bytes all over a file: the result is rows or Corrupt, never a panic or another error.
func TestPrepareShard_damage(t *testing.T) {
	t.Parallel()
	rows := make([]Row, 20)
	for i := range rows {
		rows[i] = plain(fmt.Sprint("statement ", i))
	}
	good := shard(t, rows, parquet.MaxRowsPerRowGroup(7), parquet.Compression(&parquet.Snappy))
	s := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		bad := bytes.Clone(good)
		at := s.IntN(len(bad))
		bad[at] ^= byte(1 + s.IntN(255))
		o := options()
		o.Run = func(_ context.Context, _ string, tests []judge.Test) (judge.Verdict, error) {
			return fakeRun(t.Context(), "pass", tests)
		}
		_, err := checkAll(t.Context(), bad, o)
		if err != nil && !fault.Is(err, fault.Corrupt) {
			t.Errorf("byte %d: %v, want rows or Corrupt", at, err)
		}
	}
}

// family makes n rows with different statements.
func family(name string, n int) []Row {
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = plain(fmt.Sprintf("Problem %d of the family %s has a statement of its own, long enough to be told apart", i, name))
	}
	return rows
}

func finish(t testing.TB, o FinishOptions, shards ...input) (map[string][]byte, Manifest, []Decision) {
	t.Helper()
	base := t.TempDir()
	w, err := OpenWork(filepath.Join(base, "work"))
	if err != nil {
		t.Fatal(err)
	}
	for i, in := range shards {
		name := fmt.Sprintf("s%d.parquet", i)
		if _, err := w.Shard(t.Context(), i, Input{Name: name, Size: int64(len(in.data))}, bytes.NewReader(in.data), in.o); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(base, "set")
	m, err := w.Finish(t.Context(), dir, len(shards), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), dir); err != nil {
		t.Errorf("Check: %v", err)
	}
	d, err := Decisions(dir)
	if err != nil {
		t.Fatal(err)
	}
	return readDir(t, dir), m, d
}

// readDir reads the files of a directory.
func readDir(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		var data []byte
		if data, err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			break
		}
		files[e.Name()] = data
	}
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func write(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFinish_sameBytes(t *testing.T) {
	t.Parallel()
	rows := append(family("a", 40), plain("<image>"), plain("Print any number."))
	o := FinishOptions{Seed: 3, Train: 20, Dev: 10, Settings: map[string]string{"b": "1", "a": "2"}}
	one := options()
	one.Parallel = 1
	first, _, _ := finish(t, o, prepare(t, rows, options()))
	again, _, _ := finish(t, o, prepare(t, rows, one))
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("another number of workers gives other bytes:\n%s", diff)
	}
	o.Seed = 4
	if other, _, _ := finish(t, o, prepare(t, rows, one)); cmp.Equal(first, other) {
		t.Error("another seed gives the same split")
	}
}

func where(ds []Decision, rows []Row) map[string]Split {
	out := map[string]Split{}
	for i, d := range ds {
		out[*rows[i].Question] = d.Split
	}
	return out
}

func TestFinish_splitIsStable(t *testing.T) {
	t.Parallel()
	rows := family("a", 60)
	more := append(append(family("b", 30), rows...), family("c", 30)...)
	o := FinishOptions{Seed: 1, Train: 40, Dev: 20}
	_, _, d := finish(t, o, prepare(t, rows, options()))
	_, m, dMore := finish(t, o, prepare(t, more[:50], options()), prepare(t, more[50:], options()))
	if m.Train != 40 || m.Dev != 20 {
		t.Errorf("%d and %d problems, want 40 and 20", m.Train, m.Dev)
	}
	before, after := where(d, rows), where(dMore, more)
	stays := 0
	for q, s := range before {
		if s == "" {
			t.Errorf("%q is in no split although all problems are needed", q)
		}
		switch after[q] {
		case s:
			stays++
		case "":
		default:
			t.Errorf("%q went from %s to %s when rows were added", q, s, after[q])
		}
	}
	if stays == 0 {
		t.Error("no problem stayed in its split")
	}
	// The order of shards and rows does not matter.
	_, _, dSwapped := finish(t, o, prepare(t, more[50:], options()), prepare(t, more[:50], options()))
	if diff := cmp.Diff(after, where(dSwapped, append(append([]Row{}, more[50:]...), more[:50]...))); diff != "" {
		t.Errorf("another order of the shards (-first +swapped):\n%s", diff)
	}
}

func TestFinish_tooFew(t *testing.T) {
	t.Parallel()
	_, m, _ := finish(t, FinishOptions{Train: 2000, Dev: 256}, prepare(t, family("a", 47), options()))
	if m.Dev != 5 || m.Train != 42 || m.Good != 47 {
		t.Errorf("%d dev, %d train of %d, want 5 and 42 of 47", m.Dev, m.Train, m.Good)
	}
	_, m, _ = finish(t, FinishOptions{}, prepare(t, []Row{plain("<image>")}, options()))
	if m.Dev+m.Train+m.Good != 0 || m.Rows != 1 {
		t.Errorf("manifest %+v, want one row and nothing kept", m)
	}
}

func TestFinish_identity(t *testing.T) {
	t.Parallel()
	row := func(statement, url string) Row {
		r := plain(statement)
		r.URL = ptr(url)
		return r
	}
	bad := row("The sum of two numbers", "https://codeforces.com/problemset/problem/1/A")
	bad.Solutions = ptr(`["wrong"]`)
	linkStatement := "A statement that only the third row of a chain repeats"
	tests := []struct {
		row  Row
		want Reason
	}{
		{bad, ReferenceFailed},
		{row("The sum of two numbers", "https://codeforces.com/problemset/problem/1/A"), Kept},
		{row("THE SUM of ｔｗｏ numbers!", "https://example.org/other"), DuplicateText},
		{row("Other words", "http://www.CodeForces.com/problemset/problem/1/A/#x"), DuplicateURL},
		{row("Third words", "https://codeforces.com/contest/1/problem/a"), DuplicatePlatformID},
		{row("Fourth words", "https://codeforces.com/contest/1/problem/A1"), Kept},
		{row(linkStatement, "https://example.org/chain"), Kept},
		{row("Linked by the next row only", "https://example.org/link"), DuplicateURL},
		{row(linkStatement+".", "https://example.org/link"), DuplicateText},
		{row("Known elsewhere", "https://atcoder.jp/contests/abc387/tasks/abc387_f"), Excluded},
		{row("Known elsewhere!", "https://example.org/copy-of-known"), Excluded},
		{plain("?!"), Kept},
		{plain("!!"), Kept},
	}
	rows := make([]Row, len(tests))
	for i, tt := range tests {
		rows[i] = tt.row
	}
	excluded, err := ReadExcluded(strings.NewReader("{\"platform\":\"atcoder:abc387_f\"}\n{\"text\":\"nowhere\"}\n"), "exclusions")
	if err != nil {
		t.Fatal(err)
	}
	_, m, ds := finish(t, FinishOptions{Train: 4, Dev: 1, Excluded: excluded}, prepare(t, rows, options()))
	for i, tt := range tests {
		if ds[i].Reason != tt.want {
			t.Errorf("row %d %q %q: %s (%s), want %s", i, *tt.row.Question, value(tt.row.URL), ds[i].Reason, ds[i].Evidence, tt.want)
		}
	}
	if m.Exclusions != 2 || m.Platforms[0] != (Platform{"codeforces", 13, 5}) {
		t.Errorf("manifest %+v, want 2 exclusions and 5 of 13 rows of codeforces", m)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	row := family("a", 12)
	row[3].Question = ptr(*row[3].Question + "\n\n-----Examples-----\nInput\n1 2\n\nOutput\n3\n")
	files, _, _ := finish(t, FinishOptions{Train: 8, Dev: 4}, prepare(t, row, options()))
	dir := write(t, files)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.Len(Train) != 8 || s.Len(Dev) != 4 {
		t.Errorf("%d and %d problems, want 8 and 4", s.Len(Train), s.Len(Dev))
	}
	samples := 0
	for _, split := range Splits() {
		for i := range s.Len(split) {
			p, err := s.Problem(split, i)
			if err != nil || p.Index != i {
				t.Errorf("%s %d: %+v, %v", split, i, p, err)
			}
			samples += len(p.Samples)
			tests, err := s.Tests(split, i)
			if diff := cmp.Diff([]judge.Test{{Input: "1\n", Output: "1\n"}, {Input: "2\n", Output: "2\n"}}, tests); diff != "" || err != nil {
				t.Errorf("tests of %s %d, %v (-want +got):\n%s", split, i, err, diff)
			}
		}
	}
	if samples != 1 {
		t.Errorf("%d samples, want 1", samples)
	}
	if _, err := s.Tests(Dev, 4); !fault.Is(err, fault.Invalid) {
		t.Errorf("index 4 of 4: %v, want Invalid", err)
	}
	if _, err := Open(t.TempDir()); !fault.Is(err, fault.NotFound) {
		t.Errorf("an empty directory: %v, want NotFound", err)
	}
}

// readers are the ways to read a data set; each must notice that it was changed.
var readers = map[string]func(dir string) error{
	"Open":      func(dir string) error { _, err := Open(dir); return err },
	"Check":     func(dir string) error { _, err := Check(context.Background(), dir); return err },
	"Counts":    func(dir string) error { _, err := Counts(dir); return err },
	"Decisions": func(dir string) error { _, err := Decisions(dir); return err },
}

func TestReaders_findEveryChange(t *testing.T) {
	t.Parallel()
	files, _, _ := finish(t, FinishOptions{Train: 8, Dev: 4, Settings: map[string]string{"limit": "a\xffb<>"}}, prepare(t, family("a", 13), options()))
	dir := write(t, files)
	for name, read := range readers {
		if err := read(dir); err != nil {
			t.Fatalf("%s of a whole data set: %v", name, err)
		}
	}
	for file, data := range files {
		for at := 0; at < len(data); at += len(data)/9 + 1 {
			flipped := bytes.Clone(data)
			flipped[at] ^= 1
			notice(t, dir, file, flipped, fmt.Sprintf("%s with byte %d changed", file, at))
		}
		for _, n := range []int{0, 1, len(data) / 2, len(data) - 1} {
			notice(t, dir, file, data[:n], fmt.Sprintf("%s cut to %d bytes", file, n))
		}
		notice(t, dir, file, append(bytes.Clone(data), '\n'), file+" with one byte more")
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDecodeManifest_findsEveryBit(t *testing.T) {
	t.Parallel()
	files, m, _ := finish(t, FinishOptions{Train: 8, Dev: 4}, prepare(t, family("a", 13), options()))
	data := files[ManifestFile]
	if got, err := decodeManifest(data); err != nil || got.Rows != m.Rows || got.Seal == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	for at := range data {
		for bit := range 8 {
			data[at] ^= 1 << bit
			if _, err := decodeManifest(data); !fault.Is(err, fault.Corrupt) {
				t.Errorf("byte %d, bit %d (%q): %v, want Corrupt", at, bit, data[max(0, at-20):min(len(data), at+20)], err)
			}
			data[at] ^= 1 << bit
		}
	}
}

// notice puts other bytes in the place of a file and reads the data set.
func notice(t *testing.T, dir, file string, data []byte, what string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, read := range readers {
		if name == "Open" && file == DecisionsFile {
			continue // it is not needed by who trains
		}
		if err := read(dir); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), file) || fault.HintOf(err) == "" {
			t.Errorf("%s: %s says %v, want Corrupt with the file and a hint", what, name, err)
		}
	}
}

// A manifest without a seal, as older versions wrote it, is read; its counts are still compared.
func TestReaders_anUnsealedManifest(t *testing.T) {
	t.Parallel()
	files, m, _ := finish(t, FinishOptions{Train: 8, Dev: 4}, prepare(t, family("a", 13), options()))
	if len(m.Files) != 3 || m.Seal != "" {
		t.Fatalf("manifest %+v, want three files, and the seal only in the file", m)
	}
	for name, c := range map[string]struct {
		edit  func(*Manifest)
		wrong bool
	}{
		"as it was":              {func(*Manifest) {}, false},
		"a reason more often":    {func(m *Manifest) { m.Reasons[0].Rows++ }, true},
		"a reason by other name": {func(m *Manifest) { m.Reasons[0].Name = "kepu" }, true},
		"no reasons":             {func(m *Manifest) { m.Reasons = nil }, true},
		"other rows":             {func(m *Manifest) { m.Rows++ }, true},
		"a larger split":         {func(m *Manifest) { m.Dev++ }, true},
		"another digest":         {func(m *Manifest) { m.Files[DecisionsFile] = "00" }, true},
	} {
		m := m
		m.Reasons, m.Files = slices.Clone(m.Reasons), maps.Clone(m.Files)
		c.edit(&m)
		text, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		files[ManifestFile] = append(text, '\n')
		dir := write(t, files)
		for reader, read := range readers {
			err := read(dir)
			if c.wrong && reader != "Open" && !fault.Is(err, fault.Corrupt) || !c.wrong && err != nil {
				t.Errorf("%s: %s says %v", name, reader, err)
			}
		}
	}
}
