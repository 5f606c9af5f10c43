package activities

import (
	"context"
	"time"

	"github.com/steadyrl/steady/internal/agent"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/span"
)

// Judge is the role that judges trajectories.
type Judge struct {
	Runs  *Runs
	Notes *Notes
	// Judge makes a judge with a run's limits and budget.
	Judge  func(*Run) Judger
	Slots  int    // submissions judged side by side
	Python string // version of the interpreter

	pulse pulse
}

// pulsed is a judge whose verdicts beat.
type pulsed struct {
	Judger
	p *pulse
}

// Judge implements batch.Judger.
func (j pulsed) Judge(ctx context.Context, response string, tests []judge.Test) (judge.Verdict, error) {
	defer j.p.beat()
	ctx, ended := span.Start(ctx, "judge_submission", span.Attr{Key: "tests", Value: len(tests)})
	v, err := j.Judger.Judge(ctx, response, tests)
	ended(err, span.Attr{Key: "verdict", Value: string(v.Kind)}, span.Attr{Key: "passed", Value: v.Passed})
	return v, err
}

// Register binds the activity of the role.
func (j *Judge) Register(w contract.Registry) {
	contract.JudgeRolloutsActivity.Register(w, guard(j.Notes, j.judge))
}

// judge scores the trajectories of a unit. Idempotence: by unit; the first complete record stays. Equal programs of a unit
// for the same problem are run once.
func (j *Judge) judge(ctx context.Context, q contract.JudgeRequest, b *Beat) (contract.JudgeResult, error) {
	run, err := j.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.JudgeResult{}, err
	}
	name := run.Layout.Verdicts(q.Unit)
	var v batch.Verdicts
	if ref, err := artifact.GetJSON(ctx, j.Runs.Store, name, &v); err == nil && v.File == q.File {
		return contract.JudgeResult{Verdicts: ref, RewardMean: meanReward(v)}, nil
	} else if err != nil && !fault.Is(err, fault.NotFound) {
		return contract.JudgeResult{}, err
	}
	if err := pythonFits(run, j.Python); err != nil {
		return contract.JudgeResult{}, err
	}
	began := time.Now()
	v, err = supervise(ctx, &j.pulse, contract.JudgeRolloutsActivity.Name, run.Config.Timeouts.Stall.Std(),
		func(ctx context.Context) (batch.Verdicts, error) { return j.verdicts(ctx, run, q, b) })
	if err != nil {
		j.Notes.stalled(ctx, q.RunKey, q.Unit, err)
		return contract.JudgeResult{}, err
	}
	if err := record.CheckFinite(v); err != nil {
		return contract.JudgeResult{}, err
	}
	j.Notes.metrics().Judged(splitOf(q.Unit), time.Since(began), kinds(v))
	crashpoint.Here("judge.verdicts.before")
	ref, err := artifact.PutJSON(ctx, j.Runs.Store, name, v)
	if fault.Is(err, fault.Stale) {
		ref, err = artifact.GetJSON(ctx, j.Runs.Store, name, &v)
	}
	if err == nil {
		crashpoint.Here("judge.verdicts.after")
	}
	return contract.JudgeResult{Verdicts: ref, RewardMean: meanReward(v)}, err
}

// kinds lists the verdicts of submissions.
func kinds(v batch.Verdicts) []string {
	var out []string
	for _, i := range v.Items {
		out = append(out, string(i.Verdict.Kind))
	}
	return out
}

func meanReward(v batch.Verdicts) *float64 {
	var sum float64
	for _, i := range v.Items {
		sum += i.Reward
	}
	return record.Num(sum / float64(len(v.Items)))
}

func (j *Judge) verdicts(ctx context.Context, run *Run, q contract.JudgeRequest, b *Beat) (batch.Verdicts, error) {
	ts, err := batch.ReadTrajectories(ctx, j.Runs.Store, q.File)
	if err != nil {
		return batch.Verdicts{}, err
	}
	tok, err := j.Runs.Tokenizer(run)
	if err != nil {
		return batch.Verdicts{}, err
	}
	set, err := j.Runs.Dataset(ctx, run)
	if err != nil {
		return batch.Verdicts{}, err
	}
	var subs []batch.Submission
	for _, t := range ts {
		tests, err := set.Tests(dataset.Split(q.Split), t.Problem)
		if err != nil {
			return batch.Verdicts{}, err
		}
		subs = append(subs, batch.Submission{ProblemID: t.ProblemID, Sample: t.Sample, Response: agent.LastTurn(t, tok), Tests: tests})
	}
	b.Say("%s: %d submissions", q.Unit, len(subs))
	items, err := batch.JudgeAll(ctx, pulsed{j.Judge(run), &j.pulse}, subs, j.Slots)
	return batch.Verdicts{Unit: q.Unit, File: q.File, Python: j.Python, Items: items}, err
}

// Judger scores a response; *judge.Judge is one.
type Judger = batch.Judger

// pythonFits refuses an interpreter that the run does not allow.
func pythonFits(run *Run, version string) error {
	want := run.Config.Sandbox.PythonVersion
	if want == "" || version == want || len(version) > len(want) && version[:len(want)+1] == want+"." {
		return nil
	}
	return fault.New(fault.Invalid, "activities.pythonFits", "this worker has Python %s, the run wants %s", version, want).
		WithHint("start workers with --python PATH of a Python %s", want)
}
