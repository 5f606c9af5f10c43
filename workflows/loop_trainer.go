package workflows

import (
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// maxReacquire bounds how often one piece of work may lose its trainer before the run gives up. Trainers that only fell silent count
// up to maxSilent: that may be the load of a machine.
const (
	maxReacquire = 10
	maxSilent    = 100
)

// onTrainer runs work on the acquired trainer. A host that is dead, drained or fenced off is forgotten and
// another one acquired; the work is exactly-once by itself.
func (l *loop) onTrainer(what string, t int, work func(workflow.Context, contract.Trainer) error) error {
	lost, silent := 0, 0
	for {
		if l.st.Trainer.Queue == "" {
			if err := l.acquire(t); err != nil {
				return err
			}
		}
		err := work(l.ctx, l.st.Trainer)
		if err == nil || temporal.IsCanceledError(err) {
			return err
		}
		switch kindOf(err) {
		case fault.Lost, fault.Stale:
			if fellSilent(err) {
				silent++
			} else {
				lost++
			}
			if lost >= maxReacquire || silent >= maxSilent {
				return err
			}
			l.event(string(kindOf(err)), l.st.Trainer.Host, fmt.Sprintf("trainer lost during %s: %s", what, message(err)), t)
			l.st.Trainer = contract.Trainer{}
			l.st.Restarts++
		default:
			return err
		}
	}
}

// fellSilent reports whether work ended because its heartbeats did, or because nobody took it: the trainer died before, or a server that
// was away or a machine that is slow kept it from asking in time.
func fellSilent(err error) bool {
	t, ok := errors.AsType[*temporal.TimeoutError](err)
	return ok && (t.TimeoutType() == enumspb.TIMEOUT_TYPE_HEARTBEAT || t.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START)
}

// acquire takes a trainer. After a loss the run's standbys are asked first, since they need not restore or replay.
func (l *loop) acquire(t int) error {
	if l.st.Restarts > 0 && workflow.GetVersion(l.ctx, changeStandby, workflow.DefaultVersion, 1) == 1 {
		trainer, err := contract.AcquireTrainerActivity.Do(offer(l.ctx, l.spec.Run, l.spec.Timeouts), contract.AcquireRequest{RunKey: l.spec.RunKey})
		if err == nil {
			l.acquired(t, trainer)
			return nil
		}
		if temporal.IsCanceledError(err) {
			return err
		} // no standby, or it died meanwhile: any trainer will do
	}
	ctx := class(l.ctx, contract.QueueTrainer, l.spec.Timeouts.Control, l.spec.Timeouts, "acquire a trainer")
	trainer, err := contract.AcquireTrainerActivity.Do(ctx, contract.AcquireRequest{RunKey: l.spec.RunKey})
	if err != nil {
		return err
	}
	l.acquired(t, trainer)
	return nil
}

// changeStandby marks histories in which standbys are asked.
const changeStandby = "standby"

func (l *loop) acquired(t int, trainer contract.Trainer) {
	l.st.Trainer = trainer
	if l.st.Restarts == 0 {
		return
	}
	text := fmt.Sprintf("trainer epoch %d", trainer.Epoch)
	if trainer.Standby {
		text += ", a standby that held the state"
	}
	l.event("reacquired", trainer.Host, text, t)
}

func (l *loop) update(t int, sealed contract.SealBatchResult) (contract.UpdateResult, error) {
	var res contract.UpdateResult
	err := l.onTrainer("update", t, func(ctx workflow.Context, trainer contract.Trainer) error {
		ctx = onHost(ctx, trainer, l.spec.Timeouts, fmt.Sprintf("step %d: update the policy", t))
		var err error
		res, err = contract.UpdatePolicyActivity.Do(ctx, contract.UpdateRequest{
			RunKey: l.spec.RunKey, Step: t, Batch: sealed.Batch, Epoch: trainer.Epoch,
		})
		return err
	})
	if err == nil && res.Restored && t > l.spec.FirstStep+1 {
		l.event("restored", l.st.Trainer.Host, fmt.Sprintf("restored a checkpoint and replayed %d sealed batches", res.Replayed), t)
	}
	return res, err
}

// event records a failure or recovery for the report. It is best effort by design: the run must not stop because a note of
// a fault could not be written.
func (l *loop) event(kind, where, text string, step int) { l.eventIn(l.ctx, kind, where, text, step) }

// eventIn is event in the coroutine of ctx.
func (l *loop) eventIn(ctx workflow.Context, kind, where, text string, step int) {
	l.st.Events++
	recordEvent(ctx, l.spec, fmt.Sprintf("loop-%06d", l.st.Events), kind, where, text, step)
}

func recordEvent(ctx workflow.Context, spec contract.RunSpec, id, kind, where, text string, step int) {
	now := workflow.Now(ctx).UTC()
	note := bounded(control(ctx, spec.Timeouts, "note: "+kind), 2*spec.Timeouts.Control, 10)
	f := contract.RecordEventActivity.Start(note, contract.EventRequest{
		RunKey: spec.RunKey, ID: now.Format("20060102T150405.000") + "-" + id,
		Event: record.Event{Time: now.Format("2006-01-02T15:04:05.000Z07:00"), Kind: kind, Where: where, Message: clip(text, 2000), Step: step},
	})
	if err := f.Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Warn("an event was not recorded", "event", kind, "step", step, "error", err)
	}
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}

