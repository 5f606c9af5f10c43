//go:build durability

package durability

import (
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/steadyrl/steady/internal/trajectory"
)

// full asks for the long suite: every named point, and many random faults.
var full = os.Getenv("STEADY_CHAOS_FULL") != ""

const sigCont = syscall.SIGCONT

// kept are the tokens and the trajectories in the files of a finished run.
func (c *cluster) kept() (tokens, trajectories int) {
	c.t.Helper()
	for _, pattern := range []string{"groups/*/trajectories.parquet", "validation/*/*/trajectories.parquet"} {
		names, _ := filepath.Glob(filepath.Join(c.path(lineage.Root()), pattern)) // the pattern is good
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				c.t.Fatal(err)
			}
			ts, err := trajectory.Decode(data)
			if err != nil {
				c.t.Fatalf("%s: %v", name, err)
			}
			for _, t := range ts {
				tokens += t.Sampled()
				trajectories++
			}
		}
	}
	return tokens, trajectories
}

// report prints what the deaths cost.
func (c *cluster) report() {
	c.t.Helper()
	tokens, trajectories := c.kept()
	sampled, finished := c.counts.Of("rollout.token"), c.counts.Of("rollout.sample.after")
	c.t.Logf("tokens: %d sampled, %d kept: %d twice; trajectories: %d finished, %d kept", sampled, tokens, sampled-tokens, finished, trajectories)
	results := c.results()
	for _, d := range c.deaths {
		for _, at := range results {
			if at.After(d.at) {
				c.t.Logf("%s, %s: the next step %s later", d.role, d.how, at.Sub(d.at).Round(10*time.Millisecond))
				break
			}
		}
	}
}
