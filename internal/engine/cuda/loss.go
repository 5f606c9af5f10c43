//go:build cuda

package cuda

import (
	"math"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rl"
)

// Sizes in the kernels, in bytes: of Target and TokenStats.
const targetBytes, statsBytes = 24, 72

// tokenStats are one trained token's figures.
type tokenStats struct {
	loss, correction, logP, tail, entropy, samplerQ, alpha float64
	floored, outside, bad                                  bool
	logQ, advantage                                        float64
}

func statsOf(w []uint64) tokenStats {
	f := math.Float64frombits
	return tokenStats{
		loss: f(w[0]), correction: f(w[1]), logP: f(w[2]), tail: f(w[3]), entropy: f(w[4]), samplerQ: f(w[5]), alpha: f(w[6]),
		floored: uint32(w[7]) != 0, outside: w[7]>>32 != 0, bad: uint32(w[8]) != 0, //nolint:gosec // halves
	}
}

// objective is rl.Objective in the numbers of the kernel.
func objective(o rl.Objective) []cudart.Arg {
	supervised := 0
	if o.Supervised {
		supervised = 1
	}
	centering := map[rl.Centering]int{rl.CenteringProportional: 1, rl.CenteringFull: 2}[o.Centering]
	rule := map[rl.Rule]int{rl.RuleTIS: 1, rl.RuleBand: 2}[o.Rule]
	return []cudart.Arg{cudart.Int(supervised), cudart.Int(centering), cudart.Int(rule), cudart.Double(o.Cap), cudart.Double(o.Lo), cudart.Double(o.Hi)}
}

// headLoss computes the logits and the loss of a micro-batch's trained tokens, a chunk at a time: it writes dx, adds to the gradients of the head and the
// final norm, and returns the tokens' figures. scale is 1/(trained tokens of the whole batch).
func (g *trainGPU) headLoss(batchOf *engine.Batch, m *micro, scale float64) ([]tokenStats, error) {
	if err := g.ctx.Zero(g.dx.at, len(m.tokens)*g.Hidden*4); err != nil {
		return nil, err
	}
	var out []tokenStats
	for first := 0; first < len(m.targets); first += headRows {
		stats, err := g.headChunk(batchOf, m, m.targets[first:min(first+headRows, len(m.targets))], scale)
		if err != nil {
			return nil, err
		}
		out = append(out, stats...)
	}
	return out, nil
}

func (g *trainGPU) headChunk(batchOf *engine.Batch, m *micro, part []target, scale float64) ([]tokenStats, error) {
	n, o, k := len(part), batchOf.Objective, recordWidth(batchOf.Objective)
	words, ids, logQ := lossWords(batchOf, part, k, scale)
	index := rowsOf(part)
	last := g.input(g.Layers, len(m.tokens))
	b := &batch{d: &g.device}
	b.do(func() error { return cudart.Upload(g.ctx, g.index.at, index) })
	b.do(func() error { return cudart.Upload(g.ctx, g.targets.at, words) })
	b.do(func() error { return cudart.Upload(g.ctx, g.recordIDs.at, ids) })
	b.do(func() error { return cudart.Upload(g.ctx, g.recordLogQ.at, logQ) })
	b.do(func() error { return g.clearTail(n, map[cudart.Ptr]int{g.hx.at: g.hiddenP, g.dlogits.at: g.Vocab}) })
	b.addNorm(g.hx.at, last, sum{}, g.w.final, g.index.at, n)
	b.product(g.logits.at, g.hx.at, g.w.head, n)
	b.launch(g.k.loss, n, 1, wideThreads, append([]cudart.Arg{
		g.dlogits.at.Arg(), g.lossStats.at.Arg(), g.head.at.Arg(), g.logits.at.Arg(), g.targets.at.Arg(), g.recordIDs.at.Arg(), g.recordLogQ.at.Arg(),
		cudart.Int(g.Vocab), cudart.Int(k),
	}, objective(o)...)...)
	b.weightsGrad(g.grad(g.w.head), g.dlogits.at, g.hx.at, g.Vocab, g.w.head, n)
	b.inputGrad(g.dhn.at, g.dlogits.at, g.Vocab, g.w.head, n)
	g.normGrad(b, g.dx.at, g.dhn.at, last, g.w.final, g.index.at, n)
	raw := make([]uint64, n*statsBytes/8)
	b.do(func() error { return cudart.Download(g.ctx, raw, g.lossStats.at) })
	if b.err != nil {
		return nil, b.err
	}
	return statsList(batchOf, part, raw), nil
}

