package report_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// synthetic writes the records of an invented run into a store. Everything is a function of its fields.
type synthetic struct {
	t      *testing.T
	store  *artifact.Files
	l      record.Layout
	steps  int
	every  int // validation
	groups int // a step
	tok    *tokenizer.Tokenizer
	ended  bool
}

const groupSize = 4

func newSynthetic(t *testing.T, steps, every int) *synthetic {
	t.Helper()
	store, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &synthetic{t: t, store: store, l: record.Layout{Run: "demo", Lineage: "l0"}, steps: steps, every: every, groups: 3, ended: true}
}

func (y *synthetic) json(name string, v any) artifact.Ref {
	y.t.Helper()
	ref, err := artifact.PutJSON(y.t.Context(), y.store, name, v)
	if err != nil {
		y.t.Fatal(err)
	}
	return ref
}

func (y *synthetic) put(name string, data []byte) artifact.Ref {
	y.t.Helper()
	ref, err := y.store.Put(y.t.Context(), name, data)
	if err != nil {
		y.t.Fatal(err)
	}
	return ref
}

// replace puts other bytes in the place of a record.
func (y *synthetic) replace(name string, data []byte) {
	y.t.Helper()
	if _, err := y.store.Replace(y.t.Context(), name, data); err != nil {
		y.t.Fatal(err)
	}
}

// noise is a number in [-1, 1) for a step and a name.
func noise(step int, name string) float64 {
	return 2*rng.New(1, rng.Data, name).Uniform(uint64(step)) - 1
}

func digest(what string, n int) string { return artifact.Digest(fmt.Appendf(nil, "%s %d", what, n)) }

// write leaves the whole run.
func (y *synthetic) write() {
	y.run()
	y.tokenizer()
	y.dataset()
	for step := 1; step <= y.steps; step++ {
		y.step(step)
	}
	for step := 0; step <= y.steps; step += y.every {
		y.validation(record.StepName(step), step, "published")
	}
	y.events()
	if y.ended {
		y.json(y.l.LedgerEnd(), record.Ledger{
			Dropped:   []record.Drop{{N: 0, Reason: "run_ended", Tag: 1, Tokens: 77}},
			NextGroup: y.steps*y.groups + 2, Cursor: record.Cursor{Next: y.steps*y.groups + 1},
		})
		y.validation("export", y.steps, "export")
		y.export()
	}
}

func (y *synthetic) run() {
	text, err := json.Marshal(map[string]any{
		"recipe": "demo", "mode": "async", "run": map[string]any{"steps": y.steps, "validate_every": y.every},
		"rollout": map[string]any{"group_size": groupSize, "temperature": 1}, "model": map[string]any{"path": "</pre><script>alert(1)</script>"},
	})
	if err != nil {
		y.t.Fatal(err)
	}
	config := y.put(y.l.ConfigFile(), text)
	y.json(y.l.RunFile(), record.Run{
		Run: y.l.Run, Owner: "0198f6a2-8a5e-7a33-b9f3-0c2f1f7f2a11", Lineage: y.l.Lineage, ConfigDigest: config.Digest, Recipe: "demo", Steady: "v0.1.0",
		Engine: "cpu", BaseModel: "bundled", Started: "2026-03-01T09:00:00Z",
	})
	y.json(y.l.Worker("host-a"), record.Worker{
		Host: "host-a", Steady: "v0.1.0", Engine: "cpu, avx512", Python: "3.12.4", Sandbox: "Landlock ABI 5, seccomp filter",
	})
	y.json(y.l.WeightsInfo(0), record.Version{Digest: digest("base", 0)})
}

func (y *synthetic) tokenizer() {
	added := []tokenizer.Added{{Text: "<|im_start|>", Special: true}, {Text: "<|im_end|>", Special: true}, {Text: "<tool_call>"}, {Text: "</tool_call>"}}
	data, err := tokenizer.Train(slices.Values([]string{"print(sum(map(int, input().split())))", "Read two integers and print their sum."}), 300, added)
	if err != nil {
		y.t.Fatal(err)
	}
	y.put(y.l.Base()+"/"+tokenizer.FileName, data)
	dir, err := y.store.Path(y.l.Base())
	if err != nil {
		y.t.Fatal(err)
	}
	if y.tok, err = tokenizer.Load(dir); err != nil {
		y.t.Fatal(err)
	}
}

