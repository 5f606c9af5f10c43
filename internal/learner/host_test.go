package learner_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/trajectory"
	"github.com/steadyrl/steady/internal/weights"
)

var layout = record.Layout{Run: "r", Lineage: "l0"}

func tiny(vocab int) model.Config {
	return model.Config{
		Vocab: vocab, Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 10,
		MaxPosition: 32, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
	}
}

func initial(vocab int, seed uint64) *engine.State {
	c := tiny(vocab)
	s := &engine.State{Master: model.NewWeights(c), M: model.NewWeights(c), V: model.NewWeights(c)}
	s.Master.Init(seed, 0.5)
	return s
}

// flaky fails the next Put of the names in fail with the kind Busy, as a full disk does.
type flaky struct {
	artifact.Store
	mu   sync.Mutex
	fail map[string]bool
	puts []string // names written with success
}

func (f *flaky) Put(ctx context.Context, name string, data []byte) (artifact.Ref, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail[name] {
		delete(f.fail, name)
		return artifact.Ref{}, fault.New(fault.Busy, "flaky.Put", "disk full")
	}
	ref, err := f.Store.Put(ctx, name, data)
	if err == nil {
		f.puts = append(f.puts, name)
	}
	return ref, err
}

// bench is a lineage with three sealed batches.
type bench struct {
	store *flaky
	refs  map[int]artifact.Ref
	begin func(record.Layout) (int, *engine.State, error) // what a lineage begins with
	mu    sync.Mutex
	notes []record.Event
}

func newBench(t *testing.T) *bench {
	t.Helper()
	files, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{store: &flaky{Store: files, fail: map[string]bool{}}, refs: map[int]artifact.Ref{}}
	b.begin = func(record.Layout) (int, *engine.State, error) { return 0, initial(12, 1), nil }
	for step := 1; step <= 3; step++ {
		b.refs[step] = b.seal(t, step, step)
	}
	return b
}

