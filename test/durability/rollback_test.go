//go:build durability

package durability

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
)

// onDemand are the points that a run comes to only when it is rolled back or gives up groups.
func onDemand(point string) bool {
	return slices.ContainsFunc([]string{"control.lineage.", "control.event.", "trainer.mend.", "rollout.cancel."}, func(prefix string) bool {
		return strings.HasPrefix(point, prefix)
	})
}

// rollbackPlan are the points of two rollbacks in a row: orders of processes that run before the first are met in it or after.
func rollbackPlan() plan {
	if !full {
		return plan{}.add("control.lineage.after", "control.event.before", "trainer.mend.after", "rollout.cancel.before")
	}
	return plan{}.add(
		"control.lineage.before", "control.lineage.after", "control.lineage.file", "control.lineage.file:4:stop", "control.lineage.baseinfo",
		"control.end.before", "control.end.after", "control.event.before", "control.event.after", "control.report.before", "control.report.after",
		"trainer.mend.before", "trainer.fence.after", "trainer.checkpoint.before", "trainer.checkpoint.after", "trainer.mend.after",
		"trainer.weights.before", "trainer.weights.after", "trainer.version.after", "trainer.live.before", "trainer.live.after",
		"rollout.cancel.before", "rollout.cancel.after",
	)
}

// mostRollbacks bounds how often the run is rolled back until its processes have come to all points.
const mostRollbacks = 6

// A run is rolled back again and again, always while it generates, and its processes die at the points on the way until they have come to all.
// The last lineage ends with the weights of an undisturbed run, the books of all balance, and nothing of an old lineage goes on.
func TestRollback_endsWithTheSameWeights(t *testing.T) {
	want := undisturbed(t)
	c := newCluster(t, settings("sync"))
	p := rollbackPlan()
	type answer struct {
		text string
		code int
	}
	answers := make(chan answer, 1)
	asked, tokens := 0, 0
	pending := false
	var held *worker // a rollout worker that is stopped until its groups are cancelled
	var of record.Layout
	c.drive(p.next, func() {
		if held != nil && c.there(of.LedgerEnd()) {
			held.Signal(syscall.SIGCONT)
			held = nil
		}
		select {
		case a := <-answers:
			if a.code != 0 || !strings.Contains(a.text, record.LineageName(asked)) {
				t.Fatalf("rollback %d: status %d: %s", asked, a.code, a.text)
			}
			c.t.Logf("%4d effects: rolled back to %s", c.counts.Effects(), record.LineageName(asked))
			pending = false
		default:
		}
		l := record.Layout{Run: lineage.Run, Lineage: record.LineageName(asked)}
		// Tokens since the last look are those of groups, as the validation has ended. A quick machine flushes nothing of them.
		before := tokens
		tokens = c.counts.Of("rollout.token")
		if pending || asked > 0 && p.size() == 0 && len(c.missed()) == 0 || asked == mostRollbacks || !c.there(l.Validation("000003")) || c.there(l.Batch(steps)) || tokens == before {
			return
		}
		asked++
		pending = true
		if w := c.workers["rollout"]; w.order != "" && !w.reached() { // it shall hear of the cancel before it has finished
			w.Signal(syscall.SIGSTOP)
			held, of = w, l
		}
		id := fmt.Sprintf("back-%d", asked)
		go func() {
			text, code, err := testutil.Run(t.Context(), c.cli, "workflow", "update", "execute", "--workflow-id", lineage.Run, "--name", "rollback",
				"--update-id", id, "--input", `{"step": 1}`, "--address", c.server.Address())
			if err != nil {
				text, code = err.Error(), -1
			}
			answers <- answer{text, code}
		}()
	})
	if asked == 0 || pending {
		t.Fatalf("%d rollbacks were asked for, the last is pending: %v", asked, pending)
	}
	if missed := c.missed(); len(missed)+p.size() > 0 {
		t.Errorf("after %d rollbacks no process came to %v, nor to %v", asked, missed, p)
	}
	last := record.Layout{Run: lineage.Run, Lineage: record.LineageName(asked)}
	var res record.Result
	if _, err := artifact.GetJSON(t.Context(), c.store(), last.Result(steps), &res); err != nil {
		t.Fatal(err)
	}
	if res.StateDigest != want.state || res.WeightsDigest != want.weights {
		t.Errorf("state %s weights %s, undisturbed %s %s", res.StateDigest, res.WeightsDigest, want.state, want.weights)
	}
	all, err := record.Lineages(t.Context(), c.store(), lineage.Run)
	if err != nil || len(all) != asked+1 {
		t.Errorf("%d lineages, error %v, want %d: an attempt that was lost must not leave one", len(all), err, asked+1)
	}
	for _, r := range all {
		books, err := ledger.Load(t.Context(), c.store(), record.Layout{Run: r.Run, Lineage: r.Lineage})
		if err != nil {
			t.Fatal(err)
		}
		if err := books.Balance(); err != nil || !books.Ended {
			t.Errorf("the ledger of %s: ended %v, %v", r.Lineage, books.Ended, err)
		}
		if n := books.Count(); n.Open != 0 {
			t.Errorf("the ledger of %s: %+v, want none open", r.Lineage, n)
		}
	}
	for _, pattern := range []string{"runs/*/*/.tmp-*", "runs/*/*/checkpoints/.tmp-*", "runs/*/*/weights/.tmp-*"} {
		if left, _ := filepath.Glob(c.path(pattern)); len(left) > 0 { // the pattern is good
			t.Errorf("killed processes left %v", left)
		}
	}
	if out, code := c.temporal("workflow", "count", "--query", "WorkflowId STARTS_WITH 'r/' and ExecutionStatus='Running'"); code != 0 || !strings.Contains(out, "Total: 0") {
		t.Errorf("workflows are left: %s", out)
	}
}

// missed are the orders of processes that have not come to their points.
func (c *cluster) missed() (orders []string) {
	for _, role := range roles {
		if w := c.workers[role]; w.order != "" && !w.reached() {
			orders = append(orders, w.order)
		}
	}
	return orders
}

// there reports whether a file of the store is there.
func (c *cluster) there(name string) bool {
	_, err := os.Stat(c.path(name))
	return err == nil
}
