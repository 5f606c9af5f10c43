package dataset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// OpenShards returns the problems of shards in the schema of BAAI/TACO, in the order of paths and rows, as they would be prepared but without
// the rules about reference programs, the length of prompts and duplicates. Ids are those of a prepared data set. While the set is ranged over,
// ctx can end it. Errors of the set: NotFound, Corrupt.
func OpenShards(ctx context.Context, paths []string) EvalSet {
	return func(yield func(EvalProblem, error) bool) {
		index := 0
		for _, path := range paths {
			err := evalShard(ctx, path, &index, yield)
			if errors.Is(err, errStop) {
				return
			}
			if err != nil {
				yield(EvalProblem{}, err)
				return
			}
		}
	}
}

// errStop ends the work without being an error.
var errStop = errors.New("stop")

// evalShard yields the problems of a shard; index counts the good ones.
func evalShard(ctx context.Context, path string, index *int, yield func(EvalProblem, error) bool) error {
	const op = "dataset.OpenShards"
	f, err := os.Open(path)
	if err != nil {
		return fault.New(fault.NotFound, op, "%w", err).WithHint("give Parquet files in the schema of BAAI/TACO")
	}
	defer f.Close() //nolint:errcheck // only read
	st, err := f.Stat()
	if err != nil {
		return fault.New(fault.Internal, op, "%w", err)
	}
	name := strings.TrimSuffix(filepath.Base(path), ".parquet")
	at := int64(0)
	return readRows(f, st.Size(), 0, name, func(r *Row) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := EvalProblem{Problem: Problem{ID: rowID(name, at)}}
		at++
		c, reason, evidence := usable(r, ShardOptions{MaxCell: defaultMaxCell})
		var no error
		switch id := p.ID; reason {
		case Kept:
			p.Problem, p.Tests = c.problem, c.tests
			p.ID, p.Index = id, *index
			*index++
		case CallBased:
			p.Statement, p.FnName, p.Index = value(r.Question), UnknownFn, *index
			*index++
		default:
			no = &RowError{id, reason, evidence}
		}
		if !yield(p, no) {
			return errStop
		}
		return nil
	})
}

// rowID is the id of a row of a shard.
func rowID(shard string, row int64) string { return fmt.Sprintf("%s/%05d", shard, row) }
