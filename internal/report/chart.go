package report

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// series is one line of a chart: values at steps, nil where there is none.
type series struct {
	name  string
	class string // of its colour and dash
	steps []int
	vals  []*float64
	x     string // what steps are; empty for steps
}

// chart is what the template draws. Coordinates are in user units of the view box, formatted.
type chart struct {
	ID, Title, Doc, Unit string
	W, H                 int
	Left, Right          string // ends of the horizontal grid lines
	Top, Bottom          string
	XTicks, YTicks       []tick
	Lines                []line
	Note                 string // what is absent, or how points were joined
	Empty                bool
	Legend               bool
	Last                 string // newest value, for the caption
	XLabel               string
}

type tick struct{ At, Text string }

type line struct {
	Name, Class, Path string
	Points            []point
}

type point struct {
	X, Y, Class, Title string
}

// size is the geometry of a chart.
type size struct{ w, h, left, right, top, bottom float64 }

var (
	small = size{360, 176, 46, 12, 10, 30}
	large = size{560, 236, 48, 16, 12, 40}
)

const (
	maxPoints  = 400 // more steps than this are joined into equal spans
	maxVisible = 60  // above it, points show only under the pointer
)

// unit is how the values of a metric are written.
type unit struct {
	name  string
	scale float64
}

// unitOf derives the unit of a metric from its name.
func unitOf(metric string) unit {
	for _, u := range []struct {
		suffix string
		unit   unit
	}{
		{"_tokens_per_second", unit{"tokens/s", 1}},
		{"_seconds", unit{"s", 1}},
		{"_share", unit{"%", 100}},
		{"_mass", unit{"%", 100}},
		{"_tokens", unit{"tokens", 1}},
		{"response_max", unit{"tokens", 1}},
		{"lag_mean", unit{"versions", 1}},
		{"lag_max", unit{"versions", 1}},
		{"span_max", unit{"versions", 1}},
		{"entropy", unit{"nats", 1}},
		{"logprob_gap", unit{"nats", 1}},
		{"sampled_kl", unit{"nats", 1}},
		{"drops", unit{"groups", 1}},
		{"turns_mean", unit{"turns", 1}},
		{"programs_mean", unit{"programs", 1}},
	} {
		if strings.HasSuffix(metric, u.suffix) {
			return u.unit
		}
	}
	return unit{"", 1}
}

// words turns the name of a metric into a title.
func words(metric string) string {
	known := map[string]string{"sc": "SC", "kl": "KL", "abs": "(absolute)", "logprob": "log-probability"}
	parts := strings.Split(metric, "_")
	for i, p := range parts {
		if k, ok := known[p]; ok {
			parts[i] = k
		}
	}
	s := strings.Join(parts, " ")
	return strings.ToUpper(s[:1]) + s[1:]
}

// draw lays out a chart of lines over steps. Values are in the metric's own scale.
func draw(id, title, doc string, u unit, sz size, lines []series) chart {
	c := chart{
		ID: id, Title: title, Doc: doc, Unit: u.name, W: int(sz.w), H: int(sz.h), Legend: len(lines) > 1,
		Left: coord(sz.left), Right: coord(sz.w - sz.right), Top: coord(sz.top), Bottom: coord(sz.h - sz.bottom), XLabel: "step",
	}
	absent, total := 0, 0
	first, last := math.Inf(1), math.Inf(-1)
	lo, hi := math.Inf(1), math.Inf(-1)
	for i, s := range lines {
		for j, v := range s.vals {
			total++
			first, last = min(first, float64(s.steps[j])), max(last, float64(s.steps[j]))
			if v == nil {
				absent++
			}
		}
		lines[i] = joined(s)
		for _, v := range lines[i].vals {
			if v != nil {
				lo, hi = min(lo, *v*u.scale), max(hi, *v*u.scale)
			}
		}
		if len(lines[i].vals) < len(s.vals) {
			c.Note = "each point is the mean of a span of steps; "
		}
	}
	if absent == total {
		c.Empty = true
		return c
	}
	if absent > 0 {
		c.Note += fmt.Sprintf("absent in %s of %s; ", integer(absent), plural(total, "step", "steps"))
	}
	c.Note = strings.TrimSuffix(c.Note, "; ")
	lo, hi = span(lo, hi)
	ticks, decimals := nice(lo, hi, max(3, int(sz.h/50)))
	lo, hi = min(lo, ticks[0]), max(hi, ticks[len(ticks)-1])
	if first == last {
		first, last = first-1, last+1
	}
	x := func(v float64) float64 { return sz.left + (v-first)/(last-first)*(sz.w-sz.left-sz.right) }
	y := func(v float64) float64 { return sz.h - sz.bottom - (v-lo)/(hi-lo)*(sz.h-sz.top-sz.bottom) }
	for _, t := range ticks {
		c.YTicks = append(c.YTicks, tick{coord(y(t)), axis(t, decimals)})
	}
	c.XTicks = stepTicks(first, last, x, int(sz.w/70))
	for _, s := range lines {
		l, newest := trace(s, u, x, y)
		c.Lines = append(c.Lines, l)
		if c.Last == "" {
			c.Last = newest
		}
	}
	return c
}

