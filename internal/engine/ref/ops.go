package ref

import "math"

// linear returns y = W x. Shapes: x [in]; w [out,in] row-major; y [out].
func linear(w, x []float64, out int) []float64 {
	in := len(x)
	y := make([]float64, out)
	for o := range y {
		for i, v := range x {
			y[o] += w[o*in+i] * v
		}
	}
	return y
}

// linearBack adds dy x^T to dw and returns dx = W^T dy.
func linearBack(w, dw, x, dy []float64) []float64 {
	in := len(x)
	dx := make([]float64, in)
	for o, d := range dy {
		for i, v := range x {
			dw[o*in+i] += d * v
			dx[i] += w[o*in+i] * d
		}
	}
	return dx
}

// norm returns y = w x / sqrt(mean(x^2) + eps). Source: Zhang and Sennrich 2019, eq. 4.
func norm(w, x []float64, eps float64) []float64 {
	r := inverseRMS(x, eps)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = w[i] * v * r
	}
	return y
}

func inverseRMS(x []float64, eps float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	return 1 / math.Sqrt(sum/float64(len(x))+eps)
}

// normBack adds to dw and returns dx of norm. With r = 1/rms and n the width,
// dx_i = r (w_i dy_i - x_i r^2 sum_j(w_j dy_j x_j) / n).
func normBack(w, dw, x, dy []float64, eps float64) []float64 {
	r := inverseRMS(x, eps)
	var dot float64
	for i, d := range dy {
		dot += w[i] * d * x[i]
		dw[i] += d * x[i] * r
	}
	dx := make([]float64, len(x))
	for i, d := range dy {
		dx[i] = r * (w[i]*d - x[i]*r*r*dot/float64(len(x)))
	}
	return dx
}

// rotate returns x [D] turned by position: the pair (i, i+D/2) by the angle position * theta^(-2i/D). A negative position
// turns back, which is also the gradient. Source: Su et al. 2021 in the half-split form of the Hugging Face library.
func rotate(x []float64, position int, theta float64) []float64 {
	half := len(x) / 2
	y := make([]float64, len(x))
	for i := range half {
		sin, cos := math.Sincos(float64(position) * math.Pow(theta, -float64(2*i)/float64(len(x))))
		y[i] = x[i]*cos - x[i+half]*sin
		y[i+half] = x[i+half]*cos + x[i]*sin
	}
	return y
}

// softmax returns the probabilities of z.
func softmax(z []float64) []float64 {
	p := logSoftmax(z)
	for i := range p {
		p[i] = math.Exp(p[i])
	}
	return p
}

// logSoftmax returns z - log sum exp z.
func logSoftmax(z []float64) []float64 {
	top := math.Inf(-1)
	for _, v := range z {
		top = max(top, v)
	}
	var sum float64
	for _, v := range z {
		sum += math.Exp(v - top)
	}
	lse := top + math.Log(sum)
	out := make([]float64, len(z))
	for i, v := range z {
		out[i] = v - lse
	}
	return out
}

// softmaxBack returns dz = p (dp - sum p dp).
func softmaxBack(p, dp []float64) []float64 {
	var dot float64
	for i := range p {
		dot += p[i] * dp[i]
	}
	dz := make([]float64, len(p))
	for i := range p {
		dz[i] = p[i] * (dp[i] - dot)
	}
	return dz
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// silu is x sigmoid(x); siluGrad its derivative.
func silu(x float64) float64 { return x * sigmoid(x) }

func siluGrad(x float64) float64 {
	s := sigmoid(x)
	return s * (1 + x*(1-s))
}

// add adds b to a.
func add(a, b []float64) {
	for i, v := range b {
		a[i] += v
	}
}

func sum(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}
