package report_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/export"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
	"github.com/steadyrl/steady/internal/report"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func load(t *testing.T, y *synthetic) *report.Data {
	t.Helper()
	d, err := report.Load(t.Context(), y.store, y.l)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func render(t *testing.T, d *report.Data) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := report.Render(&b, d); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	cut := func(b []byte) []byte { return b[max(0, at-80):min(len(b), at+160)] }
	t.Errorf("%s differs at byte %d (go test ./internal/report -update rewrites it)\n got: ...%s\nwant: ...%s", name, at, cut(got), cut(want))
}

func TestRender_goldenPageOfAWholeRun(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 6, 2)
	y.write()
	d := load(t, y)
	if len(d.Missing) > 0 {
		t.Errorf("missing parts of a whole run: %v", d.Missing)
	}
	golden(t, "whole.html", render(t, d))
}

// TestRender_isAFunctionOfTheRecords: the same run in another store gives the same page.
func TestRender_isAFunctionOfTheRecords(t *testing.T) {
	t.Parallel()
	var pages [2][]byte
	for i := range pages {
		y := newSynthetic(t, 3, 1)
		y.write()
		pages[i] = render(t, load(t, y))
		if bytes.Contains(pages[i], []byte(y.store.Root())) {
			t.Error("the page names a directory of this machine")
		}
	}
	if !bytes.Equal(pages[0], pages[1]) {
		t.Error("two stores with the same records give different pages")
	}
}

func TestRender_twoHundredStepsStaySmall(t *testing.T) {
	t.Parallel()
	for steps, limit := range map[int]int{200: 3 << 19, 10_000: 2 << 20} {
		d := &report.Data{Layout: record.Layout{Run: "r", Lineage: "l0"}}
		for step := 1; step <= steps; step++ {
			b, u := measured(step, steps)
			d.Steps = append(d.Steps, report.Step{Step: step, Batch: &b, Update: &u, Samples: 64})
		}
		if n := len(render(t, d)); n > limit || n < 200_000 {
			t.Errorf("%d bytes for %d steps, want at most %d and all curves", n, steps, limit)
		}
	}
}

var (
	tagPattern = regexp.MustCompile(`<([a-z]+)[ >]`)
	idPattern  = regexp.MustCompile(` id="([^"]*)"`)
	refPattern = regexp.MustCompile(` (?:aria-labelledby|aria-describedby|href)="#?([^"]*)"`)
)

