package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/testsuite"
	"go.uber.org/zap"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/metrics"
	"github.com/steadyrl/steady/internal/obs"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/span"
)

// recorder is a tracer that remembers.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

type where struct{}

func (r *recorder) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) Start(ctx context.Context, name string, attrs ...span.Attr) (context.Context, span.End) {
	at, _ := ctx.Value(where{}).(string)
	at += "/" + name
	text := at
	for _, a := range attrs {
		text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return context.WithValue(ctx, where{}, at), func(err error, attrs ...span.Attr) { r.say("%s -> %v", text, err) }
}

func (r *recorder) Enter(ctx context.Context, s span.Step) context.Context {
	return context.WithValue(ctx, where{}, fmt.Sprintf("%s.%s.%d", s.Run, s.Lineage, s.N))
}

func (r *recorder) Whole(s span.Step, began, ended time.Time, _ ...span.Attr) {
	r.say("whole %s.%s.%d from %d", s.Run, s.Lineage, s.N, began.Unix())
}

func (r *recorder) Link(ctx context.Context, s span.Step) {
	r.say("%v links %d", ctx.Value(where{}), s.N)
}

// told is what an activity told of itself.
type told struct {
	lines []map[string]any
	spans []string
	set   *metrics.Set
}

// perform runs one activity in the SDK's test environment, through guard, with the SDK's own logger over the same log.
func perform[Req, Res any](t *testing.T, a contract.Activity[Req, Res], req Req, body func(context.Context, Req, *Beat) (Res, error)) told {
	t.Helper()
	var out bytes.Buffer
	log, _, err := obs.NewLogger(obs.Options{Level: "debug", Console: &out, ConsoleFormat: obs.JSON})
	if err != nil {
		t.Fatal(err)
	}
	log = log.With(zap.String("worker", "host-1"))
	store, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	n := &Notes{Store: store, Host: "host-1", Log: log, Metrics: metrics.New("v"), Tracer: r}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(obs.SDKLogger(log))
	env := suite.NewTestActivityEnvironment()
	a.Register(env, guard(n, body))
	_, _ = env.ExecuteActivity(a.Name, req) // its error is what some of the tests are about
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, m)
	}
	return told{lines, r.lines, n.Metrics}
}

// Whatever an activity logs, each line of it says which work it is of, by the same words.
func TestTelemetry_everyLineHasTheChain(t *testing.T) {
	t.Parallel()
	k := contract.RunKey{Run: "r1", Lineage: "l2"}
	unit := record.GroupUnit(7, 3, 41, 0)
	logs := func(ctx context.Context) error {
		obs.From(ctx).Info("a line of the body", zap.Int("x", 1))
		ctx, end := span.Start(ctx, "inner")
		obs.From(ctx).Warn("another one")
		end(nil)
		return fault.New(fault.Busy, "op", "no room").WithHint("wait")
	}
	check := func(name string, got told, want map[string]any) {
		t.Helper()
		want["worker"], want["attempt"], want["run"], want["lineage"] = "host-1", 1.0, "r1", "l2"
		own := 0
		for _, line := range got.lines {
			if _, sdk := line["workflow_id"]; sdk { // the SDK's test environment has ids of its own
				if line["level"] != "debug" {
					t.Errorf("%s: the SDK tells of the error too: %v", name, line)
				}
				continue
			}
			own++
			for key, v := range want {
				if line[key] != v {
					t.Errorf("%s: %q has %s %v, want %v", name, line["message"], key, line[key], v)
				}
			}
			for _, key := range []string{"time", "level", "message"} {
				if line[key] == nil {
					t.Errorf("%s: no %s in %v", name, key, line)
				}
			}
			if line["run_id"] != nil {
				t.Errorf("%s: a key run_id in %v", name, line)
			}
		}
		if own != 4 { // begin, two of the body, failed
			t.Errorf("%s: %d lines, want 4", name, own)
		}
		last := got.lines[slices.IndexFunc(got.lines, func(m map[string]any) bool { return m["message"] == "an activity failed" })]
		if last["kind"] != "Busy" || last["hint"] != "wait" || last["level"] != "warn" || last["took"] == nil {
			t.Errorf("%s: the failure is told as %v", name, last)
		}
	}
	got := perform(t, contract.GenerateRolloutsActivity, contract.GenerateRequest{RunKey: k, Unit: unit, Group: 7, Tag: 3},
		func(ctx context.Context, _ contract.GenerateRequest, _ *Beat) (contract.GenerateResult, error) {
			return contract.GenerateResult{}, logs(ctx)
		})
	check("generate", got, map[string]any{"step": 3.0, "group": 7.0, "unit": unit, "activity": "GenerateRollouts"})
	got = perform(t, contract.JudgeRolloutsActivity, contract.JudgeRequest{RunKey: k, Unit: unit},
		func(ctx context.Context, _ contract.JudgeRequest, _ *Beat) (contract.JudgeResult, error) {
			return contract.JudgeResult{}, logs(ctx)
		})
	check("judge", got, map[string]any{"step": 3.0, "group": 7.0, "unit": unit, "activity": "JudgeRollouts"})
	got = perform(t, contract.UpdatePolicyActivity, contract.UpdateRequest{RunKey: k, Step: 5},
		func(ctx context.Context, _ contract.UpdateRequest, _ *Beat) (contract.UpdateResult, error) {
			return contract.UpdateResult{}, logs(ctx)
		})
	check("update", got, map[string]any{"step": 5.0, "activity": "UpdatePolicy"})
	got = perform(t, contract.SealBatchActivity, contract.SealBatchRequest{RunKey: k, Step: 5},
		func(ctx context.Context, _ contract.SealBatchRequest, _ *Beat) (contract.SealBatchResult, error) {
			return contract.SealBatchResult{}, logs(ctx)
		})
	check("seal", got, map[string]any{"step": 5.0, "activity": "SealBatch"})
	got = perform(t, contract.WriteReportActivity, contract.ReportRequest{RunKey: k},
		func(ctx context.Context, _ contract.ReportRequest, _ *Beat) (contract.ReportResult, error) {
			return contract.ReportResult{}, logs(ctx)
		})
	check("report", got, map[string]any{"activity": "WriteReport"})
}

