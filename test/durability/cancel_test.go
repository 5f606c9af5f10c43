//go:build durability

package durability

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/ledger"
)

// Two workers stop in the middle of their groups and miss the steps that could train them. With the policy cancel_early the loop gives these groups
// up, the workers go on and die when the cancel comes, before or after they leave what they have. The run goes on without them.
func TestCancelEarly_groupsThatAreGivenUpHarmNothing(t *testing.T) {
	onlyLong(t)
	// No heartbeat is missed while the workers stand still: they are late, not lost.
	c := newCluster(t, append(settings("async"), "--set", "rollout.staleness_policy=cancel_early", "--set", "rollout.prefill=2",
		"--set", "rollout.staleness_threshold=3", "--set", "run.steps=12", "--set", "run.validate_every=12", "--set", "timeouts.heartbeat=10m"))
	c.steps = 12                                                                                                       // some are left when the groups have become too old
	c.workers["rollout"] = c.process("rollout", "", "rollout", filepath.Join(c.dir, "counts"), "--max-sequences", "8") // leaves groups to others
	type latecomer struct {
		*worker
		counts  *crashpoint.Counts
		stopped bool
	}
	var late []*latecomer
	up := 0
	c.drive(func(string) string { return "" }, func() {
		if len(late) == 0 && len(c.results()) >= 1 && c.there(lineage.Validation("000000")) { // no validation until the end
			for _, order := range []string{"rollout.cancel.before", "rollout.cancel.after"} {
				file := filepath.Join(c.dir, order)
				counts, err := crashpoint.OpenCounts(file)
				if err != nil {
					t.Fatal(err)
				}
				late = append(late, &latecomer{worker: c.process("rollout", order, order, file, "--max-sequences", "4"), counts: counts})
			}
		}
		for _, w := range late {
			if !w.stopped && w.counts.Of("rollout.flush.after") > 0 {
				w.Signal(syscall.SIGSTOP)
				w.stopped = true
				c.note("rollout", "stopped, to die at "+w.point(), time.Now())
			}
		}
		if n := c.givenUp(); n > up {
			up = n
			t.Logf("%4d effects: %d groups are given up", c.counts.Effects(), n)
			for _, w := range late {
				w.Signal(syscall.SIGCONT)
			}
		}
	})
	if up == 0 {
		t.Fatal("no group was given up while it ran")
	}
	for _, w := range late {
		c.comesTo(w.worker)
		w.Wait(t, time.Minute)
		c.died(w.worker, "died at "+w.point())
	}
	c.check()
}

// givenUp is the number of groups that were dropped as too old while they ran.
func (c *cluster) givenUp() int {
	c.t.Helper()
	books, err := ledger.Load(c.t.Context(), c.store(), lineage)
	if err != nil { // there is no step yet
		return 0
	}
	n := 0
	for _, g := range books.Groups {
		if g.Fate == ledger.Dropped && g.Reason == ledger.Stale && !g.Finished {
			n++
		}
	}
	return n
}
