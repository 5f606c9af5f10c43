package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/record"
)

// TrainLoop is the step loop: collect a batch of groups, seal it, update the policy, publish the version,
// validate and checkpoint when due.
//
// Step t trains with weights of version t-1 and publishes version t. A group carries as its tag the step in progress at
// its submission, and is eligible at step t while t - tag <= threshold - 1. What becomes of a group that is older depends on
// the policy, see choose and cull; a group is always dropped whole, its problem goes back to the cursor once, and a fresh group
// is sent out. Carried over at continue-as-new:
// contract.LoopState, all of it; groups in flight are abandoned children and report to the next run of the
// chain. Messages: signals group_done (from groups) and control (from TrainRun); query progress. Ends
// after the last step, or after the step that control named. Cancel cancels every open group and
// closes the ledger.
func TrainLoop(ctx workflow.Context, in contract.LoopInput) (contract.LoopOutput, error) {
	l := &loop{ctx: ctx, spec: in.Spec, st: in.State, first: in.State.Step, sealed: in.State.Step}
	l.build = workflow.GetVersion(ctx, changeFill, workflow.DefaultVersion, buildTell)
	l.listen()
	l.watch()
	err := workflow.SetQueryHandlerWithOptions(ctx, contract.QueryProgress,
		func() (contract.Progress, error) { return l.progress(), nil },
		workflow.QueryHandlerOptions{Description: "phase, step, dev table and the numbers of the last step"})
	if err != nil {
		return contract.LoopOutput{}, err
	}
	err = l.run()
	if workflow.IsContinueAsNewError(err) {
		return contract.LoopOutput{}, err
	}
	if cerr := l.close(err); err == nil {
		err = cerr
	}
	return l.output(), err
}

type loop struct {
	ctx     workflow.Context
	spec    contract.RunSpec
	st      contract.LoopState
	first   int // step at the start of this run of the chain
	sealed  int // newest step whose batch is sealed
	build   workflow.Version
	phase   string
	changed int // counts signals, so that collect can wait for news
	val     *validation
	// validating is the name of the validation that has not ended, empty if there is none.
	validating string
	order      permutation
	began      time.Time    // of the step in progress
	faults     int          // groups lost to infrastructure since the last trained step
	fault      string       // why the newest of them was lost
	stage      string       // what the step in progress does
	since      time.Time    // when the stage began, or when its last news came
	stalled    []string     // what stands still, for people
	named      bool         // an event names the stage as standing still
	excused    map[int]bool // groups that failed while an alarm held the loop, by number
	notes      []string     // changes of settings that no event tells of yet
}

// validation is a running Validate child.
type validation struct {
	row    contract.DevRow
	future workflow.Future
}

func (l *loop) run() error {
	if !l.st.Started {
		if err := l.start(); err != nil {
			return err
		}
	}
	for l.st.Step < l.last() {
		if l.dueForContinue() {
			return l.continueAsNew()
		}
		if err := l.step(l.st.Step + 1); err != nil {
			return err
		}
	}
	return l.awaitValidation()
}

// last returns the step after which the loop ends.
func (l *loop) last() int {
	if l.st.StopAt > 0 {
		return min(l.spec.Steps, l.st.StopAt)
	}
	return l.spec.Steps
}

func (l *loop) start() error {
	l.show("first validation")
	// A lineage that a rollback opened has the row of its first step from its parent, if it was validated there.
	if !slices.ContainsFunc(l.st.Dev, func(r contract.DevRow) bool { return r.Version == l.st.Step }) {
		if err := l.startValidation(l.st.Step); err != nil {
			return err
		}
	}
	for range l.prefill() {
		if err := l.submit(l.st.Step+1, l.spec.BatchProblems); err != nil {
			return err
		}
	}
	l.st.Started = true
	return nil
}