// span widens a range that is empty, and starts at zero what nearly does.
func span(lo, hi float64) (float64, float64) {
	switch {
	case lo == hi && lo == 0:
		return 0, 1
	case lo == hi:
		d := math.Abs(lo) / 10
		return lo - d, hi + d
	case lo > 0 && lo < 0.35*hi:
		return 0, hi
	case hi < 0 && hi > 0.35*lo:
		return lo, 0
	}
	return lo, hi
}

// nice returns about n round numbers that cover lo..hi and the decimals that tell them apart.
func nice(lo, hi float64, n int) (ticks []float64, decimals int) {
	raw := (hi - lo) / float64(n)
	mag := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * mag
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*mag >= raw {
			step = m * mag
			break
		}
	}
	decimals = max(0, int(-math.Floor(math.Log10(step)+1e-9)))
	if r := step / math.Pow(10, -float64(decimals)); math.Abs(r-math.Round(r)) > 1e-6 {
		decimals++ // 2.5 needs one more
	}
	from, to := math.Floor(lo/step+1e-9), math.Ceil(hi/step-1e-9)
	for i := from; i <= to; i++ {
		ticks = append(ticks, i*step)
	}
	return ticks, decimals
}

// axis writes the number at a tick.
func axis(v float64, decimals int) string {
	if a := math.Abs(v); a >= 1e6 || decimals > 4 && v != 0 {
		digits := 1 // as many as tell two ticks apart
		if v != 0 {
			digits = min(15, max(1, int(math.Floor(math.Log10(a)))+decimals))
		}
		s := strconv.FormatFloat(v, 'e', digits, 64)
		mantissa, exponent, _ := strings.Cut(s, "e")
		n, err := strconv.Atoi(exponent)
		if err != nil {
			return s
		}
		return strings.TrimRight(strings.TrimRight(mantissa, "0"), ".") + "e" + strconv.Itoa(n)
	}
	if v == 0 {
		return "0"
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if decimals == 0 {
		return group(s)
	}
	return s
}

func stepTicks(first, last float64, x func(float64) float64, n int) []tick {
	ticks, _ := nice(first, last, n)
	var out []tick
	for _, t := range ticks {
		if t >= first-1e-9 && t <= last+1e-9 && t == math.Trunc(t) {
			out = append(out, tick{coord(x(t)), integer(int(t))})
		}
	}
	return out
}

// joined averages neighbouring steps so that at most maxPoints remain. A span without a value stays absent.
func joined(s series) series {
	n := len(s.vals)
	if n <= maxPoints {
		return s
	}
	width := (n + maxPoints - 1) / maxPoints
	out := series{name: s.name, class: s.class, x: s.x}
	for i := 0; i < n; i += width {
		sum, count := 0.0, 0
		for _, v := range s.vals[i:min(i+width, n)] {
			if v != nil {
				sum += *v
				count++
			}
		}
		out.steps = append(out.steps, s.steps[i])
		if count == 0 {
			out.vals = append(out.vals, nil)
			continue
		}
		mean := sum / float64(count)
		out.vals = append(out.vals, &mean)
	}
	return out
}

// trace makes the path, broken where values are absent, and the points of a line; newest is its last value.
func trace(s series, u unit, x, y func(float64) float64) (l line, newest string) {
	l = line{Name: s.name, Class: s.class}
	var path strings.Builder
	pen := false
	for i, v := range s.vals {
		if v == nil {
			pen = false
			continue
		}
		px, py := coord(x(float64(s.steps[i]))), coord(y(*v*u.scale))
		cmd := "L"
		if !pen {
			cmd = "M"
		}
		path.WriteString(cmd + px + " " + py)
		newest = quantity(*v*u.scale, u.name)
		alone := !pen && (i+1 == len(s.vals) || s.vals[i+1] == nil)
		class := "h"
		if alone || len(s.vals) <= maxVisible {
			class = "p"
		}
		title := fmt.Sprintf("%s %s: %s", cmp.Or(s.x, "step"), integer(s.steps[i]), newest)
		if s.name != "" {
			title = s.name + ", " + title
		}
		l.Points = append(l.Points, point{px, py, class, title})
		pen = true
	}
	l.Path = path.String()
	return l, newest
}

// quantity writes a number with its unit.
func quantity(v float64, unit string) string {
	if v == 1 && len(unit) > 1 && unit != "tokens/s" {
		unit = strings.TrimSuffix(unit, "s")
	}
	return strings.TrimSpace(number(v) + " " + unit)
}

func coord(v float64) string {
	s := strconv.FormatFloat(v, 'f', 1, 64)
	return strings.TrimSuffix(s, ".0")
}
