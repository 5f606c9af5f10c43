package batch

import (
	"context"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/trajectory"
)

// Options of a seal.
type Options struct {
	Layout           record.Layout
	Step             int
	Groups           []GroupUnit
	Objective        rl.Objective
	Optim            rl.AdamW
	Temperature      float64
	MicroBatchTokens int     // most tokens of a micro-batch; a longer trajectory is one of its own
	WaitSeconds      float64 // how long the trainer waited
	Drops            int     // groups dropped since the step before
}

// GroupUnit is a group with the unit that holds it.
type GroupUnit struct {
	record.Group
	Unit string
}

// Seal reads the units of a step and returns the sealed batch: groups in the given order, advantages, micro-batch
// plan, metrics. It writes nothing.
//
// Determinism: a function of the units and the options. Errors: NotFound or Corrupt (a unit), Invalid (objective).
func Seal(ctx context.Context, s artifact.Store, o Options) (record.Sealed, error) {
	if err := o.Objective.Check(); err != nil {
		return record.Sealed{}, err
	}
	out := record.Sealed{Step: o.Step, Objective: o.Objective, Optim: o.Optim, Temperature: o.Temperature}
	var units []Unit
	for _, g := range o.Groups {
		u, err := LoadUnit(ctx, s, o.Layout, g.Unit)
		if err != nil {
			return record.Sealed{}, err
		}
		if len(u.Trajectories) == 0 {
			return record.Sealed{}, fault.New(fault.Corrupt, "batch.Seal", "unit %s is empty", g.Unit)
		}
		units = append(units, u)
		g.Group.ProblemID, g.Group.File, g.Group.Verdicts = u.Trajectories[0].ProblemID, u.Verdicts.File, u.Ref
		out.Groups = append(out.Groups, g.Group)
		out.Samples = append(out.Samples, samples(g.N, u)...)
	}
	out.Plan = plan(out.Samples, o.MicroBatchTokens)
	out.Rollout = metrics(o, units)
	return out, record.CheckFinite(out)
}

// samples lists a group's trajectories with their advantages.
func samples(group int, u Unit) []record.Sample {
	var rewards []float64
	for _, v := range u.Verdicts.Items {
		rewards = append(rewards, v.Reward)
	}
	advantages := rl.GroupAdvantages(rewards)
	var out []record.Sample
	for i, t := range u.Trajectories {
		lo, hi, _ := t.VersionRange()
		out = append(out, record.Sample{
			Group: group, Index: i, Reward: rewards[i], Advantage: advantages[i],
			Tokens: t.Len(), Sampled: t.Sampled(), MinVersion: lo, MaxVersion: hi,
		})
	}
	return out
}

// plan fills micro-batches in order up to the budget of tokens.
func plan(samples []record.Sample, budget int) engine.Plan {
	var p engine.Plan
	size := 0
	for i, s := range samples {
		if n := len(p.MicroBatches); n == 0 || size+s.Tokens > budget {
			p.MicroBatches, size = append(p.MicroBatches, nil), 0
		}
		last := len(p.MicroBatches) - 1
		p.MicroBatches[last] = append(p.MicroBatches[last], i)
		size += s.Tokens
	}
	return p
}

// Load reads the trajectories of a sealed batch and returns the engine's batch, in the sealed order. Errors:
// NotFound, Corrupt.
func Load(ctx context.Context, s artifact.Store, b record.Sealed) (engine.Batch, error) {
	out := engine.Batch{Objective: b.Objective, Optim: b.Optim, Plan: b.Plan}
	files := map[int][]*trajectory.Trajectory{}
	for _, g := range b.Groups {
		ts, err := ReadTrajectories(ctx, s, g.File)
		if err != nil {
			return engine.Batch{}, err
		}
		files[g.N] = ts
	}
	for _, m := range b.Samples {
		ts := files[m.Group]
		if m.Index < 0 || m.Index >= len(ts) || ts[m.Index].Len() != m.Tokens {
			return engine.Batch{}, fault.New(fault.Corrupt, "batch.Load", "group %d has no trajectory %d of %d tokens", m.Group, m.Index, m.Tokens)
		}
		out.Sequences = append(out.Sequences, ts[m.Index].Sequence(float32(m.Advantage), b.Temperature))
	}
	return out, nil
}
