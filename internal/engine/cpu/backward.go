package cpu

import (
	"math"

	"github.com/steadyrl/steady/internal/engine/cpu/kernel"
)

// gradState holds the gradient buffers of one micro-batch.
type gradState struct {
	dx, dx1    []float32   // [N,D] gradient of a layer's output, and of its middle; they swap roles
	dnf        []float32   // [N,D] of the final norm
	dgu        []float32   // [N,2F]
	dAttn      []float32   // [N,Q]
	dqk        []float32   // [N,QK]
	dqkv       []float32   // [N,QKV]
	dn         []float32   // [N,D] of a norm's output
	partial    []float32   // [blocks,D] norm weights by row block
	partialQ   []float32   // [blocks,2,HD] head norm weights by row block
	logits, hx []float32   // [headRows,V], [headRows,D]
	dhx        []float32   // [headRows,D]
	weights    [][]float32 // per parameter, fused and padded
}

func (g *gradState) resize(c *core, n int) {
	blocks := (n + rowBlock - 1) / rowBlock
	for _, f := range []struct {
		p *[]float32
		w int
	}{
		{&g.dx, n * c.D},
		{&g.dx1, n * c.D},
		{&g.dnf, n * c.D},
		{&g.dgu, n * 2 * c.F},
		{&g.dAttn, n * c.Q},
		{&g.dqk, n * c.QK},
		{&g.dqkv, n * c.QKV},
		{&g.dn, n * c.D},
		{&g.partial, blocks * c.D},
		{&g.partialQ, blocks * 2 * c.HD},
		{&g.logits, headRows * c.V},
		{&g.hx, headRows * c.D},
		{&g.dhx, headRows * c.D},
	} {
		*f.p = grow(*f.p, f.w)
	}
}

// normGrad adds the gradient of m rows of y = (x*r)*w to dx and the weights' gradient to dw; dy is overwritten.
//
// Shapes: dx, dy, x [m,D] rows of width len(w); r [m]; n is the unpadded width.
func (c *core) normGrad(dx, dy, x, w, dw []float32, r float32, n int) {
	c.k.MulAcc(dw, dy, x, r)
	c.k.Mul(dy, dy, w)
	s := c.k.Dot(dy, x)
	c.k.Axpy(dx, dy, r)
	c.k.Axpy(dx, x, -float32(float32(r*r)*r)*(s/float32(n)))
}

// normBlock runs normGrad over the rows of a block, with the block's own partial sum of the weights' gradient.
func (t *Trainer) normBlock(dx, x, rstd []float32, block, row, n, p int) {
	dw := t.g.partial[block*t.D:][:t.D]
	clear(dw)
	for r := row; r < row+n; r++ {
		t.normGrad(dx[r*t.D:][:t.D], t.g.dn[r*t.D:][:t.D], x[r*t.D:][:t.D], t.w.rows[p], dw, rstd[r], t.cfg.Hidden)
	}
}

// addPartials adds the partial sums of all row blocks in order.
func (t *Trainer) addPartials(p int) {
	for b := 0; b*rowBlock < t.micro.rows; b++ {
		t.k.Axpy(t.g.weights[p], t.g.partial[b*t.D:][:t.D], 1)
	}
}

// backward propagates g.dnf through the final norm and all layers and accumulates every weight gradient.
func (t *Trainer) backward() {
	m, g := &t.micro, &t.g
	t.blocks(func(_ *scratch, block, row, n int) {
		clear(g.dx[row*t.D:][:n*t.D])
		copy(g.dn[row*t.D:][:n*t.D], g.dnf[row*t.D:])
		t.normBlock(g.dx, m.xL, m.rf, block, row, n, t.final)
	})
	t.addPartials(t.final)
	for i := len(m.layers) - 1; i >= 0; i-- {
		t.layerBackward(i)
	}
	embed := g.weights[t.embed]
	for r, id := range m.tokens[:m.rows] {
		t.k.Axpy(embed[int(id)*t.D:][:t.D], g.dx[r*t.D:], 1)
	}
}

