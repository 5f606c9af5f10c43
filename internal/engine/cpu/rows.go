package cpu

import (
	"math"

	"github.com/steadyrl/steady/internal/engine/cpu/kernel"
)

// kBlock is the depth of a matrix product between visits of C; a panel of this depth stays in the first-level
// cache. Storing and reloading C is exact, so the value does not change results.
const kBlock = 256

// core computes rows of tokens under one set of weights. Sampler and trainer share it, which is why a token's
// log-probability has the same bits in both.
type core struct {
	*layout
	k        kernel.Level
	w        *packed
	cos, sin []float32 // [MaxPosition, HeadDim/2]
	bf16     bool      // see Precision; never in a trainer
}

// linear writes y [m, out] = x [m, in] W^T for parameter p; ldx and ldy are row strides.
func (c *core) linear(y []float32, ldy int, x []float32, ldx, m, p int) {
	c.product(y, ldy, x, ldx, m, c.params[p].out, c.params[p].in, c.w.forward[p])
	c.narrow(y, ldy, m, c.params[p].out)
}

// linearGrad writes dx [m, in] = dy [m, out] W for parameter p.
func (c *core) linearGrad(dx []float32, ldx int, dy []float32, ldy, m, p int) {
	c.product(dx, ldx, dy, ldy, m, c.params[p].in, c.params[p].out, c.w.backward[p])
}

func (c *core) product(y []float32, ldy int, x []float32, ldx, m, n, depth int, panels []float32) {
	for j := 0; j < n; j += padTo {
		for k0 := 0; k0 < depth; k0 += kBlock {
			c.k.GemmPanel(m, min(kBlock, depth-k0), x[k0:], ldx, 1, panels[j*depth+k0*padTo:], padTo, y[j:], ldy, k0 > 0)
		}
	}
}

// gradRows and gradDepth are the tile of weightGrad: packed strips of dY and X of this size share the first-level
// cache. They do not change results.
const gradRows, gradDepth = 64, 128

// weightGrad adds rows [first, first+m) of dW [out,in] += dY^T X over n rows in order; m <= gradRows, s is
// scratch of at least gradDepth*(gradRows+32). Both operands are copied strip by strip: their row strides are often
// large powers of two, which map to few cache sets.
func (c *core) weightGrad(dw []float32, in, first, m int, dy []float32, ldy int, x []float32, ldx, n int, s []float32) {
	a, b := s[:gradDepth*gradRows], s[gradDepth*gradRows:][:gradDepth*padTo]
	for k0 := 0; k0 < n; k0 += gradDepth {
		k := min(gradDepth, n-k0)
		for r := range k {
			copy(a[r*m:][:m], dy[(k0+r)*ldy+first:])
		}
		for j := 0; j < in; j += padTo {
			for r := range k {
				copy(b[r*padTo:][:padTo], x[(k0+r)*ldx+j:])
			}
			c.k.GemmPanel(m, k, a, 1, m, b, padTo, dw[first*in+j:], in, true)
		}
	}
}

// rms returns 1/sqrt(mean(x^2)+eps); n is the unpadded length.
func (c *core) rms(x []float32, n int) float32 {
	return 1 / float32(math.Sqrt(float64(c.k.Dot(x, x)/float32(n)+c.eps)))
}

// normRows writes y = RMSNorm(x)*w for m rows of width D; rstd [m] is saved for the backward pass.
//
// Source: Zhang and Sennrich 2019, equation 4.
func (c *core) normRows(y, x, rstd []float32, m, p int) {
	for i := range m {
		row := x[i*c.D:][:c.D]
		rstd[i] = c.rms(row, c.cfg.Hidden)
		c.k.Norm(y[i*c.D:][:c.D], row, c.w.rows[p], rstd[i])
	}
	c.narrow(y, c.D, m, c.D)
}

// heads normalises and rotates the query and key heads of one token at position pos: qk [QK] from qkv [QKV],
// with rstd [Heads+KVHeads] saved. Queries are scaled by 1/sqrt(head_dim).
//
// Source: Qwen3 (a norm per head before the rotation), Su et al. 2021 in the half-split convention of the
// Hugging Face library.
func (c *core) heads(qk, qkv, rstd []float32, pos, layer int) {
	half := c.cfg.HeadDim / 2
	cos, sin := c.cos[pos*half:][:half], c.sin[pos*half:][:half]
	for h := range c.cfg.Heads + c.cfg.KVHeads {
		w := c.w.rows[c.at(layer, pQNorm)]
		if h >= c.cfg.Heads {
			w = c.w.rows[c.at(layer, pKNorm)]
		}
		x, y := qkv[h*c.HD:][:c.HD], qk[h*c.HD:][:c.HD]
		rstd[h] = c.rms(x, c.cfg.HeadDim)
		c.k.Norm(y, x, w, rstd[h])
		lo, hi := y[:half], y[half:2*half]
		for i, co := range cos {
			a, b := lo[i], hi[i]
			lo[i] = float32(a*co) - float32(b*sin[i])
			hi[i] = float32(b*co) + float32(a*sin[i])
		}
		if h < c.cfg.Heads {
			c.k.Scale(y, y, c.qScale)
		}
		c.narrow(y, c.HD, 1, c.HD)
	}
}