func (l *loop) progress() contract.Progress {
	done := 0
	for _, g := range l.st.Open {
		if g.Done {
			done++
		}
	}
	return contract.Progress{
		Phase: l.phase, Lineage: l.spec.Lineage, Step: l.st.Step, Steps: l.last(), Paused: l.st.Paused, Trainer: l.st.Trainer.Host,
		Open: len(l.st.Open), Done: done, Drops: l.st.Drops, Trained: l.st.Trained, Dev: l.st.Dev, Last: l.st.Last,
		Settings: l.st.Settings, Alarm: l.st.Alarm, Stalled: l.stalled[:min(len(l.stalled), 8)],
	}
}

func (l *loop) show(phase string) {
	l.phase = phase
	workflow.SetCurrentDetails(l.ctx, runDetails(l.progress(), nil, "", "", ""))
}

// report shows step t, and tells TrainRun often enough for a person and seldom enough for its history.
func (l *loop) report(t int) {
	l.show("training")
	upsert(l.ctx, l.spec, l.progress())
	if every := 1 + (l.spec.Steps-l.spec.FirstStep)/mostReports; t%every == 0 || t == l.last() {
		l.tellRun()
	}
}

// log is the logger of ctx with the step in progress; run, lineage and role come from the workflow's id and queue.
func (l *loop) log(ctx workflow.Context) log.Logger {
	return log.With(workflow.GetLogger(ctx), "step", l.st.Step+1)
}

// mostReports bounds the messages of progress to TrainRun, whose history holds them all, and as many of validations.
const mostReports = 500

// tellValidation tells TrainRun of a validation that has ended. Where there are too many for a message each, the next report has their rows.
func (l *loop) tellValidation() {
	if n := l.spec.Steps - l.spec.FirstStep; l.build >= buildTell && l.spec.ValidateEvery > 0 && n/l.spec.ValidateEvery > mostReports {
		return
	}
	l.tellRun()
}

func (l *loop) tellRun() { l.tellRunIn(l.ctx) }

// tellRunIn sends TrainRun the progress, with the rows of the dev table that it was not told of.
func (l *loop) tellRunIn(ctx workflow.Context) {
	p := l.progress()
	p.Dev = l.st.Untold
	if err := workflow.SignalExternalWorkflow(ctx, l.spec.Run, "", contract.SignalProgress, p).Get(ctx, nil); err != nil {
		l.log(ctx).Debug("the run does not listen", "error", err)
		return
	}
	l.st.Untold = nil
}
