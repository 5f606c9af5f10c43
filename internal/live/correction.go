package live

import (
	"context"
	"math"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/weights"
)

// maxWork is the largest number of parameters times tokens for which a page computes a correction: some seconds of one core.
const maxWork = 4e9

// corrections gives the Score-Centering term C of every sampled token of a trained trajectory, NaN elsewhere.
//
// Files hold the sampler's record of each token but not the trainer's probabilities, which C needs as well. Those are computed again,
// from the weights that were published at the step before: the same values as the trainer's forward pass, in float64. So it is
// exact but for the rounding of the trainer's engine, or it is not given.
//
// Errors: NotFound (the weights were removed, or the trajectory was not trained), Exhausted (too much work for a page), Invalid (trained
// without Score Centering), Corrupt.
func corrections(ctx context.Context, c *Cache, l record.Layout, it *item) ([]float64, error) {
	const op = "live.correction"
	switch {
	case it.sealed == nil || it.sample == nil:
		return nil, fault.New(fault.NotFound, op, "the trajectory was not trained, so it has no correction")
	case it.sealed.Objective.Centering == rl.CenteringOff || it.sealed.Objective.Centering == "":
		return nil, fault.New(fault.Invalid, op, "the step was trained without Score Centering, so there is no correction")
	}
	dir, err := c.Path(l.Base())
	if err != nil {
		return nil, err
	}
	conf, err := weights.LoadConfig(dir)
	if err != nil {
		return nil, err
	}
	params := 0.0
	for _, s := range conf.Tensors() {
		params += float64(s.Size())
	}
	if work := params * float64(it.t.Len()); work > maxWork {
		return nil, fault.New(fault.Exhausted, op, "the correction is not computed for a model of %.0f million parameters and %d tokens: it would take minutes on this machine",
			params/1e6, it.t.Len())
	}
	version := it.sealed.Step - 1
	info, err := read[record.Version](ctx, c, l.WeightsInfo(version))
	var data []byte
	if err == nil {
		data, err = artifact.Fetch(ctx, c, info.File)
	}
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.NotFound, op, "the weights of version %d are no longer kept, and without them the trainer's probabilities are not known", version)
	}
	if err != nil {
		return nil, err
	}
	w, err := weights.Decode(conf, data)
	if err != nil {
		return nil, err
	}
	rows, err := ref.Rows(w, sequence(it), it.sealed.Objective)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(rows))
	for i, r := range rows {
		out[i] = math.NaN()
		if it.t.Mask()[i] {
			out[i] = r.Correction
		}
	}
	return out, nil
}

func sequence(it *item) engine.Sequence {
	return it.t.Sequence(float32(it.sample.Advantage), it.sealed.Temperature)
}
