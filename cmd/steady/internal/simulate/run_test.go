package simulate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/cmd/steady/internal/simulate"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
)

// options are those of a small run: 4 problems of 2 responses, 2 workers.
func options(t *testing.T, steps int, lengths string) simulate.Options {
	t.Helper()
	l, err := simulate.ParseLengths(lengths)
	if err != nil {
		t.Fatal(err)
	}
	if l.Max == 0 {
		l.Max = 8192
	}
	rate, err := simulate.ParseRate("100")
	if err != nil {
		t.Fatal(err)
	}
	return simulate.Options{
		Spec: contract.RunSpec{
			Mode: "async", Steps: steps, CheckpointEvery: 1000, Seed: 42, GroupSize: 2, BatchProblems: 4, Prefill: 1,
			Threshold: 3, Policy: contract.PolicyDrop, EvalChunk: 16, ContinueEvery: 10, SearchAttributes: true,
			Timeouts: contract.Timeouts{
				Control: time.Minute, Shard: time.Hour, Rollout: 2 * time.Hour, Judge: time.Hour, Update: 4 * time.Hour, Export: time.Hour,
				Heartbeat: 30 * time.Second, TrainerLost: time.Minute, ClosedCheck: 30 * time.Second, Stall: 5 * time.Minute,
			},
		},
		TrainProblems: 50, DevProblems: 1, Workers: 2, Slots: 64, Rate: rate, Lengths: l, Update: 20 * time.Second,
		Flush: 2 * time.Second, Restart: 30 * time.Second, Seed: 42,
	}
}

func run(t *testing.T, o simulate.Options) simulate.Result {
	t.Helper()
	r, err := simulate.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// text is everything that a result says.
func text(t *testing.T, o simulate.Options, r simulate.Result) string {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return simulate.Text([]simulate.Case{{Options: o, Result: r}}) + string(data) + fmt.Sprint(r.Curve, r.Loops)
}

// Without chance and without delays of the server the long run is known. T is the time of a batch, J of the judge, U of an
// update, P the prefill: a step takes U + T + J in mode sync, else max(U, (U + T + J) / (P + 1)) on average, and never less
// than the pool needs for a batch. The lags follow from when the versions are published.
func TestRun_closedForms(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name           string
		mode           string
		prefill        int
		update, judge  float64
		slots, workers int
		step, lag      float64 // means of late steps
	}{
		{"sync", "sync", 0, 5, 2, 64, 2, 17, 0},
		{"the trainer is slower, prefill 1", "async", 1, 20, 2, 64, 2, 20, 1},
		{"the trainer is slower, prefill 2", "async", 2, 20, 2, 64, 2, 20, 2},
		{"a group takes longer than an update", "async", 1, 2, 2, 64, 2, 7, 0.6},            // steps of 2 and 12 s
		{"a deeper prefill hides a part of it", "async", 2, 5, 2, 64, 2, 17.0 / 3, 4.7 / 3}, // of 5, 5 and 7 s
		{"the pool is full", "async", 1, 5, 0, 8, 1, 10, 0.5},
		{"the pool is full, the trainer slower", "async", 1, 15, 0, 8, 1, 15, 1},
	}
	const steps, from, batchTokens = 60, 18, 8000.0
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := options(t, steps, "fixed:mean=1000") // 10 s
			o.DevProblems = 8                         // as many responses as a batch, so that slots stay in step
			o.Spec.Mode, o.Spec.Prefill, o.Slots, o.Workers = tt.mode, tt.prefill, tt.slots, tt.workers
			o.Update, o.Judge = time.Duration(tt.update*1e9), time.Duration(tt.judge*1e9)
			r := run(t, o)
			var step, lag float64
			late := r.Curve[from : from+6*((steps-from-4)/6)] // whole periods
			for _, p := range late {
				step += p.Seconds / float64(len(late))
				lag += p.LagMean / float64(len(late))
			}
			if math.Abs(step-tt.step) > 1e-3 {
				t.Errorf("a step took %.4f s, want %.4f", step, tt.step)
			}
			if math.Abs(lag-tt.lag) > 1e-3 {
				t.Errorf("lag %.4f, want %.4f", lag, tt.lag)
			}
			if got, want := r.TrainerIdle, 1-tt.update/tt.step; math.Abs(got-want) > 0.06 {
				t.Errorf("trainer idle %.4f, want about %.4f", got, want)
			}
			if want := 1 - batchTokens/(100*tt.step*float64(tt.slots*tt.workers)); math.Abs(r.SlotsIdle-want) > 0.05 {
				t.Errorf("slots idle %.4f, want about %.4f", r.SlotsIdle, want)
			}
			if r.Dropped != 0 || r.Trained != steps*4 {
				t.Errorf("%d groups trained, %d dropped", r.Trained, r.Dropped)
			}
		})
	}
}

