package ref

import "math"

// backward adds the gradient of all weights to g. dlogits maps a position to the gradient [V] of its logits.
func (p *params) backward(tr *trace, dlogits map[int][]float64, g *params) {
	c := p.cfg
	dx := make([][]float64, len(tr.tokens))
	for t := range dx {
		dx[t] = make([]float64, c.Hidden)
		if dz, ok := dlogits[t]; ok {
			dn := linearBack(p.head, g.head, tr.normed[t], dz)
			dx[t] = normBack(p.norm, g.norm, tr.last[t], dn, c.RMSEps)
		}
	}
	for i := len(p.layers) - 1; i >= 0; i-- {
		dx = p.layerBack(i, &tr.layers[i], dx, g)
	}
	for t, id := range tr.tokens {
		add(g.embed[int(id)*c.Hidden:(int(id)+1)*c.Hidden], dx[t])
	}
}

// layerBack returns the gradient of a layer's input, given that of its output.
func (p *params) layerBack(i int, lt *layerTrace, dout [][]float64, g *params) [][]float64 {
	c, l, gl := p.cfg, &p.layers[i], &g.layers[i]
	n := len(dout)
	dmid, datt := make([][]float64, n), make([][]float64, n)
	for t := range dout {
		dact := linearBack(l.down, gl.down, lt.act[t], dout[t])
		dgate, dup := make([]float64, c.Intermediate), make([]float64, c.Intermediate)
		for j, d := range dact {
			dgate[j] = d * lt.up[t][j] * siluGrad(lt.gate[t][j])
			dup[j] = d * silu(lt.gate[t][j])
		}
		dn := sum(linearBack(l.gate, gl.gate, lt.n2[t], dgate), linearBack(l.up, gl.up, lt.n2[t], dup))
		dmid[t] = sum(dout[t], normBack(l.norm2, gl.norm2, lt.mid[t], dn, c.RMSEps))
		datt[t] = linearBack(l.o, gl.o, lt.att[t], dmid[t])
	}
	dq, dk, dv := p.attendBack(lt, datt)
	din := make([][]float64, n)
	for t := range din {
		dq0 := p.normHeadsBack(l.qNorm, gl.qNorm, lt.q0[t], dq[t], t)
		dk0 := p.normHeadsBack(l.kNorm, gl.kNorm, lt.k0[t], dk[t], t)
		dn := linearBack(l.q, gl.q, lt.n1[t], dq0)
		add(dn, linearBack(l.k, gl.k, lt.n1[t], dk0))
		add(dn, linearBack(l.v, gl.v, lt.n1[t], dv[t]))
		din[t] = sum(dmid[t], normBack(l.norm1, gl.norm1, lt.in[t], dn, c.RMSEps))
	}
	return din
}

// normHeadsBack is the gradient of normHeads: turn back, then the norm of every head.
func (p *params) normHeadsBack(w, dw, x, dy []float64, t int) []float64 {
	var out []float64
	d := p.cfg.HeadDim
	for h := 0; h < len(x); h += d {
		dn := rotate(dy[h:h+d], -t, p.cfg.RopeTheta)
		out = append(out, normBack(w, dw, x[h:h+d], dn, p.cfg.RMSEps)...)
	}
	return out
}

// attendBack returns the gradients of q, k and v after norm and rotation.
func (p *params) attendBack(lt *layerTrace, datt [][]float64) (dq, dk, dv [][]float64) {
	c := p.cfg
	for range datt {
		dq = append(dq, make([]float64, c.Heads*c.HeadDim))
		dk = append(dk, make([]float64, c.KVHeads*c.HeadDim))
		dv = append(dv, make([]float64, c.KVHeads*c.HeadDim))
	}
	scale := 1 / math.Sqrt(float64(c.HeadDim))
	for h := range c.Heads {
		q0, k0 := h*c.HeadDim, p.kvHead(h)*c.HeadDim
		for t := range datt {
			w := lt.probs[h][t]
			dw := make([]float64, len(w))
			for s := range w {
				for d := range c.HeadDim {
					dw[s] += datt[t][q0+d] * lt.v[s][k0+d]
					dv[s][k0+d] += w[s] * datt[t][q0+d]
				}
			}
			for s, ds := range softmaxBack(w, dw) {
				for d := range c.HeadDim {
					dq[t][q0+d] += ds * scale * lt.k[s][k0+d]
					dk[s][k0+d] += ds * scale * lt.q[t][q0+d]
				}
			}
		}
	}
	return dq, dk, dv
}
