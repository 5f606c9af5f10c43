package simulate

import (
	"time"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
)

// Options of a simulation.
type Options struct {
	// Spec is the run: steps, batch, group, prefill, threshold, mode and time-outs as the workflows get them.
	Spec                       contract.RunSpec
	TrainProblems, DevProblems int

	Workers int     // rollout processes
	Slots   int     // responses that each generates at once
	Rate    Rate    // of each response
	Lengths Lengths // of responses; Max is set

	Update     time.Duration // one update
	Checkpoint time.Duration // one checkpoint; the trainer trains nothing meanwhile
	Judge      time.Duration // one group or chunk; there are as many judges as it takes
	Swap       time.Duration // a rollout worker loads a version; it generates nothing meanwhile
	Flush      time.Duration // between writes of unfinished responses
	Restart    time.Duration // until a process that died is back, a trainer without its replay
	Hop        time.Duration // every message of the Temporal server, and every small activity

	// Failures is the probability of a fault: that a rollout worker dies during an attempt at a group (and takes its other
	// groups with it), and that the judging of a group meets one (half of these are cured by a second attempt, half lose the
	// group). A trainer dies in an update with a tenth of it.
	Failures float64
	Seed     uint64
}

// Most of what the flags may ask for.
const (
	MostWorkers = 1024
	MostSlots   = 4096
	MostSteps   = 100_000
)

// Check refuses what cannot be simulated. Errors: Invalid.
func (o Options) Check() error {
	bad := func(name, rule string, got any) error {
		return fault.New(fault.Invalid, "simulate.Check", "%s %s, got %v", name, rule, got).WithHint("see: steady simulate --help")
	}
	for _, n := range []struct {
		name      string
		got, most int
	}{
		{"--steps", o.Spec.Steps, MostSteps}, {"--rollout-workers", o.Workers, MostWorkers}, {"--slots", o.Slots, MostSlots},
	} {
		if n.got < 1 || n.got > n.most {
			return fault.New(fault.Invalid, "simulate.Check", "%s must be from 1 to %d, got %d", n.name, n.most, n.got).WithHint("see: steady simulate --help")
		}
	}
	for _, d := range []struct {
		name string
		got  time.Duration
	}{
		{"--checkpoint-seconds", o.Checkpoint},
		{"--judge-seconds", o.Judge},
		{"--swap-seconds", o.Swap},
		{"--restart-seconds", o.Restart},
		{"--hop-milliseconds", o.Hop},
		{"--update-seconds", o.Update},
	} {
		if d.got < 0 || d.got > 24*time.Hour {
			return bad(d.name, "must be from 0 to a day", d.got)
		}
	}
	switch {
	case o.Update == 0:
		return bad("--update-seconds", "must be above 0", o.Update)
	case !(o.Failures >= 0 && o.Failures <= 0.5):
		return bad("--failures", "must be from 0 to 0.5", o.Failures)
	case o.Lengths.Max < 1:
		return bad("--lengths", "max must be at least 1", o.Lengths.Max)
	case o.Spec.Mode == "async" && o.Spec.Prefill >= o.Spec.Threshold:
		return bad("prefill", "must be smaller than the threshold, or every group is too old when its turn comes", o.Spec.Prefill)
	case o.TrainProblems < o.Spec.BatchProblems:
		return bad("data.train", "must be at least rollout.batch_problems", o.TrainProblems)
	case o.Spec.FirstStep != 0:
		return bad("run.init_run", "must be empty: a simulation starts from the base model", o.Spec.FirstStep)
	}
	return nil
}
