package learner

import (
	"context"
	"fmt"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// update applies b, the sealed batch of step. If recorded is not nil, it does so with the plan and the choices of that result, and with no other.
// Else the plan is the sealed one, with micro-batches divided that do not fit in memory; what is used is returned if it differs, for the result.
// What is used is written (record.Computed) before anything that comes of it: a trainer that takes over between the weights of a step and its result computes
// the same.
func (h *Host) update(ctx context.Context, step int, b engine.Batch, recorded *record.Result) (engine.StepMetrics, *engine.Plan, error) {
	if recorded == nil {
		var err error
		if recorded, err = h.computed(ctx, step); err != nil {
			return engine.StepMetrics{}, nil, err
		}
	}
	if err := h.bindChoices(ctx, step, recorded); err != nil {
		return engine.StepMetrics{}, nil, err
	}
	if recorded != nil {
		if recorded.Plan != nil {
			b.Plan = *recorded.Plan
		}
		m, err := h.trainer.Update(ctx, b)
		if fault.Is(err, fault.Exhausted) {
			err = fault.New(fault.Exhausted, "learner.update", "the replay of step %d needs as much memory as the update did: %w", step, err).
				WithHint("replay on a device with as much free memory")
		}
		return m, recorded.Plan, err
	}
	lengths := make([]int, len(b.Sequences))
	for i, s := range b.Sequences {
		lengths[i] = len(s.Tokens)
	}
	sealed := b.Plan
	if h.budget > 0 {
		b.Plan = sealed.Within(h.budget, lengths)
	}
	for {
		m, err := h.trainer.Update(ctx, b)
		largest := b.Plan.Divisible(lengths)
		switch {
		case !fault.Is(err, fault.Exhausted):
			if err != nil || len(b.Plan.MicroBatches) == len(sealed.MicroBatches) {
				return m, nil, err
			}
			return m, &b.Plan, nil
		case largest == 0:
			return m, nil, fault.New(fault.Exhausted, "learner.update", "no sequence of step %d can be divided: %w", step, err).
				WithHint("lower rollout.max_total, or train on a device with more memory; `steady plan` computes what fits")
		}
		h.budget = (largest + 1) / 2
		b.Plan = sealed.Within(h.budget, lengths)
		h.opts.Note(ctx, h.layout, record.Event{
			Kind: string(fault.Exhausted), Where: h.opts.Name, Step: step,
			Message: fmt.Sprintf("a micro-batch did not fit in memory; they have at most %d tokens from now on: %v", h.budget, err),
		})
	}
}

// computed returns how a step without a result was computed, as far as a result says it. It is nil if nothing of it was written.
func (h *Host) computed(ctx context.Context, step int) (*record.Result, error) {
	var c record.Computed
	_, err := artifact.GetJSON(ctx, h.opts.Store, h.layout.Computed(step), &c)
	if err == nil {
		return &record.Result{Plan: c.Plan, Choices: c.Choices}, nil
	}
	if !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	there, err := h.opts.Store.Exists(ctx, h.layout.Weights(step))
	if err != nil || !there {
		return nil, err
	}
	return &record.Result{}, nil // of the sealed plan, without choices
}

// keepComputed writes how the step held was computed, where the sealed batch does not say it all. Idempotence: by its content.
func (h *Host) keepComputed(ctx context.Context, step int) (record.Computed, error) {
	c := record.Computed{Plan: h.last.plan}
	var err error
	if c.Choices, err = h.keepChoices(ctx); err != nil || c.Plan == nil && c.Choices == nil {
		return c, err
	}
	_, err = artifact.PutJSON(ctx, h.opts.Store, h.layout.Computed(step), c)
	return c, err
}

// bindChoices gives the trainer the choices of the result that is to be made again, or else of the step before, if they differ from its own.
func (h *Host) bindChoices(ctx context.Context, step int, recorded *record.Result) error {
	c, ok := h.trainer.(engine.Chooser)
	if !ok {
		return nil
	}
	if recorded == nil {
		var err error
		if recorded, err = h.recorded(ctx, step-1); err != nil {
			return err
		}
	}
	if recorded == nil || recorded.Choices == nil || recorded.Choices.Digest == artifact.Digest(c.Choices()) {
		return nil
	}
	data, err := artifact.Fetch(ctx, h.opts.Store, *recorded.Choices)
	if err != nil {
		return err
	}
	return c.SetChoices(data)
}

// keepChoices stores the trainer's choices under their digest. Without any it returns nil.
func (h *Host) keepChoices(ctx context.Context) (*artifact.Ref, error) {
	c, ok := h.trainer.(engine.Chooser)
	if !ok {
		return nil, nil //nolint:nilnil // an engine without choices
	}
	data := c.Choices()
	if len(data) == 0 {
		return nil, nil //nolint:nilnil // none yet
	}
	ref, err := h.opts.Store.Put(ctx, h.layout.Choices(artifact.Digest(data)), data)
	if err != nil {
		return nil, err
	}
	return &ref, nil
}
