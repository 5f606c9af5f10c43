package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/steadyrl/steady/activities"
	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/colour"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/ui"
	"github.com/steadyrl/steady/workers"
)

type demoCmd struct {
	serverFlags
	processFlags
	configFlags
	liveFlags
	Name     string `name:"run" help:"Name of the run, its workflow id." default:"demo"`
	Fresh    bool   `help:"Start a new run under the first free name (NAME-2, NAME-3, ...)."`
	Keep     bool   `help:"Keep the server and the Web UI up after the run, until interrupted."`
	ReportTo string `name:"report" help:"Where the HTML report is copied to." default:"report.html" type:"path"`
}

// Run runs the demo from start to report, or goes on where an interrupted one stopped.
func (d *demoCmd) Run(ctx context.Context, s *streams) error {
	cfg, sources, err := d.load("demo")
	if err != nil {
		return err
	}
	if err := cfg.Validate(sources); err != nil {
		return err
	}
	engine := d.follow(cfg)
	text, err := cfg.JSON()
	if err != nil {
		return err
	}
	if err := d.check(ctx, cfg, text); err != nil {
		return err
	}
	display := newDisplay(os.Stdout)
	defer display.Close()
	display.Event("starting the Temporal server and all workers")
	l, err := startLocal(ctx, d.serverFlags, engine, nil, display.Event)
	if err != nil {
		return err
	}
	defer l.stop()
	display.Event("Web UI: %s", l.server.UI())
	pages, err := d.serveLive(ctx, l.store, display.Event)
	if err != nil {
		return err
	}
	run, err := d.attach(ctx, l, cfg.Recipe, text, display)
	if err != nil {
		return err
	}
	if pages != "" {
		display.Event("report, live: %sruns/%s/", pages, run.GetID())
	}
	out, err := watch(ctx, l, run, display)
	if rerr := d.copyReport(ctx, l, run.GetID(), display); err == nil {
		err = rerr
	}
	if err != nil {
		return err
	}
	display.Close()
	if err := d.results(ctx, s, l, run.GetID(), out); err != nil {
		return err
	}
	if d.Keep {
		fmt.Fprintf(s.out, "\nthe Web UI stays up at %s, the pages of the runs at %s, until Ctrl-C\n", l.server.UI(), cmp.Or(pages, "no address"))
		<-ctx.Done()
	}
	return nil
}

// newDisplay shows a run on f as its terminal allows.
func newDisplay(f *os.File) *ui.Display {
	if colour.Plain(os.Getenv) {
		return ui.Plain(f)
	}
	d := ui.New(f)
	d.Mark(colour.For(f, os.Getenv).Warn)
	return d
}

// follow lets the configuration choose what the flags leave open, and the engine.
func (d *demoCmd) follow(c *config.Config) engineFlags {
	d.Threads = cmp.Or(d.Threads, c.Engine.Threads)
	d.Python = cmp.Or(d.Python, c.Sandbox.Python)
	d.Slots = cmp.Or(d.Slots, c.Sandbox.Slots)
	return engineFlags{Engine: c.Engine.Backend, MaxSequences: c.Engine.MaxSequences, processFlags: d.processFlags}
}

// check looks at all input before anything starts.
func (d *demoCmd) check(ctx context.Context, cfg *config.Config, text []byte) error {
	err := errors.Join(checkName("--run", d.Name), d.serverFlags.check(ctx), d.follow(cfg).check(ctx), d.liveFlags.check(), checkOutput("--report", d.ReportTo))
	if err != nil {
		return err
	}
	store, err := d.make(ctx, d.Data)
	if err != nil {
		return err
	}
	if known, err := sameConfig(ctx, store, d.Name, text); known && !d.Fresh || err != nil && !d.Fresh {
		return err // a run that goes on found what it needed when it started
	}
	_, err = activities.FindParent(ctx, store, cfg)
	return errors.Join(err, workers.CheckInputs(ctx, cfg))
}

// sameConfig reports whether the store has a run of that name, and refuses one of another configuration.
func sameConfig(ctx context.Context, store artifact.Store, name string, text []byte) (bool, error) {
	var r record.Run
	_, err := artifact.GetJSON(ctx, store, record.Layout{Run: name, Lineage: "l0"}.RunFile(), &r)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err == nil && r.ConfigDigest != artifact.Digest(text) {
		err = fault.New(fault.Invalid, "demo", "the run %s exists with another configuration", name).
			WithHint("start another with --fresh, or choose a name with --run")
	}
	return true, err
}

