package live

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/report"
)

// State says how far a run is, as its files tell.
type State string

// The states.
const (
	Absent    State = "not started" // there is no record of it
	Preparing State = "preparing"   // no version is published yet
	Training  State = "training"
	Finishing State = "training ended" // the ledger is closed, the export is not there yet
	Done      State = "done"           // exported and certified
	Failed    State = "failed"         // the run says so itself
	Stopped   State = "ended without an export"
)

// Dev is a validation.
type Dev struct {
	Name     string  `json:"name"` // step in six digits, or "export"
	Step     int     `json:"step"`
	Problems int     `json:"problems"`
	Solved   int     `json:"solved"`
	Acc      float64 `json:"acc"`
	PassRate float64 `json:"pass_rate"`
}

// Drops are the dropped groups of one reason.
type Drops struct {
	Reason string `json:"reason"`
	Groups int    `json:"groups"`
}

// Status is what a person wants to know of a run at one glance. Numbers that are not known are absent.
type Status struct {
	Run     string `json:"run"`
	Lineage string `json:"lineage,omitempty"`
	State   State  `json:"state"`
	Why     string `json:"why,omitempty"` // of a failure
	Recipe  string `json:"recipe,omitempty"`
	Engine  string `json:"engine,omitempty"`
	Model   string `json:"base_model,omitempty"`
	Mode    string `json:"mode,omitempty"`
	Started string `json:"started,omitempty"` // RFC 3339
	Changed string `json:"changed,omitempty"` // newest record, RFC 3339

	Step    int `json:"step"`            // newest with a result; where the lineage began before one
	Steps   int `json:"steps,omitempty"` // last step of the run
	Version int `json:"version"`         // newest published

	Submitted int     `json:"groups_submitted"` // up to the newest sealed batch
	Trained   int     `json:"groups_trained"`
	Open      int     `json:"groups_open"`
	Dropped   int     `json:"groups_dropped"`
	Drops     []Drops `json:"drops,omitempty"` // by reason
	Balanced  bool    `json:"ledger_balances"`

	Dev []Dev `json:"dev,omitempty"` // by step, the export last

	Reward      *float64 `json:"reward_mean,omitempty"` // of the newest sealed batch, as the next ones
	LagMean     *float64 `json:"lag_mean,omitempty"`
	LagMax      *float64 `json:"lag_max,omitempty"`
	RolloutRate *float64 `json:"rollout_tokens_per_second,omitempty"`
	TrainRate   *float64 `json:"train_tokens_per_second,omitempty"` // of the newest result
	StepSeconds *float64 `json:"step_seconds,omitempty"`            // mean time between the newest results
	LeftSeconds *float64 `json:"left_seconds,omitempty"`            // StepSeconds for the steps to come

	Failures   int            `json:"failures"`
	Recoveries int            `json:"recoveries"`
	LastEvent  *record.Event  `json:"last_event,omitempty"`
	Events     []record.Event `json:"-"`
	Workers    []string       `json:"workers,omitempty"` // that served the lineage

	stamp string
}

// Ended reports whether nothing more will come.
func (s *Status) Ended() bool { return s.State == Done || s.State == Failed || s.State == Stopped }

