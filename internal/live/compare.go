package live

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"sort"
	"strings"

	"github.com/steadyrl/steady/internal/eval"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/report"
)

// comparePage compares two runs.
type comparePage struct {
	base
	A, B    string
	AllA    []choice
	AllB    []choice
	Chosen  bool
	Heads   []string
	Facts   [][]string
	Dev     []devRow
	DevNote string
	Diffs   []diff
	Same    int // keys that are equal
	Charts  []template.HTML
	Left    int // numbers that neither run has
}

// diff is a configuration key that differs.
type diff struct{ Key, A, B string }

// devRow compares a validation that both runs have, problem by problem.
type devRow struct{ Name, A, B, Problems, Difference, Interval, Better, Worse string }

func (s *Server) compare(r *http.Request) (*answer, error) {
	ctx, q := r.Context(), r.URL.Query()
	names, err := Runs(ctx, s.c)
	if err != nil {
		return nil, err
	}
	p := comparePage{base: s.base("Compare two runs", "", "Compare"), A: q.Get("a"), B: q.Get("b")}
	p.Refresh = 0
	pick := func(current string) []choice {
		out := []choice{{"", "choose a run", current == ""}}
		for _, n := range names {
			out = append(out, choice{n, n, n == current})
		}
		return out
	}
	p.AllA, p.AllB = pick(p.A), pick(p.B)
	p.Chosen = p.A != "" && p.B != ""
	tag := ""
	var a, b *report.Data
	if p.Chosen {
		la, va, err := s.side(ctx, p.A)
		if err != nil {
			return nil, err
		}
		lb, vb, err := s.side(ctx, p.B)
		if err != nil {
			return nil, err
		}
		tag = s.tag(r, append(names, va.stamp, vb.stamp)...)
		p.Refresh, p.Stamp = s.o.Refresh, tag
		if r.Header.Get("If-None-Match") == `"`+tag+`"` {
			return &answer{tag: tag}, nil
		}
		if a, err = report.LoadCurves(ctx, s.c, la); err != nil {
			return nil, err
		}
		if b, err = report.LoadCurves(ctx, s.c, lb); err != nil {
			return nil, err
		}
	}
	return &answer{tag, func() ([]byte, error) {
		if p.Chosen {
			if err := p.fill(a, b); err != nil {
				return nil, err
			}
		}
		return render("compare", p)
	}}, nil
}

// side finds one of the two runs.
func (s *Server) side(ctx context.Context, run string) (record.Layout, *view, error) {
	l, err := layoutOf(ctx, s.c, run, "")
	if err != nil {
		return l, nil, err
	}
	x, err := s.lineageOf(ctx, l)
	if err != nil {
		return l, nil, err
	}
	defer x.mu.Unlock()
	return l, x.view, nil
}

func (p *comparePage) fill(a, b *report.Data) error {
	p.Heads = []string{"", p.A, p.B}
	fact := func(name string, of func(d *report.Data) string) {
		p.Facts = append(p.Facts, []string{name, cmp.Or(of(a), "–"), cmp.Or(of(b), "–")})
	}
	fact("recipe", func(d *report.Data) string { return runOf(d).Recipe })
	fact("base model", func(d *report.Data) string { return runOf(d).BaseModel })
	fact("engine", func(d *report.Data) string { return runOf(d).Engine })
	fact("started", func(d *report.Data) string { return clock(runOf(d).Started) })
	fact("newest step", func(d *report.Data) string {
		for _, s := range slices.Backward(d.Steps) {
			if s.Update != nil {
				return fmt.Sprint(s.Step)
			}
		}
		return ""
	})
	if err := p.diffConfig(a.Config, b.Config); err != nil {
		return err
	}
	p.compareDev(a, b)
	return p.curves(a, b)
}

func runOf(d *report.Data) record.Run {
	if d.Run == nil {
		return record.Run{}
	}
	return *d.Run
}

// compareDev compares the validations of the same step, and the newest of each.
func (p *comparePage) compareDev(a, b *report.Data) {
	byStep := func(d *report.Data) map[int]record.Validation {
		out := map[int]record.Validation{}
		for _, v := range d.Published() {
			out[v.Version] = v
		}
		return out
	}
	va, vb := byStep(a), byStep(b)
	for _, step := range slices.Sorted(maps.Keys(va)) {
		if y, ok := vb[step]; ok {
			p.addDev(fmt.Sprintf("step %d", step), va[step], y)
		}
	}
	pa, pb := a.Published(), b.Published()
	if len(pa) == 0 || len(pb) == 0 {
		p.DevNote = "One of the runs has no validation yet."
		return
	}
	if x, y := pa[len(pa)-1], pb[len(pb)-1]; x.Version != y.Version {
		p.addDev(fmt.Sprintf("newest: step %d and step %d", x.Version, y.Version), x, y)
	}
	if len(p.Dev) == 0 {
		p.DevNote = "No problem is in the validations of both runs, so they cannot be compared problem by problem."
		return
	}
	p.DevNote = "Only problems that are in both validations are compared, in pairs: the difference of the shares of solved problems, B minus A, " +
		"with the 95 % interval of steady eval compare. It covers the choice of the problems, not the luck of another run of training."
}

