package dataset

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
)

const program = "n = int(input())\nfor i in range(n):\n\tprint(i * i + 1)\n"

// checkable is a shard of problems with samples and a real program, and the data set that was made of it.
func checkable(t *testing.T) (data []byte, dir string) {
	t.Helper()
	rows := family("check", 14)
	for i := range rows {
		rows[i].Question = ptr(*rows[i].Question + "\n\n-----Examples-----\nInput\n1\n\nOutput\n2\n")
		rows[i].Solutions = ptr(string(must(t, []string{program})))
		rows[i].InputOutput = ptr(fmt.Sprintf(`{"inputs": ["1\n", "%d\n"], "outputs": ["2\n", "<%d>\n"]}`, 5000+i, 6000+i))
	}
	rows[4].Solutions = nil
	data = shard(t, rows)
	r := recipe(2)
	r.Train, r.Dev = 8, 4
	r.Run = passAll
	w := workIn(t, t.TempDir())
	in := Input{Name: "s.parquet", SHA256: artifact.Digest(data), Size: int64(len(data))}
	if _, err := r.Shard(t.Context(), w, 0, in, bytes.NewReader(data), nil); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "set")
	if _, err := r.Finish(t.Context(), w, dir, 1); err != nil {
		t.Fatal(err)
	}
	return data, dir
}

