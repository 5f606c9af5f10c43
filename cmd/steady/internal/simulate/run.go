package simulate

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/virtual"
	"github.com/steadyrl/steady/workflows"
)

// runName is the workflow id of a simulated run.
const runName = "simulated"

// Result is what a simulation found. Shares are from 0 to 1.
type Result struct {
	Steps        int     `json:"steps"`
	Hours        float64 `json:"hours"` // virtual, of the step loop
	StepsPerHour float64 `json:"steps_per_hour"`
	StepSeconds  float64 `json:"step_seconds"` // mean

	SlotsIdle    float64 `json:"slots_idle_share"`           // of the time of all slots, those that generate nothing
	WorkersIdle  float64 `json:"workers_idle_share"`         // of the time of all rollout workers, those without a response
	TrainerIdle  float64 `json:"trainer_idle_share"`         // neither an update, nor a checkpoint, nor a replay
	Replay       float64 `json:"trainer_replay_share"`       // time of replays and of updates that were lost
	TokensPerSec float64 `json:"rollout_tokens_per_second"`  // of the whole pool
	Overhead     float64 `json:"orchestration_step_seconds"` // mean time of a step with an idle trainer and a batch complete
	OverheadPart float64 `json:"orchestration_share"`        // of the step

	LagMean   float64   `json:"lag_mean"`   // versions, over trained tokens
	LagMax    int       `json:"lag_max"`    // versions, of a trained token
	LagTokens []float64 `json:"lag_tokens"` // share of the trained tokens by lag
	LagGroups []float64 `json:"lag_groups"` // share of the trained groups by the lag of their oldest token

	Submitted int         `json:"groups_submitted"`
	Trained   int         `json:"groups_trained"`
	Dropped   int         `json:"groups_dropped"`
	Reasons   []Reason    `json:"drops_by_reason"`
	Lengths   []LengthRow `json:"drops_by_longest_response"`
	MeanSent  float64     `json:"response_mean_submitted"` // tokens
	MeanKept  float64     `json:"response_mean_trained"`   // tokens

	WorkerDeaths int `json:"rollout_workers_lost"`
	JudgeFaults  int `json:"judge_faults"`
	TrainersLost int `json:"trainers_lost"`
	Replayed     int `json:"updates_replayed"`

	Histories    []HistoryRow `json:"histories"`
	EventsStep   float64      `json:"events_a_step"`   // of all workflows
	StateMax     int          `json:"loop_state_max"`  // bytes of JSON that a run of the loop hands on
	LargestName  string       `json:"largest_message"` // its name
	LargestBytes int          `json:"largest_bytes"`   // of its JSON
	Tasks        int          `json:"workflow_tasks"`  // answered by the workflows
	Balanced     bool         `json:"ledger_balances"` // every group submitted is trained, dropped or open, once
	OpenGroups   int          `json:"groups_open_at_end"`

	// Curve are the steps, and Loops the runs of the loop's chain, in order.
	Curve []Point   `json:"-"`
	Loops []LoopRun `json:"-"`
}

// Point is one step of the curves.
type Point struct {
	Step    int
	Seconds float64 // since the end of the update before
	LagMean float64
	Drops   int
}

// LoopRun is one run of the chain of TrainLoop: its history, and the size of the state that it handed on (0 for the last).
type LoopRun struct{ Events, Bytes, State int }

// Reason counts the groups dropped for one reason.
type Reason struct {
	Reason string  `json:"reason"`
	Groups int     `json:"groups"`
	Share  float64 `json:"share"` // of the groups submitted
}

// LengthRow counts groups by their longest response.
type LengthRow struct {
	Longest   string  `json:"longest_response"`
	Submitted int     `json:"submitted"`
	Stale     int     `json:"stale"`
	Faulty    int     `json:"infrastructure"`
	Share     float64 `json:"dropped_share"`
}

// HistoryRow sums up the histories of one workflow type.
type HistoryRow struct {
	Workflow   string  `json:"workflow"`
	Runs       int     `json:"runs"`
	MeanEvents float64 `json:"mean_events"`
	MostEvents int     `json:"most_events"`
	MostBytes  int     `json:"most_bytes"`
}

// Run simulates one run from start to end. Watch, if not nil, is called whenever a run of the loop's chain has ended, with the
// steps that are done. Errors: Invalid options, Infrastructure if the simulated run fails, Internal, and the error of ctx.
func Run(ctx context.Context, o Options, watch func(step int)) (Result, error) {
	return run(ctx, o, watch, nil)
}

func run(ctx context.Context, o Options, watch func(step int), closed func(virtual.Execution)) (Result, error) {
	if err := o.Check(); err != nil {
		return Result{}, err
	}
	o.Spec.RunKey = contract.RunKey{Run: runName, Lineage: "l0"}
	w := newWorld(&o)
	w.acct.watch, w.acct.closed = watch, closed
	if err := w.drive(ctx); err != nil {
		return Result{}, err
	}
	return w.result()
}

