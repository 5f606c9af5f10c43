package deepcoder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

// The rows of the four configurations.
type (
	solved struct {
		Problem   *string  `parquet:"problem,optional,dict"`
		Solutions []string `parquet:"solutions,list"`
		Tests     *string  `parquet:"tests,optional,dict"`
	}
	lcbRow struct {
		Problem  *string `parquet:"problem,optional"`
		Starter  *string `parquet:"starter_code,optional"`
		Tests    *string `parquet:"tests,optional"`
		Metadata *struct {
			FnName *string `parquet:"func_name,optional"`
		} `parquet:"metadata,optional"`
	}
	plainRow struct {
		Problem string `parquet:"problem"`
		Tests   string `parquet:"tests"`
	}
)

func write[T any](t testing.TB, path string, rows []T, options ...parquet.WriterOption) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := parquet.WriteFile(path, rows, options...); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines prints what a set yields, one line a row.
func lines(t testing.TB, set dataset.EvalSet) (out []string, last error) {
	t.Helper()
	for p, err := range set {
		if row, ok := errors.AsType[*dataset.RowError](err); ok {
			if p.ID != row.ID || !fault.Is(err, fault.Invalid) {
				t.Errorf("%q and %v, want the same id, and Invalid", p.ID, err)
			}
			out = append(out, fmt.Sprintf("%s %s", row.ID, row.Reason))
			continue
		}
		if err != nil {
			return out, err
		}
		line := fmt.Sprintf("%s %d %d", p.ID, p.Index, p.HiddenTests)
		if p.FnName != "" {
			line += " " + p.FnName
		}
		if p.FnName == "" && len(p.Tests) != p.HiddenTests || p.FnName != "" && p.Tests != nil || p.Statement == "" {
			t.Errorf("%+v: tests, their number and the function do not agree, or there is no statement", p)
		}
		out = append(out, line)
	}
	return out, nil
}

func open(t testing.TB, o Options, paths ...string) dataset.EvalSet {
	t.Helper()
	set, err := Open(t.Context(), paths, o)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

const (
	stdin    = `[{"input": "1 2\n", "output": "3\n", "type": "stdin_stdout"}, {"input": "5 5", "output": "10", "type": "stdin_stdout"}]`
	function = `[{"fn_name": "add", "input": [1, {"a": 2}], "output": [3], "type": "function_call"}]`
)

func TestOpen_allConfigurations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := func(s string) *string { return &s }
	fn := func(s string) *struct {
		FnName *string `parquet:"func_name,optional"`
	} {
		return &struct {
			FnName *string `parquet:"func_name,optional"`
		}{text(s)}
	}
	list := []solved{
		{text("Add."), []string{"a", "b"}, text(stdin)},
		{text("Call."), nil, text(function)},
		{nil, nil, text(stdin)},
		{text("Null."), nil, nil},
		{text("Python."), []string{""}, text(`[{'input': 'it\'s', "output": "3\n", 'type': None}]`)},
	}
	object := []solved{
		{text("No tests yet."), nil, nil},
		{text("Add."), nil, text(`{"inputs": ["1", ["2", "3"], 4], "outputs": ["1", "5", 12345678901234567890]}`)},
		{text("Call."), nil, text(`{"inputs": [[1, 2]], "outputs": [[3]], "fn_name": "add"}`)},
		{text("Uneven."), nil, text(`{"inputs": ["1"], "outputs": []}`)},
	}
	lcb := []lcbRow{
		{Problem: text("Add."), Starter: text(""), Tests: text(`[{"input": "1", "output": "2", "testtype": "stdin"}]`), Metadata: fn("")},
		{Problem: text("Named."), Starter: text("class S:"), Tests: text(`[{"input": "1", "output": "2", "testtype": "functional"}]`), Metadata: fn("two")},
		{Problem: text("By metadata."), Tests: text(`[{"input": "1", "output": "2"}]`), Metadata: fn("three")},
		{Problem: text("By starter code."), Starter: text("def f(x):"), Tests: text(`[{"input": "1", "output": "2"}]`)},
		{Problem: text("By kind."), Tests: text(`[{"input": "1", "output": "2", "testtype": "functional"}]`)},
	}
	plain := []plainRow{{"Add.", stdin}, {" \n", stdin}, {"Not \xff UTF-8.", stdin}, {"NUL \x00.", stdin}, {"Broken.", "[{"}, {"Empty.", "[]"}}
	a := write(t, filepath.Join(dir, "primeintellect", "train-00000-of-00002.parquet"), list[:3])
	b := write(t, filepath.Join(dir, "primeintellect", "train-00001-of-00002.parquet"), list[3:], parquet.DataPageVersion(1))
	// The name of a directory that is no configuration: the shape of the first cell that has one decides.
	c := write(t, filepath.Join(dir, "x", "a.parquet"), object, parquet.Compression(&parquet.Snappy))
	d := write(t, filepath.Join(dir, "x", "test-00000-of-00001.parquet"), lcb, parquet.MaxRowsPerRowGroup(2), parquet.Compression(&parquet.Zstd))
	e := write(t, filepath.Join(dir, "y", "test-00000-of-00001.parquet"), plain, parquet.PageBufferSize(1))
	sets := map[string]dataset.EvalSet{
		"a directory in the middle": open(t, Options{}, a, b, c, d, filepath.Dir(e)),
	}
	want := []string{
		"primeintellect/train/00000 0 2", "primeintellect/train/00001 1 1 add", "primeintellect/train/00002 bad_statement",
		"primeintellect/train/00003 bad_tests", "primeintellect/train/00004 2 1",
		"taco/train/00000 bad_tests", "taco/train/00001 3 3", "taco/train/00002 4 1 add", "taco/train/00003 unequal_tests",
		"lcbv5/test/00000 5 1", "lcbv5/test/00001 6 1 two", "lcbv5/test/00002 7 1 three", "lcbv5/test/00003 8 1 ?", "lcbv5/test/00004 9 1 ?",
		"codeforces/test/00000 10 2", "codeforces/test/00001 bad_statement", "codeforces/test/00002 bad_statement",
		"codeforces/test/00003 bad_statement", "codeforces/test/00004 bad_tests", "codeforces/test/00005 no_tests",
	}
	for name, set := range sets {
		for range 2 { // a set can be ranged over again
			got, err := lines(t, set)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
			}
		}
	}
	// A set that nobody wants to the end, and one whose context ends.
	for range sets["a directory in the middle"] {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped, err := Open(ctx, []string{a}, Options{})
	cancel()
	if _, last := lines(t, stopped); err != nil || !errors.Is(last, context.Canceled) {
		t.Errorf("%v, %v; want the context's error", err, last)
	}
	got, err := lines(t, open(t, Options{Config: Codeforces, Split: "mine"}, c))
	if err != nil || got[1] != "codeforces/mine/00001 0 3" {
		t.Errorf("%q, %v, want ids with the given configuration and split", got, err)
	}
}