// Look reads the status of a lineage; it is shared and must not be changed. A run without a record is Absent, which is no error. Errors: Corrupt (a damaged record), Busy,
// Invalid (no name of a run).
func Look(ctx context.Context, c *Cache, run, lineage string) (*Status, error) {
	l, err := layoutOf(ctx, c, run, lineage)
	if fault.Is(err, fault.NotFound) && lineage == "" {
		return &Status{Run: run, State: Absent, Balanced: true}, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := look(ctx, c, l)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	last := c.seen[l]
	c.mu.Unlock()
	if last != nil && last.stamp == v.stamp {
		return last, nil
	}
	s, err := statusOf(ctx, c, l, v)
	if err == nil {
		c.mu.Lock()
		c.seen[l] = s
		c.mu.Unlock()
	}
	return s, err
}

func statusOf(ctx context.Context, c *Cache, l record.Layout, v *view) (*Status, error) {
	s := &Status{Run: l.Run, Lineage: l.Lineage, stamp: v.stamp, Version: v.newest("weights"), Step: max(0, v.newest("results"))}
	if !v.changed.IsZero() {
		s.Changed = v.changed.UTC().Format(time.RFC3339)
	}
	for _, part := range []func(context.Context, *Cache, record.Layout, *view) error{s.readRun, s.readSteps, s.readDev, s.readLedger, s.readEvents} {
		if err := part(ctx, c, l, v); err != nil {
			return nil, err
		}
	}
	s.State = s.state(v)
	if s.State == Training && s.StepSeconds != nil && s.Steps > s.Step {
		s.LeftSeconds = record.Num(*s.StepSeconds * float64(s.Steps-s.Step))
	}
	return s, nil
}

func (s *Status) state(v *view) State {
	switch {
	case v.exports && v.ended && (v.report || slices.Contains(v.named, exported)):
		return Done
	case s.Why != "":
		return Failed
	case v.ended && v.report:
		return Stopped // cancelled; or it failed in a way that it could not record
	case v.ended:
		return Finishing
	case s.Version < 0:
		return Preparing
	}
	return Training
}

func (s *Status) readRun(ctx context.Context, c *Cache, l record.Layout, v *view) error {
	r, err := read[record.Run](ctx, c, l.LineageFile())
	if err != nil {
		return err
	}
	s.Recipe, s.Engine, s.Model, s.Started = r.Recipe, r.Engine, r.BaseModel, r.Started
	if r.Parent != nil {
		s.Step = max(s.Step, r.Parent.Step)
	}
	for _, name := range v.workers {
		var w record.Worker
		data, _, err := c.Get(ctx, name)
		if err == nil {
			err = json.Unmarshal(data, &w)
		}
		if err != nil {
			continue // being replaced, or damaged: the report says so
		}
		s.Workers = append(s.Workers, w.Host)
	}
	conf, err := read[struct {
		Mode string `json:"mode"`
		Run  struct {
			Steps int `json:"steps"`
		} `json:"run"`
	}](ctx, c, l.ConfigFile())
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err == nil {
		s.Mode, s.Steps = conf.Mode, conf.Run.Steps
	}
	return err
}

func (s *Status) readSteps(ctx context.Context, c *Cache, l record.Layout, v *view) error {
	if n := v.newest("batches"); n >= 0 {
		b, err := read[record.Sealed](ctx, c, l.Batch(n))
		if err != nil {
			return err
		}
		s.Reward, s.LagMean, s.LagMax, s.RolloutRate = b.Rollout.RewardMean, b.Rollout.LagMean, b.Rollout.LagMax, b.Rollout.RolloutRate
	}
	if n := v.newest("results"); n >= 0 {
		r, err := read[record.Result](ctx, c, l.Result(n))
		if err != nil {
			return err
		}
		s.TrainRate = r.Metrics.TrainRate
	}
	if n := len(v.results); n > 1 {
		s.StepSeconds = record.Num(v.results[n-1].Sub(v.results[0]).Seconds() / float64(n-1))
	}
	return nil
}

func (s *Status) readDev(ctx context.Context, c *Cache, l record.Layout, v *view) error {
	for _, name := range v.named {
		r, err := read[record.Validation](ctx, c, l.Validation(name))
		if err != nil {
			return err
		}
		s.Dev = append(s.Dev, Dev{name, r.Version, r.Problems, r.Metrics.Solved, r.Metrics.Acc, r.Metrics.PassRate})
	}
	slices.SortStableFunc(s.Dev, func(a, b Dev) int {
		return cmp.Or(cmp.Compare(b2i(a.Name == exported), b2i(b.Name == exported)), cmp.Compare(a.Step, b.Step))
	})
	return nil
}

// exported is the name of the validation of the exported files.
const exported = "export"

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *Status) readLedger(ctx context.Context, c *Cache, l record.Layout, v *view) error {
	s.Balanced = true
	if len(v.numbers["ledger"]) == 0 && !v.ended {
		return nil
	}
	led, err := ledger.Load(ctx, c, l)
	if err != nil {
		return err
	}
	n := led.Count()
	s.Submitted, s.Trained, s.Open, s.Dropped = n.Submitted, n.Trained, n.Open, n.Dropped
	for _, r := range n.Reasons {
		s.Drops = append(s.Drops, Drops{r.Reason, r.Groups})
	}
	s.Balanced = led.Balance() == nil
	return nil
}

func (s *Status) readEvents(ctx context.Context, c *Cache, _ record.Layout, v *view) error {
	for _, name := range v.events {
		e, err := read[record.Event](ctx, c, name)
		if err != nil {
			return err
		}
		s.Events = append(s.Events, *e)
	}
	slices.SortStableFunc(s.Events, func(a, b record.Event) int { return cmp.Compare(parseTime(a.Time), parseTime(b.Time)) })
	for i := range s.Events {
		e := &s.Events[i]
		s.LastEvent = e
		if report.Recovery(e.Kind) {
			s.Recoveries++
			continue
		}
		s.Failures++
		// The workflow of a run writes an event of its own when nothing can cure what ended it.
		if e.Where == "TrainRun" {
			s.Why = e.Message
		}
	}
	return nil
}

// parseTime gives nanoseconds of an RFC 3339 time, 0 for what is none.
func parseTime(s string) int64 {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0
	}
	return t.UnixNano()
}

// DevText is the newest validation in a few words, empty without one.
func (s *Status) DevText() string {
	var pub []Dev
	for _, d := range s.Dev {
		if d.Name != exported {
			pub = append(pub, d)
		}
	}
	if len(pub) == 0 {
		return ""
	}
	last := pub[len(pub)-1]
	text := fmt.Sprintf("%.2f %% at step %d (%d of %d)", 100*last.Acc, last.Step, last.Solved, last.Problems)
	if len(pub) > 1 {
		text += fmt.Sprintf(", %.2f %% at step %d", 100*pub[0].Acc, pub[0].Step)
	}
	return text
}
