package activities

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// shardFile is the data of a run.
type shardFile struct {
	Assets
	path string
}

func (s shardFile) OpenShard(string) (fs.File, error) { return os.Open(s.path) }

func (shardFile) Excluded(string) (map[string]bool, error) { return nil, nil }

// meanwhile is a judge for whom every program is right, and that does something else first.
type meanwhile struct {
	Judger
	do func()
}

func (m meanwhile) JudgeCode(_ context.Context, _ string, tests []judge.Test) (judge.Verdict, error) {
	m.do()
	return judge.Verdict{Kind: judge.Accepted, Passed: len(tests), Total: len(tests)}, nil
}

// cutOff is a store that does something else before the first directory is built in it.
type cutOff struct {
	artifact.Store
	do *sync.Once
	f  func()
}

func (c cutOff) Build(ctx context.Context, name string, build func(dir string) error) error {
	c.do.Do(c.f)
	return c.Store.Build(ctx, name, build)
}

// An attempt that was cut off and goes on after another finished the data set leaves nothing behind, wherever it was; one that never comes so far is
// cleaned up after by the next run with these data, or at the end of its own.
func TestPrepareShard_aLateAttemptLeavesNothing(t *testing.T) {
	t.Parallel()
	var rows []dataset.Row
	for i := range 40 { // more than a part
		question, solutions, tests, starter := fmt.Sprintf("Print the number %d.", i), `["x"]`, `{"inputs": ["1"], "outputs": ["1"]}`, ""
		rows = append(rows, dataset.Row{Question: &question, Solutions: &solutions, InputOutput: &tests, StarterCode: &starter})
	}
	path := filepath.Join(t.TempDir(), "s.parquet")
	if err := parquet.WriteFile(path, rows); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(filepath.Join(testutil.Root(), "internal", "demo", "model"))
	if err != nil {
		t.Fatal(err)
	}
	input := fmt.Sprintf(`{"recipe":"demo","engine":{"backend":"ref"},"data":{"shards":[%q],"train":20,"dev":4}}`, path)
	const set = "late"
	q := contract.PrepareShardRequest{RunKey: key, Key: set}

	type world struct {
		c    *Control
		d    *Data
		work string
	}
	open := func(t *testing.T) *world {
		t.Helper()
		c := newControl(t)
		c.Assets = shardFile{c.Assets, path}
		if _, err := c.startRun(t.Context(), start("r", "one", input), nil); err != nil {
			t.Fatal(err)
		}
		run, err := c.Runs.Of(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		run.tok = tok
		w := &world{c: c, work: c.Runs.Store.Where(unfinished(set))}
		w.d = &Data{Runs: c.Runs, Notes: c.Notes, Assets: c.Assets, Python: "3.12.3", Slots: 1, Judge: func(*Run) Judger { return meanwhile{do: func() {}} }}
		return w
	}
	// other is the attempt that finishes the data set.
	other := func(t *testing.T, w *world) {
		t.Helper()
		if got, err := w.d.shard(t.Context(), q, &Beat{values: make(chan any, 1000)}); err != nil || got.Rows != len(rows) {
			t.Fatalf("%d rows, %v; want %d", got.Rows, err, len(rows))
		}
		if _, err := os.Stat(w.work); err != nil {
			t.Fatalf("the work on a set that is not finished: %v", err)
		}
		if _, err := w.d.finish(t.Context(), contract.FinishDatasetRequest{RunKey: key, Key: set, Shards: 1}, &Beat{values: make(chan any, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(t *testing.T, w *world) {
		t.Helper()
		if _, err := os.Stat(w.work); !os.IsNotExist(err) {
			t.Errorf("the unfinished work is there: %v", err)
		}
		if _, err := w.d.openSet(t.Context(), set); err != nil {
			t.Errorf("the data set: %v", err)
		}
	}

	t.Run("before it began", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		other(t, w)
		w.d.Judge = func(*Run) Judger { return meanwhile{do: func() { t.Error("a program ran again") }} }
		if got, err := w.d.shard(t.Context(), q, &Beat{values: make(chan any, 1000)}); err != nil || got.Rows != len(rows) {
			t.Errorf("%d rows, %v; want %d", got.Rows, err, len(rows))
		}
		gone(t, w)
	})
	for _, at := range []int{1, 20, 36, 40} {
		t.Run(fmt.Sprintf("in program %d", at), func(t *testing.T) {
			t.Parallel()
			w := open(t)
			late := *w.d
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			late.Judge = func(*Run) Judger {
				return meanwhile{do: func() {
					if n++; n == at {
						other(t, w)
						cancel() // as a missed heartbeat does
					}
				}}
			}
			if _, err := late.shard(ctx, q, &Beat{values: make(chan any, 1000)}); err == nil && n < at {
				t.Errorf("it ran %d programs", n)
			}
			gone(t, w)
		})
	}
	t.Run("behind the last program", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		late := *w.d
		runs := &Runs{Backend: w.d.Runs.Backend}
		runs.Store = cutOff{w.d.Runs.Store, new(sync.Once), func() { other(t, w) }}
		late.Runs = runs
		run, err := runs.Of(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		run.tok = tok
		if got, err := late.shard(t.Context(), q, &Beat{values: make(chan any, 1000)}); err != nil || got.Rows != len(rows) {
			t.Errorf("%d rows, %v; want %d", got.Rows, err, len(rows))
		}
		gone(t, w)
	})
	again := func(t *testing.T, w *world) {
		t.Helper()
		if err := w.d.share(t.Context(), set, 0, dataset.Input{}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(w.work); err != nil {
			t.Fatalf("nothing was left: %v", err)
		}
	}
	t.Run("and died: the end of the run", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		if _, err := w.d.work(set); err != nil {
			t.Fatal(err)
		}
		end := contract.CloseLedgerRequest{RunKey: key, Ledger: record.Ledger{}}
		if _, err := w.c.closeLedger(t.Context(), end, &Beat{values: make(chan any, 1000)}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(w.work); err != nil {
			t.Errorf("work on a data set that is not ready was removed: %v", err)
		}
		other(t, w)
		again(t, w)
		for range 2 {
			if _, err := w.c.closeLedger(t.Context(), end, &Beat{values: make(chan any, 1000)}); err != nil {
				t.Fatal(err)
			}
			gone(t, w)
		}
	})
	t.Run("and died: the next run", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		other(t, w)
		again(t, w)
		ready, err := tidyDataset(t.Context(), w.c.Runs.Store, set)
		if err != nil || !ready {
			t.Errorf("ready %v, %v", ready, err)
		}
		gone(t, w)
		if ready, err := tidyDataset(t.Context(), w.c.Runs.Store, "other"); err != nil || ready {
			t.Errorf("a set that is not there: ready %v, %v", ready, err)
		}
	})
}
