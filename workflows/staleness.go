package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// deadline returns the last step that may train a group with this tag.
func deadline(tag, threshold int) int { return tag + threshold - 1 }

// choose returns the batch of step t: the oldest finished groups, `size` of them; nil if there are fewer. open is ordered by
// number, and so by tag.
//
// With wait, the batch must also leave the others in time: for every deadline d, the groups that stay and must be trained up to
// step d must fit into the steps t+1..d. A batch of the oldest finished groups takes as many with a deadline up to d as
// any batch can, for every d, so if it is not enough the step waits for a group that is still running. What is
// too old already (only a lowered threshold makes such groups) is not waited for, and more than one batch cannot be demanded
// of one step.
func choose(open []contract.OpenGroup, t, size, threshold int, wait bool) []contract.OpenGroup {
	var batch []contract.OpenGroup
	for _, g := range open {
		if g.Done && len(batch) < size {
			batch = append(batch, g)
		}
	}
	if len(batch) < size || wait && !leavesTime(open, batch, t, size, threshold) {
		return nil
	}
	return batch
}

func leavesTime(open, batch []contract.OpenGroup, t, size, threshold int) bool {
	due := func(groups []contract.OpenGroup, d int) int {
		n := 0
		for _, g := range groups {
			if e := deadline(g.Tag, threshold); t <= e && e <= d {
				n++
			}
		}
		return n
	}
	for d := t; d <= deadline(t, threshold); d++ {
		if due(batch, d) < min(due(open, d)-(d-t)*size, size) {
			return false
		}
	}
	return true
}

// cull drops the groups that step `at` or a later one cannot train, and fills up again with groups of the tag `now`: those that failed,
// those that finished too late, and with the policy cancel_early also those that are still running and would finish too late;
// these are cancelled.
func (l *loop) cull(at, now, ahead int) error {
	var keep, failed []contract.OpenGroup
	dropped := 0
	for _, g := range l.st.Open {
		reason := ""
		late := at > deadline(g.Tag, l.threshold())
		switch {
		case g.Failed != "":
			reason = "infrastructure"
			l.faults++
			l.fault = g.Failed
			l.countFault(g.N, now)
			failed = append(failed, g)
			if l.build == workflow.DefaultVersion { // a report that comes during this call is lost: keep is a copy
				l.noteFailed(g, now)
			}
		case late && (g.Done || l.spec.Policy == contract.PolicyCancelEarly):
			reason = "stale"
		}
		if reason == "" {
			keep = append(keep, g)
			continue
		}
		dropped++
		if !g.Done && reason == "stale" {
			l.cancel(g.GroupRef)
		}
		l.drop(g, reason)
		l.st.Cursor.Returned = append(l.st.Cursor.Returned, record.Returned{Problem: g.Problem, Submission: g.Submission + 1})
	}
	l.st.Open = keep
	alarmed := l.st.Alarm != ""
	alarm := l.raiseAlarm(now)
	if l.build > workflow.DefaultVersion {
		for _, g := range failed {
			l.noteFailed(g, now)
		}
	}
	if alarm != nil {
		return alarm
	}
	if l.st.Alarm != "" && !alarmed {
		l.event(eventAlarm, "TrainLoop", l.st.Alarm, now)
	}
	if limit := 2 * l.spec.BatchProblems; l.spec.FaultLimit == 0 && l.faults > limit {
		return temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("%d groups were lost to infrastructure faults in step %d, the limit is %d; the newest: %s", l.faults, now, limit, l.fault),
			string(fault.Infrastructure), nil)
	}
	if dropped == 0 {
		return nil
	}
	return l.fill(now, ahead, dropped)
}

func (l *loop) noteFailed(g contract.OpenGroup, step int) {
	l.event("infrastructure", fmt.Sprintf("group %d", g.N), "dropped: "+g.Failed, step)
}

// cancel ends a group. Its outcome is nobody's business any more: a report that crosses the request is one of a group that is not open.
func (l *loop) cancel(g contract.GroupRef) {
	f := workflow.RequestCancelExternalWorkflow(l.ctx, contract.GroupID(l.spec.Scope(), g.N), "")
	workflow.Go(l.ctx, func(ctx workflow.Context) {
		if err := f.Get(ctx, nil); err != nil { // it ended in the meantime
			l.log(ctx).Debug("a group was not cancelled", "group", g.N, "error", err)
		}
	})
}
