package live

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/report"
)

// ledgerPage is the page of the ledger.
type ledgerPage struct {
	base
	Run, Lineage  string
	Verdict, Tone string
	Violations    []string
	Counts        [][]string
	Chart         template.HTML
	Fates         []choice
	Step          string
	Groups        []groupRow
	Pager
}

type groupRow struct {
	Href  string // empty: nothing is kept of it
	N     int
	Cells []string
}

// anyFate chooses all groups.
const anyFate = ""

func (s *Server) ledger(r *http.Request) (*answer, error) {
	ctx, q := r.Context(), r.URL.Query()
	l, x, err := s.requested(r)
	if err != nil {
		return nil, err
	}
	stamp := x.view.stamp
	x.mu.Unlock()
	led, err := ledger.Load(ctx, s.c, l)
	if err != nil {
		return nil, err
	}
	p := ledgerPage{base: s.base("Ledger of "+l.Run, l.Run, "Ledger"), Run: l.Run, Lineage: l.Lineage, Step: q.Get("step")}
	want, step := q.Get("fate"), -1
	if p.Step != "" {
		if step, err = strconv.Atoi(p.Step); err != nil || step < 0 {
			return nil, fault.New(fault.Invalid, "live", "step %q: want a number", p.Step).WithHint("leave the field empty for all steps")
		}
	}
	fates := []string{anyFate, string(ledger.Trained), string(ledger.Dropped), ledger.Stale, ledger.Infrastructure, ledger.RunEnded, string(ledger.Open)}
	if !slices.Contains(fates, want) {
		return nil, fault.New(fault.Invalid, "live", "fate %q: want one of %s", want, strings.Join(fates[1:], ", "))
	}
	for _, f := range fates {
		text := cmp.Or(spaced(f), "any")
		if f == ledger.Stale || f == ledger.Infrastructure || f == ledger.RunEnded {
			text = "dropped: " + text
		}
		p.Fates = append(p.Fates, choice{f, text, f == want})
	}
	var groups []ledger.Group
	for _, g := range led.Groups {
		if step >= 0 && g.Step != step && g.Tag != step || want != anyFate && string(g.Fate) != want && g.Reason != want {
			continue
		}
		groups = append(groups, g)
	}
	slices.Reverse(groups) // the newest first
	if p.Pager, err = pagerOf(q, len(groups), pageRows); err != nil {
		return nil, err
	}
	tag := s.tag(r, stamp)
	p.Stamp = tag
	return &answer{tag, func() ([]byte, error) {
		if err := p.fill(led); err != nil {
			return nil, err
		}
		for _, g := range groups[p.From:p.To] {
			row := groupRow{N: g.N, Href: fmt.Sprintf("/runs/%s/groups/%d?lineage=%s", l.Run, g.N, l.Lineage)}
			tokens := "–"
			if g.Tokens > 0 {
				tokens = strconv.Itoa(g.Tokens)
			}
			row.Cells = []string{fate(g), strconv.Itoa(g.Problem), strconv.Itoa(g.Tag), strconv.Itoa(g.Submission), tokens}
			p.Groups = append(p.Groups, row)
		}
		return render("ledger", p)
	}}, nil
}

func (p *ledgerPage) fill(led ledger.Ledger) error {
	n := led.Count()
	p.Violations = led.Violations()
	p.Tone, p.Verdict = "good", "The books balance."
	if k := len(p.Violations); k > 0 {
		p.Tone, p.Verdict = "bad", fmt.Sprintf("The books do not balance: %d violations.", k)
		p.Violations = p.Violations[:min(k, 20)]
	}
	add := func(name string, groups int, rest ...string) {
		share := "–"
		if n.Submitted > 0 {
			share = fmt.Sprintf("%.1f %%", 100*float64(groups)/float64(n.Submitted))
		}
		p.Counts = append(p.Counts, append([]string{name, strconv.Itoa(groups), share}, append(rest, "")[0]))
	}
	add("submitted", n.Submitted)
	add("trained", n.Trained)
	for _, r := range n.Reasons {
		add("dropped: "+spaced(r.Reason), r.Groups, strconv.Itoa(r.Tokens))
	}
	add("open", n.Open)
	trained, dropped := map[int]int{}, map[int]int{}
	for _, g := range led.Groups {
		switch {
		case g.Step == 0: // open, or dropped when the loop ended
		case g.Fate == ledger.Trained:
			trained[g.Step]++
		case g.Fate == ledger.Dropped:
			dropped[g.Step]++
		}
	}
	a, b := report.Line{Name: "trained"}, report.Line{Name: "dropped"}
	for step := led.Start.Step + 1; step <= led.Last; step++ {
		a.Steps, b.Steps = append(a.Steps, step), append(b.Steps, step)
		a.Values, b.Values = append(a.Values, record.Num(float64(trained[step]))), append(b.Values, record.Num(float64(dropped[step])))
	}
	var err error
	p.Chart, err = report.Draw("c-fates", "Groups by step", "what the record of each step says", "drops", a, b)
	return err
}

