package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// TrainRun is a whole run: data set, policy version 0, step-0 validation, step loop, export, report. The
// workflow id is the run's name, chosen by the user.
//
// Input: the configuration as JSON, as `steady config print --json` prints it. Messages: updates and signals
// pause, resume, stop_after_step, set_learning_rate, set_threshold, set_prefill; update rollback, see rollBack; query progress. An update is answered when the
// loop's history has it, or, before the loop starts, when this one's has. Ends with contract.RunOutput; the first failure of a
// stage that cannot be cured ends the run, after a report was written. Cancel cancels the loop and all
// groups, keeps everything that is finished, and writes the report. Its history grows by a few events a progress message, of which a loop sends at
// most about 1,000, and the dev table is a selection of bounded size. Between two lineages it continues as new if the server suggests it; at is then what it
// had, and nil at the start.
func TrainRun(ctx workflow.Context, input json.RawMessage, at *contract.RunState) (contract.RunOutput, error) {
	r := &run{input: input, progress: contract.Progress{Phase: "starting"}}
	if at != nil {
		r.restore(*at)
	}
	if err := r.handlers(ctx); err != nil {
		return contract.RunOutput{}, err
	}
	out, err := r.stages(ctx, at == nil)
	if workflow.IsContinueAsNewError(err) {
		return contract.RunOutput{}, err
	}
	r.endRollback(errEnded)
	r.finish(ctx, &out, err)
	return out, err
}

type run struct {
	input    json.RawMessage // the configuration
	spec     contract.RunSpec
	progress contract.Progress
	export   *contract.ExportOutput
	failure  string
	warning  string // why the last signal had no effect
	report   string
	events   int                          // number of the newest event of watch
	past     struct{ trained, drops int } // of the lineages that rollbacks have ended
	loopOpen bool
	loopRuns bool              // the server has started the loop, so that it can be told things
	settings contract.Settings // as the loop has them
	heard    []heard           // in the order in which they are looked at
	stopAt   int               // of the newest stop_after_step

	endLoop   func()    // cancels the loop that runs
	loopEnded bool      // there will be no other loop
	back      *rollback // in progress; nil: none
}

// stages goes through the run, without what comes before the first step loop if that is done.
func (r *run) stages(ctx workflow.Context, first bool) (contract.RunOutput, error) {
	if first {
		if err := r.begin(ctx); err != nil {
			return contract.RunOutput{}, err
		}
	}
	loop, err := r.train(ctx)
	if err != nil {
		return contract.RunOutput{}, err
	}
	r.progress.Step, r.progress.Dev = loop.Step, contract.MergeDev(r.progress.Dev, loop.Dev, contract.MaxDevRows)
	out := contract.RunOutput{
		Step: loop.Step, Dev: r.progress.Dev, StateDigest: loop.State, WeightsDigest: loop.Weights,
		Trained: loop.Trained, Drops: loop.Drops,
	}
	if r.spec.Lineage != record.FirstLineage {
		out.Lineage = r.spec.Lineage
		out.TrainedAll, out.DropsAll = r.past.trained+loop.Trained, r.past.drops+loop.Drops
	}

	r.show(ctx, "exporting")
	var export contract.ExportOutput
	scope := r.spec.Scope()
	stop := r.watch(ctx, "the export", contract.ExportID(scope, loop.Step), contract.ValidateID(scope, "export"))
	err = workflow.ExecuteChildWorkflow(r.child(ctx, contract.ExportID(scope, loop.Step), "export, verify, run the dev set again"),
		contract.ExportModel, contract.ExportInput{Spec: r.spec, Step: loop.Step}).Get(ctx, &export)
	stop()
	if err != nil {
		return out, err
	}
	r.export = &export
	out.Export = export.Dir
	return out, nil
}

