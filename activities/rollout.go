package activities

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/policy"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/rollout"
	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/internal/span"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// Rollout is the role that generates trajectories.
type Rollout struct {
	Runs   *Runs
	Notes  *Notes
	Policy *policy.Host
	Tool   Programs
	// Open reports whether a workflow is open.
	Open func(ctx context.Context, workflowID string) (bool, error)

	pulses pulses
}

// Programs runs the programs of models, as *sandbox.Sandbox does.
type Programs = rollout.Programs

// Register binds the activity of the role.
func (r *Rollout) Register(w contract.Registry) {
	contract.GenerateRolloutsActivity.Register(w, guard(r.Notes, r.generate))
}

// generate makes the trajectories of a unit and writes them in one file.
//
// Idempotence: by unit. A finished trajectory is written at once and never generated again; an unfinished one goes
// on from its newest flush, on any worker and under any version that the request allows. A file that is damaged, or that is not of
// this request, is removed and costs its tokens, no more.
func (r *Rollout) generate(ctx context.Context, q contract.GenerateRequest, b *Beat) (contract.GenerateResult, error) {
	run, err := r.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.GenerateResult{}, err
	}
	if ts, ref, err := r.finished(ctx, run, q); err == nil {
		return contract.GenerateResult{File: ref, Sampled: sampledOf(ts)}, r.sweep(ctx, run, q, ts)
	} else if !fault.Is(err, fault.NotFound) {
		return contract.GenerateResult{}, err
	}
	ended := context.AfterFunc(ctx, func() { crashpoint.Here("rollout.cancel.before") })
	defer ended()
	given := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go r.watchLoop(ctx, q, stop)
	p := r.pulses.get(run.Layout.Root() + q.Source)
	began := time.Now()
	ts, err := supervise(ctx, p, contract.GenerateRolloutsActivity.Name, run.Config.Timeouts.Stall.Std(),
		func(ctx context.Context) ([]*trajectory.Trajectory, error) { return r.all(ctx, run, q, b, p) })
	if err != nil {
		if cause := context.Cause(ctx); fault.Is(cause, fault.Stale) {
			err = cause
		}
		if given.Err() != nil {
			crashpoint.Here("rollout.cancel.after")
		}
		r.Notes.stalled(ctx, q.RunKey, q.Unit, err)
		return contract.GenerateResult{}, err
	}
	r.Notes.metrics().Generated(splitOf(q.Unit), time.Since(began))
	return r.finish(ctx, run, q, ts)
}

// finish writes the unit's file, then removes the samples that it replaces.
func (r *Rollout) finish(ctx context.Context, run *Run, q contract.GenerateRequest, ts []*trajectory.Trajectory) (contract.GenerateResult, error) {
	data, err := trajectory.Encode(ts)
	if err != nil {
		return contract.GenerateResult{}, err
	}
	crashpoint.Here("rollout.trajectories.before")
	ref, err := r.Runs.Store.Put(ctx, run.Layout.Trajectories(q.Unit), data)
	if fault.Is(err, fault.Stale) {
		// Another attempt, believed dead, finished first; on an engine that is not reproducible its tokens may differ. The first counts.
		if data, ref, err = r.Runs.Store.Get(ctx, run.Layout.Trajectories(q.Unit)); err == nil {
			ts, err = trajectory.Decode(data)
		}
	}
	if err != nil {
		return contract.GenerateResult{}, err
	}
	crashpoint.Here("rollout.trajectories.after")
	return contract.GenerateResult{File: ref, Sampled: sampledOf(ts)}, r.sweep(ctx, run, q, ts)
}

// finished reads the unit's file. Nobody has its reference before this activity has returned, so a damaged file is
// removed and the unit made again. Errors: NotFound (there is none), those of the store.
func (r *Rollout) finished(ctx context.Context, run *Run, q contract.GenerateRequest) ([]*trajectory.Trajectory, artifact.Ref, error) {
	name := run.Layout.Trajectories(q.Unit)
	data, ref, err := r.Runs.Store.Get(ctx, name)
	if err != nil {
		return nil, artifact.Ref{}, err
	}
	ts, err := trajectory.Decode(data)
	if fault.Is(err, fault.Corrupt) {
		if rerr := r.distrust(ctx, q, name, err.Error()); rerr != nil {
			return nil, artifact.Ref{}, rerr
		}
		err = fault.New(fault.NotFound, "GenerateRollouts", "%s was damaged and is removed", name)
	}
	return ts, ref, err
}

