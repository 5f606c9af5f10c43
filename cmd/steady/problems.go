package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/dataset/deepcoder"
	"github.com/steadyrl/steady/internal/dataset/lcb"
	"github.com/steadyrl/steady/internal/fault"
)

type datasetProblemsCmd struct {
	Paths   []string `arg:"" name:"path" type:"path" help:"Parquet files of TACO or DeepCoder or files of your own problems, in this order, or the directory with LiveCodeBench's test.jsonl to test6.jsonl."`
	Format  string   `required:"" enum:"taco,deepcoder,lcb,jsonl" help:"taco, deepcoder, lcb, or jsonl for your own problems."`
	Recipe  bool     `name:"recipe-bounds" help:"deepcoder: only problems with 5 to 200 tests of at most 4 MiB."`
	Release int      `default:"6" help:"lcb: release_v1 to release_v6."`
	From    string   `placeholder:"DAY" help:"lcb: first day of the contests, such as 2024-08-01."`
	Until   string   `placeholder:"DAY" help:"lcb: first day that is left out."`
	JSONL   bool     `name:"jsonl" help:"Print JSON Lines instead of a table."`
}

// listedProblem is a line of the list.
type listedProblem struct {
	ID       string `json:"id"`
	Kind     string `json:"kind"` // stdin, functional or unusable
	Tests    int    `json:"tests"`
	FnName   string `json:"fn_name,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Evidence string `json:"evidence,omitempty"`
}

// Run prints a line for every problem and row, and a sum to the error stream.
func (c *datasetProblemsCmd) Run(ctx context.Context, s *streams) error {
	set, err := c.open(ctx)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(s.out)
	count := map[string]int{}
	for p, err := range set {
		l := listedProblem{ID: p.ID, Kind: "stdin", Tests: p.HiddenTests, FnName: p.FnName}
		if row, ok := errors.AsType[*dataset.RowError](err); ok {
			l.Kind, l.Reason, l.Evidence = "unusable", string(row.Reason), row.Evidence
		} else if err != nil {
			return errors.Join(out.Flush(), err)
		}
		if l.FnName != "" {
			l.Kind = "functional"
		}
		count[l.Kind]++
		if c.JSONL {
			err = printJSON(out, l)
		} else {
			_, err = fmt.Fprintf(out, "%s  %-10s  %d tests  %s%s %s\n", l.ID, l.Kind, l.Tests, l.FnName, l.Reason, l.Evidence)
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(s.err, "%d problems of standard input, %d of functions, %d unusable rows\n", count["stdin"], count["functional"], count["unusable"])
	return out.Flush()
}

func (c *datasetProblemsCmd) open(ctx context.Context) (dataset.EvalSet, error) {
	switch c.Format {
	case "deepcoder":
		var o deepcoder.Options
		if c.Recipe {
			o = deepcoder.SecondRecipe()
		}
		return deepcoder.Open(ctx, c.Paths, o)
	case "lcb":
		if len(c.Paths) != 1 {
			return nil, fault.New(fault.Invalid, "", "%d directories", len(c.Paths)).WithHint("give one directory with test.jsonl to test6.jsonl")
		}
		return lcb.Open(ctx, c.Paths[0], lcb.EvalOptions{Release: c.Release, From: c.From, Until: c.Until})
	}
	if c.Format == "jsonl" {
		return dataset.OpenOwn(ctx, c.Paths)
	}
	return dataset.OpenShards(ctx, c.Paths), nil
}