func (l *loop) step(t int) error {
	l.began = workflow.Now(l.ctx)
	l.show("training")
	if err := l.waitWhilePaused(); err != nil {
		return err
	}
	if err := l.fill(t, 1, l.spec.BatchProblems); err != nil {
		return err
	}
	l.enter("collect groups")
	batch, err := l.collect(t)
	if err != nil {
		return err
	}
	if err := l.waitWhilePaused(); err != nil {
		return err
	}
	l.tellNotes()
	l.enter("seal the batch")
	sealed, err := l.seal(t, batch)
	if err != nil {
		return err
	}
	if l.spec.Policy == contract.PolicyCancelEarly && t < l.last() {
		// The next batch is that of step t+1: what it could not take is not worth another token.
		if err := l.cull(t+1, t, 0); err != nil {
			return err
		}
	}
	l.enter("update the policy")
	result, err := l.update(t, sealed)
	if err != nil {
		return err
	}
	// Validation of version t-1 runs on engines that serve it, so its end comes before the next version.
	l.enter("finish the validation")
	if err := l.awaitValidation(); err != nil {
		return err
	}
	if err := l.awaitLag(t); err != nil {
		return err
	}
	l.enter("publish the version")
	if _, err := contract.PublishVersionActivity.Do(control(l.ctx, l.spec.Timeouts, fmt.Sprintf("publish version %d", t)),
		contract.PublishRequest{RunKey: l.spec.RunKey, Version: t, Digest: result.WeightsDigest, Began: l.began}); err != nil {
		return err
	}
	l.trained(t, sealed, result)
	l.enter("validate and save")
	defer l.enter("")
	return l.after(t)
}

// trained notes that step t is done.
func (l *loop) trained(t int, sealed contract.SealBatchResult, r contract.UpdateResult) {
	l.st.Step = t
	l.faults = 0
	l.st.Trained += len(sealed.Groups) * l.spec.GroupSize
	seconds := workflow.Now(l.ctx).Sub(l.began).Seconds()
	l.st.Last = contract.LastStep{
		RewardMean: sealed.RewardMean, ZeroSpread: sealed.ZeroSpread, LagMean: sealed.LagMean,
		GradNorm: r.GradNorm, Correction: r.Correction, Entropy: r.Entropy, Seconds: &seconds,
		Weights: r.WeightsDigest, State: r.StateDigest,
	}
}

// after does what is due when step t is trained and published.
func (l *loop) after(t int) error {
	if l.due(t, l.spec.ValidateEvery) {
		if err := l.startValidation(t); err != nil {
			return err
		}
		if l.spec.Mode == "sync" {
			if err := l.awaitValidation(); err != nil {
				return err
			}
		}
	}
	if l.due(t, l.spec.CheckpointEvery) {
		if err := l.checkpoint(t); err != nil {
			return err
		}
	}
	l.report(t)
	return nil
}

func (l *loop) due(t, every int) bool { return t == l.last() || every > 0 && t%every == 0 }

func (l *loop) waitWhilePaused() error {
	if !l.st.Paused {
		return nil
	}
	l.show("paused")
	l.tellRun()
	err := workflow.Await(l.ctx, func() bool { return !l.st.Paused })
	l.since = workflow.Now(l.ctx)
	l.show("training")
	l.tellRun()
	return err
}

// collect returns the batch of step t, see choose. Groups that cannot be trained are dropped and replaced on the way.
func (l *loop) collect(t int) ([]contract.OpenGroup, error) {
	for {
		if err := l.cull(t, t, 1); err != nil {
			return nil, err
		}
		if l.st.Alarm != "" {
			if err := l.waitWhilePaused(); err != nil {
				return nil, err
			}
			if err := l.fill(t, 1, 0); err != nil {
				return nil, err
			}
			continue
		}
		wait := l.spec.Policy == contract.PolicyWait && t < l.last() // after the last step nothing can be too old
		if l.spec.Lag > 0 {
			if batch := oldest(l.st.Open, l.spec.BatchProblems); batch != nil {
				return batch, nil
			}
		} else if batch := choose(l.st.Open, t, l.spec.BatchProblems, l.threshold(), wait); batch != nil {
			return batch, nil
		}
		seen := l.changed
		if err := workflow.Await(l.ctx, func() bool { return l.changed != seen }); err != nil {
			return nil, err
		}
	}
}

