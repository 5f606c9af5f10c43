package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/record"
)

// Validate runs the dev set at one pinned version: chunks are generated and judged side by side, then
// summed up. Its trajectories, temperature and random domain are those of validation and never mix with
// training's. It continues nothing and accepts no messages; cancel ends its activities.
func Validate(ctx workflow.Context, in contract.ValidateInput) (contract.DevRow, error) {
	began := workflow.Now(ctx)
	units := (in.Problems + in.Chunk - 1) / in.Chunk
	var first error
	wg := workflow.NewWaitGroup(ctx)
	for c := range units {
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			if err := validateChunk(ctx, in, c); err != nil && first == nil {
				first = err
			}
		})
	}
	wg.Wait(ctx)
	if first != nil {
		return contract.DevRow{}, first
	}
	sum, err := contract.SummarizeValidationActivity.Do(control(ctx, in.Timeouts, "sum up"), contract.SummarizeRequest{
		RunKey: in.RunKey, Name: in.Name, Version: in.Version, Units: units, Source: in.Source,
		Seconds: workflow.Now(ctx).Sub(began).Seconds(),
	})
	if err != nil {
		return contract.DevRow{}, err
	}
	m := sum.Metrics
	row := contract.DevRow{
		Name: in.Name, Version: in.Version, Problems: sum.Problems, Solved: m.Solved, Acc: m.Acc,
		PassRate: m.PassRate, FormatOK: m.FormatOK, ToolUsed: m.ToolUsed,
	}
	if sum.Problems > 0 {
		row.CutShare = float64(m.LengthCut) / float64(sum.Problems)
	}
	workflow.SetCurrentDetails(ctx, devTable([]contract.DevRow{row}))
	return row, nil
}

func validateChunk(ctx workflow.Context, in contract.ValidateInput, c int) error {
	t := in.Timeouts
	var problems []int
	for p := c * in.Chunk; p < min(in.Problems, (c+1)*in.Chunk); p++ {
		problems = append(problems, p)
	}
	unit := record.EvalUnit(in.Name, c)
	gen, err := contract.GenerateRolloutsActivity.Do(
		class(ctx, contract.QueueRollout, t.Rollout, t, fmt.Sprintf("dev problems %d to %d", problems[0], problems[len(problems)-1])),
		contract.GenerateRequest{
			RunKey: in.RunKey, Unit: unit, Split: "dev", Problems: problems, Samples: 1,
			MinVersion: in.Version, Pin: &in.Version, Source: in.Source,
		})
	if err != nil {
		return err
	}
	_, err = contract.JudgeRolloutsActivity.Do(class(ctx, contract.QueueJudge, t.Judge, t, "judge them"),
		contract.JudgeRequest{RunKey: in.RunKey, Unit: unit, Split: "dev", File: gen.File})
	return err
}
