package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/steadyrl/steady/internal/record"
)

// Definition is what the documentation says of a metric.
type Definition struct {
	Name   string
	Type   string   // counter, gauge or histogram
	Labels []string // in order
	Role   string   // which processes have it: all, or a role
	Help   string
}

// Set is the metrics of a process. Methods of a nil Set do nothing.
type Set struct {
	reg  *prometheus.Registry
	defs []Definition
	runs *runs
	src  *sources // nil before Collect

	worker     *prometheus.GaugeVec
	faults     *prometheus.CounterVec
	retries    *prometheus.CounterVec
	inProgress *prometheus.GaugeVec
	stalls     *prometheus.CounterVec
	logLines   *prometheus.CounterVec

	sampled   *prometheus.CounterVec
	responses *prometheus.CounterVec
	programs  *prometheus.CounterVec
	rollout   *prometheus.HistogramVec
	swap      prometheus.Histogram

	verdicts *prometheus.CounterVec
	judging  *prometheus.HistogramVec
	slots    prometheus.Gauge

	trained    prometheus.Counter
	update     prometheus.Histogram
	checkpoint prometheus.Histogram
	restores   prometheus.Counter
	replayed   prometheus.Counter
	mismatches prometheus.Counter

	submitted prometheus.Counter
	groups    *prometheus.CounterVec

	version  *prometheus.GaugeVec
	step     *prometheus.GaugeVec
	steps    *prometheus.GaugeVec
	progress *prometheus.GaugeVec
	sealed   *prometheus.GaugeVec // when, as the two below: of several processes the newest is right
	learned  *prometheus.GaugeVec
	checked  *prometheus.GaugeVec
	batch    map[string]*prometheus.GaugeVec // by name of record.Metrics
	dev      map[string]*prometheus.GaugeVec // by name of devGauges
}

// Roles as the documentation of a metric names them.
const (
	forAll     = "all"
	forControl = "control"
	forRollout = "rollout"
	forJudge   = "judge"
	forTrainer = "trainer"
	forStore   = "all"
)

// Outcomes of groups in steady_groups_total, and what a reason that is none of them becomes.
var groupOutcomes = []string{"trained", "stale", "infrastructure", "run_ended"}

const other = "other"

// shortSeconds and longSeconds are the buckets of durations: of work that should take seconds, and of work that may take hours.
var (
	shortSeconds = []float64{.01, .03, .1, .3, 1, 3, 10, 30, 100, 300}
	longSeconds  = []float64{.1, .3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000}
)