func (l *loop) drop(g contract.OpenGroup, reason string) {
	l.st.Drops++
	l.st.Dropped = append(l.st.Dropped, record.Drop{N: g.N, Reason: reason, Tag: g.Tag, Tokens: g.Tokens, Finished: g.Done})
}

func (l *loop) seal(t int, batch []contract.OpenGroup) (contract.SealBatchResult, error) {
	req := contract.SealBatchRequest{
		RunKey: l.spec.RunKey, Step: t, WaitSeconds: workflow.Now(l.ctx).Sub(l.began).Seconds(),
		Ledger: l.ledger(t), LearningRate: rateAt(l.st.Rates, t),
	}
	l.sealed = t // from here on a change of the learning rate comes too late for the step
	l.st.Rates = pruneRates(l.st.Rates, t+1)
	for _, g := range batch {
		req.Groups = append(req.Groups, g.GroupRef)
		req.Ledger.Trained = append(req.Ledger.Trained, g.N)
		req.Ledger.TrainedTokens = append(req.Ledger.TrainedTokens, g.Tokens)
	}
	// Not to be cut off by a cancel: a batch that was sealed without the loop's knowledge would be closed as run_ended too.
	ctx, cancel := workflow.NewDisconnectedContext(l.ctx)
	defer cancel()
	res, err := contract.SealBatchActivity.Do(control(ctx, l.spec.Timeouts, fmt.Sprintf("step %d: seal %d groups", t, len(batch))), req)
	if err != nil {
		return res, err
	}
	in := map[int]bool{}
	for _, n := range res.Groups {
		in[n] = true
	}
	var keep []contract.OpenGroup
	for _, g := range l.st.Open {
		if !in[g.N] {
			keep = append(keep, g)
		}
	}
	l.st.Open, l.st.Submitted, l.st.Dropped = keep, nil, nil
	return res, nil
}

func (l *loop) ledger(step int) record.Ledger {
	return record.Ledger{
		Step: step, Submitted: l.st.Submitted, Dropped: l.st.Dropped,
		Cursor: l.st.Cursor, NextGroup: l.st.NextGroup,
	}
}

func (l *loop) checkpoint(t int) error {
	err := l.onTrainer("checkpoint", t, func(ctx workflow.Context, trainer contract.Trainer) error {
		ctx = onHost(ctx, trainer, l.spec.Timeouts, fmt.Sprintf("checkpoint of step %d", t))
		_, err := contract.SaveCheckpointActivity.Do(ctx, contract.CheckpointRequest{RunKey: l.spec.RunKey, Step: t, Epoch: trainer.Epoch})
		return err
	})
	if err != nil {
		return err
	}
	_, err = contract.ApplyRetentionActivity.Do(control(l.ctx, l.spec.Timeouts, "remove what no one can need"),
		contract.RetentionRequest{RunKey: l.spec.RunKey, Step: t, Threshold: l.threshold()})
	return err
}

func (l *loop) startValidation(version int) error {
	name := record.StepName(version)
	l.validating = name
	l.val = &validation{
		row: contract.DevRow{Name: name, Version: version},
		future: workflow.ExecuteChildWorkflow(workflow.WithChildOptions(l.ctx, workflow.ChildWorkflowOptions{
			WorkflowID:          contract.ValidateID(l.spec.Scope(), name),
			WaitForCancellation: true,
			StaticSummary:       fmt.Sprintf("dev set at version %d", version),
		}), contract.Validate, contract.ValidateInput{
			RunKey: l.spec.RunKey, Name: name, Version: version, Problems: l.spec.DevProblems,
			Chunk: l.spec.EvalChunk, Source: "published", Timeouts: l.spec.Timeouts,
		}),
	}
	if l.spec.Mode == "sync" {
		return l.awaitValidation()
	}
	return nil
}

