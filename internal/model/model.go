// Package model describes Qwen3-architecture models: configuration, tensor names and shapes, and a set
// of tensors in memory. It computes nothing; engines do.
package model

import (
	"fmt"
	"slices"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rng"
)

// Config is the part of a Hugging Face config.json that an engine needs.
type Config struct {
	Vocab        int     `json:"vocab_size"`
	Hidden       int     `json:"hidden_size"`
	Layers       int     `json:"num_hidden_layers"`
	Heads        int     `json:"num_attention_heads"`
	KVHeads      int     `json:"num_key_value_heads"`
	HeadDim      int     `json:"head_dim"`
	Intermediate int     `json:"intermediate_size"`
	MaxPosition  int     `json:"max_position_embeddings"`
	RMSEps       float64 `json:"rms_norm_eps"`
	RopeTheta    float64 `json:"rope_theta"`
	TieEmbedding bool    `json:"tie_word_embeddings"`
}

// Check reports every rule that c breaks, as one error of kind Invalid.
func (c Config) Check() error {
	var bad []string
	for _, f := range []struct {
		name string
		v    int
		most int // far above any model's: what is larger is damage, and must not become a list of tensors
	}{
		{"vocab_size", c.Vocab, 1 << 24},
		{"hidden_size", c.Hidden, 1 << 17},
		{"num_hidden_layers", c.Layers, 1 << 11},
		{"num_attention_heads", c.Heads, 1 << 12},
		{"num_key_value_heads", c.KVHeads, 1 << 12},
		{"head_dim", c.HeadDim, 1 << 12},
		{"intermediate_size", c.Intermediate, 1 << 20},
		{"max_position_embeddings", c.MaxPosition, 1 << 30},
	} {
		if f.v <= 0 || f.v > f.most {
			bad = append(bad, fmt.Sprintf("%s must be > 0 and at most %d, got %d", f.name, f.most, f.v))
		}
	}
	if c.KVHeads > 0 && c.Heads%c.KVHeads != 0 {
		bad = append(bad, fmt.Sprintf("num_attention_heads (%d) must be a multiple of num_key_value_heads (%d)", c.Heads, c.KVHeads))
	}
	if c.HeadDim%2 != 0 {
		bad = append(bad, fmt.Sprintf("head_dim must be even, got %d", c.HeadDim))
	}
	if !(c.RMSEps > 0) || !(c.RopeTheta > 0) {
		bad = append(bad, fmt.Sprintf("rms_norm_eps and rope_theta must be > 0, got %v and %v", c.RMSEps, c.RopeTheta))
	}
	if len(bad) > 0 {
		return fault.New(fault.Invalid, "model.Config", "%v", bad).WithHint("correct config.json of the model directory")
	}
	return nil
}

// Spec is the name and shape of one tensor. Names are those of the Hugging Face library.
type Spec struct {
	Name  string
	Shape []int
	// OnesInit is true for norm weights, which start at 1.
	OnesInit bool
}

// Size returns the number of elements.
func (s Spec) Size() int {
	n := 1
	for _, d := range s.Shape {
		n *= d
	}
	return n
}

// Tensors lists every tensor of the model in the module order of the Hugging Face library. With a tied embedding there is no lm_head.weight.
func (c Config) Tensors() []Spec {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	specs := []Spec{{Name: "model.embed_tokens.weight", Shape: []int{c.Vocab, c.Hidden}}}
	for l := range c.Layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		specs = append(specs,
			Spec{Name: p + "self_attn.q_proj.weight", Shape: []int{q, c.Hidden}},
			Spec{Name: p + "self_attn.k_proj.weight", Shape: []int{kv, c.Hidden}},
			Spec{Name: p + "self_attn.v_proj.weight", Shape: []int{kv, c.Hidden}},
			Spec{Name: p + "self_attn.o_proj.weight", Shape: []int{c.Hidden, q}},
			Spec{Name: p + "self_attn.q_norm.weight", Shape: []int{c.HeadDim}, OnesInit: true},
			Spec{Name: p + "self_attn.k_norm.weight", Shape: []int{c.HeadDim}, OnesInit: true},
			Spec{Name: p + "mlp.gate_proj.weight", Shape: []int{c.Intermediate, c.Hidden}},
			Spec{Name: p + "mlp.up_proj.weight", Shape: []int{c.Intermediate, c.Hidden}},
			Spec{Name: p + "mlp.down_proj.weight", Shape: []int{c.Hidden, c.Intermediate}},
			Spec{Name: p + "input_layernorm.weight", Shape: []int{c.Hidden}, OnesInit: true},
			Spec{Name: p + "post_attention_layernorm.weight", Shape: []int{c.Hidden}, OnesInit: true},
		)
	}
	specs = append(specs, Spec{Name: "model.norm.weight", Shape: []int{c.Hidden}, OnesInit: true})
	if !c.TieEmbedding {
		specs = append(specs, Spec{Name: "lm_head.weight", Shape: []int{c.Vocab, c.Hidden}})
	}
	return specs
}

// Weights is a complete set of float32 tensors for a Config, in the order of Config.Tensors.
type Weights struct {
	Config Config
	Specs  []Spec
	Data   [][]float32 // Data[i] has Specs[i].Size() elements, row-major
	index  map[string]int
}

// NewWeights returns zeroed tensors for c.
func NewWeights(c Config) *Weights {
	w := &Weights{Config: c, Specs: c.Tensors(), index: map[string]int{}}
	w.Data = make([][]float32, len(w.Specs))
	for i, s := range w.Specs {
		w.Data[i] = make([]float32, s.Size())
		w.index[s.Name] = i
	}
	return w
}

// Get returns the elements of the named tensor, or nil if the model has no such tensor.
func (w *Weights) Get(name string) []float32 {
	if i, ok := w.index[name]; ok {
		return w.Data[i]
	}
	return nil
}

// Clone returns a deep copy.
func (w *Weights) Clone() *Weights {
	c := NewWeights(w.Config)
	for i := range w.Data {
		copy(c.Data[i], w.Data[i])
	}
	return c
}

// Equal reports whether both sets have the same configuration and the same bits (NaN equals nothing).
func (w *Weights) Equal(o *Weights) bool {
	if w.Config != o.Config {
		return false
	}
	for i := range w.Data {
		if !slices.Equal(w.Data[i], o.Data[i]) {
			return false
		}
	}
	return true
}

// Init fills w with random initial weights: norms 1, matrices from a sum of twelve uniforms (standard
// deviation std, the usual stand-in for a normal distribution that needs no math library, so that
// the bits are the same on every machine). Determinism: a pure function of seed, names and shapes.
func (w *Weights) Init(seed uint64, std float64) {
	for i, s := range w.Specs {
		if s.OnesInit {
			for j := range w.Data[i] {
				w.Data[i][j] = 1
			}
			continue
		}
		st := rng.New(seed, rng.Init, s.Name)
		for j := range w.Data[i] {
			var sum float64
			for k := range 3 {
				b := st.Block(uint64(j)*3 + uint64(k))
				for _, x := range b {
					sum += float64(x) * (1.0 / (1 << 32))
				}
			}
			w.Data[i][j] = float32((sum - 6) * std)
		}
	}
}
