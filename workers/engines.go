package workers

import (
	"context"

	"github.com/steadyrl/steady/activities"
	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/engine/cpu/kernel"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/weights"
)

// Short names of what crosses the seams.
type (
	layout = record.Layout
	event  = record.Event
)

// factory makes engines of one backend.
type factory struct {
	about   string // backend, and what decides about its speed
	sampler func(model.Config) (engine.Sampler, error)
	// narrow makes a sampler of another precision than fp32; nil for an engine that has none.
	narrow  func(c model.Config, precision string) (engine.Sampler, error)
	trainer func(model.Config, *model.Weights) (engine.Trainer, error)
	// probe makes an engine that scores one short prompt at a time; nil for sampler.
	probe func(model.Config) (engine.Sampler, error)
	// most engines of a rollout host at once; 0 for the default.
	most int
	// fits refuses a run that the device has too little memory for; nil where memory is not planned.
	fits func(*config.Config, model.Config) error
	// tolerance of a version's probe, in nats; 0 for equal bits. On one kind of GPU and one set of libraries bits are equal, too.
	tolerance float64
	// watch returns when the device is lost, with an error of kind Lost, or when ctx ends, with nil; nil for a device that needs no watch.
	watch func(ctx context.Context) error
}

// prober makes the engine for probes and short forward passes.
func (f factory) prober(c model.Config) (engine.Sampler, error) {
	if f.probe != nil {
		return f.probe(c)
	}
	return f.sampler(c)
}

func engines(o Options) (factory, error) {
	switch o.Backend {
	case "cpu":
		opts := cpu.Options{Threads: o.Threads}
		return factory{
			about:   "cpu, kernels " + kernel.Best().String(),
			sampler: func(c model.Config) (engine.Sampler, error) { return cpu.NewSampler(c, opts) },
			trainer: func(c model.Config, w *model.Weights) (engine.Trainer, error) { return cpu.NewTrainer(c, w, opts) },
			narrow: func(c model.Config, precision string) (engine.Sampler, error) {
				o := opts
				o.Precision = cpu.Precision(precision)
				return cpu.NewSampler(c, o)
			},
		}, nil
	case "ref":
		return factory{about: "ref", sampler: ref.NewSampler, trainer: ref.NewTrainer}, nil
	case "cuda":
		return cudaEngines(o)
	}
	return factory{}, fault.New(fault.Invalid, "workers.engines", "unknown engine %q", o.Backend).WithHint("engines are cpu, ref and cuda")
}

// Trainers returns what makes trainers of o's engine; of o it reads Backend, Threads and GPU. Errors: Invalid, NotFound (no GPU), Infrastructure.
func Trainers(o Options) (func(model.Config, *model.Weights) (engine.Trainer, error), error) {
	f, err := engines(o)
	return f.trainer, err
}

// Samplers is Trainers for samplers; of o it reads MaxSequences too.
func Samplers(o Options) (func(model.Config) (engine.Sampler, error), error) {
	f, err := engines(o)
	return f.sampler, err
}

// source loads policy versions for engines.
type source struct {
	store artifact.Store
	runs  *activities.Runs
	factory
}

// precision is that of the samplers of a lineage: as configured for published versions, fp32 for the export.
func (s source) precision(ctx context.Context, l layout, from string) (string, error) {
	if from != "published" {
		return fp32, nil
	}
	run, err := s.runs.Of(ctx, contract.RunKey(l))
	if err != nil {
		return "", err
	}
	return run.Config.Rollout.Precision, nil
}

const fp32 = "fp32"

// Published implements policy.Source.
func (s source) Published(ctx context.Context, l layout, version int) (record.Version, *model.Weights, error) {
	var info record.Version
	if _, err := artifact.GetJSON(ctx, s.store, l.WeightsInfo(version), &info); err != nil {
		return info, nil, err
	}
	file, err := s.store.OpenAt(ctx, info.File.Name)
	if err != nil {
		return info, nil, err
	}
	defer file.Close() //nolint:errcheck // was only read
	dir, err := s.store.Pull(ctx, l.Base())
	if err != nil {
		return info, nil, err
	}
	c, err := weights.LoadConfig(dir)
	if err != nil {
		return info, nil, err
	}
	w, got, err := weights.ReadWeights(c, file, file.Size())
	if err != nil {
		return info, nil, err
	}
	if got != info.Digest { // it tells any other weight; the file's own digest would be a second reading of gigabytes
		return info, nil, fault.New(fault.Corrupt, "workers.source", "version %d has digest %.12s, recorded was %.12s", version, got, info.Digest)
	}
	if p, err := s.precision(ctx, l, "published"); err != nil {
		return info, nil, err
	} else if p != fp32 { // the publisher's log-probabilities are those of another arithmetic; the digest has proved the weights
		info.ProbeTokens, info.ProbeLogProbs = nil, nil
	}
	return info, w, nil
}

// Exported implements policy.Source.
func (s source) Exported(ctx context.Context, l layout) (*model.Weights, error) {
	dir, err := s.store.Pull(ctx, l.Export())
	if err != nil {
		return nil, err
	}
	return weights.LoadDir(dir)
}

// NewSampler implements policy.Source. Errors: Invalid (the engine lacks the precision), and those of the engine.
func (s source) NewSampler(ctx context.Context, l layout, from string, c model.Config) (engine.Sampler, error) {
	p, err := s.precision(ctx, l, from)
	switch {
	case err != nil:
		return nil, err
	case p == fp32:
		return s.sampler(c)
	case s.narrow == nil:
		return nil, fault.New(fault.Invalid, "workers.source", "run %s wants a sampler of precision %s (rollout.precision), and the engine %s has none", l.Run, p, s.about).
			WithHint("set rollout.precision to fp32, or engine.backend to cpu")
	}
	return s.narrow(c, p)
}
