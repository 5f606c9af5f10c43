package workflows_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/steadyrl/steady/internal/contract"
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

// Older builds went on in the same run when the server suggested another, so their histories replay with any suggestion.
func TestReplay_olderBuildsHeardNoSuggestion(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "histories", "train_run*.json"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		h := history(t, f)
		if marked(h, "continue-run") != -1 {
			continue
		}
		for _, e := range h.GetEvents() {
			if a := e.GetWorkflowTaskStartedEventAttributes(); a != nil {
				a.SuggestContinueAsNew = true
			}
		}
		if seen++; replay(h) != nil {
			t.Errorf("%s: %v", f, replay(h))
		}
	}
	if seen < 3 {
		t.Errorf("%d histories of older builds", seen)
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

// All sides of a change are stored: a history from before it, without its marker (version -1), and one of each version since.
func TestReplay_bothSidesOfAChangeAreStored(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "histories", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct {
		id, workflow string
		versions     []int
	}{
		{"fill", "TrainLoop", []int{-1, 1, 2}},
		{"cancel-first", "TrainLoop", []int{-1, 1}},
		{"standby", "TrainLoop", []int{-1, 1}},
		{"watch-run", "TrainRun", []int{-1, 1}},
		{"continue-run", "TrainRun", []int{-1, 1}},
	} {
		stored := map[int]int{}
		for _, f := range files {
			h := history(t, f)
			if h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName() != change.workflow {
				continue
			}
			stored[marked(h, change.id)]++
		}
		for _, v := range change.versions {
			if stored[v] == 0 {
				t.Errorf("change %q: no history of version %d is stored, but %v", change.id, v, stored)
			}
		}
	}
}

// marked returns the version of a change that a history holds, -1 without its marker.
func marked(h *historypb.History, change string) int {
	for _, e := range h.GetEvents() {
		details := e.GetMarkerRecordedEventAttributes().GetDetails()
		for _, p := range details["change-id"].GetPayloads() {
			if string(p.GetData()) == strconv.Quote(change) {
				v, err := strconv.Atoi(string(details["version"].GetPayloads()[0].GetData()))
				if err == nil {
					return v
				}
			}
		}
	}
	return -1
}

// The stored histories hold what is hard to replay: a rollback with its answer, a loop that a rollback cancelled during a validation, a
// group that the policy cancel_early ended, settings by update and by signal, and a lineage that continued as new.
func TestReplay_theHardMomentsAreStored(t *testing.T) {
	t.Parallel()
	events := func(file string) []*historypb.HistoryEvent {
		return history(t, filepath.Join("testdata", "histories", file)).GetEvents()
	}
	updates, signals := map[string]bool{}, map[string]bool{}
	for _, e := range events("train_run_rolled_back.json") {
		if a := e.GetWorkflowExecutionUpdateAcceptedEventAttributes(); a != nil {
			updates[a.GetAcceptedRequest().GetInput().GetName()] = true
		}
		if a := e.GetWorkflowExecutionSignaledEventAttributes(); a != nil {
			signals[a.GetSignalName()] = true
		}
	}
	if !updates["rollback"] || !updates["set_prefill"] || !signals["set_threshold"] || !signals["set_learning_rate"] {
		t.Errorf("updates %v, signals %v", updates, signals)
	}
	asked, early := false, 0
	for _, e := range events("train_loop_rolled_back.json") {
		asked = asked || e.GetWorkflowExecutionCancelRequestedEventAttributes() != nil
	}
	if !asked {
		t.Error("the loop that was rolled back was not cancelled")
	}
	for _, e := range events("train_loop_cancel_early.json") {
		if e.GetWorkflowExecutionCancelRequestedEventAttributes() != nil {
			t.Error("the loop with the policy cancel_early was cancelled itself")
		}
		if e.GetRequestCancelExternalWorkflowExecutionInitiatedEventAttributes() != nil {
			early++
		}
	}
	if early == 0 {
		t.Error("no group was ended early")
	}
	last := events("train_loop_lineage_continued.json")
	if last[len(last)-1].GetWorkflowExecutionContinuedAsNewEventAttributes() == nil {
		t.Error("the run of the second lineage did not continue as new")
	}
}

// An older build took settings whose keys are in another case, and smaller rates than a trainer can use. What it took is in histories of open
// runs, and its effects must be found again.
func TestReplay_whatAnOlderBuildTook(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, message, from, to string }{
		{"train_run_rolled_back.json", "set_threshold", `"threshold"`, `"Threshold"`},
		{"train_run_rolled_back.json", "set_learning_rate", `"learning_rate"`, `"learning_RATE"`},
		{"train_run_rolled_back.json", "set_learning_rate", `0.0001`, `1e-320`},
		{"train_run_rolled_back.json", "set_prefill", `"prefill": 0`, `"prefill": 1, "prefill": 0`},
		{"train_run_rolled_back.json", "rollback", `"step"`, `"STEP"`},
		{"train_run_changed.json", "set_", `{"`, `{ "`}, // the same in other bytes, as a control
	} {
		h := history(t, filepath.Join("testdata", "histories", c.file))
		changed := 0
		edit := func(name string, payloads []*commonpb.Payload) {
			for _, p := range payloads {
				if strings.HasPrefix(name, c.message) && strings.Contains(string(p.GetData()), c.from) {
					p.Data = []byte(strings.Replace(string(p.GetData()), c.from, c.to, 1))
					changed++
				}
			}
		}
		for _, e := range h.GetEvents() {
			in := e.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest().GetInput()
			edit(in.GetName(), in.GetArgs().GetPayloads())
			s := e.GetWorkflowExecutionSignaledEventAttributes()
			edit(s.GetSignalName(), s.GetInput().GetPayloads())
		}
		if err := replay(h); err != nil || changed == 0 {
			t.Errorf("%s: %s for %s, %d messages changed: %v", c.message, c.to, c.from, changed, err)
		}
	}
}

