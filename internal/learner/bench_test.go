package learner_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/trajectory"
	"github.com/steadyrl/steady/internal/weights"
)

// What a trainer that died has to do again: restore the checkpoint and replay the sealed batches since then, every one compared with
// its recorded result. The model is that of the demo; a batch has 16 trajectories of 96 tokens, 32 of them sampled, about
// as in test/durability.
func BenchmarkReplay(b *testing.B) {
	const last = 49
	ctx := b.Context()
	store, err := artifact.NewFiles(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	w, err := weights.LoadFS(demo.Model())
	if err != nil {
		b.Fatal(err)
	}
	open := func() *learner.Host {
		return learner.New(learner.Options{
			Store: store, Name: "a",
			NewTrainer: func(c model.Config, w *model.Weights) (engine.Trainer, error) {
				return cpu.NewTrainer(c, w, cpu.Options{})
			},
			NewSampler: func(c model.Config) (engine.Sampler, error) { return cpu.NewSampler(c, cpu.Options{}) },
			Initial: func(context.Context, record.Layout) (int, *engine.State, error) {
				return 0, &engine.State{Master: w, M: model.NewWeights(w.Config), V: model.NewWeights(w.Config)}, nil
			},
			Note: func(_ context.Context, _ record.Layout, e record.Event) {
				if e.Kind == record.ReplayMismatch {
					b.Error(e.Message)
				}
			},
		})
	}
	h := open()
	if _, err := h.Init(ctx, layout, 0); err != nil {
		b.Fatal(err)
	}
	epoch, err := h.Acquire(ctx, layout)
	if err != nil {
		b.Fatal(err)
	}
	for step := 1; step <= last; step++ {
		if _, err := h.Update(ctx, layout, step, sealRun(b, store, step, w.Config.Vocab), epoch); err != nil {
			b.Fatal(err)
		}
	}
	if err := h.Close(); err != nil {
		b.Fatal(err)
	}
	for _, steps := range []int{1, 25, last} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			var took time.Duration
			for b.Loop() {
				h := open()
				began := time.Now()
				if _, replayed, err := h.Reach(ctx, layout, steps, epoch); err != nil || replayed != steps {
					b.Fatalf("%d steps replayed, %v", replayed, err)
				}
				took += time.Since(began)
				_ = h.Close()
			}
			b.ReportMetric(float64(steps*b.N)/took.Seconds(), "steps/s")
		})
	}
}

// sealRun seals a batch of 4 groups of 4.
func sealRun(b *testing.B, store artifact.Store, step, vocab int) artifact.Ref {
	b.Helper()
	o := batch.Options{
		Layout: layout, Step: step, Objective: rl.Objective{Centering: rl.CenteringOff, Rule: rl.RuleNone}, Temperature: 1, MicroBatchTokens: 4096,
		Optim: rl.AdamW{LearningRate: 1e-5, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8},
	}
	for g := range 4 {
		unit := record.GroupUnit(4*step+g, step, g, 0)
		v := batch.Verdicts{Unit: unit}
		var ts []*trajectory.Trajectory
		for i := range 4 {
			prompt := make([]int32, 64)
			for k := range prompt {
				prompt[k] = int32((step + g + 31*k) % vocab) //nolint:gosec // below the vocabulary
			}
			tr := trajectory.New(trajectory.Key{ProblemID: fmt.Sprint(g), Split: "train", Sample: i}, prompt, 0)
			tr.BeginTurn()
			for k := range 32 {
				if err := tr.AppendSampled(engine.Token{ID: int32((7*step + i + 13*k) % vocab), LogProb: -2, Version: step - 1}); err != nil { //nolint:gosec // as above
					b.Fatal(err)
				}
			}
			tr.End = trajectory.EndStop
			ts = append(ts, tr)
			v.Items = append(v.Items, batch.Verdict{ProblemID: fmt.Sprint(g), Sample: i, Reward: float64(i % 2), Verdict: judge.Verdict{Passed: i % 2, Total: 1}})
		}
		data, err := trajectory.Encode(ts)
		if err != nil {
			b.Fatal(err)
		}
		if v.File, err = store.Put(b.Context(), layout.Trajectories(unit), data); err != nil {
			b.Fatal(err)
		}
		if _, err := artifact.PutJSON(b.Context(), store, layout.Verdicts(unit), v); err != nil {
			b.Fatal(err)
		}
		o.Groups = append(o.Groups, batch.GroupUnit{Group: record.Group{N: 12*step + g}, Unit: unit})
	}
	sealed, err := batch.Seal(b.Context(), store, o)
	if err != nil {
		b.Fatal(err)
	}
	ref, err := artifact.PutJSON(b.Context(), store, layout.Batch(step), sealed)
	if err != nil {
		b.Fatal(err)
	}
	return ref
}
