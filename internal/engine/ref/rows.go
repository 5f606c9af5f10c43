package ref

import (
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
)

// Rows returns what the objective o makes of every token of s at exactly the weights w, by position; the zero Row where the mask
// is false. The heads of the rows are dropped. With the published weights of the step before, these are the terms whose mean the
// update of a step records, but for the rounding of a float32 engine. The work is about twice the number of parameters
// for each token, on one core. Errors: Invalid (shapes, a record that cannot be).
func Rows(w *model.Weights, s engine.Sequence, o rl.Objective) ([]rl.Row, error) {
	b := engine.Batch{
		Sequences: []engine.Sequence{s}, Objective: o, Optim: rl.DefaultAdamW(), Plan: engine.Plan{MicroBatches: [][]int{{0}}},
	}
	if _, err := b.Check(w.Config); err != nil {
		return nil, err
	}
	p := load(w)
	tr := p.forward(s.Tokens)
	rows := make([]rl.Row, len(s.Tokens))
	for at, trained := range s.Mask {
		if !trained {
			continue
		}
		_, st := tokenGradient(p.logits(tr, at-1), &s, at, o)
		rows[at] = st.row
		rows[at].Head = nil
	}
	return rows, nil
}