// trajectory is a response of one turn, or of two with a tool call between them.
func (y *synthetic) trajectory(group, sample int, tool bool) *trajectory.Trajectory {
	prompt := "<|im_start|>user\nRead two integers a < b & print their sum.\n\nInput\n3 5\n\nOutput\n8<|im_end|>\n<|im_start|>assistant\n"
	t := trajectory.New(trajectory.Key{ProblemID: fmt.Sprintf("demo/%d", group), Group: group, Sample: sample}, y.tok.Encode(prompt), 0)
	say := func(text string) {
		t.BeginTurn()
		for _, id := range y.tok.Encode(text) {
			if err := t.AppendSampled(engine.Token{ID: id, LogProb: -1, Version: 1}); err != nil {
				y.t.Fatal(err)
			}
		}
	}
	if tool {
		say("Let me try it.\n<tool_call>\n{\"name\": \"run_python\", \"arguments\": {\"code\": \"print(3+5)\", \"stdin\": \"\"}}\n</tool_call><|im_end|>")
		t.Turns[0].Call = &trajectory.Call{Status: "ran", Started: true, Outcome: "ok"}
		t.AppendInserted(y.tok.Encode("\n<|im_start|>user\n<tool_response>\nexit code 0\n8\n</tool_response><|im_end|>\n<|im_start|>assistant\n"))
	}
	say(fmt.Sprintf("```python\na, b = map(int, input().split())\nprint(a + b * %d)\n```<|im_end|>", sample+1))
	t.End = trajectory.EndStop
	return t
}

// step leaves batch, result and ledger record. Group 0 is sent out first and never trained.
func (y *synthetic) step(step int) {
	b := record.Sealed{Step: step}
	led := record.Ledger{Step: step}
	if step == 1 {
		led.Submitted = append(led.Submitted, record.Submitted{N: 0, Problem: 1000, Tag: 1}, record.Submitted{N: 1, Problem: 1001, Tag: 1})
		led.Dropped = []record.Drop{{N: 1, Reason: "infrastructure", Tag: 1, Tokens: 130, Finished: true}}
	}
	for i := range y.groups {
		n := 2 + (step-1)*y.groups + i
		sub := record.Submitted{N: n, Problem: n, Tag: step}
		if n == 2 {
			sub.Problem, sub.Submission = 1001, 1
		}
		led.Submitted, led.Trained = append(led.Submitted, sub), append(led.Trained, n)
		led.TrainedTokens = append(led.TrainedTokens, 120+10*i)
		b.Groups = append(b.Groups, y.group(step, n))
		for k := range groupSize {
			b.Samples = append(b.Samples, record.Sample{
				Group: n, Index: k, Reward: []float64{1, 0.5, 0, 0.25}[k], Advantage: []float64{0.5625, 0.0625, -0.4375, -0.1875}[k],
				Tokens: 150, Sampled: 40, MinVersion: max(0, step-3), MaxVersion: step - 1,
			})
		}
	}
	led.NextGroup, led.Cursor = 2+step*y.groups, record.Cursor{Next: 1 + step*y.groups}
	rollout, update := measured(step, y.steps)
	b.Rollout = rollout
	recordtest.PutStep(y.t, y.store, y.l, b, record.Result{
		StateDigest: digest("state", step), WeightsDigest: digest("weights", step), Metrics: update, Trainer: "host-a, epoch 1",
	})
	y.json(y.l.Ledger(step), led)
}

func (y *synthetic) group(step, n int) record.Group {
	unit := record.GroupUnit(n, step, n, 0)
	g := record.Group{N: n, Problem: n, ProblemID: fmt.Sprintf("demo/%d", n), Tag: step}
	var ts []*trajectory.Trajectory
	var items []map[string]any
	for k := range groupSize {
		ts = append(ts, y.trajectory(n, k, k == 3 && step == y.steps))
		passed := []int{4, 2, 0, 1}[k]
		tests := []map[string]any{}
		for i := range 4 {
			kind := "accepted"
			if i >= passed {
				kind = "wrong_answer"
			}
			tests = append(tests, map[string]any{"kind": kind})
		}
		kind := "wrong_answer"
		if passed == 4 {
			kind = "accepted"
		}
		items = append(items, map[string]any{"problem_id": g.ProblemID, "sample": k, "kind": kind, "passed": passed, "total": 4, "tests": tests})
	}
	data, err := trajectory.Encode(ts)
	if err != nil {
		y.t.Fatal(err)
	}
	g.File = y.put(y.l.Trajectories(unit), data)
	g.Verdicts = y.json(y.l.Verdicts(unit), map[string]any{"unit": unit, "file": g.File, "items": items})
	return g
}

