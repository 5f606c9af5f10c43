package learner

import (
	"context"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/span"
	"github.com/steadyrl/steady/internal/weights"
)

// probeTokens is the length of the fixed prompt with which engines prove a version.
const probeTokens = 32

// publish writes the weights of the state held and then the result of the step.
func (h *Host) publish(ctx context.Context, step int, ref artifact.Ref, epoch int) (res record.Result, err error) {
	ctx, ended := span.Start(ctx, "write_version")
	defer func() { ended(err) }()
	if err := h.checkFence(ctx, h.layout, epoch); err != nil {
		return record.Result{}, err
	}
	how, err := h.keepComputed(ctx, step)
	if err != nil {
		return record.Result{}, err
	}
	info, err := h.writeVersion(ctx, step, epoch)
	if err != nil {
		return record.Result{}, err
	}
	state, err := h.stateDigest()
	if err != nil {
		return record.Result{}, err
	}
	res = record.Result{
		Step: step, BatchDigest: ref.Digest, StateDigest: state,
		WeightsDigest: info.Digest, Weights: info.File, Metrics: h.last.metrics, Trainer: h.opts.Name, Replayed: h.last.replayed,
		Plan: how.Plan, Choices: how.Choices,
	}
	if res.Previous, err = h.sealBefore(ctx, step); err != nil {
		return record.Result{}, err
	}
	if err := record.CheckFinite(res); err != nil {
		return record.Result{}, err
	}
	if err := h.checkFence(ctx, h.layout, epoch); err != nil {
		return record.Result{}, err
	}
	crashpoint.Here("trainer.result.before")
	if _, err := artifact.PutJSON(ctx, h.opts.Store, h.layout.Result(step), res); err != nil {
		return record.Result{}, err
	}
	crashpoint.Here("trainer.result.after")
	return res, nil
}

// sealBefore returns the seal of the result of the step before. A damaged one does not stop the training, which does not need its numbers: the
// new result then follows none, and an event says so.
func (h *Host) sealBefore(ctx context.Context, step int) (string, error) {
	_, seal, err := artifact.GetSealed(ctx, h.opts.Store, h.layout.Result(step-1), nil)
	switch {
	case fault.Is(err, fault.NotFound):
		return "", nil
	case fault.Is(err, fault.Corrupt):
		h.opts.Note(ctx, h.layout, record.Event{Kind: string(fault.Corrupt), Where: h.opts.Name, Step: step - 1, Message: err.Error()})
		return "", nil
	}
	return seal, err
}

// writeVersion writes the published weights of the state held, with the probe.
func (h *Host) writeVersion(ctx context.Context, version, epoch int) (record.Version, error) {
	w := h.trainer.Published()
	data, err := weights.Encode(w, weights.BF16)
	if err != nil {
		return record.Version{}, err
	}
	info := record.Version{Version: version, Digest: weights.Digest(w)}
	if info.ProbeTokens, info.ProbeLogProbs, err = h.runProbe(ctx, version, w); err != nil {
		return record.Version{}, err
	}
	if err := h.checkFence(ctx, h.layout, epoch); err != nil {
		return record.Version{}, err
	}
	crashpoint.Here("trainer.weights.before")
	if info.File, err = h.opts.Store.Put(ctx, h.layout.Weights(version), data); err != nil {
		return record.Version{}, err
	}
	crashpoint.Here("trainer.weights.after")
	if _, err = artifact.PutJSON(ctx, h.opts.Store, h.layout.WeightsInfo(version), info); err != nil {
		return record.Version{}, err
	}
	crashpoint.Here("trainer.version.after")
	return info, nil
}

// runProbe computes the log-probabilities of a fixed prompt: ids spread over the vocabulary.
func (h *Host) runProbe(ctx context.Context, version int, w *model.Weights) ([]int32, []float32, error) {
	if h.probe != nil && h.probes != w.Config { // the host went on to a run of another model
		_ = h.probe.Close() // nothing can be done about memory that does not go
		h.probe = nil
	}
	if h.probe == nil {
		p, err := h.opts.NewSampler(w.Config)
		if err != nil {
			return nil, nil, err
		}
		h.probe, h.probes = p, w.Config
	}
	tokens := make([]int32, min(probeTokens, w.Config.MaxPosition))
	for i := range tokens {
		tokens[i] = int32((i*7919 + 1) % w.Config.Vocab) //nolint:gosec // below the vocabulary
	}
	if err := h.probe.SetWeights(ctx, version, w); err != nil {
		return nil, nil, err
	}
	lp, err := h.probe.Score(ctx, tokens)
	return tokens, lp, err
}

// checkFence returns Stale if a newer epoch took the lineage, or another host the same one: two that acquire at the same
// time may open the same epoch, and the last to write the fence holds it.
func (h *Host) checkFence(ctx context.Context, l record.Layout, epoch int) error {
	var f record.Fence
	if _, err := artifact.GetJSON(ctx, h.opts.Store, l.Fence(), &f); err != nil {
		return err
	}
	if f.Epoch != epoch || f.Holder != h.opts.Name {
		return fault.New(fault.Stale, "learner.checkFence", "trainer epoch %d was fenced off by epoch %d of %s", epoch, f.Epoch, f.Holder)
	}
	return nil
}

// Acquire takes the lineage for this host and returns the new epoch; every earlier epoch is fenced off.
func (h *Host) Acquire(ctx context.Context, l record.Layout) (int, error) {
	var f record.Fence
	if _, err := artifact.GetJSON(ctx, h.opts.Store, l.Fence(), &f); err != nil && !fault.Is(err, fault.NotFound) {
		return 0, err
	}
	f = record.Fence{Epoch: f.Epoch + 1, Holder: h.opts.Name}
	crashpoint.Here("trainer.fence.before")
	if _, err := artifact.ReplaceJSON(ctx, h.opts.Store, l.Fence(), f); err != nil {
		return 0, err
	}
	crashpoint.Here("trainer.fence.after")
	h.setActive(l)
	return f.Epoch, nil
}
