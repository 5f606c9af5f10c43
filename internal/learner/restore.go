package learner

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/span"
	"github.com/steadyrl/steady/internal/weights"
)

// reach brings the trainer to the state after step: from where it stands if that is not later, else from the
// newest good checkpoint, by replaying sealed batches.
func (h *Host) reach(ctx context.Context, step int) (restored bool, replayed int, err error) {
	if h.trainer == nil || h.step > step {
		if err := h.restore(ctx, step); err != nil {
			return false, 0, err
		}
		restored = true
	}
	for h.step < step {
		if _, err := h.replay(ctx, h.step+1); err != nil {
			return restored, replayed, err
		}
		replayed++
	}
	if replayed > 0 {
		h.opts.Note(ctx, h.layout, record.Event{
			Kind: "replayed", Where: h.opts.Name, Step: step,
			Message: fmt.Sprintf("%d sealed batches replayed, no token generated again", replayed),
		})
	}
	return restored, replayed, nil
}

// replay trains the sealed batch of step again. It reports whether the state is the recorded one; without a record it is.
func (h *Host) replay(ctx context.Context, step int) (equal bool, err error) {
	recorded, err := h.recorded(ctx, step)
	if err != nil {
		return false, err
	}
	_, ref, err := h.opts.Store.Get(ctx, h.layout.Batch(step))
	if err != nil {
		return false, err
	}
	if recorded != nil && recorded.BatchDigest != ref.Digest {
		return false, fault.New(fault.Corrupt, "learner.replay", "sealed batch %s has digest %.12s, trained was %.12s", ref.Name, ref.Digest, recorded.BatchDigest)
	}
	if err := h.train(ctx, step, ref, recorded); err != nil {
		return false, err
	}
	if recorded != nil {
		return h.compare(ctx, *recorded)
	}
	return true, nil
}

// restore loads the newest checkpoint of at most step that verifies. One that does not is reported, renamed out of the way,
// and an older one is taken; after the oldest, the state that the lineage began with.
func (h *Host) restore(ctx context.Context, step int) (err error) {
	ctx, ended := span.Start(ctx, "restore", span.Attr{Key: "step", Value: step})
	defer func() { ended(err) }()
	h.forget()
	steps, err := Checkpoints(ctx, h.opts.Store, h.layout)
	if err != nil {
		return err
	}
	for _, s := range slices.Backward(steps) {
		if s > step {
			continue
		}
		err := h.load(ctx, s)
		if err == nil {
			return nil
		}
		if k := fault.KindOf(err); k != fault.Corrupt && k != fault.NotFound {
			return err
		}
		h.opts.Note(ctx, h.layout, record.Event{
			Kind: string(fault.Corrupt), Where: h.opts.Name, Step: s,
			Message: fmt.Sprintf("checkpoint %d does not verify, an older one is taken: %v", s, err),
		})
		crashpoint.Here("trainer.aside.before")
		if err := h.opts.Store.Aside(ctx, h.layout.Checkpoint(s)); err != nil { // one that was set aside before goes
			return err
		}
		crashpoint.Here("trainer.aside.after")
	}
	return h.rebuild(ctx, step)
}

// rebuild makes the lineage's first checkpoint again from what the lineage began with.
func (h *Host) rebuild(ctx context.Context, step int) error {
	first, err := h.begin(ctx, step)
	if err != nil {
		return err
	}
	h.opts.Note(ctx, h.layout, record.Event{
		Kind: "rebuilt", Where: h.opts.Name, Step: first,
		Message: fmt.Sprintf("no good checkpoint was left; that of step %d is made again from what the run began with", first),
	})
	_, err = h.save(ctx, first)
	return err
}

// begin installs what the lineage began with, if that gives the weights that were published then, and returns its step.
func (h *Host) begin(ctx context.Context, step int) (int, error) {
	const op = "learner.restore"
	const hint = "put back the model that the run began with, or start a new run"
	first, state, err := h.opts.Initial(ctx, h.layout)
	if err != nil {
		return 0, fault.New(fault.NotFound, op, "no good checkpoint of step %d or before in %s, and what the run began with cannot be had: %w", step, h.layout.Checkpoints(), err).
			WithHint(hint)
	}
	if first > step {
		return 0, fault.New(fault.NotFound, op, "step %d is before the first step of %s, %d", step, h.layout.Root(), first)
	}
	var published record.Version
	if _, err := artifact.GetJSON(ctx, h.opts.Store, h.layout.WeightsInfo(first), &published); err != nil {
		return 0, err
	}
	if got := weights.Digest(state.Master); got != published.Digest {
		return 0, fault.New(fault.NotFound, op,
			"no good checkpoint of step %d or before in %s, and the model has changed since: its weights are %.12s, the run began with %.12s",
			step, h.layout.Checkpoints(), got, published.Digest).WithHint(hint)
	}
	return first, h.install(first, state)
}

// load installs the checkpoint of a step.
func (h *Host) load(ctx context.Context, step int) error {
	path, err := h.opts.Store.Pull(ctx, h.layout.Checkpoint(step))
	if err != nil {
		return err
	}
	meta, err := checkpoint.Describe(path)
	if err != nil {
		return err
	}
	if meta.Step != step {
		return fault.New(fault.Corrupt, "learner.restore", "%s holds step %d", path, meta.Step)
	}
	t, err := h.opts.NewTrainer(meta.Config, nil)
	if err != nil {
		return err
	}
	err = engine.LoadState(t, meta.Config, meta.Updates, func(put engine.PutState) error { return checkpoint.Read(ctx, path, meta, put) })
	if err != nil {
		_ = t.Close() // the first error counts
		return err
	}
	h.hold(t, meta.Config, step)
	return nil
}