// begin opens the run, prepares its data and publishes its first version.
func (r *run) begin(ctx workflow.Context) error {
	info := workflow.GetInfo(ctx)
	id := info.WorkflowExecution.ID
	r.show(ctx, "starting")
	spec, err := contract.StartRunActivity.Do(control(ctx, bootstrap(), "check the configuration, open the run"),
		contract.StartRunRequest{Run: id, Owner: info.FirstRunID, Input: r.input})
	if err != nil {
		return err
	}
	r.spec = spec
	r.progress.Step, r.progress.Steps = spec.FirstStep, spec.Steps

	r.show(ctx, "preparing data")
	var data contract.DatasetResult
	stop := r.watch(ctx, "the data set", contract.DatasetID(id))
	err = workflow.ExecuteChildWorkflow(r.child(ctx, contract.DatasetID(id), "filter problems, check references, split"),
		contract.PrepareDataset, r.spec).Get(ctx, &data)
	stop()
	if err != nil {
		return err
	}
	r.spec.TrainProblems, r.spec.DevProblems = data.Train, data.Dev
	r.progress.Dataset = datasetLine(data)

	r.show(ctx, "publishing the initial policy")
	return r.initPolicy(ctx, "publish the initial policy")
}

// initPolicy publishes the version that the lineage begins with.
func (r *run) initPolicy(ctx workflow.Context, summary string) error {
	t := r.spec.Timeouts
	stop := r.watch(ctx, "the first version", r.spec.Run)
	defer stop()
	_, err := contract.InitPolicyActivity.Do(class(ctx, contract.QueueTrainer, t.Update, t, summary),
		contract.InitPolicyRequest{RunKey: r.spec.RunKey, Step: r.spec.FirstStep})
	return err
}

// train runs the step loop, and after each rollback another one in a new lineage.
func (r *run) train(ctx workflow.Context) (contract.LoopOutput, error) {
	for {
		out, err := r.loop(ctx)
		if !r.rolledBack(ctx) {
			r.loopEnded = true
			return out, err
		}
		if err := r.beginLineage(ctx, err); err != nil {
			r.endRollback(err)
			r.loopEnded = true
			return contract.LoopOutput{}, err
		}
		if err := r.continueAsNew(ctx); err != nil {
			r.loopEnded = true
			return contract.LoopOutput{}, err
		}
	}
}

// changeContinueRun is the change that a run whose history is long continues as new between two lineages.
const changeContinueRun = "continue-run"

