package live

import (
	"context"
	"math"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/weights"
)

// maxWork is the largest number of parameters times tokens for which a page computes a correction: some seconds of one core.
const maxWork = 2e10

// pageTokens is how many tokens the engine computes again, at most, because it caches whole pages only.
const pageTokens = 32

// corrections gives the Score-Centering term C of every sampled token of a trained trajectory, NaN elsewhere.
//
// Files hold the sampler's record of each token but not the trainer's probabilities, which C needs as well. Those are computed again by
// the engine cpu from the weights that were published at the step before, which are the weights of the trainer's forward pass. For
// a run of that engine these are the trainer's own numbers; for another they differ from them by its rounding.
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
	dir, err := c.Pull(ctx, l.Base())
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
	if work := params * float64(it.t.Len()+pageTokens*it.t.Sampled()); work > maxWork {
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
	return recompute(ctx, w, it)
}

// recompute is corrections once the weights are there.
func recompute(ctx context.Context, w *model.Weights, it *item) ([]float64, error) {
	seq := it.t.Sequence(float32(it.sample.Advantage), it.sealed.Temperature)
	check := engine.Batch{Sequences: []engine.Sequence{seq}, Objective: it.sealed.Objective, Optim: rl.DefaultAdamW(), Plan: engine.Plan{MicroBatches: [][]int{{0}}}}
	if _, err := check.Check(w.Config); err != nil {
		return nil, err
	}
	sampler, err := cpu.NewSampler(w.Config, cpu.Options{Threads: 1}) // a page is no reason to slow a run down
	if err != nil {
		return nil, err
	}
	defer sampler.Close() //nolint:errcheck // nothing runs any more
	if err := sampler.SetWeights(ctx, it.sealed.Step-1, w); err != nil {
		return nil, err
	}
	out := make([]float64, len(seq.Tokens))
	for i := range out {
		out[i] = math.NaN()
		if !seq.Mask[i] {
			continue
		}
		// What the engine would draw next does not matter: its record of the whole vocabulary does.
		req := engine.Request{Tokens: seq.Tokens[:i], MaxNew: 1, Sampling: engine.Sampling{Temperature: seq.Temperature, TopK: w.Config.Vocab}}
		if _, err := sampler.Generate(ctx, req, func(t engine.Token) error {
			out[i] = correctionOf(seq, it.sealed.Objective, i, t)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// correctionOf is the term of token i, where t has the log-probabilities of the whole vocabulary.
func correctionOf(seq engine.Sequence, o rl.Objective, i int, t engine.Token) float64 {
	k := seq.TopK
	head := seq.TopIDs[i*k : (i+1)*k]
	at := make(map[int32]int, k)
	for j, id := range head {
		at[id] = j
	}
	tok := rl.Token{Advantage: float64(seq.Advantage), LogQ: float64(seq.LogProbs[i]), HeadLogQ: seq.TopLogProbs[i*k : (i+1)*k], HeadLogP: make([]float32, k)}
	for j, id := range t.TopIDs {
		lp := t.TopLogProbs[j]
		if id == seq.Tokens[i] {
			tok.LogP = float64(lp)
		}
		if n, ok := at[id]; ok {
			tok.HeadLogP[n] = lp
		} else {
			tok.Tail += math.Exp(float64(lp))
		}
	}
	return o.Row(tok, make([]float64, k)).Correction
}
