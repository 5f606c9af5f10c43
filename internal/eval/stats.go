package eval

import (
	"math"
	"slices"
)

// Estimate is a mean over problems with its 95 % interval.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// PassAt is the unbiased estimate, from n responses of which c are right, of the probability that at least one of k
// responses is right: 1 - C(n-c, k) / C(n, k). It wants 1 <= k <= n and 0 <= c <= n.
func PassAt(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	// C(n-c, k) / C(n, k) is the product of (i-k)/i for i from n-c+1 to n: factors in [0, 1), none of them large.
	wrong := 1.0
	for i := n - c + 1; i <= n; i++ {
		wrong *= float64(i-k) / float64(i)
	}
	return 1 - wrong
}

// z is the 97.5 % quantile of the normal distribution.
const z = 1.959963984540054

// mean estimates the mean of a population of problems from those in x, each in [0, 1] and the average of at most responses draws.
//
// The interval is Wilson's score interval for as many problems, of right or wrong, as would have the variance seen:
// len(x) p(1-p) / var(x). That is len(x) itself, and so Wilson's interval, if every x is 0 or 1, and also if all are equal to 0 or
// to 1; it is more where x varies less. It is never more than all responses together: even problems that are all alike
// leave the luck of each draw.
func mean(x []float64, responses int) Estimate {
	m := float64(len(x))
	p := average(x)
	n := m
	if slices.ContainsFunc(x, func(v float64) bool { return v != 0 && v != 1 }) {
		var ss float64
		for _, v := range x {
			ss += (v - p) * (v - p)
		}
		n = max(m, min(m*float64(max(responses, 1)), m*p*(1-p)/(ss/m)))
	}
	mid := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	// At 0 and 1 the end is exact, but rounding may miss it.
	return Estimate{Value: p, Low: min(p, max(0, mid-half)), High: max(p, min(1, mid+half))}
}

// difference estimates the mean of a population of paired differences from those in d, each in [-1, 1].
//
// The interval is that of Agresti and Min (2005) for pairs of right and wrong: that of the normal distribution after two more
// problems were added, half of one for each way in which a pair can end. So it does not shrink to a point where all pairs agree.
// For pairs of averages it is used alike.
func difference(d []float64) Estimate {
	m := float64(len(d)) + 2
	sum, square := 0.0, 1.0 // of the added ones: half a 1 and half a -1
	for _, v := range d {
		sum += v
		square += v * v
	}
	mid := sum / m
	half := z * math.Sqrt((square/m-mid*mid)/m)
	value := average(d)
	return Estimate{Value: value, Low: min(value, max(-1, mid-half)), High: max(value, min(1, mid+half))}
}

// Paired is the mean of paired differences, each in [-1, 1], with the interval that Compare gives. It wants at least one.
func Paired(d []float64) Estimate { return difference(d) }

func average(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// Mean is the mean over problems of x with its 95 % interval, as in results of an evaluation: each value is in [0, 1] and the average of at most responses
// draws. x must not be empty.
func Mean(x []float64, responses int) Estimate { return mean(x, responses) }

// Difference is the mean of paired differences in [-1, 1], one a problem, with its 95 % interval. d must not be empty.
func Difference(d []float64) Estimate { return difference(d) }