// recordWidth is the width of the records that an objective reads.
func recordWidth(o rl.Objective) int {
	if o.Supervised || o.Centering == rl.CenteringOff {
		return 0
	}
	return o.TopK
}

// lossWords are the kernels' targets, and the records of width k. scale is 1/(trained tokens of the whole batch).
func lossWords(b *engine.Batch, part []target, k int, scale float64) (words []uint32, ids []int32, logQ []float32) {
	ids, logQ = make([]int32, 0, len(part)*k), make([]float32, 0, len(part)*k)
	for _, t := range part {
		s := &b.Sequences[t.seq]
		factor := math.Float64bits(scale / s.Temperature)
		var q float32
		if !b.Objective.Supervised {
			q = s.LogProbs[t.at]
		}
		words = append(words, uint32(factor), uint32(factor>>32), uint32(s.Tokens[t.at]), math.Float32bits(s.Advantage), //nolint:gosec // bits
			math.Float32bits(q), math.Float32bits(float32(1/s.Temperature)))
		if k > 0 {
			ids, logQ = append(ids, s.TopIDs[t.at*k:][:k]...), append(logQ, s.TopLogProbs[t.at*k:][:k]...)
		}
	}
	return words, ids, logQ
}

// rowsOf are the rows that predict the targets.
func rowsOf(part []target) []int32 {
	out := make([]int32, len(part))
	for i, t := range part {
		out[i] = int32(t.row) //nolint:gosec // a row
	}
	return out
}

// statsList reads the kernels' figures.
func statsList(b *engine.Batch, part []target, raw []uint64) []tokenStats {
	stats := make([]tokenStats, len(part))
	for i, t := range part {
		stats[i] = statsOf(raw[i*statsBytes/8:])
		stats[i].advantage = float64(b.Sequences[t.seq].Advantage)
		if !b.Objective.Supervised {
			stats[i].logQ = float64(b.Sequences[t.seq].LogProbs[t.at])
		}
	}
	return stats
}

// metrics are means over the trained tokens in order; what the objective does not define is NaN. Errors: Numeric.
func metrics(stats []tokenStats, o rl.Objective) (engine.StepMetrics, error) {
	nan := math.NaN()
	out := engine.StepMetrics{
		Tokens: len(stats), ClipFactor: 1, Correction: nan, CorrectionA: nan, Uncovered: nan, TrainerTail: nan, LogProbGap: nan, KL: nan,
		OutsideShare: nan, FloorShare: nan, MaxAlpha: nan,
	}
	n := float64(len(stats))
	var loss, entropy, gap, kl, correction, absolute, uncovered, tail, outside, floored, alpha float64
	for i, s := range stats {
		if s.bad {
			return out, fault.New(fault.Numeric, "cuda.Update", "logits of trained token %d are not finite", i).WithHint(unchanged)
		}
		loss, entropy = loss+s.loss, entropy+s.entropy
		gap, kl = gap+math.Abs(s.logP-s.logQ), kl+s.logQ-s.logP
		correction, absolute = correction+s.correction, absolute+math.Abs(s.correction*s.advantage)
		uncovered, tail, alpha = uncovered+1-s.samplerQ, tail+s.tail, max(alpha, s.alpha)
		if s.outside {
			outside++
		}
		if s.floored {
			floored++
		}
	}
	out.Loss, out.Entropy = loss/n, entropy/n
	if o.Supervised {
		return out, nil
	}
	out.LogProbGap, out.KL = gap/n, kl/n
	if o.Centering == rl.CenteringOff {
		return out, nil
	}
	out.Correction, out.CorrectionA, out.Uncovered, out.TrainerTail = correction/n, absolute/n, uncovered/n, tail/n
	out.OutsideShare, out.FloorShare, out.MaxAlpha = outside/n, floored/n, alpha
	return out, nil
}

const unchanged = "the state is unchanged; go back to an earlier checkpoint or lower the learning rate"
