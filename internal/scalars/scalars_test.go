package scalars

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
)

var update = flag.Bool("update", false, "rewrite golden files")

// filled returns a metrics struct with a value in every field but each seventh, which depend on step.
func filled[T any](step int) T {
	var out T
	v := reflect.ValueOf(&out).Elem()
	for i := range v.NumField() {
		if (i+step)%7 != 0 {
			x := float64(i) + float64(step)/8 + 0.1
			v.Field(i).Set(reflect.ValueOf(&x))
		}
	}
	return out
}

func validation(step int, source string, acc float64) record.Validation {
	return record.Validation{
		Name: record.StepName(step), Version: step, Problems: 8, Source: source, Seconds: 1.5,
		Metrics: record.DevMetrics{Solved: int(8 * acc), Acc: acc, PassRate: acc, FormatOK: 1, ToolUsed: 1, MeanTokens: 20.25},
	}
}

// stored is a store with a run of three steps: validated at 0, 2 and 3, and exported.
func stored(t *testing.T) (artifact.Store, record.Layout) {
	t.Helper()
	s, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := record.Layout{Run: "r1", Lineage: "l0"}
	put(t, s, l.RunFile(), record.Run{Run: "r1", Lineage: "l0", Started: "2026-03-01T09:00:00Z"})
	for step := 1; step <= 3; step++ {
		putStep(t, s, l, step)
	}
	put(t, s, l.Validation("000000"), validation(0, "published", 0.25))
	put(t, s, l.Validation("000002"), validation(2, "published", 0.5))
	put(t, s, l.Validation("000003"), validation(3, "published", 0.75))
	put(t, s, l.Validation("export"), validation(3, "export", 0.75))
	put(t, s, l.Verdicts(record.EvalUnit("000002", 0)), map[string]int{"no": 1}) // of a unit: no record of a validation
	return s, l
}

func putStep(t *testing.T, s artifact.Store, l record.Layout, step int) {
	t.Helper()
	b := record.Sealed{Step: step, Groups: make([]record.Group, 2), Samples: make([]record.Sample, 8), Rollout: filled[record.BatchMetrics](step)}
	recordtest.PutStep(t, s, l, b, record.Result{
		Metrics: filled[record.UpdateMetrics](step), Trainer: "host, \"a\"", Replayed: step - 1,
		WeightsDigest: fmt.Sprintf("w-%s-%d", l.Lineage, step), StateDigest: fmt.Sprintf("s-%s-%d", l.Lineage, step),
	})
}

