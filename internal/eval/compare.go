package eval

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// Comparison is what two evaluations of the same problems say about the difference of their models, B minus A.
type Comparison struct {
	Problems int       `json:"problems"`
	PassAt   []PassAtK `json:"pass_at"` // for every k that both have
	PassRate Estimate  `json:"pass_rate"`
	// Better, Worse and Equal count problems by their share of right responses.
	Better int `json:"better"`
	Worse  int `json:"worse"`
	Equal  int `json:"equal"`
	// Settings lists the settings that differ.
	Settings []string `json:"settings"`
}

// Read reads a result. Errors: NotFound, Invalid (not a whole one of this format).
func Read(name string) (*Result, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fault.New(fault.NotFound, "eval.Read", "%w", err).WithHint("give the file %s of a finished evaluation", ResultFile)
	}
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fault.New(fault.Invalid, "eval.Read", "%s is no result of an evaluation: %w", name, err).WithHint("give the file %s of a finished evaluation", ResultFile)
	}
	if r.Settings.Format != 1 || len(r.Problems) != r.Settings.Data.Problems || r.Settings.Samples < 1 {
		return nil, fault.New(fault.Invalid, "eval.Read", "%s is no result of an evaluation", name).WithHint("give the file %s of a finished evaluation", ResultFile)
	}
	for _, p := range r.Problems {
		if p.LeftOut == "" && len(p.Samples) != r.Settings.Samples {
			return nil, fault.New(fault.Invalid, "eval.Read", "%s has %d samples of %s, its settings say %d", name, len(p.Samples), p.ID, r.Settings.Samples).
				WithHint("the file was changed; evaluate again")
		}
	}
	return &r, nil
}

// Compare compares two results, problem by problem. Errors: Invalid (they are of other problems).
func Compare(a, b *Result) (*Comparison, error) {
	const op = "eval.Compare"
	if x, y := a.Settings.Data, b.Settings.Data; x.Digest != y.Digest {
		return nil, fault.New(fault.Invalid, op, "the two are of other problems: %d of %s with digest %.12s, %d of %s with digest %.12s",
			x.Problems, x.Kind, x.Digest, y.Problems, y.Kind, y.Digest).WithHint("evaluate both models on the same set, split and limit")
	}
	c := &Comparison{}
	var rates []float64
	var ks []int
	for _, p := range a.Totals.PassAt {
		if slices.ContainsFunc(b.Totals.PassAt, func(q PassAtK) bool { return q.K == p.K }) {
			ks = append(ks, p.K)
		}
	}
	passes := make([][]float64, len(ks))
	for i := range a.Problems {
		p, q := &a.Problems[i], &b.Problems[i]
		if p.ID != q.ID || p.LeftOut != q.LeftOut {
			return nil, fault.New(fault.Invalid, op, "problem %d is %s in one and %s in the other", i, p.ID, q.ID)
		}
		if p.LeftOut != "" {
			continue
		}
		c.Problems++
		rates = append(rates, q.rate()-p.rate())
		for j, k := range ks {
			passes[j] = append(passes[j], PassAt(len(q.Samples), q.Right(), k)-PassAt(len(p.Samples), p.Right(), k))
		}
		switch d := q.Right()*len(p.Samples) - p.Right()*len(q.Samples); {
		case d > 0:
			c.Better++
		case d < 0:
			c.Worse++
		default:
			c.Equal++
		}
	}
	c.PassRate = difference(rates)
	for j, k := range ks {
		c.PassAt = append(c.PassAt, PassAtK{k, difference(passes[j])})
	}
	var err error
	c.Settings, err = Differences(a.Settings, b.Settings)
	return c, err
}

// Table is the comparison for a person, with a final line break.
func (c *Comparison) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems: the second is better on %d, worse on %d, equal on %d\n", c.Problems, c.Better, c.Worse, c.Equal)
	for _, d := range c.Settings {
		fmt.Fprintf(&b, "settings: %s\n", d)
	}
	fmt.Fprintf(&b, "\n%-10s  %10s  %s\n", "", "difference", "95 % interval, in points")
	show := func(name string, e Estimate) {
		fmt.Fprintf(&b, "%-10s  %+10.2f  %+.2f to %+.2f\n", name, 100*e.Value, 100*e.Low, 100*e.High)
	}
	for _, p := range c.PassAt {
		show(fmt.Sprintf("pass@%d", p.K), p.Estimate)
	}
	show("pass_rate", c.PassRate)
	return b.String()
}