// sealed writes the trajectories of a group with their verdicts, and seals the batch of them.
func (b *bench) sealed(t *testing.T, step int, v batch.Verdicts, ts []*trajectory.Trajectory, microBatchTokens int, rate float64) record.Sealed {
	t.Helper()
	data, err := trajectory.Encode(ts)
	if err != nil {
		t.Fatal(err)
	}
	if v.File, err = b.store.Put(t.Context(), layout.Trajectories(v.Unit), data); err != nil {
		t.Fatal(err)
	}
	if _, err := artifact.PutJSON(t.Context(), b.store, layout.Verdicts(v.Unit), v); err != nil {
		t.Fatal(err)
	}
	sealed, err := batch.Seal(t.Context(), b.store, batch.Options{
		Layout: layout, Step: step, Groups: []batch.GroupUnit{{Group: record.Group{N: step}, Unit: v.Unit}},
		Objective: rl.Objective{Centering: rl.CenteringOff, Rule: rl.RuleNone}, Temperature: 1, MicroBatchTokens: microBatchTokens,
		Optim: rl.AdamW{LearningRate: rate, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8},
	})
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// seal writes the batch of a step; seed decides about its tokens.
func (b *bench) seal(t *testing.T, step, seed int) artifact.Ref {
	t.Helper()
	unit := record.GroupUnit(10*step+seed, step, 0, 0)
	v := batch.Verdicts{Unit: unit}
	var ts []*trajectory.Trajectory
	for i := range 2 {
		tr := trajectory.New(trajectory.Key{ProblemID: "p", Split: "train", Sample: i}, []int32{1, 2}, 0)
		tr.BeginTurn()
		for k := range 3 {
			if err := tr.AppendSampled(engine.Token{ID: int32((seed + i + 3*k) % 12), LogProb: -2, Version: step - 1}); err != nil {
				t.Fatal(err)
			}
		}
		tr.End = trajectory.EndStop
		ts = append(ts, tr)
		v.Items = append(v.Items, batch.Verdict{ProblemID: "p", Sample: i, Reward: float64(i), Verdict: judge.Verdict{Passed: i, Total: 1}})
	}
	sealed := b.sealed(t, step, v, ts, 100, 0.01)
	name := layout.Batch(step)
	if b.refs[step] != (artifact.Ref{}) {
		name += ".other"
	}
	r, err := artifact.PutJSON(t.Context(), b.store, name, sealed)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// host returns an empty host, as a process that has just started has one.
func (b *bench) host(t *testing.T, name string) *learner.Host {
	t.Helper()
	h := learner.New(learner.Options{
		Store: b.store, Name: name, NewTrainer: ref.NewTrainer, NewSampler: ref.NewSampler,
		Initial: func(_ context.Context, l record.Layout) (int, *engine.State, error) { return b.begin(l) },
		Note: func(_ context.Context, _ record.Layout, e record.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.notes = append(b.notes, e)
		},
	})
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return h
}

func (b *bench) init(t *testing.T, h *learner.Host) int {
	t.Helper()
	if _, err := h.Init(t.Context(), layout, 0); err != nil {
		t.Fatalf("Init: %v", err)
	}
	return acquire(t, h)
}

func acquire(t *testing.T, h *learner.Host) int {
	t.Helper()
	epoch, err := h.Acquire(t.Context(), layout)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return epoch
}

func (b *bench) update(t *testing.T, h *learner.Host, step, epoch int) learner.Outcome {
	t.Helper()
	out, err := h.Update(t.Context(), layout, step, b.refs[step], epoch)
	if err != nil {
		t.Fatalf("Update of step %d: %v", step, err)
	}
	return out
}

func (b *bench) kinds() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, e := range b.notes {
		out = append(out, e.Kind)
	}
	return out
}

func (b *bench) digest(t *testing.T, h *learner.Host, step, epoch int) string {
	t.Helper()
	s, _, err := h.Reach(t.Context(), layout, step, epoch)
	if err != nil {
		t.Fatalf("Reach: %v", err)
	}
	return weights.StateDigest(s)
}

func TestUpdate_isDoneOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	first := b.update(t, h, 1, epoch)
	if first.Recorded || first.Restored || first.Replayed != 0 || first.Step != 1 || first.BatchDigest != b.refs[1].Digest || first.Metrics.Loss == nil || first.Trainer != "a" {
		t.Errorf("first outcome %+v; want a new result of step 1 with metrics", first)
	}
	var stored record.Result
	if _, err := artifact.GetJSON(t.Context(), b.store, layout.Result(1), &stored); err != nil {
		t.Fatal(err)
	}
	puts := len(b.store.puts)
	second := b.update(t, h, 1, epoch)
	if d := cmp.Diff(learner.Outcome{Result: stored, Recorded: true}, second); d != "" {
		t.Errorf("second outcome (-want +got):\n%s", d)
	}
	if got := b.digest(t, h, 1, epoch); got != first.StateDigest || len(b.store.puts) != puts {
		t.Errorf("after the second call: state %.12s and %d writes, want %.12s and %d", got, len(b.store.puts), first.StateDigest, puts)
	}
	// An older step that has a result is answered although the state has gone on.
	b.update(t, h, 2, epoch)
	if out := b.update(t, h, 1, epoch); !out.Recorded || out.StateDigest != first.StateDigest {
		t.Errorf("step 1 after step 2: got %+v, want the recorded result", out)
	}
}

