package eval

import (
	"math"
	"math/big"
	"testing"

	"github.com/steadyrl/steady/internal/rng"
)

// The product is the formula with binomials, computed exactly here, for every small case and for some that overflow floats.
func TestPassAt_isOneMinusTheShareOfWrongSubsets(t *testing.T) {
	t.Parallel()
	check := func(n, c, k int) {
		t.Helper()
		wrong := new(big.Rat).SetFrac(new(big.Int).Binomial(int64(n-c), int64(k)), new(big.Int).Binomial(int64(n), int64(k)))
		want, _ := new(big.Rat).Sub(big.NewRat(1, 1), wrong).Float64()
		if got := PassAt(n, c, k); !(math.Abs(got-want) <= 1e-12) {
			t.Errorf("PassAt(%d, %d, %d) = %v, want %v", n, c, k, got, want)
		}
	}
	for n := 1; n <= 14; n++ {
		for k := 1; k <= n; k++ {
			for c := 0; c <= n; c++ {
				check(n, c, k)
			}
		}
	}
	for _, n := range []int{1000, 9999} {
		for _, c := range []int{0, 1, n / 3, n - 1, n} {
			for _, k := range []int{1, 10, n / 2, n} {
				check(n, c, k)
			}
		}
	}
}

// Of k responses drawn from a pool at random the share with a right one is what PassAt estimates: its mean over pools is 1-(1-p)^k.
func TestPassAt_isUnbiased(t *testing.T) {
	t.Parallel()
	const n, p = 10, 0.3
	for _, k := range []int{1, 3, 10} {
		var mean float64
		for c := 0; c <= n; c++ {
			ways, _ := new(big.Float).SetInt(new(big.Int).Binomial(n, int64(c))).Float64()
			mean += ways * math.Pow(p, float64(c)) * math.Pow(1-p, float64(n-c)) * PassAt(n, c, k)
		}
		if want := 1 - math.Pow(1-p, float64(k)); math.Abs(mean-want) > 1e-12 {
			t.Errorf("pass@%d: mean %v, want %v", k, mean, want)
		}
	}
}

func TestMean_isWilsonOfOneResponse(t *testing.T) {
	t.Parallel()
	// Published values of Wilson's interval for 0, 1, 5 and 10 of 10.
	for right, want := range map[int][2]float64{0: {0, 0.2775}, 1: {0.0179, 0.4042}, 5: {0.2366, 0.7634}, 10: {0.7225, 1}} {
		x := make([]float64, 10)
		for i := range right {
			x[i] = 1
		}
		got := mean(x, 1)
		if got.Value != float64(right)/10 || math.Abs(got.Low-want[0]) > 5e-5 || math.Abs(got.High-want[1]) > 5e-5 {
			t.Errorf("%d of 10: %+v, want %v", right, got, want)
		}
	}
}

// Whatever was seen, the interval holds the estimate, stays in [0, 1], has a width, and is no wider than that of one response.
func TestMean_boundsOfEveryInterval(t *testing.T) {
	t.Parallel()
	r := rng.New(1, rng.Corpus, "bounds")
	for trial := range 2000 {
		at := uint64(trial) * 1000
		x := make([]float64, 1+r.IntN(at, 40))
		n := 1 + r.IntN(at+1, 8)
		var p float64
		for i := range x {
			x[i] = float64(r.IntN(at+2+uint64(i), n+1)) / float64(n)
			if trial%5 == 0 {
				x[i] = x[0] // all alike
			}
			p += x[i] / float64(len(x))
		}
		got := mean(x, n)
		m := float64(len(x))
		widest := 2 * z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
		w := got.High - got.Low
		if !(0 <= got.Low && got.Low <= got.Value && got.Value <= got.High && got.High <= 1 && w > 0 && w <= widest+1e-12) {
			t.Fatalf("%v of %d responses: %+v, width %v, that of one response %v", x, n, got, w, widest)
		}
	}
}

