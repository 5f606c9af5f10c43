package batch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/trajectory"
)

var (
	layout = record.Layout{Run: "r", Lineage: "l0"}
	approx = cmpopts.EquateApprox(0, 1e-12)
)

// item is a trajectory with its verdict.
type item struct {
	problem  string
	versions []int // of the sampled tokens
	prompt   int   // tokens; 0 means 3
	inserted int   // tokens after the turn
	end      trajectory.End
	tool     bool
	turns    []trajectory.Turn // seconds and calls of further turns of one token each; Begin and End are ignored
	seconds  float64
	verdict  judge.Verdict
}

func passed(n, of int) judge.Verdict {
	v := judge.Verdict{Kind: judge.Accepted, FormatOK: true, Passed: n, Total: of}
	if n < of {
		v.Kind = judge.WrongAnswer
	}
	return v
}

func (it item) trajectory(t *testing.T, sample int) *trajectory.Trajectory {
	t.Helper()
	prompt := make([]int32, it.prompt)
	if it.prompt == 0 {
		prompt = []int32{1, 2, 3}
	}
	tr := trajectory.New(trajectory.Key{ProblemID: it.problem, Split: "train", Sample: sample}, prompt, 2)
	tr.BeginTurn()
	for i, v := range it.versions {
		err := tr.AppendSampled(engine.Token{
			ID: int32(4 + i), LogProb: -0.5, Entropy: 1, Version: v, TopIDs: []int32{4, 5}, TopLogProbs: []float32{-0.5, -1.5},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if it.tool {
		tr.Turns[0].Call = &trajectory.Call{Status: "ran", Started: true}
	}
	tr.AppendInserted(make([]int32, it.inserted))
	for _, u := range it.turns {
		tr.BeginTurn()
		if err := tr.AppendSampled(engine.Token{ID: 9, LogProb: -0.5, TopIDs: []int32{4, 5}, TopLogProbs: []float32{-0.5, -1.5}}); err != nil {
			t.Fatal(err)
		}
		last := &tr.Turns[len(tr.Turns)-1]
		last.Seconds, last.Call = u.Seconds, u.Call
	}
	if tr.End = it.end; it.end == "" {
		tr.End = trajectory.EndStop
	}
	tr.Seconds = it.seconds
	return tr
}

func newStore(t *testing.T) *artifact.Files {
	t.Helper()
	s, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put writes a unit as the rollout and judge activities do.
func put(t *testing.T, s artifact.Store, unit string, items ...item) []*trajectory.Trajectory {
	t.Helper()
	var ts []*trajectory.Trajectory
	v := batch.Verdicts{Unit: unit, Python: "3.13.1"}
	for i, it := range items {
		ts = append(ts, it.trajectory(t, i))
		v.Items = append(v.Items, batch.Verdict{ProblemID: it.problem, Sample: i, Reward: it.verdict.Reward(), Verdict: it.verdict})
	}
	data, err := trajectory.Encode(ts)
	if err != nil {
		t.Fatal(err)
	}
	if v.File, err = s.Put(t.Context(), layout.Trajectories(unit), data); err != nil {
		t.Fatal(err)
	}
	if _, err = artifact.PutJSON(t.Context(), s, layout.Verdicts(unit), v); err != nil {
		t.Fatal(err)
	}
	return ts
}

func options(step, budget int, groups ...int) batch.Options {
	o := batch.Options{
		Layout: layout, Step: step, Objective: rl.Objective{Centering: rl.CenteringProportional, Rule: rl.RuleNone, TopK: 2},
		Optim: rl.AdamW{LearningRate: 0.1, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}, Temperature: 0.75, MicroBatchTokens: budget,
	}
	for _, n := range groups {
		o.Groups = append(o.Groups, batch.GroupUnit{Group: record.Group{N: n, Problem: 10 * n, Tag: 1}, Unit: unit(n)})
	}
	return o
}

func unit(n int) string { return record.GroupUnit(n, 1, 10*n, 0) }

func seal(t *testing.T, s artifact.Store, o batch.Options) record.Sealed {
	t.Helper()
	b, err := batch.Seal(t.Context(), s, o)
	if err != nil {
		t.Fatalf("Seal: %v", err)
	}
	return b
}

func p(x float64) *float64 { return &x }

func TestSeal_keepsTheOrderAndCentresRewards(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	put(t, s, unit(3), item{problem: "c", versions: []int{4, 5}, verdict: passed(1, 2)}, item{problem: "c", versions: []int{5}, verdict: passed(2, 2)})
	put(t, s, unit(1), item{problem: "a", versions: []int{2}, verdict: passed(0, 4)}, item{problem: "a", versions: []int{3}, verdict: passed(3, 4)})
	o := options(7, 100, 3, 1)
	got := seal(t, s, o)
	want := []record.Sample{
		{Group: 3, Index: 0, Reward: 0.5, Advantage: -0.25, Tokens: 5, Sampled: 2, MinVersion: 4, MaxVersion: 5},
		{Group: 3, Index: 1, Reward: 1, Advantage: 0.25, Tokens: 4, Sampled: 1, MinVersion: 5, MaxVersion: 5},
		{Group: 1, Index: 0, Reward: 0, Advantage: -0.375, Tokens: 4, Sampled: 1, MinVersion: 2, MaxVersion: 2},
		{Group: 1, Index: 1, Reward: 0.75, Advantage: 0.375, Tokens: 4, Sampled: 1, MinVersion: 3, MaxVersion: 3},
	}
	if d := cmp.Diff(want, got.Samples, approx); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	for i, n := range []int{3, 1} {
		g := got.Groups[i]
		u, err := batch.LoadUnit(t.Context(), s, layout, unit(n))
		if err != nil {
			t.Fatal(err)
		}
		w := record.Group{N: n, Problem: 10 * n, ProblemID: map[int]string{3: "c", 1: "a"}[n], Tag: 1, File: u.Verdicts.File, Verdicts: u.Ref}
		if d := cmp.Diff(w, g); d != "" {
			t.Errorf("group %d (-want +got):\n%s", i, d)
		}
	}
	if got.Step != 7 || got.Temperature != 0.75 || got.Objective != o.Objective || got.Optim != o.Optim {
		t.Errorf("got step %d, temperature %v, %+v, %+v; want those of the options", got.Step, got.Temperature, got.Objective, got.Optim)
	}
	if d := cmp.Diff(got, seal(t, s, o)); d != "" {
		t.Errorf("a second seal differs (-first +second):\n%s", d)
	}
}

func TestSeal_plansMicroBatchesByTokens(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		lengths []int // sampled tokens after a prompt of 3
		budget  int
		want    [][]int
	}{
		{"all fit", []int{1, 1, 1}, 12, [][]int{{0, 1, 2}}},
		{"one token too many", []int{1, 1, 1}, 11, [][]int{{0, 1}, {2}}},
		{"exact fill", []int{1, 1, 1, 1}, 8, [][]int{{0, 1}, {2, 3}}},
		{"too long first", []int{9, 1, 1}, 8, [][]int{{0}, {1, 2}}},
		{"too long between", []int{1, 9, 1}, 8, [][]int{{0}, {1}, {2}}},
		{"too long last", []int{1, 1, 9}, 8, [][]int{{0, 1}, {2}}},
		{"no budget", []int{1, 1}, 0, [][]int{{0}, {1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			var items []item
			for _, n := range tt.lengths {
				items = append(items, item{problem: "a", versions: make([]int, n), verdict: passed(1, 1)})
			}
			put(t, s, unit(0), items...)
			if d := cmp.Diff(tt.want, seal(t, s, options(1, tt.budget, 0)).Plan.MicroBatches); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
		})
	}
}

func TestSeal_metrics(t *testing.T) {
	t.Parallel()
	bad := judge.Verdict{Kind: judge.FormatError, Total: 2, QueueSeconds: 3}
	tests := []struct {
		name   string
		groups [][]item
		want   record.BatchMetrics
	}{
		{
			"everything",
			[][]item{
				{
					{problem: "a", versions: []int{3, 4, 5, 5}, inserted: 2, tool: true, seconds: 2, verdict: passed(2, 2)},
					{problem: "a", versions: []int{5, 5}, end: trajectory.EndLength, seconds: 1, verdict: bad},
				},
				{
					{problem: "b", versions: []int{5}, seconds: 0.5, verdict: passed(1, 2)},
					{problem: "b", versions: []int{5}, seconds: 0.5, verdict: passed(1, 2)},
				},
			},
			record.BatchMetrics{
				RewardMean: p(0.5), RewardSpread: p(0.25), ZeroSpreadShare: p(0.5), SolvedShare: p(0.25),
				LagMean: p(3.0 / 8), LagMax: p(2), SpanMax: p(3), ResponseTokens: p(2.5), ResponseMax: p(6),
				LengthCutShare: p(0.25), UnjudgeableRate: p(0.25), ToolShare: p(0.25), SampledTokens: p(8),
				RolloutRate: p(2), QueueSeconds: p(0.75), WaitSeconds: p(1.5), Drops: p(2),
			},
		},
		{
			"no sampled token",
			[][]item{{{problem: "a", verdict: passed(0, 1)}}},
			record.BatchMetrics{
				RewardMean: p(0), RewardSpread: p(0), ZeroSpreadShare: p(1), SolvedShare: p(0), ResponseTokens: p(0), ResponseMax: p(0),
				LengthCutShare: p(0), UnjudgeableRate: p(0), ToolShare: p(0), SampledTokens: p(0), QueueSeconds: p(0), WaitSeconds: p(1.5), Drops: p(2),
			},
		},
		{"no group", nil, record.BatchMetrics{SampledTokens: p(0), WaitSeconds: p(1.5), Drops: p(2)}},
		{
			// The mean of equal rewards that are not dyadic is rounded; their spread is 0 all the same.
			"equal rewards",
			[][]item{{
				{problem: "a", versions: []int{5}, verdict: passed(1, 10)},
				{problem: "a", versions: []int{5}, verdict: passed(1, 10)},
				{problem: "a", versions: []int{5}, verdict: passed(1, 10)},
			}},
			record.BatchMetrics{
				RewardMean: p(0.1), RewardSpread: p(0), ZeroSpreadShare: p(1), SolvedShare: p(0), LagMean: p(0), LagMax: p(0), SpanMax: p(1),
				ResponseTokens: p(1), ResponseMax: p(1), LengthCutShare: p(0), UnjudgeableRate: p(0), ToolShare: p(0), SampledTokens: p(3),
				QueueSeconds: p(0), WaitSeconds: p(1.5), Drops: p(2),
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			o := options(6, 100)
			o.WaitSeconds, o.Drops = 1.5, 2
			for n, items := range tt.groups {
				put(t, s, unit(n), items...)
				o.Groups = append(o.Groups, batch.GroupUnit{Group: record.Group{N: n}, Unit: unit(n)})
			}
			b := seal(t, s, o)
			ofTurns := cmpopts.IgnoreFields(record.BatchMetrics{}, "Turns", "TurnTokens", "CallShare", "Programs", "CallRan", "CallMalformed", "CallUnknownTool",
				"CallBadArguments", "CallInThinking", "CallNotRun", "CallIgnored", "CallRepeated", "ParseFailureShare", "ProgramFailed",
				"SampleSeconds", "TurnSeconds", "ToolSeconds", "ToolQueueSeconds", "JudgeSeconds") // see TestSeal_metricsOfTurns
			if d := cmp.Diff(tt.want, b.Rollout, approx, ofTurns); d != "" {
				t.Errorf("metrics (-want +got):\n%s", d)
			}
			if tt.name == "equal rewards" && *b.Rollout.ZeroSpreadShare != 1 {
				t.Errorf("zero spread share: got %v, want exactly 1", *b.Rollout.ZeroSpreadShare)
			}
			data, err := json.Marshal(b.Rollout)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want.LagMean == nil && !strings.Contains(string(data), `"lag_mean":null`) {
				t.Errorf("got %s, want lag_mean null", data)
			}
		})
	}
}

func TestSeal_metricsOfTurns(t *testing.T) {
	t.Parallel()
	call := func(status string, seconds float64, edit func(*trajectory.Call)) trajectory.Turn {
		c := &trajectory.Call{Status: status, Seconds: seconds}
		if status == "ran" {
			c.Started, c.Outcome = true, "ok"
		}
		if edit != nil {
			edit(c)
		}
		return trajectory.Turn{Seconds: 0.5, Call: c}
	}
	judged := passed(1, 2)
	judged.ChargedSeconds = 3
	pick := func(m record.BatchMetrics) map[string]any {
		out := map[string]any{}
		for _, x := range record.Metrics(m) {
			if x.Value == nil {
				out[x.Name] = nil
			} else {
				out[x.Name] = *x.Value
			}
		}
		return out
	}
	for name, tt := range map[string]struct {
		items []item
		want  map[string]any
	}{
		"everything": {
			[]item{
				{problem: "a", versions: []int{1, 1, 1}, tool: true, verdict: judged, turns: []trajectory.Turn{ // the first turn's program has no outcome, which is not ok
					call("ran", 2, func(c *trajectory.Call) { c.Outcome, c.QueueSeconds, c.Repeated = "runtime_error", 0.25, true }),
					call("malformed", 0, func(c *trajectory.Call) { c.Ignored = 2 }),
					call("unknown_tool", 0, nil),
					call("bad_arguments", 0, func(c *trajectory.Call) { c.Repeated = true }),
				}, end: trajectory.EndParse},
				{problem: "a", versions: []int{1}, verdict: passed(1, 2), turns: []trajectory.Turn{
					call("in_thinking", 0, nil), call("ran", 1, nil), call("not_run", 0, nil),
				}, end: trajectory.EndTurns},
			},
			map[string]any{
				"turns_mean": 4.5, "turn_tokens": 11.0 / 9, "call_share": 8.0 / 9, "programs_mean": 1.5, "call_ran_share": 3.0 / 8, "call_malformed_share": 0.125,
				"call_unknown_tool_share": 0.125, "call_bad_arguments_share": 0.125, "call_in_thinking_share": 0.125, "call_not_run_share": 0.125,
				"call_ignored_share": 0.125, "call_repeated_share": 0.25, "parse_failure_share": 0.5, "program_failed_share": 2.0 / 3, "sample_seconds": 1.75,
				"turn_seconds": 3.5 / 9, "tool_seconds": 1.5, "tool_queue_seconds": 0.125, "judge_seconds": 1.5, "tool_share": 1.0,
			},
		},
		"no call": {
			[]item{{problem: "a", versions: []int{1, 1}, verdict: passed(1, 2)}},
			map[string]any{
				"turns_mean": 1.0, "turn_tokens": 2.0, "call_share": 0.0, "programs_mean": 0.0, "call_ran_share": nil, "call_malformed_share": nil,
				"call_unknown_tool_share": nil, "call_bad_arguments_share": nil, "call_in_thinking_share": nil, "call_not_run_share": nil,
				"call_ignored_share": nil, "call_repeated_share": nil, "parse_failure_share": 0.0, "program_failed_share": nil, "sample_seconds": 0.0,
				"turn_seconds": 0.0, "tool_seconds": 0.0, "tool_queue_seconds": 0.0, "judge_seconds": 0.0, "tool_share": 0.0,
			},
		},
		"only a failed call": {
			[]item{{problem: "a", verdict: passed(0, 2), turns: []trajectory.Turn{call("malformed", 0, nil)}}},
			map[string]any{"call_ran_share": 0.0, "call_malformed_share": 1.0, "program_failed_share": nil, "call_share": 0.5},
		},
	} {
		s := newStore(t)
		put(t, s, unit(0), tt.items...)
		o := options(2, 100)
		o.Groups = append(o.Groups, batch.GroupUnit{Unit: unit(0)})
		got := pick(seal(t, s, o).Rollout)
		for metric, want := range tt.want {
			if d := cmp.Diff(want, got[metric], approx); d != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, metric, d)
			}
		}
	}
	// Whatever becomes of a call, it is counted once.
	m := pick(record.BatchMetrics{})
	for _, status := range []string{"ran", "malformed", "unknown_tool", "bad_arguments", "in_thinking", "not_run"} {
		if _, ok := m["call_"+status+"_share"]; !ok {
			t.Errorf("no metric counts calls of the status %s", status)
		}
	}
}

func TestSeal_refusesABadObjective(t *testing.T) {
	t.Parallel()
	o := options(1, 10)
	o.Objective.TopK = 0
	if _, err := batch.Seal(t.Context(), newStore(t), o); !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v, want Invalid", err)
	}
}

func TestLoad_roundTrip(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	put(t, s, unit(2), item{problem: "b", versions: []int{1, 1}, verdict: passed(1, 2)}, item{problem: "b", versions: []int{1}, inserted: 1, verdict: passed(2, 2)})
	ts := put(t, s, unit(1), item{problem: "a", versions: []int{0}, verdict: passed(0, 2)}, item{problem: "a", versions: []int{0, 1}, verdict: passed(1, 2)})
	sealed := seal(t, s, options(2, 9, 2, 1))
	ref, err := artifact.PutJSON(t.Context(), s, layout.Batch(2), sealed)
	if err != nil {
		t.Fatal(err)
	}
	var back record.Sealed
	if err := artifact.FetchJSON(t.Context(), s, ref, &back); err != nil {
		t.Fatal(err)
	}
	got, err := batch.Load(t.Context(), s, back)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Sequences) != 4 || got.Objective != sealed.Objective || got.Optim != sealed.Optim {
		t.Fatalf("got %d sequences, %+v, %+v; want 4 and those sealed", len(got.Sequences), got.Objective, got.Optim)
	}
	if d := cmp.Diff(engine.Plan{MicroBatches: [][]int{{0}, {1, 2}, {3}}}, got.Plan); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
	for i, q := range got.Sequences[2:] {
		if d := cmp.Diff(ts[i].Sequence(float32(sealed.Samples[2+i].Advantage), 0.75), q); d != "" {
			t.Errorf("sequence %d (-want +got):\n%s", 2+i, d)
		}
	}
}

