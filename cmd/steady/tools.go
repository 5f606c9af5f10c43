package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/colour"
	"github.com/steadyrl/steady/internal/devserver"
	"github.com/steadyrl/steady/internal/doctor"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/export"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/obs"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/report"
	"github.com/steadyrl/steady/internal/sandbox"
)

type doctorCmd struct {
	serverFlags
	Python string `help:"Python interpreter to check." placeholder:"PATH"`
	Worker bool   `help:"Check what a worker needs: leave out the development server, connect to that of the Temporal environment if TEMPORAL_ADDRESS is set."`
	JSON   bool   `help:"Print JSON."`
}

// Run prints the checks; the exit status is 1 if one failed.
func (d *doctorCmd) Run(ctx context.Context, s *streams) error {
	if err := devserver.CheckPorts(d.Port, d.UIPort); err != nil {
		return err
	}
	o := doctor.Options{DataDir: d.Data, Temporal: d.Temporal, Port: d.Port, UIPort: d.UIPort}
	o.UseSandbox(d.Python, "")
	if o.Worker = d.Worker; o.Worker && os.Getenv("TEMPORAL_ADDRESS") != "" {
		o.TryTemporal = func(ctx context.Context) (string, error) {
			opts, err := environment(time.Now())
			if err != nil {
				return "", err
			}
			log := zap.NewNop()
			opts.Logger = obs.SDKLogger(log)
			c, err := newConnector(log).connect(ctx, opts, 0)
			if err != nil {
				return "", err
			}
			c.Close()
			return opts.HostPort + ", namespace " + namespaceOf(opts), nil
		}
	}
	if d.Store != "" {
		o.TryStore = func(ctx context.Context) (string, error) {
			store, err := openBucket(ctx, d.Data, d.Store, true)
			if err != nil {
				return "", err
			}
			return store.Where(""), nil
		}
	}
	checks := append(doctor.Examine(ctx, o), gpuChecks()...)
	text := []byte(doctor.Text(checks, colour.For(s.out, os.Getenv)))
	if d.JSON {
		var err error
		if text, err = doctor.JSON(checks); err != nil {
			return err
		}
	}
	if _, err := s.out.Write(text); err != nil {
		return err
	}
	if doctor.Failed(checks) {
		return &exitError{exitRunFailed, fmt.Errorf("this machine lacks something a run needs")}
	}
	return nil
}

// sandboxFlags open a sandbox.
type sandboxFlags struct {
	Python string `help:"Python interpreter; default: a 3.12 if found, else any python3 from 3.9 on." placeholder:"PATH"`
	Slots  int    `help:"Programs at once; 0 for the number of cores."`
}

func (f sandboxFlags) open(ctx context.Context, warn io.Writer) (*sandbox.Sandbox, error) {
	if err := checkWithin("--slots", f.Slots, 0, config.MostSlots); err != nil {
		return nil, err
	}
	py, err := sandbox.FindPython(ctx, f.Python)
	if err != nil {
		return nil, err
	}
	if py.Warning != "" {
		fmt.Fprintln(warn, "warning:", py.Warning)
	}
	return sandbox.New(ctx, sandbox.Options{Python: py, Slots: f.Slots})
}

type sandboxCmd struct {
	Run_ sandboxRunCmd `cmd:"" name:"run" help:"Run a program under the limits of the judge."` //nolint:revive,stylecheck // Run is kong's method
}

type sandboxRunCmd struct {
	sandboxFlags
	Stdin   string `help:"File given to the program on standard input." type:"existingfile" placeholder:"FILE"`
	JSON    bool   `help:"Print one JSON object instead of the program's output."`
	Program string `arg:"" type:"existingfile" help:"Python program."`
}

// readAtMost reads a file of at most limit bytes; one without an end, such as a device, is refused too.
func readAtMost(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fault.New(fault.Invalid, "sandbox run", "%w", err).WithHint("give a file that can be read")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fault.New(fault.Invalid, "sandbox run", "%w", err).WithHint("give a file that can be read")
	}
	if int64(len(data)) > limit {
		return nil, fault.New(fault.Invalid, "sandbox run", "%s has more than %d MiB", name, limit>>20).WithHint("give a smaller file")
	}
	return data, nil
}

