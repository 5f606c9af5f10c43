//go:build !amd64 || purego

package kernel

// detect reports that only the Go level exists in this build, so none of the functions below is ever reached.
func detect() Level { return Go }

func gemmAsm(_ Level, m, k int, a []float32, ars, acs int, b []float32, bs int, c []float32, ldc int, acc bool) {
	gemmGo(m, k, a, ars, acs, b, bs, c, ldc, acc)
}
func dotAsm(_ Level, a, b []float32) float32                       { return dotGo(a, b) }
func maxAsm(_ Level, a []float32) float32                          { return maxGo(a) }
func expSumAsm(_ Level, dst, src []float32, shift float32) float32 { return expSumGo(dst, src, shift) }
func scaleAsm(_ Level, y, x []float32, s float32)                  { scaleGo(y, x, s) }
func axpyAsm(_ Level, y, x []float32, s float32)                   { axpyGo(y, x, s) }
func mulAsm(_ Level, y, a, b []float32)                            { mulGo(y, a, b) }
func mulAccAsm(_ Level, y, a, b []float32, s float32)              { mulAccGo(y, a, b, s) }
func normAsm(_ Level, y, x, w []float32, r float32)                { normGo(y, x, w, r) }
func siluMulAsm(_ Level, h, g, u []float32)                        { siluMulGo(h, g, u) }
func siluGradAsm(_ Level, dg, du, dh, g, u []float32)              { siluGradGo(dg, du, dh, g, u) }
func softmaxGradAsm(_ Level, ds, p, dp []float32, delta float32)   { softmaxGradGo(ds, p, dp, delta) }
func adamWAsm(_ Level, w, m, v, g []float32, p *AdamParams)        { adamWGo(w, m, v, g, p) }
func expEntropyAsm(_ Level, dst, src []float32, shift float32) (sum, weighted float32) {
	return expEntropyGo(dst, src, shift)
}