func TestUpdate_publishesTheWeightsOfTheState(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	out := b.update(t, h, 1, epoch)
	var info record.Version
	if _, err := artifact.GetJSON(t.Context(), b.store, layout.WeightsInfo(1), &info); err != nil {
		t.Fatal(err)
	}
	data, err := artifact.Fetch(t.Context(), b.store, info.File)
	if err != nil {
		t.Fatal(err)
	}
	w, err := weights.Decode(tiny(12), data)
	if err != nil {
		t.Fatal(err)
	}
	if got := weights.Digest(w); got != out.WeightsDigest || info.Digest != got || info.Version != 1 || info.File != out.Weights {
		t.Errorf("published %+v with digest %s, want the weights of %+v", info, got, out.Result)
	}
	s, err := ref.NewSampler(tiny(12))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.SetWeights(t.Context(), 1, w); err != nil {
		t.Fatal(err)
	}
	lp, err := s.Score(t.Context(), info.ProbeTokens)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(info.ProbeLogProbs, lp); d != "" || len(lp) == 0 {
		t.Errorf("probe of %d (-recorded +got):\n%s", len(lp), d)
	}
	// Version 0 was published by Init with another probe.
	if _, err := artifact.GetJSON(t.Context(), b.store, layout.WeightsInfo(0), &info); err != nil || info.Digest == out.WeightsDigest {
		t.Errorf("version 0: %v, digest %.12s; want another one than version 1", err, info.Digest)
	}
}

// Every result names the seal of the one before, whatever process wrote it, and a step that is made again changes nothing.
func TestUpdate_resultsFollowEachOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	b.update(t, h, 1, epoch)
	b.store.fail[layout.Result(2)] = true // the state is held, the result is not there
	if _, err := h.Update(t.Context(), layout, 2, b.refs[2], epoch); !fault.Is(err, fault.Busy) {
		t.Fatalf("Update on a full disk: %v", err)
	}
	b.update(t, h, 2, epoch)
	other := b.host(t, "b")
	epoch = acquire(t, other)
	b.update(t, other, 3, epoch)
	b.update(t, other, 3, epoch)
	var trail record.Trail
	before := ""
	for step := 1; step <= 3; step++ {
		var r record.Result
		ref, seal, err := artifact.GetSealed(t.Context(), b.store, layout.Result(step), &r)
		if err != nil {
			t.Fatal(err)
		}
		trail.Batch(step, b.refs[step])
		if err := trail.Result(ref.Name, step, r, seal); err != nil || seal == "" || r.Previous != before {
			t.Errorf("step %d: %v, seal %q, previous %q, want %q", step, err, seal, r.Previous, before)
		}
		before = seal
	}
}

// A result whose number was changed is not taken for what was computed; training, which does not need its numbers, goes on and says so.
func TestUpdate_changedResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	b.update(t, h, 1, epoch)
	if !recordtest.ChangeNumber(t, b.store, layout.Result(1)) {
		t.Fatal("the result has no number")
	}
	if _, err := h.Update(t.Context(), layout, 1, b.refs[1], epoch); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), layout.Result(1)) {
		t.Errorf("the changed step: %v, want Corrupt with the name", err)
	}
	if out := b.update(t, h, 2, epoch); out.Previous != "" || !slices.Equal(b.kinds(), []string{string(fault.Corrupt)}) {
		t.Errorf("the step after follows %q, events %v", out.Previous, b.kinds())
	}
	if out := b.update(t, h, 3, epoch); out.Previous == "" {
		t.Error("the third step does not follow the second")
	}
	other := b.host(t, "b") // which replays
	if _, err := other.Update(t.Context(), layout, 3, b.refs[3], acquire(t, other)); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a replay with the changed result: %v, want Corrupt", err)
	}
}

