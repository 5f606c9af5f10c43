package record_test

import (
	"encoding/json"
	"math"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

func TestLayout_namesAreTheContract(t *testing.T) {
	t.Parallel()
	l := record.Layout{Run: "r1", Lineage: "l0"}
	// Stored runs are read by these names: a change here loses them.
	for want, got := range map[string]string{
		"runs/r1/run.json": l.RunFile(), "runs/r1/l0/config.json": l.ConfigFile(), "runs/r1/l0/": l.Root(),
		"runs/r1/l0/batches/000012.json": l.Batch(12), "runs/r1/l0/results/000012.json": l.Result(12),
		"runs/r1/l0/ledger/000012.json": l.Ledger(12), "runs/r1/l0/ledger/end.json": l.LedgerEnd(),
		"runs/r1/l0/weights/000000.safetensors": l.Weights(0), "runs/r1/l0/weights/000000.json": l.WeightsInfo(0),
		"runs/r1/l0/live.json": l.Live(), "runs/r1/l0/fence.json": l.Fence(),
		"runs/r1/l0/checkpoints": l.Checkpoints(), "runs/r1/l0/checkpoints/000050": l.Checkpoint(50),
		"runs/r1/l0/validation/000025.json": l.Validation(record.StepName(25)), "runs/r1/l0/validation/export.json": l.Validation("export"),
		"runs/r1/l0/validation/000025/chunk-003/verdicts.json": l.Verdicts(record.EvalUnit(record.StepName(25), 3)),
		"runs/r1/l0/events/": l.Events(), "runs/r1/l0/events/x.json": l.Event("x"),
		"runs/r1/l0/export": l.Export(), "runs/r1/l0/base": l.Base(), "runs/r1/l0/report.html": l.Report(),
		"runs/r1/l0/groups/000007-t3-p41-s1/trajectories.parquet":    l.Trajectories(record.GroupUnit(7, 3, 41, 1)),
		"runs/r1/l0/groups/000007-t3-p41-s1/sample-0041-02.parquet":  l.Sample(record.GroupUnit(7, 3, 41, 1), 41, 2),
		"runs/r1/l0/groups/000007-t3-p41-s1/partial-0041-02.parquet": l.Partial(record.GroupUnit(7, 3, 41, 1), 41, 2),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestLayout_namesAreGoodAndSortByStep(t *testing.T) {
	t.Parallel()
	s, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := record.Layout{Run: "a.b-c_1", Lineage: "l12"}
	var names []string
	for _, step := range []int{0, 1, 9, 10, 99, 100, 999, 1000, 99_999, 100_000, 999_999} {
		names = append(names, l.Result(step))
	}
	if !slices.IsSorted(names) {
		t.Errorf("names do not sort by step: %v", names)
	}
	for _, name := range append(names, l.RunFile(), l.ConfigFile(), l.Event("20260301T090000.000-x"), l.Checkpoints(), l.LedgerEnd(), l.Dataset()) {
		if _, err := s.Path(name); err != nil {
			t.Error(err)
		}
	}
}

// TestLayout_namesDoNotCollide gives every method the arguments of a neighbour.
func TestLayout_namesDoNotCollide(t *testing.T) {
	t.Parallel()
	l := record.Layout{Run: "r", Lineage: "l1"} // the record of the first lineage is the run's
	seen := map[string]string{}
	v := reflect.ValueOf(l)
	for i := range v.NumMethod() {
		m := v.Type().Method(i)
		args := make([]reflect.Value, m.Type.NumIn()-1)
		for k := range args {
			if args[k] = reflect.ValueOf(1); m.Type.In(k+1).Kind() == reflect.String {
				args[k] = reflect.ValueOf("unit")
			}
		}
		name := v.Method(i).Call(args)[0].String()
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s are both %s", other, m.Name, name)
		}
		seen[name] = m.Name
	}
	if len(seen) < 20 {
		t.Errorf("only %d methods were found", len(seen))
	}
}

func TestUnits_identifyTheirContent(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, u := range []string{
		record.GroupUnit(1, 2, 3, 0), record.GroupUnit(1, 2, 3, 1), record.GroupUnit(1, 2, 4, 0), record.GroupUnit(1, 3, 3, 0), record.GroupUnit(2, 2, 3, 0),
		record.EvalUnit("000025", 0), record.EvalUnit("000025", 1), record.EvalUnit("export", 0),
	} {
		if seen[u] || path.Clean(u) != u {
			t.Errorf("unit %s is taken or not clean", u)
		}
		seen[u] = true
	}
}

func TestNum_isNilUnlessFinite(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if got := record.Num(v); got != nil {
			t.Errorf("Num(%v) = %v, want nil", v, *got)
		}
	}
	for _, v := range []float64{0, -1.5, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		if got := record.Num(v); got == nil || *got != v {
			t.Errorf("Num(%v) = %v", v, got)
		}
	}
}

func TestCheckFinite_namesTheField(t *testing.T) {
	t.Parallel()
	nan, one := math.NaN(), 1.0
	tests := []struct {
		name string
		v    any
		want string // "" for finite
	}{
		{"metrics", record.UpdateMetrics{Loss: &one}, ""},
		{"absent", record.UpdateMetrics{}, ""},
		{"pointer", record.UpdateMetrics{Loss: &one, Entropy: &nan}, ".Entropy is NaN"},
		{"nested", record.Result{Metrics: record.UpdateMetrics{GradNorm: &nan}}, ".Metrics.GradNorm is NaN"},
		{"slice", record.Sealed{Samples: []record.Sample{{}, {Reward: math.Inf(1)}}}, ".Samples[1].Reward is +Inf"},
		{"float32", record.Version{ProbeLogProbs: []float32{-1, float32(math.Inf(-1))}}, ".ProbeLogProbs[1] is -Inf"},
		{"pointer to struct", &record.Validation{Metrics: record.DevMetrics{Acc: nan}}, ".Metrics.Acc is NaN"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := record.CheckFinite(tt.v)
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v, want nil", err)
				}
				return
			}
			if !fault.Is(err, fault.Numeric) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want Numeric with %q", err, tt.want)
			}
		})
	}
}

