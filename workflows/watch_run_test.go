package workflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/record"
)

// A stage outside the step loop that stands still is named in the details and as one event, and no longer once it moves or ends.
func TestTrainRun_namesAStageThatStandsStill(t *testing.T) {
	t.Parallel()
	for stage, id := range map[string]string{
		"the data set":      "r/dataset",
		"the first version": "r",
		"the export":        "r/export/000006",
	} {
		for name, c := range map[string]struct {
			mark  func(call int) (uint32, error)
			named []int // looks after which the stage is named, the first is 1
		}{
			"stands still":       {func(int) (uint32, error) { return 7, nil }, []int{2, 3, 4, 5}},
			"moves":              {func(call int) (uint32, error) { return uint32(call), nil }, nil},
			"moves again":        {func(call int) (uint32, error) { return []uint32{0, 7, 7, 8, 9, 10}[call], nil }, []int{2}},
			"has nothing to do":  {func(int) (uint32, error) { return 0, nil }, nil},
			"the server is away": {func(int) (uint32, error) { return 0, temporal.NewNonRetryableApplicationError("away", "Invalid", nil) }, nil},
			"stands still, a silence": {func(call int) (uint32, error) {
				if call == 2 {
					return 0, temporal.NewNonRetryableApplicationError("away", "Invalid", nil)
				}
				return 7, nil
			}, []int{3, 4, 5}},
		} {
			t.Run(stage+" "+name, func(t *testing.T) {
				t.Parallel()
				w := &runWorld{stall: 10 * time.Minute, slow: stage}
				env := newRunEnv(t, w)
				calls := 0
				var events []record.Event
				contract.InspectActivity.Register(env, func(_ context.Context, q contract.InspectRequest) (contract.InspectResult, error) {
					calls++
					if q.Workflows[0] != id {
						return contract.InspectResult{}, fmt.Errorf("asked about %v", q.Workflows)
					}
					mark, err := c.mark(calls)
					res := contract.InspectResult{Found: make([]contract.Inspected, len(q.Workflows))}
					res.Found[0] = contract.Inspected{Status: "Running", Open: true, Mark: mark, Doing: "Prepare, attempt 3"}
					return res, err
				})
				contract.RecordEventActivity.Register(env, func(_ context.Context, q contract.EventRequest) (contract.Done, error) {
					events = append(events, q.Event)
					return contract.Done{}, nil
				})
				if stage == "the first version" {
					env.OnActivity(contract.InitPolicyActivity.Name, mockAny, mockAny).After(slowStage).Return(contract.InitPolicyResult{}, nil)
				}
				var named []int
				begin := time.Duration(0)
				if stage == "the export" {
					begin = time.Hour // of the step loop
				}
				look := func() {
					p := progress(t, env)
					if len(p.Stalled) > 0 {
						named = append(named, calls)
						if !strings.HasPrefix(p.Stalled[0], stage+": no progress for 10m0s: Prepare, attempt 3") {
							t.Errorf("it says %q", p.Stalled)
						}
					}
				}
				for i := range 5 {
					env.RegisterDelayedCallback(look, begin+time.Duration(i+1)*w.stall+time.Minute)
				}
				env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
				if err := env.GetWorkflowError(); err != nil {
					t.Fatal(err)
				}
				if calls != 5 || !slices.Equal(named, c.named) {
					t.Errorf("%d looks, named after %v, want 5 and %v", calls, named, c.named)
				}
				stalled := 0
				for _, e := range events {
					if e.Kind == "stalled" && e.Where == id {
						stalled++
					}
				}
				if want := min(len(c.named), 1); stalled != want {
					t.Errorf("events %+v, want %d of the stage", events, want)
				}
				if p := progress(t, env); len(p.Stalled) > 0 {
					t.Errorf("after the end it says %v", p.Stalled)
				}
			})
		}
	}
}
