package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/trajectory"
	"github.com/steadyrl/steady/internal/weights"
)

var lay = key.Layout()

// demoAssets copies the configuration of the bundled model; its states are tiny.
type demoAssets struct{ Assets }

func (demoAssets) CheckModel(ctx context.Context, dir string) error {
	if dir == "damaged" {
		return fault.New(fault.Corrupt, "CheckModel", "the model is damaged")
	}
	return weights.CheckDir(ctx, demo.Model(), "bundled")
}

func (demoAssets) CopyModelFiles(ctx context.Context, s artifact.Store, l record.Layout, _ string) error {
	data, err := fs.ReadFile(demo.Model(), "config.json")
	if err != nil {
		return err
	}
	_, err = s.Put(ctx, path.Join(l.Base(), "config.json"), data)
	return err
}

func (demoAssets) InitialState(context.Context, string) (*engine.State, error) {
	return tinyState(), nil
}

func tinyState() *engine.State {
	c := model.Config{
		Vocab: 12, Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 10,
		MaxPosition: 32, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
	}
	s := &engine.State{Master: model.NewWeights(c), M: model.NewWeights(c), V: model.NewWeights(c)}
	s.Master.Init(1, 0.5)
	return s
}

func newControl(t *testing.T) *Control {
	t.Helper()
	n := newNotes(t)
	return &Control{
		Runs: &Runs{Store: n.Store, Backend: "ref"}, Notes: n, Assets: demoAssets{}, Version: "test",
		SearchAttributes: func(context.Context) (bool, error) { return true, nil },
		Report:           func(context.Context, artifact.Store, record.Layout) ([]byte, error) { return []byte("page"), nil },
	}
}

const goodInput = `{"recipe":"demo","engine":{"backend":"ref"},"retention":{"checkpoints":2,"milestone_every":3}}`

func start(run, owner, input string) contract.StartRunRequest {
	return contract.StartRunRequest{Run: run, Owner: owner, Input: json.RawMessage(input)}
}

// started is a control whose run is open.
func started(t *testing.T) *Control {
	t.Helper()
	c := newControl(t)
	if _, err := c.startRun(t.Context(), start("r", "one", goodInput), nil); err != nil {
		t.Fatalf("StartRun: %v", err)
	}
	return c
}

func putJSON(t *testing.T, s artifact.Store, name string, v any) artifact.Ref {
	t.Helper()
	ref, err := artifact.ReplaceJSON(t.Context(), s, name, v)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func getJSON[T any](t *testing.T, s artifact.Store, name string) T {
	t.Helper()
	var v T
	if _, err := artifact.GetJSON(t.Context(), s, name, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func save(t *testing.T, s artifact.Store, l record.Layout, step int) {
	t.Helper()
	dir, err := s.Path(l.Checkpoint(step))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.SaveState(t.Context(), dir, tinyState(), step); err != nil {
		t.Fatal(err)
	}
}

func TestStartRun_refusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, run, input string
		kind             fault.Kind
		text             string
	}{
		{"bad name", "a/b", goodInput, fault.Invalid, "not a run name"},
		{"no name", "", goodInput, fault.Invalid, "not a run name"},
		{"no input", "x", "", fault.Invalid, "no input"},
		{"null input", "x", "null", fault.Invalid, "no input"},
		{"not JSON", "x", "{", fault.Invalid, "not JSON"},
		{"a list", "x", "[1]", fault.Invalid, "object"},
		{"unknown key", "x", `{"recipe":"demo","run":{"stepz":3}}`, fault.Invalid, "stepz"},
		{"bad value", "x", `{"recipe":"demo","run":{"steps":0}}`, fault.Invalid, "run.steps"},
		{"damaged model", "x", `{"recipe":"demo","engine":{"backend":"ref"},"model":{"path":"damaged"}}`, fault.Corrupt, "damaged"},
		{"no such parent", "x", `{"recipe":"demo","run":{"init_run":"nobody"}}`, fault.NotFound, `no run "nobody"`},
		{"no such lineage of the parent", "x", `{"recipe":"demo","run":{"init_run":"r","init_lineage":"l9"}}`, fault.NotFound, `no lineage "l9"`},
		{"a parent without checkpoints", "x", `{"recipe":"demo","run":{"init_run":"r"}}`, fault.NotFound, "no checkpoint yet"},
		{"another owner", "r", goodInput, fault.Invalid, "another execution"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := started(t)
			_, err := c.startRun(t.Context(), start(tt.run, "two", tt.input), nil)
			if !fault.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %s with %q", err, tt.kind, tt.text)
			}
			if names, err := c.store().List(t.Context(), "runs/x"); err != nil || len(names) > 0 {
				t.Errorf("a refused run left %v, %v; want nothing", names, err)
			}
			if got := getJSON[record.Run](t, c.store(), lay.RunFile()).Owner; got != "one" {
				t.Errorf("run r: got owner %q, want one", got)
			}
		})
	}
}

