package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/steadyrl/steady/activities"
	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/study"
	"github.com/steadyrl/steady/internal/ui"
	"github.com/steadyrl/steady/workers"
)

type studyCmd struct {
	Run    studyRunCmd    `cmd:"" default:"withargs" help:"Run a study, or go on with it: Temporal server, workers, all runs, table and picture."`
	Show   studyShowCmd   `cmd:"" help:"Print a study: a bundled one, a file, or one of the store."`
	Report studyReportCmd `cmd:"" help:"Write table and picture of a study from the records in the store."`
	List   studyListCmd   `cmd:"" help:"List the bundled studies."`
}

type studyRunCmd struct {
	serverFlags
	processFlags
	Study    string   `arg:"" help:"A bundled study, or a YAML file."`
	Quick    bool     `help:"The quick form of the study."`
	Set      []string `help:"Assignment that all arms share, after those of the study: key=value." placeholder:"KEY=VALUE" sep:"none"`
	Parallel int      `help:"Runs at once; 0 as the study says. Results do not depend on it." default:"0"`
	Name     string   `help:"Name of the study, its workflow id; default: that of the study." placeholder:"NAME"`
	Out      string   `help:"Directory for study.md, study.svg, study.csv and study-problems.csv." default:"study" type:"path"`
}

// Run runs a study from start to table, or goes on where an interrupted one stopped.
func (c *studyRunCmd) Run(ctx context.Context, s *streams) error {
	def, err := c.definition()
	if err != nil {
		return err
	}
	runs, err := def.Runs()
	if err != nil {
		return err
	}
	engine, err := c.engine(runs)
	if err != nil {
		return err
	}
	if err := c.check(ctx, def, runs, engine); err != nil {
		return err
	}
	text, err := def.JSON()
	if err != nil {
		return err
	}
	display := ui.New(os.Stdout)
	defer display.Close()
	display.Event("starting the Temporal server and all workers")
	l, err := startLocalFor(ctx, c.serverFlags, engine, def.Parallel, nil, display.Event)
	if err != nil {
		return err
	}
	defer l.stop()
	display.Event("Web UI: %s", l.server.UI())
	run, err := l.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: def.Name, TaskQueue: contract.QueueControl,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            def.About,
		Memo:                     map[string]any{"steady": version()},
	}, contract.Study, json.RawMessage(text))
	if err != nil {
		return fault.New(fault.Lost, "study", "start the study: %w", err)
	}
	display.Event("study %s: arms x seeds are %d x %d, so %d runs", def.Name, len(def.Arms), len(def.Seeds), len(runs))
	if err := watchStudy(ctx, l, run, display); err != nil {
		return studyError(ctx, def.Name, err)
	}
	display.Close()
	return c.results(ctx, s, l.store, def.Name)
}

// definition is the study that the flags ask for.
func (c *studyRunCmd) definition() (*config.Study, error) {
	def, err := config.LoadStudy(c.Study)
	if err != nil {
		return nil, err
	}
	if c.Quick {
		if def, err = def.QuickForm(); err != nil {
			return nil, err
		}
	}
	def.Set = append(def.Set, c.Set...)
	def.Name = cmp.Or(c.Name, def.Name)
	def.Parallel = cmp.Or(c.Parallel, def.Parallel)
	return def, nil
}

// engine is that of all runs: one process serves them.
func (c *studyRunCmd) engine(runs []config.StudyRun) (engineFlags, error) {
	first := runs[0].Config
	for _, r := range runs[1:] {
		if r.Config.Engine.Backend != first.Engine.Backend {
			return engineFlags{}, fault.New(fault.Invalid, "study", "engine.backend is %s in the arm %s and %s in the arm %s", first.Engine.Backend, runs[0].Arm, r.Config.Engine.Backend, r.Arm).
				WithHint("one process has one engine: start `steady dev`, a `steady worker` for the other engine, and the workflow Study with the temporal command line")
		}
	}
	c.Threads = cmp.Or(c.Threads, first.Engine.Threads)
	c.Python = cmp.Or(c.Python, first.Sandbox.Python)
	c.Slots = cmp.Or(c.Slots, first.Sandbox.Slots)
	return engineFlags{Engine: first.Engine.Backend, MaxSequences: first.Engine.MaxSequences, processFlags: c.processFlags}, nil
}

// check looks at all input before anything starts.
func (c *studyRunCmd) check(ctx context.Context, def *config.Study, runs []config.StudyRun, engine engineFlags) error {
	err := errors.Join(checkName("--name", def.Name), c.serverFlags.check(ctx), engine.check(ctx), checkDir("--out", c.Out))
	if err != nil {
		return err
	}
	return workers.CheckInputs(ctx, runs[0].Config)
}

func (c *studyRunCmd) results(ctx context.Context, s *streams, store artifact.Store, id string) error {
	res, err := writeStudy(ctx, s, store, id, c.Out)
	if err != nil {
		return err
	}
	switch {
	case res.Done < res.All:
		return &exitError{exitRunFailed, fault.New(fault.Lost, "", "%d of %d runs have no result", res.All-res.Done, res.All).
			WithHint("start the same command again: it makes those that are missing, and no other")}
	case res.Passed != nil && !*res.Passed:
		return &exitError{exitRunFailed, fault.New(fault.Invalid, "", "the gate does not hold: a 95 %% interval of a difference does not lie above 0").
			WithHint("read study.md; more seeds make the interval narrower")}
	}
	return nil
}