func (p *comparePage) addDev(name string, x, y record.Validation) {
	solved := map[string]bool{}
	for _, it := range x.Items {
		solved[it.Problem] = it.Total > 0 && it.Passed == it.Total
	}
	var d []float64
	better, worse, inA, inB := 0, 0, 0, 0
	for _, it := range y.Items {
		was, ok := solved[it.Problem]
		if !ok {
			continue
		}
		now := it.Total > 0 && it.Passed == it.Total
		inA, inB = inA+b2i(was), inB+b2i(now)
		better, worse = better+b2i(now && !was), worse+b2i(was && !now)
		d = append(d, float64(b2i(now)-b2i(was)))
	}
	if len(d) == 0 {
		return
	}
	e := eval.Paired(d)
	points := func(v float64) string { return strings.ReplaceAll(fmt.Sprintf("%+.2f", 100*v), "-", "−") }
	share := func(n int) string { return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(len(d))) }
	p.Dev = append(p.Dev, devRow{
		name, share(inA), share(inB), fmt.Sprint(len(d)), points(e.Value) + " points", points(e.Low) + " to " + points(e.High), fmt.Sprint(better), fmt.Sprint(worse),
	})
}

// curves draws every number of the steps of both runs, and the dev accuracy.
func (p *comparePage) curves(a, b *report.Data) error {
	dev := func(d *report.Data, of func(record.DevMetrics) float64) report.Line {
		var l report.Line
		for _, v := range d.Published() {
			l.Steps, l.Values = append(l.Steps, v.Version), append(l.Values, record.Num(of(v.Metrics)))
		}
		return l
	}
	add := func(name, title, doc string, x, y report.Line) error {
		if none(x) && none(y) {
			p.Left++
			return nil
		}
		x.Name, y.Name = "A: "+p.A, "B: "+p.B
		c, err := report.Draw("c-"+name, title, doc, name, x, y)
		p.Charts = append(p.Charts, c)
		return err
	}
	acc, rate := func(m record.DevMetrics) float64 { return m.Acc }, func(m record.DevMetrics) float64 { return m.PassRate }
	if err := add("acc", "Dev accuracy", "share of problems with all tests passed", dev(a, acc), dev(b, acc)); err != nil {
		return err
	}
	if err := add("pass_rate", "Dev pass rate", "share of passed tests", dev(a, rate), dev(b, rate)); err != nil {
		return err
	}
	other := map[string]report.Line{}
	for _, m := range report.Metrics(b) {
		other[m.Name] = m.Line
	}
	for _, m := range report.Metrics(a) {
		if err := add(m.Name, m.Title, m.Doc, m.Line, other[m.Name]); err != nil {
			return err
		}
	}
	return nil
}

func none(l report.Line) bool {
	return !slices.ContainsFunc(l.Values, func(v *float64) bool { return v != nil })
}

// diffConfig lists the keys of two configurations that differ.
func (p *comparePage) diffConfig(a, b []byte) error {
	x, err := flat(a)
	if err != nil {
		return err
	}
	y, err := flat(b)
	if err != nil {
		return err
	}
	keys := slices.Collect(maps.Keys(x))
	for k := range y {
		if _, ok := x[k]; !ok {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		if v, w := cmp.Or(x[k], "not set"), cmp.Or(y[k], "not set"); v != w {
			p.Diffs = append(p.Diffs, diff{k, v, w})
			continue
		}
		p.Same++
	}
	return nil
}

// flat maps every key of a configuration, with dots, to its value as JSON.
func flat(data []byte) (map[string]string, error) {
	out := map[string]string{}
	if len(data) == 0 {
		return out, nil
	}
	var v any
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fault.New(fault.Corrupt, "live.compare", "a configuration is damaged: %w", err)
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		if m, ok := v.(map[string]any); ok && len(m) > 0 {
			for k, w := range m {
				walk(strings.TrimPrefix(at+"."+k, "."), w)
			}
			return
		}
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err == nil { // what was decoded can be encoded
			out[at] = strings.TrimSuffix(b.String(), "\n")
		}
	}
	walk("", v)
	return out, nil
}
