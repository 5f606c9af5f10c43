package live

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/transcript"
)

// samplePage is the page of one trajectory.
type samplePage struct {
	base
	Heading  string
	Facts    []fact
	Colour   string // name of the scale
	Colours  []choice
	Scale    scale
	Legend   []bin
	Why      string // why the wanted colours cannot be shown
	Segments []segment
	Turns    [][]string
	Tests    [][]string
	Judged   string
	Links    []navLink

	Table       bool
	Shown       string // which tokens the table has
	Tokens      [][]string
	Here, Other string // addresses of this view without a page, and of the other view
	Pager
}

type fact struct{ Name, Value string }

type segment struct {
	Origin, Title string
	Pieces        []Piece
}

// tableRows is the number of tokens of a page of the table.
const tableRows = 250

// number reads a number of an address.
func number(r *http.Request, name string) (int, error) {
	text := r.PathValue(name)
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || strconv.Itoa(n) != text {
		return 0, fault.New(fault.Invalid, "live", "%s %q: want a number", name, text)
	}
	return n, nil
}

func (s *Server) groupSample(r *http.Request) (*answer, error) {
	n, err := number(r, "group")
	if err != nil {
		return nil, err
	}
	sample, err := number(r, "sample")
	if err != nil {
		return nil, err
	}
	return s.sample(r, trainSet, func(l record.Layout) (*item, error) { return groupItem(r.Context(), s.c, l, n, sample) })
}

func (s *Server) validationSample(r *http.Request) (*answer, error) {
	problem, err := number(r, "problem")
	if err != nil {
		return nil, err
	}
	sample, err := number(r, "sample")
	if err != nil {
		return nil, err
	}
	set := r.PathValue("validation")
	return s.sample(r, set, func(l record.Layout) (*item, error) {
		return validationItem(r.Context(), s.c, l, set, problem, sample)
	})
}

// sample makes the page of one trajectory.
func (s *Server) sample(r *http.Request, set string, find func(record.Layout) (*item, error)) (*answer, error) {
	ctx, q := r.Context(), r.URL.Query()
	l, err := layoutOf(ctx, s.c, r.PathValue("run"), q.Get("lineage"))
	if err != nil {
		return nil, err
	}
	colour := q.Get("colour")
	if colour == "" {
		colour = Colours()[0]
	}
	if !slices.Contains(Colours(), colour) {
		return nil, fault.New(fault.Invalid, "live", "colour %q: want one of %s", colour, strings.Join(Colours(), ", "))
	}
	view := q.Get("view")
	if view != "" && view != "table" {
		return nil, fault.New(fault.Invalid, "live", "view %q: want table, or none for the text", view)
	}
	it, err := find(l)
	if err != nil {
		return nil, err
	}
	dir, err := s.c.Pull(ctx, l.Base())
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	p := samplePage{base: s.base("Trajectory of "+it.t.ProblemID, l.Run, ""), Heading: it.t.ProblemID, Colour: colour, Table: view == "table"}
	p.Refresh = 0
	var c []float64
	if colour == "correction" {
		if c, err = s.corrections(ctx, l, it); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			p.Why = message(err) + ". Colours show the mass outside the record instead, which is the part of the correction that the files hold."
			colour = "uncovered"
		}
	}
	p.Scale = newScale(colour, it, c)
	p.fill(l, set, it, tok)
	p.links(r, l, set, it)
	if p.Table {
		if q.Get("page") == "" { // begin with what the model wrote
			q.Set("page", strconv.Itoa(1+it.t.Prompt()/tableRows))
		}
		if p.Pager, err = pagerOf(q, it.t.Len(), tableRows); err != nil {
			return nil, err
		}
		p.Shown = fmt.Sprintf("Tokens %d to %d of %d, counted from 0; the prompt ends before token %d.", p.From, max(p.From, p.To-1), p.Total, it.t.Prompt())
		p.tokens(it, tok, c)
	}
	return &answer{body: func() ([]byte, error) { return render("sample", p) }}, nil
}

