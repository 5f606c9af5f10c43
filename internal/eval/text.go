package eval

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table is the result for a person, with a final line break.
func (r *Result) Table() string {
	t, m := r.Totals, r.Totals.Metrics
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems, %d responses each\n", t.Problems, r.Settings.Samples)
	if len(t.LeftOut) > 0 {
		fmt.Fprintf(&b, "left out of every figure: %s\n", leftOut(t.LeftOut))
	}
	fmt.Fprintf(&b, "\n%-10s  %9s  %s\n", "", "estimate", "95 % interval")
	for _, p := range t.PassAt {
		b.WriteString(line(fmt.Sprintf("pass@%d", p.K), p.Estimate))
	}
	b.WriteString(line("pass_rate", t.PassRate))
	fmt.Fprintf(&b, "\nof %d responses\n", t.Responses)
	share := func(name string, n int, more string) {
		fmt.Fprintf(&b, "%-16s  %6d  %6.2f %%%s\n", name, n, 100*float64(n)/float64(max(t.Responses, 1)), more)
	}
	tests := func(n int) string { return fmt.Sprintf("  (%d tests)", n) }
	share("solved", m.Solved, "")
	fmt.Fprintf(&b, "%-16s  %6s  %6.2f %%\n", "format_ok", "", 100*m.FormatOK)
	share("tool_used", m.ToolUsed, "")
	share("length_cut", m.LengthCut, "")
	share("runtime_errors", m.RuntimeErrors, tests(m.RuntimeTests))
	share("time_limits", m.TimeLimits, tests(m.TimeTests))
	share("budget_exhausted", m.BudgetExhausted, "")
	fmt.Fprintf(&b, "%-16s  %6.0f  tokens\n", "mean_response", m.MeanTokens)
	return b.String()
}

func line(name string, e Estimate) string {
	return fmt.Sprintf("%-10s  %7.2f %%  %.2f %% to %.2f %%\n", name, 100*e.Value, 100*e.Low, 100*e.High)
}

func leftOut(n map[string]int) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%d %s", n[reason], reason))
	}
	return strings.Join(parts, ", ")
}
