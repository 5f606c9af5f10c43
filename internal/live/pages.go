package live

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/report"
)

// runsAtOnce bounds the runs that are looked at at once for the list: in a bucket a look is a few requests.
const runsAtOnce = 4

// home lists the runs, the newest change first.
func (s *Server) home(r *http.Request) (*answer, error) {
	ctx := r.Context()
	names, err := Runs(ctx, s.c)
	if err != nil {
		return nil, err
	}
	list := make([]*Status, len(names))
	var g errgroup.Group
	g.SetLimit(runsAtOnce)
	for i, name := range names {
		g.Go(func() error {
			st, err := s.newest(ctx, name)
			if err != nil && ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				st = &Status{Run: name, State: "damaged", Why: err.Error(), Balanced: true, stamp: err.Error()}
			}
			list[i] = st
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var stamps []string
	for i, name := range names {
		stamps = append(stamps, name, list[i].stamp)
	}
	slices.SortStableFunc(list, func(a, b *Status) int {
		return cmp.Or(strings.Compare(b.Changed, a.Changed), strings.Compare(a.Run, b.Run))
	})
	tag := s.tag(r, stamps...)
	return &answer{tag, func() ([]byte, error) {
		p := struct {
			base
			Runs []runRow
		}{base: s.base("Runs", "", "Runs")}
		p.Stamp = tag
		for _, st := range list {
			p.Runs = append(p.Runs, newRunRow(st))
		}
		return render("home", p)
	}}, nil
}

// newest returns the status of the newest lineage of a run.
func (s *Server) newest(ctx context.Context, run string) (*Status, error) {
	l, err := layoutOf(ctx, s.c, run, "")
	if fault.Is(err, fault.NotFound) {
		return &Status{Run: run, State: Absent, Balanced: true}, nil
	}
	if err != nil {
		return nil, err
	}
	x, err := s.lineageOf(ctx, l)
	if err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	return s.statusLocked(ctx, l, x)
}

// runRow is a line of the list of runs.
type runRow struct {
	*Status
	Tone, Steps, Dev, Rate, Left, When string
}

func newRunRow(st *Status) runRow {
	row := runRow{Status: st, Dev: cmp.Or(strings.ReplaceAll(st.DevText(), " %", "\u00a0%"), "–"), Steps: "–", Rate: "–", Left: duration(st.LeftSeconds), When: clock(st.Changed)}
	switch st.State {
	case Done:
		row.Tone = "good"
	case Failed, "damaged":
		row.Tone = "bad"
	default:
	}
	if st.Steps > 0 {
		row.Steps = fmt.Sprintf("%d of %d", st.Step, st.Steps)
	}
	if st.TrainRate != nil {
		row.Rate = short(*st.TrainRate) + " tokens/s"
	}
	return row
}

// Linked reports whether there is a page of the run.
func (r runRow) Linked() bool { return r.State != Absent && r.State != "damaged" }

// maxReports is the number of reports that are kept, about a megabyte each.
const maxReports = 16

// report is the page that `steady report` writes, as it is now.
func (s *Server) report(r *http.Request) (*answer, error) {
	l, x, err := s.requested(r)
	if err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	stamp := x.view.stamp
	tag := s.tag(r, stamp)
	return &answer{tag, func() ([]byte, error) {
		x.mu.Lock() // so that equal work is done once
		defer x.mu.Unlock()
		s.mu.Lock()
		made := s.reports[l]
		s.mu.Unlock()
		if made.tag == tag {
			return made.body, nil
		}
		d, err := report.Load(r.Context(), s.c, l)
		if err != nil {
			return nil, err
		}
		b := s.base("Run "+l.Run, l.Run, "Report")
		b.Stamp = tag
		above, err := render("above", b)
		if err != nil {
			return nil, err
		}
		var page strings.Builder
		err = report.RenderLive(&page, d, report.Frame{
			Style: "/style.css", Script: "/live.js", Refresh: s.o.Refresh, Stamp: tag, Above: template.HTML(above), //nolint:gosec // written by a template that escapes
			Foot: "It is refreshed while it is open.",
		})
		if err != nil {
			return nil, err
		}
		made = madePage{tag, plain(page.String())}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.reports) >= maxReports {
			clear(s.reports)
		}
		s.reports[l] = made
		return made.body, nil
	}}, nil
}

// browsePage is the list of trajectories.
type browsePage struct {
	base
	Run, Lineage string
	Filter       Filter
	StepText     string
	Sets         []choice
	Outcomes     []choice
	Ends         []choice
	Sorts        []choice
	Rows         []browseRow
	Note         string
	Pager
}

type choice struct {
	Value, Text string
	Selected    bool
}

type browseRow struct {
	Row
	Href, Reward, Advantage, Verdict, Length, Versions, End string
}

// pageRows is the number of rows of a page.
const pageRows = 50

// Pager says which part of a list a page has.
type Pager struct {
	Page, Pages, From, To, Total int
	Previous, Next               string // addresses, empty at the ends
}

// pagerOf reads the page of a query over a list; size is the number of rows of a page.
func pagerOf(q url.Values, total, size int) (Pager, error) {
	p := Pager{Page: 1, Total: total, Pages: max(1, (total+size-1)/size)}
	if text := q.Get("page"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return p, fault.New(fault.Invalid, "live", "page %q: want a number from 1 on", text)
		}
		p.Page = min(n, p.Pages)
	}
	p.From, p.To = min(total, (p.Page-1)*size), min(total, p.Page*size)
	link := func(n int) string {
		if n < 1 || n > p.Pages {
			return ""
		}
		q.Set("page", strconv.Itoa(n))
		return "?" + q.Encode()
	}
	p.Previous, p.Next = link(p.Page-1), link(p.Page+1)
	return p, nil
}