// message is the text of an error without the function that met it.
func message(err error) string {
	if e, ok := err.(*fault.Error); ok && e.Err != nil { //nolint:errorlint // the outermost one
		return e.Err.Error()
	}
	return err.Error()
}

// corrections computes those of a trajectory once.
func (s *Server) corrections(ctx context.Context, l record.Layout, it *item) ([]float64, error) {
	s.maths.Lock()
	defer s.maths.Unlock()
	key := termKey{l: l, at: it.all[it.at]}
	if it.sealed != nil {
		for _, g := range it.sealed.Groups {
			if g.N == key.at.number {
				key.batch = g.File.Digest
			}
		}
	}
	if c, ok := s.terms[key]; ok && key.batch != "" {
		return c, nil
	}
	c, err := corrections(ctx, s.c, l, it)
	if err == nil {
		const most = 64
		if len(s.terms) >= most {
			clear(s.terms)
		}
		s.terms[key] = c
	}
	return c, err
}

func (p *samplePage) fill(l record.Layout, set string, it *item, tok *tokenizer.Tokenizer) {
	t := it.t
	add := func(name, format string, args ...any) {
		p.Facts = append(p.Facts, fact{name, fmt.Sprintf(format, args...)})
	}
	if set == trainSet {
		add("group", "%d, sample %d of %d", it.group.N, it.all[it.at].sample, len(it.all))
		add("fate", "%s", fate(*it.group))
		add("submitted", "in step %d", it.group.Tag)
	} else {
		add("validation", "%s", set)
		add("problem number", "%d of the split %s", t.Problem, t.Split)
	}
	if v := it.verdict; v != nil {
		add("reward", "%.3f", v.Reward)
		add("verdict", "%s, %d of %d tests passed", spaced(string(v.Kind)), v.Passed, v.Total)
	} else {
		add("verdict", "not judged")
	}
	if it.sample != nil {
		add("advantage", "%s", signedText(it.sample.Advantage))
	}
	if t.End == "" {
		add("end", "none: it is not finished")
	} else {
		add("end", "%s", spaced(string(t.End)))
	}
	add("tokens", "%d of prompt, %d of response, of these %d sampled", t.Prompt(), t.Response(), t.Sampled())
	if lo, hi, ok := t.VersionRange(); ok {
		text := fmt.Sprintf("%d", lo)
		if hi != lo {
			text = fmt.Sprintf("%d to %d", lo, hi)
		}
		if it.sealed != nil {
			text += fmt.Sprintf("; the trainer was at %d", it.sealed.Step-1)
		}
		add("policy version", "%s", text)
	}
	add("time", "%.3f s, tools included", t.Seconds)
	add("lineage", "%s", l.Lineage)

	decode := func(ids []int32) []byte { return tok.DecodeBytes(ids, false) }
	seg := func(origin, title string, begin, end int) {
		p.Segments = append(p.Segments, segment{origin, title, p.Scale.pieces(decode, t.IDs(), begin, end)})
	}
	seg(transcript.Prompt, fmt.Sprintf("Prompt, %d tokens", t.Prompt()), 0, t.Prompt())
	for i, u := range t.Turns {
		seg(transcript.Model, fmt.Sprintf("Turn %d, sampled by the model, %d tokens", i+1, u.End-u.Begin), u.Begin, u.End)
		next := t.Len()
		if i+1 < len(t.Turns) {
			next = t.Turns[i+1].Begin
		}
		if next > u.End {
			seg(transcript.Answer, fmt.Sprintf("Inserted after turn %d: tool output and template, not trained on, %d tokens", i+1, next-u.End), u.End, next)
		}
		row := []string{strconv.Itoa(i + 1), strconv.Itoa(u.End - u.Begin), fmt.Sprintf("%.3f", u.Seconds), "–", "–", "–"}
		if k := u.Call; k != nil {
			row[3] = spaced(k.Status)
			if k.Outcome != "" {
				row[3] += ", " + spaced(k.Outcome)
			}
			row[4], row[5] = fmt.Sprintf("%.3f", k.Seconds), fmt.Sprintf("%.3f", k.QueueSeconds)
		}
		p.Turns = append(p.Turns, row)
	}
	p.Legend = p.Scale.bins
	p.tests(it)
}

