package cpu

import (
	"fmt"
	"math"

	"github.com/steadyrl/steady/internal/engine/cpu/kernel"
	"github.com/steadyrl/steady/internal/model"
)

// padTo is the multiple to which every width is padded with zeros, so that no kernel needs a tail.
const padTo = kernel.Panel

func pad(n int) int { return (n + padTo - 1) / padTo * padTo }

// block places a rectangle of a tensor at (dr,dc) of a fused, padded matrix.
type block struct{ tensor, sr, sc, rows, cols, dr, dc int }

// param is one fused, padded matrix [out,in] (norm weights have out = 1) and the tensors it is made of.
type param struct {
	out, in int
	blocks  []block
}

// Offsets of a layer's parameters in layout.params.
const (
	pNorm1 = iota
	pQKV
	pQNorm
	pKNorm
	pOut
	pNorm2
	pGateUp
	pDown
	perLayer
)

// layout holds the padded sizes of a model and the map between its tensors and the fused matrices.
type layout struct {
	cfg model.Config
	// D, HD, F and V are the padded widths of the residual stream, a head, the MLP and the vocabulary.
	D, HD, F, V int
	// Q, QK and QKV are the widths of all query heads, of query and key heads, and of all three.
	Q, QK, QKV int
	group      int     // query heads per key/value head
	qScale     float32 // 1/sqrt(head_dim), applied to queries after the rotation
	eps        float32
	params     []param
	embed      int // index in params
	final      int
	head       int // equal to embed when tied
}

func newLayout(cfg model.Config) *layout {
	l := &layout{cfg: cfg, D: pad(cfg.Hidden), HD: pad(cfg.HeadDim), F: pad(cfg.Intermediate), V: pad(cfg.Vocab)}
	l.Q = cfg.Heads * l.HD
	l.QK = l.Q + cfg.KVHeads*l.HD
	l.QKV = l.QK + cfg.KVHeads*l.HD
	l.group = cfg.Heads / cfg.KVHeads
	l.qScale = float32(1 / math.Sqrt(float64(cfg.HeadDim)))
	l.eps = float32(cfg.RMSEps)
	index := map[string]int{}
	for i, s := range cfg.Tensors() {
		index[s.Name] = i
	}
	l.params = append(l.params, param{l.V, l.D, []block{{tensor: index["model.embed_tokens.weight"], rows: cfg.Vocab, cols: cfg.Hidden}}})
	for i := range cfg.Layers {
		l.addLayer(index, fmt.Sprintf("model.layers.%d.", i))
	}
	l.final = len(l.params)
	l.params = append(l.params, vector(index["model.norm.weight"], cfg.Hidden, l.D))
	if !cfg.TieEmbedding {
		l.head = len(l.params)
		l.params = append(l.params, param{l.V, l.D, []block{{tensor: index["lm_head.weight"], rows: cfg.Vocab, cols: cfg.Hidden}}})
	}
	return l
}

func vector(tensor, n, padded int) param {
	return param{1, padded, []block{{tensor: tensor, rows: 1, cols: n}}}
}

func (l *layout) addLayer(index map[string]int, p string) {
	c := l.cfg
	qkv, out := param{out: l.QKV, in: l.D}, param{out: l.D, in: l.Q}
	add := func(name string, heads, firstRow int) {
		for h := range heads {
			qkv.blocks = append(qkv.blocks, block{
				tensor: index[p+name], sr: h * c.HeadDim, rows: c.HeadDim, cols: c.Hidden, dr: firstRow + h*l.HD,
			})
		}
	}
	add("self_attn.q_proj.weight", c.Heads, 0)
	add("self_attn.k_proj.weight", c.KVHeads, l.Q)
	add("self_attn.v_proj.weight", c.KVHeads, l.QK)
	for h := range c.Heads {
		out.blocks = append(out.blocks, block{
			tensor: index[p+"self_attn.o_proj.weight"], sc: h * c.HeadDim, rows: c.Hidden, cols: c.HeadDim, dc: h * l.HD,
		})
	}
	l.params = append(l.params,
		vector(index[p+"input_layernorm.weight"], c.Hidden, l.D), qkv,
		vector(index[p+"self_attn.q_norm.weight"], c.HeadDim, l.HD),
		vector(index[p+"self_attn.k_norm.weight"], c.HeadDim, l.HD), out,
		vector(index[p+"post_attention_layernorm.weight"], c.Hidden, l.D),
		param{2 * l.F, l.D, []block{
			{tensor: index[p+"mlp.gate_proj.weight"], rows: c.Intermediate, cols: c.Hidden},
			{tensor: index[p+"mlp.up_proj.weight"], rows: c.Intermediate, cols: c.Hidden, dr: l.F},
		}},
		param{l.D, l.F, []block{{tensor: index[p+"mlp.down_proj.weight"], rows: c.Hidden, cols: c.Intermediate}}})
}

