package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/steadyrl/steady/internal/rng"
)

// values returns n numbers of both signs over several magnitudes, with exact zeros and, if limits, extreme ones.
func values(seed string, n int, limits bool) []float32 {
	st := rng.New(1, rng.Init, seed, n)
	x := make([]float32, n)
	for i := range x {
		b := st.Block(uint64(i))
		x[i] = (float32(b[0])/(1<<31) - 1) * float32(int(1)<<(b[1]%6))
		switch {
		case b[2]%17 == 0:
			x[i] = 0
		case limits && b[2]%17 == 1:
			x[i] = float32(math.Inf(-1))
		case limits && b[2]%17 == 2:
			x[i] = []float32{88.2, 89, 500, -85.9, -86, -86.1, -700, 1e-30}[b[3]%8]
		}
	}
	return x
}

func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		b[i] = math.Float32bits(v)
	}
	return b
}

// compare runs f under every level and compares all the bits it returns with those of level Go.
func compare(t *testing.T, name string, f func(l Level) []float32) {
	t.Helper()
	want := bits(f(Go))
	for _, l := range Supported()[1:] {
		got := bits(f(l))
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s, %v: element %d = %v (%#x), Go gives %v (%#x)", name, l, i,
					math.Float32frombits(got[i]), got[i], math.Float32frombits(want[i]), want[i])
				break
			}
		}
	}
}

func TestGemmPanel_sameBitsOnEveryLevel(t *testing.T) {
	t.Parallel()
	st := rng.New(1, rng.Init, "shapes")
	for i := range 120 {
		at := func(j, n int) int { return st.IntN(uint64(8*i+j), n) }
		m, k := 1+at(0, 27), 1+at(1, 70)
		ars, acs := k+at(2, 5), 1
		if at(3, 2) == 1 {
			ars, acs = 1, m+at(2, 5)
		}
		bs, ldc, acc := Panel*(1+at(4, 3)), Panel+at(5, 9), at(6, 2) == 1
		a, b := values("a", (m-1)*ars+(k-1)*acs+1, false), values("b", k*bs, false)
		name := fmt.Sprintf("m=%d k=%d ars=%d acs=%d bs=%d ldc=%d acc=%v", m, k, ars, acs, bs, ldc, acc)
		run := func(l Level) []float32 {
			c := values("c", m*ldc, false)
			l.GemmPanel(m, k, a, ars, acs, b, bs, c, ldc, acc)
			return c
		}
		compare(t, name, run)
		// The Go twin itself against the definition: one chain with k ascending, nothing outside the tile touched.
		want := values("c", m*ldc, false)
		for r := range m {
			for j := range Panel {
				var sum float32
				if acc {
					sum = want[r*ldc+j]
				}
				for p := range k {
					sum += float32(a[r*ars+p*acs] * b[p*bs+j])
				}
				want[r*ldc+j] = sum
			}
		}
		if !slices.Equal(bits(run(Go)), bits(want)) {
			t.Errorf("%s: the Go kernel differs from the definition", name)
		}
	}
}

func TestVectors_sameBitsOnEveryLevel(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 16, 32, 48, 64, 208, 1024} {
		a, b, c, d := values("a", n, false), values("b", n, false), values("c", n, false), values("d", n, false)
		wild := values("wild", n, true)
		out := func(f func(y, z []float32)) []float32 {
			y, z := slices.Clone(c), slices.Clone(d)
			f(y, z)
			return append(y, z...)
		}
		tests := []struct {
			name string
			f    func(l Level) []float32
		}{
			{"Dot", func(l Level) []float32 { return []float32{l.Dot(a, b)} }},
			{"Max", func(l Level) []float32 { return []float32{l.Max(wild), l.Max(a)} }},
			{"ExpSum", func(l Level) []float32 {
				y := slices.Clone(c)
				return append(y, l.ExpSum(y, wild, 500))
			}},
			{"ExpSum of small numbers", func(l Level) []float32 { return []float32{l.ExpSum(slices.Clone(c), a, 0)} }},
			{"ExpEntropy", func(l Level) []float32 {
				y := slices.Clone(c)
				sum, weighted := l.ExpEntropy(y, wild, 500)
				return append(y, sum, weighted)
			}},
			{"Scale", func(l Level) []float32 { return out(func(y, _ []float32) { l.Scale(y, a, 0.3) }) }},
			{"Axpy", func(l Level) []float32 { return out(func(y, _ []float32) { l.Axpy(y, a, -1.7) }) }},
			{"Mul", func(l Level) []float32 { return out(func(y, _ []float32) { l.Mul(y, a, b) }) }},
			{"MulAcc", func(l Level) []float32 { return out(func(y, _ []float32) { l.MulAcc(y, a, b, 0.7) }) }},
			{"Norm", func(l Level) []float32 { return out(func(y, _ []float32) { l.Norm(y, a, b, 0.7) }) }},
			{"SiluMul", func(l Level) []float32 { return out(func(y, _ []float32) { l.SiluMul(y, b, a) }) }},
			{"SiluGrad", func(l Level) []float32 { return out(func(y, z []float32) { l.SiluGrad(y, z, a, b, a) }) }},
			{"SoftmaxGrad", func(l Level) []float32 { return out(func(y, _ []float32) { l.SoftmaxGrad(y, a, b, 0.2) }) }},
		}
		for _, tt := range tests {
			compare(t, fmt.Sprintf("%s n=%d", tt.name, n), tt.f)
		}
	}
}

