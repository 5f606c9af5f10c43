package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/durable"
	"github.com/steadyrl/steady/internal/fault"
)

type datasetConvertCmd struct {
	In  string `required:"" type:"path" placeholder:"FILE" help:"JSON Lines, one problem a line; the text above has the form."`
	Out string `required:"" type:"path" placeholder:"FILE" help:"Parquet shard to write, in the schema of BAAI/TACO; its name is part of the problems' ids."`
}

// Run converts the file.
func (c *datasetConvertCmd) Run(_ context.Context, s *streams) error {
	if filepath.Ext(c.Out) != ".parquet" {
		return fault.New(fault.Invalid, "", "--out %q does not end in .parquet", c.Out).WithHint("choose a name such as problems.parquet with --out")
	}
	if err := checkOutput("--out", c.Out); err != nil {
		return err
	}
	f, err := openInput(c.In)
	if err != nil {
		return fault.New(fault.Invalid, "", "--in: %w", err).WithHint("give a JSON Lines file of problems with --in")
	}
	defer f.Close() //nolint:errcheck // only read
	problems, err := dataset.ReadOwn(f, c.In)
	if err != nil {
		return err
	}
	var shard bytes.Buffer
	if err := dataset.WriteOwn(&shard, problems); err != nil {
		return err
	}
	if err := replaceFile(c.Out, func(out io.Writer) error { _, err := shard.WriteTo(out); return err }); err != nil {
		return err
	}
	lacking := 0
	for _, p := range problems {
		if len(p.Solutions) == 0 {
			lacking++
		}
	}
	if lacking > 0 {
		fmt.Fprintf(s.err, "warning: %d of %d problems have no solution: a preparation drops them as no_solution\n", lacking, len(problems))
	}
	_, err = fmt.Fprintf(s.out, "%d problems in %s\n", len(problems), c.Out)
	return err
}

// replaceFile writes a file whole: it has its old content or the new one. Errors: Invalid, for a place that cannot be written.
func replaceFile(path string, write func(io.Writer) error) error {
	f, err := durable.Temp(filepath.Dir(path))
	if err == nil {
		err = errors.Join(write(f), f.Chmod(0o644), f.Sync())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = durable.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fault.New(fault.Invalid, "", "write %s: %w", path, err).WithHint("free space, or choose another place with --out")
	}
	return nil
}
