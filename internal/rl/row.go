package rl

import (
	"math"
	"slices"

	"github.com/steadyrl/steady/internal/fault"
)

// tailFloor bounds the tail masses 1-Q and 1-P from below in the tail's ratio.
const tailFloor = 1e-6

// maxLogRatio clamps the log-ratio of the sampled token (not of the head).
const maxLogRatio = 20

// Default returns the product's objective for a record of width k: proportional Score Centering, no rule.
func Default(k int) Objective {
	return Objective{Centering: CenteringProportional, Rule: RuleNone, Cap: 2, Lo: 0.5, Hi: 5, TopK: k}
}

// Check reports a setting that cannot be trained, as an error of kind Invalid.
func (o Objective) Check() error {
	if o.Supervised {
		return nil
	}
	switch o.Centering {
	case CenteringOff:
	case CenteringProportional, CenteringFull:
		if o.TopK <= 0 {
			return fault.New(fault.Invalid, "rl.Objective", "centering %s needs a record, top_k is %d", o.Centering, o.TopK)
		}
	default:
		return fault.New(fault.Invalid, "rl.Objective", "unknown centering %q", o.Centering)
	}
	switch {
	case o.Rule == RuleNone:
	case o.Rule == RuleTIS && o.Cap > 0:
	case o.Rule == RuleBand && o.Lo >= 0 && o.Hi > o.Lo:
	default:
		return fault.New(fault.Invalid, "rl.Objective", "bad importance rule %q (cap %v, band %v to %v)", o.Rule, o.Cap, o.Lo, o.Hi)
	}
	return nil
}

// Token is what the objective sees of one trained token.
type Token struct {
	Advantage float64
	// LogP and LogQ are the log-probabilities of the sampled token, of the trainer and of the sampler, both after
	// temperature. LogQ is ignored by supervised training.
	LogP, LogQ float64
	// HeadLogP and HeadLogQ [k] are those of the record's tokens, normalised over the full vocabulary.
	HeadLogP, HeadLogQ []float32
	// Tail is the trainer's mass outside the record, summed from the tail itself where affordable; NaN: 1 - P.
	Tail float64
}

// Row is the gradient of one token's loss with respect to the logits after temperature, in the form
// that does not cancel: for every u, dz[u] = Off * p[u], then dz[record[i]] = Head[i] overwrites, then At is added at the sampled token.
// The caller multiplies all by 1/(temperature * tokens in the global batch).
type Row struct {
	Off, At float64
	Head    []float64 // [k], the caller's buffer

	Loss       float64 // of the token; compare objectives by gradient, never by this
	Correction float64 // C = sum over the record of c_v log p_v; 0 without centering
	Weight     float64 // f(p/q) of the sampled token
	SamplerQ   float64 // mass of the record under the sampler
	TrainerP   float64 // and under the trainer
	Alpha      float64 // tail coefficient
	Floored    bool    // a tail floor was active
}

// Row computes the coefficients of t; head is a buffer of at least k elements.
//
// Numerics: float64 inside. Shapes: k = len(t.HeadLogP) = len(t.HeadLogQ). Source: Score Centering (arXiv 2609.20807);
// the overwrite form and its derivation are in docs/numerics.md.
func (o Objective) Row(t Token, head []float64) Row {
	if o.Supervised {
		return Row{Off: t.Advantage, At: -t.Advantage, Head: head[:0], Loss: -t.Advantage * t.LogP, Weight: 1}
	}
	r := Row{Weight: o.weight(math.Exp(clamp(t.LogP-t.LogQ, maxLogRatio)))}
	if o.Centering == CenteringOff {
		r.Head = head[:0]
		r.Off, r.At = t.Advantage*r.Weight, -t.Advantage*r.Weight
		r.Loss = -t.Advantage * r.Weight * t.LogP
		return r
	}
	k := len(t.HeadLogP)
	r.Head = head[:k]
	var m float64 // sum of q f(p/q) over the record
	for i := range k {
		q, p := math.Exp(float64(t.HeadLogQ[i])), math.Exp(float64(t.HeadLogP[i]))
		r.SamplerQ += q
		r.TrainerP += p
		r.Head[i] = o.headMass(q, p)
		m += r.Head[i]
	}
	tail := t.Tail
	if math.IsNaN(tail) {
		tail = max(0, 1-r.TrainerP)
	}
	if o.Centering == CenteringProportional {
		rho := max(1-r.SamplerQ, tailFloor) / max(tail, tailFloor)
		r.Floored = 1-r.SamplerQ < tailFloor || tail < tailFloor
		r.Alpha = o.tailCoefficient(rho)
		m += float64(r.Alpha * tail)
	}
	for i := range k {
		p := math.Exp(float64(t.HeadLogP[i]))
		// The conversions forbid fused multiply-adds, which would make the last bit depend on the machine.
		r.Correction += float64((r.Head[i] - float64(r.Alpha*p)) * float64(t.HeadLogP[i]))
		r.Head[i] = t.Advantage * (r.Head[i] - float64((m-r.Weight)*p))
	}
	r.Off = -t.Advantage * (m - r.Weight - r.Alpha)
	r.At = -t.Advantage * r.Weight
	r.Loss = -t.Advantage * (float64(r.Weight*t.LogP) - r.Correction)
	return r
}