// tests lists the judge's results by test.
func (p *samplePage) tests(it *item) {
	v := it.verdict
	if v == nil {
		p.Judged = "It was not judged."
		return
	}
	p.Judged = fmt.Sprintf("%d of %d tests passed. Times are seconds; the charged time is what counts against the limits. In all %.3f s were charged.",
		v.Passed, v.Total, v.ChargedSeconds)
	if v.Shared {
		p.Judged += " Another response of the group was the same program; its runs were taken."
	}
	if v.BudgetExhausted {
		p.Judged += " The budget of time did not suffice for all tests."
	}
	for i, t := range v.Tests {
		how := strconv.Itoa(t.ExitCode)
		if t.Signal != 0 {
			how = fmt.Sprintf("signal %d", t.Signal)
		}
		p.Tests = append(p.Tests, []string{
			strconv.Itoa(i + 1), spaced(string(t.Kind)), how, fmt.Sprintf("%.4f", t.ChargedSeconds), fmt.Sprintf("%.4f", t.CPUSeconds),
			fmt.Sprintf("%.4f", t.WallSeconds), fmt.Sprintf("%.4f", t.QueueSeconds), fmt.Sprintf("%.1f", float64(t.PeakRSSBytes)/(1<<20)),
		})
	}
}

func fate(g ledger.Group) string {
	switch g.Fate {
	case ledger.Trained:
		return fmt.Sprintf("trained in step %d", g.Step)
	case ledger.Dropped:
		if g.Step == 0 {
			return "dropped at the end: " + spaced(g.Reason)
		}
		return fmt.Sprintf("dropped in step %d: %s", g.Step, spaced(g.Reason))
	case ledger.Open:
	}
	return "open"
}

func (p *samplePage) links(r *http.Request, l record.Layout, set string, it *item) {
	q := url.Values{"lineage": {l.Lineage}}
	if p.Colour != Colours()[0] {
		q.Set("colour", p.Colour)
	}
	with := func(key, value string) string {
		c := url.Values{}
		for k, v := range q {
			c[k] = v
		}
		if value == "" {
			c.Del(key)
		} else {
			c.Set(key, value)
		}
		return "?" + c.Encode()
	}
	p.Here, p.Other = with("view", ""), with("view", "table")
	if p.Table {
		p.Here, p.Other = p.Other, p.Here
		q.Set("view", "table")
	}
	for _, name := range Colours() {
		p.Colours = append(p.Colours, choice{with("colour", name), name, name == p.Colour})
	}
	at := func(i int, text string) {
		if i >= 0 && i < len(it.all) {
			o := it.all[i]
			href := sampleHref(l, set, o.number, o.sample)
			if p.Colour != Colours()[0] {
				href += "&colour=" + p.Colour
			}
			p.Links = append(p.Links, navLink{Href: href, Text: text})
		}
	}
	at(it.at-1, "Previous")
	at(it.at+1, "Next")
	if set == trainSet {
		p.Links = append(p.Links, navLink{Href: fmt.Sprintf("/runs/%s/groups/%d?lineage=%s", l.Run, it.group.N, l.Lineage), Text: "All of the group"})
	}
	if it.sealed != nil {
		p.Links = append(p.Links, navLink{Href: fmt.Sprintf("/runs/%s/trajectories?lineage=%s&step=%d", l.Run, l.Lineage, it.sealed.Step), Text: fmt.Sprintf("All of step %d", it.sealed.Step)})
	}
	p.Links = append(p.Links, navLink{
		Href: fmt.Sprintf("/runs/%s/trajectories?lineage=%s&set=%s&problem=%s", l.Run, l.Lineage, set, url.QueryEscape(it.t.ProblemID)), Text: "All of this problem",
	})
}

