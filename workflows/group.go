package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
)

// RolloutGroup makes one group: generate the responses of one problem, judge them, tell the step loop. A
// group that ends in an infrastructure fault, or with a record that cannot be trusted, is reported as
// failed and never trained smaller. It has a history of its own and outlives a run of the loop's chain; when the loop is closed it
// ends as run_closed. It continues nothing and accepts no messages. Cancel ends its activities.
func RolloutGroup(ctx workflow.Context, in contract.GroupInput) (contract.GroupOutput, error) {
	loop := contract.LoopID(in.Scope())
	done := contract.GroupDone{N: in.N, Tag: in.Tag}
	out, err := generateAndJudge(ctx, in, loop)
	switch {
	case err == nil:
		done.Tokens = out.Sampled
	case temporal.IsCanceledError(err):
		return out, err
	case kindOf(err) == fault.Stale:
		out.Ended = "run_closed"
		return out, nil
	default:
		done.Failed = string(kindOf(err)) + ": " + clip(message(err), 300)
		out.Ended = "failed"
	}
	if serr := workflow.SignalExternalWorkflow(ctx, loop, "", contract.SignalGroupDone, done).Get(ctx, nil); serr != nil {
		if temporal.IsCanceledError(serr) {
			return out, serr
		}
		out.Ended = "run_closed" // nobody is left to tell
		return out, nil
	}
	return out, err
}

func generateAndJudge(ctx workflow.Context, in contract.GroupInput, loop string) (contract.GroupOutput, error) {
	t := in.Timeouts
	req := contract.GenerateRequest{
		RunKey: in.RunKey, Unit: in.Unit(), Split: "train", Problems: []int{in.Problem}, Samples: in.Samples,
		Group: in.N, Tag: in.Tag, Submission: in.Submission, MinVersion: in.MinVersion, Source: "published",
		Loop: loop, ClosedCheck: t.ClosedCheck,
	}
	if in.Pin {
		req.Pin = &in.MinVersion
	}
	gen, err := contract.GenerateRolloutsActivity.Do(
		class(ctx, contract.QueueRollout, t.Rollout, t, fmt.Sprintf("%d responses to problem %d", in.Samples, in.Problem)), req)
	if err != nil {
		return contract.GroupOutput{}, err
	}
	verdict, err := contract.JudgeRolloutsActivity.Do(class(ctx, contract.QueueJudge, t.Judge, t, "judge them"),
		contract.JudgeRequest{RunKey: in.RunKey, Unit: in.Unit(), Split: "train", File: gen.File})
	if err != nil {
		return contract.GroupOutput{Sampled: gen.Sampled}, err
	}
	return contract.GroupOutput{Sampled: gen.Sampled, RewardMean: verdict.RewardMean, Ended: "delivered"}, nil
}
