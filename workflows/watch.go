package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
)

// watch asks, once in every Timeouts.Stall, the server about groups that have not reported for as long, and looks at the step in
// progress.
//
// A group that is closed without a report counts as failed: it was terminated, or it ended in a way that only the run of the chain that
// started it would have learnt. So every group has an end that the loop knows of, at the latest two such intervals after it closed. A group
// that is open, and whose pending activity shows the same as at the time it was asked about before, stands still: it
// is named in the details and, once, as an event. The moment of the next question is part of the state, so that short runs of the
// chain do not put it off for ever. Runs of older builds have no such bound and are not watched.
func (l *loop) watch() {
	every := l.spec.Timeouts.Stall
	if every <= 0 {
		return
	}
	// What an older run of the chain noted lies ahead if the server's clock was set back since; within a run, time never goes back.
	now := workflow.Now(l.ctx)
	if next := now.Add(every).Unix(); l.st.AskAt == 0 || l.st.AskAt > next {
		l.st.AskAt = next
	}
	for i := range l.st.Open {
		l.st.Open[i].At = min(l.st.Open[i].At, now.Unix())
	}
	workflow.Go(l.ctx, func(ctx workflow.Context) {
		for {
			wait := max(time.Unix(l.st.AskAt, 0).Sub(workflow.Now(ctx)), time.Second)
			o := workflow.TimerOptions{Summary: "look for what stands still"}
			if err := workflow.NewTimerWithOptions(ctx, wait, o).Get(ctx, nil); err != nil {
				return
			}
			l.st.AskAt = workflow.Now(ctx).Add(every).Unix()
			l.stalled = nil
			l.askGroups(ctx, every)
			l.lookAtStage(ctx, every)
			l.show(l.phase)
		}
	})
}

// askGroups asks about the groups that were sent out at least `silence` ago and have not reported.
func (l *loop) askGroups(ctx workflow.Context, silence time.Duration) {
	var silent []contract.GroupRef
	for _, g := range l.st.Open {
		if !g.Done && g.Failed == "" && workflow.Now(ctx).Unix()-g.At >= int64(silence.Seconds()) {
			silent = append(silent, g.GroupRef)
		}
	}
	for len(silent) > 0 {
		some := silent[:min(len(silent), contract.MaxInspect)]
		silent = silent[len(some):]
		q := contract.InspectRequest{RunKey: l.spec.RunKey}
		for _, g := range some {
			q.Workflows = append(q.Workflows, contract.GroupID(l.spec.Scope(), g.N))
		}
		ask := control(ctx, l.spec.Timeouts, fmt.Sprintf("ask about %d groups without a report", len(some)))
		res, err := contract.InspectActivity.Do(bounded(ask, silence, 10), q)
		if err != nil || len(res.Found) != len(some) {
			l.log(ctx).Warn("silent groups could not be asked about", "error", err)
			return // no answer is no news; the next time asks again
		}
		if err := l.settle(ctx); err != nil {
			return
		}
		l.drain() // a report that came meanwhile is older than the answer, and counts
		for i, g := range some {
			l.applyAnswer(ctx, g, res.Found[i], silence)
		}
	}
}

func (l *loop) applyAnswer(ctx workflow.Context, ref contract.GroupRef, w contract.Inspected, silence time.Duration) {
	if !w.Open {
		l.applyDone(contract.GroupDone{
			N: ref.N, Tag: ref.Tag, Failed: string(fault.Lost) + ": its workflow is closed (" + w.Status + ") and has not reported",
		}, nil)
		return
	}
	g := l.openGroup(ref)
	if g == nil || g.Done || g.Failed != "" {
		return
	}
	before := g.Mark
	g.Mark = w.Mark
	if w.Mark == 0 || w.Mark != before {
		g.Named = false
		return
	}
	text := fmt.Sprintf("group %d: no progress for %s: %s", ref.N, silence, w.Doing)
	l.stalled = append(l.stalled, text)
	if !g.Named {
		g.Named = true
		l.eventIn(ctx, eventStalled, contract.GroupID(l.spec.Scope(), ref.N), text, l.st.Step+1)
	}
}

// whatRuns says what the loop's own activity is at, or that of the validation in progress; empty if the server does not say.
func (l *loop) whatRuns(ctx workflow.Context, silence time.Duration) string {
	q := contract.InspectRequest{RunKey: l.spec.RunKey, Workflows: []string{contract.LoopID(l.spec.Scope())}}
	if l.validating != "" {
		q.Workflows = append(q.Workflows, contract.ValidateID(l.spec.Scope(), l.validating))
	}
	res, err := contract.InspectActivity.Do(bounded(control(ctx, l.spec.Timeouts, "ask what the stage waits for"), silence, 10), q)
	if err != nil {
		workflow.GetLogger(ctx).Warn("a stage could not be asked about", "stage", l.stage, "error", err)
		return ""
	}
	for _, w := range res.Found {
		if w.Open && w.Doing != "" {
			return ": " + w.Doing
		}
	}
	return ""
}

// openGroup returns the group if it is neither trained nor dropped.
func (l *loop) openGroup(ref contract.GroupRef) *contract.OpenGroup {
	for i := range l.st.Open {
		if l.st.Open[i].GroupRef == ref {
			return &l.st.Open[i]
		}
	}
	return nil
}

// eventStalled is the kind of the event that something makes no progress.
const eventStalled = "stalled"

// enter says what the step does from now on.
func (l *loop) enter(stage string) {
	l.stage, l.since, l.named = stage, workflow.Now(l.ctx), false
}

// lookAtStage names a stage of the step that has had no news for `silence`. What ends it is its activities' own bounds.
func (l *loop) lookAtStage(ctx workflow.Context, silence time.Duration) {
	quiet := workflow.Now(ctx).Sub(l.since)
	if l.stage == "" || l.st.Paused || quiet < silence {
		return
	}
	text := fmt.Sprintf("step %d: %s, without news for %s", l.st.Step+1, l.stage, quiet.Round(time.Second))
	if l.build >= buildTell {
		stage := l.stage
		if text += l.whatRuns(ctx, silence); l.stage != stage {
			return // it has ended meanwhile
		}
	}
	l.stalled = append(l.stalled, text)
	if !l.named {
		l.named = true
		l.eventIn(ctx, eventStalled, "TrainLoop", text, l.st.Step+1)
	}
}