// tokens fills the page of the table.
func (p *samplePage) tokens(it *item, tok *tokenizer.Tokenizer, c []float64) {
	t := it.t
	num := func(v float64, format string) string {
		if math.IsNaN(v) {
			return "–"
		}
		return strings.ReplaceAll(fmt.Sprintf(format, v), "-", "−")
	}
	for i := p.From; i < p.To; i++ {
		text := strconv.QuoteToGraphic(strings.ToValidUTF8(string(tok.DecodeBytes(t.IDs()[i:i+1], false)), "\uFFFD"))
		row := []string{strconv.Itoa(i), transcript.Visible(text), strconv.Itoa(int(t.IDs()[i]))}
		if !t.Mask()[i] {
			who := "inserted"
			if i < t.Prompt() {
				who = "prompt"
			}
			p.Tokens = append(p.Tokens, append(row, who, "–", "–", "–", "–", "–", "–"))
			continue
		}
		advantage, corr := math.NaN(), math.NaN()
		if it.sample != nil {
			advantage = it.sample.Advantage
		}
		if c != nil {
			corr = c[i]
		}
		p.Tokens = append(p.Tokens, append(row, fmt.Sprintf("turn %d", t.TurnIndex()[i]+1), strconv.Itoa(int(t.Versions()[i])),
			num(float64(t.LogProbs()[i]), "%.4f"), num(float64(t.Entropies()[i]), "%.4f"), num(uncovered(it, i), "%.2e"), num(advantage, "%+.4g"), num(corr, "%+.3e")))
	}
}

// group lists the trajectories of a group, whatever became of it.
func (s *Server) group(r *http.Request) (*answer, error) {
	ctx := r.Context()
	n, err := number(r, "group")
	if err != nil {
		return nil, err
	}
	l, err := layoutOf(ctx, s.c, r.PathValue("run"), r.URL.Query().Get("lineage"))
	if err != nil {
		return nil, err
	}
	led, err := ledger.Load(ctx, s.c, l)
	if err != nil {
		return nil, err
	}
	g, ok := led.Group(n)
	if !ok {
		return nil, fault.New(fault.NotFound, "live", "the ledger of run %s, lineage %s, has no group %d", l.Run, l.Lineage, n).
			WithHint("it has %d groups; those in flight appear with the next sealed batch", len(led.Groups))
	}
	p := struct {
		base
		Heading string
		Facts   []fact
		Rows    []browseRow
	}{base: s.base(fmt.Sprintf("Group %d of %s", n, l.Run), l.Run, ""), Heading: fmt.Sprintf("Group %d", n)}
	p.Refresh = 0
	p.Facts = []fact{{"fate", fate(g)}, {"problem number", strconv.Itoa(g.Problem)}, {"submitted", fmt.Sprintf("in step %d", g.Tag)}, {"submissions before", strconv.Itoa(g.Submission)}}
	if g.Tokens > 0 {
		p.Facts = append(p.Facts, fact{"sampled tokens", strconv.Itoa(g.Tokens)})
	}
	ts, verdicts, err := readUnit(ctx, s.c, l, record.GroupUnit(g.N, g.Tag, g.Problem, g.Submission))
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	samples := map[int]record.Sample{}
	if g.Fate == ledger.Trained {
		if b, err := read[record.Sealed](ctx, s.c, l.Batch(g.Step)); err == nil {
			for _, one := range b.Samples {
				if one.Group == n {
					samples[one.Index] = one
				}
			}
		}
	}
	for i, t := range ts {
		row := Row{Step: g.Step, Group: n, Sample: t.Sample, Problem: t.ProblemID, Tokens: t.Len(), Sampled: t.Sampled(), Read: true, End: string(t.End), Turns: len(t.Turns), Seconds: t.Seconds}
		row.MinVersion, row.MaxVersion, _ = t.VersionRange()
		if i < len(verdicts) {
			v := verdicts[i]
			row.Reward, row.Outcome, row.Passed, row.Total = record.Num(v.Reward), string(v.Kind), v.Passed, v.Total
		}
		if one, ok := samples[i]; ok {
			row.Advantage = record.Num(one.Advantage)
		}
		p.Rows = append(p.Rows, newBrowseRow(l, trainSet, row))
	}
	return &answer{body: func() ([]byte, error) { return render("group", p) }}, nil
}
