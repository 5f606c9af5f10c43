package study

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Tables returns the result as two Markdown tables, of the arms and of the differences, and what has to be said about them. The
// columns are padded, so that they can be read on a terminal too.
func (r *Result) Tables() string {
	var b strings.Builder
	rows := [][]string{{"arm"}}
	for _, s := range r.Plan.Seeds {
		rows[0] = append(rows[0], "seed "+strconv.FormatUint(s, 10))
	}
	rows[0] = append(rows[0], "mean", "95 % interval", "at step 0", "collapsed")
	for _, a := range r.Arms {
		row, collapsed, known := []string{a.Arm.Full()}, 0, 0
		for _, x := range a.Runs {
			cell := percent(x.Value)
			if x.Value == nil {
				cell = "none"
			}
			if len(x.Curve) > 0 {
				known++
			}
			if len(x.Collapse) > 0 {
				collapsed++
				cell += " †"
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, percent(a.Value), interval(a.Range), percent(a.Start), fmt.Sprintf("%d of %d", collapsed, known)))
	}
	fmt.Fprintf(&b, "%s on the dev problems at the end of %s, in percent. † collapsed.\n\n%s", metricName(r.Plan.Metric), plural(r.All, "run"), table(rows))
	if len(r.Differences) > 0 {
		rows = [][]string{{"difference", "points", "95 % interval", "over problems", "over seeds", "pairs better, worse, equal", "gate"}}
		for _, d := range r.Differences {
			gate := "–"
			if d.Passed != nil {
				gate = map[bool]string{true: "holds", false: "does not hold"}[*d.Passed]
			}
			rows = append(rows, []string{
				r.name(d.A) + " − " + r.name(d.B), points(d.Value), pointsInterval(d.Range), pointsInterval(d.OverProblems), pointsInterval(d.OverSeeds),
				fmt.Sprintf("%d, %d, %d", d.Better, d.Worse, d.Pairs-d.Better-d.Worse), gate,
			})
		}
		fmt.Fprintf(&b, "\nPaired differences, in percentage points.\n\n%s", table(rows))
	}
	if notes := r.notes(); len(notes) > 0 {
		b.WriteString("\n")
		for _, n := range notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	return b.String()
}

// notes says what tables cannot: collapses, runs without a result, and how far the intervals go.
func (r *Result) notes() []string {
	var out []string
	for _, a := range r.Arms {
		for _, x := range a.Runs {
			for _, c := range x.Collapse {
				out = append(out, fmt.Sprintf("%s, seed %d collapsed at step %d: %s.", a.Arm.Full(), x.Seed, c.Step, c.Text))
			}
			if x.Failure != "" {
				out = append(out, fmt.Sprintf("%s, seed %d has no result: %s.", a.Arm.Full(), x.Seed, strings.TrimSuffix(x.Failure, ".")))
			}
		}
	}
	for _, d := range r.Differences {
		if d.Missing > 0 {
			text := fmt.Sprintf("%s − %s lacks %s", r.name(d.A), r.name(d.B), plural(d.Missing, "seed"))
			if d.Note != "" {
				text += ": " + d.Note
			}
			out = append(out, text+".")
		}
	}
	switch n := len(r.Plan.Seeds); {
	case len(r.Differences) == 0:
	case n == 1:
		out = append(out, "One seed: the intervals are about other problems for these trained models, and say nothing about other seeds.")
	default:
		out = append(out, fmt.Sprintf("Over problems: these trained models on other problems. Over seeds: another seed, by Student's distribution with %s; "+
			"with so few seeds it rests on the assumption that their differences are about normal. The interval holds both.", plural(n-1, "degree")+" of freedom"))
	}
	return out
}

// Page returns the whole text of a study, as Markdown. picture is the name of the picture beside it.
func (r *Result) Page(picture string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", r.Plan.Study)
	if r.Plan.About != "" {
		fmt.Fprintf(&b, "%s.\n\n", strings.TrimSuffix(r.Plan.About, "."))
	}
	if r.Done < r.All {
		fmt.Fprintf(&b, "**Incomplete:** %d of %d runs have a result.\n\n", r.Done, r.All)
	}
	if r.Passed != nil {
		fmt.Fprintf(&b, "**The gate %s.**\n\n", map[bool]string{true: "holds", false: "does not hold"}[*r.Passed])
	}
	fmt.Fprintf(&b, "![%s](%s)\n\n%s", r.Plan.Study, picture, r.Tables())
	return b.String()
}

// Curves returns all validations of all runs, as CSV.
func (r *Result) Curves() string {
	var b strings.Builder
	fmt.Fprintf(&b, "arm,seed,step,%s\n", r.Plan.Metric)
	for _, a := range r.Arms {
		for _, x := range a.Runs {
			for _, p := range x.Curve {
				fmt.Fprintf(&b, "%s,%d,%d,%s\n", a.Arm.Name, x.Seed, p.Step, strconv.FormatFloat(p.Value, 'g', -1, 64))
			}
		}
	}
	return b.String()
}

// Pairs returns the dev problems at the end of all runs, as CSV: what the intervals are made of.
func (r *Result) Pairs() string {
	var b strings.Builder
	b.WriteString("arm,seed,problem,passed,total\n")
	for _, a := range r.Arms {
		for i, x := range a.runs {
			if x == nil {
				continue
			}
			for _, it := range x.Items {
				fmt.Fprintf(&b, "%s,%d,%s,%d,%d\n", a.Arm.Name, r.Plan.Seeds[i], quoted(it.Problem), it.Passed, it.Total)
			}
		}
	}
	return b.String()
}

// quoted is a cell of a CSV file.
func quoted(s string) string {
	if strings.ContainsAny(s, ",\"\r\n") {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	return s
}

func (r *Result) name(arm string) string {
	if a := r.arm(arm); a != nil {
		return a.Arm.Full()
	}
	return arm
}

func metricName(metric string) string {
	if metric == "pass_rate" {
		return "Share of tests passed"
	}
	return "Problems solved"
}

func percent(v *float64) string {
	if v == nil {
		return "–"
	}
	return strconv.FormatFloat(100**v, 'f', 1, 64)
}

func interval(i *Interval) string {
	if i == nil {
		return "–"
	}
	return percent(&i.Low) + " to " + percent(&i.High)
}

func points(v *float64) string {
	if v == nil {
		return "–"
	}
	s := fmt.Sprintf("%+.1f", 100**v)
	return strings.Replace(s, "-", "−", 1)
}

func pointsInterval(i *Interval) string {
	if i == nil {
		return "–"
	}
	return points(&i.Low) + " to " + points(&i.High)
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return strconv.Itoa(n) + " " + word + "s"
}

// table lays out rows as Markdown; the first one is the head.
func table(rows [][]string) string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				cell += pad
			} else {
				cell = pad + cell
			}
			b.WriteString("| " + cell + " ")
		}
		b.WriteString("|\n")
		if n == 0 {
			for i, w := range width {
				dash := strings.Repeat("-", w)
				if i > 0 {
					dash = dash[1:] + ":"
				}
				b.WriteString("| " + dash + " ")
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}