// at returns the index in params of parameter kind of a layer.
func (l *layout) at(layer, kind int) int { return 1 + layer*perLayer + kind }

// fuse copies the tensors of parameter p into the zeroed matrix dst [out,in].
func (l *layout) fuse(dst []float32, p int, w *model.Weights) {
	for _, b := range l.params[p].blocks {
		ld := w.Specs[b.tensor].Shape[len(w.Specs[b.tensor].Shape)-1]
		for r := range b.rows {
			copy(dst[(b.dr+r)*l.params[p].in+b.dc:][:b.cols], w.Data[b.tensor][(b.sr+r)*ld+b.sc:])
		}
	}
}

// unfuse is the inverse of fuse: it copies src [out,in] into the tensors of parameter p.
func (l *layout) unfuse(w *model.Weights, p int, src []float32) {
	for _, b := range l.params[p].blocks {
		ld := w.Specs[b.tensor].Shape[len(w.Specs[b.tensor].Shape)-1]
		for r := range b.rows {
			copy(w.Data[b.tensor][(b.sr+r)*ld+b.sc:][:b.cols], src[(b.dr+r)*l.params[p].in+b.dc:])
		}
	}
}

// packed holds a version's weights in the shapes that the kernels read.
type packed struct {
	// rows[p] is the row-major matrix of the embedding and of the norms, nil for the others.
	rows [][]float32
	// forward[p] are panels of W^T, [out/32][in][32], for y = x W^T.
	forward [][]float32
	// backward[p] are panels of W, [in/32][out][32], for dx = dy W; nil in a sampler.
	backward [][]float32
}

func newPacked(l *layout, train bool) *packed {
	n := len(l.params)
	p := &packed{rows: make([][]float32, n), forward: make([][]float32, n), backward: make([][]float32, n)}
	for i, m := range l.params {
		size := m.out * m.in
		if m.out == 1 || i == l.embed {
			p.rows[i] = make([]float32, size)
		}
		if m.out > 1 && (i != l.embed || l.head == l.embed) {
			p.forward[i] = make([]float32, size)
			if train {
				p.backward[i] = make([]float32, size)
			}
		}
	}
	return p
}

// load packs w. Determinism: a copy, no arithmetic.
func (p *packed) load(l *layout, w *model.Weights) {
	for i, m := range l.params {
		src := p.rows[i]
		if src == nil {
			src = make([]float32, m.out*m.in)
		}
		l.fuse(src, i, w)
		if p.forward[i] != nil {
			packTransposed(p.forward[i], src, m.out, m.in)
		}
		if p.backward[i] != nil {
			packPanels(p.backward[i], src, m.out, m.in)
		}
	}
}

// packTransposed writes src [rows,cols] as panels [rows/32][cols][32] of its transpose.
func packTransposed(dst, src []float32, rows, cols int) {
	for j := 0; j < rows; j += padTo {
		d := dst[j*cols:][:cols*padTo]
		for c := range padTo {
			for k, x := range src[(j+c)*cols:][:cols] {
				d[k*padTo+c] = x
			}
		}
	}
}

// packPanels writes src [rows,cols] as panels [cols/32][rows][32].
func packPanels(dst, src []float32, rows, cols int) {
	for j := 0; j < cols; j += padTo {
		d := dst[j*rows:]
		for r := range rows {
			copy(d[r*padTo:][:padTo], src[r*cols+j:])
		}
	}
}
