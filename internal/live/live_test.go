package live

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
)

// addresses are all kinds of pages of the run "alpha" beside a run "beta".
var addresses = []string{
	"/", "/compare", "/compare?a=alpha&b=beta", "/runs/alpha/", "/runs/alpha/?lineage=l0", "/runs/alpha/trajectories", "/runs/alpha/trajectories?outcome=unsolved",
	"/runs/alpha/trajectories?set=000000", "/runs/alpha/trajectories?step=99", "/runs/alpha/groups/0", "/runs/alpha/groups/1", "/runs/alpha/groups/2",
	"/runs/alpha/groups/2/0", "/runs/alpha/groups/2/3?colour=version", "/runs/alpha/groups/2/3?colour=probability", "/runs/alpha/groups/2/1?colour=correction",
	"/runs/alpha/groups/2/3?view=table", "/runs/alpha/groups/1/1?colour=uncovered", "/runs/alpha/validations/000000/3/0", "/runs/alpha/ledger",
	"/runs/alpha/ledger?fate=stale", "/runs/alpha/failures", "/runs/alpha/failures?kind=Lost",
}

// two are a store with the runs alpha and beta.
func two(t *testing.T) (*fixture, *Server) {
	t.Helper()
	f := newFixture(t, t.TempDir(), "alpha")
	f.whole(3)
	g := newFixture(t, f.root, "beta")
	g.rate = 0.002
	g.whole(2)
	return f, f.serve()
}

func TestPages_showTheRecords(t *testing.T) {
	t.Parallel()
	_, s := two(t)
	for path, texts := range map[string][]string{
		"/":                        {">alpha</a>", ">beta</a>", "training", "3 of 10", "62.50\u00a0% at step 3 (5 of 8), 25.00\u00a0% at step 0", "10 min 30 s", "9000 tokens/s"},
		"/runs/alpha/":             {"Run alpha", "25.00", "62.50", "The books balance", `data-refresh="5"`, `<script src="/live.js" defer>`, "reacquired"},
		"/runs/alpha/trajectories": {"1 to 36 of 36 trajectories", "accepted, 4 of 4", "wrong answer, 2 of 4", "+0.5625", "−0.4375", "demo/0002, 2/0", "length"},
		"/runs/alpha/trajectories?step=2&outcome=solved":       {"1 to 3 of 3 trajectories", "demo/0005, 5/0"},
		"/runs/alpha/trajectories?problem=0005":                {"1 to 4 of 4 trajectories"},
		"/runs/alpha/trajectories?end=length":                  {"1 to 9 of 9 trajectories"},
		"/runs/alpha/trajectories?outcome=wrong_answer&step=1": {"1 to 9 of 9 trajectories"},
		"/runs/alpha/trajectories?step=99":                     {"No trajectory fits"},
		"/runs/alpha/trajectories?set=000003":                  {"1 to 8 of 8 trajectories", "dev/7, 7/0", "/runs/alpha/validations/000003/7/0"},
		"/runs/alpha/groups/0":                                 {"dropped in step 1: stale", "demo/0900, 0/0"},
		"/runs/alpha/groups/1":                                 {"open", "demo/0901, 1/1"},
		"/runs/alpha/groups/1/1":                               {"none: it is not finished", "It was not judged"},
		"/runs/alpha/groups/2/0":                               {"demo/0002", "trained in step 1", "+0.5625", "4 of 4 tests passed", "k-p3", "größer 終", "0.0120"},
		"/runs/alpha/groups/2/2":                               {"−0.4375", "k-n2", "0 of 4 tests passed"},
		"/runs/alpha/groups/5/3?colour=version":                {"version 1, lag 0", "version 0, lag 1", "ran, ok", "0.250", "0.125", "tool says 8"},
		"/runs/alpha/groups/2/1?colour=correction":             {"No colours by correction: ", "mass outside the record"},
		"/runs/alpha/groups/2/0?view=table":                    {"Table of tokens", "turn 1", "prompt", "+0.5625"},
		"/runs/alpha/validations/000000/3/0":                   {"dev/3", "number", "000000"},
		"/runs/alpha/ledger":                                   {"The books balance.", "dropped: stale", "1 to 11 of 11 groups", "group 10", "trained in step 3"},
		"/runs/alpha/ledger?fate=open":                         {"1 to 1 of 1 groups", ">group 1<"},
		"/runs/alpha/failures":                                 {"Failures recorded: 2. Recoveries: 1.", "no heartbeat for 20 s", "m-bad", "m-good", "1 min 20 s after the start"},
		"/runs/alpha/failures?kind=Lost":                       {"1 to 1 of 1"},
		"/compare":                                             {"choose a run"},
		"/compare?a=alpha&b=beta":                              {"optim.learning_rate", "<code>0.001</code>", "<code>0.002</code>", "A: alpha", "B: beta", "step 0", "newest: step 3 and step 2", "+0.00 points", "Dev accuracy"},
	} {
		want(t, s, path, texts...)
	}
}

