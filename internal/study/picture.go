package study

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// colours are those of labels, in the order of their first arms. They differ for people who do not see all colours.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8c6d1f"}

// Geometry of the picture, in user units.
const (
	panelWidth  = 400
	panelHeight = 230
	panelLeft   = 46
	panelRight  = 14
	panelTop    = 34
	panelBottom = 36
	perRow      = 3
	forestLabel = 230
	forestRow   = 26
)

// picture writes an SVG file.
type picture struct{ b strings.Builder }

func (p *picture) add(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

func (p *picture) text(x, y float64, anchor, class, s string) {
	p.add(`<text x="%s" y="%s" text-anchor="%s" class="%s">%s</text>`, at(x), at(y), anchor, class, html.EscapeString(s))
}

// Picture returns the result as one SVG picture: the metric over the steps in a panel for each group of arms, a thin line for each run and a
// thick one for the mean of an arm, a cross where a run collapsed; below it the differences with their intervals.
func (r *Result) Picture() string {
	var panels, labels []string
	for _, a := range r.Arms {
		if !slices.Contains(panels, a.Arm.Panel) {
			panels = append(panels, a.Arm.Panel)
		}
		if l := label(a.Arm); !slices.Contains(labels, l) {
			labels = append(labels, l)
		}
	}
	columns := max(1, min(perRow, len(panels)))
	width := float64(max(columns*panelWidth, 640))
	rows := (len(panels) + columns - 1) / columns
	legend := 30.0
	forest := legend + float64(max(rows, 1)*panelHeight)
	height := forest + 10
	if len(r.Differences) > 0 {
		height += 34 + float64(len(r.Differences)*forestRow) + 40
	}
	p := &picture{}
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img" aria-label="%s">`,
		at(width), at(height), at(width), at(height), html.EscapeString(r.Plan.Study))
	p.add(`<title>%s</title>`, html.EscapeString(r.summary()))
	p.add(`<style>text{font:12px system-ui,sans-serif;fill:#333}.h{font-weight:600}.s{font-size:11px;fill:#666}.g{stroke:#ddd}.z{stroke:#999}</style>`)
	p.add(`<rect width="100%%" height="100%%" fill="#fff"/>`)
	x := float64(panelLeft)
	for i, l := range labels {
		p.add(`<line x1="%s" y1="16" x2="%s" y2="16" stroke="%s" stroke-width="3"/>`, at(x), at(x+22), colour(i))
		p.text(x+28, 20, "start", "h", l)
		x += 48 + 7.5*float64(len(l))
	}
	p.text(x, 20, "start", "s", "thick: mean of the seeds; thin: each seed; × collapsed")
	last := 0
	for _, a := range r.Arms {
		for _, run := range a.Runs {
			for _, pt := range run.Curve {
				last = max(last, pt.Step)
			}
		}
	}
	for i, name := range panels {
		wide := width / float64(columns)
		r.panel(p, name, labels, float64(i%columns)*wide, legend+float64(i/columns*panelHeight), wide, max(last, 1))
	}
	if len(r.Differences) > 0 {
		r.forest(p, forest+10, width)
	}
	p.add(`</svg>`)
	return p.b.String()
}

func (r *Result) panel(p *picture, name string, labels []string, x0, y0, wide float64, last int) {
	w, h := wide-panelLeft-panelRight, float64(panelHeight-panelTop-panelBottom)
	x := func(step int) float64 { return x0 + panelLeft + w*float64(step)/float64(last) }
	y := func(v float64) float64 { return y0 + panelTop + h*(1-v) }
	title := metricName(r.Plan.Metric) + ", %"
	if name != "" {
		title = name + ": " + strings.ToLower(title[:1]) + title[1:]
	}
	p.text(x0+panelLeft, y0+panelTop-12, "start", "h", title)
	for v := 0; v <= 100; v += 25 {
		p.add(`<line class="g" x1="%s" y1="%s" x2="%s" y2="%s"/>`, at(x(0)), at(y(float64(v)/100)), at(x(last)), at(y(float64(v)/100)))
		p.text(x(0)-6, y(float64(v)/100)+4, "end", "s", strconv.Itoa(v))
	}
	for _, s := range steps(last) {
		p.text(x(s), y(0)+16, "middle", "s", strconv.Itoa(s))
	}
	p.text(x(last), y(0)+30, "end", "s", "step")
	line := func(c []CurvePoint, colour string, width, opacity float64, note string) {
		if len(c) == 0 {
			return
		}
		var d strings.Builder
		for i, pt := range c {
			d.WriteString(map[bool]string{true: "M", false: "L"}[i == 0] + at(x(pt.Step)) + " " + at(y(pt.Value)))
		}
		p.add(`<path d="%s" fill="none" stroke="%s" stroke-width="%s" stroke-opacity="%s" stroke-linejoin="round"><title>%s</title></path>`,
			d.String(), colour, at(width), trim(opacity), html.EscapeString(note))
	}
	for _, thick := range []bool{false, true} { // means lie above single runs
		for _, a := range r.Arms {
			if a.Arm.Panel != name {
				continue
			}
			col := colour(slices.Index(labels, label(a.Arm)))
			if thick {
				line(a.Curve, col, 3, 1, fmt.Sprintf("%s, mean: %s", a.Arm.Full(), percent(a.Value)))
				continue
			}
			for _, run := range a.Runs {
				line(run.Curve, col, 1.2, 0.5, fmt.Sprintf("%s, seed %d: %s", a.Arm.Full(), run.Seed, percent(run.Value)))
				r.cross(p, run, col, x, y)
			}
		}
	}
}

