package simulate

import (
	"fmt"
	"strings"
)

// Setting is a swept parameter and its value.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Case is one simulated run of a sweep.
type Case struct {
	Settings []Setting `json:"settings,omitempty"`
	Options  Options   `json:"-"`
	Result   Result    `json:"result"`
}

// Row is a line of a table: what it is, and the value in words.
type Row struct{ Name, Value string }

// Assumptions lists what was put in.
func (o Options) Assumptions() []Row {
	s := o.Spec
	rows := []Row{
		{"run", fmt.Sprintf("%d steps of %d problems x %d responses, mode %s", s.Steps, s.BatchProblems, s.GroupSize, s.Mode)},
	}
	if s.Mode == "async" {
		rows = append(rows, Row{"staleness", fmt.Sprintf("prefill %d, threshold %d, policy %s", s.Prefill, s.Threshold, s.Policy)})
	}
	return append(rows,
		Row{"rollout workers", fmt.Sprintf("%d, each %d responses at once, %s tokens/s for each response", o.Workers, o.Slots, o.Rate)},
		Row{"response lengths", o.Lengths.String() + " tokens"},
		Row{"trainer", fmt.Sprintf("%s an update, %s a checkpoint (every %d steps)", o.Update, o.Checkpoint, s.CheckpointEvery)},
		Row{"validation", fmt.Sprintf("%d problems, every %d steps", o.DevProblems, s.ValidateEvery)},
		Row{"other times", fmt.Sprintf("judge %s a group, swap of weights %s, restart %s, server %s a message", o.Judge, o.Swap, o.Restart, o.Hop)},
		Row{"failures", fmt.Sprintf("%s (rollout attempts, judged groups; updates: a tenth), seed %d", percent(o.Failures), o.Seed)},
	)
}

// Findings lists what came out, most important first.
func (r Result) Findings() []Row {
	rows := []Row{
		{"speed", fmt.Sprintf("%.1f steps/hour, %.2f s a step, %.1f hours in all", r.StepsPerHour, r.StepSeconds, r.Hours)},
		{"trainer", fmt.Sprintf("idle %s; replays and lost updates %s", percent(r.TrainerIdle), percent(r.Replay))},
		{"rollout pool", fmt.Sprintf("workers without any response %s, free slots %s; %.0f tokens/s", percent(r.WorkersIdle), percent(r.SlotsIdle), r.TokensPerSec)},
		{"lag of trained tokens", fmt.Sprintf("mean %.2f versions, largest %d; %s", r.LagMean, r.LagMax, shares(r.LagTokens))},
		{"lag of trained groups", "by the oldest token: " + shares(r.LagGroups)},
		{"groups", fmt.Sprintf("%d submitted, %d trained, %d dropped (%s), %d open at the end", r.Submitted, r.Trained, r.Dropped, percent(share(r.Dropped, r.Submitted)), r.OpenGroups)},
	}
	for _, d := range r.Reasons {
		rows = append(rows, Row{"  dropped, " + d.Reason, fmt.Sprintf("%d (%s)", d.Groups, percent(d.Share))})
	}
	rows = append(rows, Row{"mean response", fmt.Sprintf("%.0f tokens sent out, %.0f trained (%+.2f %%)", r.MeanSent, r.MeanKept, 100*(r.MeanKept/r.MeanSent-1))},
		Row{"faults", fmt.Sprintf("%d rollout workers lost, %d judge faults, %d trainers lost, %d updates replayed", r.WorkerDeaths, r.JudgeFaults, r.TrainersLost, r.Replayed)},
		Row{"orchestration", fmt.Sprintf("%.3f s a step (%s) with the batch complete and the trainer free", r.Overhead, percent(r.OverheadPart))},
		Row{"state of the loop", fmt.Sprintf("at most %d bytes over %d runs of the chain", r.StateMax, len(r.Loops))},
		Row{"largest message", fmt.Sprintf("%d bytes (%s)", r.LargestBytes, r.LargestName)},
		Row{"server", fmt.Sprintf("%.0f events and %.0f workflow tasks a step", r.EventsStep, float64(r.Tasks)/float64(max(1, r.Steps)))},
		Row{"ledger", "balances: every group was trained once, or dropped with a reason"},
	)
	return rows
}