func must(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// forge writes a copy of a data set with other rows in dev, and gives it digests and a seal that agree.
func forge[T any](t *testing.T, dir string, rows []T) string {
	t.Helper()
	files := readDir(t, dir)
	m, err := decodeManifest(files[ManifestFile])
	if err != nil {
		t.Fatal(err)
	}
	files[splitFile(Dev)] = shard(t, rows)
	m.Files = maps.Clone(m.Files)
	m.Files[splitFile(Dev)] = artifact.Digest(files[splitFile(Dev)])
	if files[ManifestFile], err = encodeManifest(m); err != nil {
		t.Fatal(err)
	}
	return write(t, files)
}

func devRows(t *testing.T, dir string) []problemRow {
	t.Helper()
	rows, err := parquet.ReadFile[problemRow](filepath.Join(dir, splitFile(Dev)))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestCheck_countsWhatItLookedAt(t *testing.T) {
	t.Parallel()
	data, dir := checkable(t)
	if f, err := Check(t.Context(), dir); err != nil || f != (Findings{Problems: 12, Tests: 24, Examples: 12}) {
		t.Errorf("%+v, %v; want 12 problems, 24 tests, 12 examples", f, err)
	}
	in := Input{Name: "s.parquet", SHA256: artifact.Digest(data), Size: int64(len(data))}
	if f, err := Check(t.Context(), dir, Source{in, bytes.NewReader(data)}); err != nil || f.Compared != 12 {
		t.Errorf("%+v, %v; want 12 compared", f, err)
	}
	in.SHA256 = artifact.Digest(nil)
	if _, err := Check(t.Context(), dir, Source{in, bytes.NewReader(data)}); !fault.Is(err, fault.Invalid) {
		t.Errorf("another shard: %v, want Invalid", err)
	}
}

// What digests cannot show: files that agree with their manifest and hold what no prompt may hold.
func TestCheck_findsWhatDigestsDoNot(t *testing.T) {
	t.Parallel()
	data, dir := checkable(t)
	type wider struct {
		problemRow
		Solutions string `parquet:"solutions"`
	}
	var wide []wider
	for _, r := range devRows(t, dir) {
		wide = append(wide, wider{r, program})
	}
	first := func(change func(*problemRow)) string {
		rows := devRows(t, dir)
		change(&rows[0])
		return forge(t, dir, rows)
	}
	for name, c := range map[string]struct {
		dir    string
		want   string
		shards bool // only the shards tell
	}{
		"nothing":            {first(func(*problemRow) {}), "", false},
		"a column more":      {forge(t, dir, wide), "has the columns", false},
		"a key more":         {first(func(r *problemRow) { r.Public = `{"solution":"x",` + r.Public[1:] }), "unknown field", false},
		"two values":         {first(func(r *problemRow) { r.Public += `{}` }), "cannot be read", false},
		"a key in a sample":  {first(func(r *problemRow) { r.Samples = `[{"input":"1","output":"2","solution":"x"}]` }), "unknown field", false},
		"a hidden sample":    {first(func(r *problemRow) { r.Samples = `[{"input":"5000\n","output":"2"}]` }), "sample that is not in its statement", false},
		"a hidden statement": {first(func(r *problemRow) { r.Public = strings.TrimSuffix(r.Public, "}") + `,"statement":"x"}` }), "more than the public part", false},
		"another id":         {first(func(r *problemRow) { r.Public = strings.Replace(r.Public, r.ID, "s/99999", 1) }), "more than the public part", false},
		"a test less":        {first(func(r *problemRow) { r.Tests = `[{"input":"","output":""}]` }), "has 1 tests, its row says 2", false},
		"no tests":           {first(func(r *problemRow) { r.Tests = `[]` }), "has 0 tests", false},
		"a row less":         {forge(t, dir, devRows(t, dir)[1:]), "has 3 problems, the manifest says 4", false},
		"a row twice":        {forge(t, dir, append(devRows(t, dir)[:3], devRows(t, dir)[0])), "are the same problem", false},
		"a solution":         {first(func(r *problemRow) { r.Prompt += "\n" + program }), "is not the statement", true},
		"other tests":        {first(func(r *problemRow) { r.Tests = `[{"input":"1\n","output":"2\n"},{"input":"1","output":"2"}]` }), "saved tests", true},
	} {
		in := Input{Name: "s.parquet", SHA256: artifact.Digest(data), Size: int64(len(data))}
		_, err := Check(t.Context(), c.dir)
		if c.shards {
			if err != nil {
				t.Errorf("%s: without shards %v, want nothing", name, err)
			}
			_, err = Check(t.Context(), c.dir, Source{in, bytes.NewReader(data)})
		}
		if c.want == "" && err != nil || c.want != "" && (!fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want Corrupt and %q", name, err, c.want)
		}
	}
}

// A program in the statement drops the row, however it is indented; short ones and other ones do not.
func TestPrepareShard_solutionShown(t *testing.T) {
	t.Parallel()
	for statement, want := range map[string]Reason{
		"Here is how:\n" + program: SolutionShown,
		"Write " + strings.ReplaceAll(program, "\t", "        ") + " please": SolutionShown,
		"Write " + strings.ReplaceAll(program, "\n", "\r\n"):                 SolutionShown,
		"Write\n" + strings.ReplaceAll(program, "i * i", "i + i"):            Kept,
		"Read n = int(input()) and go on.":                                   Kept,
	} {
		r := plain(statement)
		r.Solutions = ptr(string(must(t, []string{"print(1)", program})))
		o := options()
		o.Run = passAll
		if c := decode(t, prepare(t, []Row{r}, o))[0]; c.Decision.Reason != want {
			t.Errorf("%q: %s, want %s", statement, c.Decision.Reason, want)
		}
	}
}

func TestFunnel(t *testing.T) {
	t.Parallel()
	m := Manifest{
		Rows: 200, Train: 90, Dev: 30, Platforms: []Platform{{"", 40, 20}, {"a<b", 160, 100}},
		Reasons: []Count{{string(Kept), 120}, {string(Image), 50}, {string(BadTests), 0}, {string(Excluded), 30}},
	}
	if got, want := m.Funnel(), []Stage{{Image, 50, 150}, {Excluded, 30, 120}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var table, svg strings.Builder
	if err := errors.Join(m.FunnelTable(&table), m.FunnelSVG(&svg)); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(table.String()) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"rule dropped left of all", "rows 200 100.0 %", "image 50 150 75.0 %", "excluded 30 120 60.0 %", "train 90 45.0 %", "dev 30 15.0 %",
		"", "source rows kept", "(none) 40 20", "a<b 160 100",
	}
	if !slices.Equal(rows, want) {
		t.Errorf("table %q, want %q", rows, want)
	}
	widths := 0
	for dec := xml.NewDecoder(strings.NewReader(svg.String())); ; {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, &svg)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "rect" {
			widths++
		}
	}
	if widths != 8 || !strings.Contains(svg.String(), "−50, 150 left") { // background, five bars, two dropped parts
		t.Errorf("%d bars:\n%s", widths, &svg)
	}
	var empty strings.Builder
	if err := errors.Join((&Manifest{}).FunnelTable(&empty), (&Manifest{}).FunnelSVG(&empty)); err != nil || strings.Contains(empty.String(), "NaN") {
		t.Errorf("of nothing: %v\n%s", err, &empty)
	}
}

func TestSet_Find(t *testing.T) {
	t.Parallel()
	_, dir := checkable(t)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range s.problems[Dev] {
		if split, p, err := s.Find(want.ID); split != Dev || p.ID != want.ID || err != nil {
			t.Errorf("%s: %s in %s, %v", want.ID, p.ID, split, err)
		}
	}
	if _, _, err := s.Find("s/00004"); !fault.Is(err, fault.NotFound) { // dropped
		t.Errorf("a dropped row: %v, want NotFound", err)
	}
	if err := os.Remove(filepath.Join(dir, splitFile(Dev))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tests(Dev, 0); !fault.Is(err, fault.NotFound) {
		t.Errorf("a file that is gone: %v, want NotFound", err)
	}
}
