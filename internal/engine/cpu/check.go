package cpu

import (
	"math"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rl"
)

// checkBatch verifies shapes, records, settings and the plan, and returns the number of trained tokens.
func (t *Trainer) checkBatch(b *engine.Batch) (tokens int, err error) {
	const op = "cpu.Update"
	if err := b.Objective.Check(); err != nil {
		return 0, err
	}
	if err := checkOptim(b.Optim, op); err != nil {
		return 0, err
	}
	errs := make([]error, len(b.Sequences))
	t.pool.run(len(b.Sequences), func(_, i int) { errs[i] = t.checkSequence(&b.Sequences[i], b.Objective) })
	for i, err := range errs {
		if err != nil {
			return 0, fault.New(fault.Invalid, op, "sequence %d: %w", i, err)
		}
		for _, m := range b.Sequences[i].Mask {
			if m {
				tokens++
			}
		}
	}
	if tokens == 0 {
		return 0, fault.New(fault.Invalid, op, "the batch has no trained token").WithHint("skip the update when every mask is false")
	}
	return tokens, checkPlan(b.Plan, len(b.Sequences), op)
}

func checkOptim(o rl.AdamW, op string) error {
	for _, x := range []float64{o.LearningRate, o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay, o.ClipNorm} {
		if !(x >= 0) || math.IsInf(x, 0) {
			return fault.New(fault.Invalid, op, "optimiser settings must be finite and >= 0: %+v", o)
		}
	}
	if o.Beta1 >= 1 || o.Beta2 >= 1 || o.Epsilon == 0 {
		return fault.New(fault.Invalid, op, "betas must be < 1 and epsilon > 0: %+v", o)
	}
	return nil
}

func checkPlan(p engine.Plan, sequences int, op string) error {
	seen := make([]bool, sequences)
	count := 0
	for _, m := range p.MicroBatches {
		for _, i := range m {
			if i < 0 || i >= sequences || seen[i] {
				return fault.New(fault.Invalid, op, "the plan names sequence %d twice or out of range (%d sequences)", i, sequences)
			}
			seen[i] = true
			count++
		}
	}
	if count != sequences {
		return fault.New(fault.Invalid, op, "the plan covers %d of %d sequences", count, sequences)
	}
	return nil
}

func (t *Trainer) checkSequence(s *engine.Sequence, obj rl.Objective) error {
	const op = "cpu.Update"
	n := len(s.Tokens)
	if n > t.cfg.MaxPosition {
		return fault.New(fault.Invalid, op, "%d tokens, the model has %d positions", n, t.cfg.MaxPosition)
	}
	if n == 0 || len(s.Mask) != n || s.Mask[0] {
		return fault.New(fault.Invalid, op, "%d tokens with a mask of %d, whose first must be false", n, len(s.Mask))
	}
	if x := float64(s.Advantage); math.IsNaN(x) || math.IsInf(x, 0) || !(s.Temperature > 0) || math.IsInf(s.Temperature, 0) {
		return fault.New(fault.Invalid, op, "advantage %v, temperature %v", s.Advantage, s.Temperature)
	}
	for i, id := range s.Tokens {
		if id < 0 || int(id) >= t.cfg.Vocab {
			return fault.New(fault.Invalid, op, "token %d has id %d, the vocabulary has %d", i, id, t.cfg.Vocab)
		}
	}
	if obj.Supervised {
		return nil
	}
	if len(s.LogProbs) != n {
		return fault.New(fault.Invalid, op, "%d log-probabilities for %d tokens", len(s.LogProbs), n)
	}
	centred := obj.Centering != rl.CenteringOff
	if centred {
		if err := t.checkRecordShape(s, obj); err != nil {
			return err
		}
	}
	for i, m := range s.Mask {
		if !m {
			continue
		}
		if err := rl.CheckLogProb(s.LogProbs[i]); err != nil {
			return err
		}
		if centred {
			at := i * s.TopK
			if err := rl.CheckRecord(s.TopIDs[at:at+s.TopK], s.TopLogProbs[at:at+s.TopK], t.cfg.Vocab); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Trainer) checkRecordShape(s *engine.Sequence, obj rl.Objective) error {
	n := len(s.Tokens) * s.TopK
	if s.TopK != obj.TopK || len(s.TopIDs) != n || len(s.TopLogProbs) != n {
		return fault.New(fault.Invalid, "cpu.Update", "a record of width %d (%d ids, %d values) for %d tokens, the objective needs width %d",
			s.TopK, len(s.TopIDs), len(s.TopLogProbs), len(s.Tokens), obj.TopK)
	}
	if obj.Centering == rl.CenteringFull && s.TopK != t.cfg.Vocab {
		return fault.New(fault.Invalid, "cpu.Update", "full centering needs a record of the whole vocabulary (%d), got %d", t.cfg.Vocab, s.TopK)
	}
	return nil
}