// continueAsNew returns the error that starts the next run of the chain, with the new lineage, if the server suggests one. Nothing is open then: the old loop
// has ended, and its groups report to nobody.
func (r *run) continueAsNew(ctx workflow.Context) error {
	if !workflow.GetInfo(ctx).GetContinueAsNewSuggested() ||
		workflow.GetVersion(ctx, changeContinueRun, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return nil
	}
	r.endRollback(nil)
	// The next run hears neither of an update that this one has accepted nor of a signal that it has received, nor of a cancel. A signal that came with the
	// task in hand may be with its selector already, where no channel has it: the first look is too early.
	looked := false
	err := workflow.Await(ctx, func() bool {
		defer func() { looked = true }()
		open := slices.ContainsFunc(r.heard, func(h heard) bool { return h.signals.Len() > 0 })
		return looked && !open && workflow.AllHandlersFinished(ctx)
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	return workflow.NewContinueAsNewError(ctx, contract.TrainRun, r.input, &contract.RunState{
		Spec: r.spec, Progress: r.progress, Settings: r.settings, StopAt: r.stopAt, Events: r.events,
		PastTrained: r.past.trained, PastDrops: r.past.drops,
	})
}

// restore takes over what the run before in the chain had.
func (r *run) restore(at contract.RunState) {
	r.spec, r.progress, r.settings, r.stopAt, r.events = at.Spec, at.Progress, at.Settings, at.StopAt, at.Events
	r.past.trained, r.past.drops = at.PastTrained, at.PastDrops
}

// loop runs one step loop to its end.
func (r *run) loop(ctx workflow.Context) (contract.LoopOutput, error) {
	in := contract.LoopInput{Spec: r.spec, State: contract.LoopState{
		Step: r.spec.FirstStep, Cursor: r.spec.Cursor, NextGroup: r.spec.NextGroup,
		Dev:    contract.MergeDev(nil, r.progress.Dev, contract.LoopDevRows),
		Paused: r.progress.Paused, StopAt: r.stopAt, Settings: r.settings,
	}}
	r.show(ctx, "training")
	r.loopOpen = true
	lctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	r.endLoop = func() {
		r.loopOpen = false // what comes from now on is for the next one
		cancel()
	}
	f := workflow.ExecuteChildWorkflow(r.child(lctx, contract.LoopID(r.spec.Scope()), "step loop"), contract.TrainLoop, in)
	workflow.Go(ctx, func(ctx workflow.Context) {
		if err := f.GetChildWorkflowExecution().Get(ctx, nil); err == nil {
			r.loopRuns = true
		}
	})
	r.endRollback(nil)
	var out contract.LoopOutput
	err := f.Get(ctx, &out)
	r.loopOpen, r.loopRuns = false, false
	return out, err
}

// finish writes the report whatever happened, and the last details. It never hides err.
func (r *run) finish(ctx workflow.Context, out *contract.RunOutput, err error) {
	phase := "done"
	switch {
	case temporal.IsCanceledError(err):
		phase = "cancelled"
	case err != nil:
		phase = "failed"
		r.failure = message(err)
	}
	if r.spec.Run != "" {
		dctx, cancel := workflow.NewDisconnectedContext(ctx)
		defer cancel()
		if phase == "failed" {
			recordEvent(dctx, r.spec, "run-failed", string(kindOf(err)), "TrainRun", r.failure, r.progress.Step)
		}
		out.Report = r.writeReport(dctx, "write the report", true)
		r.report = out.Report
	}
	r.show(ctx, phase)
}

// writeReport writes the report of the lineage and returns its name, empty if it could not.
func (r *run) writeReport(ctx workflow.Context, summary string, final bool) string {
	ctx = bounded(control(ctx, r.spec.Timeouts, summary), 10*r.spec.Timeouts.Control, 30)
	rep, err := contract.WriteReportActivity.Do(ctx, contract.ReportRequest{RunKey: r.spec.RunKey, Final: final})
	if err != nil {
		workflow.GetLogger(ctx).Error("the report could not be written", "error", err)
		return ""
	}
	return rep.Report.Name
}

func (r *run) child(ctx workflow.Context, id, summary string) workflow.Context {
	return workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:          id,
		WaitForCancellation: true,
		StaticSummary:       summary,
	})
}

func (r *run) handlers(ctx workflow.Context) error {
	if err := workflow.SetQueryHandlerWithOptions(ctx, contract.QueryProgress, func() (contract.Progress, error) { return r.progress, nil },
		workflow.QueryHandlerOptions{Description: "phase, step, dev table and the numbers of the last step"}); err != nil {
		return err
	}
	r.hear(workflow.GetSignalChannel(ctx, contract.SignalProgress), func(ctx workflow.Context, c workflow.ReceiveChannel) {
		p, err := receive[contract.Progress](ctx, c)
		if err != nil {
			r.warn(ctx, err)
			return
		}
		if p.Lineage != "" && p.Lineage != r.spec.Lineage {
			return // of a loop that a rollback has ended
		}
		p.Dataset = r.progress.Dataset
		p.Dev = contract.MergeDev(r.progress.Dev, p.Dev, contract.MaxDevRows)
		r.progress = p
		r.settings.Rates = pruneRates(r.settings.Rates, p.Step+1)
		r.show(ctx, p.Phase)
	})
	err := errors.Join(
		r.plain(ctx, contract.UpdatePause, "stop before the next update; groups in flight go on", contract.Control{Pause: true},
			func() error { return r.refuse(r.progress.Paused, "the run is paused already") }),
		r.plain(ctx, contract.UpdateResume, "go on after a pause", contract.Control{Resume: true},
			func() error { return r.refuse(!r.progress.Paused, "the run is not paused") }),
		accept(ctx, r, contract.UpdateStop, "end the run well after a step", `{"step": N}, or 0 for the step in progress`,
			r.checkStop, func(q contract.StopRequest) contract.Control {
				return contract.Control{StopAt: max(q.Step, r.progress.Step+1)}
			}),
		accept(ctx, r, contract.UpdateRate, "set the learning rate, from a step on",
			`{"learning_rate": X, "from_step": N}, or without from_step for the next step`,
			r.checkRate, func(q contract.RateRequest) contract.Control {
				return contract.Control{Rate: contract.Rate{From: q.FromStep, LearningRate: q.LearningRate}}
			}),
		accept(ctx, r, contract.UpdateThreshold, "set the staleness threshold, from the next batch on", `{"threshold": N}`,
			r.checkThreshold, func(q contract.ThresholdRequest) contract.Control { return contract.Control{Threshold: q.Threshold} }),
		accept(ctx, r, contract.UpdatePrefill, "set how many batches are in flight ahead of the one in progress", `{"prefill": N}`,
			r.checkPrefill, func(q contract.PrefillRequest) contract.Control { return contract.Control{Prefill: q.Prefill} }),
		workflow.SetUpdateHandlerWithOptions(ctx, contract.UpdateRollback, r.rollBack, workflow.UpdateHandlerOptions{
			Validator: sure(r, contract.UpdateRollback, `{"step": N}`, r.checkRollback), Description: `go back to the state after a step, in a new lineage; nothing of the old one is changed: {"step": N}`,
		}),
	)
	if err != nil {
		return err
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		s := workflow.NewSelector(ctx)
		for _, h := range r.heard {
			s.AddReceive(h.signals, func(c workflow.ReceiveChannel, _ bool) { h.apply(ctx, c) })
		}
		for ctx.Err() == nil {
			s.Select(ctx)
		}
	})
	return nil
}

