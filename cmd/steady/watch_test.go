package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/live"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
	"github.com/steadyrl/steady/internal/testutil"
)

// watched writes records of a run into a data directory.
type watched struct {
	t *testing.T
	s *artifact.Files
	l record.Layout
}

func newWatched(t *testing.T, data, run string) *watched {
	t.Helper()
	s, err := artifact.NewFiles(filepath.Join(data, "store"))
	if err != nil {
		t.Fatal(err)
	}
	return &watched{t, s, record.Layout{Run: run, Lineage: "l0"}}
}

func (w *watched) put(name string, v any) {
	w.t.Helper()
	if _, err := artifact.PutJSON(w.t.Context(), w.s, name, v); err != nil {
		w.t.Fatal(err)
	}
}

// start leaves a run of four steps, and done so many of them.
func (w *watched) start(done int) {
	w.put(w.l.RunFile(), record.Run{Run: w.l.Run, Owner: "o", Lineage: "l0", Recipe: "demo", Engine: "cpu"})
	w.put(w.l.ConfigFile(), map[string]any{"mode": "sync", "run": map[string]any{"steps": 4}})
	w.put(w.l.WeightsInfo(0), record.Version{})
	for n := 1; n <= done; n++ {
		w.step(n)
	}
}

func (w *watched) step(n int) {
	w.put(w.l.WeightsInfo(n), record.Version{Version: n})
	w.put(w.l.Ledger(n), record.Ledger{Step: n, Submitted: []record.Submitted{{N: n - 1, Problem: n, Tag: n}}, Trained: []int{n - 1}, NextGroup: n, Cursor: record.Cursor{Next: n}})
	b := record.Sealed{Step: n, Rollout: record.BatchMetrics{RewardMean: record.Num(0.5), LagMean: record.Num(1)}}
	recordtest.PutStep(w.t, w.s, w.l, b, record.Result{Metrics: record.UpdateMetrics{TrainRate: record.Num(9000)}})
}

// end leaves what a run leaves that was exported, or was not.
func (w *watched) end(exported bool) {
	w.put(w.l.LedgerEnd(), record.Ledger{NextGroup: 4, Cursor: record.Cursor{Next: 4}})
	if exported {
		w.put(w.l.Export()+"/certificate.json", map[string]any{})
	}
	if _, err := w.s.Put(w.t.Context(), w.l.Report(), []byte("<html>")); err != nil {
		w.t.Fatal(err)
	}
}

// steadyWatch runs the command without a Temporal server.
func steadyWatch(args ...string) (out, errs string, code int) {
	var o, e bytes.Buffer
	code = run(append([]string{"watch", "--no-temporal"}, args...), &o, &e)
	return o.String(), e.String(), code
}

func TestWatch_endsAsTheRunDid(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name string
		with func(*watched)
		code int
		out  string
		err  string
	}{
		{"done", func(w *watched) { w.end(true) }, exitDone, "r, done, step 4/4, reward 0.500, lag 1.00, dropped 0, failures 0", ""},
		{"stopped", func(w *watched) { w.end(false) }, exitRunFailed, "ended without an export", "ended without an export: it was cancelled, or failed"},
		{"failed", func(w *watched) {
			w.put(w.l.Event("run-failed"), record.Event{Time: "2026-03-01T09:00:00Z", Kind: "Internal", Where: "TrainRun", Message: "the engine\n\x1b[2Jbroke"})
		}, exitRunFailed, `r, failed, step 4/4`, `failed: the engine \x1b[2Jbroke`},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			w := newWatched(t, data, "r")
			w.start(4)
			x.with(w)
			out, errs, code := steadyWatch("r", "--data", data)
			if code != x.code || !strings.Contains(out, x.out) || !strings.Contains(errs, x.err) || strings.Contains(out+errs, "\x1b") {
				t.Errorf("exit %d, want %d\n%s%s", code, x.code, out, errs)
			}
			// One look is no verdict on the run.
			if out, errs, code := steadyWatch("r", "--data", data, "--once"); code != exitDone || errs != "" || strings.Count(out, "\n") != 1 {
				t.Errorf("--once: exit %d\n%s%s", code, out, errs)
			}
			out, _, code = steadyWatch("r", "--data", data, "--once", "--json")
			var st live.Status
			if err := json.Unmarshal([]byte(out), &st); err != nil || code != exitDone || st.Run != "r" || st.Step != 4 || st.Steps != 4 || *st.TrainRate != 9000 {
				t.Errorf("--json: exit %d, %v\n%s", code, err, out)
			}
		})
	}
}

