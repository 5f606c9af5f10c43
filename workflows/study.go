package workflows

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
)

// Study runs every arm of a study with every seed, as TrainRun children, and says what they show.
//
// Input: the study as JSON, as `steady study show --json` prints it. The workflow id is the study's name, and the names of its runs begin with it.
// At most `parallel` runs are open at once; they are started seed by seed. A run that fails does not end the study: it is recorded without
// a result. A run that has one is never made again: the study started once more under the same id makes those that are missing, under
// new names. Messages: query progress. Cancel cancels the runs that are open, and sums up what there is; the children of a study that is terminated are
// cancelled too. It continues as new, between runs, when the server suggests it; nothing is carried over, since the store has all.
func Study(ctx workflow.Context, input json.RawMessage) (contract.StudyOutput, error) {
	s := &studyRunner{id: workflow.GetInfo(ctx).WorkflowExecution.ID, progress: contract.StudyProgress{Phase: "starting"}}
	if err := workflow.SetQueryHandlerWithOptions(ctx, contract.QueryProgress, func() (contract.StudyProgress, error) { return s.progress, nil },
		workflow.QueryHandlerOptions{Description: "phase, counts, runs that are open, and values of those that have ended"}); err != nil {
		return contract.StudyOutput{}, err
	}
	spec, err := contract.OpenStudyActivity.Do(control(ctx, bootstrap(), "check the study, look for runs that are done"),
		contract.OpenStudyRequest{Study: s.id, Input: input})
	if err != nil {
		return contract.StudyOutput{}, err
	}
	s.spec, s.progress.All, s.progress.Done = spec, len(spec.Arms)*len(spec.Seeds), len(spec.Done)
	again, err := s.runs(ctx)
	if err != nil && !temporal.IsCanceledError(err) {
		return contract.StudyOutput{}, err
	}
	if again && err == nil {
		return contract.StudyOutput{}, workflow.NewContinueAsNewError(ctx, contract.Study, input)
	}
	s.show(ctx, "summing up")
	dctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	out, serr := contract.SummarizeStudyActivity.Do(control(dctx, bootstrap(), "sum up"), contract.SummarizeStudyRequest{Study: s.id})
	if err == nil {
		err = serr
	}
	s.show(ctx, "done")
	return out, err
}

type studyRunner struct {
	id       string
	spec     contract.StudySpec
	progress contract.StudyProgress
}

// runs makes the runs that are missing, some at once. again says that the rest is for the next run of the chain.
func (s *studyRunner) runs(ctx workflow.Context) (again bool, err error) {
	open, wg := 0, workflow.NewWaitGroup(ctx)
	for n := range s.progress.All {
		if slices.Contains(s.spec.Done, n) {
			continue
		}
		if err = workflow.Await(ctx, func() bool { return open < max(s.spec.Parallel, 1) }); err != nil {
			break
		}
		if err != nil { // of a run
			break
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			again = true
			break
		}
		seed, arm := s.spec.Seeds[n/len(s.spec.Arms)], s.spec.Arms[n%len(s.spec.Arms)]
		open++
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			defer func() { open-- }()
			if rerr := s.run(ctx, contract.StudyRunRequest{Study: s.id, Arm: arm, Seed: seed}); rerr != nil && err == nil {
				err = rerr
			}
		})
		s.show(ctx, "running")
	}
	wg.Wait(ctx)
	if err == nil {
		err = ctx.Err()
	}
	return again, err
}

// run makes one run and records how it ended. An error is that the study cannot go on, not that the run failed.
func (s *studyRunner) run(ctx workflow.Context, q contract.StudyRunRequest) error {
	label := fmt.Sprintf("%s, seed %d", q.Arm, q.Seed)
	prepared, err := contract.PrepareStudyRunActivity.Do(control(ctx, bootstrap(), label+": name it"), q)
	if err != nil {
		return err
	}
	c := contract.CollectStudyRunRequest{StudyRunRequest: q, Run: prepared.Run}
	if !prepared.Finished {
		s.progress.Running = append(s.progress.Running, prepared.Run)
		s.show(ctx, "running")
		err := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID: prepared.Run, WaitForCancellation: true, StaticSummary: label,
			ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		}), contract.TrainRun, prepared.Input).Get(ctx, nil)
		s.progress.Running = slices.DeleteFunc(s.progress.Running, func(r string) bool { return r == prepared.Run })
		if ctx.Err() != nil {
			return ctx.Err() // it was cancelled with the study, or ended in that moment: the next start finds it
		}
		switch {
		case temporal.IsWorkflowExecutionAlreadyStartedError(err):
			c.Kind, c.Failure = "Canceled", "another workflow has the id of the run"
		case temporal.IsCanceledError(err):
			c.Kind, c.Failure = "Canceled", "the run was cancelled"
		case err != nil:
			c.Kind, c.Failure = string(kindOf(err)), clip(message(err), 600)
		}
	}
	res, err := contract.CollectStudyRunActivity.Do(control(ctx, bootstrap(), label+": keep its result"), c)
	if err != nil {
		return err
	}
	if s.progress.Done++; res.Failure != "" {
		s.progress.Done--
		s.progress.Failed++
	}
	s.progress.Rows = append(s.progress.Rows, contract.StudyRow{Run: prepared.Run, CollectedRun: res})
	if n := len(s.progress.Rows) - contract.MaxStudyRows; n > 0 {
		s.progress.Rows = s.progress.Rows[n:]
	}
	s.show(ctx, "running")
	return nil
}

func (s *studyRunner) show(ctx workflow.Context, phase string) {
	s.progress.Phase = phase
	p := s.progress
	var b strings.Builder
	fmt.Fprintf(&b, "**%s** — %s\n\n`%s` %d of %d runs have a result, %d failed\n\n", phase, s.spec.Title, bar(p.Done, p.All, 30), p.Done, p.All, p.Failed)
	if len(p.Rows) > 0 {
		b.WriteString("| run | at the end |\n| --- | ---: |\n")
		for _, r := range p.Rows {
			text := r.Failure
			if r.Value != nil {
				text = fmt.Sprintf("%.2f %%", 100**r.Value)
			}
			fmt.Fprintf(&b, "| %s | %s |\n", r.Run, text)
		}
	}
	for _, r := range p.Running {
		fmt.Fprintf(&b, "\nOpen: `%s`\n", r)
	}
	workflow.SetCurrentDetails(ctx, b.String())
}
