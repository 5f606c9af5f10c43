//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
)

// A run is rolled back while it trains and while it is paused. In mode sync each lineage gives the bits that the one before gave, the
// books of all balance, and no workflow of an old lineage is left.
func TestCommandLine_rollsARunBack(t *testing.T) {
	s := open(t)
	s.start("r", s.input("r.json", "mode=sync", "run.steps=4", "run.checkpoint_every=4", "run.validate_every=4",
		"rollout.batch_problems=2", "rollout.group_size=2", "data.dev=4"))
	back := func(step int) (string, int) {
		return s.try("workflow", "update", "execute", "--workflow-id", "r", "--name", "rollback", "--input", fmt.Sprintf(`{"step": %d}`, step))
	}
	in := func(lineage string, step int) {
		t.Helper()
		testutil.Eventually(t, 3*time.Minute, fmt.Sprintf("step %d of %s is trained", step, lineage), func() bool {
			p := s.progress("r")
			return p.Lineage == lineage && p.Step >= step
		})
	}
	in("l0", 2)
	if out, code := back(6); code == 0 || !strings.Contains(out, "not trained in lineage l0") {
		t.Errorf("a step ahead: status %d: %s", code, out)
	}
	if out, code := back(1); code != 0 || !strings.Contains(out, "l1") {
		t.Fatalf("rollback: status %d: %s", code, out)
	}
	in("l1", 1)
	s.temporal("workflow", "update", "execute", "--workflow-id", "r", "--name", "pause")
	if out, code := back(1); code != 0 || !strings.Contains(out, "l2") {
		t.Fatalf("rollback of a paused run: status %d: %s", code, out)
	}
	if p := s.progress("r"); !p.Paused || p.Lineage != "l2" || p.Step != 1 {
		t.Errorf("progress %+v, want lineage l2 paused at step 1", p)
	}
	s.temporal("workflow", "update", "execute", "--workflow-id", "r", "--name", "resume")
	if got := s.end("r", 4*time.Minute); got != "COMPLETED" {
		t.Fatalf("r ended as %s", got)
	}
	seen := map[int]record.Result{}
	for n, last := range []int{2, 1, 4} {
		l := record.Layout{Run: "r", Lineage: record.LineageName(n)}
		led, err := ledger.Load(t.Context(), s.store(), l)
		if err != nil {
			t.Fatal(err)
		}
		if err := led.Balance(); err != nil || !led.Ended || led.Last < last {
			t.Errorf("%s: %v, ended %v, last step %d, want at least %d", l.Lineage, err, led.Ended, led.Last, last)
		}
		for step := led.Start.Step + 1; step <= last; step++ {
			var res record.Result
			if _, err := artifact.GetJSON(t.Context(), s.store(), l.Result(step), &res); err != nil {
				t.Fatal(err)
			}
			if old, ok := seen[step]; ok && (old.StateDigest != res.StateDigest || old.WeightsDigest != res.WeightsDigest) {
				t.Errorf("%s step %d has state %.12s, an older lineage %.12s", l.Lineage, step, res.StateDigest, old.StateDigest)
			}
			seen[step] = res
		}
	}
	if len(seen) != 4 {
		t.Errorf("results of %d steps, want 4", len(seen))
	}
	for _, c := range []struct{ args, want string }{
		{"report r --out=" + filepath.Join(s.dir, "r.html"), "l2 of l0, l1 (after step 1 of l0), l2 (after step 1 of l1)"},
		{"ledger r --lineage=l0", "dropped as run_ended"},
	} {
		out, code, err := testutil.Run(t.Context(), s.steady, append(strings.Fields(c.args), "--data="+s.data())...)
		if err != nil || code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, status %d, want %q:\n%s", c.args, err, code, c.want, out)
		}
	}
	if out, code := s.try("workflow", "count", "--query", "WorkflowId STARTS_WITH 'r/' and ExecutionStatus='Running'"); code != 0 || !strings.Contains(out, "Total: 0") {
		t.Errorf("workflows are left: %s", out)
	}
}