// LengthTable is the share of drops by the longest response of a group: heads and cells.
func (r Result) LengthTable() (heads []string, cells [][]string) {
	heads = []string{"longest response", "groups", "stale", "infrastructure", "dropped"}
	for _, l := range r.Lengths {
		cells = append(cells, []string{l.Longest, fmt.Sprint(l.Submitted), fmt.Sprint(l.Stale), fmt.Sprint(l.Faulty), percent(l.Share)})
	}
	return heads, cells
}

// HistoryTable is the size of the histories by workflow type.
func (r Result) HistoryTable() (heads []string, cells [][]string) {
	heads = []string{"workflow", "runs", "events, mean", "events, most", "bytes, most"}
	for _, h := range r.Histories {
		cells = append(cells, []string{h.Workflow, fmt.Sprint(h.Runs), fmt.Sprintf("%.0f", h.MeanEvents), fmt.Sprint(h.MostEvents), fmt.Sprint(h.MostBytes)})
	}
	return heads, cells
}

// SweepTable has one line a case.
func SweepTable(cases []Case) (heads []string, cells [][]string) {
	for _, s := range cases[0].Settings {
		heads = append(heads, s.Name)
	}
	heads = append(heads, "steps/h", "s/step", "trainer idle", "workers idle", "slots idle", "lag", "max", "stale", "infra", "length bias", "events", "state B")
	for _, c := range cases {
		r := c.Result
		var row []string
		for _, s := range c.Settings {
			row = append(row, s.Value)
		}
		byReason := map[string]float64{}
		for _, d := range r.Reasons {
			byReason[d.Reason] = d.Share
		}
		events := 0
		for _, l := range r.Loops {
			events = max(events, l.Events)
		}
		cells = append(cells, append(row, fmt.Sprintf("%.1f", r.StepsPerHour), fmt.Sprintf("%.1f", r.StepSeconds), percent(r.TrainerIdle),
			percent(r.WorkersIdle), percent(r.SlotsIdle), fmt.Sprintf("%.2f", r.LagMean), fmt.Sprint(r.LagMax), percent(byReason["stale"]),
			percent(byReason["infrastructure"]), fmt.Sprintf("%+.2f %%", 100*(r.MeanKept/r.MeanSent-1)), fmt.Sprint(events), fmt.Sprint(r.StateMax)))
	}
	return heads, cells
}

// assumptions are those of the first case; in a sweep a line says so.
func assumptions(cases []Case) []Row {
	list := cases[0].Options.Assumptions()
	if len(cases) > 1 {
		list = append(list, Row{"", "(of the first line of the table; what is swept stands in the table)"})
	}
	return list
}

// Text is the whole outcome for a terminal.
func Text(cases []Case) string {
	var b strings.Builder
	rows := func(list []Row) {
		for _, r := range list {
			fmt.Fprintf(&b, "%-22s %s\n", r.Name, r.Value)
		}
		b.WriteByte('\n')
	}
	rows(assumptions(cases))
	if len(cases) > 1 {
		heads, cells := SweepTable(cases)
		b.WriteString(aligned(heads, cells, len(cases[0].Settings)))
		return b.String()
	}
	r := cases[0].Result
	rows(r.Findings())
	heads, cells := r.LengthTable()
	b.WriteString(aligned(heads, cells, 1) + "\n")
	heads, cells = r.HistoryTable()
	b.WriteString(aligned(heads, cells, 1))
	return b.String()
}

// aligned writes columns; the first ones are texts and stand to the left.
func aligned(heads []string, cells [][]string, texts int) string {
	widths := make([]int, len(heads))
	all := append([][]string{heads}, cells...)
	for _, row := range all {
		for i, c := range row {
			widths[i] = max(widths[i], len(c))
		}
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, c := range row {
			if i < texts {
				fmt.Fprintf(&line, "%-*s  ", widths[i], c)
			} else {
				fmt.Fprintf(&line, "%*s  ", widths[i], c)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

func shares(list []float64) string {
	var parts []string
	for lag, s := range list {
		parts = append(parts, fmt.Sprintf("%d: %s", lag, percent(s)))
	}
	return strings.Join(parts, ", ")
}

func share(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func percent(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }
