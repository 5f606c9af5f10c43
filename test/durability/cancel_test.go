//go:build durability

package durability

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/ledger"
)

// latecomer is a rollout worker that is stopped nine tenths of the time: it is heard of, and its groups come too late.
type latecomer struct {
	*worker
	counts *crashpoint.Counts
	ticks  int
}

// tick is called ten times a second. It notes the death of the worker.
func (w *latecomer) tick(c *cluster) {
	switch {
	case w.gone:
	case w.reached() && w.Ended():
		c.died(w.worker, "died at "+w.point())
	case w.counts.Of("rollout.token") == 0: // it has nothing yet
	default:
		w.ticks++
		s := syscall.SIGSTOP
		if w.ticks%10 == 0 {
			s = syscall.SIGCONT
		}
		w.Signal(s)
	}
}

// Two slow workers miss the steps that could train their groups. With the policy cancel_early the loop gives these groups up, and the workers die
// when the cancel comes, before or after they leave what they have. The run goes on without them.
func TestCancelEarly_groupsThatAreGivenUpHarmNothing(t *testing.T) {
	onlyLong(t)
	c := newCluster(t, append(settings("async"), "--set", "rollout.staleness_policy=cancel_early", "--set", "rollout.prefill=2",
		"--set", "rollout.staleness_threshold=3", "--set", "run.steps=16", "--set", "run.validate_every=16", "--set", "timeouts.heartbeat=15s"))
	c.steps = 16                                                                                                       // some are left when the groups have become too old
	c.workers["rollout"] = c.process("rollout", "", "rollout", filepath.Join(c.dir, "counts"), "--max-sequences", "8") // leaves groups to others
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
			w.tick(c)
		}
		if n := c.givenUp(); n > up {
			up = n
			t.Logf("%4d effects: %d groups are given up", c.counts.Effects(), n)
		}
	})
	if up == 0 {
		t.Fatal("no group was given up while it ran")
	}
	for _, w := range late {
		w.Signal(syscall.SIGCONT)
		c.comesTo(w.worker)
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
