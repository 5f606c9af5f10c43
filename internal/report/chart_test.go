package report

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/record"
)

func values(vs ...float64) series {
	var s series
	for i, v := range vs {
		s.steps, s.vals = append(s.steps, i+1), append(s.vals, record.Num(v))
	}
	return s
}

func TestDraw_absentValuesAreGaps(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	c := draw("id", "t", "d", unit{"", 1}, small, []series{values(nan, 1, 2, nan, 3, nan, 4, 5)})
	l := c.Lines[0]
	if got := strings.Count(l.Path, "M"); got != 3 {
		t.Errorf("path %s has %d pieces, want 3", l.Path, got)
	}
	if len(l.Points) != 5 || c.Note != "absent in 3 of 8 steps" {
		t.Errorf("%d points, note %q, want 5 and the 3 absent steps", len(l.Points), c.Note)
	}
	if want := "step 5: 3"; l.Points[2].Title != want {
		t.Errorf("title %q, want %q", l.Points[2].Title, want)
	}
	if c := draw("id", "t", "d", unit{"", 1}, small, []series{values(nan, nan)}); !c.Empty || len(c.Lines) != 0 {
		t.Errorf("a series without values is drawn: %+v", c)
	}
}

// TestDraw_aloneIsVisible: in a long series a value between two gaps has no line, so its point is shown.
func TestDraw_aloneIsVisible(t *testing.T) {
	t.Parallel()
	var vs []float64
	for i := range 100 {
		vs = append(vs, float64(i))
	}
	vs[49], vs[51] = math.NaN(), math.NaN()
	points := draw("id", "t", "d", unit{"", 1}, small, []series{values(vs...)}).Lines[0].Points
	for _, p := range points {
		if want := map[bool]string{true: "p", false: "h"}[p.Title == "step 51: 50"]; p.Class != want {
			t.Errorf("point %q has class %s, want %s", p.Title, p.Class, want)
		}
	}
}

func TestDraw_everythingLiesInsideTheFrame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		scale := math.Pow(10, float64(rapid.IntRange(-9, 9).Draw(t, "scale")))
		var vs []float64
		for _, v := range rapid.SliceOfN(rapid.Float64Range(-1, 1), 1, 40).Draw(t, "values") {
			vs = append(vs, v*scale)
		}
		sz := rapid.SampledFrom([]size{small, large}).Draw(t, "size")
		c := draw("id", "t", "d", unit{"%", 100}, sz, []series{values(vs...)})
		within := func(what, at string, lo, hi float64) {
			v, err := strconv.ParseFloat(at, 64)
			if err != nil || v < lo-0.11 || v > hi+0.11 {
				t.Fatalf("%s at %s, want %v to %v", what, at, lo, hi)
			}
		}
		for _, p := range c.Lines[0].Points {
			within("x", p.X, sz.left, sz.w-sz.right)
			within("y", p.Y, sz.top, sz.h-sz.bottom)
		}
		seen := map[string]bool{}
		for _, tick := range c.YTicks {
			within("tick", tick.At, sz.top, sz.h-sz.bottom)
			if seen[tick.Text] {
				t.Fatalf("two ticks say %s: %v", tick.Text, c.YTicks)
			}
			seen[tick.Text] = true
		}
		if n := len(c.YTicks); n < 2 || n > 14 {
			t.Fatalf("%d ticks: %v", n, c.YTicks)
		}
		for _, tick := range c.XTicks {
			within("step", tick.At, sz.left, sz.w-sz.right)
		}
	})
}

func TestNice_roundNumbersThatCoverTheRange(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lo, hi float64
		n      int
		want   string
	}{
		{0, 100, 4, "0 25 50 75 100"},
		{40.6, 90.6, 3, "40 60 80 100"},
		{0, 0.0006, 3, "0 0.0002 0.0004 0.0006"},
		{-0.03, 0.01, 4, "-0.03 -0.02 -0.01 0 0.01"},
		{1900, 2100, 4, "1,900 1,950 2,000 2,050 2,100"},
		{0, 3e7, 3, "0 1e7 2e7 3e7"},
		{0, 1, 4, "0 0.25 0.50 0.75 1.00"},
		{0, 2e-6, 4, "0 5e-7 1e-6 1.5e-6 2e-6"},
	} {
		ticks, decimals := nice(tt.lo, tt.hi, tt.n)
		var got []string
		for _, v := range ticks {
			got = append(got, axis(v, decimals))
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("nice(%v, %v, %d) = %s, want %s", tt.lo, tt.hi, tt.n, s, tt.want)
		}
	}
}

