package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
)

// ExportModel writes the BF16 export of a checkpoint, verifies it, and runs the dev set again from the
// exported files with the keys of validation. It continues nothing and accepts no messages.
func ExportModel(ctx workflow.Context, in contract.ExportInput) (contract.ExportOutput, error) {
	t := in.Spec.Timeouts
	res, err := contract.ExportPolicyActivity.Do(
		class(ctx, contract.QueueTrainer, t.Export, t, fmt.Sprintf("export step %d as BF16, verify", in.Step)),
		contract.ExportRequest{RunKey: in.Spec.RunKey, Step: in.Step})
	if err != nil {
		return contract.ExportOutput{}, err
	}
	var row contract.DevRow
	id := contract.ValidateID(in.Spec.Scope(), "export")
	err = workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: id, WaitForCancellation: true, StaticSummary: "dev set from the exported files",
	}), contract.Validate, contract.ValidateInput{
		RunKey: in.Spec.RunKey, Name: "export", Version: in.Step, Problems: in.Spec.DevProblems,
		Chunk: in.Spec.EvalChunk, Source: "export", Timeouts: t,
	}).Get(ctx, &row)
	if err != nil {
		return contract.ExportOutput{}, err
	}
	return contract.ExportOutput{ExportResult: res, Dev: row}, nil
}