// Run runs the program. The exit status is 0 whatever the program did.
func (c *sandboxRunCmd) Run(ctx context.Context, s *streams) error {
	var p sandbox.Program
	var err error
	if p.Source, err = readAtMost(c.Program, 16<<20); err != nil {
		return err
	}
	if c.Stdin != "" {
		if p.Stdin, err = readAtMost(c.Stdin, 1<<30); err != nil {
			return err
		}
	}
	box, err := c.open(ctx, s.err)
	if err != nil {
		return err
	}
	defer box.Close() //nolint:errcheck // nothing runs any more
	r, err := box.Run(ctx, p)
	if err != nil {
		return err
	}
	if !c.JSON {
		_, _ = s.out.Write(r.Stdout)
		_, _ = s.err.Write(r.Stderr)
		how := fmt.Sprintf("exit code %d", r.ExitCode)
		if r.Signal != 0 {
			how = fmt.Sprintf("signal %d", r.Signal)
		}
		fmt.Fprintf(s.err, "outcome %s, %s, %.3f s charged, %d KiB at most\n", r.Outcome, how, r.ChargedSeconds, r.PeakRSSBytes>>10)
		return nil
	}
	return printJSON(s.out, struct {
		sandbox.Result
		Stdout string `json:"stdout"`
		Stderr string `json:"stderr"`
	}{r, strings.ToValidUTF8(string(r.Stdout), "\uFFFD"), strings.ToValidUTF8(string(r.Stderr), "\uFFFD")})
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fault.New(fault.Internal, "print", "%w", err)
	}
	return nil
}

type verifyExportCmd struct {
	Dir string `arg:"" type:"path" help:"Directory of the exported model, runs/RUN/l0/export in a store."`
}

// Run verifies every file and tensor; a difference ends with exit status 5.
func (c *verifyExportCmd) Run(ctx context.Context, s *streams) error {
	if err := checkPresent(c.Dir, "the directory of an export, runs/RUN/l0/export in a store"); err != nil {
		return err
	}
	cert, err := export.Verify(ctx, c.Dir, func(m model.Config) (engine.Sampler, error) { return cpu.NewSampler(m, cpu.Options{}) })
	if fault.Is(err, fault.Corrupt) {
		return &exitError{exitMismatch, err}
	}
	if err != nil {
		return err
	}
	extras, err := export.Extras(c.Dir, cert)
	if err != nil {
		return err
	}
	for _, line := range cert.Lacks {
		fmt.Fprintf(s.out, "the Hugging Face library may not load it as it is: %s\n", line)
	}
	for _, name := range extras {
		fmt.Fprintf(s.out, "not part of the export, not verified: %s\n", name)
	}
	_, err = fmt.Fprintf(s.out, "verified: %d tensors, %d bytes, weights %s\n", len(cert.Tensors), cert.TotalBytes, cert.WeightsDigest)
	return err
}

// runFlags name a run in a store.
type runFlags struct {
	Data string `help:"Directory of the artifact store." default:".steady" type:"path"`
	storeFlags
	Lineage string `help:"Lineage of the run; its first is l0, a rollback opens the next." default:"newest"`
	Name    string `arg:"" name:"run" help:"Name of the run."`
}

// open finds the run and its lineage. Errors: Invalid (a name that none can have), NotFound (the message says what there is).
func (f runFlags) open(ctx context.Context) (artifact.Store, record.Layout, error) {
	l := record.Layout{Run: f.Name, Lineage: f.Lineage}
	if err := errors.Join(checkName("run", f.Name), checkName("--lineage", f.Lineage)); err != nil {
		return nil, l, err
	}
	store, err := openStore(ctx, f.Data, f.Store)
	if err != nil {
		return nil, l, err
	}
	if ok, err := store.Exists(ctx, l.RunFile()); err != nil {
		return nil, l, err
	} else if !ok {
		return nil, l, fault.New(fault.NotFound, "run", "no run %q in %s; there is %s", f.Name, store.Where(""), listed(ctx, store, "runs")).
			WithHint("name one of these runs, or another store with --data or --store")
	}
	if f.Lineage == newestLineage {
		l, err := record.Newest(ctx, store, f.Name)
		return store, l, err
	}
	// The first lineage of a run that could not start has no file yet.
	ok, err := store.Exists(ctx, strings.TrimSuffix(l.Root(), "/"))
	if err == nil && !ok && f.Lineage != record.FirstLineage {
		err = fault.New(fault.NotFound, "run", "run %s has no lineage %q; there is %s", f.Name, f.Lineage, listed(ctx, store, "runs/"+f.Name)).
			WithHint("choose one of these with --lineage")
	}
	return store, l, err
}

// newestLineage stands for the lineage that a run is in, or ended with.
const newestLineage = "newest"