func TestStartRun_isIdempotent(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	first, err := c.startRun(t.Context(), start("r", "one", goodInput), nil)
	if err != nil {
		t.Fatal(err)
	}
	rec := getJSON[record.Run](t, c.store(), lay.RunFile())
	second, err := c.startRun(t.Context(), start("r", "one", goodInput), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first, second); d != "" {
		t.Errorf("second plan (-first +second):\n%s", d)
	}
	if d := cmp.Diff(rec, getJSON[record.Run](t, c.store(), lay.RunFile())); d != "" {
		t.Errorf("record of the run (-first +second):\n%s", d)
	}
	cfg, _, err := config.DecodeJSON([]byte(goodInput))
	if err != nil {
		t.Fatal(err)
	}
	if first.RunKey != key || first.Steps != cfg.Run.Steps || first.GroupSize != cfg.Rollout.GroupSize || !first.SearchAttributes || first.Prefill != cfg.Rollout.Prefill {
		t.Errorf("plan %+v does not follow the configuration", first)
	}
	if rec.Owner != "one" || rec.Engine != "ref" || rec.Parent != nil {
		t.Errorf("record %+v: want owner one, engine ref, no parent", rec)
	}
}

func TestStartRun_continuesAParent(t *testing.T) {
	t.Parallel()
	cursor := record.Cursor{Epoch: 1, Next: 5, Returned: []record.Returned{{Problem: 3, Submission: 1}}}
	tests := []struct {
		name, run string
		want      int // step
		kind      fault.Kind
	}{
		{"newest", `"init_run":"r"`, 8, ""},
		{"named", `"init_run":"r","init_step":4`, 4, ""},
		{"absent", `"init_run":"r","init_step":5`, 0, fault.NotFound},
		{"nothing left", `"init_run":"r","steps":8,"validate_every":1`, 0, fault.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := started(t)
			for _, step := range []int{0, 4, 8} {
				save(t, c.store(), lay, step)
				putJSON(t, c.store(), lay.Ledger(step), record.Ledger{Step: step, Cursor: cursor, NextGroup: 10 * step})
			}
			got, err := c.startRun(t.Context(), start("child", "two", `{"recipe":"demo","engine":{"backend":"ref"},"run":{`+tt.run+`}}`), nil)
			if tt.kind != "" {
				if !fault.Is(err, tt.kind) {
					t.Errorf("got %v, want %s", err, tt.kind)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.FirstStep != tt.want || got.NextGroup != 10*tt.want || !cmp.Equal(got.Cursor, cursor) {
				t.Errorf("got first step %d, next group %d, cursor %+v; want %d, %d, %+v", got.FirstStep, got.NextGroup, got.Cursor, tt.want, 10*tt.want, cursor)
			}
			rec := getJSON[record.Run](t, c.store(), record.Layout{Run: "child"}.RunFile())
			if d := cmp.Diff(&record.Parent{Run: "r", Lineage: "l0", Step: tt.want}, rec.Parent); d != "" {
				t.Errorf("parent (-want +got):\n%s", d)
			}
		})
	}
}

func TestRuns_leaveTheRecordOfTheWorker(t *testing.T) {
	t.Parallel()
	c := started(t)
	self := record.Worker{Host: "node 1/a", Steady: "v1", Engine: "ref", Python: "3.12.3", Sandbox: "all of it"}
	name := lay.Worker(self.Host)
	for _, version := range []string{"v1", "v1", "v2"} { // a start, the same again, another binary
		self.Steady = version
		if _, err := (&Runs{Store: c.store(), Backend: "ref", Self: self}).Of(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if got := getJSON[record.Worker](t, c.store(), name); got != self {
			t.Errorf("got %+v, want %+v", got, self)
		}
	}
	if names, err := c.store().List(t.Context(), lay.Workers()); err != nil || !slices.Equal(names, []string{name}) {
		t.Errorf("got the records %v, %v; want one", names, err)
	}
}

// A run whose configuration or model files changed after its start must not go on with them.
func TestRuns_refuseWhatChangedSinceTheStart(t *testing.T) {
	t.Parallel()
	base := lay.Base() + "/config.json"
	tests := []struct {
		name   string
		damage func(text string) string
	}{
		{lay.ConfigFile(), func(s string) string { return strings.Replace(s, `"seed": 42`, `"seed": 43`, 1) }},
		{lay.ConfigFile(), func(s string) string {
			return strings.Replace(s, `"learning_rate": 0.0`, `"learning_rate": 0.1`, 1)
		}},
		{lay.ConfigFile(), func(s string) string { return s + "\n" }},
		{lay.RunFile(), func(string) string { return "{}" }},
		{lay.RunFile(), func(s string) string { return s[:len(s)/2] }},
		{base, func(s string) string { return s + "\n" }},
		{base, func(s string) string { return s[:len(s)/2] }},
		{lay.BaseInfo(), func(s string) string { return s[:len(s)/2] }},
		{lay.BaseInfo(), func(s string) string { return strings.ReplaceAll(s, `"digest": "`, `"digest": "0`) }},
	}
	for i, tt := range tests {
		t.Run(fmt.Sprint(i, tt.name), func(t *testing.T) {
			t.Parallel()
			c := started(t)
			text, _, err := c.store().Get(t.Context(), tt.name)
			if err != nil {
				t.Fatal(err)
			}
			changed := tt.damage(string(text))
			if changed == string(text) {
				t.Fatal("nothing was damaged")
			}
			if _, err := c.store().Replace(t.Context(), tt.name, []byte(changed)); err != nil {
				t.Fatal(err)
			}
			again := &Runs{Store: c.store(), Backend: "ref"}
			if _, err := again.Of(t.Context(), key); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), tt.name) && tt.name != lay.BaseInfo() {
				t.Errorf("got %v, want Corrupt with the name", err)
			}
		})
	}
	for _, name := range []string{lay.RunFile(), lay.BaseInfo()} { // a run of an older build, or a lost record
		c := started(t)
		if err := c.store().Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := (&Runs{Store: c.store(), Backend: "ref"}).Of(t.Context(), key); err != nil {
			t.Errorf("without %s: got %v, want to go on", name, err)
		}
	}
}

