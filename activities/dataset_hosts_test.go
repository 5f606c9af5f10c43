package activities

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/artifact/bucket"
	"github.com/steadyrl/steady/internal/artifact/bucket/buckettest"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

// Hosts that share nothing but a bucket prepare a data set together: each shard by another host, the end by a third, the use by a fourth.
func TestDataset_isPreparedByHostsThatShareABucket(t *testing.T) {
	for name, value := range buckettest.Environment() {
		t.Setenv(name, value)
	}
	srv := buckettest.New(t)
	place, err := bucket.Parse(srv.Address("p"))
	if err != nil {
		t.Fatal(err)
	}
	host := func() *Data {
		s, err := bucket.Open(t.Context(), bucket.Options{Place: place, Cache: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return &Data{Runs: &Runs{Store: s}}
	}
	recipe := &dataset.Recipe{Train: 10, Dev: 2, Tries: 1, Run: func(_ context.Context, _ string, tests []judge.Test) (judge.Verdict, error) {
		return judge.Verdict{Kind: judge.Accepted, Passed: len(tests), Total: len(tests)}, nil
	}}
	const key, shards = "together", 3 // the last one is empty
	for n := range shards {
		var rows []dataset.Row
		for i := range 40 * min(1, shards-1-n) {
			question, solutions, tests, starter := fmt.Sprintf("Print the number %d.", 1000*n+i), `["x"]`, `{"inputs": ["1"], "outputs": ["1"]}`, ""
			rows = append(rows, dataset.Row{Question: &question, Solutions: &solutions, InputOutput: &tests, StarterCode: &starter})
		}
		var file bytes.Buffer
		if err := parquet.Write(&file, rows); err != nil {
			t.Fatal(err)
		}
		d := host()
		w, err := d.work(key)
		if err != nil {
			t.Fatal(err)
		}
		in := dataset.Input{Name: fmt.Sprintf("%d.parquet", n), SHA256: strings.Repeat("0", 64), Size: int64(file.Len())}
		if in, err = recipe.Shard(t.Context(), w, n, in, bytes.NewReader(file.Bytes()), nil); err != nil {
			t.Fatal(err)
		}
		for range 2 { // another attempt may share it again
			if err := d.share(t.Context(), key, n, in); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := host()
	w, err := last.work(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := last.gather(t.Context(), w, key, shards+1); !fault.Is(err, fault.NotFound) {
		t.Errorf("a shard that nobody prepared: %v, want NotFound", err)
	}
	if _, err := last.openSet(t.Context(), key); !fault.Is(err, fault.NotFound) {
		t.Errorf("a set that nobody finished: %v, want NotFound", err)
	}
	err = last.Runs.Store.Build(t.Context(), prepared(key), func(dir string) error {
		if err := last.gather(t.Context(), w, key, shards); err != nil {
			return err
		}
		_, err := recipe.Finish(t.Context(), w, dir, shards)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := last.openSet(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	other := host()
	theirs, err := other.openSet(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(mine.Manifest, theirs.Manifest); d != "" || theirs.Manifest.Rows != 80 || theirs.Manifest.Train != 10 {
		t.Errorf("%+v (-here +there):\n%s", theirs.Manifest, d)
	}
	// When the work is removed nothing of it stays in the bucket, and the set does.
	if err := last.Runs.Store.Remove(t.Context(), unfinished(key)); err != nil {
		t.Fatal(err)
	}
	for _, k := range srv.Keys() {
		if strings.Contains(k, ".work/") {
			t.Errorf("%s is left", k)
		}
	}
	dir, err := other.Runs.Store.Pull(t.Context(), prepared(key))
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		t.Errorf("the set has %d files, %v", len(entries), err)
	}
}
