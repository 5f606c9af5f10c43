package simulate_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/steadyrl/steady/cmd/steady/internal/simulate"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/virtual"
	"github.com/steadyrl/steady/workflows"
)

// kinds are the types of events.
func kinds(h []*historypb.HistoryEvent) []string {
	var out []string
	for _, e := range h {
		out = append(out, e.GetEventType().String())
	}
	return out
}

// The histories of the virtual server are histories: the SDK replays them, and a group's has the events that a development
// server recorded, in their order, with about their size.
func TestHistories_areThoseOfAServer(t *testing.T) {
	t.Parallel()
	o := hard(t, 12)
	o.Failures = 0.02
	kept := map[string]virtual.Execution{}
	_, err := simulate.RunWith(t.Context(), o, nil, func(e virtual.Execution) {
		if _, ok := kept[e.Type+" "+e.Outcome]; !ok {
			kept[e.Type+" "+e.Outcome] = e
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"TrainRun completed", "TrainLoop continued", "TrainLoop completed", "RolloutGroup completed", "Validate completed", "ExportModel completed"} {
		e, ok := kept[name]
		if !ok {
			t.Errorf("there is no execution %q", name)
			continue
		}
		r := worker.NewWorkflowReplayer()
		workflows.Register(r)
		// Ids of children follow from the run's id.
		if err := r.ReplayWorkflowHistoryWithOptions(nil, &historypb.History{Events: e.History},
			worker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: e.ID}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	f, err := os.Open(filepath.Join("..", "..", "..", "..", "workflows", "testdata", "histories", "rollout_group.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	real, err := client.HistoryFromJSON(f, client.HistoryJSONOptions{})
	if err != nil {
		t.Fatal(err)
	}
	group := kept[contract.RolloutGroup+" completed"]
	if !slices.Equal(kinds(group.History), kinds(real.GetEvents())) {
		t.Errorf("events of a group:\n%v\nof a server:\n%v", kinds(group.History), kinds(real.GetEvents()))
	}
	size := 0
	for _, e := range real.GetEvents() {
		size += proto.Size(e)
	}
	if ratio := float64(group.Bytes) / float64(size); ratio < 0.75 || ratio > 1.25 {
		t.Errorf("a group's history has %d bytes, that of a server %d", group.Bytes, size)
	}
}
