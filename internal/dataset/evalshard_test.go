package dataset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/fault"
)

// A shard as a set for an evaluation has the problems of the rules that need no reference program, and says why not of the rest.
func TestOpenShards(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := ptr(`{"inputs": ["1"], "outputs": ["2"]}`)
	path := filepath.Join(dir, "train-1.parquet")
	rows := []Row{
		{Question: ptr("Good."), InputOutput: tests, Name: ptr("Title"), Solutions: ptr("[]")},
		{Question: ptr("Starts."), InputOutput: tests, StarterCode: ptr("class S:")},
		{Question: ptr("Calls."), InputOutput: ptr(`{"inputs": [[1]], "outputs": [2], "fn_name": "f"}`)},
		{Question: ptr("Print any of them."), InputOutput: tests},
		{InputOutput: tests},
		{Question: ptr("No solution is needed."), InputOutput: tests},
	}
	if err := parquet.WriteFile(path, rows); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "broken.parquet")
	if err := os.WriteFile(other, []byte("no"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := OpenShards(t.Context(), []string{path, other})
	for range 2 {
		var got []string
		var last error
		for p, err := range set {
			row, ok := errors.AsType[*RowError](err)
			switch last = nil; {
			case ok && row.ID == p.ID:
				got = append(got, fmt.Sprint(p.ID, " ", row.Reason))
			case err == nil:
				got = append(got, fmt.Sprint(p.ID, " ", p.Index, len(p.Tests), p.Statement, p.FnName))
			default:
				last = err
			}
		}
		want := []string{
			"train-1/00000 0 1Good.", "train-1/00001 1 0Starts.?", "train-1/00002 2 0Calls.?", "train-1/00003 special_judge", "train-1/00004 bad_statement",
			"train-1/00005 3 1No solution is needed.",
		}
		if diff := cmp.Diff(want, got); diff != "" || !fault.Is(last, fault.Corrupt) {
			t.Errorf("%v, want Corrupt at the end (-want +got):\n%s", last, diff)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := 0
	for _, err := range OpenShards(ctx, []string{path}) {
		if n++; !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the context's error", err)
		}
	}
	if n != 1 {
		t.Errorf("%d rows after the context ended, want its error alone", n)
	}
}
