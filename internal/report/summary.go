package report

import (
	"fmt"
	"strings"

	"github.com/steadyrl/steady/internal/record"
)

// Summary is the outcome of the run as plain text for a terminal: the table of validations, the trained
// trajectories, the export's verdict, the digest of the newest result that can be used with its step, what is missing and where things are. It ends with a line break.
func Summary(d *Data) string {
	var b strings.Builder
	b.WriteString(summaryTable(d.Validations))
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-20s %s\n", name, fmt.Sprintf(format, args...))
	}
	if g := gain(d.Published()); g != "" {
		b.WriteString("\n" + g + "\n")
	}
	b.WriteByte('\n')
	steps := integer(d.reached())
	if d.Plan.Steps > 0 {
		steps += " of " + integer(d.Plan.Steps)
	}
	line("training steps", "%s; %s", steps, progress(d))
	if len(d.Lineages) > 1 {
		line("lineage", "%s of %s", d.Layout.Lineage, strings.Join(d.Lineages, ", "))
	}
	line("trajectories", "%s trained", integer(d.trained()))
	if d.Ledger != nil {
		c := d.Ledger.Count()
		line("groups", "%s submitted, %s trained, %s dropped, %s open", integer(c.Submitted), integer(c.Trained), integer(c.Dropped), integer(c.Open))
		if n := len(d.Ledger.Violations()); n > 0 {
			line("", "the ledger does not balance: %s", plural(n, "violation", "violations"))
		}
	}
	failures, recovered := d.faults()
	line("faults", "%s, %s", integer(failures), plural(recovered, "recovery", "recoveries"))
	line("export", "%s", strings.ToLower(exportTile(d).Value))
	if s := d.lastResult(); s != nil {
		line(fmt.Sprintf("weights of step %d", s.Step), "%s", s.WeightsDigest)
	}
	for _, m := range d.Missing {
		line("missing", "%s: %s", m.Part, m.Why)
	}
	for _, p := range d.Places {
		line(p.What, "%s", p.Path)
	}
	return b.String()
}

func summaryTable(list []record.Validation) string {
	if len(list) == 0 {
		return "no validation has finished\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%8s %11s %9s %10s %10s %10s %11s\n", "step", "solved", "acc", "pass_rate", "format_ok", "tool_used", "length_cut")
	for _, v := range list {
		name := integer(v.Version)
		if v.Source == sourceExport {
			name = "export"
		}
		m := v.Metrics
		fmt.Fprintf(&b, "%8s %11s %9s %10s %10s %10d %11d\n", name, fmt.Sprintf("%d/%d", m.Solved, v.Problems),
			percent(m.Acc), percent(m.PassRate), percent(m.FormatOK), m.ToolUsed, m.LengthCut)
	}
	return b.String()
}
