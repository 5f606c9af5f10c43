package live

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/steadyrl/steady/internal/transcript"
)

// bin is a colour with what it means.
type bin struct {
	Class string // of the style sheet: n3..n1, z, p1..p3 for signed values, s0..s4 for shares, v0..v6 for versions
	Label string
	Count int // tokens
}

// scale sorts tokens into bins.
type scale struct {
	Name, Doc string
	Signed    bool
	bins      []bin
	of        func(i int) int // bin of token i; -1: none
}

// Colours are the names of the scales, the default first.
func Colours() []string {
	return []string{"advantage", "correction", "version", "probability", "uncovered"}
}

// signed makes a scale of values around zero: three bins on each side, between the bounds.
func signed(name, doc, format string, b [3]float64, value func(i int) float64) scale {
	f := func(v float64) string { return fmt.Sprintf(format, v) }
	s := scale{Name: name, Doc: doc, Signed: true, bins: []bin{
		{"n3", "below −" + f(b[2]), 0},
		{"n2", "−" + f(b[2]) + " to −" + f(b[1]), 0},
		{"n1", "−" + f(b[1]) + " to −" + f(b[0]), 0},
		{"z", "within ±" + f(b[0]), 0},
		{"p1", f(b[0]) + " to " + f(b[1]), 0},
		{"p2", f(b[1]) + " to " + f(b[2]), 0},
		{"p3", "above " + f(b[2]), 0},
	}}
	s.of = func(i int) int {
		v := value(i)
		if math.IsNaN(v) {
			return -1
		}
		n := 0
		for _, bound := range b {
			if math.Abs(v) > bound {
				n++
			}
		}
		if v < 0 {
			n = -n
		}
		return 3 + n
	}
	return s
}

// steps makes a scale of shares with falling bounds: the first bin is from bounds[0] on.
func steps(name, doc string, bounds []float64, value func(i int) float64) scale {
	s := scale{Name: name, Doc: doc}
	f := func(v float64) string { return fmt.Sprintf("%g %%", 100*v) }
	for i, b := range bounds {
		label := f(b) + " or more"
		if i > 0 {
			label = f(b) + " to " + f(bounds[i-1])
		}
		s.bins = append(s.bins, bin{fmt.Sprintf("s%d", i), label, 0})
	}
	s.bins = append(s.bins, bin{fmt.Sprintf("s%d", len(bounds)), "below " + f(bounds[len(bounds)-1]), 0})
	s.of = func(i int) int {
		v := value(i)
		if math.IsNaN(v) {
			return -1
		}
		for n, b := range bounds {
			if v >= b {
				return n
			}
		}
		return len(bounds)
	}
	return s
}

// maxVersions is the number of versions that have a colour of their own; older ones share the last.
const maxVersions = 7

// versions makes a scale of the versions of a trajectory, the newest first.
func versions(it *item) scale {
	s := scale{Name: "version", Doc: "The policy version that sampled the token"}
	lo, hi, ok := it.t.VersionRange()
	if !ok {
		s.of = func(int) int { return -1 }
		return s
	}
	n := min(hi-lo+1, maxVersions)
	for i := range n {
		label := fmt.Sprintf("version %d", hi-i)
		if i == maxVersions-1 && hi-i > lo {
			label = fmt.Sprintf("versions %d to %d", lo, hi-i)
		}
		if it.sealed != nil {
			label += fmt.Sprintf(", lag %d", it.sealed.Step-1-(hi-i))
		}
		s.bins = append(s.bins, bin{fmt.Sprintf("v%d", i), label, 0})
	}
	s.of = func(i int) int {
		if !it.t.Mask()[i] {
			return -1
		}
		return min(hi-int(it.t.Versions()[i]), n-1)
	}
	return s
}

// newScale returns the scale of a name; c are the corrections, if that is the name.
func newScale(name string, it *item, c []float64) scale {
	mask := it.t.Mask()
	masked := func(f func(i int) float64) func(int) float64 {
		return func(i int) float64 {
			if !mask[i] {
				return math.NaN()
			}
			return f(i)
		}
	}
	switch name {
	case "correction":
		return signed(name, "The Score-Centering term C of the token, a sum over the sampler's record", "%g", [3]float64{1e-4, 1e-3, 1e-2},
			masked(func(i int) float64 { return c[i] }))
	case "version":
		return versions(it)
	case "probability":
		return steps(name, "The probability with which the sampler drew the token", []float64{0.9, 0.5, 0.1, 0.01},
			masked(func(i int) float64 { return math.Exp(float64(it.t.LogProbs()[i])) }))
	case "uncovered":
		return steps(name, "The sampler's mass outside the record of the token, which the correction has to model", []float64{0.1, 0.01, 0.001, 0.0001},
			masked(func(i int) float64 { return uncovered(it, i) }))
	}
	return signed("advantage", "The advantage of the trajectory, which every sampled token of it is trained with", "%g", [3]float64{0.01, 0.2, 0.5},
		masked(func(int) float64 {
			if it.sample == nil {
				return math.NaN()
			}
			return it.sample.Advantage
		}))
}

// uncovered is the mass outside the record of token i, NaN without a record.
func uncovered(it *item, i int) float64 {
	if it.t.TopK() == 0 {
		return math.NaN()
	}
	_, lps := it.t.Head(i)
	q := 0.0
	for _, lp := range lps {
		q += math.Exp(float64(lp))
	}
	return max(0, 1-q)
}

// Piece is a stretch of text of one colour.
type Piece struct {
	Class string // empty: no colour
	Mark  string // said where the class changes and colours alone would not do
	Text  string
}

// pieces cuts the tokens from begin to end into stretches of one bin, and counts them. A character whose bytes lie in several tokens
// goes with the first of them.
func (s *scale) pieces(decode func(ids []int32) []byte, ids []int32, begin, end int) []Piece {
	var out []Piece
	var held []byte
	current := -1
	flush := func() {
		if len(held) == 0 {
			return
		}
		p := Piece{Text: transcript.Visible(strings.ToValidUTF8(string(held), "\uFFFD"))}
		if current >= 0 {
			p.Class = s.bins[current].Class
			if s.Name == "version" {
				p.Mark = s.bins[current].Label
			}
		}
		out = append(out, p)
		held = held[:0]
	}
	for i := begin; i < end; i++ {
		n := s.of(i)
		if n >= 0 {
			s.bins[n].Count++
		}
		if n != current && whole(held) {
			flush()
			current = n
		}
		held = append(held, decode(ids[i:i+1])...)
	}
	flush()
	return out
}

// whole reports whether b does not end within a character.
func whole(b []byte) bool {
	for back := 1; back <= min(3, len(b)); back++ {
		if c := b[len(b)-back]; utf8.RuneStart(c) {
			return c < utf8.RuneSelf || utf8.FullRune(b[len(b)-back:])
		}
	}
	return true
}
