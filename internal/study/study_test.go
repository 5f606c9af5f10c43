package study

import (
	"encoding/csv"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

var update = flag.Bool("update", false, "rewrite golden files")

// played is the record of a run whose validations are curve, every ten steps, and whose last one solves the problems that solved holds.
func played(arm string, seed uint64, curve []float64, solved ...bool) record.StudyRun {
	r := record.StudyRun{Arm: arm, Seed: seed, Run: fmt.Sprintf("s.%s.s%d", arm, seed)}
	for i, v := range curve {
		r.Points = append(r.Points, record.StudyPoint{Step: 10 * i, Problems: len(solved), Acc: v, PassRate: v})
	}
	for i, ok := range solved {
		it := record.DevItem{Problem: fmt.Sprintf("seed %d, number %d", seed, i), Total: 4, Passed: 2}
		if ok {
			it.Passed = 4
		}
		r.Items = append(r.Items, it)
	}
	for s := 1; s <= 10*(len(curve)-1); s++ {
		r.Steps = append(r.Steps, record.StudyStep{Step: s, GradNorm: num(0.1), Tokens: num(30), NoAnswer: num(0.05)})
	}
	return r
}

func num(v float64) *float64 { return &v }

func plan() Plan {
	return Plan{
		Study: "lag", About: "Two arms", Metric: "acc", Seeds: []uint64{1, 2, 3},
		Arms:        []Arm{{Name: "sc", Label: "SC", Panel: "lag 4"}, {Name: "re", Label: "REINFORCE", Panel: "lag 4"}},
		Comparisons: []Comparison{{A: "sc", B: "re", Gate: true}},
		Limits:      Limits{Share: 0.5, GradNorm: 20, Tokens: 1, NoAnswer: 0.5},
	}
}

func all(n int, ok bool) []bool {
	x := make([]bool, n)
	for i := range x {
		x[i] = ok || i%8 == 0
	}
	return x
}

// whole are six runs: SC solves nearly everything, REINFORCE an eighth and collapses.
func whole() []record.StudyRun {
	var runs []record.StudyRun
	for seed := uint64(1); seed <= 3; seed++ {
		good := all(32, true)
		good[seed] = false
		runs = append(runs, played("re", seed, []float64{0.4, 0.5, 0.125}, all(32, false)...), played("sc", seed, []float64{0.4, 0.7, 31.0 / 32}, good...))
	}
	return runs
}

func TestAnalyse_aDifferenceThatIsThere(t *testing.T) {
	t.Parallel()
	r := Analyse(plan(), whole())
	if r.Done != 6 || r.All != 6 || r.Passed == nil || !*r.Passed {
		t.Fatalf("%d of %d runs, passed %v", r.Done, r.All, r.Passed)
	}
	d := r.Differences[0]
	if want := 27.0 / 32; !close8(*d.Value, want) || d.Pairs != 96 || d.Better != 81 || d.Worse != 0 || len(d.Seeds) != 3 {
		t.Errorf("got %+v with value %v, want %v of 96 pairs", d, *d.Value, want)
	}
	if !d.Range.Around(d.OverProblems.Low) || !d.Range.Around(d.OverProblems.High) || !d.Range.Around(d.OverSeeds.Low) || !d.Range.Around(d.OverSeeds.High) {
		t.Errorf("the interval %v does not hold %v and %v", d.Range, d.OverProblems, d.OverSeeds)
	}
	for _, a := range r.Arms {
		for _, x := range a.Runs {
			if collapsed := len(x.Collapse) > 0; collapsed != (a.Arm.Name == "re") {
				t.Errorf("%s, seed %d: collapse %v", a.Arm.Name, x.Seed, x.Collapse)
			}
		}
	}
	if c := r.Arms[1].Runs[0].Collapse[0]; c.Sign != SignMetric || c.Step != 20 {
		t.Errorf("got %+v, want the metric at step 20", c)
	}
	if d := cmp.Diff([]CurvePoint{{0, 0.4}, {10, 0.7}, {20, 31.0 / 32}}, r.Arms[0].Curve, cmp.Comparer(close8)); d != "" {
		t.Errorf("mean curve: -want +got:\n%s", d)
	}
}

// A gate holds only if all its runs are there, are of the same problems, and agree enough.
func TestAnalyse_whenAGateDoesNotHold(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*Plan, []record.StudyRun) []record.StudyRun
		done   int
		note   string
	}{
		"a run is missing": {func(_ *Plan, r []record.StudyRun) []record.StudyRun { return r[1:] }, 5, "has no result: not run"},
		"a run failed": {func(_ *Plan, r []record.StudyRun) []record.StudyRun {
			r[2].Kind, r[2].Failure = "Infrastructure", "no sandbox."
			return r
		}, 5, "REINFORCE, lag 4, seed 2 has no result: no sandbox."},
		"other problems": {func(_ *Plan, r []record.StudyRun) []record.StudyRun {
			r[0].Items[3].Problem = "another"
			return r
		}, 6, "with seed 1 the two arms have other dev problems"},
		"the seeds disagree": {func(_ *Plan, r []record.StudyRun) []record.StudyRun {
			r[0].Items = r[1].Items // both arms alike with seed 1
			return r
		}, 6, ""},
		"the other way round": {func(p *Plan, r []record.StudyRun) []record.StudyRun {
			p.Comparisons[0].A, p.Comparisons[0].B = p.Comparisons[0].B, p.Comparisons[0].A
			return r
		}, 6, ""},
		"one seed": {func(p *Plan, r []record.StudyRun) []record.StudyRun {
			p.Seeds = p.Seeds[:1]
			return r
		}, 2, "One seed: the intervals"},
		"no run at all": {func(*Plan, []record.StudyRun) []record.StudyRun { return nil }, 0, "lacks 3 seeds"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan()
			runs := tt.change(&p, whole())
			r := Analyse(p, runs)
			if r.Passed == nil || *r.Passed || r.Done != tt.done {
				t.Errorf("passed %v with %d runs, want not passed with %d", r.Passed, r.Done, tt.done)
			}
			if text := r.Page("x.svg"); !strings.Contains(text, tt.note) || !strings.Contains(text, "does not hold") {
				t.Errorf("the page does not say %q:\n%s", tt.note, text)
			}
			wellFormed(t, r.Picture())
		})
	}
}