// distrust removes a file that must not be used, and notes it.
func (r *Rollout) distrust(ctx context.Context, q contract.GenerateRequest, name, why string) error {
	r.note(ctx, q, name, why)
	return r.Runs.Store.Remove(ctx, name)
}

// note leaves a note of a file that must not be used.
func (r *Rollout) note(ctx context.Context, q contract.GenerateRequest, name, why string) {
	r.Notes.Write(ctx, q.RunKey, record.Event{
		Kind: string(fault.Corrupt), Where: contract.GenerateRolloutsActivity.Name, Message: name + " is not used and will be made again: " + why,
	})
}

// sweep removes the files of single trajectories; a killed attempt may have left some beside the unit's file.
func (r *Rollout) sweep(ctx context.Context, run *Run, q contract.GenerateRequest, ts []*trajectory.Trajectory) error {
	for _, t := range ts {
		for _, name := range []string{run.Layout.Sample(q.Unit, t.Problem, t.Sample), run.Layout.Partial(q.Unit, t.Problem, t.Sample)} {
			if err := r.Runs.Store.Remove(ctx, name); err != nil {
				return err
			}
			crashpoint.Here("rollout.sweep.after")
		}
	}
	return nil
}

func sampledOf(ts []*trajectory.Trajectory) int {
	n := 0
	for _, t := range ts {
		n += t.Sampled()
	}
	return n
}