// An older build took a pause and a resume with any input, as an update and as a signal, and overlooked it.
func TestReplay_inputThatAnOlderBuildOverlooked(t *testing.T) {
	t.Parallel()
	plain := func(encoding, data string) *commonpb.Payload {
		return &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte(encoding)}, Data: []byte(data)}
	}
	for what, input := range map[string][]*commonpb.Payload{
		"a key":               {plain("json/plain", `{"reason": "lunch"}`)},
		"a text":              {plain("json/plain", `"lunch"`)},
		"half a document":     {plain("json/plain", `{`)},
		"bytes":               {plain("binary/plain", "\x00\xff")},
		"an unknown encoding": {plain("what/ever", "x")},
		"no encoding":         {{}},
		"two":                 {plain("json/plain", `{}`), plain("json/plain", `{}`)},
	} {
		changed := map[string]int{}
		for _, file := range []string{"train_run_chain_middle.json", "train_run_chain_last.json", "train_run_rolled_back.json"} {
			h := history(t, filepath.Join("testdata", "histories", file))
			for _, e := range h.GetEvents() {
				if in := e.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest().GetInput(); in.GetName() == contract.UpdatePause || in.GetName() == contract.UpdateResume {
					in.Args = &commonpb.Payloads{Payloads: input}
					changed["updates"]++
				}
				// A setting that came as a signal was handed to the loop by a signal, and so is a pause.
				if s := e.GetWorkflowExecutionSignaledEventAttributes(); s.GetSignalName() == contract.UpdateThreshold || s.GetSignalName() == contract.UpdateRate {
					s.SignalName, s.Input = contract.UpdatePause, &commonpb.Payloads{Payloads: input}
					changed["signals"]++
				}
			}
			if err := replay(h); err != nil {
				t.Errorf("%s in %s: %v", what, file, err)
			}
		}
		if changed["updates"] != 4 || changed["signals"] < 2 {
			t.Errorf("changed %v", changed)
		}
	}
}

// withRateInTheLastTask puts a new learning rate, which a loop notes as an event, into the task in which a loop continues as new.
func withRateInTheLastTask(t *testing.T, h *historypb.History) *historypb.History {
	t.Helper()
	events := h.GetEvents()
	at := 0
	for i, e := range events {
		if e.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED {
			at = i
		}
	}
	rate, err := json.Marshal(contract.Control{Rate: contract.Rate{LearningRate: 1e-5}})
	if err != nil {
		t.Fatal(err)
	}
	signal := &historypb.HistoryEvent{
		EventId: events[at].GetEventId(), EventTime: events[at].GetEventTime(), EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes{
			WorkflowExecutionSignaledEventAttributes: &historypb.WorkflowExecutionSignaledEventAttributes{
				SignalName: contract.SignalControl,
				Input:      &commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: rate}}},
			},
		},
	}
	for _, e := range events[at:] {
		e.EventId++
		if a := e.GetWorkflowTaskCompletedEventAttributes(); a != nil {
			a.StartedEventId++
		}
		if a := e.GetWorkflowExecutionContinuedAsNewEventAttributes(); a != nil {
			a.WorkflowTaskCompletedEventId++
		}
	}
	return &historypb.History{Events: slices.Insert(slices.Clone(events), at, signal)}
}

// An older build lost a message that came with its last task, and continued as new; so must a replay. A newer loop writes the event first, and so
// does not agree with a history that has the message put in.
func TestReplay_aMessageInTheLastTaskIsKeptByNewerBuildsOnly(t *testing.T) {
	t.Parallel()
	for file, version := range map[string]int{
		"train_loop_continued.json": -1, "train_loop_changed_continued.json": 1, "train_loop_lineage_continued.json": 2,
	} {
		h := history(t, filepath.Join("testdata", "histories", file))
		if got := marked(h, "fill"); got != version {
			t.Fatalf("%s is of version %d, want %d", file, got, version)
		}
		if err := replay(withRateInTheLastTask(t, h)); (err == nil) != (version < 2) {
			t.Errorf("%s, version %d: %v", file, version, err)
		}
	}
}