// keyValues is the cache of one sequence and key/value head in pages of 32 tokens.
type keyValues struct {
	k      [][]float32 // per page: transposed keys [HD][32]
	v      [][]float32 // per page: values, row stride vs
	vs     int
	scores []float32 // scratch of the caller, at least rows * padded context
}

// attend computes causal attention of m query rows against pages 0.. of one key/value head.
//
// Shapes: row i is q[i*ldq:][:HD] at position pos+i*step; out likewise with ldo. rowMax and rowInv, if not nil,
// receive the softmax's shift and 1/sum at i*stat.
// Numerics: the sum of exponentials runs over lanes, the weighted values over keys in order; division comes last.
func (c *core) attend(kv keyValues, q []float32, ldq, m, pos, step int, out []float32, ldo int, rowMax, rowInv []float32, stat int) {
	keys := pos + (m-1)*step + 1
	ld := pad(keys)
	for p := range ld / padTo {
		c.k.GemmPanel(m, c.HD, q, ldq, 1, kv.k[p], padTo, kv.scores[p*padTo:], ld, false)
	}
	var inverse [attendRows]float32
	for i := range m {
		row := kv.scores[i*ld:][:ld]
		n := pos + i*step + 1
		shift, sum := c.softmaxRow(row, n)
		inverse[i] = 1 / sum
		if rowMax != nil {
			rowMax[i*stat], rowInv[i*stat] = shift, inverse[i]
		}
	}
	for p := range ld / padTo {
		n := min(padTo, keys-p*padTo)
		for j := 0; j < c.HD; j += padTo {
			c.k.GemmPanel(m, n, kv.scores[p*padTo:], ld, 1, kv.v[p][j:], kv.vs, out[j:], ldo, p > 0)
		}
	}
	for i := range m {
		row := out[i*ldo:][:c.HD]
		c.k.Scale(row, row, inverse[i])
	}
	c.narrow(out, ldo, m, c.HD)
}

// softmaxRow replaces the first n scores of a row by exponentials and the rest by zeros.
func (c *core) softmaxRow(row []float32, n int) (shift, sum float32) {
	end := (n + kernel.Lanes - 1) / kernel.Lanes * kernel.Lanes
	fill(row[n:end], float32(math.Inf(-1)))
	shift = c.k.Max(row[:end])
	sum = c.k.ExpSum(row[:end], row[:end], shift)
	clear(row[end:])
	return shift, sum
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// attendRows is the number of query rows of one attention block.
const attendRows = 32

// mlp computes the second half of a layer for m rows: x1 = x0 + attn Wo^T, then out = x1 + MLP(RMSNorm(x1)).
// All buffers are the caller's; tmp is [m,D] scratch.
func (c *core) mlp(out, x0, attn, x1, rstd, n2, gu, h, tmp []float32, m, layer int) {
	c.linear(tmp, c.D, attn, c.Q, m, c.at(layer, pOut))
	copy(x1[:m*c.D], x0)
	c.k.Axpy(x1[:m*c.D], tmp, 1)
	c.narrow(x1, c.D, m, c.D)
	c.normRows(n2, x1, rstd, m, c.at(layer, pNorm2))
	c.linear(gu, 2*c.F, n2, c.D, m, c.at(layer, pGateUp))
	for i := range m {
		row := gu[i*2*c.F:]
		c.k.SiluMul(h[i*c.F:][:c.F], row[:c.F], row[c.F:])
	}
	c.narrow(h, c.F, m, c.F)
	c.linear(tmp, c.D, h, c.F, m, c.at(layer, pDown))
	copy(out[:m*c.D], x1)
	c.k.Axpy(out[:m*c.D], tmp, 1)
	c.narrow(out, c.D, m, c.D)
}

// distribution is the softmax of one row of logits.
type distribution struct {
	shift, sum float32 // largest logit, sum of exponentials after the shift
	logSum     float32 // log of sum
	entropy    float32 // nats
}

// softmax scales the row of V logits by 1/temperature, writes exp(z-shift) to e and returns the normalisers.
// ok is false if a logit is not finite.
func (c *core) softmax(z, e []float32, temperature float64) (d distribution, ok bool) {
	if temperature != 1 {
		c.k.Scale(z, z, float32(1/temperature))
	}
	if s := c.k.Dot(z, z); s-s != 0 {
		return d, false
	}
	fill(z[c.cfg.Vocab:], float32(math.Inf(-1)))
	d.shift = c.k.Max(z)
	var weighted float32
	d.sum, weighted = c.k.ExpEntropy(e, z, d.shift)
	d.logSum = float32(kernel.Log(float64(d.sum)))
	d.entropy = d.logSum - weighted/d.sum
	return d, true
}

// logProb returns the natural logarithm of the probability of a logit z of the row.
func (d distribution) logProb(z float32) float32 { return (z - d.shift) - d.logSum }
