//go:build durability

// Package durability kills the whole program, server and all, at random moments and compares final digests.
package durability

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
)

const steps = 6

// demoArgs are the arguments of a short run in sync mode: its weights are a function of its input.
func demoArgs(t *testing.T, dir string) []string {
	t.Helper()
	args := []string{
		"demo", "--data", filepath.Join(dir, "data"), "--report", filepath.Join(dir, "report.html"),
		"--port", strconv.Itoa(testutil.FreePort(t)), "--ui-port", strconv.Itoa(testutil.FreePort(t)), "--run", "r",
	}
	return append(args, settings("sync")...)
}

// settings make the demo short, and have it notice a lost process soon.
func settings(mode string) []string {
	var args []string
	for _, s := range []string{
		"mode=" + mode, "data.train=32", "data.dev=8", "rollout.batch_problems=4", "rollout.group_size=2", fmt.Sprintf("run.steps=%d", steps), "run.validate_every=3",
		"run.checkpoint_every=2", "run.continue_every=4", "validation.chunk=4", "timeouts.heartbeat=3s", "timeouts.trainer_lost=5s", "rollout.flush_interval=200ms",
	} {
		args = append(args, "--set", s)
	}
	return args
}

// program is the whole program in one process, with its server.
type program struct {
	*testutil.Process
	counts *crashpoint.Counts
}

func startDemo(t *testing.T, dir string, args []string) program {
	t.Helper()
	file := filepath.Join(dir, "counts")
	counts, err := crashpoint.OpenCounts(file)
	if err != nil {
		t.Fatal(err)
	}
	return program{testutil.StartWith(t, []string{crashpoint.CountsVariable + "=" + file}, testutil.Binary(t, "steady"), args...), counts}
}

// ends waits for the end of the program, as long as it comes to durable effects, and returns its status.
func (d program) ends(t *testing.T) int {
	t.Helper()
	effects, deadline := 0, time.Now().Add(quiet)
	testutil.Eventually(t, 2*time.Hour, "the demo ends", func() bool {
		if n := d.counts.Effects(); n != effects {
			effects, deadline = n, time.Now().Add(quiet)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the demo did nothing for %s:\n%s", quiet, d.Output())
		}
		return d.Ended()
	})
	return d.Wait(t, time.Minute)
}

// quiet is how long a run that is not over may go without a durable effect.
const quiet = 3 * time.Minute

// outcome is how a run that nothing disturbs ends.
type outcome struct {
	state, weights string
	took           time.Duration
}

var calm outcome

// undisturbed runs the demo once for all tests.
func undisturbed(t *testing.T) outcome {
	t.Helper()
	if calm.state != "" {
		return calm
	}
	dir := t.TempDir()
	began := time.Now()
	p := startDemo(t, dir, demoArgs(t, dir))
	if code := p.ends(t); code > 1 { // 1: accuracy need not rise in so few steps
		t.Fatalf("the undisturbed run ended with status %d:\n%s", code, p.Output())
	}
	took := time.Since(began)
	state, weights := digests(t, dir)
	calm = outcome{state, weights, took}
	t.Logf("an undisturbed run takes %s; state %s, weights %s", took.Round(time.Second), state, weights)
	return calm
}

func digests(t *testing.T, dir string) (state, weights string) {
	t.Helper()
	store, err := artifact.NewFiles(filepath.Join(dir, "data", "store"))
	if err != nil {
		t.Fatal(err)
	}
	var r record.Result
	l := record.Layout{Run: "r", Lineage: "l0"}
	if _, err := artifact.GetJSON(t.Context(), store, l.Result(steps), &r); err != nil {
		t.Fatal(err)
	}
	led, err := ledger.Load(t.Context(), store, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := led.Balance(); err != nil {
		t.Errorf("the ledger of %s does not balance: %v", dir, err)
	}
	if n := led.Count(); n.Trained != steps*4 || n.Dropped != 0 || n.Open != 0 {
		t.Errorf("ledger of %s: %+v, want %d groups trained and none dropped", dir, n, steps*4)
	}
	return r.StateDigest, r.WeightsDigest
}

func TestKillEverything_endsWithTheSameWeights(t *testing.T) {
	want := undisturbed(t)
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("STEADY_CHAOS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("STEADY_CHAOS_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for kills := 0; kills < wantKills; {
		dir := t.TempDir()
		n := disturbed(t, dir, wantKills-kills, func() time.Duration {
			return time.Second + time.Duration(rnd.Int64N(int64(want.took/3)))
		})
		if n == 0 {
			t.Fatal("the run ended before the first kill")
		}
		kills += n
		if state, weights := digests(t, dir); state != want.state || weights != want.weights {
			t.Errorf("state %s weights %s after %d kills, undisturbed %s %s", state, weights, n, want.state, want.weights)
		}
		checkExport(t, dir)
	}
}

// wantKills is how often the program is killed in all; a run that ends in between is followed by another.
const wantKills = 6

// disturbed runs the demo to its end and kills it up to kills times on the way, each time after a random while.
func disturbed(t *testing.T, dir string, kills int, after func() time.Duration) int {
	t.Helper()
	args := demoArgs(t, dir)
	var killed time.Time
	for k := 0; ; k++ {
		p := startDemo(t, dir, args)
		if k > 0 {
			reportFirstTokens(t, p.Process, dir, killed)
		}
		if k == kills {
			if code := p.ends(t); code > 1 {
				t.Fatalf("the run that was killed %d times ended with status %d:\n%s", k, code, p.Output())
			}
			return k
		}
		d := after()
		select {
		case <-p.Done():
			if code := p.Wait(t, time.Second); code > 1 {
				t.Fatalf("the run that was killed %d times ended with status %d:\n%s", k, code, p.Output())
			}
			return k
		case <-time.After(d):
		}
		killed = time.Now()
		p.Kill()
		t.Logf("kill %d after %s", k+1, d.Round(time.Millisecond))
	}
}

// reportFirstTokens logs how long after the kill the program that was started again had written tokens that it had sampled.
// Flushes are 200 ms apart in this configuration. It gives up when the program ends.
func reportFirstTokens(t *testing.T, p *testutil.Process, dir string, killed time.Time) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		defer tick.Stop()
		for {
			select {
			case <-p.Done():
				return
			case <-tick.C:
			}
			if at := newestTrajectory(filepath.Join(dir, "data", "store", "runs", "r", "l0")); at.After(killed) {
				t.Logf("first new tokens %s after the kill", at.Sub(killed).Round(10*time.Millisecond))
				return
			}
		}
	}()
}

// newestTrajectory is when the newest file of sampled tokens under dir was written.
func newestTrajectory(dir string) (newest time.Time) {
	for _, pattern := range []string{"groups/*/partial-*", "groups/*/sample-*", "validation/*/*/partial-*", "validation/*/*/sample-*"} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is good
		for _, name := range names {
			if st, err := os.Stat(name); err == nil && st.ModTime().After(newest) {
				newest = st.ModTime()
			}
		}
	}
	return newest
}

func checkExport(t *testing.T, dir string) {
	t.Helper()
	var v record.Validation
	data, err := os.ReadFile(filepath.Join(dir, "data", "store", "runs", "r", "l0", "validation", "export.json"))
	if err != nil || json.Unmarshal(data, &v) != nil || v.Problems != 8 {
		t.Errorf("the dev set from the exported files: %v %+v", err, v)
	}
}

// full asks for the long suite: every named point, and many random faults.
var full = os.Getenv("STEADY_CHAOS_FULL") != ""
