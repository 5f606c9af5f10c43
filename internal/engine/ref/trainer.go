package ref

import (
	"context"
	"math"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/weights"
)

// Trainer implements engine.Trainer.
type Trainer struct {
	cfg   model.Config
	state engine.State
}

// NewTrainer returns a trainer whose master weights are a copy of initial, with zero moments. Errors: Invalid.
func NewTrainer(c model.Config, initial *model.Weights) (engine.Trainer, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	t := &Trainer{cfg: c}
	if initial == nil {
		initial = model.NewWeights(c)
	}
	if err := t.SetState(&engine.State{Master: initial}); err != nil {
		return nil, err
	}
	return t, nil
}

// Update implements engine.Trainer. A context is looked at once, before the work.
func (t *Trainer) Update(ctx context.Context, b engine.Batch) (engine.StepMetrics, error) {
	if err := ctx.Err(); err != nil {
		return engine.StepMetrics{}, err
	}
	g, m, err := gradient(load(t.Published()), &b)
	if err != nil {
		return engine.StepMetrics{}, err
	}
	if c := b.Optim.ClipNorm; c > 0 && m.GradNorm > c {
		m.ClipFactor = c / m.GradNorm
	}
	t.state.Steps++
	for i, s := range t.state.Master.Specs {
		adamW(t.state.Master.Data[i], t.state.M.Data[i], t.state.V.Data[i], g.byName[s.Name], m.ClipFactor, t.state.Steps, b.Optim)
	}
	return m, nil
}

// adamW takes step number `step` (from 1) for one tensor. Source: Loshchilov and Hutter 2019, algorithm 2, with the
// decay times the learning rate as PyTorch has it.
func adamW(p, m, v []float32, g []float64, clip float64, step int, o rl.AdamW) {
	c1, c2 := 1-math.Pow(o.Beta1, float64(step)), 1-math.Pow(o.Beta2, float64(step))
	for j := range p {
		gj := g[j] * clip
		m1 := o.Beta1*float64(m[j]) + (1-o.Beta1)*gj
		v1 := o.Beta2*float64(v[j]) + (1-o.Beta2)*gj*gj
		x := float64(p[j]) * (1 - o.LearningRate*o.WeightDecay)
		x -= o.LearningRate * (m1 / c1) / (math.Sqrt(v1/c2) + o.Epsilon)
		p[j], m[j], v[j] = float32(x), float32(m1), float32(v1)
	}
}

// Steps implements engine.Trainer.
func (t *Trainer) Steps() int { return t.state.Steps }

// Published implements engine.Trainer.
func (t *Trainer) Published() *model.Weights { return weights.Round(t.state.Master) }

// State implements engine.Trainer.
func (t *Trainer) State() *engine.State { return clone(&t.state) }

// SetState implements engine.Trainer.
func (t *Trainer) SetState(s *engine.State) error {
	if s == nil || s.Steps < 0 {
		return fault.New(fault.Invalid, "ref.SetState", "no state, or a negative step")
	}
	for i, w := range []*model.Weights{s.Master, s.M, s.V} {
		if i == 0 && w == nil || w != nil && w.Config != t.cfg {
			return fault.New(fault.Invalid, "ref.SetState", "the weights belong to another model configuration")
		}
	}
	t.state = *clone(s)
	return nil
}

// Close implements engine.Trainer.
func (t *Trainer) Close() error { return nil }

func clone(s *engine.State) *engine.State {
	m, v := s.Moments()
	return &engine.State{Master: s.Master.Clone(), M: m.Clone(), V: v.Clone(), Steps: s.Steps}
}