// measured are curves of plausible shape; some numbers are absent in some steps, one in all.
func measured(step, steps int) (record.BatchMetrics, record.UpdateMetrics) {
	x := float64(step) / float64(steps)
	v := func(base, slope, wobble float64, name string) *float64 {
		return record.Num(math.Round(1e6*(base+slope*x+wobble*noise(step, name))) / 1e6)
	}
	tool := 0.0
	if step == steps {
		tool = 0.25
	}
	b := record.BatchMetrics{
		RewardMean: v(0.45, 0.4, 0.05, "r"), RewardSpread: v(0.3, -0.15, 0.03, "s"), ZeroSpreadShare: v(0.3, 0.3, 0.08, "z"), SolvedShare: v(0.4, 0.4, 0.05, "v"),
		LagMean: v(1.9, 0, 0.2, "l"), LagMax: record.Num(3), SpanMax: record.Num(float64(1 + step%2)), ResponseTokens: v(60, -10, 4, "t"), ResponseMax: v(220, 0, 30, "m"),
		LengthCutShare: v(0.05, -0.04, 0.01, "c"), UnjudgeableRate: v(0.08, -0.06, 0.02, "u"), ToolShare: &tool, SampledTokens: v(3000, -400, 200, "k"),
		Turns: v(1.2, -0.1, 0.05, "n"), TurnTokens: v(40, -8, 3, "w"), CallShare: v(0.1, -0.08, 0.01, "x"), Programs: v(0.1, -0.08, 0.01, "p"),
		ParseFailureShare: record.Num(0), SampleSeconds: v(0.5, -0.1, 0.02, "y"), TurnSeconds: v(0.4, -0.1, 0.02, "i"), ToolSeconds: v(0.02, -0.01, 0.001, "h"),
		ToolQueueSeconds: record.Num(0), JudgeSeconds: v(0.3, 0, 0.02, "b"), CallRan: v(0.8, 0.1, 0.02, "d"), CallMalformed: v(0.1, -0.05, 0.01, "B"),
		RolloutRate: v(5200, 0, 300, "q"), QueueSeconds: v(0.0004, 0, 0.0002, "j"), Drops: record.Num(float64(step % 2)),
	}
	u := record.UpdateMetrics{
		Loss: v(-0.02, 0.01, 0.01, "L"), GradNorm: v(0.9, -0.3, 0.2, "g"), ClipFactor: v(0.95, 0.04, 0.01, "f"), Correction: v(1e-4, 0, 2e-4, "C"), CorrectionA: v(0.002, 0, 0.001, "A"),
		Uncovered: v(0.0003, 0, 0.0001, "U"), TrainerTail: v(0.0004, 0, 0.0001, "T"), Entropy: v(0.6, -0.3, 0.04, "e"), LogProbGap: v(0.02, 0, 0.005, "G"), KL: v(0.001, 0, 0.0008, "K"),
		OutsideShare: v(0.0002, 0, 0.0001, "o"), FloorShare: record.Num(0), MaxAlpha: v(0.01, 0, 0.005, "a"), TrainRate: v(9000, 0, 500, "R"), Seconds: v(0.9, 0, 0.1, "S"),
	}
	if step%5 == 3 {
		u.Entropy = nil
	}
	return b, u
}

func (y *synthetic) validation(name string, step int, source string) {
	const problems = 64
	v := record.Validation{Name: name, Version: step, Problems: problems, Source: source, Seconds: 3.4, Weights: digest("weights", step)}
	solved := min(problems-4, 26+30*step/y.steps)
	for i := range problems {
		it := record.DevItem{Problem: fmt.Sprintf("demo/%d", 9000+i), Kind: "accepted", Passed: 4, Total: 4}
		if (i+step)%problems >= solved {
			it.Kind, it.Passed = "wrong_answer", 1
		}
		v.Items = append(v.Items, it)
	}
	acc := float64(solved) / problems
	v.Metrics = record.DevMetrics{
		Solved: solved, Acc: acc, PassRate: acc + 0.25*(1-acc), FormatOK: 0.9 + 0.1*acc, ToolUsed: 3 - 2*step/y.steps, RuntimeErrors: 6 - 4*step/y.steps,
		RuntimeTests: 24 - 16*step/y.steps, TimeLimits: 1, TimeTests: 2, LengthCut: 5 - 5*step/y.steps, MeanTokens: 61.25 - 10*float64(step)/float64(y.steps),
	}
	y.json(y.l.Validation(name), v)
}

func (y *synthetic) events() {
	list := []record.Event{
		{Time: "2026-03-01T09:00:41.25Z", Kind: "Infrastructure", Where: "group 1", Message: "dropped: the interpreter could not be started <4 attempts>", Step: 1},
		{Time: "2026-03-01T09:01:12Z", Kind: "Lost", Where: "trainer host-a", Message: "no heartbeat for 20 s", Step: 2},
		{Time: "2026-03-01T09:01:14.5Z", Kind: "reacquired", Where: "trainer host-b", Message: "epoch 2", Step: 2},
		{Time: "2026-03-01T09:01:16Z", Kind: "replayed", Where: "trainer host-b", Message: "2 sealed batches after the checkpoint of step 0, digests equal", Step: 2},
	}
	for i, e := range list {
		y.json(y.l.Event(fmt.Sprintf("%02d", i)), e)
	}
}
