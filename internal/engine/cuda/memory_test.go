//go:build cuda

package cuda

import (
	"errors"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
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
			want := plan.WeightBytes(s, elem) + plan.RopeBytes(c) + plan.Sum(plan.TrainState(s)) + plan.NormBytes(s)
			if g.taken != want {
				t.Errorf("%s: a trainer that started has %d bytes, planned are %d", name, g.taken, want)
			}
			if _, err := g.gradient(t.Context(), &b, tokens); err != nil {
				t.Error(err)
				return
			}
			want += g.attend.wide.bytes + g.attend.single.bytes + g.attend.merge.bytes + g.attend.parts.bytes + g.attend.tiles.bytes
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

// On an emulated card of any size, one trainer that begins with the whole batch and halves its micro-batches while they do not fit, as the learner does,
// succeeds with the first plan that fits by arithmetic, whatever did not fit before, and fails only where no plan fits; then nothing but its state is held. The
// figures are those of a card with all the memory and the same plan.
func TestMemory_theFirstPlanThatFitsIsUsed(t *testing.T) {
	for name, exact := range map[string]bool{"fast": false, "exact": true} {
		o := options(t, BF16)
		if !underTest.emulated {
			t.Skip("a real card has no limit to be set; a test of the learner takes its memory instead")
		}
		o.Exact, o.slots = exact, 1
		o, err := o.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		c := wideHeads
		c.Layers = 1
		b := packed(c, 5, 3, 5, 4, 4)
		var lengths []int
		for _, s := range b.Sequences {
			lengths = append(lengths, len(s.Tokens))
		}
		tokens, err := b.Check(c)
		if err != nil {
			t.Fatal(err)
		}
		// The plans, largest first, and what each takes beside the state.
		plans := []engine.Plan{b.Plan}
		for n := b.Plan.Divisible(lengths); n > 0; n = plans[len(plans)-1].Divisible(lengths) {
			plans = append(plans, b.Plan.Within((n+1)/2, lengths))
		}
		if len(plans) < 3 {
			t.Fatalf("%d plans, want at least three", len(plans))
		}
		onDevice(t, func() {
			g, err := newTrainGPU(c, o)
			if err != nil {
				t.Error(err)
				return
			}
			defer g.close()
			if err := errors.Join(g.uploadSlab(g.master, weightsOf(c, 9, 0.1)), g.publish()); err != nil {
				t.Error(err)
				return
			}
			state := g.taken
			var needs []int
			var norms []float64
			for _, p := range plans {
				b.Plan = p
				if err := g.release(); err != nil {
					t.Error(err)
					return
				}
				m, err := g.gradient(t.Context(), &b, tokens)
				if err != nil {
					t.Error(err)
					return
				}
				if m.GradNorm == 0 {
					t.Errorf("%s: the gradient is zero", name)
				}
				needs, norms = append(needs, mostOf(t, g, &b)), append(norms, m.GradNorm)
			}
			if err := g.release(); err != nil || g.taken != state {
				t.Errorf("%s: %d bytes are held after a release, want %d: %v", name, g.taken, state, err)
				return
			}
			t.Setenv("EMULATED_MEMORY", strconv.Itoa(1<<40))
			free, total, err := g.ctx.MemInfo()
			if err != nil {
				t.Error(err)
				return
			}
			all := int(total - free) // of this process
			var limits []int
			for _, n := range needs {
				limits = append(limits, n-1, n)
			}
			for _, limit := range append(limits, needs[len(needs)-1]/2) {
				if err := g.release(); err != nil {
					t.Error(err)
					return
				}
				t.Setenv("EMULATED_MEMORY", strconv.Itoa(all+limit))
				first := slices.IndexFunc(needs, func(n int) bool { return n <= limit })
				for i, p := range plans {
					b.Plan = p
					m, err := g.gradient(t.Context(), &b, tokens)
					switch {
					case first == i && (err != nil || m.GradNorm != norms[i]):
						t.Errorf("%s, %d bytes beside the state: plan %d needs %d, norm %v, want %v: %v", name, limit, i, needs[i], m.GradNorm, norms[i], err)
					case first != i && (!fault.Is(err, fault.Exhausted) || g.taken != state):
						t.Errorf("%s, %d bytes beside the state: plan %d needs %d, %d bytes are held, want only the state's %d: %v", name, limit, i, needs[i], g.taken, state, err)
					}
					if first == i {
						break
					}
				}
			}
			t.Setenv("EMULATED_MEMORY", "")
		})
	}
}

// mostOf is what the largest micro-batch of a plan takes, by arithmetic.
func mostOf(t *testing.T, g *trainGPU, b *engine.Batch) int {
	t.Helper()
	most := 0
	for _, indices := range b.Plan.MicroBatches {
		one := engine.Batch{Objective: b.Objective}
		targets := 0
		for _, i := range indices {
			one.Sequences = append(one.Sequences, b.Sequences[i])
			for _, masked := range b.Sequences[i].Mask {
				if masked {
					targets++
				}
			}
		}
		m := layOut(b, indices)
		if g.fast != nil {
			p := &packer{}
			for _, list := range [][]int32{m.tokens, m.position, m.table, m.last, rowsOf(m.targets)} {
				p.add(list...)
			}
			rows := plan.PadRows(len(m.tokens), g.blas != nil)
			s := g.planned()
			parts := append(plan.FastParts(s, plan.Micro{
				Rows: rows, Tokens: len(m.tokens), Targets: targets, Stats: rows * s.Heads, Record: b.Objective.TopK, Ints: len(p.ints), Chunk: plan.PadRows(targets, g.blas != nil),
			}), plan.SlotParts(s, rows, rows*s.Heads, false)...)
			most = max(most, plan.Sum(parts))
			continue
		}
		a := g.planAttention(m.table, m.position)
		tiles := 4 * len(a.tiles)
		if !g.tensor() {
			tiles = 4*(len(a.wide)+len(a.single)+len(a.merges)) + len(a.single)/3*g.Heads*(g.HeadDim+2)*4
		}
		most = max(most, plan.Sum(microParts(t, g, &one, targets))+tiles)
	}
	return most
}