func TestAdamW_sameBitsOnEveryLevelAndLength(t *testing.T) {
	t.Parallel()
	p := AdamParams{
		Beta1: 0.9, OneMinusBeta1: 0.1, Beta2: 0.999, OneMinusBeta2: 0.001, Rate: 3e-3,
		InvSqrtCorrection2: 31, Epsilon: 1e-8, Decay: 0.9999, GradScale: 0.37,
	}
	for _, n := range []int{1, 15, 16, 47, 160, 333} {
		compare(t, fmt.Sprintf("n=%d", n), func(l Level) []float32 {
			w, m, v, g := values("w", n, false), values("m", n, false), make([]float32, n), values("g", n, false)
			for range 3 {
				l.AdamW(w, m, v, g, &p)
			}
			return slices.Concat(w, m, v)
		})
	}
}

func TestExp_isAccurateAndBounded(t *testing.T) {
	t.Parallel()
	var worst, at float64
	for x := -86.0; x <= 88.3; x += 0.00137 {
		got, want := float64(expGo(float32(x))), math.Exp(float64(float32(x)))
		if e := math.Abs(got-want) / want; e > worst {
			worst, at = e, x
		}
	}
	// Two units in the last place of a float32.
	if worst > 2.4e-7 {
		t.Errorf("worst relative error %v at %v, want at most 2.4e-7", worst, at)
	}
	inf := float32(math.Inf(1))
	for _, tt := range []struct{ x, want float32 }{{-inf, 0}, {-86.01, 0}, {float32(math.NaN()), 0}, {0, 1}} {
		if got := expGo(tt.x); got != tt.want {
			t.Errorf("exp(%v) = %v, want %v", tt.x, got, tt.want)
		}
	}
	if got := expGo(inf); math.IsInf(float64(got), 0) || got < 2e38 {
		t.Errorf("exp(+Inf) = %v, want the finite value at the limit", got)
	}
}

func TestScalars_agreeWithMath(t *testing.T) {
	t.Parallel()
	st := rng.New(1, rng.Init, "scalars")
	near := func(name string, x, got, want float64) {
		if math.Abs(got-want) > 4e-15*max(1, math.Abs(want)) {
			t.Errorf("%s(%v) = %v, want %v", name, x, got, want)
		}
	}
	for i := range uint64(20000) {
		u := st.Uniform(i)
		x := math.Ldexp(1+u, int(i%200)-100)
		near("Log", x, Log(x), math.Log(x))
		y := (u - 0.5) * 60
		if got, want := Exp(y), math.Exp(y); math.Abs(got-want) > 4e-15*want {
			t.Errorf("Exp(%v) = %v, want %v", y, got, want)
		}
		z := float64(float32(u * 50000))
		s, c := SinCos(z)
		near("sin", z, s, math.Sin(z))
		near("cos", z, c, math.Cos(z))
	}
	near("Pow", 1e6, Pow(1e6, -0.375), math.Pow(1e6, -0.375))
}

// TestRopeTables_digest pins the tables: they enter every result, and no library function is behind them.
func TestRopeTables_digest(t *testing.T) {
	t.Parallel()
	cos, sin := RopeTables(1e6, 128, 512)
	h := sha256.New()
	for _, v := range [][]float32{cos, sin} {
		for _, x := range v {
			_ = binary.Write(h, binary.LittleEndian, math.Float32bits(x))
		}
	}
	if got, want := hex.EncodeToString(h.Sum(nil)[:8]), "8e78f412c6fee9b5"; got != want {
		t.Errorf("digest = %s, want %s", got, want)
	}
	if got, want := cos[100*64+3], float32(math.Cos(float64(float32(100)*float32(1/math.Pow(1e6, 6.0/128))))); math.Abs(float64(got-want)) > 1e-5 {
		t.Errorf("cos at position 100, pair 3 = %v, want %v", got, want)
	}
}

func TestGenerated_isCurrent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "run", "./gen", "-out", dir).CombinedOutput(); err != nil {
		t.Fatalf("go run ./gen: %v\n%s", err, out)
	}
	for _, name := range []string{"kernels_amd64.s", "stubs_amd64.go"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is not what gen writes: run go generate ./internal/engine/cpu/kernel", name)
		}
	}
}

func BenchmarkGemm(b *testing.B) {
	for _, s := range []struct{ m, k, n int }{{64, 128, 768}, {64, 384, 128}, {32, 128, 608}, {512, 256, 1024}} {
		a, w, c := values("a", s.m*s.k, false), values("b", s.k*s.n, false), make([]float32, s.m*s.n)
		for _, l := range Supported() {
			b.Run(fmt.Sprintf("%dx%dx%d/%v", s.m, s.k, s.n, l), func(b *testing.B) {
				for b.Loop() {
					l.Gemm(s.m, s.n, s.k, a, s.k, 1, w, Panel*s.k, Panel, c, s.n, false)
				}
				b.ReportMetric(2*float64(s.m*s.k*s.n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