func TestUpdate_refusesAnotherBatch(t *testing.T) {
	t.Parallel()
	setups := map[string]func(*testing.T, *bench, *learner.Host, int){
		"recorded": func(t *testing.T, b *bench, h *learner.Host, epoch int) { t.Helper(); b.update(t, h, 1, epoch) },
		"held without a result": func(t *testing.T, b *bench, h *learner.Host, epoch int) {
			t.Helper()
			b.store.fail[layout.Result(1)] = true
			if _, err := h.Update(t.Context(), layout, 1, b.refs[1], epoch); !fault.Is(err, fault.Busy) {
				t.Fatalf("got %v, want Busy", err)
			}
		},
	}
	for name, setup := range setups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			h := b.host(t, "a")
			epoch := b.init(t, h)
			setup(t, b, h, epoch)
			other := b.seal(t, 1, 7)
			if _, err := h.Update(t.Context(), layout, 1, other, epoch); !fault.Is(err, fault.Invalid) {
				t.Errorf("got %v, want Invalid", err)
			}
			if out := b.update(t, h, 1, epoch); out.BatchDigest != b.refs[1].Digest {
				t.Errorf("afterwards: got batch %.12s, want %.12s", out.BatchDigest, b.refs[1].Digest)
			}
		})
	}
	t.Run("of another step", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		h := b.host(t, "a")
		epoch := b.init(t, h)
		if _, err := h.Update(t.Context(), layout, 1, b.refs[2], epoch); !fault.Is(err, fault.Invalid) {
			t.Errorf("got %v, want Invalid", err)
		}
		b.update(t, h, 1, epoch)
	})
}

func TestUpdate_afterACrashReplays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	var want []string
	for step := 1; step <= 3; step++ {
		want = append(want, b.update(t, h, step, epoch).StateDigest)
	}
	// The process is gone; a new one of the same name has no state. A result that is recorded stays.
	h = b.host(t, "a")
	out := b.update(t, h, 3, epoch)
	if !out.Restored || out.Replayed != 2 || !out.Recorded || out.StateDigest != want[2] {
		t.Errorf("recorded step: got %+v, want it restored, 2 replayed, recorded, with state %.12s", out, want[2])
	}
	if got := b.digest(t, h, 3, epoch); got != want[2] {
		t.Errorf("state after the replay: got %.12s, want %.12s", got, want[2])
	}
	if d := cmp.Diff([]string{"replayed"}, b.kinds()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	// A step without a result is computed from the replayed state, bit by bit the same.
	if err := b.store.Remove(t.Context(), layout.Result(3)); err != nil {
		t.Fatal(err)
	}
	h = b.host(t, "b")
	out = b.update(t, h, 3, acquire(t, h))
	if out.Recorded || !out.Restored || out.Replayed != 2 || out.Result.Replayed != 2 || out.StateDigest != want[2] || out.Trainer != "b" {
		t.Errorf("lost result: got %+v, want a new one of host b with state %.12s", out, want[2])
	}
}

func TestUpdate_lostResultIsWrittenFromTheStateHeld(t *testing.T) {
	t.Parallel()
	clean := newBench(t)
	ch := clean.host(t, "a")
	want := clean.update(t, ch, 1, clean.init(t, ch))
	for _, name := range []string{layout.Result(1), layout.Weights(1), layout.WeightsInfo(1)} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			h := b.host(t, "a")
			epoch := b.init(t, h)
			b.store.fail[name] = true
			if _, err := h.Update(t.Context(), layout, 1, b.refs[1], epoch); !fault.Is(err, fault.Busy) {
				t.Fatalf("got %v, want Busy", err)
			}
			if ok, err := b.store.Exists(t.Context(), layout.Result(1)); ok || err != nil {
				t.Fatalf("after the failed write: result there %v, %v; want false", ok, err)
			}
			got := b.update(t, h, 1, epoch)
			if got.Restored || got.Recorded || got.StateDigest != want.StateDigest || got.WeightsDigest != want.WeightsDigest {
				t.Errorf("got %+v, want it written from the state held with state %.12s", got, want.StateDigest)
			}
			for i, m := range record.Metrics(got.Metrics) {
				w := record.Metrics(want.Metrics)[i]
				if (m.Value == nil) != (w.Value == nil) || m.Value != nil && !strings.Contains(m.Name, "second") && *m.Value != *w.Value {
					t.Errorf("metric %s: got %v, want %v", m.Name, m.Value, w.Value)
				}
			}
			var stored record.Result
			if _, err := artifact.GetJSON(t.Context(), b.store, layout.Result(1), &stored); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(got.Result, stored); d != "" {
				t.Errorf("stored result (-returned +stored):\n%s", d)
			}
		})
	}
}

