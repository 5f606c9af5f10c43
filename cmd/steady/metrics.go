package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/scalars"
)

type metricsCmd struct {
	Export  metricsExportCmd  `cmd:"" help:"Write the numbers of every step and validation of a run as CSV, Parquet or TensorBoard events."`
	Columns metricsColumnsCmd `cmd:"" help:"Print the columns of an export and what they mean."`
}

type metricsExportCmd struct {
	runFlags
	Format string `help:"csv, parquet, or tensorboard." default:"csv" enum:"csv,parquet,tensorboard"`
	Out    string `help:"File to write, - for standard output; for tensorboard a directory, in which one event file is written." default:"-" type:"path"`
}

// Run writes the table of a run, finished or not. A file that is there is replaced.
func (c *metricsExportCmd) Run(ctx context.Context, s *streams) error {
	const stdout = "-"
	switch {
	case c.Format == "tensorboard" && c.Out == stdout:
		return fault.New(fault.Invalid, "", "--format tensorboard writes a file of its own name").WithHint("name a directory with --out, for example --out logdir")
	case c.Format == "tensorboard":
		if err := checkDir("--out", c.Out); err != nil {
			return err
		}
	case c.Out != stdout:
		if err := checkOutput("--out", c.Out); err != nil {
			return err
		}
	}
	store, l, err := c.open(ctx)
	if err != nil {
		return err
	}
	t, err := scalars.Load(ctx, store, l)
	if err != nil {
		return err
	}
	if len(t.Rows) == 0 {
		return fault.New(fault.NotFound, "metrics export", "run %s has no step and no validation yet", l.Run).WithHint("try again after its first step")
	}
	write, name := t.WriteCSV, c.Out
	switch c.Format {
	case "parquet":
		write = t.WriteParquet
	case "tensorboard":
		write, name = t.WriteEvents, filepath.Join(c.Out, t.EventFile())
	}
	if c.Out == stdout {
		return write(s.out)
	}
	if err := replaceFile(name, write); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "wrote %s: %d steps of run %s, lineage %s\n", name, len(t.Rows), l.Run, l.Lineage)
	return err
}

type metricsColumnsCmd struct{}

// Run prints a line for every column.
func (c *metricsColumnsCmd) Run(s *streams) error {
	for _, column := range scalars.Columns() {
		if _, err := fmt.Fprintf(s.out, "%-28s %-8s %s\n", column.Name, column.Type, column.Doc); err != nil {
			return err
		}
	}
	return nil
}
