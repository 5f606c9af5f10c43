package workflows_test

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/workflows"
)

// runWorld plays everything below a run: the loop takes an hour and remembers its commands.
type runWorld struct {
	mu       sync.Mutex
	controls []contract.Control
	details  []string
	warnings []string
	mode     string // of the run, async if empty
	stall    time.Duration
	slow     string                                              // the stage that takes slowStage
	loop     func(workflow.Context) (contract.LoopOutput, error) // instead of an hour
}

func (w *runWorld) Debug(string, ...any) {}
func (w *runWorld) Info(string, ...any)  {}
func (w *runWorld) Error(string, ...any) {}

// Warn remembers a warning of the workflow's log.
func (w *runWorld) Warn(msg string, keyvals ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 0; i+1 < len(keyvals); i += 2 {
		if err, ok := keyvals[i+1].(error); ok {
			msg += ": " + err.Error()
		}
	}
	w.warnings = append(w.warnings, msg)
}

func newRunEnv(t *testing.T, w *runWorld) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.Logger(w))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	env.SetStartWorkflowOptions(startOptions("r"))
	env.RegisterWorkflowWithOptions(workflows.TrainRun, workflow.RegisterOptions{Name: contract.TrainRun})
	contract.StartRunActivity.Register(env, func(context.Context, contract.StartRunRequest) (contract.RunSpec, error) {
		s := spec(cmp.Or(w.mode, "async"))
		s.Timeouts.Stall = w.stall
		return s, nil
	})
	contract.InitPolicyActivity.Register(env, func(context.Context, contract.InitPolicyRequest) (contract.InitPolicyResult, error) {
		return contract.InitPolicyResult{}, nil
	})
	contract.WriteReportActivity.Register(env, func(context.Context, contract.ReportRequest) (contract.ReportResult, error) {
		return contract.ReportResult{}, nil
	})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ contract.RunSpec) (contract.DatasetResult, error) {
		return contract.DatasetResult{}, w.take(ctx, "the data set")
	}, workflow.RegisterOptions{Name: contract.PrepareDataset})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ contract.ExportInput) (contract.ExportOutput, error) {
		return contract.ExportOutput{}, w.take(ctx, "the export")
	}, workflow.RegisterOptions{Name: contract.ExportModel})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ contract.LoopInput) (contract.LoopOutput, error) {
		if w.loop != nil {
			return w.loop(ctx)
		}
		// A message of the loop, between those that the test sends.
		_ = workflow.Sleep(ctx, 30*time.Minute)
		progress := contract.Progress{Phase: "training", Step: 2, Steps: 6}
		if err := workflow.SignalExternalWorkflow(ctx, "r", "", contract.SignalProgress, progress).Get(ctx, nil); err != nil {
			return contract.LoopOutput{}, err
		}
		_ = workflow.Sleep(ctx, 30*time.Minute)
		c := workflow.GetSignalChannel(ctx, contract.SignalControl)
		var q contract.Control
		for c.ReceiveAsync(&q) {
			w.mu.Lock()
			w.controls = append(w.controls, q)
			w.mu.Unlock()
			q = contract.Control{}
		}
		return contract.LoopOutput{Step: 6}, nil
	}, workflow.RegisterOptions{Name: contract.TrainLoop})
	return env
}

// slowStage is a time in which a watch that looks every ten minutes looks five times.
const slowStage = 55 * time.Minute

func (w *runWorld) take(ctx workflow.Context, stage string) error {
	if w.slow != stage {
		return nil
	}
	return workflow.Sleep(ctx, slowStage)
}

// look notes the current details of the workflow.
func (w *runWorld) look(t *testing.T, env *testsuite.TestWorkflowEnvironment) {
	t.Helper()
	v, err := env.QueryWorkflow("__temporal_workflow_metadata")
	if err != nil {
		t.Error(err)
		return
	}
	var m struct {
		CurrentDetails string `json:"currentDetails"`
	}
	var raw converter.RawValue
	if err := v.Get(&raw); err != nil {
		t.Error(err)
		return
	}
	if err := json.Unmarshal(raw.Payload().GetData(), &m); err != nil {
		t.Error(err)
	}
	w.details = append(w.details, m.CurrentDetails)
}

func payload(encoding, data string) converter.RawValue {
	return converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte(encoding)}, Data: []byte(data)})
}