func TestCollapse_eachSignAndItsNeighbours(t *testing.T) {
	t.Parallel()
	limits := Limits{Share: 0.5, GradNorm: 20, Tokens: 1, NoAnswer: 0.5}
	with := func(change func(r *record.StudyRun), curve ...float64) record.StudyRun {
		r := played("a", 1, curve, true)
		if change != nil {
			change(&r)
		}
		return r
	}
	tests := map[string]struct {
		run  record.StudyRun
		want []string // sign at step
	}{
		"steady":                            {with(nil, 0.4, 0.6, 0.8), nil},
		"half of the best is enough":        {with(nil, 0.4, 0.8, 0.4), nil},
		"below half of the best":            {with(nil, 0.4, 0.8, 0.39), []string{"metric at 20"}},
		"below half of the start":           {with(nil, 0.4, 0.1, 0.1), []string{"metric at 10"}},
		"a dip that it recovered from":      {with(nil, 0.4, 0.1, 0.3), nil},
		"fell twice, the second time lasts": {with(nil, 0.8, 0.1, 0.5, 0.2, 0.3), []string{"metric at 30"}},
		"never solved anything":             {with(nil, 0, 0, 0), nil},
		"three large gradients":             {with(func(r *record.StudyRun) { set(r, 12, 14, func(s *record.StudyStep) { s.GradNorm = num(2.1) }) }, 0.4, 0.5, 0.5), []string{"gradient at 12"}},
		"two large gradients":               {with(func(r *record.StudyRun) { set(r, 12, 13, func(s *record.StudyStep) { s.GradNorm = num(9) }) }, 0.4, 0.5, 0.5), nil},
		"gradients just below":              {with(func(r *record.StudyRun) { set(r, 12, 18, func(s *record.StudyStep) { s.GradNorm = num(2) }) }, 0.4, 0.5, 0.5), nil},
		"empty to the end":                  {with(func(r *record.StudyRun) { set(r, 15, 20, func(s *record.StudyStep) { s.Tokens = num(1) }) }, 0.4, 0.5, 0.5), []string{"tokens at 15"}},
		"empty for a while":                 {with(func(r *record.StudyRun) { set(r, 15, 19, func(s *record.StudyStep) { s.Tokens = num(1) }) }, 0.4, 0.5, 0.5), nil},
		"no programs to the end":            {with(func(r *record.StudyRun) { set(r, 7, 20, func(s *record.StudyStep) { s.NoAnswer = num(1) }) }, 0.4, 0.5, 0.5), []string{"no_answer at 7"}},
		"no programs from the start":        {with(func(r *record.StudyRun) { set(r, 1, 20, func(s *record.StudyStep) { s.NoAnswer = num(1) }) }, 0.4, 0.5, 0.5), nil},
		"absent numbers say nothing": {with(func(r *record.StudyRun) {
			set(r, 1, 20, func(s *record.StudyStep) { *s = record.StudyStep{Step: s.Step} })
		}, 0.4, 0.5, 0.5), nil},
		"not finite": {with(func(r *record.StudyRun) {
			r.Kind, r.Failure, r.Steps = string(fault.Numeric), "loss is NaN", r.Steps[:6]
		}, 0.4, 0.5, 0.5), []string{"numeric at 7"}},
		"a lost machine is no collapse": {with(func(r *record.StudyRun) { r.Kind, r.Failure = string(fault.Lost), "gone" }, 0.4, 0.5, 0.5), nil},
		"two signs":                     {with(func(r *record.StudyRun) { set(r, 7, 20, func(s *record.StudyStep) { s.NoAnswer = num(1) }) }, 0.4, 0.1, 0), []string{"metric at 10", "no_answer at 7"}},
		"no steps at all":               {with(func(r *record.StudyRun) { r.Steps = nil }, 0.4, 0.5, 0.5), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, c := range collapseOf(&tt.run, "acc", limits) {
				got = append(got, fmt.Sprintf("%s at %d", c.Sign, c.Step))
				if c.Text == "" {
					t.Error("the sign is not explained")
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if off := collapseOf(&tt.run, "acc", Limits{}); len(off) > 0 && off[0].Sign != SignNumeric {
				t.Errorf("all signs are off, got %v", off)
			}
		})
	}
}

// set changes the steps from..to.
func set(r *record.StudyRun, from, to int, change func(*record.StudyStep)) {
	for i := range r.Steps {
		if r.Steps[i].Step >= from && r.Steps[i].Step <= to {
			change(&r.Steps[i])
		}
	}
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		if e, ok := tok.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("<%s %s=%q>", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
}

func TestRender_goldenFiles(t *testing.T) {
	t.Parallel()
	p, runs := plan(), whole()
	p.Arms = append(p.Arms, Arm{Name: "tis"}) // one that was not run, without label and panel
	p.Comparisons = append(p.Comparisons, Comparison{A: "sc", B: "tis"})
	r := Analyse(p, runs)
	wellFormed(t, r.Picture())
	for name, got := range map[string]string{"study.md": r.Page("study.svg"), "study.svg": r.Picture(), "study.csv": r.Curves()} {
		file := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
}

// What the CSV files hold is enough to compute the difference again.
func TestPairs_holdTheDifference(t *testing.T) {
	t.Parallel()
	runs := whole()
	runs[0].Items[0].Problem, runs[1].Items[0].Problem = "a \"name\", with a comma", "a \"name\", with a comma"
	r := Analyse(plan(), runs)
	rows, err := csv.NewReader(strings.NewReader(r.Pairs())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	sum, n := map[string]float64{}, map[string]float64{}
	quoted := 0
	for _, row := range rows[1:] {
		n[row[0]]++
		if row[3] == row[4] {
			sum[row[0]]++
		}
		if strings.HasPrefix(row[2], "a \"name\", ") {
			quoted++
		}
	}
	if got := sum["sc"]/n["sc"] - sum["re"]/n["re"]; !close8(got, *r.Differences[0].Value) || n["sc"] != 96 || quoted != 2 {
		t.Errorf("the file says %v of %v problems, the result %v; %d quoted", got, n["sc"], *r.Differences[0].Value, quoted)
	}
}

// The order of the records changes nothing.
func TestAnalyse_orderOfRecordsDoesNotMatter(t *testing.T) {
	t.Parallel()
	runs := whole()
	a := Analyse(plan(), runs)
	for i, j := 0, len(runs)-1; i < j; i, j = i+1, j-1 {
		runs[i], runs[j] = runs[j], runs[i]
	}
	b := Analyse(plan(), runs)
	if a.Page("p") != b.Page("p") || a.Picture() != b.Picture() || a.Pairs() != b.Pairs() {
		t.Error("another order gives another study")
	}
}

func TestPassRate_comparesSharesOfTests(t *testing.T) {
	t.Parallel()
	p := plan()
	p.Metric = "pass_rate"
	r := Analyse(p, whole())
	if want := 27.0 / 32 / 2; !close8(*r.Differences[0].Value, want) {
		t.Errorf("got %v, want %v: half of the tests of an unsolved problem pass", *r.Differences[0].Value, want)
	}
}
