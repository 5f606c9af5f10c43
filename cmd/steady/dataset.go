package main

import (
	"bufio"
	"fmt"

	"github.com/steadyrl/steady/internal/dataset"
)

type datasetCmd struct {
	Prepare   datasetPrepareCmd   `cmd:"" help:"Filter Parquet shards, check references, deduplicate and split; the same work as in a run, without a server."`
	Decisions datasetDecisionsCmd `cmd:"" help:"Print the decision for every input row."`
	Check     datasetCheckCmd     `cmd:"" help:"Verify digests and that the splits are disjoint under every key."`
	Funnel    datasetFunnelCmd    `cmd:"" help:"Print how many rows each rule dropped."`
}

// datasetDir is a prepared data set.
type datasetDir struct {
	Dir string `arg:"" type:"path" help:"Directory of the prepared data set, datasets/KEY in a store."`
}

func (d datasetDir) check() error {
	return checkPresent(d.Dir, "the directory of a prepared data set, datasets/KEY in a store")
}

type datasetDecisionsCmd struct {
	datasetDir
	JSONL bool `name:"jsonl" help:"Print JSON Lines instead of a table."`
}

// Run prints a line for every row, in input order.
func (c *datasetDecisionsCmd) Run(s *streams) error {
	if err := c.check(); err != nil {
		return err
	}
	rows, err := dataset.Decisions(c.Dir)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(s.out)
	for _, d := range rows {
		if c.JSONL {
			err = printJSON(out, d)
		} else {
			_, err = fmt.Fprintf(out, "%s  %-5s  %-19s  %s\n", d.ID, d.Split, d.Reason, d.Evidence)
		}
		if err != nil {
			return err
		}
	}
	return out.Flush()
}

type datasetCheckCmd struct{ datasetDir }

// Run verifies the data set.
func (c *datasetCheckCmd) Run(s *streams) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := dataset.Check(c.Dir); err != nil {
		return err
	}
	_, err := fmt.Fprintln(s.out, "digests agree, the splits are disjoint")
	return err
}

type datasetFunnelCmd struct{ datasetDir }

// Run prints the counts by reason.
func (c *datasetFunnelCmd) Run(s *streams) error {
	if err := c.check(); err != nil {
		return err
	}
	m, err := dataset.Counts(c.Dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%-20s %7d\n", "rows", m.Rows)
	for _, r := range m.Reasons {
		if r.Rows > 0 {
			fmt.Fprintf(s.out, "%-20s %7d\n", r.Name, r.Rows)
		}
	}
	return nil
}