// hard is a run in which everything goes wrong now and then.
func hard(t *testing.T, steps int) simulate.Options {
	t.Helper()
	o := options(t, steps, "lognormal:mean=2500,sigma=1.2,problem=0.5")
	o.Slots, o.Failures, o.Judge, o.Hop, o.Swap = 8, 0.1, 5*time.Second, 10*time.Millisecond, time.Second
	o.Checkpoint, o.Spec.CheckpointEvery, o.Spec.ValidateEvery, o.DevProblems = 3*time.Second, 10, 15, 20
	return o
}

func TestRun_theSameOptionsGiveTheSameBytes(t *testing.T) {
	t.Parallel()
	o := hard(t, 25)
	first := text(t, o, run(t, o))
	if diff := cmp.Diff(first, text(t, o, run(t, o))); diff != "" {
		t.Error(diff)
	}
	o.Seed++
	if text(t, o, run(t, o)) == first {
		t.Error("another seed gives the same run")
	}
}

func TestRun_everyGroupHasOneFateAndNoneIsTooOld(t *testing.T) {
	t.Parallel()
	tests := []struct {
		threshold, prefill, workers int
		failures                    float64
		policy                      string
		stale                       bool // some are dropped as too old
	}{
		{1, 0, 2, 0, contract.PolicyDrop, false},
		{2, 1, 2, 0.1, contract.PolicyDrop, true},
		{3, 2, 1, 0.05, contract.PolicyDrop, true},
		{8, 2, 4, 0.2, contract.PolicyDrop, false},
		{4, 3, 2, 0.1, contract.PolicyDrop, true},
		{4, 3, 2, 0.1, contract.PolicyWait, false},
		{4, 3, 2, 0.1, contract.PolicyCancelEarly, true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("threshold=%d prefill=%d workers=%d failures=%g %s", tt.threshold, tt.prefill, tt.workers, tt.failures, tt.policy), func(t *testing.T) {
			t.Parallel()
			o := hard(t, 40)
			o.Spec.Threshold, o.Spec.Prefill, o.Workers, o.Failures = tt.threshold, tt.prefill, tt.workers, tt.failures
			o.Update, o.Spec.Policy = 5*time.Second, tt.policy
			r := run(t, o)
			if r.LagMax > tt.threshold-1 {
				t.Errorf("a token of lag %d was trained, the threshold is %d", r.LagMax, tt.threshold)
			}
			if r.Submitted != r.Trained+r.Dropped+r.OpenGroups || r.OpenGroups != 0 || r.Trained != 40*4 {
				t.Errorf("%d submitted, %d trained, %d dropped, %d open", r.Submitted, r.Trained, r.Dropped, r.OpenGroups)
			}
			reasons, seen := map[string]int{}, map[string]int{}
			for _, q := range r.Reasons {
				reasons[q.Reason] = q.Groups
			}
			for _, l := range r.Lengths {
				seen["stale"] += l.Stale
				seen["infrastructure"] += l.Faulty
				seen["submitted"] += l.Submitted
			}
			for _, name := range []string{"stale", "infrastructure"} {
				if reasons[name] != seen[name] {
					t.Errorf("the ledger has %d groups dropped as %s, the machines saw %d", reasons[name], name, seen[name])
				}
			}
			if seen["submitted"] != r.Submitted {
				t.Errorf("the machines saw %d groups, the ledger has %d", seen["submitted"], r.Submitted)
			}
			if tt.stale != (reasons["stale"] > 0) {
				t.Errorf("%d groups were dropped as stale", reasons["stale"])
			}
			lowest, highest := math.Inf(1), 0.0 // the curve and the total are means over tokens
			for _, p := range r.Curve {
				lowest, highest = min(lowest, p.LagMean), max(highest, p.LagMean)
			}
			if r.LagMean < lowest-1e-9 || r.LagMean > highest+1e-9 || highest > float64(r.LagMax) {
				t.Errorf("mean lag %g, largest %d, of the steps %g to %g", r.LagMean, r.LagMax, lowest, highest)
			}
			if (tt.failures > 0) != (r.WorkerDeaths > 0 && r.JudgeFaults > 0) {
				t.Errorf("%d workers died, %d judge faults", r.WorkerDeaths, r.JudgeFaults)
			}
		})
	}
}

