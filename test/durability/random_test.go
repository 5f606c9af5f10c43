//go:build durability

package durability

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/crashpoint"
)

// fault is one thing that goes wrong.
type fault struct {
	gap   int    // durable effects since the fault before it
	role  string // a role, or "server"
	how   string // kill, stop, crash: killed, and started with an order, or clock: set back
	order string
	back  time.Duration // of a clock; with the role server those of all processes, as when the machine's is set
}

func (f fault) String() string {
	text := fmt.Sprintf("+%d %s %s", f.gap, f.how, f.role)
	if f.order != "" {
		text += " " + f.order
	}
	if f.back > 0 {
		text += " -" + f.back.String()
	}
	return text
}

// randomFaults are n faults, a function of the seed.
func randomFaults(seed uint64, n int) []fault {
	rnd := rand.New(rand.NewPCG(seed, 2))
	points := map[string][]string{}
	for _, name := range slices.DeleteFunc(crashpoint.All(), onDemand) {
		role, rest, _ := strings.Cut(name, ".")
		switch role {
		case "store":
			for _, r := range roles {
				points[r] = append(points[r], name)
			}
		case "data":
			points["control"] = append(points["control"], name)
		default:
			if !strings.HasPrefix(rest, "aside") { // needs a corrupt checkpoint
				points[role] = append(points[role], name)
			}
		}
	}
	faults := make([]fault, n)
	for i := range faults {
		f := fault{gap: 20 + rnd.IntN(200), role: append(roles, "server")[rnd.IntN(len(roles)+1)], how: []string{"kill", "stop", "crash", "crash", "clock"}[rnd.IntN(5)]}
		switch {
		case f.role == "server" && f.how == "clock": // which delivers nothing until its clock is where it was
			f.back = time.Duration(1+rnd.IntN(10)) * time.Second
		case f.how == "clock":
			f.back = time.Duration(1+rnd.IntN(120)) * time.Minute
		case f.role == "server" && f.how == "crash":
			f.how = "kill"
		case f.how == "crash":
			f.order = fmt.Sprintf("%s:%d", points[f.role][rnd.IntN(len(points[f.role]))], 1+rnd.IntN(3))
			if rnd.IntN(4) == 0 {
				f.order += ":stop"
			}
		}
		faults[i] = f
	}
	return faults
}

// suffer lets the run of a cluster end while faults strike it, and returns those that were left.
func (c *cluster) suffer(faults []fault) []fault {
	c.t.Helper()
	last := 0
	var serverGoesOn time.Time
	c.drive(func(string) string { return "" }, func() {
		if !serverGoesOn.IsZero() {
			if time.Now().Before(serverGoesOn) {
				return
			}
			serverGoesOn = time.Time{}
			_ = syscall.Kill(c.server.PID(), syscall.SIGCONT)
		}
		if len(faults) == 0 || c.counts.Effects() < last+faults[0].gap {
			return
		}
		f := faults[0]
		switch {
		case f.role == "server" && c.server.PID() == 0:
			return // it is just starting again
		case f.role == "server" && f.how == "kill":
			_ = syscall.Kill(c.server.PID(), syscall.SIGKILL)
			c.note(f.role, "killed", time.Now())
		case f.role == "server" && f.how == "stop":
			_ = syscall.Kill(c.server.PID(), syscall.SIGSTOP)
			serverGoesOn = time.Now().Add(6 * time.Second) // two heartbeats: nothing can progress that could be waited for
			c.note(f.role, "stopped", time.Now())
		case f.role == "server" && f.how == "clock":
			c.setClocks(-f.back, append(roles, "server")...)
		case f.how == "clock":
			c.setClocks(-f.back, f.role)
		case f.how == "stop":
			c.workers[f.role].Signal(syscall.SIGSTOP)
			c.cutOff(f.role, "stopped", "")
		default:
			c.kill(f.role)
			c.start(f.role, f.order)
		}
		faults, last = faults[1:], c.counts.Effects()
	})
	return faults
}

// number reads a number from the environment.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// Processes die and are cut off at random: an async run ends with the state that a clean replay of its batches gives, a sync run
// with that of an undisturbed run.
func TestRandomFaults_loseNothing(t *testing.T) {
	want := undisturbed(t)
	seed := number(t, "STEADY_CHAOS_SEED", uint64(time.Now().UnixNano()))
	n := int(number(t, "STEADY_CHAOS_FAULTS", 8)) //nolint:gosec // small
	faults := randomFaults(seed, n)
	t.Logf("STEADY_CHAOS_SEED=%d STEADY_CHAOS_FAULTS=%d: %v", seed, n, faults)
	struck := 0
	for round := 0; len(faults) > 0; round++ {
		mode := []string{"async", "sync"}[round%2]
		c := newCluster(t, settings(mode))
		left := c.suffer(faults)
		c.check()
		if mode == "sync" {
			if state, weights := digests(t, c.dir); state != want.state || weights != want.weights {
				t.Errorf("state %s weights %s, undisturbed %s %s", state, weights, want.state, want.weights)
			}
		}
		if len(left) == len(faults) {
			t.Fatal("the run ended before the first fault")
		}
		struck += len(c.deaths)
		t.Logf("round %d, %s: %d faults of the plan, %d deaths and stops in all, %d are left", round, mode, len(faults)-len(left), len(c.deaths), len(left))
		faults = left
	}
	t.Logf("%d deaths and stops", struck)
}