// Spans of an attempt lie in the trace of the step, those of the body below it; the metrics count it.
func TestTelemetry_anAttemptIsASpanOfItsStep(t *testing.T) {
	t.Parallel()
	k := contract.RunKey{Run: "r1", Lineage: "l0"}
	got := perform(t, contract.UpdatePolicyActivity, contract.UpdateRequest{RunKey: k, Step: 5},
		func(ctx context.Context, _ contract.UpdateRequest, _ *Beat) (contract.UpdateResult, error) {
			_, end := span.Start(ctx, "forward_backward")
			end(nil)
			panic("boom")
		})
	if len(got.spans) != 2 || got.spans[0] != "r1.l0.5/UpdatePolicy/forward_backward -> <nil>" ||
		!strings.HasPrefix(got.spans[1], "r1.l0.5/UpdatePolicy run=r1 lineage=l0 attempt=1 role=") || !strings.Contains(got.spans[1], "panic: boom") {
		t.Errorf("spans %q", got.spans)
	}
	families, err := got.set.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "steady_faults_total":
				found[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
			case "steady_activities_in_progress":
				found["in progress"] = m.GetGauge().GetValue()
			}
		}
	}
	if found["UpdatePolicy Internal"] != 1 || found["in progress"] != 0 {
		t.Errorf("counted %v, want one fault of kind Internal and nothing in progress", found)
	}
}

// The step itself is told of once, by the attempt that published it, with the time at which the loop began it.
func TestTelemetry_aStepEndsWithItsPublication(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	n := &Notes{Tracer: r}
	n.published(contract.PublishRequest{RunKey: contract.RunKey{Run: "r", Lineage: "l0"}, Version: 4, Began: time.Unix(77, 0)})
	n.published(contract.PublishRequest{RunKey: contract.RunKey{Run: "r", Lineage: "l0"}, Version: 5}) // of a loop of an older build
	(*Notes)(nil).published(contract.PublishRequest{})
	if want := []string{"whole r.l0.4 from 77"}; !slices.Equal(r.lines, want) {
		t.Errorf("told %q, want %q", r.lines, want)
	}
}

func TestTelemetry_aBatchIsLinkedToTheStepsOfItsGroups(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	n := &Notes{Tracer: r}
	k := contract.RunKey{Run: "r", Lineage: "l0"}
	ctx, _ := r.Start(r.Enter(t.Context(), stepOf(k, 5)), "SealBatch")
	n.link(ctx, k, 5, []record.Group{{Tag: 5}, {Tag: 3}, {Tag: 4}, {Tag: 3}})
	(*Notes)(nil).link(ctx, k, 5, []record.Group{{Tag: 3}})
	if want := []string{"r.l0.5/SealBatch links 3", "r.l0.5/SealBatch links 4"}; !slices.Equal(r.lines, want) {
		t.Errorf("told %q, want %q", r.lines, want)
	}
}