func (t *Trainer) layerBackward(i int) {
	l, g := &t.micro.layers[i], &t.g
	t.blocks(func(s *scratch, block, row, n int) {
		t.linearGrad(s.wide, t.F, g.dx[row*t.D:], t.D, n, t.at(i, pDown))
		for r := range n {
			gu, dgu := l.gu[(row+r)*2*t.F:][:2*t.F], g.dgu[(row+r)*2*t.F:][:2*t.F]
			t.k.SiluGrad(dgu[:t.F], dgu[t.F:], s.wide[r*t.F:], gu[:t.F], gu[t.F:])
		}
		t.linearGrad(g.dn[row*t.D:], t.D, g.dgu[row*2*t.F:], 2*t.F, n, t.at(i, pGateUp))
		copy(g.dx1[row*t.D:][:n*t.D], g.dx[row*t.D:])
		t.normBlock(g.dx1, l.x1, l.r2, block, row, n, t.at(i, pNorm2))
		t.linearGrad(g.dAttn[row*t.Q:], t.Q, g.dx1[row*t.D:], t.D, n, t.at(i, pOut))
	})
	t.addPartials(t.at(i, pNorm2))
	t.units(func(s *scratch, sp span, kv int) { t.attentionGrad(s, l, sp, kv) })
	// dx is still the gradient of the layer's output here: the weight gradients need it before it is replaced.
	t.blocks(func(_ *scratch, block, row, n int) {
		t.headsGrad(l, block, row, n, i)
		t.linearGrad(g.dn[row*t.D:], t.D, g.dqkv[row*t.QKV:], t.QKV, n, t.at(i, pQKV))
	})
	for b := 0; b*rowBlock < t.micro.rows; b++ {
		t.k.Axpy(g.weights[t.at(i, pQNorm)], g.partialQ[b*2*t.HD:][:t.HD], 1)
		t.k.Axpy(g.weights[t.at(i, pKNorm)], g.partialQ[b*2*t.HD+t.HD:][:t.HD], 1)
	}
	t.layerWeightGrads(i)
	t.blocks(func(_ *scratch, block, row, n int) {
		t.normBlock(g.dx1, l.x0, l.r1, block, row, n, t.at(i, pNorm1))
	})
	t.addPartials(t.at(i, pNorm1))
	g.dx, g.dx1 = g.dx1, g.dx
}

// layerWeightGrads accumulates the gradients of a layer's four matrices; a unit is 64 rows of one of them.
func (t *Trainer) layerWeightGrads(i int) {
	l, g := &t.micro.layers[i], &t.g
	jobs := [...]struct {
		kind  int
		dy, x []float32
	}{
		{pGateUp, g.dgu, l.n2}, {pQKV, g.dqkv, l.n1}, {pDown, g.dx, l.h}, {pOut, g.dx1, l.attn},
	}
	units := 0
	for _, j := range jobs {
		units += strips(t.params[t.at(i, j.kind)].out)
	}
	t.pool.run(units, func(worker, unit int) {
		for _, j := range jobs {
			p := t.at(i, j.kind)
			if n := strips(t.params[p].out); unit >= n {
				unit -= n
				continue
			}
			t.strip(worker, p, unit, j.dy, j.x, t.micro.rows)
			return
		}
	})
}

// strips returns the number of units of weightGrad for a matrix of the given height.
func strips(out int) int { return (out + gradRows - 1) / gradRows }

// strip accumulates unit u of the gradient of parameter p from n rows of dy [n,out] and x [n,in].
func (t *Trainer) strip(worker, p, u int, dy, x []float32, n int) {
	first, out, in := u*gradRows, t.params[p].out, t.params[p].in
	t.weightGrad(t.g.weights[p], in, first, min(gradRows, out-first), dy, out, x, in, n, t.scratch[worker].strip)
}

