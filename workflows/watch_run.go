package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
)

// changeWatchRun marks histories in which TrainRun watches its stages.
const changeWatchRun = "watch-run"

// watch looks, every Timeouts.Stall until the function that it returns is called, at the workflows that do a stage outside the step loop. One
// whose pending activity shows the same as at the look before makes no progress: it is named in the details and, once, as
// an event. The activities' own bounds end it. Runs of older builds are not watched.
func (r *run) watch(ctx workflow.Context, stage string, ids ...string) (stop func()) {
	every := r.spec.Timeouts.Stall
	if every <= 0 || workflow.GetVersion(ctx, changeWatchRun, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return func() {}
	}
	wctx, cancel := workflow.WithCancel(ctx)
	spec := r.spec // a rollback may give the run another
	workflow.Go(wctx, func(ctx workflow.Context) {
		marks, named := make([]uint32, len(ids)), make([]bool, len(ids))
		for {
			o := workflow.TimerOptions{Summary: "look for what stands still"}
			if err := workflow.NewTimerWithOptions(ctx, every, o).Get(ctx, nil); err != nil {
				return
			}
			r.look(ctx, spec, stage, ids, marks, named)
		}
	})
	return func() {
		cancel()
		r.progress.Stalled = nil
	}
}

// look asks about the workflows once. marks are those of the look before, and named those of which an event tells; both are renewed.
func (r *run) look(ctx workflow.Context, spec contract.RunSpec, stage string, ids []string, marks []uint32, named []bool) {
	ask := bounded(control(ctx, spec.Timeouts, "ask how far "+stage+" is"), spec.Timeouts.Stall, 10)
	res, err := contract.InspectActivity.Do(ask, contract.InspectRequest{RunKey: spec.RunKey, Workflows: ids})
	switch {
	case ctx.Err() != nil: // the stage is over
		return
	case err != nil || len(res.Found) != len(ids):
		workflow.GetLogger(ctx).Warn("a stage could not be asked about", "stage", stage, "error", err)
		return // no answer is no news; the next look asks again
	}
	r.progress.Stalled = nil
	for i, w := range res.Found {
		before := marks[i]
		marks[i] = w.Mark
		if !w.Open || w.Mark == 0 || w.Mark != before {
			named[i] = false
			continue
		}
		text := fmt.Sprintf("%s: no progress for %s: %s", stage, spec.Timeouts.Stall.Round(time.Second), w.Doing)
		r.progress.Stalled = append(r.progress.Stalled, text)
		if !named[i] {
			named[i] = true
			r.events++
			recordEvent(ctx, spec, fmt.Sprintf("run-%06d", r.events), eventStalled, ids[i], text, r.progress.Step)
		}
	}
	r.show(ctx, r.progress.Phase)
}
