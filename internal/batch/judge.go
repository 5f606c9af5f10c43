package batch

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/internal/judge"
)

// Judger scores a response; *judge.Judge is one.
type Judger interface {
	Judge(ctx context.Context, response string, tests []judge.Test) (judge.Verdict, error)
	JudgeCode(ctx context.Context, code string, tests []judge.Test) (judge.Verdict, error)
}

// Submission is what is judged of a trajectory.
type Submission struct {
	ProblemID string
	Sample    int
	Response  string // last assistant turn
	Tests     []judge.Test
}

// JudgeAll scores submissions, at most atOnce side by side, and returns their verdicts in order. Submissions of the same program
// for the same problem are run once and share the verdict: equal programs have equal rewards. An error is an
// infrastructure fault; then there are no verdicts.
func JudgeAll(ctx context.Context, j Judger, subs []Submission, atOnce int) ([]Verdict, error) {
	type program struct {
		problem, code string
		ok            bool
	}
	first := map[program]int{}
	owner := make([]int, len(subs))
	out := make([]Verdict, len(subs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(atOnce, 1))
	for i, s := range subs {
		code, ok := judge.ExtractCode(s.Response)
		p := program{s.ProblemID, code, ok}
		if at, seen := first[p]; seen {
			owner[i] = at
			continue
		}
		first[p], owner[i] = i, i
		g.Go(func() error {
			v, err := j.Judge(ctx, s.Response, s.Tests)
			out[i] = Verdict{ProblemID: s.ProblemID, Sample: s.Sample, Reward: v.Reward(), Verdict: v}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i, at := range owner {
		if at != i {
			out[i] = out[at]
			out[i].Sample, out[i].Shared = subs[i].Sample, true
		}
	}
	return out, nil
}
