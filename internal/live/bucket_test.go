package live

import (
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact/bucket"
	"github.com/steadyrl/steady/internal/artifact/bucket/buckettest"
	"github.com/steadyrl/steady/internal/record"
)

// TestMain gives the process the credentials of the servers of the tests.
func TestMain(m *testing.M) {
	for name, value := range buckettest.Environment() {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

const bucketPrefix = "some/prefix"

// inBucket copies the fixture's store into a bucket, as it is now, with the times of the files. A bucket has whole seconds, so the files get
// them as well.
func (f *fixture) inBucket(srv *buckettest.Server, s *bucket.Store) {
	f.tb.Helper()
	err := filepath.WalkDir(f.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(f.root, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if _, err := s.Replace(f.tb.Context(), name, data); err != nil {
			return err
		}
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		at := st.ModTime().Truncate(time.Second)
		if !srv.Date(bucketPrefix+"/"+name, at) {
			f.tb.Errorf("%s is not in the bucket", name)
		}
		return os.Chtimes(path, at, at)
	})
	if err != nil {
		f.tb.Fatal(err)
	}
}

// openBucket opens a store for reading, as another process.
func openBucket(tb testing.TB, srv *buckettest.Server, readOnly bool) *bucket.Store {
	tb.Helper()
	place, err := bucket.Parse(srv.Address(bucketPrefix))
	if err != nil {
		tb.Fatal(err)
	}
	s, err := bucket.Open(tb.Context(), bucket.Options{Place: place, Cache: tb.TempDir(), ReadOnly: readOnly, Attempts: 1})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func serveBucket(tb testing.TB, srv *buckettest.Server) *Server {
	tb.Helper()
	s := New(Options{Store: openBucket(tb, srv, true), Version: "test", Patience: time.Minute})
	tb.Cleanup(s.Close)
	return s
}

// numbers are what pages of one kind differ in.
var numbers = regexp.MustCompile(`[0-9]+`)

var stampText = regexp.MustCompile(` data-stamp="[^"]*"`)

// Every kind of page that can be reached is the same of a store in a bucket and of one in a directory, but for the stamp.
func TestPages_ofABucketAreThoseOfADirectory(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.groups = 1
	f.whole(1)
	g := newFixture(t, f.root, "beta")
	g.groups = 1
	g.whole(1)
	srv := buckettest.New(t)
	f.inBucket(srv, openBucket(t, srv, false))
	files, objects := f.serve(), serveBucket(t, srv)
	paths := slices.Clone(addresses)
	kinds := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(follow(t, files, addresses))) {
		if kind := numbers.ReplaceAllString(path, "0"); !kinds[kind] {
			kinds[kind] = true
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		a, b := get(files, path), get(objects, path)
		if a.Code != b.Code || a.Code != http.StatusOK {
			t.Errorf("%s: status %d of files, %d of a bucket\n%s", path, a.Code, b.Code, b.Body)
			continue
		}
		x, y := stampText.ReplaceAllString(a.Body.String(), ""), stampText.ReplaceAllString(b.Body.String(), "")
		if x != y {
			t.Errorf("%s differs:\n%s", path, difference(x, y))
		}
		if tag := b.Header().Get("ETag"); tag != "" {
			if again := get(objects, path, "If-None-Match", tag); again.Code != http.StatusNotModified {
				t.Errorf("%s again: status %d", path, again.Code)
			}
		}
	}
	if n := len(paths); n < 40 {
		t.Errorf("%d pages were compared, want all kinds", n)
	}
}

// difference shows the first line that is another.
func difference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return x[i] + "\n" + y[i]
		}
	}
	return "one is longer"
}

// The corrections of a trained trajectory are computed from a bucket too: weights and base model come from there.
func TestPages_ofABucketHaveCorrections(t *testing.T) {
	t.Parallel()
	f, _ := trained(t)
	srv := buckettest.New(t)
	f.inBucket(srv, openBucket(t, srv, false))
	const path = "/runs/alpha/groups/0/0?colour=correction"
	body := want(t, serveBucket(t, srv), path, "Score-Centering term C")
	if x := want(t, f.serve(), path); x != body {
		t.Errorf("the pages differ:\n%s", difference(x, body))
	}
}

