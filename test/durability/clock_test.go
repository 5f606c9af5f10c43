//go:build durability

package durability

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/testutil"
)

// setClocks sets the clocks of processes by d: of roles, or of the server. It is one fault. Where clocks cannot be set, it says so.
func (c *cluster) setClocks(d time.Duration, who ...string) {
	c.t.Helper()
	var set []string
	for _, role := range who {
		pid := c.server.PID()
		if role != "server" {
			pid = c.workers[role].Cmd.Process.Pid
		}
		if err := testutil.SetClock(pid, d); err != nil {
			c.t.Logf("the clock of %s was not set: %v", role, err)
			continue
		}
		set = append(set, role)
	}
	if len(set) > 0 {
		c.note("clock", fmt.Sprintf("of %s set by %s", strings.Join(set, ", "), d), time.Now())
	}
}

// The clock of every role is set back by an hour, or ahead, one at a time; then those of all and of the server by some seconds, as when the machine's
// is set. Later the trainer dies and comes back with a true clock. No token is sampled twice, and the weights are those of an
// undisturbed run.
func TestClocks_setBackChangeNothing(t *testing.T) {
	onlyLong(t)
	want := undisturbed(t)
	c := newCluster(t, settings("sync"))
	phase := 0
	c.drive(func(string) string { return "" }, func() {
		if done := len(c.results()); done <= phase {
			return
		}
		phase++
		switch phase {
		case 1:
			for i, role := range roles {
				c.setClocks([]time.Duration{-time.Hour, time.Hour}[i%2], role)
			}
		case 2:
			for i, role := range roles {
				c.setClocks([]time.Duration{2 * time.Hour, -2 * time.Hour}[i%2], role)
			}
		case 3:
			c.setClocks(-15*time.Second, append(roles, "server")...)
		case 4:
			c.kill("trainer")
			c.start("trainer", "")
		}
	})
	c.check()
	c.generatedOnce()
	if state, weights := digests(t, c.dir); state != want.state || weights != want.weights {
		t.Errorf("state %s weights %s, undisturbed %s %s", state, weights, want.state, want.weights)
	}
}