func (h *Host) install(step int, state *engine.State) error {
	t, err := h.opts.NewTrainer(state.Master.Config, state.Master)
	if err != nil {
		return err
	}
	if state.M != nil || state.V != nil || state.Steps > 0 { // more than a new trainer has
		if err := t.SetState(state); err != nil {
			_ = t.Close()
			return err
		}
	}
	h.hold(t, state.Master.Config, step)
	return nil
}

// hold takes a trainer whose state is that after a step.
func (h *Host) hold(t engine.Trainer, c model.Config, step int) {
	h.trainer, h.config, h.step, h.last = t, c, step, last{}
	h.setHeld(h.layout)
}

// Init writes the first checkpoint of a lineage and publishes its version. Idempotence: a version that is
// published already is returned as it is. Errors: Invalid (the lineage begins with another step), and those of Initial
// and of the store.
func (h *Host) Init(ctx context.Context, l record.Layout, step int) (record.Version, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var info record.Version
	if _, err := artifact.GetJSON(ctx, h.opts.Store, l.WeightsInfo(step), &info); err == nil {
		return info, nil
	} else if !fault.Is(err, fault.NotFound) {
		return record.Version{}, err
	}
	first, state, err := h.opts.Initial(ctx, l)
	if err != nil {
		return record.Version{}, err
	}
	if first != step {
		return record.Version{}, fault.New(fault.Invalid, "learner.Init", "%s begins with step %d, asked for is %d", l.Root(), first, step)
	}
	epoch, err := h.Acquire(ctx, l)
	if err != nil {
		return record.Version{}, err
	}
	h.forget()
	h.layout, h.told, h.budget = l, nil, 0
	if err := h.install(step, state); err != nil {
		return record.Version{}, err
	}
	if _, err := h.save(ctx, step); err != nil {
		return record.Version{}, err
	}
	return h.writeVersion(ctx, step, epoch)
}

// Save writes the checkpoint of step and verifies it. Idempotence: by step and digest.
func (h *Host) Save(ctx context.Context, l record.Layout, step, epoch int) (digest string, replayed int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkFence(ctx, l, epoch); err != nil {
		return "", 0, err
	}
	h.lead(l)
	if _, replayed, err = h.reach(ctx, step); err != nil {
		return "", 0, err
	}
	ctx, ended := span.Start(ctx, "write_checkpoint", span.Attr{Key: "step", Value: step})
	digest, err = h.save(ctx, step)
	ended(err)
	return digest, replayed, err
}

// Mend makes the checkpoint of step again if it does not verify, by replay from an older one, and reports whether it had to.
// It opens a new epoch then, so that a trainer that still works on the lineage is fenced off; it is for a lineage whose
// training has ended. Idempotence: a checkpoint that verifies stays, and no epoch is opened.
func (h *Host) Mend(ctx context.Context, l record.Layout, step int) (bool, error) {
	if err := h.verify(ctx, l, step); err == nil {
		return false, nil
	} else if k := fault.KindOf(err); k != fault.Corrupt && k != fault.NotFound {
		return false, err
	}
	epoch, err := h.Acquire(ctx, l)
	if err != nil {
		return false, err
	}
	h.mu.Lock()
	h.forget() // restore has to look at what is on disk, and report it
	h.mu.Unlock()
	_, _, err = h.Save(ctx, l, step, epoch)
	return true, err
}

// verify reads the checkpoint of a step as a whole.
func (h *Host) verify(ctx context.Context, l record.Layout, step int) error {
	dir, err := h.opts.Store.Pull(ctx, l.Checkpoint(step))
	if err != nil {
		return err
	}
	_, err = checkpoint.Verify(ctx, dir)
	return err
}

// save writes the state held as the checkpoint of step, reads it again, and returns the state's digest.
func (h *Host) save(ctx context.Context, step int) (string, error) {
	var meta checkpoint.Meta
	err := h.opts.Store.Build(ctx, h.layout.Checkpoint(step), func(dir string) error {
		mine := checkpoint.Meta{Step: step, Updates: h.trainer.Steps(), Config: h.config}
		if _, err := checkpoint.Save(ctx, dir, engine.ReaderOf(h.trainer), mine); err != nil {
			return err
		}
		var err error
		meta, err = checkpoint.Verify(ctx, dir)
		return err
	})
	if err != nil {
		return "", err
	}
	crashpoint.Here("trainer.checkpoint.verified")
	return meta.State, nil
}

// stateDigest is that of the state held.
func (h *Host) stateDigest() (string, error) {
	return weights.ReadStateDigest(h.config, engine.ReaderOf(h.trainer), h.trainer.Steps())
}

// Checkpoints returns the steps of a lineage that have a checkpoint, ascending.
func Checkpoints(ctx context.Context, store artifact.Store, l record.Layout) ([]int, error) {
	names, err := store.Dirs(ctx, l.Checkpoints())
	if err != nil {
		return nil, err
	}
	var steps []int
	for _, name := range names { // they are sorted, and have six digits
		if s, err := strconv.Atoi(name); err == nil && len(name) == 6 {
			steps = append(steps, s)
		}
	}
	return steps, nil
}