func TestJoined_keepsTheMeanAndTheGaps(t *testing.T) {
	t.Parallel()
	var vs []float64
	for i := range 1000 {
		vs = append(vs, float64(i))
		if i >= 300 && i < 600 {
			vs[i] = math.NaN()
		}
	}
	s := joined(values(vs...))
	if len(s.vals) > maxPoints || len(s.vals) != len(s.steps) {
		t.Fatalf("%d points, %d steps, want at most %d", len(s.vals), len(s.steps), maxPoints)
	}
	if *s.vals[0] != 1 || s.steps[1] != 4 || *s.vals[1] != 4 {
		t.Errorf("first spans: %v at %v", *s.vals[0], s.steps[:2])
	}
	for i, step := range s.steps {
		if absent := s.vals[i] == nil; absent != (step > 300 && step <= 600) {
			t.Errorf("step %d absent: %v", step, absent)
		}
	}
}

// TestUnits_everyMetricHasOne: a new metric needs a unit or a place in the list of those without.
func TestUnits_everyMetricHasOne(t *testing.T) {
	t.Parallel()
	without := map[string]bool{
		"reward_mean": true, "reward_spread": true, "loss": true, "grad_norm": true, "clip_factor": true, "sc_correction": true,
		"sc_correction_abs": true, "max_alpha": true,
	}
	for _, m := range append(record.Metrics(record.BatchMetrics{}), record.Metrics(record.UpdateMetrics{})...) {
		if has := unitOf(m.Name).name != ""; has == without[m.Name] {
			t.Errorf("%s has the unit %q, listed as without: %v", m.Name, unitOf(m.Name).name, without[m.Name])
		}
	}
	for metric, want := range map[string]string{"sc_correction": "SC correction", "logprob_gap": "Log-probability gap", "sampled_kl": "Sampled KL"} {
		if got := words(metric); got != want {
			t.Errorf("words(%s) = %s, want %s", metric, got, want)
		}
	}
}

func TestReasons_everyRuleIsExplained(t *testing.T) {
	t.Parallel()
	for _, r := range dataset.Rules() {
		if reasonDocs[r] == "" {
			t.Errorf("rule %s has no explanation in the report", r)
		}
	}
	if len(reasonDocs) != len(dataset.Rules()) {
		t.Errorf("%d explanations for %d rules", len(reasonDocs), len(dataset.Rules()))
	}
}

func TestNumber_fewDigits(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 1: "1", -3: "-3", 0.5: "0.5000", 1.25: "1.250", 123.456: "123.5", 1234.5: "1,234", 9876543: "9,876,543", -1234567: "-1,234,567",
		0.00012345: "1.23e-04", 1e12: "1.00e+12", 0.001: "0.0010",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}

func TestTimes_areOrderedAsTimes(t *testing.T) {
	t.Parallel()
	early, late := "2026-03-01T10:00:00.5+02:00", "2026-03-01T08:00:00.25Z"
	if compareTimes(early, late) <= 0 || compareTimes(late, early) >= 0 || compareTimes(early, early) != 0 {
		t.Errorf("%s and %s are ordered by their letters", early, late)
	}
	if got := clock(early); got != "2026-03-01 08:00:00 UTC" {
		t.Errorf("clock(%s) = %s", early, got)
	}
	if got := since("2026-03-01T08:00:00Z", "2026-03-01T09:01:02Z"); got != "+1h1m2s" {
		t.Errorf("since = %s, want +1h1m2s", got)
	}
	if clock("noon") != "noon" || since("noon", early) != "" {
		t.Error("what is no time does not stay as it is")
	}
}

// TestStyle_contrast checks the colours of text against their backgrounds as WCAG 2 defines contrast, level AA.
func TestStyle_contrast(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(string(pageStyle), -1)
	if len(blocks) != 3 {
		t.Fatalf("%d colour schemes, want light, dark and print", len(blocks))
	}
	for i, b := range blocks {
		colours := map[string]string{}
		for _, m := range regexp.MustCompile(`--([a-z]+): (#[0-9a-f]+)`).FindAllStringSubmatch(b[1], -1) {
			colours[m[1]] = m[2]
		}
		for _, pair := range []string{
			"fg bg", "fg panel", "fg mark", "fg obs", "muted bg", "muted panel", "a bg", "a panel", "b bg", "b obs", "good bg", "good panel", "bad bg", "bad panel",
		} {
			front, back, _ := strings.Cut(pair, " ")
			if c := contrast(t, colours[front], colours[back]); c < 4.5 {
				t.Errorf("scheme %d: %s on %s has contrast %.2f, want 4.5", i, front, back, c)
			}
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	la, lb := luminance(t, a), luminance(t, b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

// luminance is the relative luminance of #rgb or #rrggbb.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	hex := strings.TrimPrefix(colour, "#")
	if len(hex) == 3 {
		hex = fmt.Sprintf("%c%c%c%c%c%c", hex[0], hex[0], hex[1], hex[1], hex[2], hex[2])
	}
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || len(hex) != 6 {
		t.Fatalf("colour %q", colour)
	}
	linear := func(c uint64) float64 {
		v := float64(c) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(n>>16) + 0.7152*linear(n>>8&255) + 0.0722*linear(n&255)
}