// heard is a signal with what it does. apply may block, so it is given the context of the coroutine that it runs in.
type heard struct {
	signals workflow.ReceiveChannel
	apply   func(ctx workflow.Context, c workflow.ReceiveChannel)
}

func (r *run) hear(signals workflow.ReceiveChannel, apply func(workflow.Context, workflow.ReceiveChannel)) {
	r.heard = append(r.heard, heard{signals, apply})
}

// plain accepts a command without input as an update and as a signal. Input is refused, as it would have no effect. check holds for the update only: a
// pause of a paused run is harmless, and a signal has no answer.
func (r *run) plain(ctx workflow.Context, name, doc string, c contract.Control, check func() error) error {
	signals := workflow.GetSignalChannelWithOptions(ctx, name, workflow.SignalChannelOptions{Description: "as the update"})
	r.hear(signals, func(ctx workflow.Context, ch workflow.ReceiveChannel) {
		_, err := receive[contract.NoRequest](ctx, ch)
		if err != nil && workflow.GetVersion(ctx, changeNoInput, workflow.DefaultVersion, 1) > workflow.DefaultVersion {
			r.warn(ctx, fmt.Errorf("%w; want %s", err, noInput))
			return
		}
		r.signalled(ctx, c)
	})
	return workflow.SetUpdateHandlerWithOptions(ctx, name, func(ctx workflow.Context, _, _ converter.RawValue) error { return r.command(ctx, c) },
		workflow.UpdateHandlerOptions{
			Validator: sure(r, name, noInput, func(contract.NoRequest) error { return check() }), Description: doc,
		})
}

// noInput is what a command without input wants.
const noInput = "no input"

// changeNoInput is the change that a signal without input is refused if it has some; older builds overlooked it.
const changeNoInput = "no-input"

// accept accepts a command with input T as an update and as a signal. What check refuses changes nothing: an update is answered with
// the reason, a signal leaves a warning.
func accept[T interface{ Doubt() error }](
	ctx workflow.Context, r *run, name, doc, want string, check func(T) error, control func(T) contract.Control,
) error {
	signals := workflow.GetSignalChannelWithOptions(ctx, name, workflow.SignalChannelOptions{Description: "as the update"})
	r.hear(signals, func(ctx workflow.Context, c workflow.ReceiveChannel) {
		q, err := receive[T](ctx, c)
		if err != nil {
			err = fmt.Errorf("%w; want %s", err, want)
		} else {
			err = check(q)
		}
		if doubt := q.Doubt(); err == nil && doubt != nil &&
			workflow.GetVersion(ctx, changeDoubt, workflow.DefaultVersion, 1) > workflow.DefaultVersion {
			err = fmt.Errorf("%s: %w; want %s", name, doubt, want)
		}
		if err != nil {
			r.warn(ctx, err)
			return
		}
		r.signalled(ctx, control(q))
	})
	return workflow.SetUpdateHandlerWithOptions(ctx, name, func(ctx workflow.Context, raw, _ converter.RawValue) error {
		q, err := decode[T](name, raw)
		if err != nil {
			return temporal.NewApplicationError(err.Error(), string(fault.Invalid)) // sure has refused it
		}
		return r.command(ctx, control(q))
	}, workflow.UpdateHandlerOptions{Validator: sure(r, name, want, check), Description: doc + ": " + want})
}