// weight is f(ratio).
func (o Objective) weight(ratio float64) float64 {
	switch o.Rule {
	case RuleTIS:
		return min(ratio, o.Cap)
	case RuleBand:
		if ratio < o.Lo || ratio > o.Hi {
			return 0
		}
		return ratio
	case RuleNone:
	}
	return 1
}

// headMass is q f(p/q), without forming the ratio where that could overflow.
func (o Objective) headMass(q, p float64) float64 {
	switch o.Rule {
	case RuleTIS:
		return min(p, o.Cap*q)
	case RuleBand:
		if p < o.Lo*q || p > o.Hi*q {
			return 0
		}
		return p
	case RuleNone:
	}
	return q
}

// tailCoefficient is rho f(1/rho).
func (o Objective) tailCoefficient(rho float64) float64 {
	switch o.Rule {
	case RuleTIS:
		return min(1, o.Cap*rho)
	case RuleBand:
		if 1 < o.Lo*rho || 1 > o.Hi*rho {
			return 0
		}
		return 1
	case RuleNone:
	}
	return rho
}

func clamp(x, limit float64) float64 { return max(-limit, min(limit, x)) }

// massTolerance is how far the mass of a record may exceed 1 by rounding of float32 log-probabilities.
const massTolerance = 1e-4

// CheckRecord reports a record that cannot come from a distribution: repeated or negative ids, ids outside the
// vocabulary, log-probabilities that are not finite or positive, mass above 1. Such a record means a fault of the
// sampler, and the trajectory must not train. Errors: Invalid.
func CheckRecord(ids []int32, logProbs []float32, vocab int) error {
	var mass float64
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fault.New(fault.Invalid, "rl.CheckRecord", "entry %d has id %d, the vocabulary has %d", i, id, vocab)
		}
		for j := range i {
			if ids[j] == id {
				return fault.New(fault.Invalid, "rl.CheckRecord", "id %d is recorded twice", id)
			}
		}
		if err := CheckLogProb(logProbs[i]); err != nil {
			return err
		}
		mass += math.Exp(float64(logProbs[i]))
	}
	if mass > 1+massTolerance {
		return fault.New(fault.Invalid, "rl.CheckRecord", "the record has mass %v: raw and processed log-probabilities were mixed", mass)
	}
	return nil
}

// CheckLogProb reports a log-probability that is not finite or is positive beyond rounding. Errors: Invalid.
func CheckLogProb(lp float32) error {
	if x := float64(lp); math.IsNaN(x) || math.IsInf(x, 0) || x > massTolerance {
		return fault.New(fault.Invalid, "rl.CheckLogProb", "log-probability %v", lp)
	}
	return nil
}

// GroupAdvantages returns reward minus the group's mean, in order, not divided by the standard deviation. Equal
// rewards give exactly 0, which the rounding of the mean would not.
func GroupAdvantages(rewards []float64) []float64 {
	if len(rewards) > 0 && !slices.ContainsFunc(rewards, func(r float64) bool { return r != rewards[0] }) {
		return make([]float64, len(rewards))
	}
	var mean float64
	for _, r := range rewards {
		mean += r
	}
	mean /= float64(max(len(rewards), 1))
	out := make([]float64, len(rewards))
	for i, r := range rewards {
		out[i] = r - mean
	}
	return out
}

// DefaultAdamW returns the published run's optimiser settings; betas and epsilon are assumed, since it does not name them.
func DefaultAdamW() AdamW {
	return AdamW{LearningRate: 1e-6, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, ClipNorm: 1}
}
