package activities

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/export"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/trajectory"
)

func TestWatchLoop_endsWorkOfAClosedLoop(t *testing.T) {
	t.Parallel()
	calls := 0
	r := &Rollout{Open: func(_ context.Context, id string) (bool, error) {
		calls++
		switch {
		case id != "loop":
			t.Errorf("got %q, want loop", id)
		case calls == 1:
			return false, fault.New(fault.Busy, "open", "no answer") // is no answer
		}
		return calls < 4, nil
	}}
	ctx, stop := context.WithCancelCause(t.Context())
	r.watchLoop(ctx, contract.GenerateRequest{Loop: "loop", ClosedCheck: time.Microsecond}, stop)
	if cause := context.Cause(ctx); !fault.Is(cause, fault.Stale) || calls != 4 {
		t.Errorf("got %v after %d questions, want Stale after 4", cause, calls)
	}
	stop(nil)
	ctx, stop = context.WithCancelCause(t.Context())
	r.watchLoop(ctx, contract.GenerateRequest{}, stop)
	if ctx.Err() != nil {
		t.Errorf("without a loop: got %v, want nothing stopped", ctx.Err())
	}
	stop(nil)
}

func TestGenerate_returnsAFinishedUnit(t *testing.T) {
	t.Parallel()
	c := started(t)
	file := putUnit(t, c.store(), "groups/u")
	r := &Rollout{Runs: c.Runs, Notes: c.Notes} // no engine: nothing may be generated
	got, err := r.generate(t.Context(), contract.GenerateRequest{RunKey: key, Unit: "groups/u"}, nil)
	if err != nil || got != (contract.GenerateResult{File: file, Sampled: 2}) {
		t.Errorf("got %+v, %v; want the file %+v with 2 sampled tokens", got, err, file)
	}
}

func TestFinish_theFirstFileStaysAndSamplesGo(t *testing.T) {
	t.Parallel()
	c := started(t)
	run, err := c.Runs.Of(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	r := &Rollout{Runs: c.Runs}
	q := contract.GenerateRequest{RunKey: key, Unit: "groups/u"}
	first, err := r.finish(t.Context(), run, q, []*trajectory.Trajectory{sampled(t, -1, nil, nil)})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{lay.Sample(q.Unit, 0, 0), lay.Partial(q.Unit, 0, 0)} {
		if _, err := c.store().Put(t.Context(), name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	second, err := r.finish(t.Context(), run, q, []*trajectory.Trajectory{sampled(t, -2, nil, nil)})
	if err != nil || second != first {
		t.Errorf("another attempt: got %+v, %v; want the first file %+v", second, err, first)
	}
	names, err := c.store().List(t.Context(), lay.Root()+q.Unit)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{lay.Trajectories(q.Unit)}, names); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
}

func TestJudge_theFirstRecordStays(t *testing.T) {
	t.Parallel()
	c := started(t)
	file := putUnit(t, c.store(), "groups/u")
	j := &Judge{Runs: c.Runs, Python: "3.13.1"} // no judge: nothing may be run
	got, err := j.judge(t.Context(), contract.JudgeRequest{RunKey: key, Unit: "groups/u", File: file}, nil)
	if err != nil || got.Verdicts.Name != lay.Verdicts("groups/u") || got.RewardMean == nil || *got.RewardMean != 0.5 {
		t.Errorf("got %+v, %v; want the recorded verdicts with mean 0.5", got, err)
	}
	if m := meanReward(batch.Verdicts{}); m != nil {
		t.Errorf("mean of nothing: got %v, want none", *m)
	}
}

func TestPythonFits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want, have string
		fits       bool
	}{
		{"", "3.9.1", true},
		{"3.13", "3.13.1", true},
		{"3.13", "3.13", true},
		{"3.13.1", "3.13.1", true},
		{"3.1", "3.13.1", false},
		{"3.13", "3.12.9", false},
		{"3.13.1", "3.13", false},
		{"3.13", "", false},
	} {
		run := &Run{Config: config.Default()}
		run.Config.Sandbox.PythonVersion = tt.want
		if err := pythonFits(run, tt.have); (err == nil) != tt.fits || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("run wants %q, worker has %q: got %v, want fit %v, else Invalid", tt.want, tt.have, err, tt.fits)
		}
	}
}

