package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/artifact/bucket"
	"github.com/steadyrl/steady/internal/artifact/bucket/buckettest"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
	"github.com/steadyrl/steady/internal/transcript/transcripttest"
)

// inBucket copies the store of a data directory into a bucket and returns its address. The process gets the credentials.
func inBucket(t *testing.T, data string) (*buckettest.Server, string) {
	t.Helper()
	for name, value := range buckettest.Environment() {
		t.Setenv(name, value)
	}
	srv := buckettest.New(t)
	address := srv.Address("steady")
	place, err := bucket.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	s, err := bucket.Open(t.Context(), bucket.Options{Place: place, Cache: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(data, "store")
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = s.Put(t.Context(), filepath.ToSlash(rel), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return srv, address
}

// Every command that reads a run says of a store in a bucket what it says of one in a directory, to the byte where nothing names the place.
func TestCommands_readARunFromABucket(t *testing.T) {
	data := t.TempDir()
	transcripttest.Write(t, data)
	srv, address := inBucket(t, data)
	place := regexp.MustCompile(regexp.QuoteMeta(filepath.Join(data, "store")) + `\S*|s3://\S*`)
	times := regexp.MustCompile(`"changed": ?"[^"]*"|(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`)
	for _, args := range [][]string{
		{"watch", "r", "--once", "--no-temporal"},
		{"watch", "r", "--once", "--json", "--no-temporal"},
		{"metrics", "export", "r"},
		{"metrics", "export", "r", "--format", "parquet", "--out", "OUT/steps.parquet"},
		{"metrics", "export", "r", "--format", "tensorboard", "--out", "OUT/logdir"},
		{"report", "r", "--out", "OUT/report.html"},
		{"report", "r", "--out", "-"},
		{"ledger", "r"},
		{"trajectory", "show", "r", "--group", "0", "--sample", "0"},
		{"trajectory", "export", "r"},
	} {
		var texts [2]string
		var codes [2]int
		for i, where := range [][]string{{"--data", data}, {"--data", t.TempDir(), "--store", address}} {
			out := t.TempDir()
			line := slices.Clone(args)
			for j := range line {
				line[j] = strings.Replace(line[j], "OUT", out, 1)
			}
			code, text, errs := steady(t, append(line, where...)...)
			if codes[i] = code; code == exitUsage || strings.Contains(text+errs, buckettest.Secret) {
				t.Errorf("steady %s: exit %d\n%s%s", strings.Join(line, " "), code, text, errs)
			}
			text = strings.ReplaceAll(text+errs, out, "OUT")
			err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				data, err := os.ReadFile(path)
				text += "\n" + strings.TrimPrefix(path, out) + "\n" + string(data)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = times.ReplaceAllString(place.ReplaceAllString(text, "PLACE"), "")
		}
		if texts[0] == "" || codes[0] != codes[1] {
			t.Errorf("steady %s: exit %d of a directory, %d of a bucket", strings.Join(args, " "), codes[0], codes[1])
		}
		a, b := strings.Split(texts[0], "\n"), strings.Split(texts[1], "\n")
		for i := range max(len(a), len(b)) {
			if i >= len(a) || i >= len(b) || a[i] != b[i] {
				t.Errorf("steady %s: line %d of %d and %d differs:\n%.500s\n%.500s", strings.Join(args, " "), i, len(a), len(b), a[min(i, len(a)-1)], b[min(i, len(b)-1)])
				break
			}
		}
	}
	for _, args := range [][]string{{"watch", "none", "--once", "--no-temporal"}, {"report", "none"}, {"watch", "r", "--store", "http://x"}} {
		line := append(slices.Clone(args), "--data", t.TempDir())
		if !slices.Contains(args, "--store") {
			line = append(line, "--store", address)
		}
		if code, text, errs := steady(t, line...); code == exitDone || !strings.Contains(errs, "try:") {
			t.Errorf("steady %s: exit %d\n%s%s", strings.Join(line, " "), code, text, errs)
		}
	}
	if keys := srv.Keys(); slices.ContainsFunc(keys, func(k string) bool {
		return strings.Contains(k, "report.html") && !strings.Contains(k, record.FirstLineage)
	}) {
		t.Errorf("a command that reads has written: %v", keys)
	}
}

// `steady watch --http` serves the pages of a bucket, and what `steady dev` serves is the same server.
func TestWatch_servesThePagesOfABucket(t *testing.T) {
	data := t.TempDir()
	transcripttest.Write(t, data)
	_, address := inBucket(t, data)
	var store artifact.Store
	store, err := openStore(t.Context(), t.TempDir(), address)
	if err != nil {
		t.Fatal(err)
	}
	at, err := liveFlags{LivePort: new(int)}.serveLive(t.Context(), store, func(format string, args ...any) { t.Errorf(format, args...) })
	if err != nil || at == "" {
		t.Fatalf("%q, %v", at, err)
	}
	if text := testutil.Page(t, at); !strings.Contains(text, `/runs/r/`) {
		t.Errorf("the run is not listed:\n%s", text)
	}
	for _, path := range []string{"runs/r/", "runs/r/trajectories", "runs/r/ledger", "runs/r/failures", "compare?a=r&b=r"} {
		testutil.Page(t, at+path)
	}
}
