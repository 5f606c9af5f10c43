//go:build cuda

package cuda

import (
	"fmt"
	"math"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/model"
)

// align is the multiple to which rows of matrices are padded with zeros: 16 bytes of BF16, which fast loads want.
const align = 8

// sizes are the widths of a model; names with a final P are padded.
type sizes struct {
	model.Config
	queries, queriesP int // all query heads
	qkv               int // query, key and value heads
	hiddenP, interP   int
}

func sizesOf(c model.Config) sizes {
	s := sizes{Config: c, queries: c.Heads * c.HeadDim, qkv: (c.Heads + 2*c.KVHeads) * c.HeadDim}
	s.queriesP, s.hiddenP, s.interP = pad(s.queries, align), pad(c.Hidden, align), pad(c.Intermediate, align)
	return s
}

// part places a tensor in a matrix, from row first on.
type part struct {
	tensor string
	first  int
}

// matrix is one matrix or norm vector in GPU memory. Vectors (rows 0) are float32, matrices elements [rows, colsP].
type matrix struct {
	parts             []part
	rows, cols, colsP int
	at                cudart.Ptr
}

// layerWeights are the parameters of one layer.
type layerWeights struct{ norm1, qkv, qNorm, kNorm, out, norm2, gateUp, down *matrix }

// weights are a model's parameters in GPU memory.
type weights struct {
	all         []*matrix
	embed, head *matrix // the same when tied
	final       *matrix
	layers      []layerWeights
}

func newWeights(s sizes) *weights {
	w := &weights{}
	add := func(rows, cols int, parts ...part) *matrix {
		m := &matrix{parts: parts, rows: rows, cols: cols, colsP: cols}
		if rows > 0 {
			m.colsP = pad(cols, align)
		}
		w.all = append(w.all, m)
		return m
	}
	w.embed = add(s.Vocab, s.Hidden, part{"model.embed_tokens.weight", 0})
	for i := range s.Layers {
		name := func(n string) string { return fmt.Sprintf("model.layers.%d.%s.weight", i, n) }
		kv := s.KVHeads * s.HeadDim
		w.layers = append(w.layers, layerWeights{
			norm1: add(0, s.Hidden, part{name("input_layernorm"), 0}),
			qkv: add(s.qkv, s.Hidden, part{name("self_attn.q_proj"), 0}, part{name("self_attn.k_proj"), s.queries},
				part{name("self_attn.v_proj"), s.queries + kv}),
			qNorm: add(0, s.HeadDim, part{name("self_attn.q_norm"), 0}),
			kNorm: add(0, s.HeadDim, part{name("self_attn.k_norm"), 0}),
			out:   add(s.Hidden, s.queries, part{name("self_attn.o_proj"), 0}),
			norm2: add(0, s.Hidden, part{name("post_attention_layernorm"), 0}),
			gateUp: add(2*s.Intermediate, s.Hidden, part{name("mlp.gate_proj"), 0},
				part{name("mlp.up_proj"), s.Intermediate}),
			down: add(s.Hidden, s.Intermediate, part{name("mlp.down_proj"), 0}),
		})
	}
	w.final = add(0, s.Hidden, part{"model.norm.weight", 0})
	w.head = w.embed
	if !s.TieEmbedding {
		w.head = add(s.Vocab, s.Hidden, part{"lm_head.weight", 0})
	}
	return w
}

// bytes is the size in GPU memory.
func (m *matrix) bytes(p Precision) int {
	if m.rows == 0 {
		return 4 * m.cols
	}
	return m.rows * m.colsP * p.elemBytes()
}

// staged is a version on the way to the GPU: for each matrix, elements of one of the two kinds.
type staged struct {
	half [][]uint16
	full [][]float32
}

// stage copies w in the form of the GPU; elements are rounded to the nearest BF16, ties to even.
func (d *weights) stage(p Precision, w *model.Weights) *staged {
	s := &staged{half: make([][]uint16, len(d.all)), full: make([][]float32, len(d.all))}
	for i, m := range d.all {
		rows := max(m.rows, 1)
		half := m.rows > 0 && p == BF16
		if half {
			s.half[i] = make([]uint16, rows*m.colsP)
		} else {
			s.full[i] = make([]float32, rows*m.colsP)
		}
		for _, part := range m.parts {
			src := w.Get(part.tensor)
			for r := 0; r*m.cols < len(src); r++ {
				row, to := src[r*m.cols:][:m.cols], (part.first+r)*m.colsP
				if !half {
					copy(s.full[i][to:], row)
					continue
				}
				for c, x := range row {
					s.half[i][to+c] = toBF16(x)
				}
			}
		}
	}
	return s
}

func toBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40 // NaN stays NaN
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16) //nolint:gosec // the upper half
}

// upload copies a staged version over the one that is there.
func (d *weights) upload(c *cudart.Context, s *staged) error {
	for i, m := range d.all {
		err := cudart.Upload(c, m.at, s.half[i])
		if err == nil {
			err = cudart.Upload(c, m.at, s.full[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
