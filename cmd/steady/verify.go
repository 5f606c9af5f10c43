package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/steadyrl/steady/internal/audit"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

type verifyCmd struct {
	Data string `help:"Directory of the artifact store." default:".steady" type:"path"`
	storeFlags
	Name string `arg:"" name:"run" help:"Name of the run."`
	JSON bool   `help:"Print what was read and what differs as JSON."`
}

// Run reads the run; a difference ends with exit status 5.
func (c *verifyCmd) Run(ctx context.Context, s *streams) error {
	store, _, err := runFlags{Data: c.Data, storeFlags: c.storeFlags, Lineage: record.FirstLineage, Name: c.Name}.open(ctx)
	if err != nil {
		return err
	}
	res, err := audit.Run(ctx, store, c.Name)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(s.out, res); err != nil {
			return err
		}
	} else {
		for _, f := range res.Findings {
			fmt.Fprintf(s.out, "lineage %s: %s\n", f.Lineage, f.What)
		}
		if res.Unsealed > 0 {
			fmt.Fprintf(s.out, "%d of %d records carry no seal: an older build wrote them, or the seals were removed\n", res.Unsealed, res.Records)
		}
		fmt.Fprintf(s.out, "read: %d records, %d results and %d files, %d bytes; lineages: %s\n",
			res.Records, res.Steps, res.Files, res.Bytes, strings.Join(res.Lineages, ", "))
	}
	if n := len(res.Findings); n > 0 {
		return &exitError{exitMismatch, fault.New(fault.Corrupt, "", "run %s differs from what it wrote; differences: %d", c.Name, n).
			WithHint("restore the named files from one copy of the store; docs/operations.md says more under Corrupt")}
	}
	if !c.JSON {
		_, err = fmt.Fprintln(s.out, "nothing differs")
	}
	return err
}
