package obs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/steadyrl/steady/internal/contract"
)

// Every kind of id that the SDK gives its logger becomes the words of the chain.
func TestSDKLogger_idsBecomeTheChain(t *testing.T) {
	t.Parallel()
	k := contract.RunKey{Run: "r1", Lineage: "l2"}
	for _, tt := range []struct {
		keyvals []any
		want    map[string]any
	}{
		{[]any{"WorkflowID", contract.GroupID(k.Scope(), 7), "TaskQueue", contract.QueueRollout}, map[string]any{
			"workflow_id": "r1/l2/group/000007", "run": "r1", "lineage": "l2", "group": 7.0, "task_queue": "steady-rollout", "role": "rollout",
		}},
		{[]any{"WorkflowID", contract.ValidateID("r1", "000025"), "TaskQueue", contract.TrainerQueue("host a")}, map[string]any{
			"workflow_id": "r1/validate/000025", "run": "r1", "lineage": "l0", "step": 25.0, "task_queue": "steady-trainer/host a", "role": "trainer",
		}},
		{[]any{"RunID", "0198", "ActivityType", "Judge"}, map[string]any{"execution_id": "0198", "activity": "Judge"}},
	} {
		var buf bytes.Buffer
		l, _, err := NewLogger(Options{Console: &buf, ConsoleFormat: JSON})
		if err != nil {
			t.Fatal(err)
		}
		SDKLogger(l).(sdkLogger).With(tt.keyvals...).Info("m")
		got := map[string]any{}
		if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
			t.Fatalf("%q: %v", buf.String(), err)
		}
		for _, key := range []string{"time", "level", "message"} {
			if got[key] == nil {
				t.Errorf("no %s in %s", key, buf.String())
			}
			delete(got, key)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%v (-want +got):\n%s", tt.keyvals, d)
		}
	}
}

func TestNewLogger_textIsForPeople(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	l, _, err := NewLogger(Options{Console: &buf})
	if err != nil {
		t.Fatal(err)
	}
	l.Info("hello", zap.String("run", "r"))
	if got := buf.String(); strings.HasPrefix(got, "{") || !strings.Contains(got, "info hello") {
		t.Errorf("got %q, want a short line", got)
	}
}

func TestCounting_countsLinesThatAreWritten(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	l, _, err := NewLogger(Options{Console: &buf, Level: "info"})
	if err != nil {
		t.Fatal(err)
	}
	var levels []string
	l = Counting(l, func(level string) { levels = append(levels, level) })
	l.Debug("not written")
	l.Info("a")
	l.With(zap.Int("x", 1)).Warn("b")
	if want := []string{"info", "warn"}; !slices.Equal(levels, want) {
		t.Errorf("counted %v, want %v", levels, want)
	}
}

func TestFrom_aContextWithoutALoggerIsSilent(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	l, _, err := NewLogger(Options{Console: &buf})
	if err != nil {
		t.Fatal(err)
	}
	From(t.Context()).Error("lost")
	FromOr(t.Context(), nil).Error("lost")
	if buf.Len() > 0 {
		t.Errorf("got %q", buf.String())
	}
	FromOr(t.Context(), l).Info("other")
	From(Into(t.Context(), l)).Info("mine")
	FromOr(Into(t.Context(), l), Quiet()).Info("mine too")
	if got := strings.Count(buf.String(), "\n"); got != 3 {
		t.Errorf("%d lines, want 3: %q", got, buf.String())
	}
}

// series flattens what a registry gathers: name{label="value",...} and a number.
func series(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.GetCounter() != nil:
				out[name] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				out[name] = m.GetGauge().GetValue()
			default:
				out[name+" sum"], out[name+" count"] = m.GetHistogram().GetSampleSum(), float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

func TestSDKMetrics_namesLabelsAndTypes(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	h := SDKMetrics(r)
	root := h.WithTags(map[string]string{"namespace": "default", "client_name": "temporal_go", "task_queue": "none"})
	root.Counter("temporal_request").Inc(2)
	root.WithTags(map[string]string{"operation": "Poll", "task_queue": contract.TrainerQueue("host-a")}).Counter("temporal_request").Inc(1)
	root.WithTags(map[string]string{"operation": "Poll", "task_queue": contract.TrainerQueue("host-b")}).Counter("temporal_request").Inc(4)
	root.WithTags(map[string]string{"task_queue": "host:3f0e"}).Gauge("temporal_num_pollers").Update(3)
	root.WithTags(map[string]string{"task_queue": "host:77aa"}).Gauge("temporal_num_pollers").Update(5)
	root.Counter("temporal_request").Inc(-1) // a counter never falls
	root.Timer("temporal_request_latency").Record(1500 * time.Millisecond)
	h.Counter("temporal_bare").Inc(1)
	want := map[string]float64{
		`temporal_request_total{namespace="default",task_queue="none"}`:                            2,
		`temporal_request_total{namespace="default",operation="Poll",task_queue="steady-trainer"}`: 5,
		`temporal_num_pollers{namespace="default",task_queue="sticky"}`:                            5,
		`temporal_request_latency_seconds{namespace="default",task_queue="none"} sum`:              1.5,
		`temporal_request_latency_seconds{namespace="default",task_queue="none"} count`:            1,
		`temporal_bare_total{}`: 1,
	}
	if d := cmp.Diff(want, series(t, r)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if SDKMetrics(nil) != nil {
		t.Error("without a registry there is a handler")
	}
}

// Thousands of runs, hosts and processes must not make thousands of series.
func TestSDKMetrics_seriesDoNotGrowWithRuns(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	h := SDKMetrics(r)
	for i := range 2000 {
		for _, queue := range []string{contract.TrainerQueue(fmt.Sprint(i)), contract.StandbyQueue(fmt.Sprint(i)), fmt.Sprintf("host:%d", i)} {
			h.WithTags(map[string]string{"task_queue": queue, "workflow_id": fmt.Sprint(i), "run_id": fmt.Sprint(i)}).Counter("temporal_request").Inc(1)
		}
	}
	if got := len(series(t, r)); got != 3 {
		t.Errorf("%d series, want one for each kind of queue", got)
	}
}