// drive runs the workflows to their end.
func (w *world) drive(ctx context.Context) error {
	quiet := sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
	c, err := client.NewLazyClient(client.Options{
		HostPort: "passthrough:///virtual", Namespace: virtual.Namespace, Identity: "simulate", Logger: quiet,
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{w.s.DialOption()}},
	})
	if err != nil {
		return fault.New(fault.Internal, "simulate.Run", "%w", err)
	}
	defer c.Close()
	// A busy machine may hold a workflow task up for longer than the SDK's one second; nothing here waits for a lock.
	workers := worker.New(c, contract.QueueControl, worker.Options{
		LocalActivityWorkerOnly: true, MaxConcurrentWorkflowTaskPollers: 2, WorkflowPanicPolicy: worker.FailWorkflow,
		DeadlockDetectionTimeout: time.Hour, Identity: "simulate",
	})
	workflows.Register(workers)
	if err := workers.Start(); err != nil {
		return fault.New(fault.Internal, "simulate.Run", "%w", err)
	}
	defer workers.Stop()
	w.s.Start(contract.TrainRun, runName, contract.QueueControl, []byte(`{}`))
	if err := w.s.Run(ctx); err != nil {
		return err
	}
	return w.err
}

func (w *world) result() (Result, error) {
	a := &w.acct
	l := ledger.Fold(ledger.Start{}, a.records, a.last)
	if err := l.Balance(); err != nil {
		return Result{}, err
	}
	n := l.Count()
	r := Result{
		Steps: len(a.records), Submitted: n.Submitted, Trained: n.Trained, Dropped: n.Dropped, OpenGroups: n.Open, Balanced: true,
		WorkerDeaths: a.deaths, JudgeFaults: a.judgeFaults, TrainersLost: a.trainersLost, Replayed: a.replays,
	}
	for _, q := range n.Reasons {
		r.Reasons = append(r.Reasons, Reason{q.Reason, q.Groups, float64(q.Groups) / float64(n.Submitted)})
	}
	span := (w.ended - w.began).Seconds()
	workers := float64(w.o.Workers)
	r.Hours = span / 3600
	r.StepsPerHour = float64(r.Steps) / r.Hours
	r.StepSeconds = span / float64(r.Steps)
	r.SlotsIdle = 1 - w.usage.slots.Seconds()/(span*workers*float64(w.o.Slots))
	r.WorkersIdle = 1 - w.usage.busy.Seconds()/(span*workers)
	r.TrainerIdle = 1 - w.trainer.busy.Seconds()/span
	r.Replay = w.trainer.replayed.Seconds() / span
	r.TokensPerSec = w.usage.tokens / span
	if a.overheadN > 0 {
		r.Overhead = a.overheadSum.Seconds() / float64(a.overheadN)
		r.OverheadPart = r.Overhead / r.StepSeconds
	}
	r.MeanSent, r.MeanKept = a.sumAll/float64(a.nAll), a.sumIn/float64(a.nIn)
	w.lags(&r)
	for i, b := range a.lengths {
		row := LengthRow{Longest: binNames[i], Submitted: b.submitted, Stale: b.stale, Faulty: b.faulty}
		if b.submitted > 0 {
			row.Share = float64(b.stale+b.faulty) / float64(b.submitted)
		}
		r.Lengths = append(r.Lengths, row)
	}
	w.histories(&r)
	before := w.began
	for i := 1; i <= r.Steps; i++ {
		s := a.steps[i]
		r.Curve = append(r.Curve, Point{Step: i, Seconds: (s.end - before).Seconds(), LagMean: s.lagSum / s.tokens, Drops: s.drops})
		before = s.end
	}
	return r, nil
}

func (w *world) lags(r *Result) {
	tokens := 0.0
	for lag, n := range w.acct.lag {
		tokens += n
		r.LagMean += float64(lag) * n
		if n > 0 {
			r.LagMax = lag
		}
	}
	r.LagMean /= tokens
	for _, n := range w.acct.lag {
		r.LagTokens = append(r.LagTokens, n/tokens)
	}
	for _, n := range w.acct.oldest {
		r.LagGroups = append(r.LagGroups, float64(n)/float64(r.Trained))
	}
}

func (w *world) histories(r *Result) {
	a := &w.acct
	for _, kind := range []string{contract.TrainRun, contract.TrainLoop, contract.RolloutGroup, contract.Validate} {
		h := a.kinds[kind]
		if h == nil {
			continue
		}
		r.Histories = append(r.Histories, HistoryRow{
			Workflow: kind, Runs: h.runs, MeanEvents: float64(h.events) / float64(h.runs), MostEvents: h.mostEvents, MostBytes: h.mostBytes,
		})
	}
	r.Tasks, _ = w.s.Counts()
	r.EventsStep = float64(a.events) / float64(r.Steps)
	for _, run := range a.loops {
		r.Loops = append(r.Loops, LoopRun{run.events, run.bytes, run.state})
		r.StateMax = max(r.StateMax, run.state)
	}
	largest := w.s.Largest()
	names := make([]string, 0, len(largest))
	for name := range largest {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if largest[name] > r.LargestBytes {
			r.LargestName, r.LargestBytes = name, largest[name]
		}
	}
}