func put(t *testing.T, s artifact.Store, name string, v any) {
	t.Helper()
	if _, err := artifact.PutJSON(t.Context(), s, name, v); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, s artifact.Store, l record.Layout) *Table {
	t.Helper()
	table, err := Load(t.Context(), s, l)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func (t *Table) cell(i int, column string) Cell { return t.Rows[i].Cells[at(Columns(), column)] }

func TestLoad_oneRowAStepWithWhatItLeft(t *testing.T) {
	t.Parallel()
	table := load(store(t))
	if got := len(table.Rows); got != 4 {
		t.Fatalf("got %d rows, want steps 0 to 3", got)
	}
	b, u := filled[record.BatchMetrics](2), filled[record.UpdateMetrics](2)
	for _, m := range append(record.Metrics(b), record.Metrics(u)...) {
		var want Cell
		if m.Value != nil {
			want = *m.Value
		}
		if got := table.cell(2, m.Name); got != want {
			t.Errorf("step 2, %s: got %v, want %v", m.Name, got, want)
		}
	}
	for _, tt := range []struct {
		row    int
		column string
		want   Cell
	}{
		{0, "reward_mean", nil},
		{0, "dev_acc", 0.25},
		{0, "step", int64(0)},
		{0, "trainer", nil},
		{1, "dev_acc", nil},
		{1, "groups", int64(2)},
		{1, "trajectories", int64(8)},
		{1, "run", "r1"},
		{2, "dev_solved", int64(4)},
		{2, "export_acc", nil},
		{2, "replayed_steps", int64(1)},
		{3, "export_acc", 0.75},
		{3, "dev_problems", int64(8)},
		{3, "weights_digest", "w-l0-3"},
	} {
		if got := table.cell(tt.row, tt.column); got != tt.want {
			t.Errorf("row %d, %s: got %v, want %v", tt.row, tt.column, got, tt.want)
		}
	}
}

func store(t *testing.T) (*testing.T, artifact.Store, record.Layout) {
	s, l := stored(t)
	return t, s, l
}

func TestLoad_aLineageHasTheStepsThatItGoesBackTo(t *testing.T) {
	t.Parallel()
	s, l := stored(t)
	l1 := record.Layout{Run: l.Run, Lineage: "l1"}
	put(t, s, l1.LineageFile(), record.Run{Run: l.Run, Lineage: "l1", Opened: "u", Parent: &record.Parent{Run: l.Run, Lineage: "l0", Step: 2}})
	putStep(t, s, l1, 3)
	putStep(t, s, l1, 4)
	put(t, s, l1.Validation("000004"), validation(4, "published", 1))
	l2 := record.Layout{Run: l.Run, Lineage: "l2"}
	put(t, s, l2.LineageFile(), record.Run{Run: l.Run, Lineage: "l2", Opened: "v", Parent: &record.Parent{Run: l.Run, Lineage: "l1", Step: 3}})
	for lineage, want := range map[string]string{
		"l0": "0:l0 1:l0 2:l0 3:l0 ", "l1": "0:l0 1:l0 2:l0 3:l1 4:l1 ", "l2": "0:l0 1:l0 2:l0 3:l1 ",
	} {
		table := load(t, s, record.Layout{Run: l.Run, Lineage: lineage})
		got := ""
		for i, r := range table.Rows {
			got += fmt.Sprintf("%d:%v ", r.Step, table.cell(i, "lineage"))
		}
		if got != want || table.Started.IsZero() {
			t.Errorf("%s: rows %s started %v, want %s", lineage, got, table.Started, want)
		}
	}
	if table := load(t, s, l1); table.cell(3, "dev_acc") != nil || table.cell(3, "export_acc") != nil || table.cell(2, "dev_acc") != 0.5 {
		t.Error("a validation of a step that was rolled back counts, or one before it does not")
	}
}

// No table is made from a changed number, wherever in the records it is.
func TestLoad_changedNumberIsCorrupt(t *testing.T) {
	t.Parallel()
	s, l := stored(t)
	names, err := s.List(t.Context(), l.Root())
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, name := range names {
		if strings.Contains(name, "/chunk-") {
			continue // of a unit: it is not read
		}
		data, _, err := s.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if !recordtest.ChangeNumber(t, s, name) {
			continue
		}
		changed++
		if _, err := Load(t.Context(), s, l); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), name) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, want Corrupt with the name and a hint", name, err)
		}
		if _, err := s.Replace(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
	}
	if changed != 3+3+4 {
		t.Errorf("%d records were changed, want the batches, results and validations", changed)
	}
	load(t, s, l)
}

func TestLoad_aRunThatIsNotThere(t *testing.T) {
	t.Parallel()
	s, _ := stored(t)
	if _, err := Load(t.Context(), s, record.Layout{Run: "other", Lineage: "l0"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v, want NotFound", err)
	}
	put(t, s, "runs/new/run.json", record.Run{Run: "new", Lineage: "l0"})
	if table := load(t, s, record.Layout{Run: "new", Lineage: "l0"}); len(table.Rows) != 0 {
		t.Errorf("a run without a step has %d rows", len(table.Rows))
	}
}

func TestColumns_namesAreUniqueAndExplained(t *testing.T) {
	t.Parallel()
	name, seen, tags := regexp.MustCompile(`^[a-z][a-z0-9_]*$`), map[string]bool{}, map[string]bool{}
	for _, c := range Columns() {
		if !name.MatchString(c.Name) || c.Doc == "" || seen[c.Name] || c.Tag != "" && tags[c.Tag] || (c.Tag == "") != (c.Type == Text || c.Name == "step") {
			t.Errorf("bad or repeated column %+v", c)
		}
		seen[c.Name], tags[c.Tag] = true, true
	}
}

func TestWriteCSV_readsBackAsItWas(t *testing.T) {
	t.Parallel()
	table := load(store(t))
	var buf bytes.Buffer
	if err := table.WriteCSV(&buf); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&buf).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != len(table.Rows)+1 {
		t.Fatalf("got %d lines, want %d", len(lines), len(table.Rows)+1)
	}
	for k, c := range Columns() {
		if lines[0][k] != c.Name {
			t.Errorf("column %d is %s, want %s", k, lines[0][k], c.Name)
		}
		for i, r := range table.Rows {
			var got Cell
			switch s := lines[i+1][k]; {
			case s == "":
			case c.Type == Integer:
				got, err = strconv.ParseInt(s, 10, 64)
			case c.Type == Number:
				got, err = strconv.ParseFloat(s, 64)
			default:
				got = s
			}
			if err != nil || got != r.Cells[k] {
				t.Errorf("row %d, %s: got %v, %v; want %v", i, c.Name, got, err, r.Cells[k])
			}
		}
	}
}