func TestWatch_refusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	newWatched(t, data, "demo").start(1)
	newWatched(t, data, "other").start(1)
	for args, text := range map[string]string{
		"dmeo --once":                 `there is no run "dmeo" in `,
		"demo-2 --once":               "near it: demo",
		"zzzzzz --once":               "there is demo, other",
		"":                            "no run is named",
		"../x":                        "is no name",
		"demo --lineage l9":           "has no lineage",
		"demo --lineage ..":           "is no name",
		"demo --every 1ms":            "want at least 100ms",
		"--http nonsense":             "is no address",
		"--http 127.0.0.1:0 --once":   "have no meaning with it",
		"--http 256.0.0.1:99999":      "cannot be served",
		"demo --data /nowhere/at/all": "there is no artifact store",
	} {
		flags := strings.Fields(args)
		if !strings.Contains(args, "--data") {
			flags = append(flags, "--data", data)
		}
		if out, errs, code := steadyWatch(flags...); code != exitUsage || !strings.Contains(errs, text) || !strings.Contains(errs, "try:") && !strings.Contains(errs, "want") && !strings.Contains(errs, "meaning") {
			t.Errorf("watch %s: exit %d, want %q\n%s%s", args, code, text, out, errs)
		}
	}
}

func TestDistance_countsChanges(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		a, b string
		n    int
	}{{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"demo", "demo", 0}, {"dmeo", "demo", 1}, {"demo", "demos", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}} {
		if got := distance(x.a, x.b); got != x.n || distance(x.b, x.a) != got {
			t.Errorf("distance(%q, %q) = %d, want %d", x.a, x.b, got, x.n)
		}
	}
}

// The program waits for a run that has not started, follows it, and ends with it.
func TestWatch_waitsForARunAndFollowsIt(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	w := newWatched(t, data, "r")
	p := testutil.StartWith(t, []string{asSteady + "=1"}, os.Args[0], "watch", "r", "--no-temporal", "--data", data, "--every", "100ms")
	says := func(text string) {
		t.Helper()
		testutil.Eventually(t, time.Minute, text, func() bool { return strings.Contains(p.Output(), text) })
	}
	says("run r has not started: ")
	says("it has no run yet; waiting for it")
	w.start(1)
	says("r, training, step 1/4")
	w.step(2)
	says("r, training, step 2/4")
	w.step(3)
	w.step(4)
	w.end(true)
	if code := p.Wait(t, time.Minute); code != exitDone {
		t.Errorf("exit %d\n%s", code, p.Output())
	}
	says("r, done, step 4/4")
	if strings.Contains(p.Output(), "\x1b") {
		t.Errorf("control characters in a file:\n%q", p.Output())
	}
}

