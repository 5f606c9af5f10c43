//go:build amd64 && !purego

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// detect returns the best level that processor and operating system support; x/sys/cpu checks the saved state.
func detect() Level {
	x := &cpu.X86
	switch {
	case x.HasAVX512F && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX2:
		return AVX512
	case x.HasAVX2:
		return AVX2
	}
	return Go
}

// The functions below are called with at least one element and never with level Go.

func gemmAsm(l Level, m, k int, a []float32, ars, acs int, b []float32, bs int, c []float32, ldc int, acc bool) {
	if l == AVX512 {
		gemmAVX512(m, k, &a[0], 4*ars, 4*acs, &b[0], 4*bs, &c[0], 4*ldc, acc)
		return
	}
	gemmAVX2(m, k, &a[0], 4*ars, 4*acs, &b[0], 4*bs, &c[0], 4*ldc, acc)
}

func dotAsm(l Level, a, b []float32) float32 {
	if l == AVX512 {
		return dotAVX512(&a[0], &b[0], len(a))
	}
	return dotAVX2(&a[0], &b[0], len(a))
}

func maxAsm(l Level, a []float32) float32 {
	if l == AVX512 {
		return maxAVX512(&a[0], len(a))
	}
	return maxAVX2(&a[0], len(a))
}

func expSumAsm(l Level, dst, src []float32, shift float32) float32 {
	if l == AVX512 {
		return expSumAVX512(&dst[0], &src[0], len(src), shift)
	}
	return expSumAVX2(&dst[0], &src[0], len(src), shift)
}

func expEntropyAsm(l Level, dst, src []float32, shift float32) (sum, weighted float32) {
	if l == AVX512 {
		return expEntropyAVX512(&dst[0], &src[0], len(src), shift)
	}
	return expEntropyAVX2(&dst[0], &src[0], len(src), shift)
}

func scaleAsm(l Level, y, x []float32, s float32) {
	if l == AVX512 {
		scaleAVX512(&y[0], &x[0], len(y), s)
		return
	}
	scaleAVX2(&y[0], &x[0], len(y), s)
}

func axpyAsm(l Level, y, x []float32, s float32) {
	if l == AVX512 {
		axpyAVX512(&y[0], &x[0], len(y), s)
		return
	}
	axpyAVX2(&y[0], &x[0], len(y), s)
}

func mulAsm(l Level, y, a, b []float32) {
	if l == AVX512 {
		mulAVX512(&y[0], &a[0], &b[0], len(y))
		return
	}
	mulAVX2(&y[0], &a[0], &b[0], len(y))
}

func mulAccAsm(l Level, y, a, b []float32, s float32) {
	if l == AVX512 {
		mulAccAVX512(&y[0], &a[0], &b[0], len(y), s)
		return
	}
	mulAccAVX2(&y[0], &a[0], &b[0], len(y), s)
}

func normAsm(l Level, y, x, w []float32, r float32) {
	if l == AVX512 {
		normAVX512(&y[0], &x[0], &w[0], len(y), r)
		return
	}
	normAVX2(&y[0], &x[0], &w[0], len(y), r)
}

func siluMulAsm(l Level, h, g, u []float32) {
	if l == AVX512 {
		siluMulAVX512(&h[0], &g[0], &u[0], len(h))
		return
	}
	siluMulAVX2(&h[0], &g[0], &u[0], len(h))
}

func siluGradAsm(l Level, dg, du, dh, g, u []float32) {
	if l == AVX512 {
		siluGradAVX512(&dg[0], &du[0], &dh[0], &g[0], &u[0], len(dg))
		return
	}
	siluGradAVX2(&dg[0], &du[0], &dh[0], &g[0], &u[0], len(dg))
}

func softmaxGradAsm(l Level, ds, p, dp []float32, delta float32) {
	if l == AVX512 {
		softmaxGradAVX512(&ds[0], &p[0], &dp[0], len(ds), delta)
		return
	}
	softmaxGradAVX2(&ds[0], &p[0], &dp[0], len(ds), delta)
}

func adamWAsm(l Level, w, m, v, g []float32, p *AdamParams) {
	params := (*float32)(unsafe.Pointer(p))
	if l == AVX512 {
		adamWAVX512(&w[0], &m[0], &v[0], &g[0], params, len(w))
		return
	}
	adamWAVX2(&w[0], &m[0], &v[0], &g[0], params, len(w))
}