func TestUpdate_fencedHostWritesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old := b.host(t, "old")
	before := b.init(t, old)
	b.update(t, old, 1, before)
	h := b.host(t, "new")
	now := acquire(t, h)
	if now <= before {
		t.Errorf("got epoch %d after %d, want a larger one", now, before)
	}
	puts := len(b.store.puts)
	if _, err := old.Update(t.Context(), layout, 2, b.refs[2], before); !fault.Is(err, fault.Stale) {
		t.Errorf("Update: got %v, want Stale", err)
	}
	if _, _, err := old.Save(t.Context(), layout, 1, before); !fault.Is(err, fault.Stale) {
		t.Errorf("Save: got %v, want Stale", err)
	}
	if _, _, err := old.Reach(t.Context(), layout, 1, before); !fault.Is(err, fault.Stale) {
		t.Errorf("Reach: got %v, want Stale", err)
	}
	if _, err := old.Update(t.Context(), layout, 2, b.refs[2], now); !fault.Is(err, fault.Stale) {
		t.Errorf("Update of a host that does not hold the epoch: got %v, want Stale", err)
	}
	if got := b.store.puts[puts:]; len(got) != 0 {
		t.Errorf("the fenced host wrote %v, want nothing", got)
	}
	if out := b.update(t, h, 2, now); !out.Restored || out.Replayed != 1 || out.Trainer != "new" {
		t.Errorf("new host: got %+v, want step 2 after a replay of 1", out)
	}
}

// fenced takes the lineage away while the trainer computes.
type fenced struct {
	engine.Trainer
	during func()
}

func (f fenced) Update(ctx context.Context, b engine.Batch) (engine.StepMetrics, error) {
	f.during()
	return f.Trainer.Update(ctx, b)
}

func TestUpdate_fencedWhileComputingWritesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "new")
	slow := learner.New(learner.Options{
		Store: b.store, Name: "slow", NewSampler: ref.NewSampler,
		Initial: func(_ context.Context, l record.Layout) (int, *engine.State, error) { return b.begin(l) },
		NewTrainer: func(c model.Config, w *model.Weights) (engine.Trainer, error) {
			tr, err := ref.NewTrainer(c, w)
			return fenced{tr, func() { acquire(t, h) }}, err
		},
	})
	epoch := b.init(t, slow)
	puts := len(b.store.puts)
	if _, err := slow.Update(t.Context(), layout, 1, b.refs[1], epoch); !fault.Is(err, fault.Stale) {
		t.Errorf("got %v, want Stale", err)
	}
	if got := b.store.puts[puts:]; len(got) != 0 {
		t.Errorf("the fenced host wrote %v, want nothing", got)
	}
	if err := slow.Close(); err != nil {
		t.Error(err)
	}
}

func TestRestore_takesAnOlderCheckpoint(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	b.update(t, h, 1, epoch)
	want := b.update(t, h, 2, epoch).StateDigest
	dir, err := b.store.Path(layout.Checkpoint(2))
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // also a step whose checkpoint was set aside before
		if got, _, err := h.Save(t.Context(), layout, 2, epoch); err != nil || got != want {
			t.Fatalf("round %d: Save: got %.12s, %v; want %.12s", round, got, err, want)
		}
		flip(t, filepath.Join(dir, checkpoint.MasterFile))
		h = b.host(t, "a")
		s, replayed, err := h.Reach(t.Context(), layout, 2, epoch)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if got := weights.StateDigest(s); got != want || replayed != 2 {
			t.Errorf("round %d: got state %.12s after %d replays, want %.12s after 2", round, got, replayed, want)
		}
	}
	if d := cmp.Diff([]string{"Corrupt", "replayed", "Corrupt", "replayed"}, b.kinds()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	if _, err := os.Stat(dir + ".corrupt"); err != nil {
		t.Errorf("the corrupt checkpoint is not kept aside: %v", err)
	}
}

