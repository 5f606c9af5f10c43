package report

import (
	"html/template"
	"io"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// Frame is what a server puts around the page that Render writes: the same content, with the style and a script of its own.
type Frame struct {
	Style, Script string // addresses
	Refresh       int    // seconds between two looks for news
	Stamp         string // of the records that the page was made of
	Above, Foot   template.HTML
}

// RenderLive writes the page of Render inside a frame. The same data and frame give the same bytes. Errors: those of w.
func RenderLive(w io.Writer, d *Data, f Frame) error {
	p := newPage(d)
	p.Live = &f
	if err := pageTemplate.ExecuteTemplate(w, "page.html", p); err != nil {
		return fault.New(fault.Internal, "report.RenderLive", "%w", err)
	}
	return nil
}

// Style is the style sheet of the page.
func Style() string { return string(pageStyle) }

// Line is one line of a drawn metric. Values are nil where a step has none.
type Line struct {
	Name   string
	Steps  []int
	Values []*float64
}

// Metric is a number of every step of a run.
type Metric struct {
	Name, Title, Doc string
	Line
}

// Metrics lists all numbers of the steps, those of the batch first; the name of the lines is left open.
func Metrics(d *Data) []Metric {
	var out []Metric
	for _, m := range metrics(d) {
		out = append(out, Metric{Name: m.Name, Title: words(m.Name), Doc: m.Doc, Line: Line{Steps: m.s.steps, Values: m.s.vals}})
	}
	return out
}

// Draw returns a chart of at most two lines, as the page has them. The metric's name decides about the unit; "acc" and
// "pass_rate" are shares. id must be unique in its page. Errors: Invalid for more lines.
func Draw(id, title, doc, metric string, lines ...Line) (template.HTML, error) {
	const most = 2
	if len(lines) > most {
		return "", fault.New(fault.Invalid, "report.Draw", "%s has %d lines, at most %d can be told apart", title, len(lines), most)
	}
	u := unitOf(metric)
	if metric == "acc" || metric == "pass_rate" {
		u = unit{"%", 100}
	}
	var s []series
	for i, l := range lines {
		s = append(s, series{name: l.Name, class: curveClasses[i], steps: l.Steps, vals: l.Values})
	}
	var b strings.Builder
	if err := pageTemplate.ExecuteTemplate(&b, "chart", draw(id, title, doc, u, small, s)); err != nil {
		return "", fault.New(fault.Internal, "report.Draw", "%w", err)
	}
	return template.HTML(b.String()), nil //nolint:gosec // written by a template that escapes
}

// Recovery reports whether an event of this kind tells of something overcome; all others are failures.
func Recovery(kind string) bool { return recoveries[kind] }
