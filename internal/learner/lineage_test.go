package learner_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/record"
)

// A lineage that begins after a step has the state recorded for it, to the last bit, whether the parent has a checkpoint of the step or
// it is made by replay. The next step gives in it what it gave in the parent, whose files stay as they are, but for
// the pointer to the epoch.
func TestMend_givesANewLineageItsState(t *testing.T) {
	t.Parallel()
	for first := range 4 {
		for _, saved := range []bool{false, true} {
			t.Run(fmt.Sprintf("after step %d, saved %v", first, saved), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				next := record.Layout{Run: layout.Run, Lineage: "l1"}
				whole := b.begin
				b.begin = func(l record.Layout) (int, *engine.State, error) {
					if l == layout {
						return whole(l)
					}
					dir, err := b.store.Path(layout.Checkpoint(first))
					if err != nil {
						return 0, nil, err
					}
					state, meta, err := checkpoint.Load(context.Background(), dir)
					return meta.Step, state, err
				}
				h := b.host(t, "a")
				epoch := b.init(t, h)
				for step := 1; step <= 3; step++ {
					b.update(t, h, step, epoch)
					if saved && step == first {
						save(t, h, step, epoch)
					}
				}
				old := b.tree(t)
				g := b.host(t, "b") // another process than the one that trained
				if _, err := g.Mend(t.Context(), layout, first); err != nil {
					t.Fatal(err)
				}
				info, err := g.Init(t.Context(), next, first)
				if err != nil {
					t.Fatal(err)
				}
				now := b.tree(t)
				for name, digest := range old {
					if now[name] != digest && "runs"+name != layout.Fence() {
						t.Errorf("%s was changed", name)
					}
				}
				dir, err := b.store.Path(next.Checkpoint(first))
				if err != nil {
					t.Fatal(err)
				}
				meta, err := checkpoint.Verify(t.Context(), dir)
				if err != nil {
					t.Fatal(err)
				}
				if first > 0 {
					var want record.Result
					if _, err := artifact.GetJSON(t.Context(), b.store, layout.Result(first), &want); err != nil {
						t.Fatal(err)
					}
					if meta.State != want.StateDigest || info.Digest != want.WeightsDigest {
						t.Errorf("state %.12s, weights %.12s; recorded are %.12s, %.12s", meta.State, info.Digest, want.StateDigest, want.WeightsDigest)
					}
				}
				if first == 3 {
					return
				}
				e, err := g.Acquire(t.Context(), next)
				if err != nil {
					t.Fatal(err)
				}
				got, err := g.Update(t.Context(), next, first+1, b.refs[first+1], e)
				if err != nil {
					t.Fatal(err)
				}
				if want := b.recordedState(t, first+1); got.StateDigest != want || got.Recorded {
					t.Errorf("step %d has state %.12s, in the parent %.12s", first+1, got.StateDigest, want)
				}
			})
		}
	}
}