func (l *loop) awaitValidation() error {
	if l.val == nil {
		return nil
	}
	if l.stage == "" && l.build >= buildTell { // after the last step of a run of the chain, or before the first
		l.enter("finish the validation")
		defer l.enter("")
	}
	v := l.val
	l.val = nil
	defer func() { l.validating = "" }()
	var row contract.DevRow
	if err := v.future.Get(l.ctx, &row); err != nil {
		return err
	}
	l.st.Dev = contract.MergeDev(l.st.Dev, []contract.DevRow{row}, contract.LoopDevRows)
	l.st.Untold = contract.MergeDev(l.st.Untold, []contract.DevRow{row}, contract.LoopDevRows)
	l.tellValidation()
	return nil
}

func (l *loop) dueForContinue() bool {
	return l.st.Step-l.first >= l.spec.ContinueEvery || workflow.GetInfo(l.ctx).GetContinueAsNewSuggested()
}

func (l *loop) continueAsNew() error {
	if err := l.awaitValidation(); err != nil {
		return err
	}
	for {
		if err := l.settle(l.ctx); err != nil {
			return err
		}
		l.drain()
		if len(l.notes) == 0 {
			break
		}
		l.tellNotes()
	}
	// The next run of the chain would not hear of a cancel that this one has.
	if err := l.ctx.Err(); err != nil && workflow.GetVersion(l.ctx, changeCancelFirst, workflow.DefaultVersion, 1) == 1 {
		return err
	}
	return workflow.NewContinueAsNewError(l.ctx, contract.TrainLoop, contract.LoopInput{Spec: l.spec, State: l.st})
}

// changeCancelFirst is the change that a cancelled loop ends where it would have continued as new, and after its validation.
const changeCancelFirst = "cancel-first"

// close cancels the groups that are left, records them as run_ended, and tells the run. err is how the loop ended.
func (l *loop) close(err error) error {
	ctx, cancel := workflow.NewDisconnectedContext(l.ctx)
	defer cancel()
	var requests []workflow.Future
	for _, g := range l.st.Open {
		if !g.Done {
			requests = append(requests, workflow.RequestCancelExternalWorkflow(ctx, contract.GroupID(l.spec.Scope(), g.N), ""))
		}
		l.drop(g, "run_ended")
	}
	for _, f := range requests {
		// A group that ended in the meantime cannot be cancelled, and need not be.
		_ = f.Get(ctx, nil)
	}
	l.st.Open = nil
	if l.build >= buildTell {
		l.enter("close the ledger")
	}
	_, cerr := contract.CloseLedgerActivity.Do(control(ctx, l.spec.Timeouts, "close the ledger"),
		contract.CloseLedgerRequest{RunKey: l.spec.RunKey, Ledger: l.ledger(0)})
	if l.val != nil && l.ctx.Err() != nil && workflow.GetVersion(ctx, changeCancelFirst, workflow.DefaultVersion, 1) == 1 {
		_ = l.val.future.Get(ctx, nil) // it was cancelled with the loop; its engines are free when it has ended
	}
	if l.build >= buildTell && (err != nil || len(l.st.Untold) > 0) {
		l.tellRunIn(ctx) // an output would not come, or not have all
	}
	return cerr
}

func (l *loop) output() contract.LoopOutput {
	return contract.LoopOutput{
		Step: l.st.Step, Dev: contract.MergeDev(nil, l.st.Dev, contract.LoopDevRows), Weights: l.st.Last.Weights, State: l.st.Last.State,
		Trained: l.st.Trained, Drops: l.st.Drops, Restarts: l.st.Restarts,
	}
}