func TestOpen_testsInFull(t *testing.T) {
	t.Parallel()
	path := write(t, filepath.Join(t.TempDir(), "a.parquet"), []plainRow{{"Add.", stdin}, {"Two.", `{'outputs': ('1',), 'inputs': [['a', "b"]]}`}})
	want := [][]judge.Test{{{Input: "1 2\n", Output: "3\n"}, {Input: "5 5", Output: "10"}}, {{Input: "a\nb", Output: "1"}}}
	var got [][]judge.Test
	for p, err := range open(t, Options{}, path) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p.Tests)
	}
	if diff := cmp.Diff(want, got); diff != "" { // after the file was closed
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOpen_refusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := write(t, filepath.Join(dir, "train-00000-of-00002.parquet"), []plainRow{{"Add.", stdin}})
	second := write(t, filepath.Join(dir, "train-00001-of-00002.parquet"), []plainRow{{"Add.", stdin}})
	broken := filepath.Join(dir, "broken.parquet")
	if err := os.WriteFile(broken, []byte("no"), 0o600); err != nil {
		t.Fatal(err)
	}
	column := func(name string, rows any) string {
		path := filepath.Join(dir, name+".parquet")
		switch rows := rows.(type) {
		case []struct {
			Problem string `parquet:"problem"`
		}:
			return write(t, path, rows)
		case []struct {
			Problem  string `parquet:"problem"`
			Tests    string `parquet:"tests"`
			Metadata string `parquet:"metadata"`
		}:
			return write(t, path, rows)
		case []struct {
			Problem string `parquet:"problem"`
			Tests   int64  `parquet:"tests"`
		}:
			return write(t, path, rows)
		}
		t.Fatalf("%T", rows)
		return ""
	}
	for name, c := range map[string]struct {
		paths []string
		o     Options
		kind  fault.Kind
		want  string
	}{
		"no file":            {nil, Options{}, fault.Invalid, "no file"},
		"absent":             {[]string{filepath.Join(dir, "absent")}, Options{}, fault.NotFound, "absent"},
		"an empty directory": {[]string{t.TempDir()}, Options{}, fault.NotFound, "no file *.parquet"},
		"no Parquet":         {[]string{broken}, Options{}, fault.Corrupt, "broken.parquet"},
		"a later part":       {[]string{second}, Options{}, fault.Invalid, "part 0"},
		"the wrong order":    {[]string{second, good}, Options{}, fault.Invalid, "part 0"},
		"a part twice":       {[]string{good, good}, Options{}, fault.Invalid, "part 1"},
		"a configuration":    {[]string{good}, Options{Config: "apps"}, fault.Invalid, "apps"},
		"a negative bound":   {[]string{good}, Options{MaxTests: -1}, fault.Invalid, "-1"},
		"crossed bounds":     {[]string{good}, Options{MinTests: 9, MaxTests: 5}, fault.Invalid, "at least 9"},
		"no column": {[]string{column("a", []struct {
			Problem string `parquet:"problem"`
		}{{"a"}})}, Options{}, fault.Invalid, "tests"},
		"numbers": {[]string{column("b", []struct {
			Problem string `parquet:"problem"`
			Tests   int64  `parquet:"tests"`
		}{{"a", 1}})}, Options{}, fault.Invalid, "tests is no text"},
		"metadata of another form": {[]string{column("c", []struct {
			Problem  string `parquet:"problem"`
			Tests    string `parquet:"tests"`
			Metadata string `parquet:"metadata"`
		}{{"a", "b", "c"}})}, Options{}, fault.Invalid, "metadata"},
	} {
		if _, err := Open(t.Context(), c.paths, c.o); !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s with %q", name, err, c.kind, c.want)
		}
	}
	// A file that goes away, or is damaged behind its footer, ends the set.
	set := open(t, Options{}, good, second)
	data, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4; i < 40; i++ {
		data[i] ^= 0x55
	}
	if err := os.WriteFile(second, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := lines(t, set); len(got) != 1 || !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), second) {
		t.Errorf("%q, %v; want one problem, and Corrupt with the file", got, err)
	}
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	if got, err := lines(t, set); len(got) != 1 || !fault.Is(err, fault.NotFound) {
		t.Errorf("%q, %v; want one problem, and NotFound", got, err)
	}
}

