package workflows_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/workflows"
)

// Histories of a finished demo run, one of each workflow and of the step loop one that continued as new. A change that makes one
// of them fail breaks runs that are open while workers are upgraded: gate it by a version, and add a history.
func TestReplay_storedHistories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "histories", "*.json"))
	if err != nil || len(files) < 7 {
		t.Fatalf("%d histories, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			r := worker.NewWorkflowReplayer()
			workflows.Register(r)
			data, err := os.Open(f)
			if err != nil {
				t.Fatal(err)
			}
			defer data.Close()
			h, err := client.HistoryFromJSON(data, client.HistoryJSONOptions{})
			if err != nil {
				t.Fatal(err)
			}
			// Ids of children follow from the run's id.
			o := worker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: "hist"}}
			if err := r.ReplayWorkflowHistoryWithOptions(nil, h, o); err != nil {
				t.Error(err)
			}
		})
	}
}
