package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steadyrl/steady/internal/agent"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/trajectory"
)

// Job makes one trajectory and keeps it in two files of a store: Partial is the newest flush while it grows, Done is the finished one.
type Job struct {
	Store         artifact.Store
	Done, Partial string // names
	// Start is the trajectory as it begins, with nothing behind its prompt; it grows.
	Start   *trajectory.Trajectory
	Options agent.Options
	Vocab   int
	// FlushInterval is the shortest time between two flushes. The answer of a call is flushed at once.
	FlushInterval time.Duration
	// Grown, if set, hears of every progress: how many tokens came, observations included; 0 at the end of a call without any.
	Grown func(tokens int)
	// Flushed, if set, hears of every flush but the last.
	Flushed func(*trajectory.Trajectory)
	// Distrusted, if set, hears of a file that is damaged or of something else, before it is removed.
	Distrusted func(ctx context.Context, name, why string)
}

// Run returns the trajectory when it is finished and durable.
//
// Idempotence: a finished trajectory is read and never generated again; an unfinished one goes on from its newest flush. A file that is
// damaged, or that did not grow from Start, is removed and costs its tokens, no more. If another attempt finished first, its
// trajectory counts. Errors: those of agent.Run and of the store, Infrastructure (a record that no working sampler gives).
func (j Job) Run(ctx context.Context) (*trajectory.Trajectory, error) {
	t := j.Start
	if old, err := j.believed(ctx, j.Done, true); err != nil || old != nil {
		return old, err
	}
	old, err := j.believed(ctx, j.Partial, false)
	if err != nil {
		return nil, err
	}
	if old != nil {
		t = old
	}
	f := j.flusher(t)
	length := t.Len()
	progress := func(t *trajectory.Trajectory) error {
		if j.Grown != nil {
			j.Grown(t.Len() - length)
		}
		length = t.Len()
		return f.progress(ctx, t)
	}
	if err := agent.Run(ctx, t, j.Options, progress); err != nil {
		f.last(ctx, t, err)
		return nil, err
	}
	if err := CheckRecord(t, j.Vocab); err != nil {
		return nil, err
	}
	data, err := trajectory.Encode([]*trajectory.Trajectory{t})
	if err != nil {
		return nil, err
	}
	crashpoint.Here("rollout.sample.before")
	_, err = j.Store.Put(ctx, j.Done, data)
	if err == nil {
		crashpoint.Here("rollout.sample.after")
	}
	if fault.Is(err, fault.Stale) { // another attempt was first; on an engine that is not reproducible its tokens may differ
		return readOne(ctx, j.Store, j.Done)
	}
	return t, err
}

// believed reads the file of a trajectory, finished or flushed, that an earlier attempt left. Nil: there is none, or it is
// damaged or did not grow from Start; then it is removed.
func (j Job) believed(ctx context.Context, name string, finished bool) (*trajectory.Trajectory, error) {
	t, err := readOne(ctx, j.Store, name)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, nil //nolint:nilnil // see above
	case fault.Is(err, fault.Corrupt):
		return nil, j.distrust(ctx, name, err.Error())
	case err != nil:
		return nil, err
	}
	if why := j.foreign(t); why != "" {
		return nil, j.distrust(ctx, name, why)
	}
	if finished && t.End == "" {
		return nil, j.distrust(ctx, name, "the trajectory has no end")
	}
	return t, nil
}

func (j Job) distrust(ctx context.Context, name, why string) error {
	if j.Distrusted != nil {
		j.Distrusted(ctx, name, why)
	}
	return j.Store.Remove(ctx, name)
}

// foreign says why t cannot have grown from Start under the options; empty if it can.
func (j Job) foreign(t *trajectory.Trajectory) string {
	switch start := j.Start; {
	case t.Key != start.Key:
		return fmt.Sprintf("it is of %+v, wanted is %+v", t.Key, start.Key)
	case t.TopK() != start.TopK():
		return fmt.Sprintf("its record has width %d, wanted is %d", t.TopK(), start.TopK())
	case t.Prompt() != start.Prompt() || !slices.Equal(t.IDs()[:t.Prompt()], start.IDs()):
		return "its prompt is another"
	}
	for i, id := range t.IDs() {
		if id < 0 || int(id) >= j.Vocab {
			return fmt.Sprintf("token %d has id %d, the vocabulary has %d", i, id, j.Vocab)
		}
		if v := int(t.Versions()[i]); t.Mask()[i] && (v < 0 || j.Options.Pin != nil && v != *j.Options.Pin) {
			return fmt.Sprintf("token %d is of version %d", i, v)
		}
	}
	if err := CheckRecord(t, j.Vocab); err != nil {
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
		return nil, fault.New(fault.Corrupt, "rollout.readOne", "%s holds %d trajectories", name, len(ts))
	}
	return ts[0], nil
}

// flusher writes what there is of one trajectory: at most once in an interval, and as soon as a call has its answer.
//
// An attempt that is believed dead may still flush for a while. Every flush is whole and true by itself, so that an older one
// over a newer one costs tokens if the worker then dies, and nothing else.
type flusher struct {
	j      Job
	at     time.Time // of the newest flush
	calls  int       // finished calls in it
	tokens int       // tokens in it
}

// flusher returns the flusher of t, which is as it was begun or as it was flushed.
func (j Job) flusher(t *trajectory.Trajectory) *flusher {
	return &flusher{j: j, at: time.Now(), calls: calls(t), tokens: t.Len()}
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
	if n := t.Len(); n > 0 && t.Mask()[n-1] { // sampled, not the answer of a tool
		crashpoint.Here("rollout.token")
	}
	if time.Since(f.at) < f.j.FlushInterval && calls(t) == f.calls {
		return nil
	}
	if err := f.flush(ctx, t); err != nil {
		return err
	}
	if f.j.Flushed != nil {
		f.j.Flushed(t)
	}
	return nil
}

func (f *flusher) flush(ctx context.Context, t *trajectory.Trajectory) error {
	data, err := trajectory.Encode([]*trajectory.Trajectory{t})
	if err != nil {
		return err
	}
	crashpoint.Here("rollout.flush.before")
	if _, err := f.j.Store.Replace(ctx, f.j.Partial, data); err != nil {
		return err
	}
	crashpoint.Here("rollout.flush.after")
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
	if old, err := readOne(ctx, f.j.Store, f.j.Partial); err == nil && old.Len() >= t.Len() {
		return
	}
	_ = f.flush(ctx, t)
}
