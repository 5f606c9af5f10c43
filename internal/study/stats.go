package study

import (
	"math"
	"slices"
)

// Interval is a 95 % interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Around reports whether v lies in the interval.
func (i Interval) Around(v float64) bool { return i.Low <= v && v <= i.High }

// both is the smallest interval that holds both.
func both(a, b Interval) Interval { return Interval{min(a.Low, b.Low), max(a.High, b.High)} }

// sample is one seed: a number for each problem, in the order of ids.
type sample struct {
	ids    []string
	values []float64
}

func (s sample) mean() float64 {
	sum := 0.0
	for _, v := range s.values {
		sum += v
	}
	return sum / float64(len(s.values))
}

// z is the 97.5 % quantile of the normal distribution.
const z = 1.959963984540054

// overProblems is the interval of the mean of paired differences in [-1, 1], averaged over seeds, when the problems are drawn again and the trained
// models stay: it says nothing about other seeds.
//
// It is the interval of Agresti and Min (2005) in each seed, as steady eval has it: two problems more, half of one for each way a pair of
// right and wrong can end, so that it is no point where all pairs agree. A problem that several seeds have is one draw: its
// deviations are added before they are squared.
func overProblems(seeds []sample) Interval {
	n := float64(len(seeds))
	mid, variance := 0.0, 0.0
	shared := map[string]float64{} // weighted deviation of a problem
	var order []string
	for _, s := range seeds {
		m := float64(len(s.values)) + 2
		sum := 0.0
		for _, v := range s.values {
			sum += v
		}
		centre := sum / m
		mid += centre / n
		for i, v := range s.values {
			if _, ok := shared[s.ids[i]]; !ok {
				order = append(order, s.ids[i])
			}
			shared[s.ids[i]] += (v - centre) / (n * m)
		}
		variance += (1 + 2*centre*centre) / (n * m * n * m)
	}
	for _, id := range order { // in one order, so that the sum has the same bits each time
		variance += shared[id] * shared[id]
	}
	half := z * math.Sqrt(variance)
	return Interval{max(-1, mid-half), min(1, mid+half)}
}

// overSeeds is Student's interval of the mean of the seeds' means: what another seed, with problems of its own, would give. It takes the means
// for draws of one normal distribution. ok is false for one seed, which says nothing about others.
func overSeeds(means []float64, low, high float64) (i Interval, ok bool) {
	n := float64(len(means))
	if n < 2 {
		return Interval{}, false
	}
	mean, ss := average(means), 0.0
	for _, v := range means {
		ss += (v - mean) * (v - mean)
	}
	half := tQuantile(len(means)-1) * math.Sqrt(ss/(n-1)/n)
	return Interval{max(low, mean-half), min(high, mean+half)}, true
}

// share is the interval of a mean of numbers in [0, 1], averaged over seeds, when the problems are drawn again: Wilson's score interval for as many
// problems of right or wrong as would have the variance seen, at most those that there are. A problem that several seeds have is
// one draw.
func share(seeds []sample) Interval {
	n, p, count := float64(len(seeds)), 0.0, 0.0
	for _, s := range seeds {
		p += s.mean() / n
		count += float64(len(s.values))
	}
	shared := map[string]float64{}
	var order []string
	for _, s := range seeds {
		mean := s.mean()
		for i, v := range s.values {
			if _, ok := shared[s.ids[i]]; !ok {
				order = append(order, s.ids[i])
			}
			shared[s.ids[i]] += (v - mean) / (n * float64(len(s.values)))
		}
	}
	variance := 0.0
	for _, id := range order {
		variance += shared[id] * shared[id]
	}
	size := count
	if variance > 0 {
		size = min(count, p*(1-p)/variance)
	}
	mid := (p + z*z/(2*size)) / (1 + z*z/size)
	half := z / (1 + z*z/size) * math.Sqrt(p*(1-p)/size+z*z/(4*size*size))
	return Interval{min(p, max(0, mid-half)), max(p, min(1, mid+half))}
}

func average(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// tQuantile returns the 97.5 % quantile of Student's distribution: the t at which its distribution function is 0.975, by bisection.
func tQuantile(df int) float64 {
	lo, hi := 1.0, 13.0 // that of one degree of freedom is 12.706
	for range 60 {
		mid := (lo + hi) / 2
		if tailOfT(mid, df) > 0.025 {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

// tailOfT returns the probability of more than t >= 0, by the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4.
func tailOfT(t float64, df int) float64 {
	v := float64(df)
	theta := math.Atan(t / math.Sqrt(v))
	cos2 := math.Cos(theta) * math.Cos(theta)
	sum := 0.0
	if df%2 == 1 {
		term := math.Cos(theta)
		for k := 1; k <= df-2; k += 2 {
			sum += term
			term *= cos2 * float64(k+1) / float64(k+2)
		}
		return 0.5 - (theta+math.Sin(theta)*sum)/math.Pi
	}
	term := 1.0
	for k := 0; k <= df-2; k += 2 {
		sum += term
		term *= cos2 * float64(k+1) / float64(k+2)
	}
	return 0.5 - math.Sin(theta)*sum/2
}
