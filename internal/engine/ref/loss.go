package ref

import (
	"math"
	"slices"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
)

// Gradient returns the token-mean gradient of b at exactly the weights w (which are not rounded), and the metrics but
// for the clip factor. The result is rounded to float32. Errors: Invalid, Numeric.
func Gradient(w *model.Weights, b engine.Batch) (*model.Weights, engine.StepMetrics, error) {
	g, m, err := gradient(load(w), &b)
	if err != nil {
		return nil, m, err
	}
	return g.store(), m, nil
}

func gradient(p *params, b *engine.Batch) (*params, engine.StepMetrics, error) {
	count, err := b.Check(p.cfg)
	if err != nil {
		return nil, engine.StepMetrics{}, err
	}
	g := newParams(p.cfg)
	var stats []tokenStats
	for _, micro := range b.Plan.MicroBatches {
		for _, i := range micro {
			s := &b.Sequences[i]
			tr := p.forward(s.Tokens)
			dlogits := map[int][]float64{}
			for at, trained := range s.Mask {
				if !trained {
					continue
				}
				dz, st := tokenGradient(p.logits(tr, at-1), s, at, b.Objective)
				for u := range dz {
					dz[u] /= s.Temperature * float64(count)
				}
				dlogits[at-1] = dz
				stats = append(stats, st)
			}
			p.backward(tr, dlogits, g)
		}
	}
	out := metrics(stats, b.Objective)
	var squares float64
	for _, s := range p.cfg.Tensors() {
		for _, x := range g.byName[s.Name] {
			squares += x * x
		}
	}
	out.GradNorm = math.Sqrt(squares)
	if x := out.Loss + out.GradNorm; math.IsNaN(x) || math.IsInf(x, 0) {
		return nil, out, fault.New(fault.Numeric, "ref.Update", "loss %v or gradient norm %v is not finite", out.Loss, out.GradNorm)
	}
	return g, out, nil
}

type tokenStats struct {
	row                                  rl.Row
	advantage, logP, logQ, tail, entropy float64
	outside                              bool
}

// tokenGradient returns the gradient of one token's loss with respect to its logits after temperature.
func tokenGradient(logits []float64, s *engine.Sequence, at int, o rl.Objective) ([]float64, tokenStats) {
	lp := logSoftmax(scaled(logits, s.Temperature))
	a := int(s.Tokens[at])
	tok := rl.Token{Advantage: float64(s.Advantage), LogP: lp[a], Tail: math.NaN()}
	var ids []int32
	if !o.Supervised {
		tok.LogQ = float64(s.LogProbs[at])
		if o.Centering != rl.CenteringOff {
			ids = s.TopIDs[at*s.TopK : (at+1)*s.TopK]
			tok.HeadLogQ = s.TopLogProbs[at*s.TopK : (at+1)*s.TopK]
		}
	}
	tok.Tail = 0
	for u, l := range lp {
		if !slices.Contains(ids, int32(u)) {
			tok.Tail += math.Exp(l)
		}
	}
	for _, id := range ids {
		tok.HeadLogP = append(tok.HeadLogP, float32(lp[id]))
	}
	row := o.Row(tok, make([]float64, len(ids)))
	dz := make([]float64, len(lp))
	for u := range dz {
		dz[u] = row.Off * math.Exp(lp[u])
	}
	for i, id := range ids {
		dz[id] = row.Head[i]
	}
	dz[a] += row.At
	return dz, tokenStats{
		row: row, advantage: tok.Advantage, logP: tok.LogP, logQ: tok.LogQ, tail: tok.Tail,
		entropy: entropy(lp), outside: !slices.Contains(ids, int32(a)),
	}
}

func scaled(z []float64, temperature float64) []float64 {
	out := make([]float64, len(z))
	for i, v := range z {
		out[i] = v / temperature
	}
	return out
}

// entropy of log-probabilities, in nats.
func entropy(lp []float64) float64 {
	var h float64
	for _, l := range lp {
		if p := math.Exp(l); p > 0 {
			h -= p * l
		}
	}
	return h
}

// metrics are means over the trained tokens; what the objective does not define is NaN.
func metrics(stats []tokenStats, o rl.Objective) engine.StepMetrics {
	nan := math.NaN()
	out := engine.StepMetrics{
		Tokens: len(stats), ClipFactor: 1, Correction: nan, CorrectionA: nan, Uncovered: nan, TrainerTail: nan,
		LogProbGap: nan, KL: nan, OutsideShare: nan, FloorShare: nan, MaxAlpha: nan,
	}
	mean := func(f func(tokenStats) float64) float64 {
		var sum float64
		for _, s := range stats {
			sum += f(s)
		}
		return sum / float64(len(stats))
	}
	share := func(f func(tokenStats) bool) float64 {
		return mean(func(s tokenStats) float64 {
			if f(s) {
				return 1
			}
			return 0
		})
	}
	out.Loss = mean(func(s tokenStats) float64 { return s.row.Loss })
	out.Entropy = mean(func(s tokenStats) float64 { return s.entropy })
	if o.Supervised {
		return out
	}
	out.LogProbGap = mean(func(s tokenStats) float64 { return math.Abs(s.logP - s.logQ) })
	out.KL = mean(func(s tokenStats) float64 { return s.logQ - s.logP })
	if o.Centering == rl.CenteringOff {
		return out
	}
	out.Correction = mean(func(s tokenStats) float64 { return s.row.Correction })
	out.CorrectionA = mean(func(s tokenStats) float64 { return math.Abs(s.row.Correction * s.advantage) })
	out.Uncovered = mean(func(s tokenStats) float64 { return 1 - s.row.SamplerQ })
	out.TrainerTail = mean(func(s tokenStats) float64 { return s.tail })
	out.OutsideShare = share(func(s tokenStats) bool { return s.outside })
	out.FloorShare = share(func(s tokenStats) bool { return s.row.Floored })
	out.MaxAlpha = 0
	for _, s := range stats {
		out.MaxAlpha = max(out.MaxAlpha, s.row.Alpha)
	}
	return out
}