func TestRun_aLostTrainerCostsItsReplay(t *testing.T) {
	t.Parallel()
	o := hard(t, 60)
	o.Failures = 0.5 // a trainer dies in one of twenty updates
	r := run(t, o)
	if r.TrainersLost == 0 || r.Replayed == 0 || r.Replay == 0 {
		t.Fatalf("%d trainers lost, %d updates replayed, share %g", r.TrainersLost, r.Replayed, r.Replay)
	}
	if most := r.TrainersLost * o.Spec.CheckpointEvery; r.Replayed > most {
		t.Errorf("%d updates replayed, at most %d lie between checkpoints", r.Replayed, most)
	}
}

// No test beside this one, or its memory would count. The records of the ledger and the curves are the account of the
// simulation itself: they may grow with the steps, by a few kilobytes each.
func TestRun_historyStateAndMemoryStayBounded(t *testing.T) {
	const steps, perStep = 300, 8 << 10
	o := hard(t, steps)
	o.Failures, o.Spec.ValidateEvery = 0.01, 0
	var early, late uint64
	r, err := simulate.Run(t.Context(), o, func(step int) {
		if step < 60 {
			return
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		if early == 0 {
			early = m.HeapAlloc
		}
		late = m.HeapAlloc
	})
	if err != nil {
		t.Fatal(err)
	}
	if late > early+steps*perStep {
		t.Errorf("the heap grew from %d to %d bytes", early, late)
	}
	if len(r.Loops) < steps/o.Spec.ContinueEvery {
		t.Fatalf("%d runs of the chain", len(r.Loops))
	}
	third := len(r.Loops) / 3
	for what, of := range map[string]func(simulate.LoopRun) int{
		"events": func(l simulate.LoopRun) int { return l.Events },
		"bytes":  func(l simulate.LoopRun) int { return l.Bytes },
		"state":  func(l simulate.LoopRun) int { return l.State },
	} {
		mean := func(runs []simulate.LoopRun) float64 {
			sum := 0
			for _, l := range runs {
				sum += of(l)
			}
			return float64(sum) / float64(len(runs))
		}
		if first, last := mean(r.Loops[:third]), mean(r.Loops[2*third:len(r.Loops)-1]); last > 1.15*first {
			t.Errorf("%s a run of the chain: %.0f in the first third, %.0f in the last", what, first, last)
		}
	}
	for _, h := range r.Histories {
		if h.Workflow == contract.TrainLoop && h.MostEvents > 5000 {
			t.Errorf("a run of the loop has %d events", h.MostEvents)
		}
	}
}

// The table of validations is in the store. Neither the loop, nor a message, nor the history of the run grows with it.
func TestRun_anyNumberOfValidationsKeepsMessagesSmall(t *testing.T) {
	t.Parallel()
	const steps = 160
	o := options(t, steps, "fixed:mean=1000")
	o.Spec.BatchProblems, o.Spec.GroupSize, o.Spec.ValidateEvery, o.TrainProblems = 1, 1, 1, 200
	r := run(t, o)
	if r.LargestBytes > contract.MaxMessage/2 {
		t.Errorf("%s has %d bytes after %d validations", r.LargestName, r.LargestBytes, steps+1)
	}
	validations := 0
	for _, h := range r.Histories {
		switch h.Workflow {
		case contract.Validate:
			validations = h.Runs
		case contract.TrainRun: // a message of progress is a signal, a task and an update of search attributes
			if most := 2 * steps * 3 << 10; h.MostBytes > most {
				t.Errorf("the history of the run has %d bytes, at most %d", h.MostBytes, most)
			}
		}
	}
	if validations != steps+2 { // the first and the export
		t.Errorf("%d validations", validations)
	}
	early, late := r.Loops[1].State, r.Loops[len(r.Loops)-2].State
	if early > 4<<10 || late > 4<<10 {
		t.Errorf("the state has %d bytes in the second run of the chain, %d in the last but one", early, late)
	}
}

func TestRun_refusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, says string
		change     func(*simulate.Options)
	}{
		{"no step", "--steps", func(o *simulate.Options) { o.Spec.Steps = 0 }},
		{"no worker", "--rollout-workers", func(o *simulate.Options) { o.Workers = 0 }},
		{"no slot", "--slots", func(o *simulate.Options) { o.Slots = 0 }},
		{"no update", "--update-seconds", func(o *simulate.Options) { o.Update = 0 }},
		{"a negative time", "--judge-seconds", func(o *simulate.Options) { o.Judge = -1 }},
		{"failures that are no number", "--failures", func(o *simulate.Options) { o.Failures = math.NaN() }},
		{"too many failures", "--failures", func(o *simulate.Options) { o.Failures = 0.6 }},
		{"a prefill that is always too old", "prefill", func(o *simulate.Options) { o.Spec.Prefill = 3 }},
		{"too few problems", "data.train", func(o *simulate.Options) { o.TrainProblems = 3 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := options(t, 2, "fixed:mean=100")
			tt.change(&o)
			_, err := simulate.Run(t.Context(), o, nil)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want Invalid about %s", err, tt.says)
			}
		})
	}
}

