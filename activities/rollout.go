package activities

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/agent"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/policy"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/sandbox"
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
}

// Programs runs the programs of models, as *sandbox.Sandbox does.
type Programs interface {
	Level() sandbox.Level
	Run(ctx context.Context, p sandbox.Program) (sandbox.Result, error)
}

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
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go r.watchLoop(ctx, q, stop)
	ts, err := r.all(ctx, run, q, b)
	if err != nil {
		if cause := context.Cause(ctx); fault.Is(cause, fault.Stale) {
			err = cause
		}
		return contract.GenerateResult{}, err
	}
	return r.finish(ctx, run, q, ts)
}

// finish writes the unit's file, then removes the samples that it replaces.
func (r *Rollout) finish(ctx context.Context, run *Run, q contract.GenerateRequest, ts []*trajectory.Trajectory) (contract.GenerateResult, error) {
	data, err := trajectory.Encode(ts)
	if err != nil {
		return contract.GenerateResult{}, err
	}
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
	r.Notes.Write(ctx, q.RunKey, record.Event{
		Kind: string(fault.Corrupt), Where: contract.GenerateRolloutsActivity.Name, Message: name + " is not used and will be made again: " + why,
	})
	return r.Runs.Store.Remove(ctx, name)
}

// sweep removes the files of single trajectories; a killed attempt may have left some beside the unit's file.
func (r *Rollout) sweep(ctx context.Context, run *Run, q contract.GenerateRequest, ts []*trajectory.Trajectory) error {
	for _, t := range ts {
		for _, name := range []string{run.Layout.Sample(q.Unit, t.Problem, t.Sample), run.Layout.Partial(q.Unit, t.Problem, t.Sample)} {
			if err := r.Runs.Store.Remove(ctx, name); err != nil {
				return err
			}
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
func (r *Rollout) all(ctx context.Context, run *Run, q contract.GenerateRequest, b *Beat) ([]*trajectory.Trajectory, error) {
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
	lease, err := r.Policy.Acquire(ctx, policy.Want{Layout: run.Layout, Source: q.Source, MinVersion: q.MinVersion, Pin: q.Pin})
	if err != nil {
		return nil, err
	}
	defer lease.Release()
	u := &unit{r: r, run: run, q: q, tok: tok, sampler: lease.Sampler, beat: b}
	ts := make([]*trajectory.Trajectory, len(q.Problems)*q.Samples)
	g, ctx := errgroup.WithContext(ctx)
	for i, index := range q.Problems {
		p, err := set.Problem(dataset.Split(q.Split), index)
		if err != nil {
			return nil, err
		}
		for s := range q.Samples {
			g.Go(func() error {
				t, err := u.one(ctx, p, s)
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
}

// one generates one trajectory, or reads it if it is finished.
func (u *unit) one(ctx context.Context, p dataset.Problem, sample int) (*trajectory.Trajectory, error) {
	store, l := u.r.Runs.Store, u.run.Layout
	done, partial := l.Sample(u.q.Unit, p.Index, sample), l.Partial(u.q.Unit, p.Index, sample)
	t, err := u.begin(p, sample)
	if err != nil {
		return nil, err
	}
	if old, err := u.believed(ctx, done, t, true); err != nil || old != nil {
		return old, err
	}
	old, err := u.believed(ctx, partial, t, false)
	if err != nil {
		return nil, err
	}
	if old != nil {
		t = old
	}
	f := u.flusher(partial, t)
	if err := agent.Run(ctx, t, u.options(p, sample), func(t *trajectory.Trajectory) error { return f.progress(ctx, t) }); err != nil {
		f.last(ctx, t, err)
		return nil, err
	}
	if err := checkRecord(t, u.run.Vocab); err != nil {
		return nil, err
	}
	data, err := trajectory.Encode([]*trajectory.Trajectory{t})
	if err != nil {
		return nil, err
	}
	_, err = store.Put(ctx, done, data)
	if fault.Is(err, fault.Stale) { // another attempt was first; on an engine that is not reproducible its tokens may differ
		return readOne(ctx, store, done)
	}
	return t, err
}

// believed reads the file of a trajectory, finished or flushed, that an earlier attempt left. Nil: there is none, or it is
// damaged or not of this request; then it is removed. start is the trajectory that it must have begun as.
func (u *unit) believed(ctx context.Context, name string, start *trajectory.Trajectory, finished bool) (*trajectory.Trajectory, error) {
	t, err := readOne(ctx, u.r.Runs.Store, name)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, nil //nolint:nilnil // see above
	case fault.Is(err, fault.Corrupt):
		return nil, u.r.distrust(ctx, u.q, name, err.Error())
	case err != nil:
		return nil, err
	}
	if why := u.foreign(t, start); why != "" {
		return nil, u.r.distrust(ctx, u.q, name, why)
	}
	if finished && t.End == "" {
		return nil, u.r.distrust(ctx, u.q, name, "the trajectory has no end")
	}
	return t, nil
}

// foreign says why t cannot have grown from start under this request; empty if it can.
func (u *unit) foreign(t, start *trajectory.Trajectory) string {
	switch {
	case t.Key != start.Key:
		return fmt.Sprintf("it is of %+v, wanted is %+v", t.Key, start.Key)
	case t.TopK() != start.TopK():
		return fmt.Sprintf("its record has width %d, wanted is %d", t.TopK(), start.TopK())
	case t.Prompt() != start.Prompt() || !slices.Equal(t.IDs()[:t.Prompt()], start.IDs()):
		return "its prompt is another"
	}
	for i, id := range t.IDs() {
		if id < 0 || int(id) >= u.run.Vocab {
			return fmt.Sprintf("token %d has id %d, the vocabulary has %d", i, id, u.run.Vocab)
		}
		if v := int(t.Versions()[i]); t.Mask()[i] && (v < 0 || u.q.Pin != nil && v != *u.q.Pin) {
			return fmt.Sprintf("token %d is of version %d", i, v)
		}
	}
	if err := checkRecord(t, u.run.Vocab); err != nil {
		return err.Error()
	}
	return ""
}

// readOne reads a file of one trajectory. Errors: NotFound, Corrupt.
func readOne(ctx context.Context, s artifact.Store, name string) (*trajectory.Trajectory, error) {
	data, _, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	ts, err := trajectory.DecodeSealed(data)
	if err != nil {
		return nil, err
	}
	if len(ts) != 1 {
		return nil, fault.New(fault.Corrupt, "activities.readOne", "%s holds %d trajectories", name, len(ts))
	}
	return ts[0], nil
}

// begin returns a trajectory that holds the prompt of p.
func (u *unit) begin(p dataset.Problem, sample int) (*trajectory.Trajectory, error) {
	prompt, err := chat.Prompt(u.tok, p.Statement, !u.run.Config.Rollout.Thinking)
	if err != nil {
		return nil, err
	}
	if limit := u.run.Config.Rollout.MaxPrompt; len(prompt) > limit {
		return nil, fault.New(fault.Invalid, "GenerateRollouts", "the prompt of %s has %d tokens, rollout.max_prompt is %d", p.ID, len(prompt), limit)
	}
	topK := u.run.Config.Rollout.TopKRecord
	if u.q.Split == string(dataset.Dev) {
		topK = 0 // validation trains nothing
	}
	return trajectory.New(trajectory.Key{
		ProblemID: p.ID, Problem: p.Index, Split: u.q.Split, Group: u.q.Group, Sample: sample, Tag: u.q.Tag, Submission: u.q.Submission,
	}, prompt, topK), nil
}

func (u *unit) options(p dataset.Problem, sample int) agent.Options {
	c := u.run.Config
	o := agent.Options{
		Sampler: u.sampler, Tokenizer: u.tok, Tool: tool{u.r.Tool, Limits(c)}, MaxTurns: c.Rollout.MaxTurns,
		MaxTurn: c.Rollout.MaxTurnTokens, MaxResponse: c.Rollout.MaxResponse, MaxTotal: c.Rollout.MaxTotal, OutputLimit: c.Rollout.ToolOutputLimit,
		Sampling: engine.Sampling{Temperature: c.Rollout.Temperature, TopK: c.Rollout.TopKRecord},
		Random:   rng.New(c.Run.Seed, rng.Train, u.q.Tag, p.ID, sample, u.q.Submission),
		Pin:      u.q.Pin, NoThinking: !c.Rollout.Thinking,
	}
	if u.q.Split == string(dataset.Dev) {
		// The same draws serve every validation, so that versions are compared and not luck.
		o.Sampling = engine.Sampling{Temperature: c.Validation.Temperature}
		o.Random = rng.New(c.Run.Seed, rng.Validation, 0, p.ID, sample, 0)
	}
	return o
}

// flusher writes what there is of one trajectory: at most once in an interval, and as soon as a call has its answer.
//
// An attempt that is believed dead may still flush for a while. Every flush is whole and true by itself, so that an older one
// over a newer one costs tokens if the worker then dies, and nothing else.
type flusher struct {
	u        *unit
	name     string
	interval time.Duration
	at       time.Time // of the newest flush
	calls    int       // finished calls in it
	tokens   int       // tokens in it
}

// flusher returns the flusher of t, which is as it was begun or as it was flushed.
func (u *unit) flusher(name string, t *trajectory.Trajectory) *flusher {
	return &flusher{u: u, name: name, interval: u.run.Config.Rollout.FlushInterval.Std(), at: time.Now(), calls: calls(t), tokens: t.Len()}
}

func calls(t *trajectory.Trajectory) int {
	n := 0
	for _, u := range t.Turns {
		if u.Call != nil {
			n++
		}
	}
	return n
}

func (f *flusher) progress(ctx context.Context, t *trajectory.Trajectory) error {
	if time.Since(f.at) < f.interval && calls(t) == f.calls {
		return nil
	}
	if err := f.flush(ctx, t); err != nil {
		return err
	}
	f.u.beat.Say("%s: %d tokens of a trajectory flushed", f.u.q.Unit, t.Len())
	return nil
}

func (f *flusher) flush(ctx context.Context, t *trajectory.Trajectory) error {
	data, err := trajectory.Encode([]*trajectory.Trajectory{t})
	if err != nil {
		return err
	}
	if _, err := f.u.r.Runs.Store.Replace(ctx, f.name, data); err != nil {
		return err
	}
	f.at, f.calls, f.tokens = time.Now(), calls(t), t.Len()
	return nil
}

// last flushes what an attempt leaves that ends without being killed: its worker stops, its engine or the sandbox failed. It does
// its best; without it, what was sampled since the newest flush is sampled again. A closed run needs nothing, and what
// another attempt flushed meanwhile stays if it is longer.
func (f *flusher) last(ctx context.Context, t *trajectory.Trajectory, cause error) {
	if t.Len() == f.tokens || fault.Is(cause, fault.Stale) || fault.Is(context.Cause(ctx), fault.Stale) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if old, err := readOne(ctx, f.u.r.Runs.Store, f.name); err == nil && old.Len() >= t.Len() {
		return
	}
	_ = f.flush(ctx, t)
}

// checkRecord refuses what cannot come from a working sampler, so that it is dropped and never trained.
func checkRecord(t *trajectory.Trajectory, vocab int) error {
	for i, sampled := range t.Mask() {
		if !sampled {
			continue
		}
		err := rl.CheckLogProb(t.LogProbs()[i])
		if err == nil && t.TopK() > 0 {
			ids, lps := t.Head(i)
			err = rl.CheckRecord(ids, lps, vocab)
		}
		if err != nil {
			return fault.New(fault.Infrastructure, "GenerateRollouts", "token %d of %s: %w", i, t.ProblemID, err)
		}
	}
	return nil
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

// tool runs the model's programs in the sandbox.
type tool struct {
	s      Programs
	limits *sandbox.Limits
}

// RunPython implements agent.Tool.
func (t tool) RunPython(ctx context.Context, code, stdin string) (agent.ToolResult, error) {
	res, err := t.s.Run(ctx, sandbox.Program{Source: []byte(code), Stdin: []byte(stdin), Limits: t.limits})
	if err != nil {
		return agent.ToolResult{}, err
	}
	return agent.ToolResult{
		Stdout: string(res.Stdout), Stderr: string(res.Stderr), Outcome: string(res.Outcome), Started: true,
		Seconds: res.WallSeconds + res.StartupSeconds, QueueSeconds: res.QueueSeconds,
	}, nil
}

// Limits are the limits of one program that a configuration asks for.
func Limits(c *config.Config) *sandbox.Limits {
	s := c.Sandbox
	return &sandbox.Limits{Time: s.TimeLimit.Std(), Memory: int64(s.Memory), Output: int64(s.OutputLimit)}
}