func TestRender_pageIsSelfContainedAndAccessible(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 6, 2)
	y.write()
	page := string(render(t, load(t, y)))
	for _, m := range tagPattern.FindAllStringSubmatch(page, -1) {
		if slices.Contains([]string{"script", "link", "img", "iframe", "object", "embed", "form", "base"}, m[1]) {
			t.Errorf("the page has a <%s>", m[1])
		}
	}
	for _, bad := range []string{"http://", "https://", "url(", "@import", "javascript:", " on", "ZgotmplZ"} {
		if bad == " on" {
			if m := regexp.MustCompile(` on[a-z]+=`).FindString(page); m != "" {
				t.Errorf("the page has the handler %s", m)
			}
			continue
		}
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	ids := map[string]bool{}
	for _, m := range idPattern.FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("id %q occurs twice", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range refPattern.FindAllStringSubmatch(page, -1) {
		if !ids[m[1]] {
			t.Errorf("%q is referred to and not there", m[1])
		}
	}
	for _, want := range []string{`<html lang="en">`, "<header>", "<nav ", `<main id="content">`, "<footer>", `<th scope="col"`, `<th scope="row"`, "<h1>", `name="viewport"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if figures, titles := strings.Count(page, `role="img"`), strings.Count(page, `role="img" aria-labelledby=`)+strings.Count(page, `role="img"><title>`); figures != titles || figures < 30 {
		t.Errorf("%d drawings, %d with a title", figures, titles)
	}
}

func TestRender_textOfTheRunIsEscaped(t *testing.T) {
	t.Parallel()
	const evil = `</pre><script>alert("x")</script><b title='`
	d := &report.Data{
		Layout: record.Layout{Run: evil, Lineage: evil}, Config: []byte(evil), Run: &record.Run{Run: evil, BaseModel: evil, Started: evil},
		Events:  []record.Event{{Time: evil, Kind: evil, Where: evil, Message: evil}},
		Dataset: &report.Dataset{Rows: 1, Dropped: []report.Count{{Name: evil, Doc: evil, N: 1}}, Inputs: []string{evil}},
		Export:  &report.Export{Digest: evil, Checks: []report.Check{{Name: evil, Detail: evil}}},
		Samples: []report.Sample{{Title: evil, Problem: evil, Kind: evil, Prompt: evil, Turns: []report.Turn{{Text: evil}, {Model: true, Text: evil}}}},
		Missing: []report.Missing{{Part: evil, Why: evil}},
	}
	page := string(render(t, d))
	if strings.Contains(page, "<script") || strings.Contains(page, "<b title") {
		t.Error("text of the run became markup")
	}
	if n := strings.Count(page, "&lt;script&gt;alert("); n < 15 {
		t.Errorf("the text is shown %d times, want everywhere", n)
	}
}

func TestLoad_emptyStoreNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 1, 1)
	d := load(t, y)
	var parts []string
	for _, m := range d.Missing {
		parts = append(parts, m.Part)
		if m.Why == "" {
			t.Errorf("%s is missing without a reason", m.Part)
		}
	}
	want := []string{"Run record", "Configuration", "Batches", "Results", "Validations", "Ledger", "Workers", "First version", "Dataset manifest", "Export certificate", "Sample trajectories"}
	if diff := cmp.Diff(want, parts); diff != "" {
		t.Errorf("missing parts (-want +got):\n%s", diff)
	}
	page := string(render(t, d))
	for _, want := range []string{"Not in this report", "not measured", "No validation has finished", "No training step has finished", "There is no ledger", "no certificate"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of an empty run lacks %q", want)
		}
	}
}

// TestLoad_runInProgress: a batch is sealed whose step is not trained yet, and nothing has ended.
func TestLoad_runInProgress(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 4, 2)
	y.ended = false
	y.write()
	for _, name := range []string{y.l.Result(4), y.l.Validation(record.StepName(4)), y.l.Batch(2)} {
		if err := y.store.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	d := load(t, y)
	if len(d.Steps) != 4 || d.Steps[3].Update != nil || d.Steps[3].Batch == nil || d.Steps[1].Batch != nil || d.Steps[1].Update == nil {
		t.Errorf("steps %+v, want a result and no batch in step 2, a batch and no result in step 4", d.Steps)
	}
	page := string(render(t, d))
	for _, want := range []string{"3 of 4", "training has not ended", "Dev accuracy, step 0 to step 2", "the model is not exported", "absent in 1 of 4 steps"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "Faults survived") {
		t.Error("a run in progress claims to have survived its faults")
	}
	if !strings.Contains(d.Samples[0].Where, "step 3,") {
		t.Errorf("sample of %s, want the newest trained step 3", d.Samples[0].Where)
	}
}

func TestLoad_samplesAreBestWorstAndToolUsing(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 3, 3)
	y.write()
	d := load(t, y)
	if len(d.Samples) != 3 {
		t.Fatalf("%d samples, want 3", len(d.Samples))
	}
	best, worst, tool := d.Samples[0], d.Samples[1], d.Samples[2]
	if best.Reward != 1 || best.Kind != "accepted" || best.Passed != 4 || worst.Reward != 0 || worst.Tests[0] != (report.Count{Name: "wrong_answer", N: 4}) {
		t.Errorf("best %+v\nworst %+v", best, worst)
	}
	if len(tool.Turns) != 3 || !tool.Turns[0].Model || tool.Turns[1].Model || !tool.Turns[2].Model {
		t.Fatalf("turns of the tool user: %+v, want model, tool, model", tool.Turns)
	}
	if !strings.Contains(tool.Turns[0].Text, `"code": "print(3+5)"`) || !strings.Contains(tool.Turns[1].Text, "exit code 0\n8") || !strings.Contains(tool.Prompt, "integers a < b & print") {
		t.Errorf("texts of the tool user: %+v", tool)
	}
}

