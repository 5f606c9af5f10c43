package activities

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
)

// A study of two arms with two seeds, two steps each.
const studyInput = `{"name": "any", "recipe": "demo", "set": ["engine.backend=ref", "mode=sync", "run.steps=2", "run.validate_every=2"], "seeds": [1, 2],
 "arms": [{"name": "a", "set": ["rollout.lag=1"]}, {"name": "b", "set": []}], "comparisons": [{"a": "a", "b": "b"}]}`

func openStudy(t *testing.T, c *Control, id, input string) (contract.StudySpec, error) {
	t.Helper()
	return c.openStudy(t.Context(), contract.OpenStudyRequest{Study: id, Input: json.RawMessage(input)}, nil)
}

func prepare(t *testing.T, c *Control, arm string, seed uint64) contract.PreparedRun {
	t.Helper()
	p, err := c.prepareStudyRun(t.Context(), contract.StudyRunRequest{Study: "st", Arm: arm, Seed: seed}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// begin opens the run that is prepared, as its TrainRun would.
func begin(t *testing.T, c *Control, p contract.PreparedRun) {
	t.Helper()
	if _, err := c.startRun(t.Context(), contract.StartRunRequest{Run: p.Run, Owner: "one", Input: p.Input}, nil); err != nil {
		t.Fatal(err)
	}
}

// train leaves what a run of two steps leaves.
func train(t *testing.T, s artifact.Store, run string, solved int) {
	t.Helper()
	l := record.Layout{Run: run, Lineage: "l0"}
	for _, step := range []int{0, 2} {
		v := record.Validation{Name: record.StepName(step), Version: step, Problems: 2}
		for i := range 2 {
			it := record.DevItem{Problem: fmt.Sprint("p", i), Total: 2}
			if i < solved {
				it.Passed = 2
				v.Metrics.Solved++
			}
			v.Items = append(v.Items, it)
		}
		v.Metrics.Acc = float64(v.Metrics.Solved) / 2
		putJSON(t, s, l.Validation(v.Name), v)
	}
	for step := 1; step <= 2; step++ {
		x := float64(step)
		b := record.Sealed{Step: step, Rollout: record.BatchMetrics{RewardMean: &x, ResponseTokens: &x}}
		recordtest.PutStep(t, s, l, b, record.Result{StateDigest: fmt.Sprint("d", step), Metrics: record.UpdateMetrics{GradNorm: &x}})
	}
}

func collect(t *testing.T, c *Control, arm string, seed uint64, run, kind, failure string) contract.CollectedRun {
	t.Helper()
	out, err := c.collectStudyRun(t.Context(), contract.CollectStudyRunRequest{
		StudyRunRequest: contract.StudyRunRequest{Study: "st", Arm: arm, Seed: seed}, Run: run, Kind: kind, Failure: failure,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestStudy_fromOpenToSummary(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	spec, err := openStudy(t, c, "st", studyInput)
	if err != nil || !slices.Equal(spec.Arms, []string{"a", "b"}) || !slices.Equal(spec.Seeds, []uint64{1, 2}) || len(spec.Done) != 0 {
		t.Fatalf("got %+v, %v", spec, err)
	}
	for i, seed := range spec.Seeds {
		for k, arm := range spec.Arms {
			p := prepare(t, c, arm, seed)
			if want := fmt.Sprintf("st.%s.s%d", arm, seed); p.Run != want || p.Finished || len(p.Input) > contract.MaxMessage/2 {
				t.Fatalf("got the run %s with %d bytes of input, want %s", p.Run, len(p.Input), want)
			}
			begin(t, c, p)
			train(t, c.store(), p.Run, 2-k)
			if got := collect(t, c, arm, seed, p.Run, "", ""); got.Value == nil || *got.Value != 1-float64(k)/2 {
				t.Errorf("%s ends with %+v", p.Run, got)
			}
			again, err := openStudy(t, c, "st", studyInput)
			if err != nil || len(again.Done) != 2*i+k+1 || again.Done[2*i+k] != 2*i+k {
				t.Errorf("after %s these are done: %v, %v", p.Run, again.Done, err)
			}
		}
	}
	r := getJSON[record.StudyRun](t, c.store(), record.StudyLayout{Study: "st"}.Run("a", 2))
	if len(r.Points) != 2 || len(r.Steps) != 2 || len(r.Items) != 2 || r.StateDigest != "d2" || *r.Steps[1].GradNorm != 2 || r.Points[1].Step != 2 {
		t.Errorf("the record of a run is %+v", r)
	}
	out, err := c.summarizeStudy(t.Context(), contract.SummarizeStudyRequest{Study: "st"}, nil)
	if err != nil || out.Done != 4 || out.All != 4 || out.Passed != nil || out.Page.Name != "studies/st/study.md" {
		t.Fatalf("got %+v, %v", out, err)
	}
	var files []string
	for _, f := range []string{"result.json", "study.md", "study.svg", "study.csv", "study-problems.csv"} {
		data, _, err := c.store().Get(t.Context(), record.StudyLayout{Study: "st"}.Root()+f)
		if err != nil || len(data) == 0 {
			t.Errorf("%s: %v", f, err)
		}
		files = append(files, string(data))
	}
	if !strings.Contains(files[1], "+50.0") {
		t.Errorf("the page lacks the difference:\n%s", files[1])
	}
}

// What a run left decides whether another is made, and under which name.
func TestPrepareStudyRun_afterAnAttempt(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		left     func(c *Control, p contract.PreparedRun)
		run      string
		finished bool
	}{
		"nothing":             {func(*Control, contract.PreparedRun) {}, "st.a.s1", false},
		"an unfinished run":   {func(c *Control, p contract.PreparedRun) { begin(t, c, p) }, "st.a.s1-2", false},
		"a run that is ready": {func(c *Control, p contract.PreparedRun) { begin(t, c, p); train(t, c.store(), p.Run, 1) }, "st.a.s1", true},
		"a stranger's run": {func(c *Control, p contract.PreparedRun) {
			begin(t, c, contract.PreparedRun{Run: p.Run, Input: json.RawMessage(goodInput)})
			train(t, c.store(), p.Run, 1)
		}, "st.a.s1-2", false},
	}
	for name, tt := range tests {
		c := newControl(t)
		if _, err := openStudy(t, c, "st", studyInput); err != nil {
			t.Fatal(err)
		}
		tt.left(c, prepare(t, c, "a", 1))
		if p := prepare(t, c, "a", 1); p.Run != tt.run || p.Finished != tt.finished {
			t.Errorf("%s: got the run %s, finished %v", name, p.Run, p.Finished)
		}
	}
}

func TestCollectStudyRun_aResultStaysAndAFailureDoesNot(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	if _, err := openStudy(t, c, "st", studyInput); err != nil {
		t.Fatal(err)
	}
	p := prepare(t, c, "a", 1)
	if got := collect(t, c, "a", 1, p.Run, "Lost", "gone"); got.Failure != "gone" || got.Value != nil {
		t.Errorf("got %+v", got)
	}
	begin(t, c, p)
	if got := collect(t, c, "a", 1, p.Run, "", ""); !strings.Contains(got.Failure, "before its last step") {
		t.Errorf("a run without its last validation: got %+v", got)
	}
	train(t, c.store(), p.Run, 2)
	for _, kind := range []string{"", "Lost"} { // the second message is too late
		if got := collect(t, c, "a", 1, p.Run, kind, kind); got.Value == nil || *got.Value != 1 {
			t.Errorf("kind %q: got %+v", kind, got)
		}
	}
	// What would fail again is done, without a result.
	q := prepare(t, c, "b", 1)
	begin(t, c, q)
	collect(t, c, "b", 1, q.Run, string(fault.Numeric), "loss is NaN")
	spec, err := openStudy(t, c, "st", studyInput)
	if err != nil || !slices.Equal(spec.Done, []int{0, 1}) {
		t.Errorf("done are %v, %v", spec.Done, err)
	}
	res, err := AnalyseStudy(t.Context(), c.store(), "st")
	if err != nil || res.Done != 1 || res.Arms[1].Runs[0].Failure == "" || len(res.Arms[1].Runs[0].Collapse) != 1 {
		t.Errorf("got %+v, %v", res, err)
	}
}

// Steps and validations are those of the lineage that made them.
func TestGather_followsLineages(t *testing.T) {
	t.Parallel()
	all := []record.Run{
		{Lineage: "l0"},
		{Lineage: "l1", Parent: &record.Parent{Lineage: "l0", Step: 4}},
		{Lineage: "l2", Parent: &record.Parent{Lineage: "l1", Step: 6}},
		{Lineage: "l3", Parent: &record.Parent{Lineage: "l0", Step: 2}},
	}
	for n, want := range map[int]map[int]string{
		1: {0: "l0", 4: "l0", 9: "l0"},
		2: {0: "l0", 4: "l0", 5: "l1"},
		3: {4: "l0", 5: "l1", 6: "l1", 7: "l2"},
		4: {0: "l0", 2: "l0", 3: "l3", 7: "l3"},
	} {
		got := map[int]string{}
		for step := range want {
			got[step] = lineageOf(all[:n], "r", step).Lineage
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%d lineages: -want +got:\n%s", n, d)
		}
	}
}

func TestOpenStudy_whatIsRefused(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	if _, err := openStudy(t, c, "st", studyInput); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ id, input, want string }{
		"no input":           {"x", "null", "has no input"},
		"not JSON":           {"x", "{", "not JSON"},
		"an id with a slash": {"x/y", studyInput, `the workflow id "x/y" is not the name of a study`},
		"another definition": {"st", strings.Replace(studyInput, "[1, 2]", "[1, 3]", 1), "with another definition"},
		"another engine":     {"x", strings.Replace(studyInput, "backend=ref", "backend=cpu", 1), `needs the engine "cpu"`},
		"a broken rule":      {"x", strings.Replace(studyInput, "[1, 2]", "[1, 1]", 1), "seeds[1]: must differ"},
	} {
		if _, err := openStudy(t, c, tt.id, tt.input); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want Invalid with %q", name, err, tt.want)
		}
	}
	if _, err := openStudy(t, c, "st", strings.Replace(studyInput, `"recipe"`, `"parallel": 3, "recipe"`, 1)); err != nil {
		t.Errorf("more runs at once change no result: %v", err)
	}
	if _, err := AnalyseStudy(t.Context(), c.store(), "nobody"); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v, want NotFound", err)
	}
}
