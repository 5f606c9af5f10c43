package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
)

// Registry is the part of a worker that Register needs.
type Registry interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// Register binds every workflow under its contract name.
func Register(r Registry) {
	for _, w := range []struct {
		name string
		fn   any
	}{
		{contract.TrainRun, TrainRun},
		{contract.PrepareDataset, PrepareDataset},
		{contract.TrainLoop, TrainLoop},
		{contract.RolloutGroup, RolloutGroup},
		{contract.Validate, Validate},
		{contract.ExportModel, ExportModel},
		{contract.Study, Study},
	} {
		r.RegisterWorkflowWithOptions(w.fn, workflow.RegisterOptions{Name: w.name})
	}
}
