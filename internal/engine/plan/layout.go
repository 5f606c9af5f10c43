package plan

import (
	"fmt"

	"github.com/steadyrl/steady/internal/model"
)

// Class says what memory is for.
type Class string

// The classes, in the order of tables.
const (
	Weights     Class = "weights"             // the BF16 weights that are computed with
	Master      Class = "master weights"      // float32
	Moments     Class = "moments"             // both of AdamW, float32
	Gradients   Class = "gradients"           // float32
	Activations Class = "activations"         // of the rows of a step or a micro-batch
	Attention   Class = "attention workspace" // of cuDNN, and statistics of the softmax
	Logits      Class = "logits"              // of a chunk of tokens, and their gradients
	Record      Class = "record"              // the most probable tokens and their log-probabilities
	Cache       Class = "keys and values"
	Work        Class = "tables, workspace"
	Process     Class = "driver and libraries" // an estimate
	Reserve     Class = "kept free"            // for what comes later: the check of a version, code on demand
)

// Classes lists the classes in the order of tables.
func Classes() []Class {
	return []Class{Weights, Master, Moments, Gradients, Activations, Attention, Logits, Record, Cache, Work, Process, Reserve}
}

// Part is one array on the GPU.
type Part struct {
	Name  string
	Class Class
	Bytes int
}

// Sum adds the bytes of parts.
func Sum(parts []Part) int {
	n := 0
	for _, p := range parts {
		n += p.Bytes
	}
	return n
}

// Numbers that decide about sizes.
const (
	// Tile is the number of rows of every product of the sampler.
	Tile = 128
	// Align is the multiple to which rows of matrices are padded: 16 bytes of BF16.
	Align = 8
	// PageTokens is the number of tokens of a page of keys and values.
	PageTokens = 32
	// SplitKeys is the number of keys of a partial result of attention when decoding.
	SplitKeys = 512
	// HeadRows is the number of trained tokens whose logits exist at once, ExactHeadRows the same of the exact step.
	HeadRows, ExactHeadRows = 2048, 512
	// AttendRoom bounds the workspace of one call of cuDNN's attention, in bytes; longer sequences go in fewer heads a call.
	AttendRoom = 9 << 30
	// Spare stays free when activations are kept, beside room for another copy of the weights.
	Spare = 1 << 30
	// Context is an estimate of what the driver takes for a process: its context and the code of kernels and libraries. It was not measured.
	Context = 1 << 30
	// HeadWidth is the width of the heads that the fast step takes, FastHidden the widest row of its norms.
	HeadWidth, FastHidden = 128, 8192

	columnRows  = 64 // COLUMN of the kernels
	normRows    = 16 // rows of a block of gradients of norms
	targetBytes = 24
	statsBytes  = 72
	askBytes    = 32
	answerBytes = 16
	rowBytes    = 16
	sampleGroup = 128
	segment     = 1024
	candidates  = 1024
	sortedWidth = 1024
	blasBytes   = 64 << 20 // workspace of cuBLASLt
)

// Pad rounds n up to a multiple of m.
func Pad(n, m int) int { return (n + m - 1) / m * m }

// Sizes are the widths of a model; names with a final P are padded.
type Sizes struct {
	model.Config
	Queries, QueriesP int // all query heads
	QKV               int // query, key and value heads
	HiddenP, InterP   int
}

// SizesOf returns the widths of a model.
func SizesOf(c model.Config) Sizes {
	s := Sizes{Config: c, Queries: c.Heads * c.HeadDim, QKV: (c.Heads + 2*c.KVHeads) * c.HeadDim}
	s.QueriesP, s.HiddenP, s.InterP = Pad(s.Queries, Align), Pad(c.Hidden, Align), Pad(c.Intermediate, Align)
	return s
}

// Parameters is the number of weights of a model.
func Parameters(c model.Config) int {
	n := 0
	for _, t := range c.Tensors() {
		n += t.Size()
	}
	return n
}

// Placed places a tensor in a matrix, from row First on.
type Placed struct {
	Tensor string
	First  int
}