// Damage to every checkpoint is mended from what the lineage began with, and says so; the run goes on with the same bits.
func TestRestore_withoutAGoodCheckpoint(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, dir string){
		"flipped": func(t *testing.T, dir string) { t.Helper(); flip(t, filepath.Join(dir, checkpoint.MasterFile)) },
		"removed": func(t *testing.T, dir string) {
			t.Helper()
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			h := b.host(t, "a")
			epoch := b.init(t, h)
			want := b.update(t, h, 1, epoch).StateDigest
			dir, err := b.store.Path(layout.Checkpoint(0))
			if err != nil {
				t.Fatal(err)
			}
			damage(t, dir)
			h = b.host(t, "a")
			if got := b.digest(t, h, 1, epoch); got != want {
				t.Errorf("got state %.12s, want %.12s", got, want)
			}
			if !slices.Contains(b.kinds(), "rebuilt") {
				t.Errorf("notes %v, want one of the rebuilding", b.kinds())
			}
			if _, err := checkpoint.Verify(t.Context(), dir); err != nil {
				t.Errorf("the checkpoint was not written again: %v", err)
			}
			if alarms := b.kinds(); slices.Contains(alarms, "replay_mismatch") {
				t.Errorf("notes %v, want no alarm", alarms)
			}
		})
	}
}

// What would give other weights than the run began with is refused, with the way out.
func TestRestore_refusesAnotherBeginning(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(record.Layout) (int, *engine.State, error){
		"another model": func(record.Layout) (int, *engine.State, error) { return 0, initial(12, 2), nil },
		"no model":      func(record.Layout) (int, *engine.State, error) { return 0, nil, fault.New(fault.Invalid, "t", "gone") },
	} {
		b := newBench(t)
		epoch := b.init(t, b.host(t, "a"))
		dir, err := b.store.Path(layout.Checkpoint(0))
		if err != nil {
			t.Fatal(err)
		}
		flip(t, filepath.Join(dir, checkpoint.MasterFile))
		b.begin = begin
		_, err = b.host(t, "a").Update(t.Context(), layout, 1, b.refs[1], epoch)
		if !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v, want NotFound with a hint", name, err)
		}
	}
}

func TestMend_makesADamagedCheckpointAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	b.update(t, h, 1, epoch)
	want, _, err := h.Save(t.Context(), layout, 1, epoch)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := b.store.Path(layout.Checkpoint(1))
	if err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(dir, checkpoint.MasterFile))
	for round := range 2 {
		if mended, err := h.Mend(t.Context(), layout, 1); err != nil || mended != (round == 0) {
			t.Fatalf("round %d: mended %v, %v", round, mended, err)
		}
		meta, err := checkpoint.Verify(t.Context(), dir)
		if err != nil || meta.State != want {
			t.Errorf("round %d: got state %.12s, %v; want %.12s", round, meta.State, err, want)
		}
	}
	var fence record.Fence
	if _, err := artifact.GetJSON(t.Context(), b.store, layout.Fence(), &fence); err != nil || fence.Epoch != epoch+1 {
		t.Errorf("got fence %+v, %v; want epoch %d: one for the mending, none for the check", fence, err, epoch+1)
	}
}