// failuresPage is the time line of failures and recoveries.
type failuresPage struct {
	base
	Run, Lineage string
	Summary      string
	Line         *timeLine
	Kinds        []choice
	Events       []eventRow
	Pager
}

type eventRow struct{ When, After, Kind, Where, Message, Step, Tone string }

// timeLine is a drawing: failures above, recoveries below, steps as ticks.
type timeLine struct {
	From, To, Length string
	Marks            []mark
	Ticks            []mark
}

type mark struct{ X, Y, Class, Title string }

func (s *Server) failures(r *http.Request) (*answer, error) {
	ctx, q := r.Context(), r.URL.Query()
	l, x, err := s.requested(r)
	if err != nil {
		return nil, err
	}
	st, err := s.statusLocked(ctx, l, x)
	x.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p := failuresPage{base: s.base("Failures of "+l.Run, l.Run, "Failures"), Run: l.Run, Lineage: l.Lineage}
	kinds := map[string]int{}
	for _, e := range st.Events {
		kinds[e.Kind]++
	}
	kind := q.Get("kind")
	if kind != "" && kinds[kind] == 0 {
		return nil, fault.New(fault.NotFound, "live", "the run has no event of the kind %q", kind).WithHint("choose one from the list")
	}
	p.Kinds = []choice{{"", fmt.Sprintf("any (%d)", len(st.Events)), kind == ""}}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		p.Kinds = append(p.Kinds, choice{k, fmt.Sprintf("%s (%d)", spaced(k), kinds[k]), k == kind})
	}
	var events []record.Event
	for _, e := range slices.Backward(st.Events) {
		if kind == "" || e.Kind == kind {
			events = append(events, e)
		}
	}
	if p.Pager, err = pagerOf(q, len(events), pageRows); err != nil {
		return nil, err
	}
	p.Summary = fmt.Sprintf("Failures recorded: %d. Recoveries: %d.", st.Failures, st.Recoveries)
	for _, e := range events[p.From:p.To] {
		row := eventRow{When: clock(e.Time), After: after(st.Started, e.Time), Kind: e.Kind, Where: e.Where, Message: e.Message, Tone: "bad"}
		if report.Recovery(e.Kind) {
			row.Tone = "good"
		}
		if e.Step > 0 {
			row.Step = strconv.Itoa(e.Step)
		}
		p.Events = append(p.Events, row)
	}
	p.Line = newTimeLine(st)
	tag := s.tag(r, st.stamp)
	p.Stamp = tag
	return &answer{tag, func() ([]byte, error) { return render("failures", p) }}, nil
}

// after is the time from the start of a run to an event.
func after(from, to string) string {
	a, b := parseTime(from), parseTime(to)
	if a == 0 || b < a {
		return ""
	}
	return duration(record.Num(float64(b-a) / 1e9))
}

// lineWidth is that of the drawing, in user units.
const lineWidth = 1000.0

// newTimeLine draws the events from the start of the run to the newest.
func newTimeLine(st *Status) *timeLine {
	if len(st.Events) == 0 {
		return nil
	}
	from, to := parseTime(st.Started), int64(0)
	for _, e := range st.Events {
		if t := parseTime(e.Time); t > 0 {
			if from == 0 || t < from {
				from = t
			}
			to = max(to, t)
		}
	}
	if to <= from {
		to = from + int64(time.Second)
	}
	x := func(t int64) string {
		share := float64(t-from) / float64(to-from)
		return strconv.FormatFloat(math.Round(10*(12+share*(lineWidth-24)))/10, 'f', -1, 64)
	}
	text := func(t int64) string { return time.Unix(0, t).UTC().Format("2006-01-02 15:04:05 UTC") }
	out := &timeLine{From: text(from), To: text(to), Length: duration(record.Num(float64(to-from) / 1e9))}
	for _, e := range st.Events {
		t := parseTime(e.Time)
		if t == 0 {
			continue
		}
		m := mark{X: x(t), Y: "26", Class: "bad", Title: clock(e.Time) + ": " + e.Kind + ", " + e.Where}
		if report.Recovery(e.Kind) {
			m.Y, m.Class = "58", "good"
		}
		out.Marks = append(out.Marks, m)
	}
	const most = 2000
	if n := len(out.Marks); n > most {
		out.Marks = out.Marks[n-most:]
	}
	return out
}
