package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

type datasetCmd struct {
	Prepare   datasetPrepareCmd   `cmd:"" help:"Filter Parquet shards, check references, deduplicate and split; the same work as in a run, without a server."`
	Convert   datasetConvertCmd   `cmd:"" help:"Turn problems of your own, as JSON Lines, into a Parquet shard that prepare reads."`
	Decisions datasetDecisionsCmd `cmd:"" help:"Print the decision for every input row."`
	Show      datasetShowCmd      `cmd:"" help:"Print a problem, or why a row was dropped."`
	Check     datasetCheckCmd     `cmd:"" help:"Verify digests, that the splits are disjoint under every key, and that prompts hold statements only."`
	LCB       datasetLCBCmd       `cmd:"" name:"lcb" help:"Print LiveCodeBench's problems as a list of excluded problems, or verify its files."`
	Problems  datasetProblemsCmd  `cmd:"" help:"Print what an evaluation would use of files of TACO, DeepCoder or LiveCodeBench, and why not of the rest."`
	Funnel    datasetFunnelCmd    `cmd:"" help:"Print or draw how many rows each rule dropped."`
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

type datasetCheckCmd struct {
	datasetDir
	Shards []string `placeholder:"FILE,..." help:"Also compare every prompt and saved test with its row in these shards, and look for the row's solutions in the prompt."`
}

// Run verifies the data set.
func (c *datasetCheckCmd) Run(ctx context.Context, s *streams) error {
	if err := c.check(); err != nil {
		return err
	}
	var shards []dataset.Source
	for _, name := range c.Shards {
		f, err := openShard(name)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // only read
		in, err := dataset.ReadInput(ctx, f)
		if err != nil {
			return err
		}
		shards = append(shards, dataset.Source{Input: in, At: f})
	}
	f, err := dataset.Check(ctx, c.Dir, shards...)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "digests agree, the splits are disjoint\n%d problems, %d saved tests, of which %d stand in their statement as examples\n", f.Problems, f.Tests, f.Examples)
	if len(shards) > 0 {
		fmt.Fprintf(s.out, "%d prompts are the statements of their rows and hold none of their solutions\n", f.Compared)
	}
	return nil
}

type datasetFunnelCmd struct {
	datasetDir
	SVG string `name:"svg" type:"path" placeholder:"FILE" help:"Draw the funnel into this file instead of printing it."`
}

// Run prints or draws the counts by reason.
func (c *datasetFunnelCmd) Run(s *streams) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.SVG != "" {
		if err := checkOutput("--svg", c.SVG); err != nil {
			return err
		}
	}
	m, err := dataset.Counts(c.Dir)
	if err != nil {
		return err
	}
	if c.SVG == "" {
		return m.FunnelTable(s.out)
	}
	var b bytes.Buffer
	if err := m.FunnelSVG(&b); err != nil {
		return err
	}
	if err := os.WriteFile(c.SVG, b.Bytes(), 0o644); err != nil { //nolint:gosec // a drawing is for everybody
		return fault.New(fault.Invalid, "dataset funnel", "%w", err).WithHint("choose another place with --svg")
	}
	_, err = fmt.Fprintln(s.out, "wrote", c.SVG)
	return err
}

type datasetShowCmd struct {
	datasetDir
	ID    string `arg:"" name:"id" help:"Problem, as decisions prints it: the shard's name, a slash, the row's number."`
	JSON  bool   `help:"Print one JSON object."`
	Tests bool   `help:"Print the saved tests too, which no prompt holds."`
}

// shownProblem is what show prints as JSON.
type shownProblem struct {
	Decision dataset.Decision `json:"decision"`
	Problem  *dataset.Problem `json:"problem,omitempty"`
	Tests    []judge.Test     `json:"hidden_tests,omitempty"`
}

// Run prints the decision on a row and, if it was kept, the problem.
func (c *datasetShowCmd) Run(s *streams) error {
	if err := c.check(); err != nil {
		return err
	}
	rows, err := dataset.Decisions(c.Dir)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(rows, func(d dataset.Decision) bool { return d.ID == c.ID })
	if i < 0 {
		return fault.New(fault.NotFound, "", "%s has no row %q", c.Dir, c.ID).WithHint("steady dataset decisions %s lists the rows", c.Dir)
	}
	out := shownProblem{Decision: rows[i]}
	if rows[i].Keep {
		set, err := dataset.Open(c.Dir)
		if err != nil {
			return err
		}
		split, p, err := set.Find(c.ID)
		if err != nil {
			return err
		}
		out.Problem = &p
		if c.Tests {
			if out.Tests, err = set.Tests(split, p.Index); err != nil {
				return err
			}
		}
	}
	if c.JSON {
		return printJSON(s.out, out)
	}
	return out.print(s.out)
}

// print shows the problem to a person.
func (p shownProblem) print(out io.Writer) error {
	w := bufio.NewWriter(out)
	d := p.Decision
	fmt.Fprintf(w, "%s: %s (%s)\n", d.ID, d.Reason, d.Evidence)
	if p.Problem == nil {
		return w.Flush()
	}
	q := p.Problem
	fmt.Fprintf(w, "split: %s, number %d\n", d.Split, q.Index)
	for _, f := range [][2]string{
		{"title", q.Title},
		{"source", q.Source},
		{"platform", q.Platform},
		{"url", q.URL},
		{"difficulty", q.Difficulty},
		{"date", q.Date},
		{"time limit", q.TimeLimit},
		{"memory limit", q.MemoryLimit},
		{"tags", strings.Join(q.Tags, ", ")},
	} {
		if f[1] != "" {
			fmt.Fprintf(w, "%s: %s\n", f[0], f[1])
		}
	}
	fmt.Fprintf(w, "%d samples, %d saved tests\n\n%s\n", len(q.Samples), q.HiddenTests, q.Statement)
	for i, t := range p.Tests {
		fmt.Fprintf(w, "\n--- input of test %d\n%s\n--- output of test %d\n%s\n", i, t.Input, i, t.Output)
	}
	return w.Flush()
}