// A run that this worker's device is too small for is refused each time, and leaves no record of the worker; the check gets the run's own configuration and model.
func TestRuns_refuseWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	c := started(t)
	small := true
	runs := &Runs{Store: c.store(), Backend: "ref", Self: record.Worker{Host: "h"}, Fits: func(cfg *config.Config, m model.Config) error {
		if cfg.Engine.Backend != "ref" || m.Layers == 0 {
			t.Errorf("asked about %+v, %+v", cfg.Engine, m)
		}
		if small {
			return fault.New(fault.Invalid, "test", "too small")
		}
		return nil
	}}
	for range 2 {
		if _, err := runs.Of(t.Context(), key); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "too small") {
			t.Errorf("got %v, want the refusal", err)
		}
	}
	if ok, err := c.store().Exists(t.Context(), lay.Worker("h")); err != nil || ok {
		t.Errorf("a worker that refused signed the run (%v)", err)
	}
	small = false
	if _, err := runs.Of(t.Context(), key); err != nil {
		t.Errorf("a run that fits: %v", err)
	}
}

func TestRuns_refusesAnotherEngine(t *testing.T) {
	t.Parallel()
	c := started(t)
	if _, err := (&Runs{Store: c.store(), Backend: "cpu"}).Of(t.Context(), key); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
		t.Errorf("got %v, want Invalid with a hint", err)
	}
	if _, err := c.Runs.Of(t.Context(), contract.RunKey{Run: "none", Lineage: "l0"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("no such run: got %v, want NotFound", err)
	}
	a, err := c.Runs.Of(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := c.Runs.Of(t.Context(), key); a != b || err != nil || a.Vocab == 0 || a.Parameters < a.Vocab {
		t.Errorf("got %p, %v after %p; want the same run with its vocabulary", b, err, a)
	}
}

// putUnit writes a unit of two trajectories.
func putUnit(t *testing.T, s artifact.Store, unit string) artifact.Ref {
	t.Helper()
	var ts []*trajectory.Trajectory
	v := batch.Verdicts{Unit: unit}
	for i := range 2 {
		ts = append(ts, sampled(t, -1, nil, nil))
		ts[i].Sample = i
		v.Items = append(v.Items, batch.Verdict{ProblemID: "p", Sample: i, Reward: float64(i), Verdict: judge.Verdict{Passed: i, Total: 1, FormatOK: true}})
	}
	data, err := trajectory.Encode(ts)
	if err != nil {
		t.Fatal(err)
	}
	if v.File, err = s.Put(t.Context(), lay.Trajectories(unit), data); err != nil {
		t.Fatal(err)
	}
	putJSON(t, s, lay.Verdicts(unit), v)
	return v.File
}

// sampled returns a trajectory with one sampled token.
func sampled(t *testing.T, lp float32, ids []int32, lps []float32) *trajectory.Trajectory {
	t.Helper()
	tr := trajectory.New(trajectory.Key{ProblemID: "p", Split: "train"}, []int32{1}, len(ids))
	tr.BeginTurn()
	if err := tr.AppendSampled(engine.Token{ID: 2, LogProb: lp, TopIDs: ids, TopLogProbs: lps}); err != nil {
		t.Fatal(err)
	}
	tr.End = trajectory.EndStop
	return tr
}

func TestSealBatch_theFirstDecides(t *testing.T) {
	t.Parallel()
	c := started(t)
	one, two := contract.GroupRef{N: 1, Problem: 4, Tag: 1}, contract.GroupRef{N: 2, Problem: 5, Tag: 1}
	putUnit(t, c.store(), one.Unit())
	putUnit(t, c.store(), two.Unit())
	// An execution that died between its two writes left a ledger record.
	putJSON(t, c.store(), lay.Ledger(1), record.Ledger{Step: 1, NextGroup: 99})
	q := contract.SealBatchRequest{
		RunKey: key, Step: 1, Groups: []contract.GroupRef{two, one}, WaitSeconds: 2,
		Ledger: record.Ledger{Step: 1, NextGroup: 3, Dropped: []record.Drop{{N: 0, Reason: "stale"}}},
	}
	first, err := c.sealBatch(t.Context(), q, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{2, 1}, first.Groups); d != "" || first.RewardMean == nil || *first.RewardMean != 0.5 {
		t.Errorf("got %+v, want mean reward 0.5 and groups (-want +got):\n%s", first, d)
	}
	sealed := getJSON[record.Sealed](t, c.store(), lay.Batch(1))
	if sealed.Rollout.Drops == nil || *sealed.Rollout.Drops != 1 || *sealed.Rollout.WaitSeconds != 2 {
		t.Errorf("got metrics %+v, want 1 drop and 2 s", sealed.Rollout)
	}
	if d := cmp.Diff(q.Ledger, getJSON[record.Ledger](t, c.store(), lay.Ledger(1))); d != "" {
		t.Errorf("ledger (-want +got):\n%s", d)
	}
	other := q
	other.Groups, other.Ledger.NextGroup = []contract.GroupRef{{N: 7}}, 8 // these files do not even exist
	second, err := c.sealBatch(t.Context(), other, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first, second); d != "" {
		t.Errorf("second call (-first +second):\n%s", d)
	}
	if d := cmp.Diff(q.Ledger, getJSON[record.Ledger](t, c.store(), lay.Ledger(1))); d != "" {
		t.Errorf("ledger after the second call (-want +got):\n%s", d)
	}
	other.Step = 2
	if _, err := c.sealBatch(t.Context(), other, nil); !fault.Is(err, fault.NotFound) {
		t.Errorf("a missing unit: got %v, want NotFound", err)
	}
	if ok, err := c.store().Exists(t.Context(), lay.Ledger(2)); ok || err != nil {
		t.Errorf("a failed seal left a ledger record: %v, %v", ok, err)
	}
}

// A replay takes the rate from the sealed batch, so it must be the one that was asked for, and the configuration's otherwise.
func TestSealBatch_holdsTheLearningRate(t *testing.T) {
	t.Parallel()
	c := started(t)
	run, err := c.Runs.Of(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for step, rate := range []float64{1: 0, 2: 0.25, 3: 0} {
		if step == 0 {
			continue
		}
		g := contract.GroupRef{N: step, Problem: 4, Tag: 1}
		putUnit(t, c.store(), g.Unit())
		q := contract.SealBatchRequest{RunKey: key, Step: step, Groups: []contract.GroupRef{g}, Ledger: record.Ledger{Step: step}, LearningRate: rate}
		if _, err := c.sealBatch(t.Context(), q, nil); err != nil {
			t.Fatal(err)
		}
		want := Optimizer(run.Config)
		if rate > 0 {
			want.LearningRate = rate
		}
		if got := getJSON[record.Sealed](t, c.store(), lay.Batch(step)).Optim; got != want {
			t.Errorf("step %d: optimiser %+v, want %+v", step, got, want)
		}
	}
}

func TestPublish_neverGoesBack(t *testing.T) {
	t.Parallel()
	c := started(t)
	for v, digest := range []string{"d0", "d1", "d2"} {
		putJSON(t, c.store(), lay.WeightsInfo(v), record.Version{Version: v, Digest: digest})
	}
	steps := []struct {
		version int
		digest  string
		kind    fault.Kind
		live    int
	}{{0, "d0", "", 0}, {2, "d2", "", 2}, {1, "d1", "", 2}, {2, "d2", "", 2}, {2, "d1", fault.Corrupt, 2}, {3, "d3", fault.NotFound, 2}}
	for _, s := range steps {
		_, err := c.publish(t.Context(), contract.PublishRequest{RunKey: key, Version: s.version, Digest: s.digest}, nil)
		if fault.KindOf(err) != s.kind {
			t.Errorf("version %d of %s: got %v, want %q", s.version, s.digest, err, s.kind)
		}
		if got := getJSON[record.Live](t, c.store(), lay.Live()); got.Version != s.live || got.Digest != "d"+string(rune('0'+s.live)) {
			t.Errorf("after version %d: got live %+v, want %d", s.version, got, s.live)
		}
	}
}

func TestSummarize_isWrittenOnce(t *testing.T) {
	t.Parallel()
	c := started(t)
	putUnit(t, c.store(), record.EvalUnit("000003", 0))
	putJSON(t, c.store(), lay.WeightsInfo(3), record.Version{Version: 3, Digest: "d3"})
	q := contract.SummarizeRequest{RunKey: key, Name: "000003", Version: 3, Units: 1, Source: "published", Seconds: 4}
	first, err := c.summarize(t.Context(), q, nil)
	if err != nil {
		t.Fatal(err)
	}
	v := getJSON[record.Validation](t, c.store(), lay.Validation("000003"))
	if v.Version != 3 || v.Source != "published" || v.Seconds != 4 || v.Weights != "d3" || v.Problems != 2 || first.Metrics.Acc != 0.5 {
		t.Errorf("got %+v and %+v, want version 3 with its digest, 2 problems, accuracy 0.5", v, first)
	}
	q.Seconds = 9
	second, err := c.summarize(t.Context(), q, nil)
	if err != nil || second != first {
		t.Errorf("second call: got %+v, %v; want %+v", second, err, first)
	}
}

func TestRecords_areWrittenOnce(t *testing.T) {
	t.Parallel()
	c := started(t)
	for n := range 2 {
		if _, err := c.closeLedger(t.Context(), contract.CloseLedgerRequest{RunKey: key, Ledger: record.Ledger{NextGroup: 5 + n}}, nil); err != nil {
			t.Errorf("CloseLedger %d: %v", n, err)
		}
		if _, err := c.recordEvent(t.Context(), contract.EventRequest{RunKey: key, ID: "e", Event: record.Event{Kind: "recovered"}}, nil); err != nil {
			t.Errorf("RecordEvent %d: %v", n, err)
		}
		if res, err := c.writeReport(t.Context(), contract.ReportRequest{RunKey: key}, nil); err != nil || res.Report.Name != lay.Report() {
			t.Errorf("WriteReport %d: got %+v, %v; want %s", n, res, err, lay.Report())
		}
	}
	if got := getJSON[record.Ledger](t, c.store(), lay.LedgerEnd()).NextGroup; got != 5 {
		t.Errorf("got the ledger of call %d, want the first", got-5)
	}
}

func TestRetention_keepsWhatItMust(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) *Control {
		t.Helper()
		c := started(t)
		for v := range 8 {
			if _, err := c.store().Put(t.Context(), lay.Weights(v), []byte("w")); err != nil {
				t.Fatal(err)
			}
			putJSON(t, c.store(), lay.WeightsInfo(v), record.Version{Version: v})
			putJSON(t, c.store(), lay.Batch(v), record.Sealed{Step: v})
			putJSON(t, c.store(), lay.Result(v), record.Result{Step: v})
			save(t, c.store(), lay, v)
		}
		return c
	}
	names := func(t *testing.T, c *Control) map[string]bool {
		t.Helper()
		list, err := c.store().List(t.Context(), lay.Root())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, n := range list {
			out[n] = true
		}
		return out
	}
	q := contract.RetentionRequest{RunKey: key, Step: 6, Threshold: 1}

	t.Run("a good checkpoint", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		want := names(t, c)
		for _, v := range []int{0, 1, 2, 3} { // a group of step 7 may start from 4 on
			delete(want, lay.Weights(v))
		}
		maps.DeleteFunc(want, func(name string, _ bool) bool { // two newest of 6 and before, multiples of 3, what is newer than the step
			return slices.ContainsFunc([]int{1, 2, 4}, func(s int) bool { return strings.HasPrefix(name, lay.Checkpoint(s)+"/") })
		})
		weights, err := c.store().Path(path.Dir(lay.Weights(0)))
		if err != nil {
			t.Fatal(err)
		}
		dead := filepath.Join(weights, ".tmp-dead") // what a killed publication leaves
		if err := os.WriteFile(dead, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := c.retain(t.Context(), q, nil); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, names(t, c)); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
		}
		if _, err := os.Stat(dead); !os.IsNotExist(err) {
			t.Errorf("what a killed publication left is still there: %v", err)
		}
	})
	t.Run("a corrupt checkpoint", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		if _, err := c.store().Replace(t.Context(), lay.Checkpoint(6)+"/"+checkpoint.MasterFile, []byte("x")); err != nil {
			t.Fatal(err)
		}
		want := names(t, c)
		if _, err := c.retain(t.Context(), q, nil); !fault.Is(err, fault.Corrupt) {
			t.Errorf("got %v, want Corrupt", err)
		}
		if d := cmp.Diff(want, names(t, c)); d != "" {
			t.Errorf("files (-want +got):\n%s", d)
		}
	})
}
