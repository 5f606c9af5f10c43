package activities

import (
	"context"
	"path"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/durable"
	"github.com/steadyrl/steady/internal/learner"
)

// retain removes what nobody can need once a checkpoint of the step is verified: weight versions that no group in
// flight may ask for, and older checkpoints beyond the number that the configuration keeps. Sealed batches, results,
// ledgers, validations and trajectories stay, with their top-k records: every step can be replayed.
//
// Idempotence: what is gone is gone. Nothing is removed unless the checkpoint of the step verifies.
func (c *Control) retain(ctx context.Context, q contract.RetentionRequest, _ *Beat) (contract.Done, error) {
	run, err := c.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.Done{}, err
	}
	// Read from the store itself, and not from a copy: the older ones go because this one is there.
	_, err = checkpoint.VerifyFrom(ctx, run.Layout.Checkpoint(q.Step), func(file string) (checkpoint.File, error) {
		return c.store().OpenAt(ctx, path.Join(run.Layout.Checkpoint(q.Step), file))
	})
	if err != nil {
		return contract.Done{}, err
	}
	if err := c.retainWeights(ctx, run, q); err != nil {
		return contract.Done{}, err
	}
	return contract.Done{}, c.retainCheckpoints(ctx, run, q.Step)
}

// retainWeights keeps the versions that a group of the threshold, a validation in flight or an export may ask for.
func (c *Control) retainWeights(ctx context.Context, run *Run, q contract.RetentionRequest) error {
	dir, err := c.store().Path(path.Dir(run.Layout.Weights(0)))
	if err != nil {
		return err
	}
	durable.Sweep(dir) // a trainer that was killed while it published leaves gigabytes
	names, err := c.store().List(ctx, strings.TrimSuffix(run.Layout.Weights(0), "000000.safetensors"))
	if err != nil {
		return err
	}
	for _, name := range names {
		base := name[strings.LastIndexByte(name, '/')+1:]
		version, err := strconv.Atoi(strings.TrimSuffix(base, ".safetensors"))
		if err == nil && version <= q.Step-(q.Threshold+2) {
			if err := c.store().Remove(ctx, name); err != nil {
				return err
			}
			crashpoint.Here("control.retention.weights")
		}
	}
	return nil
}

// retainCheckpoints keeps the newest ones, the milestones, and those that other lineages of the run began with.
func (c *Control) retainCheckpoints(ctx context.Context, run *Run, step int) error {
	steps, err := learner.Checkpoints(ctx, c.store(), run.Layout)
	if err != nil {
		return err
	}
	began, err := branches(ctx, c.store(), run.Layout)
	if err != nil {
		return err
	}
	keep := run.Config.Retention.Checkpoints
	milestone := run.Config.Retention.MilestoneEvery
	newer := 0
	for i := len(steps) - 1; i >= 0; i-- {
		s := steps[i]
		if s > step {
			continue
		}
		newer++
		if newer <= keep || milestone > 0 && s%milestone == 0 || began[s] {
			continue
		}
		if err := c.store().Remove(ctx, run.Layout.Checkpoint(s)); err != nil {
			return err
		}
		crashpoint.Here("control.retention.checkpoint")
	}
	return nil
}
