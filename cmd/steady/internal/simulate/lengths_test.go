package simulate_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/steadyrl/steady/cmd/steady/internal/simulate"
	"github.com/steadyrl/steady/internal/fault"
)

func TestLengths_haveTheirMeanAndStayInBounds(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"lognormal:mean=2500,sigma=1,max=1000000", "lognormal:mean=300,sigma=0.5,problem=0.3,max=1000000", "pareto:mean=2500,shape=3,max=1000000", "fixed:mean=77,max=80",
	} {
		l, err := simulate.ParseLengths(text)
		if err != nil {
			t.Fatal(err)
		}
		if l.String() != text {
			t.Errorf("%s is printed as %s", text, l)
		}
		const problems, samples = 4000, 4
		sum := 0.0
		for p := range problems {
			for i := range samples {
				n := l.Draw(1, fmt.Sprint(p), i)
				if n < 1 || n > l.Max {
					t.Fatalf("%s: a length of %d", text, n)
				}
				sum += float64(n)
			}
		}
		if mean := sum / (problems * samples); math.Abs(mean/l.Mean-1) > 0.05 {
			t.Errorf("%s: mean of the draws %.1f", text, mean)
		}
	}
}

func TestLengths_problemIsTheShareInCommon(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0, 0.5, 1} {
		l, err := simulate.ParseLengths(fmt.Sprintf("lognormal:mean=1000,sigma=1,problem=%g,max=1000000", share))
		if err != nil {
			t.Fatal(err)
		}
		// The correlation of the logarithms of two responses to one problem.
		const n = 3000
		var a, b, aa, bb, ab float64
		for p := range n {
			x, y := math.Log(float64(l.Draw(3, fmt.Sprint(p), 0))), math.Log(float64(l.Draw(3, fmt.Sprint(p), 1)))
			a, b, aa, bb, ab = a+x/n, b+y/n, aa+x*x/n, bb+y*y/n, ab+x*y/n
		}
		if got := (ab - a*b) / math.Sqrt((aa-a*a)*(bb-b*b)); math.Abs(got-share) > 0.05 {
			t.Errorf("problem=%g: correlation %.3f", share, got)
		}
	}
}

func TestRate_isALineBetweenItsPoints(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		n    int
		want float64
	}{
		{"40", 1, 40},
		{"40", 1000, 40},
		{"1:60,16:40,64:16", 1, 60},
		{"1:60,16:40,64:16", 16, 40},
		{"1:60,16:40,64:16", 40, 28},
		{"1:60,16:40,64:16", 100, 16},
		{"8:50,16:40", 2, 50},
	} {
		r, err := simulate.ParseRate(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.At(tt.n); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s at %d: %g, want %g", tt.text, tt.n, got, tt.want)
		}
	}
	for _, text := range []string{"", "x", "0", "-1", "NaN", "4:", ":4", "0:5", "4:40,4:30", "4:40,", "1:1e9"} {
		if _, err := simulate.ParseRate(text); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"lognormal:mean=2500,sigma=1.0,max=8192", "pareto:mean=1,shape=1.5", "fixed:mean=3", "1:60,16:40", "40"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if l, err := simulate.ParseLengths(text); err == nil {
			again, err := simulate.ParseLengths(l.String())
			if err != nil || again != l {
				t.Errorf("%q is printed as %q and read as %+v, %v", text, l, again, err)
			}
			if l.Max == 0 {
				l.Max = 100
			}
			if n := l.Draw(1, "p", 0); n < 1 || n > l.Max {
				t.Errorf("%q gives a length of %d", text, n)
			}
		} else if !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
		if r, err := simulate.ParseRate(text); err == nil {
			again, err := simulate.ParseRate(r.String())
			if err != nil || again.At(7) != r.At(7) {
				t.Errorf("%q is printed as %q", text, r)
			}
			if v := r.At(7); !(v > 0) {
				t.Errorf("%q gives a rate of %g", text, v)
			}
		} else if !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