func newTrainer(t *testing.T, c *Control, open *bool) *Trainer {
	t.Helper()
	host := learner.New(learner.Options{
		Store: c.store(), Name: "h", NewTrainer: ref.NewTrainer, NewSampler: ref.NewSampler,
		Initial: func(ctx context.Context, l record.Layout) (int, *engine.State, error) {
			return InitialState(ctx, c.Runs, c.Assets, l)
		},
	})
	t.Cleanup(func() { _ = host.Close() })
	return &Trainer{
		Runs: c.Runs, Notes: c.Notes, Host: host, Queue: contract.TrainerQueue("h"), Name: "h",
		Open: func(context.Context, string) (bool, error) { return *open, nil },
	}
}

func TestInitPolicy_aRetryTakesNothingBack(t *testing.T) {
	t.Parallel()
	c := started(t)
	tr := newTrainer(t, c, new(bool))
	first, err := tr.initPolicy(t.Context(), contract.InitPolicyRequest{RunKey: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := getJSON[record.Live](t, c.store(), lay.Live()), (record.Live{Version: 0, Digest: first.Digest}); got != want {
		t.Errorf("got live %+v, want %+v", got, want)
	}
	later := record.Live{Version: 3, Digest: "d3"}
	putJSON(t, c.store(), lay.Live(), later)
	second, err := tr.initPolicy(t.Context(), contract.InitPolicyRequest{RunKey: key}, nil)
	if err != nil || second != first || first.Parameters == 0 {
		t.Errorf("second call: got %+v, %v; want %+v with parameters", second, err, first)
	}
	if got := getJSON[record.Live](t, c.store(), lay.Live()); got != later {
		t.Errorf("got live %+v, want it untouched: %+v", got, later)
	}
}

func TestAcquire_oneOpenRunAtATime(t *testing.T) {
	t.Parallel()
	open := true
	c := started(t)
	tr := newTrainer(t, c, &open)
	for want := 1; want <= 2; want++ { // the same run again opens a new epoch
		got, err := tr.acquire(t.Context(), contract.AcquireRequest{RunKey: key}, nil)
		if err != nil || got != (contract.Trainer{Queue: contract.TrainerQueue("h"), Host: "h", Epoch: want}) {
			t.Errorf("got %+v, %v; want epoch %d", got, err, want)
		}
	}
	other := contract.AcquireRequest{RunKey: contract.RunKey{Run: "other", Lineage: "l0"}}
	if _, err := tr.acquire(t.Context(), other, nil); !fault.Is(err, fault.Busy) {
		t.Errorf("another run: got %v, want Busy", err)
	}
	open = false
	if got, err := tr.acquire(t.Context(), other, nil); err != nil || got.Epoch != 1 {
		t.Errorf("another run after the first is closed: got %+v, %v; want epoch 1", got, err)
	}
}

func TestInitialState_isThatOfTheParent(t *testing.T) {
	t.Parallel()
	c := started(t)
	tr := newTrainer(t, c, new(bool))
	if _, err := tr.initPolicy(t.Context(), contract.InitPolicyRequest{RunKey: key}, nil); err != nil {
		t.Fatal(err)
	}
	// A run that starts from a checkpoint takes its state, not the model directory's.
	run := getJSON[record.Run](t, c.store(), lay.RunFile())
	run.Parent = &record.Parent{Run: "r", Lineage: "l0", Step: 5}
	putJSON(t, c.store(), lay.RunFile(), run)
	if _, _, err := InitialState(t.Context(), c.Runs, c.Assets, lay); !fault.Is(err, fault.NotFound) {
		t.Errorf("a missing parent: got %v, want NotFound", err)
	}
	save(t, c.store(), lay, 5)
	if step, s, err := InitialState(t.Context(), c.Runs, c.Assets, lay); err != nil || step != 5 || !s.Master.Equal(tinyState().Master) {
		t.Errorf("got step %d, %v, want the parent's state of step 5", step, err)
	}
}

// An export of a damaged checkpoint has it made again, and then is as it would have been.
func TestExport_ofADamagedCheckpoint(t *testing.T) {
	t.Parallel()
	c := started(t)
	tr := newTrainer(t, c, new(bool))
	if _, err := tr.initPolicy(t.Context(), contract.InitPolicyRequest{RunKey: key}, nil); err != nil {
		t.Fatal(err)
	}
	dir, err := c.store().Path(lay.Checkpoint(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, checkpoint.MasterFile), 100); err != nil {
		t.Fatal(err)
	}
	tries := 0
	tr.Export = func(ctx context.Context, o export.Options) (export.Certificate, error) {
		tries++
		_, _, err := checkpoint.Load(ctx, o.Checkpoint)
		return export.Certificate{WeightsDigest: "w"}, err
	}
	_, b := beatOf()
	if got, err := tr.exportPolicy(t.Context(), contract.ExportRequest{RunKey: key, Step: 0}, b); err != nil || got.WeightsDigest != "w" || tries != 2 {
		t.Errorf("got %+v, %v in %d tries; want an export in 2", got, err, tries)
	}
}

func TestExport_mustHaveThePublishedWeights(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, published string
		kind            fault.Kind
	}{{"same", "w", ""}, {"other", "x", fault.Corrupt}, {"no result", "", ""}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := started(t)
			tr := newTrainer(t, c, new(bool))
			tr.Export = func(_ context.Context, o export.Options) (export.Certificate, error) {
				if o.Run != "r" || o.Step != 4 {
					t.Errorf("got %s step %d, want r step 4", o.Run, o.Step)
				}
				if card := string(o.Extra["README.md"]); !strings.HasPrefix(card, "---\nlicense: ") || !strings.Contains(card, "\n# r, step 4\n") {
					t.Errorf("the export gets the card %q", card)
				}
				return export.Certificate{WeightsDigest: "w"}, nil
			}
			if tt.published != "" {
				putJSON(t, c.store(), lay.Result(4), record.Result{Step: 4, WeightsDigest: tt.published})
			}
			_, b := beatOf()
			got, err := tr.exportPolicy(t.Context(), contract.ExportRequest{RunKey: key, Step: 4}, b)
			if fault.KindOf(err) != tt.kind || err == nil && got.WeightsDigest != "w" {
				t.Errorf("got %+v, %v; want %q", got, err, tt.kind)
			}
		})
	}
}

