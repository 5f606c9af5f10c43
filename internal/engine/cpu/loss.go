package cpu

import (
	"math"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rl"
)

// headRows is the number of trained rows whose logits exist at once. It does not change results.
const headRows = 256

// target is one masked token: row predicts token at of a sequence.
type target struct{ row, seq, at int }

// tokenStats are one trained token's contributions to the metrics.
type tokenStats struct {
	loss, correction, absCA, uncovered, tail, entropy, gap, kl, alpha float64
	outside, floored, bad                                             bool
}

// headLoss computes logits, losses and their gradients for the micro-batch's targets: it fills g.dnf, adds to the
// head's weight gradient and appends to t.stats. scale is 1/(trained tokens of the whole batch).
func (t *Trainer) headLoss(batch *engine.Batch, targets []target, scale float64) {
	m, g := &t.micro, &t.g
	clear(g.dnf[:m.rows*t.D])
	for first := 0; first < len(targets); first += headRows {
		part := targets[first:min(first+headRows, len(targets))]
		stats := make([]tokenStats, len(part))
		const unit = 16
		t.pool.run((len(part)+unit-1)/unit, func(worker, u int) {
			lo, hi := u*unit, min(u*unit+unit, len(part))
			for i := lo; i < hi; i++ {
				copy(g.hx[i*t.D:][:t.D], m.nf[part[i].row*t.D:])
			}
			t.linear(g.logits[lo*t.V:], t.V, g.hx[lo*t.D:], t.D, hi-lo, t.head)
			for i := lo; i < hi; i++ {
				seq := &batch.Sequences[part[i].seq]
				stats[i] = t.tokenLoss(&t.scratch[worker], g.logits[i*t.V:][:t.V], seq, part[i].at, batch.Objective, scale)
			}
			t.linearGrad(g.dhx[lo*t.D:], t.D, g.logits[lo*t.V:], t.V, hi-lo, t.head)
			for i := lo; i < hi; i++ {
				copy(g.dnf[part[i].row*t.D:][:t.D], g.dhx[i*t.D:])
			}
		})
		t.pool.run(strips(t.V), func(worker, u int) { t.strip(worker, t.head, u, g.logits, g.hx, len(part)) })
		t.stats = append(t.stats, stats...)
	}
}

// tokenLoss replaces the logits z [V] of one token by their gradient.
//
// Numerics: coefficients in float64 (rl.Row), their products with probabilities in float32. The trainer's mass
// outside the record is summed from the tail itself, so it does not cancel.
func (t *Trainer) tokenLoss(s *scratch, z []float32, seq *engine.Sequence, at int, obj rl.Objective, scale float64) (st tokenStats) {
	e := s.expo
	d, ok := t.softmax(z, e, seq.Temperature)
	if !ok {
		clear(z)
		return tokenStats{bad: true}
	}
	a := int(seq.Tokens[at])
	tok := rl.Token{Advantage: float64(seq.Advantage), LogP: float64(d.logProb(z[a])), Tail: math.NaN()}
	if !obj.Supervised {
		tok.LogQ = float64(seq.LogProbs[at])
	}
	var ids []int32
	if !obj.Supervised && obj.Centering != rl.CenteringOff {
		ids = seq.TopIDs[at*seq.TopK:][:seq.TopK]
		tok.HeadLogQ = seq.TopLogProbs[at*seq.TopK:][:seq.TopK]
		tok.HeadLogP, tok.Tail = t.record(s, z, e, ids, d)
	}
	if cap(s.head) < len(ids) {
		s.head = make([]float64, len(ids))
	}
	r := obj.Row(tok, s.head[:len(ids)])
	factor := scale / seq.Temperature
	t.k.Scale(z, e, float32(r.Off*factor/float64(d.sum)))
	for i, id := range ids {
		z[id] = float32(r.Head[i] * factor)
	}
	z[a] += float32(r.At * factor)
	st = tokenStats{
		loss: r.Loss, correction: r.Correction, absCA: math.Abs(r.Correction * tok.Advantage), entropy: float64(d.entropy),
		uncovered: 1 - r.SamplerQ, tail: tok.Tail, alpha: r.Alpha, floored: r.Floored,
	}
	if !obj.Supervised {
		st.gap, st.kl = math.Abs(tok.LogP-tok.LogQ), tok.LogQ-tok.LogP
		st.outside = !contains(ids, int32(a))
	}
	return st
}

// record gathers the trainer's log-probabilities of a record and sums the exponentials outside it; e is zero at
// the record's ids afterwards, which the caller overwrites anyway.
func (t *Trainer) record(s *scratch, z, e []float32, ids []int32, d distribution) (logP []float32, tail float64) {
	s.lp = grow(s.lp, len(ids))
	for i, id := range ids {
		s.lp[i] = d.logProb(z[id])
		e[id] = 0
	}
	tail = float64(t.k.Dot(e, t.ones)) / float64(d.sum)
	return s.lp, tail
}

func contains(ids []int32, id int32) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

// metrics reduces the batch's token statistics in order.
func (t *Trainer) metrics(obj rl.Objective) (engine.StepMetrics, error) {
	n := float64(len(t.stats))
	nan := math.NaN()
	var sum tokenStats
	var outside, floored int
	for i, s := range t.stats {
		if s.bad {
			return engine.StepMetrics{}, fault.New(fault.Numeric, "cpu.Update", "logits of trained token %d are not finite", i).
				WithHint("the state is unchanged; go back to an earlier checkpoint or lower the learning rate")
		}
		sum.loss += s.loss
		sum.correction += s.correction
		sum.absCA += s.absCA
		sum.uncovered += s.uncovered
		sum.tail += s.tail
		sum.entropy += s.entropy
		sum.gap += s.gap
		sum.kl += s.kl
		sum.alpha = max(sum.alpha, s.alpha)
		if s.outside {
			outside++
		}
		if s.floored {
			floored++
		}
	}
	out := engine.StepMetrics{
		Tokens: len(t.stats), Loss: sum.loss / n, ClipFactor: 1, Entropy: sum.entropy / n,
		Correction: nan, CorrectionA: nan, Uncovered: nan, TrainerTail: nan, LogProbGap: nan, KL: nan,
		OutsideShare: nan, FloorShare: nan, MaxAlpha: nan,
	}
	if !obj.Supervised {
		out.LogProbGap, out.KL = sum.gap/n, sum.kl/n
		if obj.Centering != rl.CenteringOff {
			out.Correction, out.CorrectionA = sum.correction/n, sum.absCA/n
			out.Uncovered, out.TrainerTail = sum.uncovered/n, sum.tail/n
			out.OutsideShare, out.FloorShare, out.MaxAlpha = float64(outside)/n, float64(floored)/n, sum.alpha
		}
	}
	return out, nil
}