func TestWriteParquet_readsBackAsItWas(t *testing.T) {
	t.Parallel()
	table := load(store(t))
	var buf bytes.Buffer
	if err := table.WriteParquet(&buf); err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(buf.Bytes()), int64(buf.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for k, field := range f.Schema().Fields() {
		if c := Columns()[k]; field.Name() != c.Name || !field.Optional() {
			t.Errorf("column %d is %s, optional %v; want %s, optional", k, field.Name(), field.Optional(), c.Name)
		}
		if doc, ok := f.Lookup("doc:" + field.Name()); !ok || doc != Columns()[k].Doc {
			t.Errorf("%s is explained by %q", field.Name(), doc)
		}
	}
	r := parquet.NewReader(f)
	defer r.Close() //nolint:errcheck // of memory
	rows := make([]parquet.Row, len(table.Rows))
	if n, _ := r.ReadRows(rows); n != len(rows) {
		t.Fatalf("got %d rows, want %d", n, len(rows))
	}
	for i, row := range rows {
		row.Range(func(k int, values []parquet.Value) bool {
			var got Cell
			switch v := values[0]; {
			case v.IsNull():
			case Columns()[k].Type == Text:
				got = v.String()
			case Columns()[k].Type == Integer:
				got = v.Int64()
			default:
				got = v.Double()
			}
			if got != table.Rows[i].Cells[k] {
				t.Errorf("row %d, %s: got %v, want %v", i, Columns()[k].Name, got, table.Rows[i].Cells[k])
			}
			return true
		})
	}
}

// point is what TensorBoard shows: a value of a curve.
type point struct {
	at   float64
	step uint64
	v    float32
}

// parse reads an event file by TensorFlow's definitions, checksums included.
func parse(t *testing.T, data []byte) (version string, curves map[string][]point, docs map[string]string) {
	t.Helper()
	curves, docs = map[string][]point{}, map[string]string{}
	for len(data) > 0 {
		n := int(binary.LittleEndian.Uint64(data)) //nolint:gosec // of a test
		if got := binary.LittleEndian.Uint32(data[8:]); got != masked(data[:8]) {
			t.Fatalf("checksum of a length is %#x", got)
		}
		body := data[12 : 12+n]
		if got := binary.LittleEndian.Uint32(data[12+n:]); got != masked(body) {
			t.Fatalf("checksum of an event is %#x", got)
		}
		data = data[16+n:]
		var p point
		for num, v := range walk(t, body) {
			switch num {
			case 1:
				p.at = math.Float64frombits(v[0].(uint64))
			case 2:
				p.step = v[0].(uint64)
			case 3:
				version = string(v[0].([]byte))
			case 5:
				for _, value := range walk(t, v[0].([]byte))[1] {
					f := walk(t, value.([]byte))
					tag := string(f[1][0].([]byte))
					p.v = math.Float32frombits(uint32(f[2][0].(uint64))) //nolint:gosec // 32 bits
					curves[tag] = append(curves[tag], point{v: p.v, step: math.MaxUint64})
					if f[9] != nil {
						docs[tag] = string(walk(t, f[9][0].([]byte))[3][0].([]byte))
					}
				}
			}
		}
		for tag, ps := range curves {
			if last := &ps[len(ps)-1]; last.step == math.MaxUint64 {
				last.step, last.at = p.step, p.at
			}
			_ = tag
		}
	}
	return version, curves, docs
}

// walk splits a message into its fields.
func walk(t *testing.T, b []byte) map[protowire.Number][]any {
	t.Helper()
	out := map[protowire.Number][]any{}
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		var v any
		switch kind {
		case protowire.VarintType:
			v, n = consume(protowire.ConsumeVarint(b))
		case protowire.Fixed64Type:
			v, n = consume(protowire.ConsumeFixed64(b))
		case protowire.Fixed32Type:
			var x uint32
			x, n = protowire.ConsumeFixed32(b)
			v = uint64(x)
		default:
			v, n = consume(protowire.ConsumeBytes(b))
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		out[num] = append(out[num], v)
	}
	return out
}

func consume[T any](v T, n int) (any, int) { return v, n }

func TestWriteEvents_holdsEveryNumberAsACurve(t *testing.T) {
	t.Parallel()
	table := load(store(t))
	var buf bytes.Buffer
	if err := table.WriteEvents(&buf); err != nil {
		t.Fatal(err)
	}
	version, curves, docs := parse(t, buf.Bytes())
	if version != "brain.Event:2" {
		t.Errorf("version %q", version)
	}
	for k, c := range Columns() {
		if c.Tag == "" {
			continue
		}
		var want []point
		for _, r := range table.Rows {
			if v, ok := float(r.Cells[k]); ok {
				want = append(want, point{at: float64(table.Started.UnixNano())/1e9 + r.Seconds, step: uint64(r.Step), v: v}) //nolint:gosec // small
			}
		}
		if d := cmp.Diff(want, curves[c.Tag], cmp.AllowUnexported(point{}), cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-5 })); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.Tag, d)
		}
		if len(want) > 0 && docs[c.Tag] != c.Doc {
			t.Errorf("%s is explained by %q", c.Tag, docs[c.Tag])
		}
	}
}

