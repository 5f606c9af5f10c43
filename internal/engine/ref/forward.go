package ref

import "math"

// trace is everything that a forward pass computes for one sequence of T tokens.
type trace struct {
	tokens []int32
	layers []layerTrace
	last   [][]float64 // [T][C] output of the last layer
	normed [][]float64 // [T][C] after the final norm
}

// layerTrace holds a layer's values; the first index is always the position.
type layerTrace struct {
	in, n1   [][]float64   // [T][C]
	q0, k0   [][]float64   // [T][H D], [T][K D] projections
	q, k, v  [][]float64   // after norm and rotation (q, k)
	probs    [][][]float64 // [H][T][t+1] attention
	att, mid [][]float64   // [T][H D] heads' outputs, [T][C] after the first residual
	n2       [][]float64   // [T][C]
	gate, up [][]float64   // [T][F]
	act      [][]float64   // [T][F] silu(gate) up
}

// forward runs all layers over tokens. Position t sees tokens 0..t. Source: the Qwen3 model of the Hugging Face library.
func (p *params) forward(tokens []int32) *trace {
	c := p.cfg
	tr := &trace{tokens: tokens}
	x := make([][]float64, len(tokens))
	for t, id := range tokens {
		x[t] = p.embed[int(id)*c.Hidden : (int(id)+1)*c.Hidden]
	}
	for i := range p.layers {
		l := &p.layers[i]
		lt := layerTrace{in: x}
		for t := range x {
			n := norm(l.norm1, x[t], c.RMSEps)
			q, k := linear(l.q, n, c.Heads*c.HeadDim), linear(l.k, n, c.KVHeads*c.HeadDim)
			lt.n1 = append(lt.n1, n)
			lt.q0, lt.k0 = append(lt.q0, q), append(lt.k0, k)
			lt.q = append(lt.q, p.normHeads(l.qNorm, q, t))
			lt.k = append(lt.k, p.normHeads(l.kNorm, k, t))
			lt.v = append(lt.v, linear(l.v, n, c.KVHeads*c.HeadDim))
		}
		p.attend(&lt)
		x = make([][]float64, len(tokens))
		for t := range x {
			mid := sum(lt.in[t], linear(l.o, lt.att[t], c.Hidden))
			n := norm(l.norm2, mid, c.RMSEps)
			gate, up := linear(l.gate, n, c.Intermediate), linear(l.up, n, c.Intermediate)
			act := make([]float64, c.Intermediate)
			for j := range act {
				act[j] = silu(gate[j]) * up[j]
			}
			lt.mid, lt.n2 = append(lt.mid, mid), append(lt.n2, n)
			lt.gate, lt.up, lt.act = append(lt.gate, gate), append(lt.up, up), append(lt.act, act)
			x[t] = sum(mid, linear(l.down, act, c.Hidden))
		}
		tr.layers = append(tr.layers, lt)
	}
	tr.last = x
	for t := range x {
		tr.normed = append(tr.normed, norm(p.norm, x[t], c.RMSEps))
	}
	return tr
}

// logits returns [V] for the token after position t, not divided by a temperature.
func (p *params) logits(tr *trace, t int) []float64 { return linear(p.head, tr.normed[t], p.cfg.Vocab) }

// normHeads normalises every head of x and turns it by the position t.
func (p *params) normHeads(w, x []float64, t int) []float64 {
	var out []float64
	d := p.cfg.HeadDim
	for h := 0; h < len(x); h += d {
		out = append(out, rotate(norm(w, x[h:h+d], p.cfg.RMSEps), t, p.cfg.RopeTheta)...)
	}
	return out
}

// kvHead is the key/value head that query head h reads.
func (p *params) kvHead(h int) int { return h / (p.cfg.Heads / p.cfg.KVHeads) }

// attend fills probs and att: causal softmax(q k / sqrt D) v, head by head.
func (p *params) attend(lt *layerTrace) {
	c := p.cfg
	lt.att = make([][]float64, len(lt.q))
	for t := range lt.att {
		lt.att[t] = make([]float64, c.Heads*c.HeadDim)
	}
	for h := range c.Heads {
		q0, k0 := h*c.HeadDim, p.kvHead(h)*c.HeadDim
		var probs [][]float64
		for t := range lt.q {
			scores := make([]float64, t+1)
			for s := range scores {
				for d := range c.HeadDim {
					scores[s] += lt.q[t][q0+d] * lt.k[s][k0+d]
				}
				scores[s] /= math.Sqrt(float64(c.HeadDim))
			}
			w := softmax(scores)
			for s := range w {
				for d := range c.HeadDim {
					lt.att[t][q0+d] += w[s] * lt.v[s][k0+d]
				}
			}
			probs = append(probs, w)
		}
		lt.probs = append(lt.probs, probs)
	}
}
