// Command steady is the one binary of the project: workers, development server, tools.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/steadyrl/steady/internal/colour"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/sandbox"
)

// Exit codes. exitMeanings says them to people; docs/cli.md has the same table.
const (
	exitDone        = 0
	exitRunFailed   = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitInterrupted = 4
	exitMismatch    = 5
)

// exitMeanings says what each exit code means, in the order of the codes.
func exitMeanings() []string {
	return []string{
		exitDone:        "done",
		exitRunFailed:   "the run or the machinery failed",
		exitUsage:       "usage, configuration or other bad input",
		exitUnreachable: "Temporal cannot be reached",
		exitInterrupted: "interrupted; what was finished is kept",
		exitMismatch:    "a verification found a difference",
	}
}

// cli is the grammar of the command line.
type cli struct {
	Demo         demoCmd         `cmd:"" help:"Run the bundled demo: development server, all workers, one whole run, report."`
	Dev          devCmd          `cmd:"" help:"Start the Temporal development server with its Web UI and all workers, and serve until interrupted."`
	Worker       workerCmd       `cmd:"" help:"Serve roles against a Temporal server."`
	Config       configCmd       `cmd:"" help:"Print and check configurations."`
	Doctor       doctorCmd       `cmd:"" help:"Say what this machine can do, and what to do about what is missing."`
	Bench        benchCmd        `cmd:"" help:"Measure engines on this machine."`
	Sandbox      sandboxCmd      `cmd:"" help:"Run one program in the sandbox."`
	Judge        judgeCmd        `cmd:"" help:"Judge responses from a JSON Lines file."`
	Dataset      datasetCmd      `cmd:"" help:"Prepare and look at data sets."`
	Eval         evalCmd         `cmd:"" help:"Evaluate a model on a problem set: pass@k with intervals."`
	Pretrain     pretrainCmd     `cmd:"" help:"Warm-start the demo model from its generated corpus."`
	Tokenize     tokenizeCmd     `cmd:"" help:"Tokenize texts: {\"text\"} to {\"ids\", \"ids_plain\"}, with special tokens recognised and as untrusted text."`
	Detokenize   detokenizeCmd   `cmd:"" help:"Turn ids into text: {\"ids\", \"skip_special_tokens\"} to {\"text\"}."`
	Chat         chatCmd         `cmd:"" help:"Render conversations."`
	Trajectory   trajectoryCmd   `cmd:"" help:"Print and export trajectories of a run."`
	VerifyExport verifyExportCmd `cmd:"" help:"Verify an exported model against its certificate."`
	Report       reportCmd       `cmd:"" help:"Render the report of a run."`
	Study        studyCmd        `cmd:"" help:"Compare configurations: arms and seeds, paired differences with intervals, a table and a picture."`
	Watch        watchCmd        `cmd:"" help:"Show a run while it runs, on the terminal or, with --http, in a browser."`
	Simulate     simulateCmd     `cmd:"" help:"Plan a run: its workflows in virtual time with a model of the machines."`
	Plan         planCmd         `cmd:"" help:"Say what memory, time, disk and money a run takes, before anything is loaded."`
	Metrics      metricsCmd      `cmd:"" help:"Export the numbers of a run."`
	Ledger       ledgerCmd       `cmd:"" help:"Print and check the ledger of a run."`
	Completion   completionCmd   `cmd:"" help:"Print a script that lets bash, zsh or fish complete commands."`
	Version      versionCmd      `cmd:"" help:"Print the version."`
}

func main() {
	if sandbox.IsHelper() {
		sandbox.HelperMain()
	}
	if err := crashpoint.Setup(os.Getenv(crashpoint.Variable), os.Getenv(crashpoint.CountsVariable)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(exitUsage)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process.
func run(args []string, out, errOut io.Writer) int {
	if len(args) > 0 && args[0] == completeCommand {
		complete(args[1:], out)
		return exitDone
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c cli
	code := -1
	parser, err := grammar(&c, kong.Writers(out, errOut), kong.Exit(func(n int) { code = n }), kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(&streams{out: out, err: errOut}))
	if err != nil {
		fmt.Fprintln(errOut, "error:", err)
		return exitUsage
	}
	if slices.Equal(args, []string{"--version"}) {
		args = []string{"version"}
	}
	parsed, err := parser.Parse(args)
	if code >= 0 { // --help
		return code
	}
	if err != nil {
		command := "steady"
		if p, ok := errors.AsType[*kong.ParseError](err); ok && p.Context.Selected() != nil {
			command = p.Context.Selected().FullPath()
		}
		paint := colour.For(errOut, os.Getenv)
		fmt.Fprintf(errOut, "%s %v\n%s %s --help\n", paint.Bad("error:"), err, paint.Hint("try:"), command)
		return exitUsage
	}
	return explain(ctx, parsed.Run(), errOut)
}

// grammar is the command line without what a process adds to it.
func grammar(c *cli, more ...kong.Option) (*kong.Kong, error) {
	var exits []string
	for code, meaning := range exitMeanings() {
		exits = append(exits, fmt.Sprintf("%d %s", code, strings.ReplaceAll(meaning, "; ", ", ")))
	}
	about := "Durable RL post-training of code models. Exit status: " + strings.Join(exits, "; ") + "."
	options := append([]kong.Option{kong.Name("steady"), kong.Description(about)}, numbers()...)
	return kong.New(c, append(options, more...)...)
}

// streams are where commands print.
type streams struct{ out, err io.Writer }

// exitError carries an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// explain prints an error for a person and returns the exit code.
func explain(ctx context.Context, err error, w io.Writer) int {
	if err == nil {
		return exitDone
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(w, "interrupted; nothing that was finished is lost")
		return exitInterrupted
	}
	paint := colour.For(w, os.Getenv)
	var hints []string
	for _, e := range fault.Parts(err) {
		for line := range strings.Lines(fault.Text(e)) {
			fmt.Fprintln(w, paint.Bad("error:"), strings.TrimRight(line, "\n"))
		}
		if hint := fault.HintOf(e); hint != "" && !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	for _, hint := range hints {
		fmt.Fprintln(w, paint.Hint("try:"), hint)
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound:
		return exitUsage
	case fault.Corrupt:
		return exitMismatch
	default:
		return exitRunFailed
	}
}

// version is the module version, or the revision it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && !strings.Contains(v, s.Value[:12]) {
			v += " " + s.Value[:12]
		}
	}
	return v
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(s *streams) error {
	_, err := fmt.Fprintln(s.out, "steady", version())
	return err
}