// beatOf returns a beat with room for a few values.
func beatOf() (<-chan any, *Beat) {
	ch := make(chan any, 9)
	return ch, &Beat{values: ch}
}

func TestUpdate_resultIsThatOfTheHost(t *testing.T) {
	t.Parallel()
	c := started(t)
	tr := newTrainer(t, c, new(bool))
	if _, err := tr.initPolicy(t.Context(), contract.InitPolicyRequest{RunKey: key}, nil); err != nil {
		t.Fatal(err)
	}
	held, err := tr.acquire(t.Context(), contract.AcquireRequest{RunKey: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	said, b := beatOf()
	if _, err := tr.update(t.Context(), contract.UpdateRequest{RunKey: key, Step: 1, Epoch: held.Epoch - 1}, b); !fault.Is(err, fault.Stale) {
		t.Errorf("an older epoch: got %v, want Stale", err)
	}
	if _, err := tr.update(t.Context(), contract.UpdateRequest{RunKey: key, Step: 1, Epoch: held.Epoch, Batch: artifact.Ref{Name: lay.Batch(1)}}, b); !fault.Is(err, fault.NotFound) {
		t.Errorf("no batch: got %v, want NotFound", err)
	}
	if got := <-said; got != "step 1" {
		t.Errorf("got heartbeat %v, want the step", got)
	}
	res, err := tr.checkpoint(t.Context(), contract.CheckpointRequest{RunKey: key, Step: 0, Epoch: held.Epoch}, b)
	if err != nil || res.StateDigest == "" || res.Replayed != 0 {
		t.Errorf("checkpoint of the state held: got %+v, %v; want its digest", res, err)
	}
}
