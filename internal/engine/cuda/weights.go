//go:build cuda

package cuda

import (
	"math"
	"runtime"
	"sync"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/model"
)

// sizes are the widths of a model; names with a final P are padded.
type sizes struct {
	model.Config
	queries, queriesP int // all query heads
	qkv               int // query, key and value heads
	hiddenP, interP   int
}

func sizesOf(c model.Config) sizes {
	s := plan.SizesOf(c)
	return sizes{Config: c, queries: s.Queries, queriesP: s.QueriesP, qkv: s.QKV, hiddenP: s.HiddenP, interP: s.InterP}
}

// planned are the sizes as the memory plan takes them.
func (s sizes) planned() plan.Sizes { return plan.SizesOf(s.Config) }

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

// newWeights lists the matrices of the memory plan.
func newWeights(s sizes) *weights {
	w := &weights{}
	for _, p := range plan.Matrices(s.planned()) {
		m := &matrix{rows: p.Rows, cols: p.Cols, colsP: p.ColsP}
		for _, t := range p.Tensors {
			m.parts = append(m.parts, part{t.Tensor, t.First})
		}
		w.all = append(w.all, m)
	}
	w.embed = w.all[0]
	rest := w.all[1:]
	for range s.Layers {
		l := rest[:plan.LayerMatrices]
		w.layers = append(w.layers, layerWeights{norm1: l[0], qkv: l[1], qNorm: l[2], kNorm: l[3], out: l[4], norm2: l[5], gateUp: l[6], down: l[7]})
		rest = rest[plan.LayerMatrices:]
	}
	w.final, w.head = rest[0], w.embed
	if !s.TieEmbedding {
		w.head = rest[1]
	}
	return w
}

// bytes is the size in GPU memory.
func (m *matrix) bytes(p Precision) int {
	return plan.Matrix{Rows: m.rows, Cols: m.cols, ColsP: m.colsP}.Bytes(p.elemBytes())
}

// staged is a version on the way to the GPU: for each matrix, elements of one of the two kinds.
type staged struct {
	half [][]uint16
	full [][]float32
}

// stage copies w in the form of the GPU; elements are rounded to the nearest BF16, ties to even.
func (d *weights) stage(p Precision, w *model.Weights) *staged {
	s := &staged{half: make([][]uint16, len(d.all)), full: make([][]float32, len(d.all))}
	work := make(chan int)
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(d.all)) {
		all.Go(func() {
			for i := range work {
				s.fill(i, d.all[i], p, w)
			}
		})
	}
	for i := range d.all {
		work <- i
	}
	close(work)
	all.Wait()
	return s
}

// fill stages one matrix.
func (s *staged) fill(i int, m *matrix, p Precision, w *model.Weights) {
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
