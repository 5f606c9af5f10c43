package metrics

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/steadyrl/steady/internal/record"
)

// values flattens what a set gathers of its own: name{label=value} and a number; histograms have their count.
func values(t *testing.T, s *Set) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, f := range gather(t, s) {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "steady_") + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.GetCounter() != nil:
				out[name] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				out[name] = m.GetGauge().GetValue()
			default:
				out[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

func gather(t *testing.T, s *Set) []*dto.MetricFamily {
	t.Helper()
	all, err := s.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var own []*dto.MetricFamily
	for _, f := range all {
		if strings.HasPrefix(f.GetName(), "steady_") {
			own = append(own, f)
		}
	}
	return own
}

// used returns a set that was told of everything once.
func used(t *testing.T) *Set {
	t.Helper()
	s := New("v1")
	use(s)
	return s
}

func use(s *Set) {
	x := 0.5
	s.Serves("rollout", "cpu")
	s.Slots(4)
	s.LogLine("warn")
	s.Activity("SealBatch", 1)("")
	s.Activity("SealBatch", 2)("Busy")
	s.Stalled("JudgeRollouts")
	s.Tokens("train", 12)
	s.Response("train", "stop")
	s.Program("ok")
	s.Generated("train", time.Second)
	s.Swapped("r", 3, time.Second)
	s.Judged("dev", time.Second, []string{"accepted", "accepted", "wrong_answer"})
	s.Updated("r", Update{Took: time.Second, Tokens: 100, Restored: true, Replayed: 2}, record.UpdateMetrics{GradNorm: &x})
	s.Saved(time.Second)
	s.Mismatch()
	s.Planned("r", 9)
	s.Seen("r")
	s.Sealed("r", 9, record.Ledger{
		Submitted: make([]record.Submitted, 5), Trained: []int{1, 2},
		Dropped: []record.Drop{{Reason: "stale"}, {Reason: "infrastructure"}, {Reason: "infrastructure"}, {Reason: "a new one"}},
	}, record.BatchMetrics{RewardMean: &x})
	s.Ledger(record.Ledger{Dropped: []record.Drop{{Reason: "run_ended"}}})
	s.Published("r", 4)
	s.Progress("r")
	s.Validated("r", record.Validation{Version: 4, Problems: 8, Source: "published", Seconds: 2, Metrics: record.DevMetrics{Solved: 4, Acc: 0.5}})
	s.Collect(Sources{
		Store: func() (uint64, uint64, error) { return 10, 100, nil },
		Queues: func(context.Context) ([]Queue, error) {
			return []Queue{{Name: "steady-judge", Type: "activity", Backlog: 3, Age: time.Minute, Pollers: 2}}, nil
		},
		GPUs: func() ([]GPU, error) {
			return []GPU{{Index: 1, Model: "H", MemoryUsed: 1, MemorySize: 2, Temperature: 40, Power: 300, Utilization: 75, UncorrectedErrors: -1}}, nil
		},
	})
}

func TestSet_countsWhatItIsTold(t *testing.T) {
	t.Parallel()
	got := values(t, used(t))
	for name, want := range map[string]float64{
		"build_info{version=v1}": 1, "worker_info{engine=cpu,role=rollout}": 1, "sandbox_slots{}": 4, "log_lines_total{level=warn}": 1,
		"faults_total{activity=SealBatch,kind=Busy}": 1, "activity_retries_total{activity=SealBatch}": 1, "activities_in_progress{activity=SealBatch}": 0,
		"stalls_total{activity=JudgeRollouts}": 1, "rollout_tokens_total{split=train}": 12, "rollout_responses_total{end=stop,split=train}": 1,
		"rollout_programs_total{outcome=ok}": 1, "rollout_unit_seconds{split=train}": 1, "rollout_swap_seconds{}": 1, "rollout_policy_version{run=r}": 3,
		"judge_verdicts_total{split=dev,verdict=accepted}": 2, "judge_verdicts_total{split=dev,verdict=wrong_answer}": 1, "judge_unit_seconds{split=dev}": 1,
		"trainer_tokens_total{}": 100, "trainer_update_seconds{}": 1, "trainer_checkpoint_seconds{}": 1, "trainer_restores_total{}": 1,
		"trainer_replayed_steps_total{}": 2, "trainer_replay_mismatches_total{}": 1,
		"groups_submitted_total{}": 5, "groups_total{outcome=trained}": 2, "groups_total{outcome=stale}": 1, "groups_total{outcome=infrastructure}": 2,
		"groups_total{outcome=run_ended}": 1, "groups_total{outcome=other}": 1,
		"run_step{run=r}": 4, "run_steps{run=r}": 9, "step_grad_norm{run=r}": 0.5, "step_reward_mean{run=r}": 0.5,
		"dev_accuracy_ratio{run=r,source=published}": 0.5, "dev_solved_problems{run=r,source=published}": 4, "dev_step{run=r,source=published}": 4,
		"server_up{}": 1, "queue_backlog_tasks{queue=steady-judge,type=activity}": 3, "queue_backlog_age_seconds{queue=steady-judge,type=activity}": 60,
		"queue_pollers{queue=steady-judge,type=activity}": 2, "gpu_utilization_ratio{gpu=1,model=H}": 0.75, "gpu_temperature_celsius{gpu=1,model=H}": 40,
		"store_up{}": 1, "store_free_bytes{}": 10, "store_size_bytes{}": 100,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %v, there: %v; want %v", name, v, ok, want)
		}
	}
	if _, ok := got["gpu_uncorrected_errors{gpu=1,model=H}"]; ok {
		t.Error("what a GPU does not report has a series")
	}
	if _, ok := got["step_entropy{run=r}"]; ok {
		t.Error("a metric without a value in the step has a series")
	}
	for _, name := range []string{"progress", "sealed", "trained", "validated"} {
		labels := "{run=r}"
		if name == "validated" {
			labels = "{run=r,source=published}"
		}
		if v := got["run_"+name+"_timestamp_seconds"+labels]; time.Since(time.Unix(int64(v), 0)) > time.Hour {
			t.Errorf("%s at %v", name, v)
		}
	}
	if v, ok := got["stalls_total{activity=SealBatch}"]; !ok || v != 0 {
		t.Errorf("stalls of an activity that never stalled: %v, there: %v; want 0", v, ok)
	}
}

