package cpu

import (
	"slices"

	"github.com/steadyrl/steady/internal/engine/batched"
)

// prefillRows bounds the prompt tokens that one worker computes in one step, so that running sequences are not
// held up for long and buffers stay small. It never changes results.
const prefillRows = 512

// chunk is the work of one sequence in one step, and the row in the worker's buffers where it begins.
type chunk struct {
	*batched.Chunk
	row int
}

// worker computes the rows of its chunks through all layers with its own buffers.
type worker struct {
	*core
	version    int
	pages      [][]float32 // of the device: per layer and head transposed keys [HD][32], values [32][HD]
	rows       int
	chunks     []*chunk
	x, x1      []float32 // [rows, D]
	qkv, qk    []float32 // [rows, QKV], [rows, QK]
	attn       []float32 // [rows, Q]
	n, tmp, n2 []float32 // [rowBlock, D]
	gu, h      []float32 // [rowBlock, 2F], [rowBlock, F]
	rstd, rqk  []float32
	logits     []float32 // [rowBlock, V]
	expo       []float32 // [V]
	kv         keyValues
	keys       []uint64
}

func newWorker(c *core) *worker {
	w := &worker{core: c, expo: make([]float32, c.V), rstd: make([]float32, rowBlock)}
	w.n, w.tmp, w.n2 = make([]float32, rowBlock*c.D), make([]float32, rowBlock*c.D), make([]float32, rowBlock*c.D)
	w.gu, w.h = make([]float32, rowBlock*2*c.F), make([]float32, rowBlock*c.F)
	w.rqk, w.logits = make([]float32, c.cfg.Heads+c.cfg.KVHeads), make([]float32, rowBlock*c.V)
	return w
}

// spread gives the chunks of a step to the workers.
func (d *device) spread(chunks []*batched.Chunk) {
	for _, w := range d.workers {
		w.chunks, w.rows = w.chunks[:0], 0
	}
	for _, c := range chunks {
		w := slices.MinFunc(d.workers, func(a, b *worker) int { return a.rows - b.rows })
		w.chunks = append(w.chunks, &chunk{c, w.rows})
		w.rows += c.N
	}
}

// compute runs the worker's chunks through the model and draws or scores what is due.
func (w *worker) compute() {
	if w.rows == 0 {
		return
	}
	w.x, w.x1 = grow(w.x, w.rows*w.D), grow(w.x1, w.rows*w.D)
	w.qkv, w.qk, w.attn = grow(w.qkv, w.rows*w.QKV), grow(w.qk, w.rows*w.QK), grow(w.attn, w.rows*w.Q)
	embed := w.w.rows[w.embed]
	for _, c := range w.chunks {
		for i, id := range c.Seq.Tokens[c.First : c.First+c.N] {
			copy(w.x[(c.row+i)*w.D:][:w.D], embed[int(id)*w.D:])
		}
	}
	for layer := range w.cfg.Layers {
		for row := 0; row < w.rows; row += rowBlock {
			m := min(rowBlock, w.rows-row)
			w.normRows(w.n, w.x[row*w.D:], w.rstd, m, w.at(layer, pNorm1))
			w.linear(w.qkv[row*w.QKV:], w.QKV, w.n, w.D, m, w.at(layer, pQKV))
		}
		for _, c := range w.chunks {
			w.store(c, layer)
			w.attendChunk(c, layer)
		}
		for row := 0; row < w.rows; row += rowBlock {
			w.mlp(w.x[row*w.D:], w.x[row*w.D:], w.attn[row*w.Q:], w.x1[row*w.D:], w.rstd, w.n2, w.gu, w.h, w.tmp,
				min(rowBlock, w.rows-row), layer)
		}
	}
	w.draw()
}

