package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/weights"
	"github.com/steadyrl/steady/workers"
)

type benchStepCmd struct {
	Model   string `required:"" type:"path" placeholder:"DIR" help:"Model directory in Hugging Face layout; config.json and the weights are read."`
	Batch   string `required:"" type:"path" placeholder:"FILE" help:"The batch, JSON; the text above has the form."`
	Out     string `required:"" type:"path" placeholder:"DIR" help:"Directory to make, for results.json and the state after the step."`
	Engine  string `help:"Engine: cpu, ref, or cuda (in steady-cuda)." default:"cpu" enum:"cpu,ref,cuda"`
	Device  string `help:"GPU of the engine cuda: its number or UUID; default: the first." placeholder:"GPU"`
	Threads int    `help:"Threads; 0 for all cores. Results do not depend on it."`
	Top     int    `help:"How many of the most probable next tokens of each sequence are written with their log-probabilities." default:"1024"`
}

// stepBatch is the batch as a file.
type stepBatch struct {
	Sequences []stepSequence `json:"sequences"`
	Objective rl.Objective   `json:"objective"`
	Optim     rl.AdamW       `json:"optim"`
	Plan      engine.Plan    `json:"plan"`
}

type stepSequence struct {
	Tokens      []int32   `json:"tokens"`
	Mask        []bool    `json:"mask"`
	LogProbs    []float32 `json:"log_probs"`
	TopIDs      []int32   `json:"top_ids"`
	TopLogProbs []float32 `json:"top_log_probs"`
	TopK        int       `json:"top_k"`
	Advantage   float32   `json:"advantage"`
	Temperature float64   `json:"temperature"`
}

// stepResults is results.json.
type stepResults struct {
	Engine    string               `json:"engine"`
	Sequences []stepScores         `json:"sequences"`
	Metrics   record.UpdateMetrics `json:"metrics"` // null: not defined for the batch
	Tokens    int                  `json:"tokens"`  // trained
	State     string               `json:"state_digest"`
	Weights   string               `json:"weights_digest"`
}

// stepScores are those of a sequence before the step.
type stepScores struct {
	LogProbs     []float32 `json:"log_probs"`      // of tokens[1:], by the sampler
	NextIDs      []int32   `json:"next_ids"`       // the most probable tokens after the sequence
	NextLogProbs []float32 `json:"next_log_probs"` // normalised over the whole vocabulary
}

// Run computes, writes and prints a summary.
func (c *benchStepCmd) Run(ctx context.Context, s *streams) error {
	if err := errors.Join(checkEngine(c.Engine), checkWithin("--threads", c.Threads, 0, config.MostThreads), checkAtLeast("--top", c.Top, 1), checkDir("--out", c.Out)); err != nil {
		return err
	}
	b, err := readStepBatch(c.Batch)
	if err != nil {
		return err
	}
	w, err := weights.LoadDir(c.Model)
	if err != nil {
		return err
	}
	if _, err := b.Check(w.Config); err != nil {
		return fault.New(fault.Invalid, "", "--batch %s: %w", c.Batch, err).WithHint("correct the batch")
	}
	o := workers.Options{Backend: c.Engine, Threads: c.Threads, MaxSequences: len(b.Sequences), GPU: workers.GPU{Device: c.Device, KernelDir: kernelDir()}}
	r := stepResults{Engine: c.Engine}
	if r.Sequences, err = c.scores(ctx, o, w, b); err != nil {
		return err
	}
	if err := c.step(ctx, o, w, b, &r); err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(c.Out, "results.json"), func(out io.Writer) error { return json.NewEncoder(out).Encode(r) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "%d trained tokens in %d sequences, loss %.6g, gradient norm %.6g\nstate   %s\nweights %s\n",
		r.Tokens, len(b.Sequences), *r.Metrics.Loss, *r.Metrics.GradNorm, r.State, r.Weights) // an update refuses others than finite ones
	return err
}

func readStepBatch(name string) (engine.Batch, error) {
	f, err := openInput(name)
	if err != nil {
		return engine.Batch{}, fault.New(fault.Invalid, "", "--batch: %w", err).WithHint("give a JSON file; `steady bench step --help` has its form")
	}
	defer f.Close() //nolint:errcheck // only read
	var in stepBatch
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	err = d.Decode(&in)
	if _, more := d.Token(); err == nil && more != io.EOF {
		err = errors.New("something follows the object")
	}
	if err != nil {
		return engine.Batch{}, fault.New(fault.Invalid, "", "--batch %s: %w", name, err).WithHint("`steady bench step --help` has the form")
	}
	b := engine.Batch{Objective: in.Objective, Optim: in.Optim, Plan: in.Plan}
	for _, s := range in.Sequences {
		b.Sequences = append(b.Sequences, engine.Sequence(s))
	}
	return b, nil
}

// scores asks a sampler about every sequence.
func (c *benchStepCmd) scores(ctx context.Context, o workers.Options, w *model.Weights, b engine.Batch) ([]stepScores, error) {
	newSampler, err := workers.Samplers(o)
	if err != nil {
		return nil, err
	}
	sampler, err := newSampler(w.Config)
	if err != nil {
		return nil, err
	}
	defer sampler.Close() //nolint:errcheck // its results are there
	if err := sampler.SetWeights(ctx, 0, w); err != nil {
		return nil, err
	}
	var out []stepScores
	for i, seq := range b.Sequences {
		var one stepScores
		if one.LogProbs, err = sampler.Score(ctx, seq.Tokens); err != nil {
			return nil, err
		}
		_, err := sampler.Generate(ctx, engine.Request{
			Tokens: seq.Tokens, MaxNew: 1, Random: rng.New(1, rng.Corpus, i), Sampling: engine.Sampling{Temperature: 1, TopK: min(c.Top, w.Config.Vocab)},
		}, func(t engine.Token) error {
			one.NextIDs, one.NextLogProbs = slices.Clone(t.TopIDs), slices.Clone(t.TopLogProbs)
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// step takes the step with a new trainer and writes its state.
func (c *benchStepCmd) step(ctx context.Context, o workers.Options, w *model.Weights, b engine.Batch, r *stepResults) error {
	newTrainer, err := workers.Trainers(o)
	if err != nil {
		return err
	}
	trainer, err := newTrainer(w.Config, w)
	if err != nil {
		return err
	}
	defer trainer.Close() //nolint:errcheck // its results are there
	began := time.Now()
	m, err := trainer.Update(ctx, b)
	if err != nil {
		return err
	}
	r.Tokens, r.Metrics = m.Tokens, learner.UpdateMetrics(b, m, time.Since(began))
	published := trainer.Published()
	if published == nil {
		return fault.New(fault.Lost, "steady bench step", "the trainer has no weights any more")
	}
	r.Weights = weights.Digest(published)
	meta, err := checkpoint.Save(ctx, filepath.Join(c.Out, "state"), engine.ReaderOf(trainer), checkpoint.Meta{Step: 1, Updates: trainer.Steps(), Config: w.Config})
	r.State = meta.State
	return err
}
