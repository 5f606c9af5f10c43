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

// times are the flags that are times, with their units and what is the least.
var times = []struct {
	flag, unit string
	one        time.Duration
	least      float64
	of         func(o *Options) *time.Duration
}{
	{"--update-seconds", "seconds", time.Second, 0.001, func(o *Options) *time.Duration { return &o.Update }},
	{"--checkpoint-seconds", "seconds", time.Second, 0, func(o *Options) *time.Duration { return &o.Checkpoint }},
	{"--judge-seconds", "seconds", time.Second, 0, func(o *Options) *time.Duration { return &o.Judge }},
	{"--swap-seconds", "seconds", time.Second, 0, func(o *Options) *time.Duration { return &o.Swap }},
	{"--restart-seconds", "seconds", time.Second, 0, func(o *Options) *time.Duration { return &o.Restart }},
	{"--hop-milliseconds", "milliseconds", time.Millisecond, 0, func(o *Options) *time.Duration { return &o.Hop }},
}

// SetTimes sets the times to the numbers of their flags, --update-seconds and the others that end in a unit. Errors: Invalid, in the unit of the flag: each
// is at most a day, the time of an update at least a millisecond.
func (o *Options) SetTimes(numbers map[string]float64) error {
	for _, t := range times {
		v := numbers[t.flag]
		if err := checkTime(t.flag, t.unit, v, t.least, t.one); err != nil {
			return err
		}
		*t.of(o) = time.Duration(v * float64(t.one))
	}
	return nil
}

func checkTime(flag, unit string, v, least float64, one time.Duration) error {
	if most := float64(24 * time.Hour / one); !(v >= least && v <= most) {
		return fault.New(fault.Invalid, "simulate.Check", "%s must be from %g to %.0f %s (a day), got %g", flag, least, most, unit, v).WithHint("steady simulate --help")
	}
	return nil
}

// Check refuses what cannot be simulated. Errors: Invalid.
func (o Options) Check() error {
	bad := func(name, rule string, got any) error {
		return fault.New(fault.Invalid, "simulate.Check", "%s %s, got %v", name, rule, got).WithHint("steady simulate --help")
	}
	for _, n := range []struct {
		name      string
		got, most int
	}{
		{"--steps", o.Spec.Steps, MostSteps}, {"--rollout-workers", o.Workers, MostWorkers}, {"--slots", o.Slots, MostSlots},
	} {
		if n.got < 1 || n.got > n.most {
			return fault.New(fault.Invalid, "simulate.Check", "%s must be from 1 to %d, got %d", n.name, n.most, n.got).WithHint("steady simulate --help")
		}
	}
	for _, t := range times {
		if err := checkTime(t.flag, t.unit, float64(*t.of(&o))/float64(t.one), t.least, t.one); err != nil {
			return err
		}
	}
	switch {
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
