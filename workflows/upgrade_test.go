package workflows_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/steadyrl/steady/workflows"
)

// history reads a stored history.
func history(t *testing.T, file string) *historypb.History {
	t.Helper()
	data, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	h, err := client.HistoryFromJSON(data, client.HistoryJSONOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func replay(h *historypb.History) error {
	r := worker.NewWorkflowReplayer()
	workflows.Register(r)
	// Ids of children follow from the run's id.
	return r.ReplayWorkflowHistoryWithOptions(nil, h, worker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: "hist"}})
}

// A worker may be replaced by a newer one at any moment of an open run. So every beginning of a stored history that ends where a worker
// takes over must replay, not only the whole.
func TestReplay_workersAreUpgradedAtAnyMoment(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "histories", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			h := history(t, f)
			moments := 0
			for i, e := range h.GetEvents() {
				if e.GetEventType() != enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED {
					continue
				}
				moments++
				part := proto.CloneOf(&historypb.History{Events: h.GetEvents()[:i+1]})
				if err := replay(part); err != nil {
					t.Fatalf("upgraded at event %d: %v", e.GetEventId(), err)
				}
			}
			if moments == 0 {
				t.Error("the history has no workflow task")
			}
		})
	}
}

// What an older build did must be found by a replay if the code does otherwise now; else the tests above prove nothing.
func TestReplay_findsAnotherCourse(t *testing.T) {
	t.Parallel()
	h := history(t, filepath.Join("testdata", "histories", "train_loop_continued.json"))
	changed := 0
	for _, e := range h.GetEvents() {
		if a := e.GetStartChildWorkflowExecutionInitiatedEventAttributes(); a != nil && strings.Contains(a.GetWorkflowId(), "/group/") && changed == 0 {
			a.WorkflowId = fmt.Sprintf("%s/group/%06d", "hist", 999_999)
			changed++
		}
	}
	if err := replay(h); err == nil || changed == 0 {
		t.Errorf("%d events changed, replay says %v; want a difference", changed, err)
	}
}

// Both sides of a change are stored: a history from before it, without its marker, and one from after it.
func TestReplay_bothSidesOfAChangeAreStored(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "histories", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ id, workflow string }{{"fill", "TrainLoop"}} {
		before, after := 0, 0
		for _, f := range files {
			h := history(t, f)
			if h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName() != change.workflow {
				continue
			}
			if marked(h, change.id) {
				after++
			} else {
				before++
			}
		}
		if before == 0 || after == 0 {
			t.Errorf("change %q: %d histories from before and %d from after it, want both", change.id, before, after)
		}
	}
}

// marked reports whether a history holds the marker of a change.
func marked(h *historypb.History, change string) bool {
	for _, e := range h.GetEvents() {
		for _, p := range e.GetMarkerRecordedEventAttributes().GetDetails()["change-id"].GetPayloads() {
			if string(p.GetData()) == strconv.Quote(change) {
				return true
			}
		}
	}
	return false
}