// New returns a set for a program of the given version, with the metrics of the Go runtime and of the process.
func New(version string) *Set {
	s := &Set{reg: prometheus.NewRegistry(), runs: newRuns(), batch: map[string]*prometheus.GaugeVec{}, dev: map[string]*prometheus.GaugeVec{}}
	s.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	s.gauge(forAll, "steady_build_info", "Always 1; the label says which program this is.", "version").WithLabelValues(version).Set(1)
	s.worker = s.gauge(forAll, "steady_worker_info", "1 for every role that this process serves, with its engine.", "role", "engine")
	s.faults = s.counter(forAll, "steady_faults_total", "Attempts of activities that ended with an error, by its kind.", "activity", "kind")
	s.retries = s.counter(forAll, "steady_activity_retries_total", "Attempts of activities after the first.", "activity")
	s.inProgress = s.gauge(forAll, "steady_activities_in_progress", "Activities that run in this process now.", "activity")
	s.stalls = s.counter(forAll, "steady_stalls_total", "Activities given up on because they made no progress for timeouts.stall.", "activity")
	s.logLines = s.counter(forAll, "steady_log_lines_total", "Log lines written, by level.", "level")

	s.sampled = s.counter(forRollout, "steady_rollout_tokens_total", "Tokens added to trajectories: sampled ones, and answers of tools.", "split")
	s.responses = s.counter(forRollout, "steady_rollout_responses_total", "Trajectories finished, by what ended them.", "split", "end")
	s.programs = s.counter(forRollout, "steady_rollout_programs_total", "Programs that models ran as a tool, by outcome.", "outcome")
	s.rollout = s.histogram(forRollout, "steady_rollout_unit_seconds", "Time to generate a group, or a chunk of the dev set.", longSeconds, "split")
	s.swap = s.histogram(forRollout, "steady_rollout_swap_seconds", "Time to load and take a new version of the weights.", shortSeconds).WithLabelValues().(prometheus.Histogram) //nolint:forcetypeassert,errcheck // a histogram is one

	s.verdicts = s.counter(forJudge, "steady_judge_verdicts_total", "Submissions judged, by verdict.", "split", "verdict")
	s.judging = s.histogram(forJudge, "steady_judge_unit_seconds", "Time to judge a group, or a chunk of the dev set.", longSeconds, "split")
	s.slots = s.gauge(forAll, "steady_sandbox_slots", "Untrusted programs that may run at once in this process; 0 for a process without a sandbox.").WithLabelValues()

	s.trained = s.counter(forTrainer, "steady_trainer_tokens_total", "Tokens of trained sequences, prompts included; replays count too.").WithLabelValues()
	s.update = s.histogram(forTrainer, "steady_trainer_update_seconds", "Time of an update of the policy, with publishing its weights.", longSeconds).WithLabelValues().(prometheus.Histogram) //nolint:forcetypeassert,errcheck // as above
	s.checkpoint = s.histogram(forTrainer, "steady_trainer_checkpoint_seconds", "Time to write and verify a checkpoint.", longSeconds).WithLabelValues().(prometheus.Histogram)                //nolint:forcetypeassert,errcheck // as above
	s.restores = s.counter(forTrainer, "steady_trainer_restores_total", "Times that a state was loaded from a checkpoint.").WithLabelValues()
	s.replayed = s.counter(forTrainer, "steady_trainer_replayed_steps_total", "Sealed batches that were trained again after a restore.").WithLabelValues()
	s.mismatches = s.counter(forTrainer, "steady_trainer_replay_mismatches_total", "Replayed steps whose bits differ from the recorded ones.").WithLabelValues()

	s.submitted = s.counter(forControl, "steady_groups_submitted_total", "Groups sent out.").WithLabelValues()
	s.groups = s.counter(forControl, "steady_groups_total", "Groups that ended: trained, or dropped for a reason (stale, infrastructure, run_ended, other).", "outcome")

	s.version = s.gauge(forRollout, "steady_rollout_policy_version", "Version of the weights that the engine of this process serves.", "run")
	s.step = s.gauge(forControl, "steady_run_step", "Last step whose weights are published.", "run")
	s.steps = s.gauge(forControl, "steady_run_steps", "Number of the last step that the run is to make.", "run")
	s.progress = s.gauge(forControl, "steady_run_progress_timestamp_seconds",
		"Unix time at which this process last saw the run begin, seal a batch, publish a version or end a validation.", "run")
	const newest = " Another process may know an older one."
	s.sealed = s.gauge(forControl, "steady_run_sealed_timestamp_seconds", "Unix time at which this process last sealed a batch of the run."+newest, "run")
	s.learned = s.gauge(forTrainer, "steady_run_trained_timestamp_seconds", "Unix time at which this process last trained a step of the run."+newest, "run")
	s.checked = s.gauge(forControl, "steady_run_validated_timestamp_seconds", "Unix time at which this process last ended a validation of the run."+newest, "run", "source")
	for _, m := range record.Metrics(record.BatchMetrics{}) {
		s.batch[m.Name] = s.gauge(forControl, "steady_step_"+m.Name, sentence(m.Doc)+", at the last sealed step.", "run")
	}
	for _, m := range record.Metrics(record.UpdateMetrics{}) {
		s.batch[m.Name] = s.gauge(forTrainer, "steady_step_"+m.Name, sentence(m.Doc)+", at the last trained step.", "run")
	}
	for _, g := range devGauges {
		s.dev[g.name] = s.gauge(forControl, "steady_dev_"+g.name, g.help, "run", "source")
	}
	for _, o := range groupOutcomes { // rates need a zero to grow from
		s.groups.WithLabelValues(o)
	}
	return s
}

// Registry returns where further collectors are registered, and what is served. It is nil for a nil set.
func (s *Set) Registry() *prometheus.Registry {
	if s == nil {
		return nil
	}
	return s.reg
}