// cross marks where a run collapsed first.
func (r *Result) cross(p *picture, run RunResult, colour string, x func(int) float64, y func(float64) float64) {
	if len(run.Collapse) == 0 || len(run.Curve) == 0 {
		return
	}
	c := slices.MinFunc(run.Collapse, func(a, b Collapse) int { return a.Step - b.Step })
	last := run.Curve[len(run.Curve)-1]
	cx, cy := x(min(c.Step, last.Step)), y(last.Value)
	for i, pt := range run.Curve { // on the line of the run
		if pt.Step < c.Step {
			continue
		}
		v := pt.Value
		if i > 0 && pt.Step > c.Step {
			before := run.Curve[i-1]
			v = before.Value + (pt.Value-before.Value)*float64(c.Step-before.Step)/float64(pt.Step-before.Step)
		}
		cy = y(v)
		break
	}
	p.add(`<path d="M%s %sl8 8m0 -8l-8 8" stroke="%s" stroke-width="2" fill="none"><title>seed %d: %s</title></path>`,
		at(cx-4), at(cy-4), colour, run.Seed, html.EscapeString(c.Text))
}

// forest draws the differences.
func (r *Result) forest(p *picture, y0, width float64) {
	lo, hi := 0.0, 0.0
	for _, d := range r.Differences {
		if d.Range != nil {
			lo, hi = min(lo, d.Range.Low), max(hi, d.Range.High)
		}
	}
	lo, hi = math.Floor(lo*4)/4, math.Ceil(hi*4)/4
	if lo == hi {
		hi = lo + 0.25
	}
	left, right := float64(panelLeft+forestLabel), width-176
	x := func(v float64) float64 { return left + (right-left)*(v-lo)/(hi-lo) }
	p.text(panelLeft, y0+14, "start", "h", "Paired differences, in points, with 95 % intervals")
	p.text(width-20, y0+14, "end", "s", "thick: over problems; thin: over seeds too")
	top, bottom := y0+30, y0+34+float64(len(r.Differences)*forestRow)
	for v := lo; v <= hi+1e-9; v += 0.25 {
		class := "g"
		if math.Abs(v) < 1e-9 {
			class = "z"
		}
		p.add(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, at(x(v)), at(top), at(x(v)), at(bottom))
		p.text(x(v), bottom+16, "middle", "s", strconv.Itoa(int(math.Round(100*v))))
	}
	for i, d := range r.Differences {
		y := y0 + 48 + float64(i*forestRow)
		p.text(left-12, y+4, "end", "", r.name(d.A)+" − "+r.name(d.B))
		if d.Value == nil {
			p.text(left+6, y+4, "start", "s", "no result")
			continue
		}
		p.add(`<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="#333" stroke-width="1.5"/>`, at(x(d.Range.Low)), at(y), at(x(d.Range.High)), at(y))
		p.add(`<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="#333" stroke-width="5"/>`, at(x(d.OverProblems.Low)), at(y), at(x(d.OverProblems.High)), at(y))
		p.add(`<circle cx="%s" cy="%s" r="5" fill="#fff" stroke="#333" stroke-width="2"/>`, at(x(*d.Value)), at(y))
		p.text(right+14, y+4, "start", "s", points(d.Value)+" ("+pointsInterval(d.Range)+")")
	}
}

// summary is the picture in a sentence, for those who do not see it.
func (r *Result) summary() string {
	var parts []string
	for _, a := range r.Arms {
		parts = append(parts, fmt.Sprintf("%s %s", a.Arm.Full(), percent(a.Value)))
	}
	return fmt.Sprintf("%s: %s in percent at the end: %s", r.Plan.Study, strings.ToLower(metricName(r.Plan.Metric)), strings.Join(parts, "; "))
}

func label(a Arm) string {
	if a.Label == "" {
		return a.Name
	}
	return a.Label
}

func colour(i int) string { return colours[max(i, 0)%len(colours)] }

// steps returns about six round numbers from 0 to last.
func steps(last int) []int {
	size := 1
	for size*6 < last {
		for _, m := range []int{2, 5, 10} {
			if size*m*6 >= last || m == 10 {
				size *= m
				break
			}
		}
	}
	var out []int
	for s := 0; s <= last; s += size {
		out = append(out, s)
	}
	return out
}

func at(v float64) string { return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") }

func trim(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