// headsGrad turns g.dqk into the query and key parts of g.dqkv for a block of rows: rotation, norm and scale
// backwards. The value part is written by attentionGrad.
func (t *Trainer) headsGrad(l *layerState, block, row, n, layer int) {
	g, half, all := &t.g, t.cfg.HeadDim/2, t.cfg.Heads+t.cfg.KVHeads
	dw := g.partialQ[block*2*t.HD:][:2*t.HD]
	clear(dw)
	for r := row; r < row+n; r++ {
		pos := t.micro.pos[r]
		cos, sin := t.cos[pos*half:][:half], t.sin[pos*half:][:half]
		for h := range all {
			dy, dx := g.dqk[r*t.QK+h*t.HD:][:t.HD], g.dqkv[r*t.QKV+h*t.HD:][:t.HD]
			w, part := t.w.rows[t.at(layer, pQNorm)], dw[:t.HD]
			if h < t.cfg.Heads {
				t.k.Scale(dy, dy, t.qScale)
			} else {
				w, part = t.w.rows[t.at(layer, pKNorm)], dw[t.HD:]
			}
			lo, hi := dy[:half], dy[half:2*half]
			for i, co := range cos {
				a, b := lo[i], hi[i]
				lo[i] = float32(a*co) + float32(b*sin[i])
				hi[i] = float32(b*co) - float32(a*sin[i])
			}
			clear(dx)
			t.normGrad(dx, dy, l.qkv[r*t.QKV+h*t.HD:][:t.HD], w, part, l.rqk[r*all+h], t.cfg.HeadDim)
		}
	}
}

// attentionGrad computes the gradients of one key/value head of one sequence and of its query heads, from
// g.dAttn into g.dqk and the value part of g.dqkv. Probabilities are recomputed from the saved shift and sum.
func (t *Trainer) attentionGrad(s *scratch, l *layerState, sp span, kv int) {
	g := &t.g
	s.keys, s.kp = t.packHead(s.keys, s.kp, l.qk[sp.row*t.QK+t.Q+kv*t.HD:], t.QK, sp.n)
	s.vals, s.vtp = t.packHead(s.vals, s.vtp, l.qkv[sp.row*t.QKV+t.QK+kv*t.HD:], t.QKV, sp.n)
	s.scores, s.dProbs = grow(s.scores, attendRows*pad(sp.n)), grow(s.dProbs, attendRows*pad(sp.n))
	for r := sp.row; r < sp.row+sp.n; r++ {
		clear(g.dqk[r*t.QK+t.Q+kv*t.HD:][:t.HD])
		clear(g.dqkv[r*t.QKV+t.QK+kv*t.HD:][:t.HD])
	}
	for gq := range t.group {
		for first := 0; first < sp.n; first += attendRows {
			t.attendGrad(s, l, sp, kv, kv*t.group+gq, first)
		}
	}
}

func (t *Trainer) attendGrad(s *scratch, l *layerState, sp span, kv, h, first int) {
	g := &t.g
	m, row := min(attendRows, sp.n-first), sp.row+first
	keys := first + m
	ld := pad(keys)
	q, dOut := l.qk[row*t.QK+h*t.HD:], g.dAttn[row*t.Q+h*t.HD:]
	for p := range ld / padTo {
		t.k.GemmPanel(m, t.HD, q, t.QK, 1, s.kp[p], padTo, s.scores[p*padTo:], ld, false)
		t.k.GemmPanel(m, t.HD, dOut, t.Q, 1, s.vtp[p], padTo, s.dProbs[p*padTo:], ld, false)
	}
	for i := range m {
		at := (row+i)*t.cfg.Heads + h
		probs, dp := s.scores[i*ld:][:ld], s.dProbs[i*ld:][:ld]
		n := first + i + 1
		end := (n + kernel.Lanes - 1) / kernel.Lanes * kernel.Lanes
		fill(probs[n:end], float32(math.Inf(-1)))
		t.k.ExpSum(probs[:end], probs[:end], l.max[at])
		clear(probs[end:])
		t.k.Scale(probs, probs, l.inv[at])
		delta := t.k.Dot(dOut[i*t.Q:][:t.HD], l.attn[(row+i)*t.Q+h*t.HD:][:t.HD])
		t.k.SoftmaxGrad(dp, probs, dp, delta)
	}
	k, dk := l.qk[sp.row*t.QK+t.Q+kv*t.HD:], g.dqk[sp.row*t.QK+t.Q+kv*t.HD:]
	dv := g.dqkv[sp.row*t.QKV+t.QK+kv*t.HD:]
	t.k.Gemm(m, t.HD, keys, s.dProbs, ld, 1, k, padTo, t.QK, g.dqk[row*t.QK+h*t.HD:], t.QK, false)
	t.k.Gemm(keys, t.HD, m, s.dProbs, 1, ld, q, padTo, t.QK, dk, t.QK, true)
	t.k.Gemm(keys, t.HD, m, s.scores, 1, ld, dOut, padTo, t.Q, dv, t.QKV, true)
}
