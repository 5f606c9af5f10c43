package workflows

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/contract"
)

// applySettings changes s as a command asks, and says in words what changed. next is the first step whose batch is not sealed: a sealed
// batch holds its learning rate for ever.
func applySettings(s *contract.Settings, c contract.Control, next int) []string {
	var notes []string
	if r := c.Rate; r.LearningRate > 0 {
		r.From = max(r.From, next)
		s.Rates = slices.DeleteFunc(slices.Clone(s.Rates), func(o contract.Rate) bool { return o.From >= r.From })
		s.Rates = append(s.Rates, r)
		notes = append(notes, fmt.Sprintf("learning rate %g from step %d on", r.LearningRate, r.From))
	}
	if c.Threshold > 0 {
		s.Threshold = c.Threshold
		notes = append(notes, fmt.Sprintf("staleness threshold %d", c.Threshold))
	}
	if c.Prefill != nil {
		n := *c.Prefill
		s.Prefill = &n
		notes = append(notes, fmt.Sprintf("prefill %d", n))
	}
	return notes
}

// rateAt returns the learning rate of step t, 0 for that of the configuration. rates are ordered by step.
func rateAt(rates []contract.Rate, t int) float64 {
	rate := 0.0
	for _, r := range rates {
		if r.From <= t {
			rate = r.LearningRate
		}
	}
	return rate
}

// pruneRates forgets the rates that no step from t on uses.
func pruneRates(rates []contract.Rate, t int) []contract.Rate {
	for len(rates) > 1 && rates[1].From <= t {
		rates = rates[1:]
	}
	return rates
}

func (l *loop) threshold() int {
	if l.st.Threshold > 0 {
		return l.st.Threshold
	}
	return l.spec.Threshold
}

func (l *loop) prefill() int {
	if l.st.Prefill != nil {
		return *l.st.Prefill
	}
	return l.spec.Prefill
}

// eventSetting is the kind of the event that a message changed a setting.
const eventSetting = "setting"

// tellNotes writes an event for each change of a setting. It is for the loop's own coroutine: it waits for the writes.
func (l *loop) tellNotes() {
	for len(l.notes) > 0 {
		text := l.notes[0]
		l.notes = l.notes[1:]
		l.event(eventSetting, "TrainLoop", text, l.sealed+1)
	}
}

func settingsLine(s contract.Settings) string {
	var parts []string
	for _, r := range s.Rates {
		parts = append(parts, fmt.Sprintf("learning rate %g from step %d on", r.LearningRate, r.From))
	}
	if s.Threshold > 0 {
		parts = append(parts, fmt.Sprintf("staleness threshold %d", s.Threshold))
	}
	if s.Prefill != nil {
		parts = append(parts, fmt.Sprintf("prefill %d", *s.Prefill))
	}
	return strings.Join(parts, ", ")
}

// Bounds of settings, as those of the configuration.
const (
	mostThreshold = 1000 // steps
	mostOpen      = 1000 // groups in flight; the server allows a workflow 2,000 children that have not ended
	mostRate      = 1.0  // far above any rate that trains
)

// checkRate refuses a learning rate that is no such, or a step that cannot have it.
func (r *run) checkRate(q contract.RateRequest) error {
	switch {
	case !(q.LearningRate > 0) || math.IsInf(q.LearningRate, 0) || q.LearningRate > mostRate:
		return r.refuse(true, fmt.Sprintf("set_learning_rate: learning_rate must be greater than 0 and at most %g, got %g", mostRate, q.LearningRate))
	case q.FromStep < 0 || q.FromStep > 0 && q.FromStep <= r.progress.Step:
		return r.refuse(true, fmt.Sprintf("set_learning_rate: from_step must be 0 (the next step) or after the step %d that is trained, got %d", r.progress.Step, q.FromStep))
	case r.progress.Steps > 0 && q.FromStep > r.progress.Steps:
		return r.refuse(true, fmt.Sprintf("set_learning_rate: from_step %d is after the last step, %d", q.FromStep, r.progress.Steps))
	}
	ahead := 0
	for _, c := range r.settings.Rates {
		if c.From > r.progress.Step && c.From < q.FromStep {
			ahead++
		}
	}
	return r.refuse(ahead >= contract.MaxRates-1, fmt.Sprintf("set_learning_rate: more than %d changes lie ahead", contract.MaxRates))
}

// checkThreshold refuses a threshold that the configuration would refuse.
func (r *run) checkThreshold(q contract.ThresholdRequest) error {
	if err := r.checkAsync(contract.UpdateThreshold); err != nil {
		return err
	}
	p := r.spec.Prefill
	if r.settings.Prefill != nil {
		p = *r.settings.Prefill
	}
	return r.refuse(q.Threshold <= p || q.Threshold < 1 || q.Threshold > mostThreshold,
		fmt.Sprintf("set_threshold: threshold must be greater than the prefill (%d) and at most %d, got %d", p, mostThreshold, q.Threshold))
}

// checkPrefill refuses a prefill that the configuration would refuse.
func (r *run) checkPrefill(q contract.PrefillRequest) error {
	if err := r.checkAsync(contract.UpdatePrefill); err != nil {
		return err
	}
	if q.Prefill == nil {
		return r.refuse(true, `set_prefill: want {"prefill": N}`)
	}
	t := r.spec.Threshold
	if r.settings.Threshold > 0 {
		t = r.settings.Threshold
	}
	if open := (*q.Prefill + 1) * r.spec.BatchProblems; *q.Prefill >= 0 && (*q.Prefill > mostOpen || open > mostOpen) {
		return r.refuse(true, fmt.Sprintf("set_prefill: prefill %d means more groups in flight than the %d that are allowed; with %d problems in a batch it is at most %d",
			*q.Prefill, mostOpen, r.spec.BatchProblems, max(mostOpen/max(r.spec.BatchProblems, 1)-1, 0)))
	}
	return r.refuse(*q.Prefill < 0 || *q.Prefill >= t, fmt.Sprintf("set_prefill: prefill must be at least 0 and smaller than the threshold (%d), got %d", t, *q.Prefill))
}

// checkAsync refuses what has no meaning in mode sync, and what cannot be checked yet.
func (r *run) checkAsync(name string) error {
	switch r.spec.Mode {
	case "":
		return r.refuse(true, name+": the run has not read its configuration yet, send it again in a moment")
	case "async":
		return nil
	default:
		return r.refuse(true, name+": in mode sync a group is never older than its step")
	}
}
