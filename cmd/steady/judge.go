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
	verdicts := make([]chan judge.Verdict, len(cases))
	for i := range verdicts {
		verdicts[i] = make(chan judge.Verdict, 1)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2*box.Slots() + 1) // the printer, and a submission in the queue for each one that runs
	g.Go(func() error {
		for i, in := range cases {
			select {
			case v := <-verdicts[i]:
				if err := printJSON(s.out, judged{in.ID, v}); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for i, in := range cases {
		g.Go(func() error {
			v, err := j.Judge(ctx, in.Response, in.Tests)
			if err == nil {
				verdicts[i] <- v
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
		return nil, fault.New(fault.Invalid, "judge", "%w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	return judge.ReadCases(f, c.Cases)
}