// attach starts the run, or finds the one of that name.
func (d *demoCmd) attach(ctx context.Context, l *local, recipe string, text []byte, display *ui.Display) (client.WorkflowRun, error) {
	name := d.Name
	for i := 2; ; i++ {
		desc, err := l.client.DescribeWorkflow(ctx, name, "")
		_, unknown := errors.AsType[*serviceerror.NotFound](err)
		if err != nil && !unknown {
			return nil, fault.New(fault.Lost, "demo", "ask for the run %s: %w", name, err).
				WithHint("start it again; if it does not help, read %s: a damaged database is restored from a copy of its folder, or moved away and the run started with --fresh",
					filepath.Join(d.Data, "temporal", "temporal.log"))
		}
		recorded, err := l.store.Exists(ctx, record.Layout{Run: name, Lineage: "l0"}.RunFile())
		if err != nil {
			return nil, err
		}
		switch {
		case unknown && !recorded:
			return d.begin(ctx, l, name, recipe, text, display)
		case d.Fresh:
			name = fmt.Sprintf("%s-%d", d.Name, i)
		case unknown:
			return nil, fault.New(fault.Invalid, "demo", "the store has the run %s, but the Temporal server does not know it: its database was removed or replaced", name).
				WithHint("start another with --fresh; add --set run.init_run=%s to go on from its newest checkpoint", name)
		default:
			return d.existing(ctx, l, name, desc.Status, text, display)
		}
	}
}

func (d *demoCmd) begin(ctx context.Context, l *local, name, recipe string, text []byte, display *ui.Display) (client.WorkflowRun, error) {
	run, err := l.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: name, TaskQueue: contract.QueueControl,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            "recipe " + recipe,
		Memo:                     map[string]any{"config_digest": artifact.Digest(text), "steady": version()},
	}, contract.TrainRun, json.RawMessage(text))
	if err != nil {
		return nil, fault.New(fault.Lost, "demo", "start the run: %w", err)
	}
	display.Event("run %s started", name)
	return run, nil
}

// existing goes on with a run of the same configuration, and refuses one of another.
func (d *demoCmd) existing(ctx context.Context, l *local, name string, status enumspb.WorkflowExecutionStatus, text []byte, display *ui.Display) (client.WorkflowRun, error) {
	if _, err := sameConfig(ctx, l.store, name, text); err != nil {
		return nil, err
	}
	switch status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		display.Event("run %s goes on where it was", name)
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		display.Event("run %s is complete; --fresh starts another", name)
	default:
		return nil, fault.New(fault.Invalid, "demo", "the run %s ended as %s", name, strings.ToLower(status.String())).
			WithHint("start another with --fresh; add --set run.init_run=%s to go on from its newest checkpoint", name)
	}
	return l.client.GetWorkflow(ctx, name, ""), nil
}

// watch shows the progress until the run ends.
func watch(ctx context.Context, l *local, run client.WorkflowRun, display *ui.Display) (contract.RunOutput, error) {
	type end struct {
		out contract.RunOutput
		err error
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		e.out, e.err = await[contract.RunOutput](ctx, run, func(err error) {
			display.Event("the Temporal server does not answer (%v): waiting for it", err)
		})
		ended <- e
	}()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	look := troubles{seen: map[string]bool{}}
	for n := 1; ; n++ {
		select {
		case e := <-ended:
			showProgress(ctx, l, run.GetID(), display)
			return e.out, runError(ctx, run.GetID(), e.err)
		case <-tick.C:
			showProgress(ctx, l, run.GetID(), display)
			if n%10 == 0 {
				look.show(ctx, l, run.GetID(), display)
			}
		case <-ctx.Done():
			return contract.RunOutput{}, ctx.Err()
		}
	}
}

