package eval

import (
	"slices"

	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/record"
)

// Result is the outcome of an evaluation, the file eval.json.
type Result struct {
	Settings Settings  `json:"settings"`
	Steady   string    `json:"steady"` // version of the program that finished it
	Totals   Totals    `json:"totals"`
	Problems []Problem `json:"problems"` // in the order of the set
}

// Totals are shares and counts over the problems that were evaluated.
type Totals struct {
	Problems  int `json:"problems"` // evaluated
	Responses int `json:"responses"`
	// LeftOut counts problems that were not evaluated, by the reason.
	LeftOut map[string]int `json:"left_out,omitempty"`
	// PassAt are by k, smallest first; PassRate is the mean share of passed tests.
	PassAt   []PassAtK `json:"pass_at"`
	PassRate Estimate  `json:"pass_rate"`
	// Metrics are those of a validation. Its counts are responses, unless named otherwise.
	Metrics record.DevMetrics `json:"metrics"`
}

// PassAtK is the probability that at least one of K responses is right.
type PassAtK struct {
	K int `json:"k"`
	Estimate
}

// Problem is one problem.
type Problem struct {
	ID      string `json:"id"`
	Tests   int    `json:"tests"`
	LeftOut string `json:"left_out,omitempty"` // reason why it was not evaluated
	Why     string `json:"why,omitempty"`      // what the reason saw, for a person
	// Samples are in the order of their random streams.
	Samples []Sample `json:"samples,omitempty"`

	tally batch.Tally
}

// Sample is the outcome of one response.
type Sample struct {
	Kind   string `json:"kind"` // of the verdict
	Passed int    `json:"passed"`
	Total  int    `json:"total"`
	End    string `json:"end"` // of the trajectory
	Tokens int    `json:"response_tokens"`
}

// Right is the number of samples that passed every test.
func (p *Problem) Right() int {
	n := 0
	for _, s := range p.Samples {
		if s.Total > 0 && s.Passed == s.Total {
			n++
		}
	}
	return n
}

// rate is the mean share of passed tests.
func (p *Problem) rate() float64 {
	var sum float64
	for _, s := range p.Samples {
		sum += float64(s.Passed) / float64(max(s.Total, 1))
	}
	return sum / float64(max(len(p.Samples), 1))
}

// fill sets the outcome of a problem from its unit.
func (p *Problem) fill(u batch.Unit) {
	p.Samples, p.tally = nil, batch.Tally{}
	for i, v := range u.Verdicts.Items {
		t := u.Trajectories[i]
		p.Samples = append(p.Samples, Sample{string(v.Kind), v.Passed, v.Total, string(t.End), t.Response()})
		p.tally.Add(t, v)
	}
}

// totals adds up problems.
func totals(problems []Problem, ks []int) Totals {
	var t Totals
	var sum batch.Tally
	var rates []float64
	passes := make([][]float64, len(ks))
	samples := 1
	for i := range problems {
		p := &problems[i]
		if p.LeftOut != "" {
			if t.LeftOut == nil {
				t.LeftOut = map[string]int{}
			}
			t.LeftOut[p.LeftOut]++
			continue
		}
		t.Problems++
		samples = len(p.Samples)
		sum.Merge(&p.tally)
		rates = append(rates, p.rate())
		for j, k := range ks {
			passes[j] = append(passes[j], PassAt(len(p.Samples), p.Right(), k))
		}
	}
	t.Responses, t.Metrics, t.PassRate = sum.N, sum.Metrics(), mean(rates, samples)
	for j, k := range ks {
		t.PassAt = append(t.PassAt, PassAtK{k, mean(passes[j], samples)})
	}
	slices.SortFunc(t.PassAt, func(a, b PassAtK) int { return a.K - b.K })
	return t
}