var (
	openTag  = regexp.MustCompile(`<([a-zA-Z][a-zA-Z0-9]*)`)
	textRef  = regexp.MustCompile(` (?:href|src|action)="([^"]*)"`)
	idText   = regexp.MustCompile(` id="([^"]*)"`)
	labelRef = regexp.MustCompile(` aria-(?:labelledby|describedby)="([^"]*)"`)
)

// No text of a run becomes markup, an address elsewhere, a script or a style, on any page.
func TestPages_textsOfARunAreOnlyText(t *testing.T) {
	t.Parallel()
	_, s := two(t)
	for _, path := range addresses {
		w := get(s, path)
		body := w.Body.String()
		if w.Code != http.StatusOK {
			t.Errorf("%s: status %d", path, w.Code)
		}
		for what, bad := range map[string]string{"a script of a text": "<script>", "a control character": "\x1b", "a mark of direction": "\u202e", "an inline style": " style=", "a handler": " onclick="} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %s", path, what)
			}
		}
		for _, m := range openTag.FindAllStringSubmatch(body, -1) {
			if slices.Contains([]string{"iframe", "object", "embed", "base", "img", "style", "b2J"}, m[1]) {
				t.Errorf("%s has a <%s>", path, m[1])
			}
		}
		if n := strings.Count(body, "<script"); n != 1 {
			t.Errorf("%s has %d scripts, want the one of the server", path, n)
		}
		for _, m := range textRef.FindAllStringSubmatch(body, -1) {
			if !strings.HasPrefix(m[1], "/") && !strings.HasPrefix(m[1], "#") && !strings.HasPrefix(m[1], "?") || strings.HasPrefix(m[1], "//") {
				t.Errorf("%s refers to %q", path, m[1])
			}
		}
		csp := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
}

// Every page has a language, a title, one heading of the first rank, labels for what is filled in, and references that lead somewhere.
func TestPages_haveTheBasicsOfAccessibility(t *testing.T) {
	t.Parallel()
	_, s := two(t)
	for _, path := range append(addresses, "/nowhere") {
		body := get(s, path).Body.String()
		for _, text := range []string{`<html lang="en">`, `<title>`, `class="skip" href="#content"`, `<main id="content">`, `name="viewport"`} {
			part := body
			if text == `<title>` { // drawings have titles too
				part = body[:strings.Index(body, "</head>")]
			}
			if strings.Count(part, text) != 1 {
				t.Errorf("%s has %d times %s", path, strings.Count(part, text), text)
			}
		}
		if n := strings.Count(body, "<h1"); n != 1 {
			t.Errorf("%s has %d first headings", path, n)
		}
		ids := map[string]int{}
		for _, m := range idText.FindAllStringSubmatch(body, -1) {
			if ids[m[1]]++; ids[m[1]] > 1 {
				t.Errorf("%s has two elements %s", path, m[1])
			}
		}
		for _, m := range labelRef.FindAllStringSubmatch(body, -1) {
			if ids[m[1]] == 0 {
				t.Errorf("%s: %s is no element", path, m[1])
			}
		}
		if a, b := strings.Count(body, "<select")+strings.Count(body, "<input")-strings.Count(body, `type="hidden"`), strings.Count(body, "<label"); a != b {
			t.Errorf("%s has %d fields and %d labels", path, a, b)
		}
	}
}

