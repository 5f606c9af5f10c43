package simulate

import (
	"fmt"
	"io"
	"strconv"

	"github.com/steadyrl/steady/internal/report"
)

// WritePage writes tables and curves as one self-contained page. Command is how it was made. Errors: those of w.
func WritePage(w io.Writer, command string, cases []Case) error {
	p := report.Sheet{Title: "Simulated run", Subtitle: command}
	if len(cases) > 1 {
		p.Title = "Simulated runs"
		heads, rows := SweepTable(cases)
		p.Tables = append(p.Tables, report.SheetTable{Title: "Results", Note: "one line for each combination", Heads: heads, Rows: rows})
		p.Curves = sweepCurves(cases)
	} else {
		r := cases[0].Result
		p.Tables = append(p.Tables, report.SheetTable{Title: "Results", Rows: cells(r.Findings()), Words: true})
		heads, rows := r.LengthTable()
		p.Tables = append(p.Tables, report.SheetTable{Title: "Drops by response length", Note: "a group is dropped whole; it counts with its longest response", Heads: heads, Rows: rows})
		heads, rows = r.HistoryTable()
		p.Tables = append(p.Tables, report.SheetTable{Title: "Histories", Heads: heads, Rows: rows})
		p.Curves = runCurves(r)
	}
	p.Tables = append(p.Tables, report.SheetTable{Title: "Put in", Rows: cells(assumptions(cases)), Words: true})
	return report.RenderSheet(w, p)
}

func cells(rows []Row) [][]string {
	out := make([][]string, len(rows))
	for i, r := range rows {
		out[i] = []string{r.Name, r.Value}
	}
	return out
}

func runCurves(r Result) []report.Curve {
	steps := make([]int, len(r.Curve))
	var seconds, lag, drops []float64
	for i, p := range r.Curve {
		steps[i] = p.Step
		seconds, lag, drops = append(seconds, p.Seconds), append(lag, p.LagMean), append(drops, float64(p.Drops))
	}
	runs := make([]int, len(r.Loops))
	var events, state []float64
	for i, l := range r.Loops {
		runs[i] = i + 1
		events, state = append(events, float64(l.Events)), append(state, float64(l.State))
	}
	one := func(title, doc, unit, x string, at []int, v []float64) report.Curve {
		return report.Curve{Title: title, Doc: doc, Unit: unit, X: x, Scale: 1, At: at, Lines: []report.CurveLine{{Values: v}}}
	}
	out := []report.Curve{
		one("Step", "from the end of an update to the end of the next", "s", "step", steps, seconds),
		one("Lag", "mean over the tokens of the batch", "versions", "step", steps, lag),
		one("Drops", "groups dropped since the step before", "groups", "step", steps, drops),
		one("History", "events of a run of the step loop's chain", "events", "run of the chain", runs, events),
	}
	if n := len(runs) - 1; n > 0 { // the last run hands nothing on
		out = append(out, one("State", "what a run of the chain hands on to the next", "bytes", "run of the chain", runs[:n], state[:n]))
	}
	return out
}

// sweepCurves draws over the last swept parameter, a line for each combination of the others; nothing if it has values that are
// no whole numbers, or if there are more lines than can be told apart.
func sweepCurves(cases []Case) []report.Curve {
	const mostLines = 4
	n := len(cases[0].Settings) - 1
	var at []int
	var names []string
	lines := map[string][]Result{}
	for _, c := range cases {
		v, err := strconv.Atoi(c.Settings[n].Value)
		if err != nil {
			return nil
		}
		name := ""
		for _, s := range c.Settings[:n] {
			name += fmt.Sprintf("%s %s ", s.Name, s.Value)
		}
		if lines[name] == nil {
			names = append(names, name)
		}
		if len(names) == 1 {
			if len(at) > 0 && v <= at[len(at)-1] {
				return nil // a curve needs numbers that rise
			}
			at = append(at, v)
		}
		lines[name] = append(lines[name], c.Result)
	}
	if len(names) > mostLines || len(at) < 2 {
		return nil
	}
	x := cases[0].Settings[n].Name
	var out []report.Curve
	for _, m := range []struct {
		title, doc, unit string
		scale            float64
		of               func(Result) float64
	}{
		{"Speed", "training steps an hour", "steps/hour", 1, func(r Result) float64 { return r.StepsPerHour }},
		{"Trainer idle", "share of the time of the run", "%", 100, func(r Result) float64 { return r.TrainerIdle }},
		{"Slots idle", "share of the time of all slots", "%", 100, func(r Result) float64 { return r.SlotsIdle }},
		{"Lag", "mean over trained tokens", "versions", 1, func(r Result) float64 { return r.LagMean }},
		{"Dropped", "share of the groups submitted", "%", 100, func(r Result) float64 { return share(r.Dropped, r.Submitted) }},
		{"Length bias", "mean length of trained responses against those sent out", "%", 100, func(r Result) float64 { return r.MeanKept/r.MeanSent - 1 }},
	} {
		c := report.Curve{Title: m.title, Doc: m.doc, Unit: m.unit, X: x, Scale: m.scale, At: at}
		for _, name := range names {
			l := report.CurveLine{Name: name}
			for _, r := range lines[name] {
				l.Values = append(l.Values, m.of(r))
			}
			c.Lines = append(c.Lines, l)
		}
		out = append(out, c)
	}
	return out
}
