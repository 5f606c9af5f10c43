package cpu

import (
	"slices"

	"github.com/steadyrl/steady/internal/engine"
)

// prefillRows bounds the prompt tokens that one worker computes in one step, so that running sequences are not
// held up for long and buffers stay small. It never changes results.
const prefillRows = 512

// chunk is the work of one sequence in one step: tokens [first, first+n).
type chunk struct {
	s        *sequence
	first, n int
	row      int // first row in the worker's buffers
	full     []*page
	tok      engine.Token // result if the chunk reaches the end of the known tokens
	err      error
}

// sampled reports whether the chunk ends at the last known token, so that the next one is drawn.
func (c *chunk) sampled() bool { return c.first+c.n == len(c.s.tokens) }

// worker computes the rows of its chunks through all layers with its own buffers.
type worker struct {
	*core
	version    int
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

// plan chooses each sequence's chunk of this step and spreads the chunks over the workers.
func (s *Sampler) plan(runnable []*sequence) []*chunk {
	budget := prefillRows * len(s.workers)
	var chunks []*chunk
	for _, seq := range runnable {
		if !s.cache.adopt(seq) {
			continue
		}
		n := len(seq.tokens) - seq.done
		if n > 1 {
			n = min(n, budget)
			budget -= n
		}
		if n > 0 {
			chunks = append(chunks, &chunk{s: seq, first: seq.done, n: n, full: s.cache.extend(seq, n)})
		}
	}
	for _, w := range s.workers {
		w.chunks, w.rows = w.chunks[:0], 0
	}
	for _, c := range chunks {
		w := slices.MinFunc(s.workers, func(a, b *worker) int { return a.rows - b.rows })
		c.row = w.rows
		w.rows += c.n
		w.chunks = append(w.chunks, c)
	}
	return chunks
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
		for i, id := range c.s.tokens[c.first : c.first+c.n] {
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
	for i := range c.n {
		row, pos := c.row+i, c.first+i
		qk, qkv := w.qk[row*w.QK:][:w.QK], w.qkv[row*w.QKV:][:w.QKV]
		w.heads(qk, qkv, w.rqk, pos, layer)
		data, slot := c.s.pages[pos/pageTokens].data, pos%pageTokens
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
	pages := (c.first + c.n + pageTokens - 1) / pageTokens
	w.kv.scores, w.kv.vs = grow(w.kv.scores, attendRows*pages*pageTokens), w.HD
	for h := range w.cfg.KVHeads {
		w.kv.k, w.kv.v = w.kv.k[:0], w.kv.v[:0]
		at := (layer*w.cfg.KVHeads + h) * 2 * pageTokens * w.HD
		for _, p := range c.s.pages[:pages] {
			w.kv.k = append(w.kv.k, p.data[at:])
			w.kv.v = append(w.kv.v, p.data[at+pageTokens*w.HD:])
		}
		q, out := w.qk[c.row*w.QK+h*w.group*w.HD:], w.attn[c.row*w.Q+h*w.group*w.HD:]
		if c.n == 1 {
			for g := 0; g < w.group; g += attendRows {
				w.attend(w.kv, q[g*w.HD:], w.HD, min(attendRows, w.group-g), c.first, 0, out[g*w.HD:], w.HD, nil, nil, 0)
			}
			continue
		}
		for g := range w.group {
			for i := 0; i < c.n; i += attendRows {
				w.attend(w.kv, q[i*w.QK+g*w.HD:], w.QK, min(attendRows, c.n-i), c.first+i, 1, out[i*w.Q+g*w.HD:], w.Q, nil, nil, 0)
			}
		}
	}
}

// draw computes the logits that are due, 64 rows at a time: of the last row of chunks whose next token is drawn.
func (w *worker) draw() {
	due := make([]*chunk, 0, rowBlock)
	flush := func() {
		for i, c := range due {
			copy(w.tmp[i*w.D:][:w.D], w.x[(c.row+c.n-1)*w.D:])
		}
		w.classify(w.tmp, len(due))
		for i, c := range due {
			c.tok, c.err = w.pick(w.logits[i*w.V:][:w.V], &c.s.gen.req, len(c.s.tokens), w.version)
		}
		due = due[:0]
	}
	for _, c := range w.chunks {
		if c.s.gen.score {
			w.score(c)
			continue
		}
		if c.sampled() {
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
	for i := 0; i < c.n; i += rowBlock {
		m := min(rowBlock, c.n-i)
		w.classify(w.x[(c.row+i)*w.D:], m)
		for r := range m {
			pos := c.first + i + r + 1
			if pos == len(c.s.tokens) {
				return
			}
			lp, err := w.scoreRow(w.logits[r*w.V:][:w.V], c.s.tokens[pos])
			if err != nil {
				c.err = err
				return
			}
			c.s.scores = append(c.s.scores, lp)
		}
	}
}

// classify writes the logits of m rows of the last layer's output x [m, D].
func (w *worker) classify(x []float32, m int) {
	w.normRows(w.n, x, w.rstd, m, w.final)
	w.linear(w.logits, w.V, w.n, w.D, m, w.head)
}