// A signal that cannot be applied must be seen, and must not hold up those that come after it.
func TestTrainRun_signalsThatCannotBeApplied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signal string
		input  any
		want   string
	}{
		"a number":                 {contract.UpdateStop, 20, "stop_after_step: the input is a number; want"},
		"a text":                   {contract.UpdateStop, "20", `want {"step": N}`},
		"a list":                   {contract.UpdateStop, []int{20}, "stop_after_step: the input is a list; want"},
		"a misspelt key":           {contract.UpdateStop, map[string]int{"stpe": 4}, `stop_after_step: "stpe" is not known (known: step); want {"step": N}`},
		"a step that is no number": {contract.UpdateStop, map[string]string{"step": "four"}, `stop_after_step: "step" is the text "four", want a whole number; want`},
		"half a document":          {contract.UpdateStop, payload("json/plain", `{"step": `), "cannot be read"},
		"bytes":                    {contract.UpdateStop, payload("binary/plain", "\x00\xff"), "cannot be read"},
		"an unknown encoding":      {contract.UpdateStop, payload("what/ever", "x"), "cannot be read"},
		"a step behind":            {contract.UpdateStop, contract.StopRequest{Step: -1}, "the step must be 0 or lie ahead"},
		"a step after the last":    {contract.UpdateStop, contract.StopRequest{Step: 7}, "not after the last step"},
		"a message of the loop":    {contract.SignalProgress, "what", "progress has input that cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &runWorld{}
			env := newRunEnv(t, w)
			env.RegisterDelayedCallback(func() { env.SignalWorkflow(c.signal, c.input) }, time.Minute)
			env.RegisterDelayedCallback(func() { w.look(t, env) }, 2*time.Minute)
			env.RegisterDelayedCallback(func() { env.SignalWorkflow(contract.UpdatePause, nil) }, 3*time.Minute)
			env.RegisterDelayedCallback(func() { w.look(t, env) }, 4*time.Minute)
			env.RegisterDelayedCallback(func() { env.SignalWorkflow(contract.UpdateResume, nil) }, 5*time.Minute)
			env.RegisterDelayedCallback(func() { env.SignalWorkflow(contract.UpdateStop, contract.StopRequest{Step: 5}) }, 40*time.Minute)
			env.RegisterDelayedCallback(func() { w.look(t, env) }, 41*time.Minute)
			env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
			if err := env.GetWorkflowError(); err != nil {
				t.Fatalf("the run must go on: %v", err)
			}
			if want := []contract.Control{{Pause: true}, {Resume: true}, {StopAt: 5}}; !slices.Equal(w.controls, want) {
				t.Errorf("the loop got %+v, want %+v", w.controls, want)
			}
			if len(w.details) != 3 || !strings.Contains(w.details[0], "**Warning:**") || !strings.Contains(w.details[0], c.want) {
				t.Fatalf("details %q, want a warning with %q", w.details, c.want)
			}
			if strings.Contains(w.details[1], "Warning") || !strings.Contains(w.details[1], "paused") {
				t.Errorf("after the next command the details are %q", w.details[1])
			}
			if !strings.Contains(w.details[2], "step 2 of 6") {
				t.Errorf("the loop's message was not heard: %q", w.details[2])
			}
			if len(w.warnings) != 1 || !strings.Contains(w.warnings[0], c.want) {
				t.Errorf("log %q, want one warning with %q", w.warnings, c.want)
			}
		})
	}
}

func TestTrainRun_stopSignalsThatCanBeRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input any
		want  int
	}{
		"a step":   {contract.StopRequest{Step: 4}, 4},
		"now":      {contract.StopRequest{}, 1},
		"no key":   {map[string]int{}, 1},
		"no value": {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &runWorld{}
			env := newRunEnv(t, w)
			env.RegisterDelayedCallback(func() { env.SignalWorkflow(contract.UpdateStop, c.input) }, time.Minute)
			env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
			if err := env.GetWorkflowError(); err != nil {
				t.Fatal(err)
			}
			if want := []contract.Control{{StopAt: c.want}}; !slices.Equal(w.controls, want) || len(w.warnings) > 0 {
				t.Errorf("the loop got %+v, want %+v; log %q", w.controls, want, w.warnings)
			}
		})
	}
}

// A message to the loop that cannot be read must not hold up the groups' results.
func TestTrainLoop_aMessageThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{contract.SignalGroupDone, contract.SignalControl} {
		w := &world{}
		env := newLoopEnv(t, w, finish)
		env.RegisterDelayedCallback(func() { env.SignalWorkflow(signal, "what") }, 10*time.Millisecond)
		env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: spec("sync")})
		if err := env.GetWorkflowError(); err != nil || !slices.Equal(w.updates, []int{1, 2, 3, 4, 5, 6}) {
			t.Errorf("%s: %v, updates %v, want all six", signal, err, w.updates)
		}
	}
}