func TestLoad_trajectoriesThatAreGoneAreMissing(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 2, 2)
	y.write()
	if err := y.store.Remove(t.Context(), y.l.Root()+"groups"); err != nil {
		t.Fatal(err)
	}
	d := load(t, y)
	if len(d.Samples) != 0 || len(d.Missing) != 2 {
		t.Errorf("%d samples, missing %v, want none and both named", len(d.Samples), d.Missing)
	}
}

func TestLoad_damagedExportIsNotVerified(t *testing.T) {
	t.Parallel()
	name := func(y *synthetic) string { return y.l.Export() + "/" + export.CertificateFile }
	for what, damage := range map[string]func(y *synthetic) []byte{
		"another byte": func(y *synthetic) []byte {
			return bytes.Replace(y.certificate(true, digest("weights", y.steps)), []byte("BF16"), []byte("BF17"), 1)
		},
		"half a file":             func(y *synthetic) []byte { return y.certificate(true, digest("weights", y.steps))[:200] },
		"tensor not rounded":      func(y *synthetic) []byte { return y.certificate(false, digest("weights", y.steps)) },
		"weights of another step": func(y *synthetic) []byte { return y.certificate(true, digest("weights", 1)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			y := newSynthetic(t, 2, 1)
			y.write()
			data := damage(y)
			if _, err := y.store.Replace(t.Context(), name(y), data); err != nil {
				t.Fatal(err)
			}
			d := load(t, y)
			if d.Export == nil || d.Export.Verified || !strings.Contains(string(render(t, d)), "not verified") || !strings.Contains(report.Summary(d), "not verified") {
				t.Errorf("export %+v, want not verified", d.Export)
			}
		})
	}
}

func TestLoad_ledgerThatDoesNotBalanceIsShown(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 2, 2)
	y.write()
	if err := y.store.Remove(t.Context(), y.l.Ledger(1)); err != nil {
		t.Fatal(err)
	}
	d := load(t, y)
	if page := string(render(t, d)); !strings.Contains(page, "The books do not balance") || !strings.Contains(page, "the ledger does not balance") {
		t.Error("the page does not say that the ledger does not balance")
	}
	if s := report.Summary(d); !strings.Contains(s, "does not balance") {
		t.Errorf("summary: %s", s)
	}
}

// TestLoad_damagedRecordIsNamed: a report of a damaged run says what is damaged and shows the rest.
func TestLoad_damagedRecordIsNamed(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 2, 1)
	y.write()
	if _, err := y.store.Replace(t.Context(), y.l.Validation(record.StepName(1)), []byte("{")); err != nil {
		t.Fatal(err)
	}
	d := load(t, y)
	if len(d.Missing) != 1 || d.Missing[0].Part != "Validations" || !strings.Contains(d.Missing[0].Why, y.l.Validation(record.StepName(1))) {
		t.Errorf("missing %v, want the damaged validation by its name", d.Missing)
	}
	if len(d.Steps) != 2 || d.Ledger == nil {
		t.Error("the other parts are not loaded")
	}
}

