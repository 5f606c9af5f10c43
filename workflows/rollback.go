package workflows

import (
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
)

// rollback is one in progress, from the moment that its update is accepted.
type rollback struct {
	step int
	next contract.RunSpec // of the lineage that goes on; its lineage is empty until it is open
	done bool             // the next loop is started, or the run ends
	err  error            // why there is no next loop
}

// checkRollback refuses a step that the lineage has no state of, and a moment at which there is no loop to end.
func (r *run) checkRollback(q contract.RollbackRequest) error {
	switch {
	case q.Step == nil:
		return r.refuse(true, `rollback: want {"step": N}`)
	case r.back != nil:
		return r.refuse(true, fmt.Sprintf("rollback: the run is rolling back to step %d already", r.back.step))
	case r.loopEnded:
		return temporal.NewApplicationError("rollback: the step loop has ended", string(fault.Invalid))
	case !r.loopOpen:
		return r.refuse(true, "rollback: the step loop has not begun")
	case *q.Step < r.spec.FirstStep:
		return r.refuse(true, fmt.Sprintf("rollback: step %d is before the first step of lineage %s, %d", *q.Step, r.spec.Lineage, r.spec.FirstStep))
	case *q.Step > r.progress.Step:
		return r.refuse(true, fmt.Sprintf("rollback: step %d is not trained in lineage %s, the newest is %d", *q.Step, r.spec.Lineage, r.progress.Step))
	}
	return r.refuse(false, "")
}

// rollBack answers the update. The new lineage is opened while the loop still trains, so that a refusal costs nothing; then the loop is
// cancelled, which closes its ledger, and stages starts the next one. The answer comes when that has its state.
func (r *run) rollBack(ctx workflow.Context, raw, _ converter.RawValue) (contract.RollbackResult, error) {
	q, err := decode[contract.RollbackRequest](contract.UpdateRollback, raw)
	if err != nil {
		return contract.RollbackResult{}, temporal.NewApplicationError(err.Error(), string(fault.Invalid)) // sure has refused it
	}
	b := &rollback{step: *q.Step}
	r.back = b
	r.warning = ""
	old := r.spec
	r.show(ctx, r.progress.Phase)
	opened, err := contract.OpenLineageActivity.Do(control(ctx, old.Timeouts, fmt.Sprintf("open a lineage from step %d", b.step)),
		contract.OpenLineageRequest{RunKey: old.RunKey, Step: b.step, ID: workflow.GetCurrentUpdateInfo(ctx).ID})
	if err == nil && !r.loopRuns && r.loopOpen {
		err = workflow.Await(ctx, func() bool { return r.loopRuns || !r.loopOpen }) // what has not started cannot close its ledger
	}
	if err != nil {
		r.back = nil
		return contract.RollbackResult{}, err
	}
	b.next = old
	b.next.Lineage, b.next.FirstStep = opened.Lineage, b.step
	b.next.Cursor, b.next.NextGroup = opened.Start.Cursor, opened.Start.NextGroup
	r.endLoop()
	if err := workflow.Await(ctx, func() bool { return b.done }); err != nil {
		return contract.RollbackResult{}, err
	}
	return contract.RollbackResult{Lineage: opened.Lineage, Parent: old.Lineage, Step: b.step}, b.err
}

// rolledBack reports whether the loop that has ended makes room for another lineage. A rollback that is still being opened decides it
// when it is: the loop may have ended by itself meanwhile.
func (r *run) rolledBack(ctx workflow.Context) bool {
	if r.back == nil {
		return false
	}
	err := workflow.Await(ctx, func() bool { return r.back == nil || r.back.next.Lineage != "" })
	return err == nil && r.back != nil && ctx.Err() == nil
}

// beginLineage makes the new lineage the run's own: its first version is published, and the progress is that after the step.
// ended is the error of the old loop.
func (r *run) beginLineage(ctx workflow.Context, ended error) error {
	b, old := r.back, r.spec
	text := fmt.Sprintf("rolled back from step %d to the state after step %d of lineage %s; lineage %s goes on",
		r.progress.Step, b.step, old.Lineage, b.next.Lineage)
	if ended != nil && !temporal.IsCanceledError(ended) {
		recordEvent(ctx, old, "loop-failed", string(kindOf(ended)), "TrainLoop", message(ended), r.progress.Step)
	}
	recordEvent(ctx, old, "rolled-back", eventRolledBack, "TrainRun", text, b.step)
	r.writeReport(ctx, "write the report of lineage "+old.Lineage, false)

	was := r.progress // messages may have changed it until now
	r.past.trained, r.past.drops = r.past.trained+was.Trained, r.past.drops+was.Drops
	r.settings = settingsAfter(r.settings, was.Step, b.step)
	r.spec = b.next
	r.progress = contract.Progress{
		Lineage: r.spec.Lineage, Step: b.step, Steps: r.spec.Steps, Paused: was.Paused, Dataset: was.Dataset, Settings: r.settings,
		Dev: slices.DeleteFunc(slices.Clone(was.Dev), func(d contract.DevRow) bool { return d.Version > b.step }),
	}
	r.show(ctx, "rolling back")
	recordEvent(ctx, r.spec, "rolled-back", eventRolledBack, "TrainRun", text, b.step)
	return r.initPolicy(ctx, fmt.Sprintf("state after step %d, publish it in lineage %s", b.step, r.spec.Lineage))
}

// eventRolledBack is the kind of the event that a lineage ends or begins by a rollback.
const eventRolledBack = "rolled_back"

// endRollback answers the update.
func (r *run) endRollback(err error) {
	if r.back != nil {
		r.back.done, r.back.err = true, err
		r.back = nil
	}
}

// errEnded answers a rollback that the end of the run overtook.
var errEnded = errors.New("the run ended before it was rolled back")

// settingsAfter returns what messages have changed for a lineage that begins after step n of one at step at: what is in force now
// holds from its first step on, and changes of the learning rate that lie ahead keep their step.
func settingsAfter(s contract.Settings, at, n int) contract.Settings {
	var rates []contract.Rate
	if now := rateAt(s.Rates, at+1); now > 0 {
		rates = append(rates, contract.Rate{From: n + 1, LearningRate: now})
	}
	for _, r := range s.Rates {
		if r.From > at+1 {
			rates = append(rates, r)
		}
	}
	s.Rates = rates
	return s
}
