package main

import (
	"context"
	"encoding/json"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

type judgeCmd struct {
	sandboxFlags
	Cases string `required:"" type:"existingfile" placeholder:"FILE" help:"JSON Lines: {\"id\", \"response_text\", \"tests\": [{\"input\", \"output\"}]}; docs/judge.md has the rules."`
}

// Run judges every case, side by side, and prints the verdicts in the order of the file, each as soon as it and all
// before it are known. A mistake anywhere in the file ends the command before the first program is run.
func (c *judgeCmd) Run(ctx context.Context, s *streams) error {
	cases, err := c.read()
	if err != nil {
		return err
	}
	box, err := c.open(ctx, s.err)
	if err != nil {
		return err
	}
	defer box.Close() //nolint:errcheck // nothing runs any more
	j := judge.New(judge.Options{Runner: box})
	return sideBySide(ctx, len(cases), 2*box.Slots(), // a submission in the queue for each one that runs
		func(ctx context.Context, i int) (judge.Verdict, error) {
			return j.Judge(ctx, cases[i].Response, cases[i].Tests)
		},
		func(i int, v judge.Verdict) error { return printJSON(s.out, judged{cases[i].ID, v}) })
}

// sideBySide makes n things, atOnce at a time, and gives each to use, in order, as soon as it and all before it are there. The first error
// ends all.
func sideBySide[T any](ctx context.Context, n, atOnce int, produce func(ctx context.Context, i int) (T, error), use func(i int, v T) error) error {
	made := make([]chan T, n)
	for i := range made {
		made[i] = make(chan T, 1)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce + 1) // and the one that uses
	g.Go(func() error {
		for i := range made {
			select {
			case v := <-made[i]:
				if err := use(i, v); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for i := range made {
		g.Go(func() error {
			v, err := produce(ctx, i)
			if err == nil {
				made[i] <- v
			}
			return err
		})
	}
	return g.Wait()
}

// judged is a line of output.
type judged struct {
	ID json.RawMessage `json:"id"`
	judge.Verdict
}

func (c *judgeCmd) read() ([]judge.Case, error) {
	f, err := os.Open(c.Cases)
	if err != nil {
		return nil, fault.New(fault.Invalid, "judge", "%w", err).WithHint("give a file that can be read with --cases")
	}
	defer f.Close() //nolint:errcheck // only read
	return judge.ReadCases(f, c.Cases)
}