// A changed number is noticed wherever it is: the report names the file, or says that the books do not balance.
func TestLoad_changedNumberIsNoticed(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 3, 1)
	y.write()
	names, err := y.store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]int{}
	for _, name := range names {
		data, _, err := y.store.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, ".json") || strings.Contains(name, "/base/") || !recordtest.ChangeNumber(t, y.store, name) {
			continue
		}
		d := load(t, y)
		noticed := strings.Contains(fmt.Sprint(d.Missing), name) || d.Export == nil || !d.Export.Verified
		if kind := path.Base(path.Dir(name)); !noticed && !strings.Contains(name, "/groups/") { // verdicts of groups that are no sample are not read
			t.Errorf("%s: missing %v, want the name", name, d.Missing)
		} else if noticed {
			changed[kind]++
		}
		if _, err := y.store.Replace(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
	}
	if changed["results"] != 3 || changed["batches"] != 3 || changed["validation"] != 5 || changed["ledger"] != 4 || changed["l0"] == 0 || changed["export"] != 1 {
		t.Errorf("changes by folder: %v", changed)
	}
	if d := load(t, y); len(d.Missing) > 0 {
		t.Errorf("as it was again, missing %v", d.Missing)
	}
}

// A run of an older build has its whole report, which says that its records carry no seal.
func TestLoad_recordsWithoutSeals(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 2, 1)
	y.write()
	names, err := y.store.List(t.Context(), y.l.Root())
	if err != nil {
		t.Fatal(err)
	}
	unseal := regexp.MustCompile(`,\n  "(seal|previous)": "[0-9a-f]*"`)
	digests := map[string]string{}
	for _, again := range []bool{false, true} { // results after batches, whose digests they name
		for _, name := range names {
			if strings.Contains(name, "/export/") || strings.Contains(name, "/groups/") || !strings.HasSuffix(name, ".json") || strings.Contains(name, "/results/") != again {
				continue
			}
			data, old, err := y.store.Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			data = unseal.ReplaceAll(data, nil)
			for from, to := range digests {
				data = bytes.ReplaceAll(data, []byte(from), []byte(to))
			}
			ref, err := y.store.Replace(t.Context(), name, data)
			if err != nil {
				t.Fatal(err)
			}
			digests[old.Digest] = ref.Digest
		}
	}
	d := load(t, y)
	if len(d.Missing) != 1 || d.Missing[0].Part != "Seals" || !strings.Contains(d.Missing[0].Why, "records read for this report carry none") {
		t.Errorf("missing %v, want the seals and no more", d.Missing)
	}
	if len(d.Steps) != 2 || d.Steps[1].Update == nil || len(d.Validations) != 4 {
		t.Errorf("%d steps, %d validations, want all", len(d.Steps), len(d.Validations))
	}
	if page := string(render(t, d)); !strings.Contains(page, "Seals: ") {
		t.Error("the page does not say so")
	}
}

func TestLoad_cancelled(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := report.Load(ctx, y.store, y.l); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestSummary_goldenTable(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 6, 2)
	y.write()
	text := report.Summary(load(t, y))
	golden(t, "summary.txt", []byte(strings.ReplaceAll(text, y.store.Root(), "STORE")))
	if s := report.Summary(&report.Data{}); !strings.HasPrefix(s, "no validation has finished\n") {
		t.Errorf("summary of nothing: %s", s)
	}
}