func flip(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReplay_differenceRaisesAnAlarm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	b.update(t, h, 1, epoch)
	b.update(t, h, 2, epoch)
	for _, step := range []int{1, 2} {
		var r record.Result
		if _, err := artifact.GetJSON(t.Context(), b.store, layout.Result(step), &r); err != nil {
			t.Fatal(err)
		}
		r.StateDigest = artifact.Digest(nil)
		if _, err := artifact.ReplaceJSON(t.Context(), b.store, layout.Result(step), r); err != nil {
			t.Fatal(err)
		}
	}
	b.update(t, b.host(t, "a"), 2, epoch)
	if d := cmp.Diff([]string{"replay_mismatch", "replayed", "replay_mismatch"}, b.kinds()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

func TestReplay_refusesABatchThatWasNotTrained(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	b.update(t, h, 1, epoch)
	if _, err := b.store.Replace(t.Context(), layout.Batch(1), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.host(t, "a").Update(t.Context(), layout, 2, b.refs[2], epoch); !fault.Is(err, fault.Corrupt) {
		t.Errorf("got %v, want Corrupt", err)
	}
}

func TestInit_isIdempotent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	b.store.fail[layout.Weights(0)] = true // a crash between the checkpoint and the version
	if _, err := h.Init(t.Context(), layout, 0); !fault.Is(err, fault.Busy) {
		t.Fatalf("got %v, want Busy", err)
	}
	first, err := h.Init(t.Context(), layout, 0)
	if err != nil {
		t.Fatal(err)
	}
	var fence record.Fence
	if _, err := artifact.GetJSON(t.Context(), b.store, layout.Fence(), &fence); err != nil {
		t.Fatal(err)
	}
	b.begin = func(record.Layout) (int, *engine.State, error) {
		t.Error("the initial state was asked for again")
		return 0, initial(13, 1), nil
	}
	second, err := b.host(t, "b").Init(t.Context(), layout, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first, second); d != "" {
		t.Errorf("second Init (-first +second):\n%s", d)
	}
	want := fence
	if _, err := artifact.GetJSON(t.Context(), b.store, layout.Fence(), &fence); err != nil || fence != want {
		t.Errorf("fence %+v, %v; want it untouched: %+v", fence, err, want)
	}
}

func TestSave_isIdempotent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	want := b.update(t, h, 1, epoch).StateDigest
	dir, err := b.store.Path(layout.Checkpoint(1))
	if err != nil {
		t.Fatal(err)
	}
	var first os.FileInfo
	for round, host := range []*learner.Host{h, h, b.host(t, "a")} {
		got, replayed, err := host.Save(t.Context(), layout, 1, epoch)
		if err != nil || got != want || replayed != 0 {
			t.Errorf("round %d: got %.12s after %d replays, %v; want %.12s", round, got, replayed, err, want)
		}
		info, err := os.Stat(filepath.Join(dir, checkpoint.MasterFile))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = info
		} else if !os.SameFile(first, info) {
			t.Errorf("round %d: the checkpoint was written again", round)
		}
	}
	meta, err := checkpoint.Verify(t.Context(), dir)
	if err != nil || meta.Step != 1 || meta.State != want {
		t.Errorf("got %+v, %v; want step 1 with state %.12s", meta, err, want)
	}
}

func TestHost_goesOnToAnotherModel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	b.init(t, h)
	other := record.Layout{Run: "other", Lineage: "l0"}
	b.begin = func(record.Layout) (int, *engine.State, error) { return 0, initial(17, 1), nil }
	if _, err := h.Init(t.Context(), other, 1); !fault.Is(err, fault.Invalid) {
		t.Errorf("a step that the lineage does not begin with: %v, want Invalid", err)
	}
	if _, err := h.Init(t.Context(), other, 0); err != nil {
		t.Errorf("a model of another size after the first: %v", err)
	}
	epoch := acquire(t, h)
	if out := b.update(t, h, 1, epoch); !out.Restored {
		t.Errorf("back at the first run: got %+v, want it restored", out)
	}
}

func TestCheckpoints_listsWholeOnes(t *testing.T) {
	t.Parallel()
	store, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := record.Layout{Run: "r", Lineage: "l0"}
	dir := store.Where(l.Checkpoints())
	for _, name := range []string{"000010", "000002", "000003.corrupt", ".tmp-x", "12", "abcdef"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "000004"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := learner.Checkpoints(t.Context(), store, l)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{2, 10}, got); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
	if got, err := learner.Checkpoints(t.Context(), store, record.Layout{Run: "absent", Lineage: "l0"}); len(got) != 0 || err != nil {
		t.Errorf("a missing directory: got %v, %v; want none", got, err)
	}
}
