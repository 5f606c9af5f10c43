package kernel

import "math"

// The functions of this file are the exact twins of the assembly. Explicit float32 conversions keep the
// compiler from fusing a product into a sum.

func gemmGo(m, k int, a []float32, ars, acs int, b []float32, bs int, c []float32, ldc int, acc bool) {
	i := 0
	for ; i+4 <= m; i += 4 {
		for j := 0; j < Panel; j += 2 {
			gemmGo4x2(k, a[i*ars:], ars, acs, b[j:], bs, c[i*ldc+j:], ldc, acc)
		}
	}
	for ; i < m; i++ {
		for j := 0; j < Panel; j += 4 {
			gemmGo1x4(k, a[i*ars:], acs, b[j:], bs, c[i*ldc+j:], acc)
		}
	}
}

func gemmGo4x2(k int, a []float32, ars, acs int, b []float32, bs int, c []float32, ldc int, acc bool) {
	var c00, c01, c10, c11, c20, c21, c30, c31 float32
	c0, c1, c2, c3 := c[:2], c[ldc:ldc+2], c[2*ldc:2*ldc+2], c[3*ldc:3*ldc+2]
	if acc {
		c00, c01, c10, c11 = c0[0], c0[1], c1[0], c1[1]
		c20, c21, c30, c31 = c2[0], c2[1], c3[0], c3[1]
	}
	a0, a1, a2, a3 := a, a[ars:], a[2*ars:], a[3*ars:]
	for p, ai, bi := 0, 0, 0; p < k; p, ai, bi = p+1, ai+acs, bi+bs {
		b0, b1 := b[bi], b[bi+1]
		x0, x1, x2, x3 := a0[ai], a1[ai], a2[ai], a3[ai]
		c00 += float32(x0 * b0)
		c01 += float32(x0 * b1)
		c10 += float32(x1 * b0)
		c11 += float32(x1 * b1)
		c20 += float32(x2 * b0)
		c21 += float32(x2 * b1)
		c30 += float32(x3 * b0)
		c31 += float32(x3 * b1)
	}
	c0[0], c0[1], c1[0], c1[1] = c00, c01, c10, c11
	c2[0], c2[1], c3[0], c3[1] = c20, c21, c30, c31
}

func gemmGo1x4(k int, a []float32, acs int, b []float32, bs int, c []float32, acc bool) {
	var c0, c1, c2, c3 float32
	c = c[:4]
	if acc {
		c0, c1, c2, c3 = c[0], c[1], c[2], c[3]
	}
	for p, ai, bi := 0, 0, 0; p < k; p, ai, bi = p+1, ai+acs, bi+bs {
		x, bb := a[ai], b[bi:bi+4]
		c0 += float32(x * bb[0])
		c1 += float32(x * bb[1])
		c2 += float32(x * bb[2])
		c3 += float32(x * bb[3])
	}
	c[0], c[1], c[2], c[3] = c0, c1, c2, c3
}

// tree adds 16 lanes in the order that the assembly uses: halves, quarters, pairs, one.
func tree(l *[16]float32) float32 {
	for w := 8; w > 0; w /= 2 {
		for i := range w {
			l[i] += l[i+w]
		}
	}
	return l[0]
}

func dotGo(a, b []float32) float32 {
	var l [16]float32
	for i := 0; i+16 <= len(a); i += 16 {
		x, y := a[i:i+16], b[i:i+16]
		for j := range l {
			l[j] += float32(x[j] * y[j])
		}
	}
	return tree(&l)
}

func maxGo(a []float32) float32 {
	m := float32(math.Inf(-1))
	for _, x := range a {
		if x > m {
			m = x
		}
	}
	return m
}

func expSumGo(dst, src []float32, shift float32) float32 {
	var l [16]float32
	for i := 0; i+16 <= len(src); i += 16 {
		x, y := src[i:i+16], dst[i:i+16]
		for j := range l {
			e := expGo(x[j] - shift)
			y[j] = e
			l[j] += e
		}
	}
	return tree(&l)
}