func TestWatch_interruptedIsNoEnd(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	newWatched(t, data, "r").start(1)
	p := testutil.StartWith(t, []string{asSteady + "=1"}, os.Args[0], "watch", "r", "--no-temporal", "--data", data)
	testutil.Eventually(t, time.Minute, "a line", func() bool { return strings.Contains(p.Output(), "step 1/4") })
	p.Interrupt()
	if code := p.Wait(t, time.Minute); code != exitInterrupted {
		t.Errorf("exit %d\n%s", code, p.Output())
	}
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\S*`)

func TestWatch_servesPages(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	newWatched(t, data, "r").start(2)
	p := testutil.StartWith(t, []string{asSteady + "=1"}, os.Args[0], "watch", "r", "--http", "127.0.0.1:0", "--data", data)
	testutil.Eventually(t, time.Minute, "an address", func() bool { return address.MatchString(p.Output()) })
	at := address.FindString(p.Output())
	if !strings.HasSuffix(at, "/runs/r/") || strings.Contains(p.Output(), "warning") {
		t.Errorf("output %s", p.Output())
	}
	if body := fetch(t, at); !strings.Contains(body, "Run r") {
		t.Errorf("%s has\n%.500s", at, body)
	}
	p.Interrupt()
	if code := p.Wait(t, time.Minute); code != exitDone {
		t.Errorf("exit %d\n%s", code, p.Output())
	}
}

func fetch(t *testing.T, at string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v", at, resp.StatusCode, err)
	}
	return string(body)
}

// dev and demo take a free port where nobody asked for one that is taken, refuse one that was asked for, and serve none if told so.
func TestLiveFlags_choosesAPort(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	w := newWatched(t, data, "r")
	w.start(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	never := func(format string, args ...any) { t.Errorf(format, args...) }
	port := func(n int) *int { return &n }
	first, err := liveFlags{}.serveLive(ctx, w.s, never)
	if err != nil {
		t.Fatal(err)
	}
	second, err := liveFlags{}.serveLive(ctx, w.s, never)
	if err != nil || first == second {
		t.Errorf("%q and %q, %v", first, second, err)
	}
	for _, at := range []string{first, second} {
		if body := fetch(t, at); !strings.Contains(body, ">r</a>") {
			t.Errorf("%s has\n%.500s", at, body)
		}
	}
	if at, err := (liveFlags{port(-1)}).serveLive(ctx, w.s, never); at != "" || err != nil {
		t.Errorf("none: %q %v", at, err)
	}
	free := testutil.FreePort(t)
	if _, err := (liveFlags{port(free)}).serveLive(ctx, w.s, never); err != nil {
		t.Errorf("a free port: %v", err)
	}
	if _, err := (liveFlags{port(free)}).serveLive(ctx, w.s, never); err == nil || !strings.Contains(err.Error(), "cannot be served") {
		t.Errorf("a port that is taken: %v", err)
	}
	for n, good := range map[int]bool{-2: false, -1: true, 0: true, 65535: true, 65536: false} {
		if err := (liveFlags{port(n)}).check(); (err == nil) != good {
			t.Errorf("port %d: %v", n, err)
		}
	}
}

// A terminal shows every line that a person needs, none of them wrapped, no text of a run that a terminal acts on, and no colours.
func TestSight_blockIsSafeAndWhole(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	w := newWatched(t, data, "r")
	w.start(2)
	w.put(w.l.Event("a"), record.Event{Time: "2026-03-01T09:00:00Z", Kind: "Lost", Where: "trainer\nhost", Message: "\x1b[2J\u202eno heartbeat"})
	w.put(w.l.Worker("host-a"), record.Worker{Host: "host-a\x07"})
	w.put(w.l.Validation("000002"), record.Validation{Name: "000002", Version: 2, Problems: 4, Metrics: record.DevMetrics{Solved: 3, Acc: 0.75}})
	st, err := live.Look(t.Context(), live.NewCache(w.s), "r", "")
	if err != nil {
		t.Fatal(err)
	}
	lines := (&sight{Status: st}).block()
	text := strings.Join(lines, "\n")
	for _, want := range []string{"r  training", "] step 2 of 4", "left", "75.00 % at step 2 (3 of 4)", "reward 0.500, lag 1.00", "9000 tokens/s trained", "2 trained", "drops    0", "host-a", "failures 1", "no heartbeat"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if slices.ContainsFunc(lines, func(l string) bool { return strings.ContainsAny(l, "\x1b\n\a\u202e") }) {
		t.Errorf("control characters in %q", text)
	}
}