// store normalises and rotates the chunk's heads and writes its keys and values to the sequence's pages.
func (w *worker) store(c *chunk, layer int) {
	for i := range c.N {
		row, pos := c.row+i, c.First+i
		qk, qkv := w.qk[row*w.QK:][:w.QK], w.qkv[row*w.QKV:][:w.QKV]
		w.heads(qk, qkv, w.rqk, pos, layer)
		data, slot := w.pages[c.Seq.Pages[pos/pageTokens]], pos%pageTokens
		for h := range w.cfg.KVHeads {
			at := (layer*w.cfg.KVHeads + h) * 2 * pageTokens * w.HD
			keys, values := data[at:][:pageTokens*w.HD], data[at+pageTokens*w.HD:][:pageTokens*w.HD]
			for d, v := range qk[w.Q+h*w.HD:][:w.HD] {
				keys[d*pageTokens+slot] = v
			}
			copy(values[slot*w.HD:][:w.HD], qkv[w.QK+h*w.HD:])
		}
	}
}

// attendChunk runs attention of a chunk's rows over the sequence's pages. A single row takes the query heads of a
// key/value head together; several rows take blocks of positions of one head.
func (w *worker) attendChunk(c *chunk, layer int) {
	pages := (c.First + c.N + pageTokens - 1) / pageTokens
	w.kv.scores, w.kv.vs = grow(w.kv.scores, attendRows*pages*pageTokens), w.HD
	for h := range w.cfg.KVHeads {
		w.kv.k, w.kv.v = w.kv.k[:0], w.kv.v[:0]
		at := (layer*w.cfg.KVHeads + h) * 2 * pageTokens * w.HD
		for _, p := range c.Seq.Pages[:pages] {
			w.kv.k = append(w.kv.k, w.pages[p][at:])
			w.kv.v = append(w.kv.v, w.pages[p][at+pageTokens*w.HD:])
		}
		q, out := w.qk[c.row*w.QK+h*w.group*w.HD:], w.attn[c.row*w.Q+h*w.group*w.HD:]
		if c.N == 1 {
			for g := 0; g < w.group; g += attendRows {
				w.attend(w.kv, q[g*w.HD:], w.HD, min(attendRows, w.group-g), c.First, 0, out[g*w.HD:], w.HD, nil, nil, 0)
			}
			continue
		}
		for g := range w.group {
			for i := 0; i < c.N; i += attendRows {
				w.attend(w.kv, q[i*w.QK+g*w.HD:], w.QK, min(attendRows, c.N-i), c.First+i, 1, out[i*w.Q+g*w.HD:], w.Q, nil, nil, 0)
			}
		}
	}
}

// draw computes the logits that are due, 64 rows at a time: of the last row of chunks whose next token is drawn.
func (w *worker) draw() {
	due := make([]*chunk, 0, rowBlock)
	flush := func() {
		for i, c := range due {
			copy(w.tmp[i*w.D:][:w.D], w.x[(c.row+c.N-1)*w.D:])
		}
		w.classify(w.tmp, len(due))
		for i, c := range due {
			c.Token, c.Err = w.pick(w.logits[i*w.V:][:w.V], &c.Seq.Req, len(c.Seq.Tokens), w.version)
		}
		due = due[:0]
	}
	for _, c := range w.chunks {
		if c.Seq.Score {
			w.score(c)
			continue
		}
		if c.Last() {
			due = append(due, c)
		}
		if len(due) == rowBlock {
			flush()
		}
	}
	flush()
}

// score appends the log-probabilities of the tokens that follow the chunk's rows.
func (w *worker) score(c *chunk) {
	for i := 0; i < c.N; i += rowBlock {
		m := min(rowBlock, c.N-i)
		w.classify(w.x[(c.row+i)*w.D:], m)
		for r := range m {
			pos := c.First + i + r + 1
			if pos == len(c.Seq.Tokens) {
				return
			}
			lp, err := w.scoreRow(w.logits[r*w.V:][:w.V], c.Seq.Tokens[pos])
			if err != nil {
				c.Err = err
				return
			}
			c.Seq.Scores = append(c.Seq.Scores, lp)
		}
	}
}

// classify writes the logits of m rows of the last layer's output x [m, D].
func (w *worker) classify(x []float32, m int) {
	w.normRows(w.n, x, w.rstd, m, w.final)
	w.linear(w.logits, w.V, w.n, w.D, m, w.head)
}