// The golden file was read by TensorBoard's own reader; see docs/metrics.md.
func TestWrite_sameRecordsSameBytes(t *testing.T) {
	t.Parallel()
	table := load(store(t))
	again := load(store(t))
	for name, write := range map[string]func(*Table, *bytes.Buffer) error{
		"steps.csv":     func(t *Table, b *bytes.Buffer) error { return t.WriteCSV(b) },
		"steps.parquet": func(t *Table, b *bytes.Buffer) error { return t.WriteParquet(b) },
		"events":        func(t *Table, b *bytes.Buffer) error { return t.WriteEvents(b) },
	} {
		var a, b bytes.Buffer
		if err := write(table, &a); err != nil {
			t.Fatal(err)
		}
		if err := write(again, &b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: two writings differ", name)
		}
		if name == "steps.parquet" { // its bytes belong to the library's version
			continue
		}
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, a.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.Bytes(), want) {
			t.Errorf("%s differs from its golden file", name)
		}
	}
}

func TestMasked_isTheChecksumOfTheFormat(t *testing.T) {
	t.Parallel()
	// CRC-32C of "123456789" is 0xe3069283 by its definition; rotated right by 15 and added to 0xa282ead8 it is this.
	if got, want := masked([]byte("123456789")), uint32(0xc78ab0e5); got != want {
		t.Errorf("got %#x, want %#x", got, want)
	}
}

func TestFloat_leavesOutWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in Cell
		ok bool
	}{{nil, false}, {"x", false}, {1e39, false}, {-1e39, false}, {1e38, true}, {int64(-3), true}, {0.0, true}} {
		if v, ok := float(tt.in); ok != tt.ok || ok && math.IsInf(float64(v), 0) {
			t.Errorf("float(%v) = %v, %v", tt.in, v, ok)
		}
	}
}

func TestEventFile_isKnownToTensorBoard(t *testing.T) {
	t.Parallel()
	for _, table := range []*Table{{Run: "r1", Lineage: "l0"}, {Run: "a.b", Lineage: "l1", Started: time.Unix(1_772_355_600, 0)}} {
		if got := table.EventFile(); !strings.Contains(got, "tfevents") || !strings.HasSuffix(got, table.Run+"."+table.Lineage) || strings.Contains(got, "/") {
			t.Errorf("file name %q", got)
		}
	}
}

// failing takes n bytes.
type failing struct{ n int }

func (f *failing) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, os.ErrClosed
	}
	return len(b), nil
}

func TestWrite_saysThatItFailed(t *testing.T) {
	t.Parallel()
	table := load(store(t))
	for n := range 3 {
		for name, err := range map[string]error{
			"csv": table.WriteCSV(&failing{n * 8}), "parquet": table.WriteParquet(&failing{n * 2}), "events": table.WriteEvents(&failing{n * 20}),
		} {
			if fault.KindOf(err) != fault.Busy {
				t.Errorf("%s, %d: got %v, want Busy", name, n, err)
			}
		}
	}
}