// First is the number of the first row, from 1 on.
func (p Pager) First() int { return min(p.From+1, p.Total) }

// parseFilter reads the filter of a request. Unknown values are refused, so that a typo is no empty list.
func parseFilter(q url.Values, sets []string) (Filter, error) {
	const op = "live"
	f := Filter{Set: cmp.Or(q.Get("set"), trainSet), Step: -1, Problem: q.Get("problem"), Outcome: q.Get("outcome"), End: q.Get("end"), Sort: cmp.Or(q.Get("sort"), Sorts()[0])}
	if text := q.Get("step"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return f, fault.New(fault.Invalid, op, "step %q: want a number", text).WithHint("leave the field empty for all steps")
		}
		f.Step = n
	}
	for _, c := range []struct {
		what, value string
		known       []string
	}{{"set", f.Set, sets}, {"outcome", f.Outcome, append([]string{""}, outcomes()...)}, {"end", f.End, append([]string{""}, ends()...)}, {"sort", f.Sort, Sorts()}} {
		if !slices.Contains(c.known, c.value) {
			return f, fault.New(fault.Invalid, op, "%s %q: want one of %s", c.what, c.value, strings.TrimPrefix(strings.Join(c.known, ", "), ", "))
		}
	}
	return f, nil
}

func (s *Server) browse(r *http.Request) (*answer, error) {
	ctx := r.Context()
	l, x, err := s.requested(r)
	if err != nil {
		return nil, err
	}
	idx := x.index
	err = idx.update(ctx, x.view)
	x.mu.Unlock()
	if err != nil {
		return nil, err
	}
	f, err := parseFilter(r.URL.Query(), idx.names())
	if err != nil {
		return nil, err
	}
	p := browsePage{base: s.base("Trajectories of "+l.Run, l.Run, "Trajectories"), Run: l.Run, Lineage: l.Lineage, Filter: f}
	p.Refresh = 0
	if f.deep() {
		work := idx.complete(s.ctx, f.Set, s.background)
		wait := time.NewTimer(s.o.Patience)
		defer wait.Stop()
		select {
		case <-work.done:
			if work.err != nil {
				return nil, work.err
			}
		case <-wait.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	rows, readUnits, units := idx.list(f)
	if f.deep() && readUnits < units {
		p.Note = fmt.Sprintf("The files of %d of %d groups have been read so far; the list grows when the page is loaded again.", readUnits, units)
		p.Refresh = s.o.Refresh
	}
	if p.Pager, err = pagerOf(r.URL.Query(), len(rows), pageRows); err != nil {
		return nil, err
	}
	visible := rows[p.From:p.To]
	for _, v := range visible {
		if err := idx.fill(ctx, v.u); err != nil {
			return nil, err
		}
	}
	for _, row := range idx.copied(visible) {
		p.Rows = append(p.Rows, newBrowseRow(l, f.Set, row))
	}
	p.fillChoices(idx.names())
	return &answer{body: func() ([]byte, error) { return render("browse", p) }}, nil
}

func (p *browsePage) fillChoices(sets []string) {
	choose := func(values []string, any, current string) []choice {
		var out []choice
		if any != "" {
			out = append(out, choice{"", any, current == ""})
		}
		for _, v := range values {
			out = append(out, choice{v, spaced(v), v == current})
		}
		return out
	}
	p.Sets = choose(sets, "", p.Filter.Set)
	for i := range p.Sets {
		switch v := p.Sets[i].Value; v {
		case trainSet:
			p.Sets[i].Text = "training"
		case exported:
			p.Sets[i].Text = "validation of the export"
		default:
			p.Sets[i].Text = "validation " + strings.TrimLeft(v[:len(v)-1], "0") + v[len(v)-1:]
		}
	}
	p.Outcomes, p.Ends, p.Sorts = choose(outcomes(), "any", p.Filter.Outcome), choose(ends(), "any", p.Filter.End), choose(Sorts(), "", p.Filter.Sort)
	if p.Filter.Step >= 0 {
		p.StepText = strconv.Itoa(p.Filter.Step)
	}
}

// spaced makes words of a name.
func spaced(s string) string { return strings.ReplaceAll(s, "_", " ") }

func newBrowseRow(l record.Layout, set string, r Row) browseRow {
	b := browseRow{Row: r, Reward: "–", Advantage: "–", Verdict: "not judged", End: cmp.Or(spaced(r.End), "–"), Length: strconv.Itoa(r.Sampled)}
	b.Href = sampleHref(l, set, r.Group, r.Sample)
	if r.Reward != nil {
		b.Reward = fmt.Sprintf("%.3f", *r.Reward)
	}
	if r.Advantage != nil {
		b.Advantage = signedText(*r.Advantage)
	}
	switch {
	case r.Outcome != "":
		b.Verdict = fmt.Sprintf("%s, %d of %d", spaced(r.Outcome), r.Passed, r.Total)
	case r.Gone != "":
		b.Verdict = r.Gone
	}
	b.Versions = strconv.Itoa(r.MinVersion)
	if r.MaxVersion != r.MinVersion {
		b.Versions += "–" + strconv.Itoa(r.MaxVersion)
	}
	return b
}

// sampleHref is the address of a trajectory; for a validation group is the number of the problem.
func sampleHref(l record.Layout, set string, group, sample int) string {
	at := fmt.Sprintf("/runs/%s/groups/%d/%d", l.Run, group, sample)
	if set != trainSet {
		at = fmt.Sprintf("/runs/%s/validations/%s/%d/%d", l.Run, set, group, sample)
	}
	return at + "?lineage=" + url.QueryEscape(l.Lineage)
}

// Numbers for people.

// signedText writes a number with its sign.
func signedText(v float64) string {
	if v == 0 {
		return "0"
	}
	return strings.ReplaceAll(fmt.Sprintf("%+.4g", v), "-", "−")
}

// short writes a number with about four digits.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%.1f k", v/1e3)
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// duration writes seconds; unknown ones are a dash.
func duration(v *float64) string {
	if v == nil {
		return "–"
	}
	d := time.Duration(*v * float64(time.Second))
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%.3g s", *v)
}

// clock writes an RFC 3339 time in UTC; what is none stays as it is.
func clock(s string) string {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return s
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}
