//go:build cuda

package learner_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cuda"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/trajectory"
)

// wide is one layer of the width of a 4B model with a small vocabulary.
var wide = model.Config{
	Vocab: 8000, Hidden: 2560, Layers: 1, Heads: 32, KVHeads: 8, HeadDim: 128, Intermediate: 9728, MaxPosition: 2048, RMSEps: 1e-6, RopeTheta: 1e6, TieEmbedding: true,
}

// sealWide seals a batch of 16 trajectories of 1,024 tokens, planned as one micro-batch.
func (b *bench) sealWide(t *testing.T, step int) {
	t.Helper()
	unit := record.GroupUnit(step, step, 0, 0)
	v := batch.Verdicts{Unit: unit}
	var ts []*trajectory.Trajectory
	for i := range 16 {
		prompt := make([]int32, 512)
		for k := range prompt {
			prompt[k] = int32((step + 17*i + 31*k) % wide.Vocab) //nolint:gosec // below the vocabulary
		}
		tr := trajectory.New(trajectory.Key{ProblemID: "p", Split: "train", Sample: i}, prompt, 0)
		tr.BeginTurn()
		for k := range 512 {
			if err := tr.AppendSampled(engine.Token{ID: int32((7*step + i + 13*k) % wide.Vocab), LogProb: -9, Version: step - 1}); err != nil { //nolint:gosec // as above
				t.Fatal(err)
			}
		}
		tr.End = trajectory.EndStop
		ts = append(ts, tr)
		v.Items = append(v.Items, batch.Verdict{ProblemID: "p", Sample: i, Reward: float64(i % 3), Verdict: judge.Verdict{Passed: i % 2, Total: 1}})
	}
	sealed := b.sealed(t, step, v, ts, 16384, 1e-4)
	if n := len(sealed.Plan.MicroBatches); n != 1 {
		t.Fatalf("%d micro-batches are planned, want 1", n)
	}
	ref, err := artifact.PutJSON(t.Context(), b.store, layout.Batch(step), sealed)
	if err != nil {
		t.Fatal(err)
	}
	b.refs[step] = ref
}

// onCard is a host whose engines are those of the GPU.
func (b *bench) onCard(t *testing.T, name string) *learner.Host {
	t.Helper()
	o := cuda.Options{NVRTC: os.Getenv("STEADY_NVRTC"), CUBLASLt: os.Getenv("STEADY_CUBLASLT"), CUDNN: os.Getenv("STEADY_CUDNN"), KernelDir: os.Getenv("STEADY_KERNELS")}
	probe := o
	probe.CacheTokens, probe.Sequences, probe.Rows = 256, 1, 128
	h := learner.New(learner.Options{
		Store: b.store, Name: name,
		NewTrainer: func(c model.Config, w *model.Weights) (engine.Trainer, error) { return cuda.NewTrainer(c, w, o) },
		NewSampler: func(c model.Config) (engine.Sampler, error) { return cuda.NewSampler(c, probe) },
		Initial:    func(_ context.Context, l record.Layout) (int, *engine.State, error) { return b.begin(l) },
		Note: func(_ context.Context, _ record.Layout, e record.Event) {
			t.Logf("%s: %s: %s", name, e.Kind, e.Message)
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

// On a card with little free memory a micro-batch is divided, the plan stands in the result, and another process with all the memory replays it to the same
// bits; a third that has the sealed plan only, as if nothing had been recorded, gets others.
func TestCard_aMicroBatchThatDoesNotFitIsDividedAndReplayed(t *testing.T) {
	if err := cudart.Load(os.Getenv("STEADY_CUDA_DRIVER")); err != nil {
		t.Skip(err)
	}
	b := newBench(t)
	b.begin = func(record.Layout) (int, *engine.State, error) {
		s := &engine.State{Master: model.NewWeights(wide), M: model.NewWeights(wide), V: model.NewWeights(wide)}
		s.Master.Init(1, 0.02)
		return 0, s, nil
	}
	b.refs = map[int]artifact.Ref{}
	files, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b.store = &flaky{Store: files, fail: map[string]bool{}}
	b.sealWide(t, 1)

	h := b.onCard(t, "small")
	epoch := b.init(t, h) // trainer and probe have their memory now, activations come with the first update
	use := plan.Use{Model: wide, Trainer: true, Longest: 1024, Sequences: 1}
	use.Micro = 16384
	all := plan.Least(use).Bytes()
	use.Micro = 4096
	grows := (all - plan.Least(use).Bytes()) / (16384 - 4096) // bytes a token
	give, err := takeMemory(grows * 16384 * 6 / 10)
	if err != nil {
		t.Fatal(err)
	}
	out := b.update(t, h, 1, epoch)
	if err := give(); err != nil {
		t.Fatal(err)
	}
	if out.Plan == nil || len(out.Plan.MicroBatches) < 2 || !slices.Equal(b.kinds(), slices.Repeat([]string{string(fault.Exhausted)}, max(1, len(b.kinds())))) {
		t.Fatalf("the plan is %v after %q, want at least two micro-batches and events of the kind Exhausted only", out.Plan, b.kinds())
	}
	t.Logf("%d bytes a token; recorded are micro-batches %v", grows, out.Plan.MicroBatches)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}

	back := b.onCard(t, "large")
	if got := b.digest(t, back, 1, acquire(t, back)); got != out.StateDigest || slices.Contains(b.kinds(), record.ReplayMismatch) {
		t.Errorf("replayed with all the memory: state %.12s, want %.12s; events %q", got, out.StateDigest, b.kinds())
	}
	if err := back.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{layout.Result(1), layout.Computed(1), layout.Weights(1), layout.WeightsInfo(1)} {
		if err := b.store.Remove(t.Context(), name); err != nil && !fault.Is(err, fault.NotFound) {
			t.Fatal(err)
		}
	}
	other := b.onCard(t, "third")
	if got := b.update(t, other, 1, acquire(t, other)); got.Plan != nil || got.StateDigest == out.StateDigest {
		t.Errorf("from the sealed plan: plan %v, state %.12s; want none and another state than %.12s, or this test shows nothing", got.Plan, got.StateDigest, out.StateDigest)
	}
}

// takeMemory takes the GPU's free memory but for some bytes, on a thread of its own; give gives it back.
func takeMemory(leave int) (give func() error, err error) {
	ready, end, done := make(chan error), make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		c, err := cudart.NewContext(0)
		if err != nil {
			ready <- err
			return
		}
		var p cudart.Ptr
		free, _, err := c.MemInfo()
		if err == nil && free < int64(leave) {
			err = fmt.Errorf("only %d bytes are free", free)
		}
		if err == nil {
			p, err = c.Alloc(int(free) - leave)
		}
		ready <- err
		if err != nil {
			return
		}
		<-end
		if err := c.Free(p); err != nil {
			done <- err
			return
		}
		done <- c.Close()
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	return func() error {
		close(end)
		return <-done
	}, nil
}
