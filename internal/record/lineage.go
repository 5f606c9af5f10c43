package record

import (
	"context"
	"fmt"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
)

// LineageName is the name of the lineage that the n-th rollback of a run opened; n 0 is the first.
func LineageName(n int) string { return fmt.Sprintf("l%d", n) }

// Lineages returns the records of all lineages of a run, oldest first. Errors: NotFound (no such run), and those of the store.
func Lineages(ctx context.Context, s artifact.Store, run string) ([]Run, error) {
	var all []Run
	for n := 0; ; n++ {
		l := Layout{Run: run, Lineage: LineageName(n)}
		var r Run
		_, err := artifact.GetJSON(ctx, s, l.LineageFile(), &r)
		if fault.Is(err, fault.NotFound) && n > 0 {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
}

// Newest returns the newest lineage of a run: the first, unless a rollback opened another. Errors: as Lineages.
func Newest(ctx context.Context, s artifact.Store, run string) (Layout, error) {
	all, err := Lineages(ctx, s, run)
	if err != nil {
		return Layout{}, err
	}
	return Layout{Run: run, Lineage: LineageName(len(all) - 1)}, nil
}
