package kernel

import "math"

// The float64 functions below use only +, -, * and / with a conversion around each product, so they give the
// same bits on every architecture. Their relative error is about 1e-15, far below a float32 rounding step.

const (
	ln2Hi = 6.93147180369123816490e-01 // the upper 32 bits of ln 2: an integer multiple below 2^20 is exact
	ln2Lo = 1.90821492927058770002e-10
)

// Log returns the natural logarithm of a normal, positive x.
func Log(x float64) float64 {
	b := math.Float64bits(x)
	e := int(b>>52) - 1023
	f := math.Float64frombits(b&(1<<52-1) | 1023<<52)
	if f > math.Sqrt2 {
		f /= 2
		e++
	}
	// ln f = 2 atanh(s) with s = (f-1)/(f+1), |s| < 0.172: eleven terms reach 1e-18.
	s := (f - 1) / (f + 1)
	s2 := s * s
	var p float64
	for k := 21; k >= 1; k -= 2 {
		p = float64(p*s2) + 1/float64(k)
	}
	return float64(float64(e)*ln2Hi) + (float64(2*s*p) + float64(float64(e)*ln2Lo))
}

// Exp returns e^x for |x| < 700.
func Exp(x float64) float64 {
	n := math.Floor(float64(x*math.Log2E) + 0.5)
	r := x - float64(n*ln2Hi)
	r -= float64(n * ln2Lo)
	p := 1.0
	for k := 16; k >= 1; k-- {
		p = float64(p*r)/float64(k) + 1
	}
	return p * math.Float64frombits(uint64(int64(n)+1023)<<52)
}

// Pow returns x^y for a normal, positive x and |y ln x| < 700.
func Pow(x, y float64) float64 { return Exp(float64(y * Log(x))) }

// The parts of pi/2: the first has 33 significant bits, so a product with an integer below 2^20 is exact.
const (
	piHalf1 = 1.57079632673412561417e+00
	piHalf2 = 6.07710050630396597660e-11
	piHalf3 = 2.02226624879595063154e-21
)

// SinCos returns the sine and cosine of x for |x| < 2^20.
func SinCos(x float64) (sin, cos float64) {
	n := math.Floor(float64(x*(2/math.Pi)) + 0.5)
	r := x - float64(n*piHalf1)
	r -= float64(n * piHalf2)
	r -= float64(n * piHalf3)
	r2 := r * r
	s, c := 1.0, 1.0
	for k := 20; k >= 2; k -= 2 {
		s = 1 - float64(r2*s)/float64(k*(k+1))
		c = 1 - float64(r2*c)/float64(k*(k-1))
	}
	s *= r
	switch int64(n) & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	}
	return -c, s
}

// RopeTables returns cos and sin [positions*half] of the rotary embedding: the angle of pair i at position p
// is p * theta^(-2i/headDim), half = headDim/2. Frequency and angle round to float32 as in the Hugging Face
// library, so the tables follow its models.
func RopeTables(theta float64, headDim, positions int) (cos, sin []float32) {
	half := headDim / 2
	cos, sin = make([]float32, positions*half), make([]float32, positions*half)
	for i := range half {
		freq := 1 / float32(Pow(theta, float64(float32(2*i)/float32(headDim))))
		for p := range positions {
			s, c := SinCos(float64(float32(p) * freq))
			cos[p*half+i], sin[p*half+i] = float32(c), float32(s)
		}
	}
	return cos, sin
}