func TestLoad_refusesSamplesThatTheFileLacks(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*record.Sealed){
		"index":          func(b *record.Sealed) { b.Samples[0].Index = 1 },
		"negative index": func(b *record.Sealed) { b.Samples[0].Index = -1 },
		"length":         func(b *record.Sealed) { b.Samples[0].Tokens++ },
		"group":          func(b *record.Sealed) { b.Samples[0].Group = 9 },
		"digest":         func(b *record.Sealed) { b.Groups[0].File.Digest = artifact.Digest(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			put(t, s, unit(1), item{problem: "a", versions: []int{0}, verdict: passed(0, 2)})
			b := seal(t, s, options(1, 9, 1))
			change(&b)
			if _, err := batch.Load(t.Context(), s, b); !fault.Is(err, fault.Corrupt) {
				t.Errorf("got %v, want Corrupt", err)
			}
		})
	}
}

func TestUnits_damageIsFound(t *testing.T) {
	t.Parallel()
	file, verdicts := layout.Trajectories(unit(1)), layout.Verdicts(unit(1))
	edit := func(f func(*batch.Verdicts)) func(*testing.T, *artifact.Files) {
		return func(t *testing.T, s *artifact.Files) {
			t.Helper()
			var v batch.Verdicts
			if _, err := artifact.GetJSON(t.Context(), s, verdicts, &v); err != nil {
				t.Fatal(err)
			}
			f(&v)
			if _, err := artifact.ReplaceJSON(t.Context(), s, verdicts, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(*testing.T, *artifact.Files) {
		return func(t *testing.T, s *artifact.Files) {
			t.Helper()
			if err := s.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name   string
		damage func(*testing.T, *artifact.Files)
		want   fault.Kind
	}{
		{"no verdicts", remove(verdicts), fault.NotFound},
		{"no trajectories", remove(file), fault.NotFound},
		{"verdicts are no JSON", func(t *testing.T, s *artifact.Files) {
			t.Helper()
			if _, err := s.Replace(t.Context(), verdicts, []byte("{")); err != nil {
				t.Fatal(err)
			}
		}, fault.Corrupt},
		{"a flipped bit", func(t *testing.T, s *artifact.Files) {
			t.Helper()
			path, err := s.Path(file)
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			if _, err := s.Replace(t.Context(), file, data); err != nil {
				t.Fatal(err)
			}
		}, fault.Corrupt},
		{"a verdict too few", edit(func(v *batch.Verdicts) { v.Items = v.Items[:1] }), fault.Corrupt},
		{"another problem", edit(func(v *batch.Verdicts) { v.Items[1].ProblemID = "z" }), fault.Corrupt},
		{"another sample", edit(func(v *batch.Verdicts) { v.Items[1].Sample = 0 }), fault.Corrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			put(t, s, unit(1), item{problem: "a", versions: []int{0}, verdict: passed(0, 2)}, item{problem: "a", versions: []int{0}, verdict: passed(2, 2)})
			tt.damage(t, s)
			if _, err := batch.Seal(t.Context(), s, options(1, 9, 1)); !fault.Is(err, tt.want) {
				t.Errorf("Seal: got %v, want %s", err, tt.want)
			}
			if _, err := batch.Summarize(t.Context(), s, layout, []string{unit(1)}); !fault.Is(err, tt.want) {
				t.Errorf("Summarize: got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestSeal_refusesAnEmptyUnit(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	put(t, s, unit(1))
	if _, err := batch.Seal(t.Context(), s, options(1, 9, 1)); !fault.Is(err, fault.Corrupt) {
		t.Errorf("got %v, want Corrupt", err)
	}
}

// counter is a judge whose verdict tells the response; it fails for "bad".
type counter struct {
	mu     sync.Mutex
	seen   map[string]int
	now    atomic.Int32
	most   atomic.Int32
	failed error
}

func (c *counter) Judge(_ context.Context, response string, tests []judge.Test) (judge.Verdict, error) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[tests[0].Input+" "+response]++
	if strings.Contains(response, "bad") {
		return judge.Verdict{}, c.failed
	}
	return passed(len(c.seen), 100), nil
}

func (c *counter) JudgeCode(context.Context, string, []judge.Test) (judge.Verdict, error) {
	return judge.Verdict{}, errors.New("not used")
}

func submission(problem string, sample int, code string) batch.Submission {
	return batch.Submission{
		ProblemID: problem, Sample: sample, Response: fmt.Sprintf("attempt %d\n```python\n%s\n```\n", sample, code), Tests: []judge.Test{{Input: problem}},
	}
}

func TestJudgeAll_runsEqualProgramsOnce(t *testing.T) {
	t.Parallel()
	for _, atOnce := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(atOnce), func(t *testing.T) {
			t.Parallel()
			c := &counter{}
			subs := []batch.Submission{
				submission("p", 0, "x"), submission("p", 1, "y"), submission("p", 2, "x"), submission("q", 0, "x"), submission("p", 3, "y"),
				{ProblemID: "p", Sample: 4, Response: "no code", Tests: []judge.Test{{}}},
				{ProblemID: "p", Sample: 5, Response: "nothing", Tests: []judge.Test{{}}},
				submission("p", 6, ""), // an empty program is not the same as none
			}
			got, err := batch.JudgeAll(t.Context(), c, subs, atOnce)
			if err != nil {
				t.Fatal(err)
			}
			owner := []int{0, 1, 0, 3, 1, 5, 5, 7}
			if len(got) != len(subs) {
				t.Fatalf("got %d verdicts, want %d", len(got), len(subs))
			}
			for i, v := range got {
				if v.ProblemID != subs[i].ProblemID || v.Sample != subs[i].Sample || v.Shared != (owner[i] != i) {
					t.Errorf("verdict %d: got %s sample %d shared %v, want %s sample %d shared %v", i, v.ProblemID, v.Sample, v.Shared, subs[i].ProblemID, subs[i].Sample, owner[i] != i)
				}
				if d := cmp.Diff(got[owner[i]].Verdict, v.Verdict); d != "" || v.Reward != v.Verdict.Reward() {
					t.Errorf("verdict %d: reward %v, want %v and the verdict of %d (-want +got):\n%s", i, v.Reward, v.Verdict.Reward(), owner[i], d)
				}
			}
			if len(c.seen) != 5 {
				t.Errorf("got %d programs judged, want 5: %v", len(c.seen), c.seen)
			}
			for k, n := range c.seen {
				if n != 1 {
					t.Errorf("%q: got %d runs, want 1", k, n)
				}
			}
			if got, want := int(c.most.Load()), max(atOnce, 1); got > want {
				t.Errorf("got %d at once, want at most %d", got, want)
			}
		})
	}
}

func TestJudgeAll_anErrorLeavesNoVerdicts(t *testing.T) {
	t.Parallel()
	c := &counter{failed: fault.New(fault.Infrastructure, "sandbox", "broken")}
	got, err := batch.JudgeAll(t.Context(), c, []batch.Submission{submission("p", 0, "x"), submission("p", 1, "bad"), submission("p", 2, "bad")}, 2)
	if got != nil || !fault.Is(err, fault.Infrastructure) {
		t.Errorf("got %v, %v; want no verdicts and Infrastructure", got, err)
	}
	if got, err := batch.JudgeAll(t.Context(), c, nil, 2); len(got) != 0 || err != nil {
		t.Errorf("of nothing: got %v, %v; want none", got, err)
	}
}

func TestSummarize_everyNumber(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	tests := func(kinds ...judge.Kind) judge.Verdict {
		v := judge.Verdict{FormatOK: true, Total: len(kinds), Kind: judge.Accepted}
		for _, k := range kinds {
			if v.Tests = append(v.Tests, judge.TestVerdict{Kind: k}); k == judge.Accepted {
				v.Passed++
			} else if v.Kind == judge.Accepted {
				v.Kind = k
			}
		}
		return v
	}
	spent := tests(judge.Accepted, judge.NotRun)
	spent.Kind, spent.BudgetExhausted = judge.BudgetExhausted, true
	name0, name1 := record.EvalUnit("000005", 0), record.EvalUnit("000005", 1)
	put(t, s, name0,
		item{problem: "a", versions: []int{5, 5}, tool: true, inserted: 2, verdict: tests(judge.Accepted, judge.Accepted)},
		item{problem: "b", versions: []int{5}, verdict: tests(judge.RuntimeError, judge.TimeLimit, judge.RuntimeError, judge.Accepted)},
	)
	put(t, s, name1,
		item{problem: "c", versions: []int{5}, verdict: spent},
		item{problem: "d", versions: []int{5}, end: trajectory.EndLength, verdict: judge.Verdict{Kind: judge.FormatError, Total: 2}},
		item{problem: "e", versions: []int{5}, verdict: judge.Verdict{Kind: judge.NoTests, FormatOK: true}}, // nothing to pass is not solved
	)
	got, err := batch.Summarize(t.Context(), s, layout, []string{name0, name1})
	if err != nil {
		t.Fatal(err)
	}
	want := record.Validation{
		Problems: 5, Units: []string{name0, name1},
		Metrics: record.DevMetrics{
			Solved: 1, Acc: 0.2, PassRate: 1.75 / 5, FormatOK: 0.8, ToolUsed: 1, RuntimeErrors: 1, TimeLimits: 1, RuntimeTests: 2, TimeTests: 1,
			BudgetExhausted: 1, LengthCut: 1, MeanTokens: 8.0 / 5,
		},
		Items: []record.DevItem{
			{Problem: "a", Kind: "accepted", Passed: 2, Total: 2},
			{Problem: "b", Kind: "runtime_error", Passed: 1, Total: 4},
			{Problem: "c", Kind: "budget_exhausted", Passed: 1, Total: 2},
			{Problem: "d", Kind: "format_error", Total: 2},
			{Problem: "e", Kind: "no_tests"},
		},
	}
	if d := cmp.Diff(want, got, approx, cmpopts.IgnoreFields(record.Validation{}, "Files")); d != "" {
		t.Errorf("validation (-want +got):\n%s", d)
	}
	var files []string
	for _, f := range got.Files {
		files = append(files, f.Name)
	}
	if d := cmp.Diff([]string{layout.Trajectories(name0), layout.Verdicts(name0), layout.Trajectories(name1), layout.Verdicts(name1)}, files); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
}

func TestSummarize_ofNothingIsFinite(t *testing.T) {
	t.Parallel()
	got, err := batch.Summarize(t.Context(), newStore(t), layout, nil)
	if err != nil || record.CheckFinite(got) != nil || math.IsNaN(got.Metrics.Acc) || got.Problems != 0 {
		t.Errorf("got %+v, %v; want zeros", got, err)
	}
}
