package batch

import (
	"context"
	"math"
	"slices"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/trajectory"
)

// mean collects an average; Value is NaN without values, which record.Num turns into absence.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(x float64)  { m.sum += x; m.n++ }
func (m *mean) addIf(yes bool) { m.add(map[bool]float64{true: 1}[yes]) }
func (m mean) value() *float64 { return record.Num(m.sum / float64(m.n)) }

// metrics are the numbers of spec section 6 that need no trainer.
func metrics(o Options, units []Unit) record.BatchMetrics {
	var reward, spread, zero, solved, lag, response, cut, bad, tool, queue mean
	var sampled, seconds, maxLag, maxSpan, maxResponse float64
	var turns turnMetrics
	maxLag, maxSpan, maxResponse = math.NaN(), math.NaN(), math.NaN()
	for _, u := range units {
		var rewards []float64
		for i, t := range u.Trajectories {
			v := u.Verdicts.Items[i]
			rewards = append(rewards, v.Reward)
			reward.add(v.Reward)
			solved.addIf(v.Solved())
			response.add(float64(t.Response()))
			maxResponse = fmax(maxResponse, float64(t.Response()))
			cut.addIf(t.End.Cut())
			bad.addIf(!v.FormatOK)
			tool.addIf(t.ToolStarted())
			queue.add(v.QueueSeconds)
			turns.add(t, v)
			sampled += float64(t.Sampled())
			seconds += t.Seconds
			addLags(&lag, t, o.Step)
			if lo, hi, ok := t.VersionRange(); ok {
				maxLag, maxSpan = fmax(maxLag, float64(o.Step-1-lo)), fmax(maxSpan, float64(hi-lo+1))
			}
		}
		s := deviation(rewards)
		spread.add(s)
		zero.addIf(s == 0)
	}
	num := record.Num
	out := record.BatchMetrics{
		RewardMean: reward.value(), RewardSpread: spread.value(), ZeroSpreadShare: zero.value(), SolvedShare: solved.value(),
		LagMean: lag.value(), LagMax: num(maxLag), SpanMax: num(maxSpan), ResponseTokens: response.value(), ResponseMax: num(maxResponse),
		LengthCutShare: cut.value(), UnjudgeableRate: bad.value(), ToolShare: tool.value(), SampledTokens: num(sampled),
		RolloutRate: num(sampled / seconds), QueueSeconds: queue.value(), WaitSeconds: num(o.WaitSeconds), Drops: num(float64(o.Drops)),
	}
	turns.fill(&out)
	return out
}

// turnMetrics collects what turns and calls of the tool give.
type turnMetrics struct {
	turns, tokens, call, programs, parse                  mean
	ran, malformed, unknown, arguments, thinking, notRun  mean
	ignored, repeated, failed                             mean
	sampling, turnSampling, tool, toolQueue, judgeCharged mean
}

func (m *turnMetrics) add(t *trajectory.Trajectory, v Verdict) {
	var programs, sampling, tool, toolQueue float64
	for _, u := range t.Turns {
		m.tokens.add(float64(u.End - u.Begin))
		m.turnSampling.add(u.Seconds)
		m.call.addIf(u.Call != nil)
		sampling += u.Seconds
		if u.Call == nil {
			continue
		}
		m.addCall(u.Call)
		tool += u.Call.Seconds
		toolQueue += u.Call.QueueSeconds
		if u.Call.Status == "ran" {
			programs++
		}
	}
	m.turns.add(float64(len(t.Turns)))
	m.programs.add(programs)
	m.parse.addIf(t.End == trajectory.EndParse)
	m.sampling.add(sampling)
	m.tool.add(tool)
	m.toolQueue.add(toolQueue)
	m.judgeCharged.add(v.ChargedSeconds)
}

func (m *turnMetrics) addCall(c *trajectory.Call) {
	for status, share := range map[string]*mean{
		"ran": &m.ran, "malformed": &m.malformed, "unknown_tool": &m.unknown, "bad_arguments": &m.arguments, "in_thinking": &m.thinking, "not_run": &m.notRun,
	} {
		share.addIf(c.Status == status)
	}
	m.ignored.addIf(c.Ignored > 0)
	m.repeated.addIf(c.Repeated)
	if c.Status == "ran" {
		m.failed.addIf(c.Outcome != "ok")
	}
}