func TestOpen_bounds(t *testing.T) {
	t.Parallel()
	tests := func(n, size int) string {
		one := fmt.Sprintf(`{"input": "%s", "output": ""}`, strings.Repeat("x", size))
		return "[" + strings.Repeat(one+",", n-1) + one + "]"
	}
	path := write(t, filepath.Join(t.TempDir(), "a.parquet"), []plainRow{
		{"a", tests(4, 1)},
		{"b", tests(5, 1)},
		{"c", tests(200, 1)},
		{"d", tests(201, 1)},
		{"e", tests(8, 1<<19)},
		{"f", tests(8, 1<<19+1)},
		{"g", `[{"input": "", "output": "", "fn_name": "f"}]`},
		{strings.Repeat("g", 4<<20+1), tests(5, 1)},
	})
	id := "codeforces/train/0000"
	want := []string{id + "0 no_tests", id + "1 0 5", id + "2 1 200", id + "3 too_many_tests", id + "4 2 8", id + "5 tests_too_large", id + "6 3 1 f", id + "7 cell_too_large"}
	got, err := lines(t, open(t, SecondRecipe(), path))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err = lines(t, open(t, Options{MaxCell: 100}, path))
	if err != nil || got[1] != id+"1 cell_too_large" {
		t.Errorf("%q, %v; want cells of more than 100 bytes refused", got, err)
	}
}

// Cells of 32 MiB, in pages of their own and all in one dictionary, need the memory of one page and of the tests of one problem. Not
// parallel: it measures the heap.
func TestOpen_memoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("writes files of large cells; left out by -short")
	}
	const cellSize, rows = 32 << 20, 2
	type dictRow struct {
		Problem string `parquet:"problem"`
		Tests   string `parquet:"tests,dict"`
	}
	type pageRow struct {
		Problem string `parquet:"problem"`
		Tests   string `parquet:"tests,plain"`
	}
	cell := func(i int) string {
		return `[{"input": "` + strings.Repeat(fmt.Sprintf(`%d 12\n`, i), cellSize/6) + `", "output": "1"}]`
	}
	dir := t.TempDir()
	var pages []pageRow
	var dict []dictRow
	for i := range rows {
		text := cell(i)
		pages, dict = append(pages, pageRow{"Add.", text}), append(dict, dictRow{"Add.", text})
	}
	options := []parquet.WriterOption{
		parquet.Compression(&parquet.Snappy), parquet.DataPageStatistics(false), parquet.SkipPageBounds("tests"), parquet.SkipPageStatistics("tests"), parquet.PageBufferSize(1),
	}
	write(t, filepath.Join(dir, "pages.parquet"), pages, append(options, parquet.MaxRowsPerRowGroup(1))...)
	write(t, filepath.Join(dir, "dict.parquet"), dict, options...)
	pages, dict = nil, nil
	for range 3 {
		runtime.GC() // the writer's pools outlive one
	}
	for name, limit := range map[string]float64{"pages.parquet": 2.2 * cellSize, "dict.parquet": (rows + 1.2) * cellSize} {
		for _, o := range []Options{{}, SecondRecipe()} {
			n := 0
			for p, err := range open(t, o, filepath.Join(dir, name)) {
				if _, ok := errors.AsType[*dataset.RowError](err); err != nil && (!ok || o.MaxTests == 0) {
					t.Fatal(err)
				}
				n++
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				if float64(m.HeapAlloc) > limit {
					t.Errorf("%s, row %d: %d MiB are in use, want at most %.0f", name, n, m.HeapAlloc>>20, limit/(1<<20))
				}
				runtime.KeepAlive(p)
			}
			if n != rows {
				t.Errorf("%s: %d rows, want %d", name, n, rows)
			}
		}
	}
}
