package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/steadyrl/steady/internal/dataset/lcb"
	"github.com/steadyrl/steady/internal/fault"
)

type datasetLCBCmd struct {
	Dir   string `arg:"" type:"path" help:"Directory with LiveCodeBench's test.jsonl to test6.jsonl."`
	Tests bool   `help:"Read every saved test instead, and print what there is in each file."`
}

// Run prints an entry a problem, for --exclude or data.exclude, or counts tests.
func (c *datasetLCBCmd) Run(ctx context.Context, s *streams) error {
	if err := checkPresent(c.Dir, "the directory of livecodebench/code_generation_lite"); err != nil {
		return err
	}
	if c.Tests {
		return c.count(ctx, s)
	}
	out := bufio.NewWriter(s.out)
	err := readLCB(ctx, s, c.Dir, lcb.Options{}, func(_ string, p *lcb.Problem) error { return printJSON(out, p.Exclusion()) })
	if err != nil {
		return err
	}
	return out.Flush()
}

// counted is what a file of LiveCodeBench holds.
type counted struct {
	problems, functional int
	public, private      int
	encodings            map[lcb.Encoding]int // of private tests
	platforms            map[string]int
	first, last          string // dates
}

// count reads all tests and prints a line a file.
func (c *datasetLCBCmd) count(ctx context.Context, s *streams) error {
	files := map[string]*counted{}
	err := readLCB(ctx, s, c.Dir, lcb.Options{Tests: true}, func(file string, p *lcb.Problem) error {
		n := files[file]
		if n == nil {
			n = &counted{encodings: map[lcb.Encoding]int{}, platforms: map[string]int{}, first: p.Date, last: p.Date}
			files[file] = n
		}
		n.problems++
		n.platforms[p.Platform]++
		n.first, n.last = min(n.first, p.Date), max(n.last, p.Date)
		if p.Starter != "" {
			n.functional++
		}
		if _, err := lcb.Tests(p.Public, lcb.MaxInflated, func(lcb.Test) error { n.public++; return nil }); err != nil {
			return fault.New(fault.KindOf(err), "", "public tests of %s: %w", p.ID, err)
		}
		how, err := lcb.Tests(p.Private, lcb.MaxInflated, func(lcb.Test) error { n.private++; return nil })
		if err != nil {
			return fault.New(fault.KindOf(err), "", "private tests of %s: %w", p.ID, err)
		}
		n.encodings[how]++
		return nil
	})
	if err != nil {
		return err
	}
	total := 0
	for _, name := range lcb.Files() {
		n := files[name]
		if n == nil {
			continue
		}
		total += n.problems
		fmt.Fprintf(s.out, "%s: %d problems (%d atcoder, %d leetcode, %d codeforces; %d functional) of %s to %s, %d public tests, %d private tests (%d as JSON, %d compressed, %d pickled)\n",
			name, n.problems, n.platforms["atcoder"], n.platforms["leetcode"], n.platforms["codeforces"], n.functional, day(n.first), day(n.last), n.public, n.private,
			n.encodings[lcb.JSON], n.encodings[lcb.Compressed], n.encodings[lcb.Pickled])
	}
	_, err = fmt.Fprintf(s.out, "%d problems; release_v6 has %d\n", total, lcb.ReleaseRows)
	return err
}

func day(date string) string {
	d, _, _ := strings.Cut(date, "T")
	return d
}

// readLCB reads the files of a directory and warns of missing ones.
func readLCB(ctx context.Context, s *streams, dir string, o lcb.Options, each func(file string, p *lcb.Problem) error) error {
	missing, err := lcb.ReadDir(ctx, dir, o, each)
	if err == nil && len(missing) > 0 {
		fmt.Fprintf(s.err, "warning: %s of release_v6 are not in %s; their problems are not known\n", strings.Join(missing, ", "), dir)
	}
	return err
}