// A refresh of a page costs a few lists and no object; a step is seen; a pointer that is replaced within a second is seen too.
func TestServer_ofABucketSeesWhatIsNew(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.groups = 1
	f.whole(2)
	srv := buckettest.New(t)
	writer := openBucket(t, srv, false)
	f.inBucket(srv, writer)
	s := serveBucket(t, srv)
	tag := get(s, "/runs/alpha/").Header().Get("ETag")
	want(t, s, "/runs/alpha/trajectories", "1 to 8 of 8 trajectories")
	before := s.Cache().Opened()
	if w := get(s, "/runs/alpha/", "If-None-Match", tag); w.Code != http.StatusNotModified || s.Cache().Opened() != before {
		t.Errorf("a refresh: status %d, %d objects opened", w.Code, s.Cache().Opened()-before)
	}
	f.step(3)
	f.inBucket(srv, writer)
	w := get(s, "/runs/alpha/", "If-None-Match", tag)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "3 of 10") {
		t.Errorf("a step more: status %d", w.Code)
	}
	want(t, s, "/runs/alpha/trajectories", "1 to 12 of 12 trajectories")
	tag = w.Header().Get("ETag")
	for _, text := range []string{`{"version":1}`, `{"version":2}`} {
		if _, err := writer.Replace(t.Context(), f.l.Live(), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if !srv.Date(bucketPrefix+"/"+f.l.Live(), time.Unix(1e9, 0)) {
			t.Fatal("there is no pointer")
		}
		w := get(s, "/runs/alpha/", "If-None-Match", tag)
		if w.Code != http.StatusOK {
			t.Errorf("another pointer: status %d", w.Code)
		}
		tag = w.Header().Get("ETag")
	}
	// Another run of the same name.
	if err := writer.Remove(t.Context(), "runs/alpha"); err != nil {
		t.Fatal(err)
	}
	if w := get(s, "/runs/alpha/"); w.Code != http.StatusNotFound {
		t.Errorf("a removed run: status %d", w.Code)
	}
	g := newFixture(t, t.TempDir(), "alpha")
	g.groups = 1
	g.start(77)
	g.json(g.l.RunFile(), record.Run{Run: "alpha", Owner: "another", Lineage: "l0", Started: "2026-03-02T09:00:00Z"}) // times are in seconds
	g.step(1)
	g.inBucket(srv, writer)
	want(t, s, "/", "1 of 77")
}

// A bucket that is away is a page that says so, and the pages come back with it.
func TestServer_ofABucketThatIsAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.groups = 1
	f.whole(1)
	srv := buckettest.New(t)
	f.inBucket(srv, openBucket(t, srv, false))
	s := serveBucket(t, srv)
	var asked atomic.Int32
	srv.Intercept = func(string, string) *buckettest.Fault {
		asked.Add(1)
		return &buckettest.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}
	}
	for _, path := range []string{"/", "/runs/alpha/", "/runs/alpha/groups/1/0", "/runs/alpha/ledger", "/compare?a=alpha&b=alpha"} {
		w := get(s, path)
		body := w.Body.String()
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(body, "The store does not answer") || !strings.Contains(body, "</html>") {
			t.Errorf("%s: status %d\n%s", path, w.Code, body)
		}
		if strings.Contains(body, buckettest.Secret) || strings.Contains(body, buckettest.KeyID) {
			t.Errorf("%s shows credentials", path)
		}
	}
	if asked.Load() == 0 {
		t.Error("nothing was asked")
	}
	srv.Intercept = nil
	want(t, s, "/", ">alpha</a>", "1 of 10")
	want(t, s, "/runs/alpha/", "The books balance")
}
