package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
)

// A run in mode sync with a lag L > 0 has L + 1 batches open when a step collects its own. The first L + 1 are sampled by the version that
// the loop starts with; the batch that is sent out after version v was published is pinned to v, is complete before version v + 1 is
// published, and is trained in step v + 1 + L. So every later batch has the same age, no engine keeps old weights, and which groups
// make a batch does not depend on which finish first: the run is a function of its input.

// oldest returns the batch of a step with a lag: the groups with the smallest numbers, `size` of them; nil while one of them is still
// running, or has failed and is not replaced yet. open is ordered by number.
func oldest(open []contract.OpenGroup, size int) []contract.OpenGroup {
	if len(open) < size || !complete(open[:size]) {
		return nil
	}
	return append([]contract.OpenGroup(nil), open[:size]...)
}

func complete(open []contract.OpenGroup) bool {
	for _, g := range open {
		if !g.Done {
			return false
		}
	}
	return true
}

// awaitLag waits, before step t publishes its version, for the groups that the version before must sample. A group that failed is
// replaced by one of that version too. Without a lag, and after the last step, there is nothing to wait for.
func (l *loop) awaitLag(t int) error {
	if l.spec.Lag == 0 {
		return nil
	}
	l.enter("finish the sampling of the version before")
	for t < l.last() {
		if err := l.cull(t, t, 0); err != nil {
			return err
		}
		if l.st.Alarm != "" {
			if err := l.waitWhilePaused(); err != nil {
				return err
			}
			if err := l.fill(t, 0, 0); err != nil {
				return err
			}
			continue
		}
		if complete(l.st.Open) {
			return nil
		}
		seen := l.changed
		if err := workflow.Await(l.ctx, func() bool { return l.changed != seen }); err != nil {
			return err
		}
	}
	return nil
}
