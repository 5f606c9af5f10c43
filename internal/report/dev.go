package report

import (
	"fmt"
	"strconv"

	"github.com/steadyrl/steady/internal/record"
)

// devView is the section on validations.
type devView struct {
	Chart                 chart
	Caption, Gain, Repeat string
	table
}

// devHeads are the columns of the table of validations, in the words of the records.
var devHeads = []head{
	{"step", "policy version that was validated"},
	{"solved", "problems with all tests passed, of all problems"},
	{"acc", "share of problems with all tests passed"},
	{"pass_rate", "share of passed tests, by problem first, then averaged over problems"},
	{"format_ok", "share of responses from which a program could be extracted"},
	{"tool used", "problems in which a tool process really started"},
	{"runtime errors", "problems whose submission had a runtime error (test cases)"},
	{"time limits", "problems whose submission ran into the time limit (test cases)"},
	{"budget exhausted", "problems whose judging budget did not suffice"},
	{"length cut", "responses cut at the length limit"},
	{"mean tokens", "mean length of a response"},
	{"seconds", "wall time of the validation"},
}

func newDev(d *Data) devView {
	v := devView{table: table{Heads: devHeads}, Caption: "Counts are problems; in brackets: test cases."}
	for _, r := range d.Validations {
		v.Rows = append(v.Rows, devRow(r))
	}
	pub := d.Published()
	if len(pub) > 0 {
		v.Caption = fmt.Sprintf("The same %s each time. ", plural(pub[0].Problems, "problem", "problems")) + v.Caption
	}
	v.Chart = devChart(pub)
	v.Gain = gain(pub)
	v.Repeat = repeated(d)
	return v
}

func devRow(v record.Validation) tableRow {
	m := v.Metrics
	name := strconv.Itoa(v.Version)
	if v.Source == sourceExport {
		name = "export of " + name
	}
	return tableRow{Name: name, Repeat: v.Source == sourceExport, Cells: []string{
		integer(m.Solved) + " / " + integer(v.Problems), percent(m.Acc), percent(m.PassRate), percent(m.FormatOK), integer(m.ToolUsed),
		fmt.Sprintf("%s (%s)", integer(m.RuntimeErrors), integer(m.RuntimeTests)), fmt.Sprintf("%s (%s)", integer(m.TimeLimits), integer(m.TimeTests)),
		integer(m.BudgetExhausted), integer(m.LengthCut), strconv.FormatFloat(m.MeanTokens, 'f', 1, 64), strconv.FormatFloat(v.Seconds, 'f', 1, 64),
	}}
}

func devChart(pub []record.Validation) chart {
	acc, rate := series{name: "acc", class: "a"}, series{name: "pass_rate", class: "b"}
	for _, v := range pub {
		m := v.Metrics
		acc.steps, rate.steps = append(acc.steps, v.Version), append(rate.steps, v.Version)
		acc.vals, rate.vals = append(acc.vals, record.Num(m.Acc)), append(rate.vals, record.Num(m.PassRate))
	}
	return draw("c-dev", "Dev accuracy and pass rate", "acc: all tests of a problem passed; pass_rate: share of passed tests", unit{"%", 100}, large, []series{acc, rate})
}

// gain compares the first and the last validation problem by problem.
func gain(pub []record.Validation) string {
	if len(pub) < 2 {
		return ""
	}
	first, last := pub[0], pub[len(pub)-1]
	before := map[string]bool{}
	for _, it := range first.Items {
		before[it.Problem] = solved(it)
	}
	won, lost, known := 0, 0, 0
	for _, it := range last.Items {
		was, ok := before[it.Problem]
		if !ok {
			continue
		}
		known++
		switch now := solved(it); {
		case now && !was:
			won++
		case was && !now:
			lost++
		}
	}
	if known == 0 {
		return ""
	}
	verb := "were"
	if won == 1 {
		verb = "was"
	}
	return fmt.Sprintf("From step %d to step %d, %s %s solved that had not been, and %s lost.",
		first.Version, last.Version, plural(won, "problem", "problems"), verb, integer(lost))
}

func solved(it record.DevItem) bool { return it.Total > 0 && it.Passed == it.Total }

// repeated says how the exported files did against the checkpoint that they come from.
func repeated(d *Data) string {
	export, checkpoint := d.repeat()
	switch {
	case export == nil:
		return ""
	case checkpoint == nil:
		return fmt.Sprintf("The exported files were run on the dev set; version %d itself was not validated.", export.Version)
	case export.Metrics == checkpoint.Metrics:
		return fmt.Sprintf("The dev set was run again from the exported files: every number equals that of step %d.", checkpoint.Version)
	}
	return fmt.Sprintf("The dev set was run again from the exported files: %s solved against %s at step %d (%s).",
		integer(export.Metrics.Solved), integer(checkpoint.Metrics.Solved), checkpoint.Version, points(checkpoint.Metrics.Acc, export.Metrics.Acc))
}