// openStore opens a store for reading; it must be there.
func openStore(ctx context.Context, data, address string) (artifact.Store, error) {
	if address != "" {
		return openBucket(ctx, data, address, true)
	}
	dir := filepath.Join(data, "store")
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, fault.New(fault.NotFound, "store", "there is no artifact store at %s", dir).
			WithHint("name the directory that demo, dev or worker got as --data")
	}
	return artifact.NewFiles(dir)
}

// openStudy opens the store of a study that must be there. Errors: Invalid (a name that none can have), NotFound (the message says what there is).
func openStudy(ctx context.Context, flag, name, data, address string) (artifact.Store, error) {
	if err := checkName(flag, name); err != nil {
		return nil, err
	}
	store, err := openStore(ctx, data, address)
	if err != nil {
		return nil, err
	}
	ok, err := store.Exists(ctx, record.StudyLayout{Study: name}.File())
	if err == nil && !ok {
		err = fault.New(fault.NotFound, "study", "no study %q in %s; there is %s", name, store.Where(""), listed(ctx, store, "studies")).
			WithHint("name one of these studies, another store with --data or --store, or begin one with `steady study run`")
	}
	return store, err
}

// listed names the folders of a folder of the store.
func listed(ctx context.Context, store artifact.Store, name string) string {
	dirs, err := store.Dirs(ctx, name)
	var names []string
	for _, d := range dirs {
		if config.ValidRunName(d) {
			names = append(names, d)
		}
	}
	if err != nil || len(names) == 0 {
		return "none"
	}
	const most = 20
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

type reportCmd struct {
	runFlags
	Out string `help:"Where to write the page; - for standard output." default:"report.html" type:"path"`
}

// Run renders the report of a run, finished or not.
func (c *reportCmd) Run(ctx context.Context, s *streams) error {
	const stdout = "-"
	if c.Out != stdout {
		if err := checkOutput("--out", c.Out); err != nil {
			return err
		}
	}
	store, l, err := c.open(ctx)
	if err != nil {
		return err
	}
	d, err := report.Load(ctx, store, l)
	if err != nil {
		return err
	}
	var page strings.Builder
	if err := report.Render(&page, d); err != nil {
		return err
	}
	if c.Out == stdout {
		fmt.Fprint(s.err, report.Summary(d))
		_, err = fmt.Fprint(s.out, page.String())
		return err
	}
	if err := os.WriteFile(c.Out, []byte(page.String()), 0o644); err != nil { //nolint:gosec // a report is for everybody
		return fault.New(fault.Invalid, "report", "%w", err).WithHint("choose another place with --out")
	}
	fmt.Fprint(s.out, report.Summary(d))
	_, err = fmt.Fprintln(s.out, "wrote", c.Out)
	return err
}

// printLengths prints how long the groups of each fate are, and whether the threshold is harder on long ones.
func printLengths(out io.Writer, x ledger.Lengths) {
	if len(x.Fates) > 0 {
		fmt.Fprintf(out, "%-24s %8s %8s %8s %8s %8s %8s\n", "sampled tokens a group", "groups", "mean", "median", "90 %", "longest", "unknown")
	}
	for _, f := range x.Fates {
		if f.Groups == 0 {
			fmt.Fprintf(out, "  %-22s %8d %8s %8s %8s %8s %8d\n", f.Fate, 0, "-", "-", "-", "-", f.Unknown)
			continue
		}
		fmt.Fprintf(out, "  %-22s %8d %8.0f %8d %8d %8d %8d\n", f.Fate, f.Groups, f.Mean, f.Median, f.P90, f.Longest, f.Unknown)
	}
	if s := x.Bias(); s != "" {
		fmt.Fprintln(out, s)
	}
}

type ledgerCmd struct {
	runFlags
	JSON bool `help:"Print every group as a JSON line."`
}

// Run prints the counts of the ledger and checks that it balances.
func (c *ledgerCmd) Run(ctx context.Context, s *streams) error {
	store, l, err := c.open(ctx)
	if err != nil {
		return err
	}
	led, err := ledger.Load(ctx, store, l)
	if err != nil {
		return err
	}
	if c.JSON {
		for _, g := range led.Groups {
			if err := printJSON(s.out, g); err != nil {
				return err
			}
		}
	} else {
		n := led.Count()
		fmt.Fprintf(s.out, "groups: %d submitted, %d trained, %d dropped, %d open\n", n.Submitted, n.Trained, n.Dropped, n.Open)
		for _, r := range n.Reasons {
			fmt.Fprintf(s.out, "  dropped as %s: %d\n", r.Reason, r.Groups)
		}
		printLengths(s.out, led.Lengths())
	}
	if err := led.Balance(); err != nil {
		return &exitError{exitMismatch, err}
	}
	return nil
}
