package simulate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rng"
)

// domain separates the random numbers of a simulation from those of a run.
const domain rng.Domain = "simulate"

// Lengths is a distribution of response lengths, in sampled tokens. The mean is that before the cut at Max.
type Lengths struct {
	Kind  string  `json:"kind"` // lognormal, pareto or fixed
	Mean  float64 `json:"mean"`
	Sigma float64 `json:"sigma,omitempty"` // of the logarithm (lognormal)
	Shape float64 `json:"shape,omitempty"` // tail exponent, above 1 (pareto)
	// Problem is the share of the logarithm's variance that all responses to a problem have in common (lognormal).
	Problem float64 `json:"problem,omitempty"`
	Max     int     `json:"max"` // longer responses are cut; 0 in the text takes rollout.max_response
}

// parameter of a distribution: its name, where it goes, and the values it may have.
type parameter struct {
	name      string
	to        *float64
	least     float64
	most      float64
	exclusive bool // least itself is refused
}

// ParseLengths reads "lognormal:mean=2500,sigma=1.0,problem=0.3,max=8192", "pareto:mean=2500,shape=1.5" or "fixed:mean=2500".
// Errors: Invalid.
func ParseLengths(text string) (Lengths, error) {
	l := Lengths{}
	kind, rest, _ := strings.Cut(text, ":")
	l.Kind = kind
	var longest float64
	known := []parameter{{"mean", &l.Mean, 1, 1e6, false}, {"max", &longest, 0, 1e6, false}}
	switch kind {
	case "lognormal":
		l.Sigma = 1
		known = append(known, parameter{"sigma", &l.Sigma, 0, 5, false}, parameter{"problem", &l.Problem, 0, 1, false})
	case "pareto":
		l.Shape = 1.5
		known = append(known, parameter{"shape", &l.Shape, 1, 100, true})
	case "fixed":
	default:
		return l, badLengths("there is no distribution %q", kind)
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(rest, ",") {
		if part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		i := slices.IndexFunc(known, func(p parameter) bool { return p.name == key })
		if i < 0 {
			return l, badLengths("%s has no parameter %q", kind, key)
		}
		if seen[key] {
			return l, badLengths("%s stands twice", key)
		}
		seen[key] = true
		p := known[i]
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(v) || v < p.least || v > p.most || p.exclusive && v == p.least {
			return l, badLengths("%s=%s: want a number from %g to %g", key, value, p.least, p.most)
		}
		*p.to = v
	}
	if !seen["mean"] {
		return l, badLengths("%s needs a mean", kind)
	}
	if longest != math.Trunc(longest) {
		return l, badLengths("max=%g: want a whole number", longest)
	}
	l.Max = int(longest)
	return l, nil
}

func badLengths(format string, args ...any) error {
	return fault.New(fault.Invalid, "simulate.ParseLengths", "--lengths: "+format, args...).
		WithHint("write lognormal:mean=2500,sigma=1.0,max=8192 (problem=0.3: a share common to a problem), pareto:mean=2500,shape=1.5 or fixed:mean=2500")
}

// String is the text that ParseLengths reads.
func (l Lengths) String() string {
	s := fmt.Sprintf("%s:mean=%g", l.Kind, l.Mean)
	switch l.Kind {
	case "lognormal":
		s += fmt.Sprintf(",sigma=%g", l.Sigma)
		if l.Problem > 0 {
			s += fmt.Sprintf(",problem=%g", l.Problem)
		}
	case "pareto":
		s += fmt.Sprintf(",shape=%g", l.Shape)
	}
	return s + fmt.Sprintf(",max=%d", l.Max)
}

// draw returns the length of a response: a pure function of the seed, the problem and the labels of the response.
func (l Lengths) draw(seed uint64, problem string, labels ...any) int {
	own := rng.New(seed, domain, append([]any{"length", problem}, labels...)...)
	v := l.Mean
	switch l.Kind {
	case "lognormal":
		z := math.Sqrt(1-l.Problem) * normal(own)
		if l.Problem > 0 {
			z += math.Sqrt(l.Problem) * normal(rng.New(seed, domain, "problem", problem))
		}
		v = l.Mean * math.Exp(l.Sigma*z-l.Sigma*l.Sigma/2)
	case "pareto":
		least := l.Mean * (l.Shape - 1) / l.Shape
		v = least * math.Pow(1-own.Uniform(0), -1/l.Shape)
	}
	return int(min(float64(l.Max), max(1, math.Round(v))))
}

func normal(s rng.Stream) float64 {
	return math.Sqrt(-2*math.Log(1-s.Uniform(0))) * math.Cos(2*math.Pi*s.Uniform(1))
}

// Rate is how fast a rollout worker decodes: tokens a second for each sequence, by the number of sequences at once.
type Rate struct{ points []ratePoint }

type ratePoint struct {
	sequences int
	perSecond float64
}

// ParseRate reads one number, "40", or a curve "1:60,16:40": points of sequences at once and tokens a second for each,
// joined by straight lines and constant beyond its ends. Errors: Invalid.
func ParseRate(text string) (Rate, error) {
	var r Rate
	bad := func(why string) (Rate, error) {
		return r, fault.New(fault.Invalid, "simulate.ParseRate", "--tokens-per-second %s: %s", text, why).
			WithHint("write 40 for a constant rate of each sequence, or a curve such as 1:60,16:40 (sequences at once: tokens a second for each)")
	}
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		text = fmt.Sprintf("1:%g", v)
	}
	for part := range strings.SplitSeq(text, ",") {
		left, right, _ := strings.Cut(part, ":")
		n, err := strconv.Atoi(left)
		v, verr := strconv.ParseFloat(right, 64)
		switch {
		case err != nil || verr != nil:
			return bad("it is no number and no curve")
		case n < 1 || len(r.points) > 0 && n <= r.points[len(r.points)-1].sequences:
			return bad("the numbers of sequences must be above 0 and rise")
		case math.IsNaN(v) || v <= 0 || v > 1e6:
			return bad("a rate must be above 0 and at most 1000000")
		}
		r.points = append(r.points, ratePoint{n, v})
	}
	return r, nil
}

// at returns the rate of each of n sequences.
func (r Rate) at(n int) float64 {
	p := r.points
	i := slices.IndexFunc(p, func(q ratePoint) bool { return q.sequences >= n })
	switch {
	case i < 0:
		return p[len(p)-1].perSecond
	case i == 0:
		return p[0].perSecond
	}
	a, b := p[i-1], p[i]
	f := float64(n-a.sequences) / float64(b.sequences-a.sequences)
	return a.perSecond + f*(b.perSecond-a.perSecond)
}

// String is the text that ParseRate reads.
func (r Rate) String() string {
	if len(r.points) == 1 {
		return fmt.Sprintf("%g", r.points[0].perSecond)
	}
	parts := make([]string, len(r.points))
	for i, p := range r.points {
		parts[i] = fmt.Sprintf("%d:%g", p.sequences, p.perSecond)
	}
	return strings.Join(parts, ",")
}