// Matrix is one matrix or norm vector in GPU memory. Vectors (Rows 0) are float32, matrices elements [Rows, ColsP].
type Matrix struct {
	Tensors           []Placed
	Rows, Cols, ColsP int
}

// Size is the number of elements, padding included.
func (m Matrix) Size() int { return max(m.Rows, 1) * m.ColsP }

// Bytes is the size in GPU memory with elements of elem bytes.
func (m Matrix) Bytes(elem int) int {
	if m.Rows == 0 {
		return 4 * m.Cols
	}
	return m.Rows * m.ColsP * elem
}

// LayerMatrices is the number of matrices of a layer.
const LayerMatrices = 8

// Matrices lists a model's matrices in the order of the engine: the embedding; of each layer the norm before attention, queries with keys and values, the
// norms of queries and of keys, the output of attention, the norm after it, gate with up, down; the final norm; the head, unless it is the embedding.
func Matrices(s Sizes) []Matrix {
	var all []Matrix
	add := func(rows, cols int, tensors ...Placed) {
		m := Matrix{Tensors: tensors, Rows: rows, Cols: cols, ColsP: cols}
		if rows > 0 {
			m.ColsP = Pad(cols, Align)
		}
		all = append(all, m)
	}
	add(s.Vocab, s.Hidden, Placed{"model.embed_tokens.weight", 0})
	for i := range s.Layers {
		name := func(n string) string { return fmt.Sprintf("model.layers.%d.%s.weight", i, n) }
		kv := s.KVHeads * s.HeadDim
		add(0, s.Hidden, Placed{name("input_layernorm"), 0})
		add(s.QKV, s.Hidden, Placed{name("self_attn.q_proj"), 0}, Placed{name("self_attn.k_proj"), s.Queries}, Placed{name("self_attn.v_proj"), s.Queries + kv})
		add(0, s.HeadDim, Placed{name("self_attn.q_norm"), 0})
		add(0, s.HeadDim, Placed{name("self_attn.k_norm"), 0})
		add(s.Hidden, s.Queries, Placed{name("self_attn.o_proj"), 0})
		add(0, s.Hidden, Placed{name("post_attention_layernorm"), 0})
		add(2*s.Intermediate, s.Hidden, Placed{name("mlp.gate_proj"), 0}, Placed{name("mlp.up_proj"), s.Intermediate})
		add(s.Hidden, s.Intermediate, Placed{name("mlp.down_proj"), 0})
	}
	add(0, s.Hidden, Placed{"model.norm.weight", 0})
	if !s.TieEmbedding {
		add(s.Vocab, s.Hidden, Placed{"lm_head.weight", 0})
	}
	return all
}

// total adds f of every matrix up. The layers of a model are alike, so one is looked at.
func total(s Sizes, f func(Matrix) int) int {
	one := s
	one.Layers = 1
	n := 0
	for i, m := range Matrices(one) {
		if i >= 1 && i <= LayerMatrices {
			n += s.Layers * f(m)
		} else {
			n += f(m)
		}
	}
	return n
}

// WeightBytes is the size of a model's weights with elements of elem bytes.
func WeightBytes(s Sizes, elem int) int {
	return total(s, func(m Matrix) int { return m.Bytes(elem) })
}

// RopePositions is the number of positions in the tables of rotations: a step ahead may reach one too far.
func RopePositions(c model.Config) int { return c.MaxPosition + 1 }

// RopeBytes is the size of both tables of rotations.
func RopeBytes(c model.Config) int { return 2 * RopePositions(c) * (c.HeadDim / 2) * 4 }

// common are the arrays that a sampler and a trainer both have.
func common(s Sizes, elem int, blas bool) []Part {
	parts := []Part{{"weights", Weights, WeightBytes(s, elem)}, {"rotations", Work, RopeBytes(s.Config)}}
	if blas {
		parts = append(parts, Part{"cuBLASLt", Work, blasBytes})
	}
	return parts
}