// Whichever results are damaged, and however: each shown digest is that of the step beside it, the damaged ones are named, and if the newest is one of
// them, summary and page say so.
func TestLoad_damagedResultsHideNoOther(t *testing.T) {
	t.Parallel()
	const steps = 4
	for what, damage := range map[string]func(y *synthetic, step int){
		"half a file": func(y *synthetic, step int) { y.replace(y.l.Result(step), []byte("{")) },
		"empty":       func(y *synthetic, step int) { y.replace(y.l.Result(step), nil) },
		"changed":     func(y *synthetic, step int) { recordtest.ChangeNumber(y.t, y.store, y.l.Result(step)) },
		"of another step": func(y *synthetic, step int) {
			data, _, err := y.store.Get(y.t.Context(), y.l.Result(step%steps+1))
			if err != nil {
				y.t.Fatal(err)
			}
			y.replace(y.l.Result(step), data)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			y := newSynthetic(t, steps, 2)
			y.write()
			good := map[int][]byte{}
			for step := 1; step <= steps; step++ {
				data, _, err := y.store.Get(t.Context(), y.l.Result(step))
				if err != nil {
					t.Fatal(err)
				}
				good[step] = bytes.Clone(data)
			}
			for set := range 1 << steps {
				for step, data := range good {
					y.replace(y.l.Result(step), data)
				}
				last := 0 // that can be used
				for step := 1; step <= steps; step++ {
					if set>>(step-1)&1 == 0 {
						last = step
					}
				}
				for step := 1; step <= steps; step++ {
					if set>>(step-1)&1 == 1 {
						damage(y, step)
					}
				}
				if what == "of another step" && set&(set-1) != 0 {
					continue // one that was copied before would be copied again
				}
				d := load(t, y)
				summary, page, missing := report.Summary(d), string(render(t, d)), fmt.Sprint(d.Missing)
				for step := 1; step <= steps; step++ {
					bad := set>>(step-1)&1 == 1
					if (d.Steps[step-1].Update == nil) != bad || strings.Contains(missing, y.l.Result(step)) != bad {
						t.Errorf("set %b, step %d: %+v, missing %s", set, step, d.Steps[step-1], missing)
					}
				}
				for step := 1; step <= steps; step++ {
					line := fmt.Sprintf("weights of step %d    %s\n", step, digest("weights", step))
					if strings.Contains(summary, line) != (step == last) || strings.Contains(page, fmt.Sprintf("<dt>Trainer state of step %d</dt>", step)) != (step == last) {
						t.Errorf("set %b: the digests are to be those of step %d:\n%s", set, last, summary)
					}
				}
				newest := fmt.Sprintf("the newest result, of step %d, ", steps)
				if strings.Contains(summary, newest) != (last != steps) || strings.Contains(page, newest) != (last != steps) {
					t.Errorf("set %b: %q is said wrongly:\n%s", set, newest, summary)
				}
				if !strings.Contains(summary, "training steps       4 of 4; training is complete") {
					t.Errorf("set %b: wrong steps:\n%s", set, summary)
				}
			}
		})
	}
}

// One damaged record of any part does not take the others of its part away.
func TestLoad_damagedRecordHidesNoOther(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 4, 1)
	y.write()
	whole := load(t, y)
	names, err := y.store.List(t.Context(), y.l.Root())
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]int{}
	for _, name := range names {
		kind := path.Base(path.Dir(name))
		count := map[string]func(d *report.Data) int{
			"batches":    func(d *report.Data) int { return have(d, func(s report.Step) bool { return s.Batch != nil }) },
			"results":    func(d *report.Data) int { return have(d, func(s report.Step) bool { return s.Update != nil }) },
			"validation": func(d *report.Data) int { return len(d.Validations) },
			"events":     func(d *report.Data) int { return len(d.Events) },
			"workers":    func(d *report.Data) int { return len(d.Workers) },
		}[kind]
		if count == nil || !strings.HasSuffix(name, ".json") {
			continue
		}
		data, _, err := y.store.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		y.replace(name, []byte("{"))
		d := load(t, y)
		if count(d) != count(whole)-1 || !strings.Contains(fmt.Sprint(d.Missing), name) {
			t.Errorf("%s: %d of %d are left, missing %v", name, count(d), count(whole), d.Missing)
		}
		tried[kind]++
		y.replace(name, data)
	}
	if tried["batches"] != 4 || tried["results"] != 4 || tried["validation"] < 5 || tried["events"] < 2 || tried["workers"] < 1 {
		t.Errorf("tried %v", tried)
	}
}

func have(d *report.Data, is func(report.Step) bool) (n int) {
	for _, s := range d.Steps {
		if is(s) {
			n++
		}
	}
	return n
}