func (m *turnMetrics) fill(b *record.BatchMetrics) {
	b.Turns, b.TurnTokens, b.CallShare, b.Programs = m.turns.value(), m.tokens.value(), m.call.value(), m.programs.value()
	b.CallRan, b.CallMalformed, b.CallUnknownTool = m.ran.value(), m.malformed.value(), m.unknown.value()
	b.CallBadArguments, b.CallInThinking, b.CallNotRun = m.arguments.value(), m.thinking.value(), m.notRun.value()
	b.CallIgnored, b.CallRepeated, b.ParseFailureShare, b.ProgramFailed = m.ignored.value(), m.repeated.value(), m.parse.value(), m.failed.value()
	b.SampleSeconds, b.TurnSeconds, b.ToolSeconds, b.ToolQueueSeconds = m.sampling.value(), m.turnSampling.value(), m.tool.value(), m.toolQueue.value()
	b.JudgeSeconds = m.judgeCharged.value()
}

func addLags(lag *mean, t *trajectory.Trajectory, step int) {
	versions := t.Versions()
	for i, m := range t.Mask() {
		if m {
			lag.add(float64(step-1) - float64(versions[i]))
		}
	}
}

func fmax(a, b float64) float64 {
	if math.IsNaN(a) {
		return b
	}
	return max(a, b)
}

// deviation is the standard deviation of a group's rewards (of the group, not of a population). That of equal rewards
// is exactly 0, although their mean may be rounded.
func deviation(x []float64) float64 {
	if len(x) > 0 && slices.Min(x) == slices.Max(x) {
		return 0
	}
	var m mean
	for _, v := range x {
		m.add(v)
	}
	avg := m.sum / float64(m.n)
	var ss float64
	for _, v := range x {
		ss += (v - avg) * (v - avg)
	}
	return math.Sqrt(ss / float64(m.n))
}

// Summarize adds up the units of a validation. Name, version, source and seconds are left to the caller.
func Summarize(ctx context.Context, s artifact.Store, l record.Layout, units []string) (record.Validation, error) {
	out := record.Validation{Units: units}
	var sum Tally
	for _, name := range units {
		u, err := LoadUnit(ctx, s, l, name)
		if err != nil {
			return record.Validation{}, err
		}
		for i, v := range u.Verdicts.Items {
			out.Items = append(out.Items, record.DevItem{Problem: v.ProblemID, Kind: string(v.Kind), Passed: v.Passed, Total: v.Total})
			sum.Add(u.Trajectories[i], v)
		}
		out.Files = append(out.Files, u.Verdicts.File, u.Ref)
	}
	out.Problems, out.Metrics = sum.N, sum.Metrics()
	return out, nil
}

// Tally adds up responses to dev problems.
type Tally struct {
	N      int // responses
	counts record.DevMetrics
	pass   mean
	format mean
	tokens mean
}

// Add counts a response.
func (y *Tally) Add(t *trajectory.Trajectory, v Verdict) {
	y.N++
	y.pass.add(v.Reward)
	y.format.addIf(v.FormatOK)
	y.tokens.add(float64(t.Response()))
	count(&y.counts, t, v)
}

// Merge counts the responses of other as if they had been added here, one after the other.
func (y *Tally) Merge(other *Tally) {
	y.N += other.N
	for _, p := range [][2]*mean{{&y.pass, &other.pass}, {&y.format, &other.format}, {&y.tokens, &other.tokens}} {
		p[0].sum += p[1].sum
		p[0].n += p[1].n
	}
	a, b := &y.counts, &other.counts
	for _, p := range [][2]*int{
		{&a.Solved, &b.Solved},
		{&a.ToolUsed, &b.ToolUsed},
		{&a.RuntimeErrors, &b.RuntimeErrors},
		{&a.TimeLimits, &b.TimeLimits},
		{&a.RuntimeTests, &b.RuntimeTests},
		{&a.TimeTests, &b.TimeTests},
		{&a.BudgetExhausted, &b.BudgetExhausted},
		{&a.LengthCut, &b.LengthCut},
	} {
		*p[0] += *p[1]
	}
}

// Metrics are the counts and shares; all are 0 of nothing.
func (y *Tally) Metrics() record.DevMetrics {
	m := y.counts
	if y.N > 0 {
		m.Acc = float64(m.Solved) / float64(y.N)
		m.PassRate, m.FormatOK, m.MeanTokens = y.pass.sum/float64(y.pass.n), y.format.sum/float64(y.format.n), y.tokens.sum/float64(y.tokens.n)
	}
	return m
}

func count(m *record.DevMetrics, t *trajectory.Trajectory, v Verdict) {
	one := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	runtime, timeout := 0, 0
	for _, x := range v.Tests {
		one(&runtime, x.Kind == judge.RuntimeError)
		one(&timeout, x.Kind == judge.TimeLimit)
	}
	m.RuntimeTests += runtime
	m.TimeTests += timeout
	one(&m.RuntimeErrors, runtime > 0)
	one(&m.TimeLimits, timeout > 0)
	one(&m.Solved, v.Solved())
	one(&m.ToolUsed, t.ToolStarted())
	one(&m.BudgetExhausted, v.BudgetExhausted)
	one(&m.LengthCut, t.End.Cut())
}