// share is how many of 4000 simulated evaluations have an interval that holds the truth.
func share(truth float64, one func(r rng.Stream) Estimate) float64 {
	const trials = 4000
	held := 0
	for trial := range trials {
		if e := one(rng.New(7, rng.Corpus, "coverage", trial)); e.Low <= truth && truth <= e.High {
			held++
		}
	}
	return float64(held) / trials
}

// ability draws how likely a problem is to be solved: most are nearly never or nearly always, u is uniform.
func ability(u float64) float64 { return u * u * (3 - 2*u) }

// An interval of 95 % holds the truth in about 95 % of evaluations; 4000 of them leave a doubt of 1 %.
func TestMean_coversWhatItClaims(t *testing.T) {
	t.Parallel()
	const draws = 1 << 20
	for _, c := range []struct{ problems, n, k int }{{30, 1, 1}, {30, 4, 1}, {100, 8, 1}, {100, 8, 4}, {60, 4, 4}, {400, 2, 1}} {
		truth := 0.0
		for i := range 1 << 14 {
			p := ability((float64(i) + 0.5) / (1 << 14))
			truth += (1 - math.Pow(1-p, float64(c.k))) / (1 << 14)
		}
		got := share(truth, func(r rng.Stream) Estimate {
			x := make([]float64, c.problems)
			for i := range x {
				p, right := ability(r.Uniform(uint64(i))), 0
				for s := range c.n {
					if r.Uniform(draws+uint64(i*c.n+s)) < p {
						right++
					}
				}
				x[i] = PassAt(c.n, right, c.k)
			}
			return mean(x, c.n)
		})
		if got < 0.93 || got > 0.975 {
			t.Errorf("%+v: %.3f of the intervals hold the truth", c, got)
		}
	}
}

func TestDifference_coversWhatItClaims(t *testing.T) {
	t.Parallel()
	const draws, better = 1 << 20, 0.08
	for _, c := range []struct {
		problems, n int
		gain        float64
	}{{64, 1, 0}, {64, 1, better}, {64, 4, better}, {200, 1, 0}, {200, 8, better}} {
		// The second solves what the first does, and more: each response with the probability of the first and gain of the rest.
		truth := 0.0
		for i := range 1 << 14 {
			truth += c.gain * (1 - ability((float64(i)+0.5)/(1<<14))) / (1 << 14)
		}
		got := share(truth, func(r rng.Stream) Estimate {
			d := make([]float64, c.problems)
			for i := range d {
				p := ability(r.Uniform(uint64(i)))
				for s := range c.n {
					at := draws + 2*uint64(i*c.n+s)
					if r.Uniform(at) < p {
						d[i] -= 1 / float64(c.n)
					}
					if r.Uniform(at+1) < p+c.gain*(1-p) {
						d[i] += 1 / float64(c.n)
					}
				}
			}
			return difference(d)
		})
		if got < 0.93 || got > 0.985 {
			t.Errorf("%+v: %.3f of the intervals hold the truth", c, got)
		}
	}
}

func TestDifference_ofEqualPairsIsNoPoint(t *testing.T) {
	t.Parallel()
	for _, m := range []int{1, 10, 1000} {
		e := difference(make([]float64, m))
		if want := z / float64(m+2); e.Value != 0 || math.Abs(e.High-want) > 1e-12 || e.Low != -e.High {
			t.Errorf("%d pairs: %+v, want half a width of %v", m, e, want)
		}
	}
}

// Paired is the interval of Compare.
func TestPaired_isTheIntervalOfCompare(t *testing.T) {
	t.Parallel()
	for _, d := range [][]float64{{0}, {1, -1}, {1, 1, 0, 0}, {-1, -1, -1}} {
		e := Paired(d)
		if e != difference(d) || !(e.Low <= e.Value && e.Value <= e.High) || e.Low == e.High {
			t.Errorf("%v: %+v", d, e)
		}
	}
}