// await returns how the run ended. A call that the server did not answer says nothing about the run, which goes on: it is
// told, and made again after a second.
func await[Out any](ctx context.Context, run client.WorkflowRun, tell func(error)) (Out, error) {
	for {
		var out Out
		err := run.Get(ctx, &out)
		if err == nil || !unanswered(err) || ctx.Err() != nil {
			return out, err
		}
		tell(err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// unanswered reports whether err is that of a call to the server, not that of a workflow.
func unanswered(err error) bool {
	if _, ended := errors.AsType[*temporal.WorkflowExecutionError](err); ended {
		return false
	}
	_, deadline := errors.AsType[*serviceerror.DeadlineExceeded](err)
	_, away := errors.AsType[*serviceerror.Unavailable](err)
	_, busy := errors.AsType[*serviceerror.ResourceExhausted](err)
	_, cut := errors.AsType[*serviceerror.Canceled](err)
	return deadline || away || busy || cut || errors.Is(err, context.DeadlineExceeded)
}

var digits = regexp.MustCompile(`[0-9]+`)

// troubleKey is the same for what a person takes for the same trouble: digits differ between attempts, in the names of
// temporary files and of groups.
func troubleKey(activity, text string) string {
	return activity + ": " + digits.ReplaceAllString(text, "0")
}

// troubles shows, once each, why activities of a run are tried again: a full disk, a busy engine.
type troubles struct{ seen map[string]bool }

// show is best effort, as showProgress.
func (t *troubles) show(ctx context.Context, l *local, id string, display *ui.Display) {
	qctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	open, err := l.client.ListWorkflow(qctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: client.DefaultNamespace, PageSize: 50, Query: fmt.Sprintf("WorkflowId STARTS_WITH '%s' AND ExecutionStatus = 'Running'", id),
	})
	if err != nil {
		return
	}
	for _, w := range open.GetExecutions() {
		d, err := l.client.DescribeWorkflow(qctx, w.GetExecution().GetWorkflowId(), w.GetExecution().GetRunId())
		if err != nil {
			return
		}
		for _, a := range d.RawResponse.GetPendingActivities() {
			text := a.GetLastFailure().GetMessage()
			if key := troubleKey(a.GetActivityType().GetName(), text); a.GetAttempt() > 1 && text != "" && !t.seen[key] {
				t.seen[key] = true
				display.Event("%s is tried again: %s", a.GetActivityType().GetName(), text)
			}
		}
	}
}

// showProgress is best effort: while the server restarts there is nothing to show.
func showProgress(ctx context.Context, l *local, id string, display *ui.Display) {
	qctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	v, err := l.client.QueryWorkflow(qctx, id, "", contract.QueryProgress)
	if err != nil {
		return
	}
	var p contract.Progress
	if v.Get(&p) == nil {
		display.Update(uiState(id, p))
	}
}

func uiState(id string, p contract.Progress) ui.State {
	s := ui.State{
		Run: id, Phase: p.Phase, Detail: "", Step: p.Step, Steps: p.Steps, Paused: p.Paused, Trainer: p.Trainer,
		Open: p.Open, Done: p.Done, Trained: p.Trained, Drops: p.Drops,
		Reward: p.Last.RewardMean, Lag: p.Last.LagMean, Seconds: p.Last.Seconds,
	}
	for _, r := range p.Dev {
		s.Dev = append(s.Dev, uiRow(r))
	}
	return s
}

func uiRow(r contract.DevRow) ui.DevRow {
	name := fmt.Sprint(r.Version)
	if r.Name == "export" {
		name = "export"
	}
	return ui.DevRow{
		Name: name, Problems: r.Problems, Solved: r.Solved, Acc: r.Acc, PassRate: r.PassRate,
		FormatOK: r.FormatOK, ToolUsed: r.ToolUsed, LengthCut: r.CutShare,
	}
}

// runError turns the end of a workflow into an error for a person: what happened, and what to do.
func runError(ctx context.Context, name string, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	code, text := exitRunFailed, ""
	again := fmt.Sprintf("start another with --fresh; add --set run.init_run=%s to go on from its newest checkpoint", name)
	app, isApp := errors.AsType[*temporal.ApplicationError](err)
	_, gone := errors.AsType[*serviceerror.NotFound](err)
	switch {
	case temporal.IsCanceledError(err):
		code, text = exitInterrupted, "was cancelled"
	case gone:
		text = "is gone from the Temporal server: it was deleted, or the server's database was"
	case isApp:
		text = fmt.Sprintf("failed: %s (%s)", app.Message(), app.Type())
		again = fmt.Sprintf("read the report and `steady ledger %s`; then %s", name, again)
	default:
		text = ended(err)
	}
	return &exitError{code, fault.New(fault.Lost, "", "the run %s %s; what was finished is kept", name, text).WithHint("%s", again)}
}

// ended says how a workflow ended that did not fail by an error of its own.
func ended(err error) string {
	cause := err
	if exec, ok := errors.AsType[*temporal.WorkflowExecutionError](err); ok {
		cause = exec.Unwrap()
	}
	switch e := cause.(type) { //nolint:errorlint // what ended the run itself, not a part of it
	case *temporal.TerminatedError:
		return "was terminated"
	case *temporal.TimeoutError:
		return "ran out of the time that it was given at its start"
	case *temporal.ActivityError:
		return fmt.Sprintf("failed: activity %s: %v", e.ActivityType().GetName(), e.Unwrap())
	case *temporal.ChildWorkflowExecutionError:
		return fmt.Sprintf("failed: its workflow %s: %v", e.WorkflowID(), e.Unwrap())
	}
	return fmt.Sprintf("failed: %v", cause)
}

func (d *demoCmd) copyReport(ctx context.Context, l *local, id string, display *ui.Display) error {
	ctx = context.WithoutCancel(ctx)
	lay, err := record.Newest(ctx, l.store, id)
	if fault.Is(err, fault.NotFound) {
		return nil // the run was interrupted before it had a record
	}
	if err != nil {
		return err
	}
	data, _, err := l.store.Get(ctx, lay.Report())
	if fault.Is(err, fault.NotFound) {
		return nil // the run was interrupted before it had one
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.ReportTo, data, 0o644); err != nil { //nolint:gosec // a report is for everybody
		return fault.New(fault.Invalid, "demo", "write the report: %w", err).WithHint("choose another place with --report")
	}
	return nil
}

// results prints the table, and fails if the books do not balance, a replayed step had other bits, or accuracy did not rise.
func (d *demoCmd) results(ctx context.Context, s *streams, l *local, id string, out contract.RunOutput) error {
	rows := make([]ui.DevRow, 0, len(out.Dev)+1)
	for _, r := range out.Dev {
		rows = append(rows, uiRow(r))
	}
	lay, err := record.Newest(ctx, l.store, id)
	if err != nil {
		return err
	}
	var exported record.Validation
	if _, err := artifact.GetJSON(ctx, l.store, lay.Validation("export"), &exported); err != nil {
		return err
	}
	m := exported.Metrics
	rows = append(rows, ui.DevRow{
		Name: "export", Problems: exported.Problems, Solved: m.Solved, Acc: m.Acc, PassRate: m.PassRate,
		FormatOK: m.FormatOK, ToolUsed: m.ToolUsed, LengthCut: float64(m.LengthCut) / float64(max(exported.Problems, 1)),
	})
	fmt.Fprintf(s.out, "\n%s\n\n", ui.DevTable(rows))
	fmt.Fprintf(s.out, "run        %s: %d steps, %d trajectories trained, %d groups dropped\n", id, out.Step, out.Trained, out.Drops)
	if out.Lineage != "" {
		fmt.Fprintf(s.out, "lineage    %s, opened by a rollback; all lineages: %d trajectories trained, %d groups dropped\n", out.Lineage, out.TrainedAll, out.DropsAll)
	}
	fmt.Fprintf(s.out, "state      %s (FP32 weights and optimiser)\n", out.StateDigest)
	fmt.Fprintf(s.out, "weights    %s (published BF16)\n", out.WeightsDigest)
	fmt.Fprintf(s.out, "export     %s (verified; steady verify-export checks it again)\n", l.store.Where(out.Export))
	fmt.Fprintf(s.out, "report     %s\n", d.ReportTo)
	fmt.Fprintf(s.out, "Web UI     %s while `steady dev --data %s` runs\n", l.server.UI(), d.Data)
	if err := verified(ctx, l.store, lay); err != nil {
		return &exitError{exitMismatch, err}
	}
	if n := len(out.Dev); n >= 2 && out.Dev[n-1].Acc <= out.Dev[0].Acc {
		return &exitError{exitRunFailed, fmt.Errorf("accuracy did not rise: %.2f %% at step 0, %.2f %% at the end", 100*out.Dev[0].Acc, 100*out.Dev[n-1].Acc)}
	}
	return nil
}

// verified checks what a run that ended well must leave: books that balance, and no step whose replay gave other bits.
func verified(ctx context.Context, store artifact.Store, l record.Layout) error {
	books, err := ledger.Load(ctx, store, l)
	if err != nil {
		return err
	}
	if err := books.Balance(); err != nil {
		return err
	}
	names, err := store.List(ctx, l.Events())
	if err != nil {
		return err
	}
	for _, name := range names {
		var e record.Event
		if _, err := artifact.GetJSON(ctx, store, name, &e); err != nil {
			return err
		}
		if e.Kind == record.ReplayMismatch {
			return fault.New(fault.Corrupt, "demo", "step %d: %s", e.Step, e.Message).
				WithHint("compare results/%s.json with a copy of the store; if it was not changed, keep the run and report it", record.StepName(e.Step))
		}
	}
	return nil
}
