//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact/bucket"
	"github.com/steadyrl/steady/internal/artifact/bucket/buckettest"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
)

// A whole run with its artifacts in a bucket: everything is killed in the middle and loses its local copies, and the run goes on from what the
// bucket has. Nothing of it lies in the data directory but copies.
func TestBucket_aRunThatLosesItsMachine(t *testing.T) {
	for name, value := range buckettest.Environment() {
		t.Setenv(name, value)
	}
	srv := buckettest.New(t)
	s := open(t, "--store", srv.Address("steady"))
	s.start("r1", s.input("run.json", "run.steps=4"))
	testutil.Eventually(t, 8*time.Minute, "a step behind the first checkpoint is trained", func() bool { return s.progress("r1").Step >= 3 })
	s.process.Kill()
	s.process.Wait(t, time.Minute)
	if err := os.RemoveAll(filepath.Join(s.data(), "cache")); err != nil {
		t.Fatal(err)
	}
	s.begin()
	if got := s.end("r1", 10*time.Minute); got != "COMPLETED" {
		t.Fatalf("r1 ended as %s\n%s", got, s.process.Output())
	}

	if _, err := os.Stat(filepath.Join(s.data(), "store")); !os.IsNotExist(err) {
		t.Errorf("the data directory has a store of its own: %v", err)
	}
	place, err := bucket.Parse(srv.Address("steady"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := bucket.Open(t.Context(), bucket.Options{Place: place, Cache: t.TempDir(), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	l := record.Layout{Run: "r1", Lineage: "l0"}
	led, err := ledger.Load(t.Context(), store, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := led.Balance(); err != nil {
		t.Error(err)
	}
	if n := led.Count(); n.Trained != 16 || n.Open != 0 {
		t.Errorf("ledger %+v, want 16 groups trained", n)
	}
	events, err := store.List(t.Context(), l.Events())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range events {
		if data, _, err := store.Get(t.Context(), name); err != nil || strings.Contains(string(data), "replay_mismatch") || strings.Contains(string(data), "Corrupt") {
			t.Errorf("%s: %v %s", name, err, data)
		}
	}
	// The pages that steady dev serves, while it runs.
	said := regexp.MustCompile(`(?m)^pages of runs +(http://127\.0\.0\.1:\d+/)$`).FindAllStringSubmatch(s.process.Output(), -1)
	if len(said) == 0 {
		t.Fatalf("no pages are served\n%s", s.process.Output())
	}
	pages := said[len(said)-1][1]
	for path, text := range map[string]string{"": "/runs/r1/", "runs/r1/": "The books balance", "runs/r1/trajectories": "trajectories", "runs/r1/groups/0/0?colour=version": "policy version"} {
		if body := testutil.Page(t, pages+path); !strings.Contains(body, text) {
			t.Errorf("the page %s%s lacks %q:\n%.1000s", pages, path, text, body)
		}
	}
	card, _, err := store.Get(t.Context(), l.Export()+"/README.md")
	if err != nil || !strings.Contains(string(card), "library_name: transformers") {
		t.Errorf("the model card: %v\n%.500s", err, card)
	}
	dir, err := store.Pull(t.Context(), l.Export())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEMPORAL_ADDRESS", "127.0.0.1:"+strconv.Itoa(s.port))
	for _, args := range [][]string{
		{"verify-export", dir},
		{"doctor", "--worker", "--data", s.data(), "--store", srv.Address("steady")},
		{"report", "r1", "--store", srv.Address("steady"), "--data", s.data(), "--out", filepath.Join(s.dir, "report.html")},
		{"ledger", "r1", "--store", srv.Address("steady"), "--data", s.data()},
		{"watch", "r1", "--once", "--store", srv.Address("steady"), "--data", s.data()},
		{"metrics", "export", "r1", "--format", "parquet", "--store", srv.Address("steady"), "--data", s.data(), "--out", filepath.Join(s.dir, "steps.parquet")},
	} {
		if out, code, err := testutil.Run(t.Context(), s.steady, args...); err != nil || code != 0 || strings.Contains(out, buckettest.Secret) {
			t.Errorf("steady %s: status %d, %v\n%s", strings.Join(args, " "), code, err, out)
		}
	}
	if n := srv.Uploads(); n != 0 {
		t.Errorf("%d uploads were not finished", n)
	}
}