// follow collects every address that pages link to.
func follow(t *testing.T, s *Server, from []string) map[string]bool {
	t.Helper()
	seen := map[string]bool{}
	todo := slices.Clone(from)
	for len(todo) > 0 && len(seen) < 400 {
		path := todo[0]
		todo = todo[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		w := get(s, path)
		if w.Code >= 400 {
			t.Errorf("a link leads to %s: status %d", path, w.Code)
			continue
		}
		for _, m := range textRef.FindAllStringSubmatch(w.Body.String(), -1) {
			to := strings.ReplaceAll(m[1], "&amp;", "&")
			if strings.HasPrefix(to, "?") {
				to = path[:strings.IndexAny(path+"?", "?")] + to
			}
			if strings.HasPrefix(to, "/") {
				todo = append(todo, to)
			}
		}
	}
	return seen
}

func TestPages_linksLeadSomewhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.groups = 1
	f.whole(2)
	if n := len(follow(t, f.serve(), []string{"/"})); n < 60 {
		t.Errorf("%d pages are linked, want all kinds", n)
	}
}

// Whatever stands in an address, no file outside the run is named and nothing breaks.
func TestServer_refusesOddAddresses(t *testing.T) {
	t.Parallel()
	f, s := two(t)
	secret := filepath.Join(filepath.Dir(f.root), "secret.json")
	if err := os.WriteFile(secret, []byte(`{"run":"SECRET"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, code := range map[string]int{
		"/runs/..%2f..%2fsecret.json/":                     400,
		"/runs/%2e%2e/":                                    400,
		"/runs/alpha%2f..%2fbeta/":                         400,
		"/runs/alpha%00/":                                  400,
		"/runs/.hidden/":                                   400,
		"/runs/gamma/":                                     404,
		"/runs/alpha/?lineage=..":                          400,
		"/runs/alpha/?lineage=../../beta/l0":               400,
		"/runs/alpha/?lineage=l7":                          404,
		"/runs/alpha/?lineage=groups":                      404,
		"/runs/alpha/groups/-1":                            400,
		"/runs/alpha/groups/007":                           400,
		"/runs/alpha/groups/99999999999999999999":          400,
		"/runs/alpha/groups/9999":                          404,
		"/runs/alpha/groups/2/9":                           404,
		"/runs/alpha/groups/2/..%2f0":                      400,
		"/runs/alpha/groups/2/0?colour=red":                400,
		"/runs/alpha/groups/2/0?view=hex":                  400,
		"/runs/alpha/groups/2/0?view=table&page=0":         400,
		"/runs/alpha/validations/..%2f..%2frun/0/0":        400,
		"/runs/alpha/validations/000009/0/0":               404,
		"/runs/alpha/validations/000000/77/0":              404,
		"/runs/alpha/trajectories?set=..%2frun":            400,
		"/runs/alpha/trajectories?step=x":                  400,
		"/runs/alpha/trajectories?step=-2":                 400,
		"/runs/alpha/trajectories?outcome=good":            400,
		"/runs/alpha/trajectories?end=never":               400,
		"/runs/alpha/trajectories?sort=random":             400,
		"/runs/alpha/trajectories?page=minus":              400,
		"/runs/alpha/ledger?fate=lost":                     400,
		"/runs/alpha/ledger?step=1e9":                      400,
		"/runs/alpha/failures?kind=%3Cscript%3E":           404,
		"/compare?a=alpha&b=..%2f..":                       400,
		"/compare?a=alpha&b=gamma":                         404,
		"/runs/alpha/batches/000001.json":                  404,
		"/assets/live.js":                                  404,
		"/%2e%2e/%2e%2e/secret.json":                       404,
		"/runs/alpha/groups/2/0/%3Cscript%3Ealert(1)":      404,
		"/runs/alpha/trajectories?page=999999":             200,
		"/runs/alpha/trajectories?problem=%3Cscript%3E%22": 200,
	} {
		w := get(s, path)
		if w.Code != code && w.Code != http.StatusTemporaryRedirect && w.Code != http.StatusMovedPermanently {
			t.Errorf("GET %s: status %d, want %d", path, w.Code, code)
		}
		if body := w.Body.String(); strings.Contains(body, "SECRET") || strings.Contains(body, "<script>") || strings.Contains(body, f.root) {
			t.Errorf("GET %s shows what it must not", path)
		}
	}
}

func TestServer_answersReadingRequestsForThisMachineOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.start(3)
	s := New(Options{Store: f.store(), Loopback: true})
	t.Cleanup(s.Close)
	for host, code := range map[string]int{
		"127.0.0.1:8234": 200, "localhost:8234": 200, "LOCALHOST": 200, "[::1]:8234": 200, "127.0.0.2": 200,
		"evil.example": 421, "evil.example:8234": 421, "192.168.0.1:8234": 421, "localhost.evil.example": 421, "": 421,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("host %q: status %d, want %d", host, w.Code, code)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		r := httptest.NewRequest(method, "/", nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: status %d", method, w.Code)
		}
	}
}

// A page that is asked for again costs no file; one step costs the files of that step, however long the run is.
func TestServer_refreshOpensOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	for _, steps := range []int{3, 12} {
		f := newFixture(t, t.TempDir(), "alpha")
		f.whole(steps)
		s := f.serve()
		refreshed := []string{"/", "/runs/alpha/", "/runs/alpha/ledger", "/runs/alpha/failures", "/compare?a=alpha&b=alpha"}
		tags := map[string]string{}
		for _, path := range refreshed {
			tags[path] = get(s, path).Header().Get("ETag")
		}
		for _, path := range refreshed {
			before := s.Cache().Opened()
			w := get(s, path, "If-None-Match", tags[path])
			if n := s.Cache().Opened() - before; w.Code != http.StatusNotModified || n != 0 || w.Body.Len() > 0 {
				t.Errorf("%d steps, %s again: status %d, %d files opened, %d bytes", steps, path, w.Code, n, w.Body.Len())
			}
		}
		before := s.Cache().Opened()
		get(s, "/runs/alpha/") // without a tag, as another browser
		if n := s.Cache().Opened() - before; n != 0 {
			t.Errorf("%d steps: %d files opened for a page that is known", steps, n)
		}
		f.step(steps + 1)
		for _, path := range refreshed {
			if w := get(s, path, "If-None-Match", tags[path]); w.Code != http.StatusOK {
				t.Errorf("%d steps and one, %s: status %d", steps, path, w.Code)
			}
		}
		// Batch, result, ledger record and version of the step, and twice what is not kept: workers, and for the samples of the report
		// some group files with their verdicts.
		if n := s.Cache().Opened() - before; n > 20 {
			t.Errorf("%d steps and one: %d files opened", steps, n)
		}
	}
}

// A filter on what is in the files of the groups reads each of them once.
func TestBrowse_readsEachGroupOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.whole(4)
	s := f.serve()
	get(s, "/runs/alpha/trajectories?outcome=solved")
	first := s.Cache().Opened()
	if least := int64(2 * 4 * f.groups); first < least {
		t.Errorf("%d files opened, want the %d of all groups", first, least)
	}
	for _, q := range []string{"outcome=accepted", "end=length", "end=stop&sort=tokens", "", "step=2"} {
		get(s, "/runs/alpha/trajectories?"+q)
	}
	if n := s.Cache().Opened() - first; n != 0 {
		t.Errorf("%d files opened again", n)
	}
}

// The list without such a filter opens the files of the rows that it shows.
func TestBrowse_opensOnlyWhatItShows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.groups = 30
	f.whole(1)
	s := f.serve()
	before := s.Cache().Opened()
	body := want(t, s, "/runs/alpha/trajectories", "1 to 50 of 120 trajectories", `rel="next"`)
	units := int64((pageRows + groupSize - 1) / groupSize)
	if n := s.Cache().Opened() - before; n > 2*units+4 {
		t.Errorf("%d files opened for %d groups", n, units)
	}
	if n := strings.Count(body, "<tr>"); n != pageRows+1 {
		t.Errorf("%d lines", n)
	}
	want(t, s, "/runs/alpha/trajectories?page=3", "101 to 120 of 120 trajectories", `rel="prev"`)
}

func TestServer_noticesAnotherRunOfTheSameName(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.whole(2)
	s := f.serve()
	want(t, s, "/", "2 of 10")
	want(t, s, "/runs/alpha/trajectories", "of 24")
	if err := os.RemoveAll(filepath.Join(f.root, "runs", "alpha")); err != nil {
		t.Fatal(err)
	}
	if w := get(s, "/runs/alpha/"); w.Code != http.StatusNotFound {
		t.Errorf("a removed run: status %d", w.Code)
	}
	f.start(77)
	f.step(1)
	want(t, s, "/", "1 of 77")
	want(t, s, "/runs/alpha/trajectories", "of 12")
}

// A damaged record is told, and does not take the pages of other runs away.
func TestPages_sayWhatIsDamaged(t *testing.T) {
	t.Parallel()
	f, _ := two(t)
	f.put(f.l.Batch(3), []byte("{"))
	f.put(f.l.Verdicts(record.GroupUnit(2, 1, 2, 0)), []byte("no"))
	s := f.serve()
	want(t, s, "/", "damaged", "batches/000003.json", ">beta</a>")
	want(t, s, "/runs/alpha/", "batches/000003.json")
	if w := get(s, "/runs/alpha/groups/2/0"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "verdicts.json") {
		t.Errorf("status %d", w.Code)
	}
}

// A record with another number than was written is told as a damaged one is.
func TestPages_sayWhatWasChanged(t *testing.T) {
	t.Parallel()
	f, _ := two(t)
	for _, name := range []string{f.l.Validation("000000"), f.l.Result(1)} {
		if !recordtest.ChangeNumber(t, f.store(), name) {
			t.Fatalf("%s has no number", name)
		}
	}
	s := f.serve()
	want(t, s, "/", "was changed after it was written", "validation/000000.json", ">beta</a>")
	want(t, s, "/runs/alpha/", "results/000001.json", "validation/000000.json")
}

func TestCache_onlyReadsAndStaysSmall(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.start(3)
	c := NewCache(f.store())
	c.limit = 1 << 10
	ctx := t.Context()
	for i := range 50 {
		f.event(i, "Lost", "here", strings.Repeat("x", 100), 1)
		if _, err := read[record.Event](ctx, c, f.l.Event(fmt.Sprintf("%04d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if c.bytes > c.limit || c.order.Len() != len(c.held) || c.order.Len() == 0 {
		t.Errorf("%d bytes in %d and %d entries, limit %d", c.bytes, c.order.Len(), len(c.held), c.limit)
	}
	_, perr := c.Put(ctx, "x", nil)
	_, rerr := c.Replace(ctx, "x", nil)
	for _, err := range []error{perr, rerr, c.Remove(ctx, f.l.RunFile())} {
		if !fault.Is(err, fault.Internal) {
			t.Errorf("a write: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(f.root, f.l.RunFile())); err != nil {
		t.Error(err)
	}
}

// What may change is never kept.
func TestCache_keepsOnlyWhatNeverChanges(t *testing.T) {
	t.Parallel()
	l := record.Layout{Run: "r", Lineage: "l1"}
	for name, keep := range map[string]bool{
		l.RunFile(): true, l.LineageFile(): true, l.ConfigFile(): true, l.Dataset(): true, l.Batch(3): true, l.Result(3): true, l.Ledger(3): true, l.LedgerEnd(): true,
		l.Validation("000003"): true, l.Event("x"): true, l.WeightsInfo(3): true, "datasets/a/manifest.json": true, l.Export() + "/certificate.json": true,
		l.Live(): false, l.Fence(): false, l.Worker("h"): false, l.Report(): false, l.Verdicts("groups/1"): false, l.Trajectories("groups/1"): false,
		l.Partial("groups/1", 1, 1): false, l.Weights(3): false, "x.json": false, "runs": false,
	} {
		if lasting(name) != keep {
			t.Errorf("%s: %v", name, !keep)
		}
	}
}

func TestAssets_haveTagsAndTypes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	s := f.serve()
	for path, kind := range map[string]string{"/style.css": "text/css; charset=utf-8", "/live.js": "text/javascript; charset=utf-8"} {
		w := get(s, path)
		if w.Code != 200 || w.Header().Get("Content-Type") != kind || w.Body.Len() < 1000 {
			t.Errorf("%s: status %d, %s, %d bytes", path, w.Code, w.Header().Get("Content-Type"), w.Body.Len())
		}
		if again := get(s, path, "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s again: status %d", path, again.Code)
		}
	}
	if !bytes.Contains(style, []byte("prefers-color-scheme")) {
		t.Error("the style has no dark colours")
	}
}

// Many browsers at once, while the run goes on, get whole pages.
func TestServer_answersManyAtOnceWhileTheRunGoesOn(t *testing.T) {
	t.Parallel()
	f, s := two(t)
	var wg sync.WaitGroup
	for n := range 6 {
		wg.Go(func() {
			for i := range addresses {
				path := addresses[(i+4*n)%len(addresses)]
				if w := get(s, path); w.Code != http.StatusOK || !strings.HasSuffix(strings.TrimSpace(w.Body.String()), "</html>") {
					t.Errorf("%s: status %d", path, w.Code)
				}
			}
		})
	}
	for step := 4; step < 8; step++ {
		f.step(step)
	}
	wg.Wait()
	want(t, s, "/runs/alpha/", "7 of 10")
	want(t, s, "/runs/alpha/trajectories?outcome=solved", "of 21 trajectories")
}
