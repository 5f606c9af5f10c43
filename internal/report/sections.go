package report

import (
	"fmt"
	"strings"

	"github.com/steadyrl/steady/internal/ledger"
)

// funnel is the section on the data set.
type funnel struct {
	Caption string
	Bars    []bar
	Notes   []string
}

// bar is one stage: a span of the input, which is 0 to 100.
type bar struct {
	Name, Doc, N, Share string
	X, W                string
	Lost                bool
}

// newFunnel lays the stages under each other: what each reason takes away lies at the end of what was left.
func newFunnel(d *Dataset) *funnel {
	if d == nil {
		return nil
	}
	f := &funnel{
		Caption: fmt.Sprintf("%s read, %s kept. Each rule takes its problems from what the rules above it left.", plural(d.Rows, "problem", "problems"), integer(d.Kept)),
	}
	note := func(name string, list []string) {
		if len(list) > 0 {
			f.Notes = append(f.Notes, name+": "+strings.Join(list, ", "))
		}
	}
	note("input", d.Inputs)
	note("rules that dropped nothing", d.Idle)
	note("settings", d.Settings)
	total := float64(max(d.Rows, 1))
	add := func(name, doc string, at, n int, lost bool) {
		f.Bars = append(f.Bars, bar{
			Name: name, Doc: doc, N: integer(n), Share: fmt.Sprintf("%.1f %%", 100*float64(n)/total),
			X: coord(100 * float64(at) / total), W: coord(100 * float64(n) / total), Lost: lost,
		})
	}
	add("input", "", 0, d.Rows, false)
	left := d.Rows
	for _, r := range d.Dropped {
		left -= r.N
		add(r.Name, r.Doc, max(left, 0), r.N, true)
	}
	add("kept", "", 0, d.Kept, false)
	add("training split", "", 0, d.Train, false)
	add("dev split", "", d.Train, d.Dev, false)
	return f
}

// ledgerView is the section on the ledger.
type ledgerView struct {
	Verdict, Tone string
	Violations    []string
	Bias          string // whom the threshold hits
	table
}

func newLedger(l *ledger.Ledger) *ledgerView {
	if l == nil {
		return nil
	}
	c := l.Count()
	lengths := l.Lengths()
	v := &ledgerView{Tone: "good", Violations: l.Violations(), Bias: lengths.Bias()}
	v.Verdict = fmt.Sprintf("The books balance: %s submitted, %s trained, %s dropped, %s open.",
		plural(c.Submitted, "group", "groups"), integer(c.Trained), integer(c.Dropped), integer(c.Open))
	if n := len(v.Violations); n > 0 {
		v.Tone, v.Verdict = "bad", "The books do not balance: "+plural(n, "violation", "violations")+"."
		const shown = 20
		if n > shown {
			v.Violations = append(v.Violations[:shown], fmt.Sprintf("and %s more", integer(n-shown)))
		}
	}
	v.Heads = []head{
		{"fate", ""},
		{"groups", ""},
		{"share", "of the submitted groups"},
		{"complete", "dropped groups whose generation was complete"},
		{"tokens lost", "sampled tokens that were never trained"},
		{"median", "median of a group's sampled tokens, of the groups whose length is known"},
		{"90 %", "nine of ten groups have at most so many sampled tokens"},
		{"longest", "most sampled tokens of a group"},
		{"unknown", "groups whose length is not known: they did not finish"},
	}
	row := func(name string, n int, rest ...string) {
		share := "–"
		if c.Submitted > 0 {
			share = fmt.Sprintf("%.1f %%", 100*float64(n)/float64(c.Submitted))
		}
		cells := append([]string{integer(n), share}, rest...)
		for len(cells) < len(v.Heads)-1 {
			cells = append(cells, "")
		}
		v.Rows = append(v.Rows, tableRow{Name: name, Cells: cells})
	}
	quantiles := func(fate string) []string {
		for _, x := range lengths.Fates {
			switch {
			case x.Fate != fate:
			case x.Groups == 0:
				return []string{"–", "–", "–", integer(x.Unknown)}
			default:
				return []string{integer(x.Median), integer(x.P90), integer(x.Longest), integer(x.Unknown)}
			}
		}
		return nil
	}
	row("submitted", c.Submitted)
	row("of these again, after a drop", c.Resubmitted)
	row("trained", c.Trained, append([]string{"", ""}, quantiles(string(ledger.Trained))...)...)
	for _, r := range c.Reasons {
		row("dropped: "+r.Reason, r.Groups, append([]string{integer(r.Finished), integer(r.Tokens)}, quantiles(r.Reason)...)...)
	}
	if len(c.Reasons) == 0 {
		row("dropped", 0, "0", "0")
	}
	row("open", c.Open)
	return v
}