func TestRun_failsAsTheSimulatedRunDoes(t *testing.T) {
	t.Parallel()
	o := hard(t, 400)
	o.Spec.BatchProblems, o.Failures = 1, 0.5 // three groups lost in one step end a run
	_, err := simulate.Run(t.Context(), o, nil)
	if !fault.Is(err, fault.Infrastructure) || !strings.Contains(err.Error(), "lost to infrastructure") {
		t.Errorf("error %v, want that of the loop", err)
	}
}

func TestRun_endsWithAnAlarm(t *testing.T) {
	t.Parallel()
	o := hard(t, 100)
	o.Failures, o.Spec.FaultWindow, o.Spec.FaultLimit, o.Spec.FaultAction = 0.5, 4, 1, "pause"
	_, err := simulate.Run(t.Context(), o, nil)
	if !fault.Is(err, fault.Infrastructure) || !strings.Contains(err.Error(), "alarm") {
		t.Errorf("error %v, want that of an alarm", err)
	}
}

func TestRun_canBeInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := simulate.Run(ctx, hard(t, 100), func(int) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// With a slow server messages meet the loop at every moment: while it notes a fault, or in the task with which it continues as
// new. A group that reports then must not be forgotten: the run would wait for it for ever.
func TestRun_aReportIsKeptAtWhateverMomentItComes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		o := hard(t, 25)
		o.Seed, o.Hop, o.Failures, o.Slots, o.Spec.Threshold = seed, 8*time.Second, 0.2, 64, 8
		if r := run(t, o); r.Trained != 25*4 {
			t.Errorf("seed %d: %d groups trained", seed, r.Trained)
		}
	}
}
