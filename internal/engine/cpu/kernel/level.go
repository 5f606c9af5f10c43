package kernel

import (
	"os"
	"sync"
)

// Panel is the width of the matrix micro-kernel: columns of B and C come in groups of 32.
const Panel = 32

// Lanes is the number of strided partial sums of a row reduction; vector lengths are multiples of it.
const Lanes = 16

// EnvLevel names the environment variable that lowers the choice of Best: avx512, avx2 or go.
const EnvLevel = "STEADY_CPU_KERNELS"

// Level is an instruction set. All levels give the same bits.
type Level int

// The levels, slowest first. Go is the zero value and works everywhere.
const (
	Go Level = iota
	AVX2
	AVX512
)

// String returns the name that EnvLevel uses.
func (l Level) String() string {
	switch l {
	case AVX512:
		return "avx512"
	case AVX2:
		return "avx2"
	case Go:
		return "go"
	}
	return "unknown"
}

// Supported lists the levels that this build and machine can run, slowest first.
func Supported() []Level {
	levels := []Level{Go}
	for l := AVX2; l <= detected(); l++ {
		levels = append(levels, l)
	}
	return levels
}

var detected = sync.OnceValue(detect)

// Best returns the fastest level of this machine, or the one that EnvLevel names if it is slower. Any other
// value of the variable is ignored.
var Best = sync.OnceValue(func() Level {
	best := detected()
	for l := Go; l < best; l++ {
		if l.String() == os.Getenv(EnvLevel) {
			return l
		}
	}
	return best
})

// GemmPanel computes C = A B, or C += A B if acc, for one panel of 32 columns.
//
// Shapes: element (i,p) of A [m,k] is a[i*ars+p*acs]; row p of B is b[p*bs:][:32]; row i of C is c[i*ldc:][:32].
// Aliasing: c overlaps neither a nor b.
func (l Level) GemmPanel(m, k int, a []float32, ars, acs int, b []float32, bs int, c []float32, ldc int, acc bool) {
	if m <= 0 {
		return
	}
	if k <= 0 {
		if !acc {
			for i := range m {
				clear(c[i*ldc:][:Panel])
			}
		}
		return
	}
	_, _, _ = a[(m-1)*ars+(k-1)*acs], b[(k-1)*bs+Panel-1], c[(m-1)*ldc+Panel-1]
	if l == Go {
		gemmGo(m, k, a, ars, acs, b, bs, c, ldc, acc)
		return
	}
	gemmAsm(l, m, k, a, ars, acs, b, bs, c, ldc, acc)
}

// Gemm runs GemmPanel over n/32 panels of C: panel j of B starts at b[j*bps]. Packed matrices have bps = 32*k
// and bs = 32, row-major ones bps = 32 and bs = the row stride.
func (l Level) Gemm(m, n, k int, a []float32, ars, acs int, b []float32, bps, bs int, c []float32, ldc int, acc bool) {
	for j := 0; j < n/Panel; j++ {
		l.GemmPanel(m, k, a, ars, acs, b[j*bps:], bs, c[j*Panel:], ldc, acc)
	}
}

// Dot returns the sum of a[i]*b[i].
func (l Level) Dot(a, b []float32) float32 {
	b = b[:len(a)]
	if l == Go || len(a) == 0 {
		return dotGo(a, b)
	}
	return dotAsm(l, a, b)
}

// Max returns the largest element, never -0. The result is undefined if an element is NaN.
func (l Level) Max(a []float32) float32 {
	var m float32
	if l == Go || len(a) == 0 {
		m = maxGo(a)
	} else {
		m = maxAsm(l, a)
	}
	if m == 0 {
		return 0
	}
	return m
}

// ExpSum writes dst[i] = exp(src[i]-shift) and returns the sum. Arguments below -86 give 0. Aliasing: dst may be src.
func (l Level) ExpSum(dst, src []float32, shift float32) float32 {
	dst = dst[:len(src)]
	if l == Go || len(src) == 0 {
		return expSumGo(dst, src, shift)
	}
	return expSumAsm(l, dst, src, shift)
}