// changeDoubt is the change that a signal is refused that older builds took although nobody can have meant it, see contract.RateRequest.
const changeDoubt = "doubt"

// sure is check for an update, which is not asked again in a replay: input that cannot be read, and what is doubtful, is refused with what would be right.
func sure[T interface{ Doubt() error }](r *run, name, want string, check func(T) error) func(raw, more converter.RawValue) error {
	return func(raw, more converter.RawValue) error {
		q, err := request[T](name, raw, more)
		if err != nil {
			return r.refuse(true, fmt.Sprintf("%v; want %s", err, want))
		}
		return check(q)
	}
}

func (r *run) signalled(ctx workflow.Context, c contract.Control) {
	if err := r.command(ctx, c); err != nil {
		r.warn(ctx, err)
	}
}

// warn says that a signal had no effect: in the log and, until the next command is applied, in the details. A signal has no
// answer, and the run goes on.
func (r *run) warn(ctx workflow.Context, err error) {
	r.warning = message(err)
	workflow.GetLogger(ctx).Warn("a signal was not applied", "error", err)
	r.show(ctx, r.progress.Phase)
}

// checkStop refuses a step after which the run cannot end.
func (r *run) checkStop(q contract.StopRequest) error {
	return r.refuse(q.Step != 0 && (q.Step <= r.progress.Step || r.progress.Steps > 0 && q.Step > r.progress.Steps),
		"stop_after_step: the step must be 0 or lie ahead, and not after the last step")
}

func (r *run) refuse(bad bool, why string) error {
	switch {
	case r.progress.Phase == "done" || r.progress.Phase == "exporting":
		return temporal.NewApplicationError("the step loop has ended", string(fault.Invalid))
	case bad:
		return temporal.NewApplicationError(why, string(fault.Invalid))
	}
	return nil
}

// changeAwaitLoop is the change that a command waits until the loop has started.
const changeAwaitLoop = "await-loop"

// command hands c to the loop, or keeps it until the loop starts.
func (r *run) command(ctx workflow.Context, c contract.Control) error {
	r.warning = ""
	r.progress.Paused = c.Pause || r.progress.Paused && !c.Resume
	if c.StopAt > 0 {
		r.stopAt = c.StopAt
	}
	applySettings(&r.settings, c, r.progress.Step+1)
	r.progress.Settings = r.settings
	if c.Resume {
		r.progress.Alarm = ""
	}
	r.show(ctx, r.progress.Phase)
	if !r.loopOpen {
		return nil
	}
	if !r.loopRuns && workflow.GetVersion(ctx, changeAwaitLoop, workflow.DefaultVersion, 1) > workflow.DefaultVersion {
		// A signal that overtakes the start of its workflow is refused by the server.
		if err := workflow.Await(ctx, func() bool { return r.loopRuns || !r.loopOpen }); err != nil {
			return err
		}
		switch {
		case r.loopEnded || !r.loopOpen && r.back == nil:
			return temporal.NewApplicationError("the step loop has ended", string(fault.Invalid))
		case !r.loopOpen: // the next one begins with it
			return nil
		}
	}
	id := contract.LoopID(r.spec.Scope())
	err := workflow.SignalExternalWorkflow(ctx, id, "", contract.SignalControl, c).Get(ctx, nil)
	if r.back != nil || id != contract.LoopID(r.spec.Scope()) {
		return nil // a rollback has ended that loop meanwhile, and the next one begins with the command
	}
	return err
}

func (r *run) show(ctx workflow.Context, phase string) {
	r.progress.Phase = phase
	workflow.SetCurrentDetails(ctx, runDetails(r.progress, r.export, r.failure, r.warning, r.report))
	upsert(ctx, r.spec, r.progress)
}
