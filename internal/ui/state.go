package ui

import (
	"fmt"
	"strings"
)

// State is what a person wants to know of a run. Pointers are nil where a number is not known yet.
type State struct {
	Run     string
	Phase   string // for example "dataset", "training", "export"
	Detail  string // a few words more, may be empty
	Step    int    // last finished step
	Steps   int    // last step of the run; 0 while it is not known
	Paused  bool
	Trainer string // host that holds the trainer
	Open    int    // groups in flight
	Done    int    // groups that wait for their step
	Trained int    // trajectories trained
	Drops   int    // groups dropped
	Reward  *float64
	Lag     *float64
	Seconds *float64 // length of the last step
	Dev     []DevRow
}

// DevRow is one validation. Shares are in [0, 1].
type DevRow struct {
	Name      string // step, or "export"
	Problems  int
	Solved    int
	Acc       float64
	PassRate  float64
	FormatOK  float64
	ToolUsed  int
	LengthCut float64
}

// DevTable renders the validations, a line each under a heading, without a final line break.
func DevTable(rows []DevRow) string {
	lines := []string{"  step  solved       acc  pass_rate  format_ok  tool_used  length_cut"}
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%6s %7s %7.2f %% %8.2f %% %8.2f %% %10d %9.2f %%",
			r.Name, fmt.Sprintf("%d/%d", r.Solved, r.Problems), 100*r.Acc, 100*r.PassRate, 100*r.FormatOK, r.ToolUsed, 100*r.LengthCut))
	}
	return strings.Join(lines, "\n")
}

// pausedMark stands in the first line while a run is paused.
const pausedMark = "[paused]"

// lines renders s for a terminal of the given width.
func (s State) lines(width int) []string {
	head := s.Run + "  " + s.Phase
	if s.Detail != "" {
		head += ": " + s.Detail
	}
	if s.Paused {
		head += "  " + pausedMark
	}
	out := []string{head}
	if s.Steps > 0 {
		out = append(out, fmt.Sprintf("%s step %d of %d", bar(s.Step, s.Steps, min(40, max(10, width-30))), s.Step, s.Steps))
		out = append(out, s.numbers(), s.counts())
	}
	if len(s.Dev) > 0 {
		first, last := s.Dev[0], s.Dev[len(s.Dev)-1]
		line := fmt.Sprintf("dev   %d/%d solved (%.1f %%) at %s", last.Solved, last.Problems, 100*last.Acc, last.Name)
		if len(s.Dev) > 1 {
			line += fmt.Sprintf(", %d/%d at %s", first.Solved, first.Problems, first.Name)
		}
		out = append(out, line)
	}
	for i := range out {
		out[i] = cut(out[i], width)
	}
	return out
}

func (s State) numbers() string {
	return "last  reward " + number(s.Reward, "%.3f") + "  lag " + number(s.Lag, "%.2f") + "  " + number(s.Seconds, "%.1f s")
}

func (s State) counts() string {
	line := fmt.Sprintf("work  %d groups in flight, %d ready, %d dropped, %d trajectories trained", s.Open, s.Done, s.Drops, s.Trained)
	if s.Trainer != "" {
		line += ", trainer " + s.Trainer
	}
	return line
}

// plain renders s as one line; two states with the same line are not worth two lines in a log.
func (s State) plain() string {
	line := s.Run + " " + s.Phase
	if s.Detail != "" {
		line += ": " + s.Detail
	}
	if s.Paused {
		line += " (paused)"
	}
	if s.Steps > 0 {
		line += fmt.Sprintf(" step %d/%d", s.Step, s.Steps)
		if s.Reward != nil {
			line += " reward " + number(s.Reward, "%.3f")
		}
		if s.Lag != nil {
			line += " lag " + number(s.Lag, "%.2f")
		}
	}
	return line
}

func number(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

func bar(done, all, width int) string {
	n := min(width, max(0, width*done/all))
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", width-n) + "]"
}

// cut shortens s to width characters, so that a line never wraps and the redraw stays in place.
func cut(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:max(0, width-1)]) + "~"
	}
	return s
}
