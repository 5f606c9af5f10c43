package live

import (
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/trajectory"
)

// outcomes are the values of the filter for the judge's word: two sums and every kind that a submission can have.
func outcomes() []string {
	out := []string{"solved", "unsolved"}
	for _, k := range []judge.Kind{
		judge.Accepted, judge.WrongAnswer, judge.RuntimeError, judge.CompileError, judge.TimeLimit, judge.MemoryLimit, judge.OutputLimit,
		judge.FormatError, judge.NoTests, judge.BudgetExhausted,
	} {
		out = append(out, string(k))
	}
	return out
}

func ends() []string {
	var out []string
	for _, e := range trajectory.Ends() {
		out = append(out, string(e))
	}
	return out
}
