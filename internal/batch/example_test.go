package batch_test

import (
	"context"
	"fmt"

	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/judge"
)

// allOrNothing rewards a program that passes every test, and no other.
type allOrNothing struct{ batch.Judger }

func (j allOrNothing) Judge(ctx context.Context, response string, tests []judge.Test) (judge.Verdict, error) {
	v, err := j.Judger.Judge(ctx, response, tests)
	if v.Passed < v.Total {
		v.Passed = 0
	}
	return v, err
}

// firstOnly stands for a judge: it passes a program on the first n tests, where n is the program's length.
type firstOnly struct{}

func (f firstOnly) Judge(ctx context.Context, response string, tests []judge.Test) (judge.Verdict, error) {
	code, _ := judge.ExtractCode(response)
	return f.JudgeCode(ctx, code, tests)
}

func (firstOnly) JudgeCode(_ context.Context, code string, tests []judge.Test) (judge.Verdict, error) {
	n := min(len(code)-1, len(tests)) // without the line break
	kind := judge.WrongAnswer
	if n == len(tests) {
		kind = judge.Accepted
	}
	return judge.Verdict{FormatOK: true, Kind: kind, Passed: n, Total: len(tests)}, nil
}

// A reward of one's own is a Judger around another one.
func ExampleJudger() {
	tests := make([]judge.Test, 4)
	submissions := []batch.Submission{
		{ProblemID: "p", Sample: 0, Response: "```\nabc\n```", Tests: tests},
		{ProblemID: "p", Sample: 1, Response: "```\nabcd\n```", Tests: tests},
	}
	for _, j := range []batch.Judger{firstOnly{}, allOrNothing{firstOnly{}}} {
		verdicts, err := batch.JudgeAll(context.Background(), j, submissions, 2)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%T: %v and %v\n", j, verdicts[0].Reward, verdicts[1].Reward)
	}
	// Output:
	// batch_test.firstOnly: 0.75 and 1
	// batch_test.allOrNothing: 0 and 1
}
