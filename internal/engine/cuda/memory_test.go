//go:build cuda

package cuda

import (
	"runtime"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/model"
)

// onDevice runs f on a thread of its own, to which a context belongs.
func onDevice(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
	}()
	<-done
}

// What a sampler has allocated after a step is what the memory plan says, to the byte, before and after its buffers grew.
func TestMemory_aSamplerTakesWhatIsPlanned(t *testing.T) {
	for _, p := range []Precision{BF16, Float32} {
		for _, c := range []model.Config{wideHeads, medium} {
			o := options(t, p)
			o.Sequences, o.CacheTokens = 4, 640
			o, err := o.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			onDevice(t, func() {
				g, err := newGPU(c, o)
				if err != nil {
					t.Error(err)
					return
				}
				defer g.close()
				s, elem := g.planned(), p.elemBytes()
				want := plan.WeightBytes(s, elem) + plan.RopeBytes(c) + plan.CacheBytes(s, elem, plan.CachePages(s, elem, 4, 640, 0)) +
					plan.Sum(plan.SamplerParts(s, elem, o.Rows, o.Sequences)) + plan.Sum(plan.LaneParts(s, o.Sequences))
				if g.taken != want {
					t.Errorf("%s, %d wide: a sampler that started has %d bytes, planned are %d", p, c.HeadDim, g.taken, want)
				}
				key := stepKey{rows: 4, splits: splitsOf(300), width: 5}
				if err := g.makeRoom(key); err != nil {
					t.Error(err)
					return
				}
				want += plan.Sum(plan.PartialParts(s, key.rows, key.splits)) + plan.Sum(plan.ResultParts(s, key.rows, key.width))
				if g.taken != want {
					t.Errorf("%s, %d wide: after a step it has %d bytes, planned are %d", p, c.HeadDim, g.taken, want)
				}
			})
		}
	}
}

// What a trainer has allocated after an update is what the memory plan says, to the byte, in both forms of training.
func TestMemory_aTrainerTakesWhatIsPlanned(t *testing.T) {
	for name, exact := range map[string]bool{"fast": false, "exact": true} {
		o := options(t, BF16)
		o.Exact, o.slots = exact, 1
		o, err := o.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		c := wideHeads
		b := packed(c, 5, 7, 40, 12)
		tokens, err := b.Check(c)
		if err != nil {
			t.Fatal(err)
		}
		onDevice(t, func() {
			g, err := newTrainGPU(c, o)
			if err != nil {
				t.Error(err)
				return
			}
			defer g.close()
			s, elem := g.planned(), 2
			want := plan.WeightBytes(s, elem) + plan.RopeBytes(c) + plan.Sum(plan.TrainState(s))
			if g.taken != want {
				t.Errorf("%s: a trainer that started has %d bytes, planned are %d", name, g.taken, want)
			}
			if _, err := g.gradient(t.Context(), &b, tokens); err != nil {
				t.Error(err)
				return
			}
			want += plan.NormBytes(s) + g.attend.wide.bytes + g.attend.single.bytes + g.attend.merge.bytes + g.attend.parts.bytes + g.attend.tiles.bytes
			want += plan.Sum(microParts(t, g, &b, tokens))
			if g.taken != want {
				t.Errorf("%s: after an update it has %d bytes, planned are %d", name, g.taken, want)
			}
		})
	}
}

// microParts are the planned parts of the only micro-batch.
func microParts(t *testing.T, g *trainGPU, b *engine.Batch, targets int) []plan.Part {
	t.Helper()
	s, all, longest, pages := g.planned(), 0, 0, 0
	for _, seq := range b.Sequences {
		all, longest = all+len(seq.Tokens), max(longest, len(seq.Tokens))
		pages += plan.Pages(len(seq.Tokens))
	}
	if g.fast == nil {
		return append(plan.ExactParts(s, 2, plan.ExactMicro{Tokens: all, Sequences: len(b.Sequences), CachePages: pages, TablePages: plan.Pages(longest)}),
			plan.ExactHeadParts(s, 2, targets, b.Objective.TopK)...)
	}
	rows := plan.PadRows(all, g.blas != nil)
	stats := g.fast.sums.bytes / 4 // with cuDNN it depends on the calls
	if g.fast.m.calls == nil && stats != rows*s.Heads {
		t.Errorf("%d elements of statistics for %d rows", stats, rows)
	}
	m := plan.Micro{
		Rows: rows, Tokens: all, Targets: targets, Stats: stats, Record: b.Objective.TopK, Ints: g.fast.ints.bytes / 4, Chunk: plan.PadRows(targets, g.blas != nil),
	}
	return append(plan.FastParts(s, m), plan.SlotParts(s, rows, stats, false)...)
}
