package eval

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/internal/agent"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rollout"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// Options of an evaluation.
type Options struct {
	// Store is the directory of this evaluation alone.
	Store artifact.Store
	// Settings, of which Format and the number and digest of the problems are filled in here.
	Settings Settings
	K        []int // each from 1 to Settings.Samples
	// Sampler has the model's weights; Vocab is their number of ids.
	Sampler   engine.Sampler
	Vocab     int
	Tokenizer *tokenizer.Tokenizer
	Tool      agent.Tool
	Judge     batch.Judger
	// Slots is the number of submissions judged at once, AtOnce the number of responses sampled at once.
	Slots, AtOnce int
	FlushInterval time.Duration // 0 means 2 s
	// Attempts is how often work is tried that meets a fault which may pass, 0 means 5; Wait is called between attempts, nil means
	// 1 s, 2 s, 4 s and so on, at most 30 s.
	Attempts int
	Wait     func(ctx context.Context, attempt int) error
	// Progress, if set, hears of the start and of every finished problem, one call at a time; Note of files that are made again and of
	// faults that are tried again.
	Progress func(Progress)
	Note     func(text string)
	Version  string // of the program
}

// Progress says how far an evaluation is.
type Progress struct {
	Done, Problems  int // problems
	Right, Finished int // responses
	Found           int // problems that an earlier start had finished
}

// Run evaluates, or goes on with the evaluation that lies in the store, and returns the result, which then lies there
// too. What is finished is kept whatever happens.
//
// Errors: Invalid (settings, problems, another evaluation lies there), Corrupt (the problems changed while they were read), the context's, and the
// last of a fault that did not pass; such a one never becomes a verdict.
func Run(ctx context.Context, set dataset.EvalSet, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s, err := look(ctx, set, o.Settings.Data.Limit, func(p dataset.Problem) (int, error) {
		ids, err := chat.Prompt(o.Tokenizer, p.Statement, !o.Settings.Sampling.Thinking)
		return len(ids), err
	}, o.Settings.Sampling.MaxPrompt)
	if err != nil {
		return nil, err
	}
	o.Settings.Format, o.Settings.Data.Problems, o.Settings.Data.Digest = 1, len(s.problems), s.digest
	if err := claim(ctx, o.Store, o.Settings); err != nil {
		return nil, err
	}
	r := &run{Options: o, survey: s}
	if err := r.all(ctx, set); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	res := &Result{Settings: o.Settings, Steady: o.Version, Totals: totals(s.problems, o.K), Problems: s.problems}
	_, err = artifact.ReplaceJSON(ctx, o.Store, ResultFile, res)
	return res, err
}