// writeStudy writes what the records of a study say into a directory, and prints the tables.
func writeStudy(ctx context.Context, s *streams, store artifact.Store, id, dir string) (*study.Result, error) {
	res, err := activities.AnalyseStudy(ctx, store, id)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(s.out, "\n%s\n", res.Tables())
	for _, f := range activities.StudyFiles(res) {
		name := filepath.Join(dir, f.Name)
		if err := os.WriteFile(name, f.Data, 0o644); err != nil { //nolint:gosec // for everybody
			return nil, fault.New(fault.Invalid, "study", "%w", err).WithHint("choose another directory with --out")
		}
		fmt.Fprintln(s.out, "wrote", name)
	}
	return res, nil
}

func studyError(ctx context.Context, id string, err error) error {
	err = runError(ctx, id, err)
	if e, ok := errors.AsType[*exitError](err); ok {
		if f, ok := errors.AsType[*fault.Error](e.err); ok {
			return &exitError{e.code, f.WithHint("start the same command again: it goes on with what is missing; `steady study report %s` shows what there is", id)}
		}
	}
	return err
}

// watchStudy shows the progress until the study ends.
func watchStudy(ctx context.Context, l *local, run client.WorkflowRun, display *ui.Display) error {
	ended := make(chan error, 1)
	go func() {
		_, err := await[contract.StudyOutput](ctx, run, func(err error) {
			display.Event("the Temporal server does not answer (%v): waiting for it", err)
		})
		ended <- err
	}()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	w := studyWatch{display: display, seen: map[string]bool{}, look: troubles{seen: map[string]bool{}}}
	for n := 1; ; n++ {
		select {
		case err := <-ended:
			w.show(ctx, l, run.GetID(), false)
			return err
		case <-tick.C:
			w.show(ctx, l, run.GetID(), n%10 == 0)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type studyWatch struct {
	display *ui.Display // of the study's own lines
	run     *ui.Display // of the run that is shown
	name    string      // of that run
	seen    map[string]bool
	look    troubles
}

// show is best effort, as showProgress.
func (w *studyWatch) show(ctx context.Context, l *local, id string, deep bool) {
	qctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	v, err := l.client.QueryWorkflow(qctx, id, "", contract.QueryProgress)
	if err != nil {
		return
	}
	var p contract.StudyProgress
	if v.Get(&p) != nil {
		return
	}
	for _, r := range p.Rows {
		if w.seen[r.Run] {
			continue
		}
		w.seen[r.Run] = true
		text := r.Failure
		if r.Value != nil {
			text = fmt.Sprintf("%.2f %% at the end", 100**r.Value)
		}
		w.display.Event("run %s: %s (%d of %d runs have a result)", r.Run, text, p.Done, p.All)
	}
	if len(p.Running) == 0 {
		return
	}
	if w.name != p.Running[0] { // each run has validations of its own
		if w.run != nil {
			w.run.Close()
		}
		w.name, w.run = p.Running[0], ui.New(os.Stdout)
	}
	showProgress(ctx, l, w.name, w.run)
	if deep {
		w.look.show(ctx, l, w.name, w.run)
	}
}

type studyShowCmd struct {
	Study string `arg:"" optional:"" help:"A bundled study, or a YAML file." default:"study-staleness"`
	JSON  bool   `help:"As the input of the workflow Study."`
	Quick bool   `help:"The quick form."`
	Of    string `help:"The study of that name in the store instead." placeholder:"NAME"`
	Data  string `help:"Directory of the artifact store." default:".steady" type:"path"`
	storeFlags
}

// Run prints a study.
func (c *studyShowCmd) Run(ctx context.Context, s *streams) error {
	if c.Of == "" && !c.JSON && !c.Quick {
		_, text, err := config.StudyText(c.Study)
		if err != nil {
			return err
		}
		if _, err := config.LoadStudy(c.Study); err != nil {
			return err
		}
		_, err = s.out.Write(text)
		return err
	}
	def, err := c.definition(ctx)
	if err != nil {
		return err
	}
	text, err := def.JSON()
	if err != nil {
		return err
	}
	_, err = s.out.Write(text)
	return err
}

func (c *studyShowCmd) definition(ctx context.Context) (*config.Study, error) {
	if c.Of != "" {
		store, err := openStudy(ctx, "--of", c.Of, c.Data, c.Store)
		if err != nil {
			return nil, err
		}
		return activities.Study(ctx, store, c.Of)
	}
	def, err := config.LoadStudy(c.Study)
	if err == nil && c.Quick {
		def, err = def.QuickForm()
	}
	if err == nil {
		err = def.Validate()
	}
	return def, err
}

type studyReportCmd struct {
	Study string `arg:"" help:"Name of a study in the store."`
	Data  string `help:"Directory of the artifact store." default:".steady" type:"path"`
	storeFlags
	Out string `help:"Directory for study.md, study.svg, study.csv and study-problems.csv." default:"study" type:"path"`
}

// Run writes table and picture of a study, finished or not.
func (c *studyReportCmd) Run(ctx context.Context, s *streams) error {
	store, err := openStudy(ctx, "STUDY", c.Study, c.Data, c.Store)
	if err := errors.Join(err, checkNoFile("--out", c.Out)); err != nil {
		return err
	}
	if err := checkDir("--out", c.Out); err != nil { // makes it
		return err
	}
	_, err = writeStudy(ctx, s, store, c.Study, c.Out)
	return err
}

type studyListCmd struct{}

// Run lists the bundled studies.
func (c *studyListCmd) Run(s *streams) error {
	for _, x := range config.Studies() {
		fmt.Fprintf(s.out, "%-20s %s\n", x.Name, x.About)
	}
	return nil
}
