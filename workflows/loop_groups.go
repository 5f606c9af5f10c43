package workflows

import (
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rng"
)

// changeFill marks with which build a run of the loop's chain began: its version is one of those below, and DefaultVersion for the oldest.
const changeFill = "fill"

const (
	buildFill workflow.Version = 1 // fill fills up to a number of groups; before, it sent a number of them out
	buildTell workflow.Version = 2 // see tellValidation, settle and sayLast
)

// fill sends out groups with tag t until prefill + ahead batches are open. A history of an older build sends out exactly as many as
// it did, which is old.
func (l *loop) fill(t, ahead, old int) error {
	if l.build == workflow.DefaultVersion {
		return l.submit(t, old)
	}
	if l.st.Alarm != "" { // what would fail too is not sent out
		return nil
	}
	return l.submit(t, (l.prefill()+ahead)*l.spec.BatchProblems-len(l.st.Open))
}

// submit sends out n fresh groups with tag t, but never more than the steps that are not sealed can use, nor more than the server
// bears at once.
func (l *loop) submit(t, n int) error {
	n = min(n, (l.last()-l.sealed)*l.spec.BatchProblems-len(l.st.Open), max(mostOpen, l.spec.BatchProblems)-len(l.st.Open))
	var started []workflow.Future
	for range max(n, 0) {
		g := l.nextGroup(t)
		started = append(started, l.startGroup(g))
	}
	for _, f := range started {
		err := f.Get(l.ctx, nil)
		// After a reset a group of the old history may still run under the same id; it reports by signal.
		if err != nil && !temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			return err
		}
	}
	return nil
}

func (l *loop) nextGroup(t int) contract.GroupRef {
	g := contract.GroupRef{N: l.st.NextGroup, Tag: t}
	l.st.NextGroup++
	c := &l.st.Cursor
	if len(c.Returned) > 0 {
		g.Problem, g.Submission = c.Returned[0].Problem, c.Returned[0].Submission
		c.Returned = c.Returned[1:]
	} else {
		if c.Next == l.spec.TrainProblems {
			c.Epoch, c.Next = c.Epoch+1, 0
		}
		g.Problem = l.order.at(l.spec.Seed, c.Epoch, l.spec.TrainProblems, c.Next)
		c.Next++
	}
	l.st.Open = append(l.st.Open, contract.OpenGroup{GroupRef: g, At: workflow.Now(l.ctx).Unix()})
	l.st.Submitted = append(l.st.Submitted, record.Submitted{N: g.N, Problem: g.Problem, Tag: g.Tag, Submission: g.Submission})
	return g
}

func (l *loop) startGroup(g contract.GroupRef) workflow.Future {
	ctx := workflow.WithChildOptions(l.ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            contract.GroupID(l.spec.Scope(), g.N),
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:         fmt.Sprintf("problem %d, tag %d", g.Problem, g.Tag),
	})
	child := workflow.ExecuteChildWorkflow(ctx, contract.RolloutGroup, contract.GroupInput{
		RunKey: l.spec.RunKey, GroupRef: g, Samples: l.spec.GroupSize, MinVersion: l.st.Step,
		Pin: l.spec.Mode == "sync", Timeouts: l.spec.Timeouts,
	})
	workflow.Go(l.ctx, func(ctx workflow.Context) {
		var out contract.GroupOutput
		err := child.Get(ctx, &out)
		l.applyEnd(g, out, err)
	})
	return child.GetChildWorkflowExecution()
}

// applyEnd counts a group as failed that ended without a report, because a person terminated or cancelled it: nobody else
// would tell, and the step would wait for it for ever. A group that reported is done or failed already, or no longer open.
func (l *loop) applyEnd(g contract.GroupRef, out contract.GroupOutput, err error) {
	switch {
	case l.ctx.Err() != nil: // all groups end
	case temporal.IsWorkflowExecutionAlreadyStartedError(err): // that of a history before a reset; it reports
	case err != nil:
		l.applyDone(contract.GroupDone{N: g.N, Tag: g.Tag, Failed: string(fault.Lost) + ": the group's workflow ended without a report: " + clip(message(err), 300)}, nil)
	case out.Ended == "run_closed":
		l.applyDone(contract.GroupDone{N: g.N, Tag: g.Tag, Failed: string(fault.Lost) + ": the group took the loop for closed"}, nil)
	}
}

// permutation caches the order of the problems of one epoch.
type permutation struct {
	epoch int
	perm  []int
}

func (p *permutation) at(seed uint64, epoch, n, i int) int {
	if p.perm == nil || p.epoch != epoch {
		p.epoch, p.perm = epoch, rng.New(seed, rng.Data, epoch).Perm(n)
	}
	return p.perm[i]
}

// listen applies messages as they come; drain applies what is left before continue-as-new.
func (l *loop) listen() {
	workflow.Go(l.ctx, func(ctx workflow.Context) {
		s := workflow.NewSelector(ctx)
		s.AddReceive(l.groupDone(), func(c workflow.ReceiveChannel, _ bool) { l.applyDone(receive[contract.GroupDone](ctx, c)) })
		s.AddReceive(l.control(), func(c workflow.ReceiveChannel, _ bool) { l.applyControl(receive[contract.Control](ctx, c)) })
		for ctx.Err() == nil {
			s.Select(ctx)
		}
	})
}

// settle lets the listener run once. A message that came with the task in hand may be with its selector already, where drain
// does not find it: without this it would be lost with the run of the chain. What a message changes can be an event to write, so a
// history of an older build replays without it.
func (l *loop) settle(ctx workflow.Context) error {
	if l.build < buildTell {
		return nil
	}
	waited := false
	return workflow.Await(ctx, func() bool {
		defer func() { waited = true }()
		return waited
	})
}

func (l *loop) drain() {
	drain(l.groupDone(), l.applyDone)
	drain(l.control(), l.applyControl)
}

// unreadable reports whether a signal could not be read, and logs that it changes nothing.
func (l *loop) unreadable(err error) bool {
	if err != nil {
		l.log(l.ctx).Warn("a signal was not applied", "error", err)
	}
	return err != nil
}

func (l *loop) groupDone() workflow.ReceiveChannel {
	return workflow.GetSignalChannel(l.ctx, contract.SignalGroupDone)
}

func (l *loop) control() workflow.ReceiveChannel {
	return workflow.GetSignalChannel(l.ctx, contract.SignalControl)
}

// applyDone is idempotent: a second message of a group, or one of a group that is not open, changes nothing.
func (l *loop) applyDone(d contract.GroupDone, err error) {
	if l.unreadable(err) {
		return
	}
	for i := range l.st.Open {
		g := &l.st.Open[i]
		if g.N == d.N && g.Tag == d.Tag && !g.Done && g.Failed == "" {
			g.Done, g.Failed, g.Tokens = d.Failed == "", d.Failed, d.Tokens
			l.changed++
			l.since = workflow.Now(l.ctx)
		}
	}
}

func (l *loop) applyControl(q contract.Control, err error) {
	if l.unreadable(err) {
		return
	}
	if q.Pause {
		l.st.Paused = true
	}
	if q.Resume {
		l.st.Paused = false
		l.endAlarm()
	}
	if q.StopAt > 0 {
		l.st.StopAt = max(q.StopAt, l.st.Step+1)
	}
	l.notes = append(l.notes, applySettings(&l.st.Settings, q, l.sealed+1)...)
	l.changed++
}