func (o *Options) check() error {
	const op = "eval.Run"
	if o.Settings.Samples < 1 || o.AtOnce < 1 || o.Slots < 1 || len(o.K) == 0 {
		return fault.New(fault.Invalid, op, "%d samples, %d at once, %d judged at once, %d values of k", o.Settings.Samples, o.AtOnce, o.Slots, len(o.K))
	}
	for _, k := range o.K {
		if k < 1 || k > o.Settings.Samples {
			return fault.New(fault.Invalid, op, "pass@%d cannot be estimated from %d samples to a problem", k, o.Settings.Samples).
				WithHint("raise --samples, or give --k of 1 to %d", o.Settings.Samples)
		}
	}
	if o.FlushInterval == 0 {
		o.FlushInterval = 2 * time.Second
	}
	if o.Attempts == 0 {
		o.Attempts = 5
	}
	if o.Wait == nil {
		o.Wait = wait
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	return nil
}

func wait(ctx context.Context, attempt int) error {
	t := time.NewTimer(min(30*time.Second, time.Second<<min(attempt-1, 6)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// run is an evaluation in progress.
type run struct {
	Options
	*survey
	responses chan struct{} // one for each response that is sampled
	finished  chan int      // positions of finished problems; negative for those that were found, as -1-position
}

// all evaluates every problem, so many at once that the sampler is full while others are judged.
func (r *run) all(ctx context.Context, set dataset.EvalSet) error {
	r.responses = make(chan struct{}, r.AtOnce)
	r.finished = make(chan int)
	told := make(chan struct{})
	go r.tell(told)
	defer func() { close(r.finished); <-told }()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.AtOnce/r.Settings.Samples + 2*r.Slots + 1)
	err := r.each(ctx, set, func(i int, p dataset.EvalProblem) {
		g.Go(func() error { return r.problem(ctx, i, p) })
	})
	if werr := g.Wait(); werr != nil { // the cause, if err is that ctx was cancelled
		return werr
	}
	return err
}

// each calls do for every problem that is evaluated, which must be as it was surveyed.
func (r *run) each(ctx context.Context, set dataset.EvalSet, do func(int, dataset.EvalProblem)) error {
	changed := fault.New(fault.Corrupt, "eval.Run", "the problems changed while they were read").
		WithHint("leave the files alone while they are evaluated, and start again with another --out")
	i := 0
	for p, err := range set {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_, d, err := entry(p, err)
		if err != nil {
			return err
		}
		if i == len(r.problems) || d != r.digests[i] {
			return changed
		}
		if r.problems[i].LeftOut == "" {
			do(i, p)
		}
		if i++; i == r.Settings.Data.Limit {
			return nil
		}
	}
	if i < len(r.problems) {
		return changed
	}
	return nil
}

// tell reports progress until finished is closed.
func (r *run) tell(done chan<- struct{}) {
	defer close(done)
	var p Progress
	for i := range r.problems {
		if r.problems[i].LeftOut == "" {
			p.Problems++
		}
	}
	r.Progress(p)
	for i := range r.finished {
		if i < 0 {
			i = -1 - i
			p.Found++
		}
		p.Done++
		p.Finished += len(r.problems[i].Samples)
		p.Right += r.problems[i].Right()
		r.Progress(p)
	}
}

// at is the name of a file of the problem at position i.
func at(i int, format string, args ...any) string {
	return fmt.Sprintf("problems/%06d/", i) + fmt.Sprintf(format, args...)
}

// problem evaluates one problem, unless that is done.
func (r *run) problem(ctx context.Context, i int, p dataset.EvalProblem) error {
	u, err := r.believed(ctx, i, p)
	if err != nil {
		return err
	}
	found := u != nil
	if !found {
		if err := r.evaluate(ctx, i, p); err != nil {
			return err
		}
		// Read back: what counts is what lies there, also if another process was quicker.
		got, err := r.unit(ctx, i)
		if err != nil {
			return err
		}
		u = &got
	}
	r.problems[i].fill(*u)
	if found {
		i = -1 - i
	}
	r.finished <- i
	return nil
}

// believed reads what an earlier start left of a finished problem; nil if there is nothing that can be used.
func (r *run) believed(ctx context.Context, i int, p dataset.EvalProblem) (*batch.Unit, error) {
	u, err := r.unit(ctx, i)
	if err == nil {
		why := r.foreign(u, p)
		if why == "" {
			return &u, r.sweep(ctx, i)
		}
		err = fault.New(fault.Corrupt, "eval.believed", "%s", why)
	}
	switch {
	case fault.Is(err, fault.Corrupt):
		r.Note(fmt.Sprintf("%s is judged again: %v", p.ID, err))
	case !fault.Is(err, fault.NotFound):
		return nil, err
	}
	for _, name := range []string{at(i, doneFile), at(i, verdictsFile)} {
		if err := r.Store.Remove(ctx, name); err != nil {
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // see above
}

// Names of a problem's files. The verdicts count only if the last file names them with their digest.
const (
	trajectoriesFile = "trajectories.parquet"
	verdictsFile     = "verdicts.json"
	doneFile         = "done.json"
)

// unit reads a finished problem. Errors: NotFound (it is not finished), Corrupt.
func (r *run) unit(ctx context.Context, i int) (batch.Unit, error) {
	var ref artifact.Ref
	if _, err := artifact.GetJSON(ctx, r.Store, at(i, doneFile), &ref); err != nil {
		return batch.Unit{}, err
	}
	u, err := batch.ReadUnit(ctx, r.Store, at(i, verdictsFile))
	if fault.Is(err, fault.NotFound) {
		err = fault.New(fault.Corrupt, "eval.unit", "a file of a finished problem is gone: %w", err)
	}
	if err == nil && u.Ref != ref {
		err = fault.New(fault.Corrupt, "eval.unit", "%s is not as it was written", at(i, verdictsFile))
	}
	return u, err
}

// foreign says why verdicts are not those of a problem; empty if they are.
func (r *run) foreign(u batch.Unit, p dataset.EvalProblem) string {
	if len(u.Verdicts.Items) != r.Settings.Samples {
		return fmt.Sprintf("%d verdicts", len(u.Verdicts.Items))
	}
	for s, v := range u.Verdicts.Items {
		if v.ProblemID != p.ID || v.Sample != s || v.Total != len(p.Tests) || v.Passed < 0 || v.Passed > v.Total {
			return fmt.Sprintf("verdict %d is of %s sample %d with %d of %d tests passed", s, v.ProblemID, v.Sample, v.Passed, v.Total)
		}
	}
	return ""
}

// evaluate samples and judges.
func (r *run) evaluate(ctx context.Context, i int, p dataset.EvalProblem) error {
	ts, ref, err := r.trajectories(ctx, i, p)
	if err != nil {
		return err
	}
	var subs []batch.Submission
	for _, t := range ts {
		subs = append(subs, batch.Submission{ProblemID: t.ProblemID, Sample: t.Sample, Response: agent.LastTurn(t, r.Tokenizer), Tests: p.Tests})
	}
	err = r.patient(ctx, "judging "+p.ID, func() error {
		items, err := batch.JudgeAll(ctx, r.Judge, subs, r.Slots)
		if err != nil {
			return err
		}
		v := batch.Verdicts{Unit: fmt.Sprintf("problems/%06d", i), File: ref, Python: r.Settings.Programs.Python, Items: items}
		verdicts, err := artifact.PutJSON(ctx, r.Store, at(i, verdictsFile), v)
		if fault.Is(err, fault.Stale) { // another process was first; times differ
			verdicts, err = artifact.GetJSON(ctx, r.Store, at(i, verdictsFile), &v)
		}
		if err != nil {
			return err
		}
		_, err = artifact.PutJSON(ctx, r.Store, at(i, doneFile), verdicts)
		return err
	})
	if err != nil {
		return err
	}
	return r.sweep(ctx, i)
}

// trajectories returns the responses to a problem in one file, sampling those that are missing.
func (r *run) trajectories(ctx context.Context, i int, p dataset.EvalProblem) ([]*trajectory.Trajectory, artifact.Ref, error) {
	name := at(i, trajectoriesFile)
	if ts, ref, err := r.together(ctx, name, p); err == nil || !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Corrupt) {
		return ts, ref, err
	} else if fault.Is(err, fault.Corrupt) {
		r.Note(fmt.Sprintf("%s is sampled again: %v", p.ID, err))
		if err := r.Store.Remove(ctx, name); err != nil {
			return nil, artifact.Ref{}, err
		}
	}
	ts := make([]*trajectory.Trajectory, r.Settings.Samples)
	g, gctx := errgroup.WithContext(ctx)
	for s := range ts {
		g.Go(func() error {
			select {
			case r.responses <- struct{}{}:
			case <-gctx.Done():
				return gctx.Err()
			}
			defer func() { <-r.responses }()
			return r.patient(gctx, fmt.Sprintf("sampling %s", p.ID), func() (err error) {
				ts[s], err = r.sample(gctx, i, p, s)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return nil, artifact.Ref{}, err
	}
	var ref artifact.Ref
	err := r.patient(ctx, "writing the responses to "+p.ID, func() error {
		data, err := trajectory.Encode(ts)
		if err != nil {
			return err
		}
		if ref, err = r.Store.Put(ctx, name, data); fault.Is(err, fault.Stale) {
			ts, ref, err = r.together(ctx, name, p)
		}
		return err
	})
	return ts, ref, err
}

// together reads the responses to a problem. Errors: NotFound, Corrupt (also if they are not those).
func (r *run) together(ctx context.Context, name string, p dataset.EvalProblem) ([]*trajectory.Trajectory, artifact.Ref, error) {
	data, ref, err := r.Store.Get(ctx, name)
	if err != nil {
		return nil, ref, err
	}
	ts, err := trajectory.DecodeSealed(data)
	if err != nil {
		return nil, ref, err
	}
	if len(ts) != r.Settings.Samples {
		return nil, ref, fault.New(fault.Corrupt, "eval.together", "%s holds %d responses, wanted are %d", name, len(ts), r.Settings.Samples)
	}
	for s, t := range ts {
		if t.ProblemID != p.ID || t.Sample != s || t.End == "" {
			return nil, ref, fault.New(fault.Corrupt, "eval.together", "%s holds %s sample %d as response %d to %s", name, t.ProblemID, t.Sample, s, p.ID)
		}
	}
	return ts, ref, nil
}

// sample makes one response.
func (r *run) sample(ctx context.Context, i int, p dataset.EvalProblem, s int) (*trajectory.Trajectory, error) {
	set := r.Settings.Sampling
	start, err := set.Begin(r.Tokenizer, trajectory.Key{ProblemID: p.ID, Problem: p.Index, Split: r.Settings.Data.Split, Sample: s}, p.Statement)
	if err != nil {
		return nil, err
	}
	version := r.Sampler.Version()
	return rollout.Job{
		Store: r.Store, Done: at(i, "sample-%04d.parquet", s), Partial: at(i, "partial-%04d.parquet", s), Start: start,
		Options: set.Options(r.Sampler, r.Tokenizer, r.Tool, rollout.ValidationStream(r.Settings.Seed, p.ID, s), &version),
		Vocab:   r.Vocab, FlushInterval: r.FlushInterval,
		Distrusted: func(_ context.Context, name, why string) {
			r.Note(fmt.Sprintf("%s is not used and will be made again: %s", name, why))
		},
	}.Run(ctx)
}

// sweep removes the files of single responses, which lie in one file now.
func (r *run) sweep(ctx context.Context, i int) error {
	for s := range r.Settings.Samples {
		for _, name := range []string{at(i, "sample-%04d.parquet", s), at(i, "partial-%04d.parquet", s)} {
			if err := r.Store.Remove(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// patient does something again that meets a fault which may pass.
func (r *run) patient(ctx context.Context, what string, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !fault.KindOf(err).Retryable():
			return err
		case attempt == r.Attempts:
			e := fault.New(fault.KindOf(err), "eval.Run", "%s failed %d times: %w", what, attempt, err)
			if e.Hint = fault.HintOf(err); e.Hint == "" {
				e.Hint = "mend what the message names, then start the same command again; it goes on where it was"
			}
			return e
		}
		r.Note(fmt.Sprintf("%s, attempt %d of %d: %v", what, attempt, r.Attempts, err))
		if err := r.Wait(ctx, attempt); err != nil {
			return err
		}
	}
}
