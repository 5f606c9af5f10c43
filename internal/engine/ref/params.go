package ref

import (
	"fmt"

	"github.com/steadyrl/steady/internal/model"
)

// params are the tensors of a model in float64, or the gradients of all of them.
type params struct {
	cfg    model.Config
	byName map[string][]float64
	layers []layer
	embed  []float64 // [V,C]
	norm   []float64 // [C]
	head   []float64 // [V,C]; the same slice as embed when they are tied
}

type layer struct {
	norm1, norm2   []float64 // [C]
	q, k, v, o     []float64 // [H D,C], [K D,C], [K D,C], [C,H D]
	qNorm, kNorm   []float64 // [D]
	gate, up, down []float64 // [F,C], [F,C], [C,F]
}

// newParams returns zeros for c.
func newParams(c model.Config) *params {
	p := &params{cfg: c, byName: map[string][]float64{}}
	for _, s := range c.Tensors() {
		p.byName[s.Name] = make([]float64, s.Size())
	}
	for l := range c.Layers {
		at := func(name string) []float64 { return p.byName[fmt.Sprintf("model.layers.%d.%s.weight", l, name)] }
		p.layers = append(p.layers, layer{
			norm1: at("input_layernorm"), norm2: at("post_attention_layernorm"),
			q: at("self_attn.q_proj"), k: at("self_attn.k_proj"), v: at("self_attn.v_proj"), o: at("self_attn.o_proj"),
			qNorm: at("self_attn.q_norm"), kNorm: at("self_attn.k_norm"),
			gate: at("mlp.gate_proj"), up: at("mlp.up_proj"), down: at("mlp.down_proj"),
		})
	}
	p.embed, p.norm, p.head = p.byName["model.embed_tokens.weight"], p.byName["model.norm.weight"], p.byName["lm_head.weight"]
	if c.TieEmbedding {
		p.head = p.embed
	}
	return p
}

// load returns w in float64, exactly.
func load(w *model.Weights) *params {
	p := newParams(w.Config)
	for i, s := range w.Specs {
		for j, x := range w.Data[i] {
			p.byName[s.Name][j] = float64(x)
		}
	}
	return p
}

// store returns p rounded to float32.
func (p *params) store() *model.Weights {
	w := model.NewWeights(p.cfg)
	for i, s := range w.Specs {
		for j, x := range p.byName[s.Name] {
			w.Data[i][j] = float32(x)
		}
	}
	return w
}
