//go:build durability

package durability

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/crashpoint"
)

// plan are the crash points of each role, in the order in which it shall come to them: orders as of crashpoint.Variable.
type plan map[string][]string

// add appends the orders to the role that comes to their points.
func (p plan) add(orders ...string) plan {
	for _, order := range orders {
		role, rest, _ := strings.Cut(order, ".")
		switch role {
		case "data":
			role = "control"
		case "store": // whoever uses it; only some do everything
			switch {
			case strings.HasPrefix(rest, "remove.re"), strings.HasPrefix(rest, "remove.a"):
				role = "control" // removes whole directories
			case strings.HasPrefix(rest, "re"):
				role = "rollout"
			default:
				role = roles[p.size()%len(roles)]
			}
		}
		p[role] = append(p[role], order)
	}
	return p
}

func (p plan) size() int {
	n := 0
	for _, orders := range p {
		n += len(orders)
	}
	return n
}

// next takes the next order of a role, empty for none.
func (p plan) next(role string) string {
	if len(p[role]) == 0 {
		return ""
	}
	order := p[role][0]
	p[role] = p[role][1:]
	return order
}

// visit lets the run of a cluster end while the roles crash at the points of their plans. It takes from p what was come to.
func (c *cluster) visit(p plan) {
	c.t.Helper()
	c.drive(func(role string) string {
		order := p.next(role)
		if strings.HasPrefix(order, "trainer.aside") && !c.corruptCheckpoint() { // there is none yet
			p[role] = append([]string{order}, p[role]...)
			return "trainer.checkpoint.verified"
		}
		return order
	}, func() {})
	for _, role := range roles {
		if w := c.workers[role]; w.order != "" && !w.reached() { // the run has ended before
			p[role] = append([]string{w.order}, p[role]...)
		}
	}
}

// corruptCheckpoint changes the newest checkpoint, if there is one.
func (c *cluster) corruptCheckpoint() bool {
	c.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(c.path(lineage.Checkpoints()), "??????"))
	if err != nil || len(dirs) == 0 {
		return false
	}
	name := filepath.Join(slices.Max(dirs), checkpoint.MasterFile)
	data, err := os.ReadFile(name)
	if err != nil {
		c.t.Fatal(err)
	}
	copy(data[len(data)/2:], "corrupt")
	if err := os.WriteFile(name, data, 0o600); err != nil { //nolint:gosec // of the test
		c.t.Fatal(err)
	}
	c.t.Logf("%s is corrupt now", name)
	return true
}

// plans are the points that the suite comes to, those of rollouts apart: the others must cost no token.
func plans() (others, rollouts plan) {
	if !full { // what a run cannot do without; rollouts die in TestTroubledStore
		return plan{}.add(
			"data.rename.after", "store.remove.renamed", "control.batch.after", "control.live.before", "judge.verdicts.before",
			"trainer.weights.after", "trainer.checkpoint.before", "trainer.aside.before", "trainer.result.before:2:stop", "trainer.export.before",
		), plan{}
	}
	others = plan{}.add(slices.DeleteFunc(crashpoint.All(), onDemand)...) // see rollbackPlan
	for _, name := range []string{"control.batch.after", "control.live.before", "trainer.weights.before", "trainer.result.before", "trainer.checkpoint.before", "judge.verdicts.before"} {
		others.add(name + ":stop")
	}
	rollouts = plan{"rollout": others["rollout"]}.add("rollout.token:stop", "rollout.flush.before:stop", "rollout.sample.before:stop")
	delete(others, "rollout")
	return others, rollouts
}

// Every role dies at the places where it matters; every run ends as if nothing had happened.
func TestNamedPoints_endWithTheSameWeights(t *testing.T) {
	want := undisturbed(t)
	others, rollouts := plans()
	for round := 1; others.size()+rollouts.size() > 0; round++ {
		p := others
		if p.size() == 0 {
			p = rollouts
		}
		before := p.size()
		c := newCluster(t, settings("sync"))
		c.visit(p)
		c.check()
		if p["rollout"] == nil {
			c.generatedOnce()
		}
		if state, weights := digests(t, c.dir); state != want.state || weights != want.weights {
			t.Errorf("state %s weights %s, undisturbed %s %s", state, weights, want.state, want.weights)
		}
		if p.size() == before {
			t.Fatalf("no process has come to its next point: %v", p)
		}
		t.Logf("round %d: %d points, %d are left", round, before-p.size(), p.size())
	}
}
