package engine

import (
	"math"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
)

// Check verifies everything about b that a Trainer of model c must refuse, and returns the number of trained
// tokens. Errors: Invalid, naming the sequence.
func (b *Batch) Check(c model.Config) (tokens int, err error) {
	const op = "engine.Batch"
	if err := b.Objective.Check(); err != nil {
		return 0, err
	}
	for i := range b.Sequences {
		n, err := b.Sequences[i].check(c, b.Objective)
		if err != nil {
			return 0, fault.New(fault.Invalid, op, "sequence %d: %w", i, err)
		}
		tokens += n
	}
	if tokens == 0 {
		return 0, fault.New(fault.Invalid, op, "the batch has no trained token").WithHint("skip the update when every mask is false")
	}
	seen, count := make([]bool, len(b.Sequences)), 0
	for _, m := range b.Plan.MicroBatches {
		for _, i := range m {
			if i < 0 || i >= len(seen) || seen[i] {
				return 0, fault.New(fault.Invalid, op, "the plan names sequence %d twice or out of range (%d sequences)", i, len(seen))
			}
			seen[i] = true
			count++
		}
	}
	if count != len(seen) {
		return 0, fault.New(fault.Invalid, op, "the plan covers %d of %d sequences", count, len(seen))
	}
	return tokens, checkOptim(b.Optim)
}

func checkOptim(o rl.AdamW) error {
	for _, x := range []float64{o.LearningRate, o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay, o.ClipNorm} {
		if !(x >= 0) || math.IsInf(x, 0) {
			return fault.New(fault.Invalid, "engine.Batch", "optimiser settings must be finite and >= 0: %+v", o)
		}
	}
	if o.Beta1 >= 1 || o.Beta2 >= 1 || o.Epsilon == 0 {
		return fault.New(fault.Invalid, "engine.Batch", "betas must be < 1 and epsilon > 0: %+v", o)
	}
	return nil
}

func (s *Sequence) check(c model.Config, o rl.Objective) (tokens int, err error) {
	const op = "engine.Sequence"
	n := len(s.Tokens)
	if n == 0 || n > c.MaxPosition || len(s.Mask) != n || s.Mask[0] {
		return 0, fault.New(fault.Invalid, op, "%d tokens of at most %d with a mask of %d, whose first must be false", n, c.MaxPosition, len(s.Mask))
	}
	if a := float64(s.Advantage); math.IsNaN(a) || math.IsInf(a, 0) || !(s.Temperature > 0) || math.IsInf(s.Temperature, 0) {
		return 0, fault.New(fault.Invalid, op, "advantage %v, temperature %v", s.Advantage, s.Temperature)
	}
	for i, id := range s.Tokens {
		if id < 0 || int(id) >= c.Vocab {
			return 0, fault.New(fault.Invalid, op, "token %d has id %d, the vocabulary has %d", i, id, c.Vocab)
		}
	}
	centred := !o.Supervised && o.Centering != rl.CenteringOff
	if !o.Supervised && len(s.LogProbs) != n {
		return 0, fault.New(fault.Invalid, op, "%d log-probabilities for %d tokens", len(s.LogProbs), n)
	}
	if centred {
		if s.TopK != o.TopK || len(s.TopIDs) != n*s.TopK || len(s.TopLogProbs) != n*s.TopK {
			return 0, fault.New(fault.Invalid, op, "a record of width %d (%d ids, %d values) for %d tokens, the objective needs width %d",
				s.TopK, len(s.TopIDs), len(s.TopLogProbs), n, o.TopK)
		}
		if o.Centering == rl.CenteringFull && s.TopK != c.Vocab {
			return 0, fault.New(fault.Invalid, op, "full centering needs a record of the whole vocabulary (%d), got %d", c.Vocab, s.TopK)
		}
	}
	for i, trained := range s.Mask {
		if !trained {
			continue
		}
		tokens++
		if o.Supervised {
			continue
		}
		if err := rl.CheckLogProb(s.LogProbs[i]); err != nil {
			return 0, err
		}
		if centred {
			at := i * s.TopK
			if err := rl.CheckRecord(s.TopIDs[at:at+s.TopK], s.TopLogProbs[at:at+s.TopK], c.Vocab); err != nil {
				return 0, err
			}
		}
	}
	return tokens, nil
}
