package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/transcript"
)

type trajectoryCmd struct {
	Show   trajectoryShowCmd   `cmd:"" help:"Print one trajectory of a run as text, HTML or JSON."`
	Export trajectoryExportCmd `cmd:"" help:"Write trajectories of a run as JSON lines, one each."`
}

// placeFlags say where in a run trajectories are looked for.
type placeFlags struct {
	runFlags
	Group      *int   `xor:"place" placeholder:"N" help:"Training group, as steady ledger --json numbers them."`
	Validation string `xor:"place" placeholder:"NAME" help:"Validation: a step in six digits, as 000025, or export."`
}

func (f placeFlags) open(ctx context.Context) (*transcript.Run, error) {
	store, l, err := f.runFlags.open(ctx)
	if err != nil {
		return nil, err
	}
	return transcript.Open(ctx, store, l)
}

type trajectoryShowCmd struct {
	placeFlags
	Sample  int    `default:"0" help:"Number of the response in its group, from 0."`
	Problem *int   `placeholder:"N" help:"Problem of a validation, by its number in the split."`
	Format  string `enum:"text,html,json" default:"text" help:"text, html or json."`
	Tokens  bool   `help:"With ids, mask, log-probabilities and policy versions (json only)."`
}

// Run prints the trajectory.
func (c *trajectoryShowCmd) Run(ctx context.Context, s *streams) error {
	const op = "trajectory show"
	switch {
	case c.Group == nil && c.Validation == "":
		return fault.New(fault.Invalid, op, "neither --group nor --validation is given").
			WithHint("for example --group 0, or --validation 000025 --problem 7; `steady ledger RUN --json` numbers the groups")
	case c.Validation != "" && c.Problem == nil, c.Validation == "" && c.Problem != nil:
		return fault.New(fault.Invalid, op, "--validation and --problem go together").WithHint("for example --validation 000025 --problem 7")
	case c.Tokens && c.Format != "json":
		return fault.New(fault.Invalid, op, "--tokens needs --format json").WithHint("add --format json, or leave --tokens out")
	}
	run, err := c.open(ctx)
	if err != nil {
		return err
	}
	var all iter.Seq2[*transcript.Transcript, error]
	if c.Validation != "" {
		all = run.Validation(ctx, c.Validation)
	} else {
		all = run.Group(ctx, *c.Group)
	}
	n := 0
	for t, err := range all {
		if err != nil {
			return err
		}
		if n++; t.Sample == c.Sample && (c.Problem == nil || t.Problem == *c.Problem) {
			return c.print(s.out, t)
		}
	}
	return fault.New(fault.NotFound, op, "it is not among the %d trajectories there", n).WithHint("choose another --sample or --problem")
}

func (c *trajectoryShowCmd) print(w io.Writer, t *transcript.Transcript) error {
	switch {
	case c.Format == "html":
		return t.HTML(w)
	case c.Format == "text":
		return t.Text(w)
	case c.Tokens:
		t = t.WithTokens()
	}
	return t.JSON(w)
}

type trajectoryExportCmd struct {
	placeFlags
	Step   *int   `xor:"place" placeholder:"N" help:"Groups that a step trained. Without --group, --step and --validation: all groups."`
	Tokens bool   `help:"With ids, mask, log-probabilities and policy versions."`
	Out    string `default:"-" type:"path" help:"File to write; - for standard output."`
}

// Run writes the trajectories in the order of their groups, or of the validation.
func (c *trajectoryExportCmd) Run(ctx context.Context, s *streams) error {
	if c.Out != "-" {
		if err := checkOutput("--out", c.Out); err != nil {
			return err
		}
	}
	run, err := c.open(ctx)
	if err != nil {
		return err
	}
	if c.Out == "-" {
		w := bufio.NewWriter(s.out)
		return errors.Join(c.write(ctx, run, w, s.err), w.Flush())
	}
	f, err := os.Create(c.Out)
	if err != nil {
		return fault.New(fault.Invalid, "trajectory export", "%w", err).WithHint("choose another place with --out")
	}
	w := bufio.NewWriter(f)
	return errors.Join(c.write(ctx, run, w, s.err), w.Flush(), f.Close())
}

func (c *trajectoryExportCmd) write(ctx context.Context, run *transcript.Run, w, notes io.Writer) error {
	if c.Validation != "" {
		return c.each(run.Validation(ctx, c.Validation), w)
	}
	groups, all := run.Groups(), false
	var err error
	switch {
	case c.Group != nil:
		groups = []int{*c.Group}
	case c.Step != nil:
		if groups, err = run.Step(ctx, *c.Step); err != nil {
			return err
		}
	default:
		all = true
	}
	gone := 0
	for _, n := range groups {
		err := c.each(run.Group(ctx, n), w)
		if all && fault.Is(err, fault.NotFound) { // not begun, or removed
			gone++
			continue
		}
		if err != nil {
			return err
		}
	}
	if gone > 0 {
		fmt.Fprintf(notes, "of %d of %d groups nothing is kept\n", gone, len(groups))
	}
	return nil
}

func (c *trajectoryExportCmd) each(ts iter.Seq2[*transcript.Transcript, error], w io.Writer) error {
	for t, err := range ts {
		if err != nil {
			return err
		}
		if c.Tokens {
			t = t.WithTokens()
		}
		if err := t.JSON(w); err != nil {
			return err
		}
	}
	return nil
}