func expEntropyGo(dst, src []float32, shift float32) (sum, weighted float32) {
	var l, w [16]float32
	for i := 0; i+16 <= len(src); i += 16 {
		x, y := src[i:i+16], dst[i:i+16]
		for j := range l {
			d := x[j] - shift
			e := expGo(d)
			y[j] = e
			l[j] += e
			if d >= expLow {
				w[j] += float32(e * d)
			}
		}
	}
	return tree(&l), tree(&w)
}

func scaleGo(y, x []float32, s float32) {
	for i := range y {
		y[i] = x[i] * s
	}
}

func axpyGo(y, x []float32, s float32) {
	for i := range y {
		y[i] += float32(x[i] * s)
	}
}

func mulGo(y, a, b []float32) {
	for i := range y {
		y[i] = a[i] * b[i]
	}
}

func mulAccGo(y, a, b []float32, s float32) {
	for i := range y {
		y[i] += float32(float32(a[i]*b[i]) * s)
	}
}

func normGo(y, x, w []float32, r float32) {
	for i := range y {
		y[i] = float32(x[i]*r) * w[i]
	}
}

func siluMulGo(h, g, u []float32) {
	for i := range h {
		s := 1 / (1 + expGo(0-g[i]))
		h[i] = float32(g[i]*s) * u[i]
	}
}

func siluGradGo(dg, du, dh, g, u []float32) {
	for i := range dg {
		s := 1 / (1 + expGo(0-g[i]))
		gs := float32(g[i] * s)
		t := s + float32(gs*(1-s))
		d, up := dh[i], u[i]
		du[i] = d * gs
		dg[i] = float32(d*up) * t
	}
}

func softmaxGradGo(ds, p, dp []float32, delta float32) {
	for i := range ds {
		ds[i] = p[i] * (dp[i] - delta)
	}
}

func adamWGo(w, m, v, g []float32, p *AdamParams) {
	for i := range w {
		x := g[i] * p.GradScale
		mm := float32(m[i]*p.Beta1) + float32(x*p.OneMinusBeta1)
		vv := float32(v[i]*p.Beta2) + float32(float32(x*p.OneMinusBeta2)*x)
		m[i], v[i] = mm, vv
		d := float32(sqrt32(vv)*p.InvSqrtCorrection2) + p.Epsilon
		w[i] = float32(w[i]*p.Decay) - float32(mm*p.Rate)/d
	}
}

func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// Limits of exp: below expLow the result is 0, above expHigh it stays at exp(expHigh). Within, the result and
// both of its factors are normal numbers.
const (
	expLow  = -86
	expHigh = 88.3
)

// The constants of exp: the argument is n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts so that the first
// product is exact; the polynomial of degree 6 in r has a relative error below 1e-7 (coefficients of the
// Cephes library's expf).
const (
	expLog2e = 1.44269504088896341
	expMagic = 12582912 // 1.5 * 2^23: adding it rounds to an integer
	expLn2Hi = 0.693359375
	expLn2Lo = -2.12194440e-4
	expP0    = 1.9875691500e-4
	expP1    = 1.3981999507e-3
	expP2    = 8.3334519073e-3
	expP3    = 4.1665795894e-2
	expP4    = 1.6666665459e-1
	expP5    = 5.0000001201e-1
)

func expGo(x float32) float32 {
	if !(x >= expLow) {
		return 0
	}
	if x > expHigh {
		x = expHigh
	}
	m := float32(x*expLog2e) + expMagic
	n := m - expMagic
	r := x - float32(n*expLn2Hi)
	r -= float32(n * expLn2Lo)
	p := float32(expP0*r) + expP1
	p = float32(p*r) + expP2
	p = float32(p*r) + expP3
	p = float32(p*r) + expP4
	p = float32(p*r) + expP5
	p = float32(p*float32(r*r)) + r
	p += 1
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(m)<<23)
}
