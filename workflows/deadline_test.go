package workflows_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/contract"
)

// Every activity that a run has ever scheduled is bounded in time, sends heartbeats, is tried again, and has a name for people; on the queue of
// one host it must also be taken in time. Every workflow below a run has a name for people.
func TestHistories_everyActivityIsBoundedAndNamed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "histories", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range files {
		for _, e := range history(t, f).GetEvents() {
			summary := string(e.GetUserMetadata().GetSummary().GetData())
			if c := e.GetStartChildWorkflowExecutionInitiatedEventAttributes(); c != nil && len(summary) < 3 {
				t.Errorf("%s: the workflow %s has no summary", filepath.Base(f), c.GetWorkflowId())
			}
			a := e.GetActivityTaskScheduledEventAttributes()
			if a == nil {
				continue
			}
			name := a.GetActivityType().GetName()
			seen[name] = true
			if a.GetStartToCloseTimeout().AsDuration() <= 0 || a.GetHeartbeatTimeout().AsDuration() <= 0 || a.GetRetryPolicy().GetInitialInterval().AsDuration() <= 0 {
				t.Errorf("%s: %s has the bounds %v and %v, retry %v", filepath.Base(f), name, a.GetStartToCloseTimeout(), a.GetHeartbeatTimeout(), a.GetRetryPolicy())
			}
			if strings.HasPrefix(a.GetTaskQueue().GetName(), contract.QueueTrainer+"/") && a.GetScheduleToStartTimeout().AsDuration() >= a.GetStartToCloseTimeout().AsDuration() {
				t.Errorf("%s: %s may wait %v for its host", filepath.Base(f), name, a.GetScheduleToStartTimeout())
			}
			if len(summary) < 3 {
				t.Errorf("%s: %s has no summary", filepath.Base(f), name)
			}
		}
	}
	for _, name := range []string{
		contract.StartRunActivity.Name, contract.OpenLineageActivity.Name, contract.SealBatchActivity.Name, contract.CloseLedgerActivity.Name,
		contract.PublishVersionActivity.Name, contract.SummarizeValidationActivity.Name, contract.RecordEventActivity.Name,
		contract.ApplyRetentionActivity.Name, contract.WriteReportActivity.Name, contract.PlanDatasetActivity.Name, contract.PrepareShardActivity.Name,
		contract.FinishDatasetActivity.Name, contract.GenerateRolloutsActivity.Name, contract.JudgeRolloutsActivity.Name, contract.InitPolicyActivity.Name,
		contract.AcquireTrainerActivity.Name, contract.ExportPolicyActivity.Name, contract.UpdatePolicyActivity.Name, contract.SaveCheckpointActivity.Name,
	} {
		if !seen[name] {
			t.Errorf("no stored history has %s", name)
		}
	}
}