// Definitions lists the metrics of the package, by name, those of Collect included.
func (s *Set) Definitions() []Definition {
	out := append(slices.Clone(s.defs), collected...)
	slices.SortFunc(out, func(a, b Definition) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

func (s *Set) define(kind, role, name, help string, labels []string) {
	s.defs = append(s.defs, Definition{Name: name, Type: kind, Labels: labels, Role: role, Help: help})
}

func (s *Set) counter(role, name, help string, labels ...string) *prometheus.CounterVec {
	s.define("counter", role, name, help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.reg.MustRegister(v)
	return v
}

func (s *Set) gauge(role, name, help string, labels ...string) *prometheus.GaugeVec {
	s.define("gauge", role, name, help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	s.reg.MustRegister(v)
	if slices.Contains(labels, runLabel) {
		s.runs.own(v)
	}
	return v
}

func (s *Set) histogram(role, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	s.define("histogram", role, name, help, labels)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	s.reg.MustRegister(v)
	return v
}

// Serves notes that the process serves a role with an engine.
func (s *Set) Serves(role, engine string) {
	if s != nil {
		s.worker.WithLabelValues(role, engine).Set(1)
	}
}

// Slots notes how many untrusted programs may run at once.
func (s *Set) Slots(n int) {
	if s != nil {
		s.slots.Set(float64(n))
	}
}

// LogLine counts a log line.
func (s *Set) LogLine(level string) {
	if s != nil {
		s.logLines.WithLabelValues(level).Inc()
	}
}

// Activity counts the beginning of an attempt. The returned function counts its end, with the kind of its error, "" for none.
func (s *Set) Activity(name string, attempt int) (done func(kind string)) {
	if s == nil {
		return func(string) {}
	}
	if attempt > 1 {
		s.retries.WithLabelValues(name).Inc()
	}
	s.stalls.WithLabelValues(name) // at 0 before the first one, or an increase would not see it
	running := s.inProgress.WithLabelValues(name)
	running.Inc()
	return func(kind string) {
		running.Dec()
		if kind != "" {
			s.faults.WithLabelValues(name, kind).Inc()
		}
	}
}

// Stalled counts an activity that was given up on.
func (s *Set) Stalled(activity string) {
	if s != nil {
		s.stalls.WithLabelValues(activity).Inc()
	}
}

// Tokens counts tokens added to trajectories.
func (s *Set) Tokens(split string, n int) {
	if s != nil && n > 0 {
		s.sampled.WithLabelValues(split).Add(float64(n))
	}
}

// Response counts a finished trajectory.
func (s *Set) Response(split, end string) {
	if s != nil {
		s.responses.WithLabelValues(split, end).Inc()
	}
}

// Program counts a program that a model ran.
func (s *Set) Program(outcome string) {
	if s != nil {
		s.programs.WithLabelValues(outcome).Inc()
	}
}

// Generated notes how long a unit took to generate.
func (s *Set) Generated(split string, took time.Duration) {
	if s != nil {
		s.rollout.WithLabelValues(split).Observe(took.Seconds())
	}
}

// Swapped notes that an engine took a version of a run's weights.
func (s *Set) Swapped(run string, version int, took time.Duration) {
	if s == nil {
		return
	}
	s.swap.Observe(took.Seconds())
	s.runs.touch(run)
	s.version.WithLabelValues(run).Set(float64(version))
}

// Judged notes how long a unit took to judge, and the verdicts of its submissions.
func (s *Set) Judged(split string, took time.Duration, verdicts []string) {
	if s == nil {
		return
	}
	s.judging.WithLabelValues(split).Observe(took.Seconds())
	for _, v := range verdicts {
		s.verdicts.WithLabelValues(split, v).Inc()
	}
}

// Update is what a set is told of an update.
type Update struct {
	Took     time.Duration
	Tokens   int  // trained in this call, those of replayed batches not
	Restored bool // a checkpoint was loaded
	Replayed int  // batches
}

// Updated notes an update of the policy of a run.
func (s *Set) Updated(run string, u Update, m record.UpdateMetrics) {
	if s == nil {
		return
	}
	s.trained.Add(float64(u.Tokens))
	s.update.Observe(u.Took.Seconds())
	s.replayed.Add(float64(u.Replayed))
	if u.Restored {
		s.restores.Inc()
	}
	s.runs.touch(run)
	s.learned.WithLabelValues(run).SetToCurrentTime()
	s.show(run, record.Metrics(m))
}

// Saved notes how long a checkpoint took.
func (s *Set) Saved(took time.Duration) {
	if s != nil {
		s.checkpoint.Observe(took.Seconds())
	}
}

// Mismatch counts a replayed step with other bits.
func (s *Set) Mismatch() {
	if s != nil {
		s.mismatches.Inc()
	}
}

// Sealed notes a batch of a run that is to make steps, and what the ledger says of the time since the one before.
func (s *Set) Sealed(run string, steps int, l record.Ledger, m record.BatchMetrics) {
	if s == nil {
		return
	}
	s.Ledger(l)
	s.Planned(run, steps)
	s.sealed.WithLabelValues(run).SetToCurrentTime()
	s.show(run, record.Metrics(m))
}

// Ledger counts the groups of a ledger record.
func (s *Set) Ledger(l record.Ledger) {
	if s == nil {
		return
	}
	s.submitted.Add(float64(len(l.Submitted)))
	s.groups.WithLabelValues(groupOutcomes[0]).Add(float64(len(l.Trained)))
	for _, d := range l.Dropped {
		outcome := other
		if slices.Contains(groupOutcomes[1:], d.Reason) {
			outcome = d.Reason
		}
		s.groups.WithLabelValues(outcome).Inc()
	}
}

// Published notes that the weights of a step are live.
func (s *Set) Published(run string, step int) {
	if s == nil {
		return
	}
	s.Progress(run)
	s.step.WithLabelValues(run).Set(float64(step))
}

// Planned notes how many steps a run is to make, and that it goes on.
func (s *Set) Planned(run string, steps int) {
	if s == nil {
		return
	}
	s.Progress(run)
	s.steps.WithLabelValues(run).Set(float64(steps))
}

// Progress notes that a run got on.
func (s *Set) Progress(run string) {
	if s == nil {
		return
	}
	s.runs.touch(run)
	s.progress.WithLabelValues(run).SetToCurrentTime()
}

// Seen is Progress for a run of which this process knows nothing yet, and else nothing: after a restart the time since the last
// progress is counted from then.
func (s *Set) Seen(run string) {
	if s != nil && run != "" && !s.runs.has(run) {
		s.Progress(run)
	}
}

// Validated notes a validation.
func (s *Set) Validated(run string, v record.Validation) {
	if s == nil {
		return
	}
	s.Progress(run)
	s.checked.WithLabelValues(run, v.Source).SetToCurrentTime()
	for _, g := range devGauges {
		s.dev[g.name].WithLabelValues(run, v.Source).Set(g.of(v))
	}
}

// Ended removes the series of a run that has ended.
func (s *Set) Ended(run string) {
	if s != nil {
		s.runs.forget(run)
	}
}

// show sets the gauges of step metrics; those without a value in this step have none.
func (s *Set) show(run string, metrics []record.Metric) {
	for _, m := range metrics {
		if m.Value == nil {
			s.batch[m.Name].DeleteLabelValues(run)
			continue
		}
		s.batch[m.Name].WithLabelValues(run).Set(*m.Value)
	}
}

// devGauges are the gauges of a validation.
var devGauges = []struct {
	name, help string
	of         func(record.Validation) float64
}{
	{"step", "Version of the last finished validation.", func(v record.Validation) float64 { return float64(v.Version) }},
	{"problems", "Problems of the dev set.", func(v record.Validation) float64 { return float64(v.Problems) }},
	{"solved_problems", "Dev problems that passed every test.", func(v record.Validation) float64 { return float64(v.Metrics.Solved) }},
	{"accuracy_ratio", "Share of dev problems that passed every test, 0 to 1.", func(v record.Validation) float64 { return v.Metrics.Acc }},
	{"pass_rate_ratio", "Mean share of passed tests of the dev problems, 0 to 1.", func(v record.Validation) float64 { return v.Metrics.PassRate }},
	{"format_ok_ratio", "Share of dev problems whose answer held code to judge, 0 to 1.", func(v record.Validation) float64 { return v.Metrics.FormatOK }},
	{"tool_problems", "Dev problems in which a tool process started.", func(v record.Validation) float64 { return float64(v.Metrics.ToolUsed) }},
	{"length_cut_problems", "Dev problems whose response was cut at the length limit.", func(v record.Validation) float64 { return float64(v.Metrics.LengthCut) }},
	{"response_tokens", "Mean length of a response to a dev problem, tokens.", func(v record.Validation) float64 { return v.Metrics.MeanTokens }},
	{"seconds", "Time that the validation took.", func(v record.Validation) float64 { return v.Seconds }},
}

// sentence begins a text with a capital.
func sentence(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:]
}
