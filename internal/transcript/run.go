package transcript

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// Run is a lineage of a run, opened to read its trajectories.
type Run struct {
	store  artifact.Store
	l      record.Layout
	tok    *tokenizer.Tokenizer
	ledger ledger.Ledger
}

// Open reads the tokenizer and the ledger of a lineage. Errors: those of the store, Invalid (no tokenizer was kept),
// Corrupt (a broken ledger record).
func Open(ctx context.Context, s artifact.Store, l record.Layout) (*Run, error) {
	dir, err := s.Pull(ctx, l.Base())
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	led, err := ledger.Load(ctx, s, l)
	if err != nil {
		return nil, err
	}
	return &Run{s, l, tok, led}, nil
}

// Groups lists the numbers of all submitted groups, in order.
func (r *Run) Groups() []int {
	var out []int
	for _, g := range r.ledger.Groups {
		out = append(out, g.N)
	}
	return out
}

// Step lists the groups that a step trained, in the order of its batch. Errors: NotFound (no such batch).
func (r *Run) Step(ctx context.Context, step int) ([]int, error) {
	b, err := r.sealed(ctx, step)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.NotFound, "transcript.Step", "run %s has no batch of step %d: %w", r.l.Run, step, err).
			WithHint("its newest step is %d", r.ledger.Last)
	}
	if err != nil {
		return nil, err
	}
	var out []int
	for _, g := range b.Groups {
		out = append(out, g.N)
	}
	return out, nil
}

func (r *Run) sealed(ctx context.Context, step int) (b record.Sealed, err error) {
	_, err = artifact.GetJSON(ctx, r.store, r.l.Batch(step), &b)
	return b, err
}

// Group yields the trajectories of a group in order: those of its file, or, while it is not complete, the finished and
// the unfinished ones that were flushed. After an error it ends.
//
// Errors: NotFound (no such group in the ledger, or nothing of it is kept), Corrupt, those of the store.
func (r *Run) Group(ctx context.Context, n int) iter.Seq2[*Transcript, error] {
	return func(yield func(*Transcript, error) bool) {
		ts, err := r.group(ctx, n)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, t := range ts {
			if !yield(t, nil) {
				return
			}
		}
	}
}

func (r *Run) group(ctx context.Context, n int) ([]*Transcript, error) {
	const op = "transcript.Group"
	i := slices.IndexFunc(r.ledger.Groups, func(g ledger.Group) bool { return g.N == n })
	if i < 0 {
		return nil, fault.New(fault.NotFound, op, "the ledger of run %s, lineage %s, has no group %d", r.l.Run, r.l.Lineage, n).
			WithHint("it has %d groups; steady ledger --json lists them", len(r.ledger.Groups))
	}
	g := r.ledger.Groups[i]
	unit := record.GroupUnit(g.N, g.Tag, g.Problem, g.Submission)
	u, err := r.unit(ctx, unit)
	if fault.Is(err, fault.NotFound) {
		if u.Trajectories, err = r.flushed(ctx, unit); err == nil && len(u.Trajectories) == 0 {
			err = fault.New(fault.NotFound, op, "nothing is kept of the trajectories of group %d", n).
				WithHint("it is not begun, or its files were removed")
		}
	}
	if err != nil {
		return nil, err
	}
	samples := map[int]record.Sample{}
	if g.Fate == ledger.Trained {
		b, err := r.sealed(ctx, g.Step)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		for _, s := range b.Samples {
			if s.Group == n {
				samples[s.Index] = s
			}
		}
	}
	var out []*Transcript
	for i, t := range u.Trajectories {
		one := r.transcript(t, verdictOf(u, i))
		one.Group, one.Fate = &g.N, fate(g)
		if s, ok := samples[i]; ok {
			one.Advantage = record.Num(s.Advantage)
		}
		out = append(out, one)
	}
	return out, nil
}

// fate is what became of a group, in words.
func fate(g ledger.Group) string {
	switch g.Fate {
	case ledger.Trained:
		return fmt.Sprintf("trained in step %d", g.Step)
	case ledger.Dropped:
		return "dropped: " + g.Reason
	case ledger.Open:
	}
	return "open"
}

// unit reads the trajectories of a unit, with verdicts if it has been judged.
func (r *Run) unit(ctx context.Context, name string) (batch.Unit, error) {
	u, err := batch.LoadUnit(ctx, r.store, r.l, name)
	if !fault.Is(err, fault.NotFound) {
		return u, err
	}
	data, _, err := r.store.Get(ctx, r.l.Trajectories(name))
	if err != nil {
		return batch.Unit{}, err
	}
	ts, err := trajectory.Decode(data)
	return batch.Unit{Trajectories: ts}, err
}

func verdictOf(u batch.Unit, i int) *batch.Verdict {
	if i >= len(u.Verdicts.Items) {
		return nil
	}
	return &u.Verdicts.Items[i]
}

// flushed reads the files of single samples of a unit: of each the finished one, else the newest flush.
func (r *Run) flushed(ctx context.Context, unit string) ([]*trajectory.Trajectory, error) {
	names, err := r.store.List(ctx, r.l.Root()+unit+"/")
	if err != nil {
		return nil, err
	}
	return Newest(ctx, r.store, names)
}

// Newest reads files of single samples of a unit, finished ones and flushes: of each sample the finished one, else the newest flush, by
// sample. Names must be sorted; a file that is gone has been finished meanwhile. Errors: Corrupt, and the store's.
func Newest(ctx context.Context, s artifact.Store, names []string) ([]*trajectory.Trajectory, error) {
	bySample := map[int]*trajectory.Trajectory{}
	for _, name := range names {
		data, _, err := s.Get(ctx, name)
		if fault.Is(err, fault.NotFound) {
			continue // finished meanwhile
		}
		if err != nil {
			return nil, err
		}
		ts, err := trajectory.Decode(data)
		if err != nil {
			return nil, err
		}
		for _, t := range ts {
			if old := bySample[t.Sample]; old == nil || old.End == "" {
				bySample[t.Sample] = t
			}
		}
	}
	var out []*trajectory.Trajectory
	for _, t := range bySample {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *trajectory.Trajectory) int { return a.Sample - b.Sample })
	return out, nil
}

// Validation yields the trajectories of the validation of a step ("000025"), or of the "export", in order. Errors as
// Group.
func (r *Run) Validation(ctx context.Context, name string) iter.Seq2[*Transcript, error] {
	return func(yield func(*Transcript, error) bool) {
		var v record.Validation
		if _, err := artifact.GetJSON(ctx, r.store, r.l.Validation(name), &v); err != nil {
			if fault.Is(err, fault.NotFound) {
				err = fault.New(fault.NotFound, "transcript.Validation", "run %s has no validation %q: %w", r.l.Run, name, err).
					WithHint("name it by its step in six digits, as 000025, or export")
			}
			yield(nil, err)
			return
		}
		for _, unit := range v.Units {
			u, err := r.unit(ctx, unit)
			if err != nil {
				yield(nil, err)
				return
			}
			for i, t := range u.Trajectories {
				one := r.transcript(t, verdictOf(u, i))
				one.Validation = v.Name
				if !yield(one, nil) {
					return
				}
			}
		}
	}
}
