package cpu

// rowBlock is the number of token rows of one unit of row-wise work. It also fixes the order of the sums for
// norm weights (block by block), so it is part of the result.
const rowBlock = 64

// layerState is what the forward pass saves of a layer for N rows.
type layerState struct {
	x0, n1, x1, n2 []float32 // [N,D] input, its norm, after attention, its norm
	r1, r2         []float32 // [N] 1/rms of x0 and x1
	qkv, qk, rqk   []float32 // [N,QKV] projections, [N,QK] after norm and rotation, [N,H+K] 1/rms
	max, inv       []float32 // [N,H] shift and 1/sum of the attention softmax
	attn           []float32 // [N,Q] heads' outputs
	gu, h          []float32 // [N,2F] gate and up, [N,F] silu(gate)*up
}

// span is one sequence of a micro-batch: rows [row, row+n).
type span struct {
	seq, row, n int
}

// microState holds the buffers of one micro-batch; they are reused and grow to the largest one.
type microState struct {
	spans  []span
	rows   int
	tokens []int32
	pos    []int
	layers []layerState
	xL, nf []float32 // [N,D] output of the last layer, its norm
	rf     []float32 // [N]
}

func (s *layerState) resize(c *core, n int) {
	for _, f := range []struct {
		p *[]float32
		w int
	}{
		{&s.x0, c.D},
		{&s.n1, c.D},
		{&s.x1, c.D},
		{&s.n2, c.D},
		{&s.r1, 1},
		{&s.r2, 1},
		{&s.qkv, c.QKV},
		{&s.qk, c.QK},
		{&s.rqk, c.cfg.Heads + c.cfg.KVHeads},
		{&s.max, c.cfg.Heads},
		{&s.inv, c.cfg.Heads},
		{&s.attn, c.Q},
		{&s.gu, 2 * c.F},
		{&s.h, c.F},
	} {
		*f.p = grow(*f.p, n*f.w)
	}
}

func (m *microState) resize(c *core, n int) {
	m.rows = n
	if m.layers == nil {
		m.layers = make([]layerState, c.cfg.Layers)
	}
	for i := range m.layers {
		m.layers[i].resize(c, n)
	}
	m.xL, m.nf, m.rf = grow(m.xL, n*c.D), grow(m.nf, n*c.D), grow(m.rf, n)
}

// scratch is the memory of one worker.
type scratch struct {
	tmp            []float32 // [rowBlock, D]
	keys, vals     []float32 // packed transposes of one sequence and head
	kp, vp, vtp    [][]float32
	scores, dProbs []float32 // [attendRows, context]
	wide           []float32 // [rowBlock, F]
	head           []float64
	lp             []float32
	expo           []float32 // [V]
	strip          []float32 // weightGrad
}

// blocks calls f for every block of rows.
func (t *Trainer) blocks(f func(s *scratch, block, row, n int)) {
	n := t.micro.rows
	t.pool.run((n+rowBlock-1)/rowBlock, func(worker, unit int) {
		row := unit * rowBlock
		f(&t.scratch[worker], unit, row, min(rowBlock, n-row))
	})
}

// units calls f for every sequence and key/value head of the micro-batch.
func (t *Trainer) units(f func(s *scratch, sp span, kv int)) {
	kvHeads := t.cfg.KVHeads
	t.pool.run(len(t.micro.spans)*kvHeads, func(worker, unit int) {
		f(&t.scratch[worker], t.micro.spans[unit/kvHeads], unit%kvHeads)
	})
}

// forward runs the micro-batch through all layers up to the final norm.
func (t *Trainer) forward() {
	m := &t.micro
	embed := t.w.rows[t.embed]
	for i := range m.layers {
		l := &m.layers[i]
		out := m.xL
		if i+1 < len(m.layers) {
			out = m.layers[i+1].x0
		}
		t.blocks(func(_ *scratch, _, row, n int) {
			if i == 0 {
				for r := row; r < row+n; r++ {
					copy(l.x0[r*t.D:][:t.D], embed[int(m.tokens[r])*t.D:])
				}
			}
			t.normRows(l.n1[row*t.D:], l.x0[row*t.D:], l.r1[row:], n, t.at(i, pNorm1))
			t.linear(l.qkv[row*t.QKV:], t.QKV, l.n1[row*t.D:], t.D, n, t.at(i, pQKV))
			all := t.cfg.Heads + t.cfg.KVHeads
			for r := row; r < row+n; r++ {
				t.core.heads(l.qk[r*t.QK:][:t.QK], l.qkv[r*t.QKV:], l.rqk[r*all:][:all], m.pos[r], i)
			}
		})
		t.units(func(s *scratch, sp span, kv int) { t.attention(s, l, sp, kv) })
		t.blocks(func(s *scratch, _, row, n int) {
			t.mlp(out[row*t.D:], l.x0[row*t.D:], l.attn[row*t.Q:], l.x1[row*t.D:], l.r2[row:], l.n2[row*t.D:],
				l.gu[row*2*t.F:], l.h[row*t.F:], s.tmp, n, i)
		})
	}
	t.blocks(func(_ *scratch, _, row, n int) {
		t.normRows(m.nf[row*t.D:], m.xL[row*t.D:], m.rf[row:], n, t.final)
	})
}

// packHead writes the [n, HD] block at x (row stride ld) as transposed pages [n/32][HD][32], zero padded.
func (c *core) packHead(dst []float32, pages [][]float32, x []float32, ld, n int) ([]float32, [][]float32) {
	count := pad(n) / padTo
	dst = grow(dst, count*padTo*c.HD)
	pages = pages[:0]
	for p := range count {
		page := dst[p*padTo*c.HD:][:padTo*c.HD]
		rows := min(padTo, n-p*padTo)
		if rows < padTo {
			clear(page)
		}
		for r := range rows {
			for d, v := range x[(p*padTo+r)*ld:][:c.HD] {
				page[d*padTo+r] = v
			}
		}
		pages = append(pages, page)
	}
	return dst, pages
}

// attention computes the query heads of one key/value head of one sequence.
func (t *Trainer) attention(s *scratch, l *layerState, sp span, kv int) {
	s.keys, s.kp = t.packHead(s.keys, s.kp, l.qk[sp.row*t.QK+t.Q+kv*t.HD:], t.QK, sp.n)
	s.vp = s.vp[:0]
	for p := 0; p < sp.n; p += padTo {
		s.vp = append(s.vp, l.qkv[(sp.row+p)*t.QKV+t.QK+kv*t.HD:])
	}
	s.scores = grow(s.scores, attendRows*pad(sp.n))
	cache := keyValues{k: s.kp, v: s.vp, vs: t.QKV, scores: s.scores}
	for g := range t.group {
		h := kv*t.group + g
		for first := 0; first < sp.n; first += attendRows {
			row := sp.row + first
			t.attend(cache, l.qk[row*t.QK+h*t.HD:], t.QK, min(attendRows, sp.n-first), first, 1,
				l.attn[row*t.Q+h*t.HD:], t.Q, l.max[row*t.cfg.Heads+h:], l.inv[row*t.cfg.Heads+h:], t.cfg.Heads)
		}
	}
}