// all generates every trajectory of the request, side by side in the engine's batch, in the order of the request.
func (r *Rollout) all(ctx context.Context, run *Run, q contract.GenerateRequest, b *Beat, p *pulse) ([]*trajectory.Trajectory, error) {
	if err := pythonFits(run, r.Tool.Level().Python.Version); err != nil {
		return nil, err
	}
	tok, err := r.Runs.Tokenizer(run)
	if err != nil {
		return nil, err
	}
	set, err := r.Runs.Dataset(ctx, run)
	if err != nil {
		return nil, err
	}
	release := p.hold() // an engine may have to load
	lease, err := r.Policy.Acquire(ctx, policy.Want{Layout: run.Layout, Source: q.Source, MinVersion: q.MinVersion, Pin: q.Pin})
	release()
	if err != nil {
		return nil, err
	}
	defer lease.Release()
	u := &unit{r: r, run: run, q: q, tok: tok, sampler: lease.Sampler, beat: b, pulse: p}
	ts := make([]*trajectory.Trajectory, len(q.Problems)*q.Samples)
	g, ctx := errgroup.WithContext(ctx)
	for i, index := range q.Problems {
		problem, err := set.Problem(dataset.Split(q.Split), index)
		if err != nil {
			return nil, err
		}
		for s := range q.Samples {
			g.Go(func() error {
				t, err := u.one(ctx, problem, s)
				ts[i*q.Samples+s] = t
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return ts, nil
}

// unit is the work on one request.
type unit struct {
	r       *Rollout
	run     *Run
	q       contract.GenerateRequest
	tok     *tokenizer.Tokenizer
	sampler engine.Sampler
	beat    *Beat
	pulse   *pulse
	made    atomic.Int64 // tokens of this attempt, observations included
	ended   atomic.Int64 // trajectories that are finished
}

// one generates one trajectory, or reads it if it is finished.
func (u *unit) one(ctx context.Context, p dataset.Problem, sample int) (*trajectory.Trajectory, error) {
	l, set := u.run.Layout, u.settings()
	start, err := set.Begin(u.tok, trajectory.Key{
		ProblemID: p.ID, Problem: p.Index, Split: u.q.Split, Group: u.q.Group, Sample: sample, Tag: u.q.Tag, Submission: u.q.Submission,
	}, p.Statement)
	if err != nil {
		return nil, err
	}
	split, grew := splitOf(u.q.Unit), false
	ctx, ended := span.Start(ctx, "sample", span.Attr{Key: "problem", Value: p.Index}, span.Attr{Key: "sample", Value: sample})
	t, err := rollout.Job{
		Store: u.r.Runs.Store, Done: l.Sample(u.q.Unit, p.Index, sample), Partial: l.Partial(u.q.Unit, p.Index, sample), Start: start,
		Options: set.Options(u.sampler, u.tok, rollout.Tool{Programs: u.r.Tool, Limits: Limits(u.run.Config)}, u.random(p, sample), u.q.Pin),
		Vocab:   u.run.Vocab, FlushInterval: u.run.Config.Rollout.FlushInterval.Std(),
		Grown: func(tokens int) {
			u.pulse.beat()
			u.made.Add(int64(tokens))
			u.r.Notes.metrics().Tokens(split, tokens)
			grew = true
		},
		Flushed: func(*trajectory.Trajectory) {
			u.beat.Say("%s: %d tokens in this attempt, %d responses finished", u.q.Unit, u.made.Load(), u.ended.Load())
		},
		Distrusted: func(ctx context.Context, name, why string) { u.r.note(ctx, u.q, name, why) },
	}.Run(ctx)
	if err != nil {
		ended(err)
		return nil, err
	}
	u.ended.Add(1)
	if grew { // else an earlier attempt finished it
		u.r.Notes.metrics().Response(split, string(t.End))
	}
	ended(nil, span.Attr{Key: "tokens", Value: t.Len()}, span.Attr{Key: "end", Value: string(t.End)})
	return t, nil
}

func (u *unit) settings() rollout.Settings {
	if u.q.Split == string(dataset.Dev) {
		return ValidationSettings(u.run.Config)
	}
	return trainSettings(u.run.Config)
}

func (u *unit) random(p dataset.Problem, sample int) rng.Stream {
	if u.q.Split == string(dataset.Dev) {
		return rollout.ValidationStream(u.run.Config.Run.Seed, p.ID, sample)
	}
	return rng.New(u.run.Config.Run.Seed, rng.Train, u.q.Tag, p.ID, sample, u.q.Submission)
}

func trainSettings(c *config.Config) rollout.Settings {
	return rollout.Settings{
		Thinking: c.Rollout.Thinking, Temperature: c.Rollout.Temperature, TopK: c.Rollout.TopKRecord, MaxTurns: c.Rollout.MaxTurns,
		MaxTurn: c.Rollout.MaxTurnTokens, MaxPrompt: c.Rollout.MaxPrompt, MaxResponse: c.Rollout.MaxResponse, MaxTotal: c.Rollout.MaxTotal,
		OutputLimit: c.Rollout.ToolOutputLimit,
	}
}

// ValidationSettings are how a configuration samples the dev problems: as in training, at a temperature of their own, and without
// records, as validation trains nothing.
func ValidationSettings(c *config.Config) rollout.Settings {
	s := trainSettings(c)
	s.Temperature, s.TopK = c.Validation.Temperature, 0
	return s
}

// watchLoop ends the work when the loop that asked for it is closed.
func (r *Rollout) watchLoop(ctx context.Context, q contract.GenerateRequest, stop context.CancelCauseFunc) {
	if q.Loop == "" || q.ClosedCheck <= 0 {
		return
	}
	tick := time.NewTicker(q.ClosedCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// An error is no answer; the next tick asks again.
		if open, err := r.Open(ctx, q.Loop); err == nil && !open {
			stop(fault.New(fault.Stale, "GenerateRollouts", "run_closed: %s is not open", q.Loop))
			return
		}
	}
}

// Limits are the limits of one program that a configuration asks for.
func Limits(c *config.Config) *sandbox.Limits {
	s := c.Sandbox
	return &sandbox.Limits{Time: s.TimeLimit.Std(), Memory: int64(s.Memory), Output: int64(s.OutputLimit)}
}