// ExpEntropy is ExpSum that also returns the sum of exp(d)*d with d = src[i]-shift.
func (l Level) ExpEntropy(dst, src []float32, shift float32) (sum, weighted float32) {
	dst = dst[:len(src)]
	if l == Go || len(src) == 0 {
		return expEntropyGo(dst, src, shift)
	}
	return expEntropyAsm(l, dst, src, shift)
}

// Scale writes y = x*s. Aliasing: y may be x.
func (l Level) Scale(y, x []float32, s float32) {
	x = x[:len(y)]
	if l == Go || len(y) == 0 {
		scaleGo(y, x, s)
		return
	}
	scaleAsm(l, y, x, s)
}

// Axpy adds y += x*s.
func (l Level) Axpy(y, x []float32, s float32) {
	x = x[:len(y)]
	if l == Go || len(y) == 0 {
		axpyGo(y, x, s)
		return
	}
	axpyAsm(l, y, x, s)
}

// Mul writes y = a*b. Aliasing: y may be a or b.
func (l Level) Mul(y, a, b []float32) {
	a, b = a[:len(y)], b[:len(y)]
	if l == Go || len(y) == 0 {
		mulGo(y, a, b)
		return
	}
	mulAsm(l, y, a, b)
}

// MulAcc adds y += (a*b)*s.
func (l Level) MulAcc(y, a, b []float32, s float32) {
	a, b = a[:len(y)], b[:len(y)]
	if l == Go || len(y) == 0 {
		mulAccGo(y, a, b, s)
		return
	}
	mulAccAsm(l, y, a, b, s)
}

// Norm writes y = (x*r)*w, the last step of an RMS normalisation. Aliasing: y may be x.
func (l Level) Norm(y, x, w []float32, r float32) {
	x, w = x[:len(y)], w[:len(y)]
	if l == Go || len(y) == 0 {
		normGo(y, x, w, r)
		return
	}
	normAsm(l, y, x, w, r)
}

// SiluMul writes h = silu(g)*u with silu(g) = g/(1+exp(-g)).
func (l Level) SiluMul(h, g, u []float32) {
	g, u = g[:len(h)], u[:len(h)]
	if l == Go || len(h) == 0 {
		siluMulGo(h, g, u)
		return
	}
	siluMulAsm(l, h, g, u)
}

// SiluGrad writes the gradients of SiluMul: dg = dh*u*silu'(g), du = dh*silu(g). Aliasing: dg may be g, du may be u.
func (l Level) SiluGrad(dg, du, dh, g, u []float32) {
	du, dh, g, u = du[:len(dg)], dh[:len(dg)], g[:len(dg)], u[:len(dg)]
	if l == Go || len(dg) == 0 {
		siluGradGo(dg, du, dh, g, u)
		return
	}
	siluGradAsm(l, dg, du, dh, g, u)
}

// SoftmaxGrad writes ds = p*(dp-delta). Aliasing: ds may be p or dp.
func (l Level) SoftmaxGrad(ds, p, dp []float32, delta float32) {
	p, dp = p[:len(ds)], dp[:len(ds)]
	if l == Go || len(ds) == 0 {
		softmaxGradGo(ds, p, dp, delta)
		return
	}
	softmaxGradAsm(l, ds, p, dp, delta)
}

// AdamParams are the scalars of one AdamW step after bias correction.
type AdamParams struct {
	Beta1, OneMinusBeta1 float32
	Beta2, OneMinusBeta2 float32
	Rate                 float32 // learning rate / (1 - beta1^t)
	InvSqrtCorrection2   float32 // 1 / sqrt(1 - beta2^t)
	Epsilon              float32
	Decay                float32 // 1 - learning rate * weight decay
	GradScale            float32 // factor of global-norm clipping
}

// AdamW updates weights w and moments m, v in place from the gradient g; any length.
//
// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", algorithm 2.
func (l Level) AdamW(w, m, v, g []float32, p *AdamParams) {
	m, v, g = m[:len(w)], v[:len(w)], g[:len(w)]
	n := 0
	if l != Go && len(w) >= Lanes {
		n = len(w) / Lanes * Lanes
		adamWAsm(l, w[:n], m, v, g, p)
	}
	adamWGo(w[n:], m[n:], v[n:], g[n:], p)
}
