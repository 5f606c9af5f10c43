package activities

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

// A data set that has fewer problems than the run wants is written whole, and no run trains on it, however often it tries.
func TestFinishDataset_refusesTooFewProblems(t *testing.T) {
	t.Parallel()
	c := started(t)
	d := &Data{Runs: c.Runs, Notes: c.Notes}
	var rows []dataset.Row
	for i := range 20 {
		question, solutions, tests, starter := fmt.Sprintf("Print the number %d.", i), `["x"]`, `{"inputs": ["1"], "outputs": ["1"]}`, ""
		rows = append(rows, dataset.Row{Question: &question, Solutions: &solutions, InputOutput: &tests, StarterCode: &starter})
	}
	var shard bytes.Buffer
	if err := parquet.Write(&shard, rows); err != nil {
		t.Fatal(err)
	}
	recipe := &dataset.Recipe{Train: 2000, Dev: 256, Tries: 1, Run: func(_ context.Context, _ string, tests []judge.Test) (judge.Verdict, error) {
		return judge.Verdict{Kind: judge.Accepted, Passed: len(tests), Total: len(tests)}, nil
	}}
	w, err := d.work("few")
	if err != nil {
		t.Fatal(err)
	}
	in := dataset.Input{Name: "s.parquet", SHA256: strings.Repeat("0", 64), Size: int64(shard.Len())}
	if _, err := recipe.Shard(t.Context(), w, 0, in, bytes.NewReader(shard.Bytes()), nil); err != nil {
		t.Fatal(err)
	}
	dir, err := c.Runs.Store.Path(prepared("few"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := recipe.Finish(t.Context(), w, dir, 1)
	if err != nil || m.Dev != 2 || m.Train != 18 { // 20 · 256/2256, rounded down
		t.Fatalf("%d for dev, %d for training, %v; want 2 and 18", m.Dev, m.Train, err)
	}
	if got, err := dataset.Check(t.Context(), dir); err != nil || got.Problems != 20 {
		t.Errorf("%+v, %v; want a whole data set of 20 problems", got, err)
	}
	for range 2 {
		_, err := d.finish(t.Context(), contract.FinishDatasetRequest{RunKey: key, Key: "few", Shards: 1}, nil)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "18 for training and 2 for dev, the run wants") || fault.HintOf(err) == "" {
			t.Errorf("%v, want Invalid with the numbers and a hint", err)
		}
		if ok, err := c.Runs.Store.Exists(t.Context(), lay.Dataset()); ok || err != nil {
			t.Errorf("the run has a record of its data: %v, %v", ok, err)
		}
	}
}