func TestMetrics_everyNumberHasANameAndAMeaning(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	seen := map[string]bool{}
	for _, v := range []any{record.BatchMetrics{}, record.UpdateMetrics{}} {
		list := record.Metrics(v)
		if want := reflect.TypeOf(v).NumField(); len(list) != want {
			t.Errorf("%T: %d metrics, want one for each of %d fields", v, len(list), want)
		}
		for _, m := range list {
			if !name.MatchString(m.Name) || m.Doc == "" || seen[m.Name] || m.Value != nil {
				t.Errorf("%T: bad, repeated or filled metric %+v", v, m)
			}
			seen[m.Name] = true
		}
	}
	x := 0.25
	if got := record.Metrics(record.UpdateMetrics{GradNorm: &x}); got[1].Name != "grad_norm" || got[1].Value == nil || *got[1].Value != x {
		t.Errorf("second update metric = %+v, want grad_norm 0.25", got[1])
	}
}

// TestMetrics_absentIsNull: an undefined metric is null in JSON, so that it is never read back as 0.
func TestMetrics_absentIsNull(t *testing.T) {
	t.Parallel()
	zero := 0.0
	in := record.BatchMetrics{RewardMean: &zero}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string]any
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatal(err)
	}
	if len(raw) != len(record.Metrics(in)) || raw["reward_mean"] != 0.0 || raw["drops"] != nil {
		t.Errorf("JSON %s: want every metric, 0 for reward_mean, null for the others", data)
	}
	var back record.BatchMetrics
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(in, back); d != "" {
		t.Errorf("read back (-want +got):\n%s", d)
	}
}

func TestRecords_surviveJSON(t *testing.T) {
	t.Parallel()
	x := 0.1 + 0.2
	for _, in := range []any{
		&record.Ledger{
			Step: 3, Submitted: []record.Submitted{{N: 1, Problem: 2, Tag: 3, Submission: 4}}, Dropped: []record.Drop{{N: 0, Reason: "stale", Tag: 1, Tokens: 9, Finished: true}},
			Trained: []int{1}, Cursor: record.Cursor{Epoch: 1, Next: 2, Returned: []record.Returned{{Problem: 5, Submission: 1}}}, NextGroup: 2,
		},
		&record.Result{Step: 1, Metrics: record.UpdateMetrics{Loss: &x}, Replayed: 2, Weights: artifact.Ref{Name: "w", Digest: "d", Size: 3}},
		&record.Validation{Name: "export", Items: []record.DevItem{{Problem: "p", Passed: 1, Total: 2}}, Metrics: record.DevMetrics{Acc: x, LengthCut: 3}, Source: "export"},
		&record.Run{Run: "r", Lineage: "l1", Parent: &record.Parent{Run: "q", Lineage: "l0", Step: 50}},
	} {
		data, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		out := reflect.New(reflect.TypeOf(in).Elem()).Interface()
		if err := json.Unmarshal(data, out); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(in, out); d != "" {
			t.Errorf("%T (-want +got):\n%s", in, d)
		}
	}
}

// Studies are read by these names, and the names of two runs never meet.
func TestStudyLayout_namesAreTheContract(t *testing.T) {
	t.Parallel()
	s, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := record.StudyLayout{Study: "st-1"}
	for want, got := range map[string]string{
		"studies/st-1/": l.Root(), "studies/st-1/study.json": l.File(), "studies/st-1/runs/sc.lag4.s18446744073709551615.json": l.Run("sc.lag4", 1<<64-1),
		"studies/st-1/result.json": l.Result(), "studies/st-1/study.md": l.Page(), "studies/st-1/study.svg": l.Picture(),
		"studies/st-1/study.csv": l.Curves(), "studies/st-1/study-problems.csv": l.Pairs(),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if _, err := s.Path(strings.TrimSuffix(got, "/")); err != nil {
			t.Error(err)
		}
	}
	if a, b := l.Run("a.s1", 2), l.Run("a", 12); a == b {
		t.Errorf("two runs have the name %s", a)
	}
}