func TestSet_aNilSetDoesNothing(t *testing.T) {
	t.Parallel()
	var s *Set
	use(s)
	s.Ended("r")
	if s.Registry() != nil {
		t.Error("a nil set has a registry")
	}
}

// Every definition is registered with the labels and the type that it names, and nothing else of ours is.
func TestDefinitions_areWhatIsRegistered(t *testing.T) {
	t.Parallel()
	s := used(t)
	defs := map[string]Definition{}
	for _, d := range s.Definitions() {
		if _, twice := defs[d.Name]; twice {
			t.Errorf("%s is defined twice", d.Name)
		}
		defs[d.Name] = d
	}
	found := map[string]bool{}
	for _, f := range gather(t, s) {
		found[f.GetName()] = true
		d, ok := defs[f.GetName()]
		if !ok {
			t.Errorf("%s has no definition", f.GetName())
			continue
		}
		if got := strings.ToLower(f.GetType().String()); got != d.Type || f.GetHelp() != d.Help {
			t.Errorf("%s is a %s with help %q, defined as a %s with %q", d.Name, got, f.GetHelp(), d.Type, d.Help)
		}
		want := map[string]bool{}
		for _, l := range d.Labels {
			want[l] = true
		}
		for _, m := range f.GetMetric() {
			got := map[string]bool{}
			for _, l := range m.GetLabel() {
				got[l.GetName()] = true
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s has labels %v, defined are %v", d.Name, got, d.Labels)
			}
		}
	}
	// Metrics of a step are absent where use gave no value, one of the GPU where it is unknown.
	for name := range defs {
		if !found[name] && !strings.HasPrefix(name, "steady_step_") && name != "steady_gpu_uncorrected_errors" {
			t.Errorf("%s is defined, and nothing has it", name)
		}
	}
}

func TestNames_followPrometheus(t *testing.T) {
	t.Parallel()
	problems, err := promlint.NewWithMetricFamilies(gather(t, used(t))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// A process that lives through thousands of runs keeps the series of a few.
func TestRuns_seriesAreBounded(t *testing.T) {
	t.Parallel()
	s := New("v")
	x := 1.0
	for i := range 1000 {
		run := fmt.Sprint(i)
		s.Planned(run, 5)
		s.Updated(run, Update{}, record.UpdateMetrics{Loss: &x})
		s.Validated(run, record.Validation{Source: "export"})
		s.Planned("kept", 7) // is touched all the time
	}
	runs := map[string]bool{}
	for _, f := range gather(t, s) {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == runLabel {
					runs[l.GetValue()] = true
				}
			}
		}
	}
	if len(runs) != MaxRuns || !runs["kept"] || !runs["999"] {
		t.Errorf("series of %d runs: %v; want %d, with the newest and the one in use", len(runs), runs, MaxRuns)
	}
	s.Ended("kept")
	for name := range values(t, s) {
		if strings.Contains(name, "run=kept") {
			t.Errorf("%s is left of a run that has ended", name)
		}
	}
}

func TestSeen_aKnownRunKeepsItsTime(t *testing.T) {
	t.Parallel()
	s := New("v")
	const name = "run_progress_timestamp_seconds{run=r}"
	s.Seen("")
	if got := values(t, s); len(got) == 0 || got[name] != 0 {
		t.Fatalf("no name: %v", got[name])
	}
	s.Seen("r")
	if values(t, s)[name] == 0 {
		t.Fatal("a new run has no time")
	}
	s.progress.WithLabelValues("r").Set(5)
	s.Seen("r")
	if got := values(t, s)[name]; got != 5 {
		t.Errorf("a known run got the time %v, want 5", got)
	}
	s.Progress("r")
	if got := values(t, s)[name]; got == 5 {
		t.Error("progress changed nothing")
	}
}

func TestShow_anAbsentValueRemovesTheSeries(t *testing.T) {
	t.Parallel()
	s, x := New("v"), 2.0
	s.Sealed("r", 1, record.Ledger{}, record.BatchMetrics{RewardMean: &x})
	s.Sealed("r", 1, record.Ledger{}, record.BatchMetrics{Drops: &x})
	got := values(t, s)
	if _, ok := got["step_reward_mean{run=r}"]; ok || got["step_drops{run=r}"] != 2 {
		t.Errorf("got %v", cmp.Diff(nil, got))
	}
}
