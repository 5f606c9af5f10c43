package report_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/report"
)

// The page inside a server's frame has the content of the page that a run writes, byte for byte.
func TestRenderLive_hasTheContentOfThePage(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 4, 2)
	y.write()
	d := load(t, y)
	var b bytes.Buffer
	if err := report.RenderLive(&b, d, report.Frame{Style: "/s.css", Script: "/l.js", Refresh: 7, Stamp: "abc", Above: "<nav>above</nav>", Foot: "below"}); err != nil {
		t.Fatal(err)
	}
	main := regexp.MustCompile(`(?s)<header>.*</main>`)
	if got, want := main.Find(b.Bytes()), main.Find(render(t, d)); len(want) == 0 || !bytes.Equal(got, want) {
		t.Error("header and main differ from those of the page")
	}
	for _, text := range []string{`href="/s.css"`, `<script src="/l.js" defer>`, `data-refresh="7"`, `data-stamp="abc"`, "<nav>above</nav>", "below</footer>"} {
		if !strings.Contains(b.String(), text) {
			t.Errorf("the page lacks %s", text)
		}
	}
	if strings.Contains(b.String(), "<style>") || strings.Contains(b.String(), "unsafe-inline") {
		t.Error("the page has a style of its own")
	}
}

func TestLoadCurves_hasTheStepsOfLoad(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 4, 2)
	y.write()
	all := load(t, y)
	d, err := report.LoadCurves(t.Context(), y.store, y.l)
	if err != nil || len(d.Missing) > 0 {
		t.Fatalf("%v, missing %v", err, d.Missing)
	}
	a, b := report.Metrics(all), report.Metrics(d)
	if len(a) == 0 || len(a) != len(b) || len(b[0].Steps) != 4 || len(d.Validations) != len(all.Validations) || d.Samples != nil || d.Ledger != nil {
		t.Errorf("%d and %d metrics, %d validations", len(a), len(b), len(d.Validations))
	}
}

func TestDraw_twoLinesWithUnits(t *testing.T) {
	t.Parallel()
	a := report.Line{Name: "A: <x>", Steps: []int{1, 2}, Values: []*float64{record.Num(0.25), record.Num(0.5)}}
	b := report.Line{Name: "B", Steps: []int{2, 9}, Values: []*float64{nil, record.Num(1)}}
	for metric, want := range map[string]string{"acc": ": 50 %", "solved_share": ": 50 %", "entropy": ": 0.5000 nats", "turns_mean": ": 0.5000 turns"} {
		c, err := report.Draw("c", "Title", "doc", metric, a, b)
		if err != nil || !strings.Contains(string(c), want) || !strings.Contains(string(c), "A: &lt;x&gt;") {
			t.Errorf("%s: %v\n%s", metric, err, c)
		}
	}
	if _, err := report.Draw("c", "t", "d", "acc", a, b, a); !fault.Is(err, fault.Invalid) {
		t.Errorf("three lines: %v", err)
	}
}
