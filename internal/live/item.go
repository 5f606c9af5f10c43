package live

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/trajectory"
	"github.com/steadyrl/steady/internal/transcript"
)

// item is one trajectory with everything that is known of it.
type item struct {
	t          *trajectory.Trajectory
	verdict    *batch.Verdict // nil before it was judged
	sealed     *record.Sealed // of the step that trained it, else nil
	sample     *record.Sample // its entry there
	group      *ledger.Group  // of a training trajectory, as the ledger has it
	validation string         // the name of its validation
	all        []place        // of its group, or of its unit, in order
	at         int            // which of them it is
}

// place is where a trajectory stands.
type place struct{ number, sample int }

// groupItem reads sample n of a training group. Errors: NotFound, Corrupt, Busy.
func groupItem(ctx context.Context, c *Cache, l record.Layout, n, sample int) (*item, error) {
	const op = "live.group"
	led, err := ledger.Load(ctx, c, l)
	if err != nil {
		return nil, err
	}
	g, ok := led.Group(n)
	if !ok {
		return nil, fault.New(fault.NotFound, op, "the ledger of run %s, lineage %s, has no group %d", l.Run, l.Lineage, n).
			WithHint("it has %d groups; those in flight appear with the next sealed batch", len(led.Groups))
	}
	it := &item{group: &g}
	name := record.GroupUnit(g.N, g.Tag, g.Problem, g.Submission)
	ts, verdicts, err := readUnit(ctx, c, l, name)
	if err != nil {
		return nil, err
	}
	if g.Fate == ledger.Trained {
		b, err := read[record.Sealed](ctx, c, l.Batch(g.Step))
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		if err == nil {
			it.sealed = b
			for i := range b.Samples {
				if s := &b.Samples[i]; s.Group == n && s.Index == sample {
					it.sample = s
				}
			}
		}
	}
	return it.choose(ts, verdicts, place{n, sample}, func(t *trajectory.Trajectory) place { return place{n, t.Sample} })
}

// validationItem reads the response of a validation to a problem, by its number in the split. Errors: NotFound, Corrupt, Busy.
func validationItem(ctx context.Context, c *Cache, l record.Layout, name string, problem, sample int) (*item, error) {
	const op = "live.validation"
	if !validName.MatchString(name) {
		return nil, fault.New(fault.Invalid, op, "%q is no name of a validation", name).WithHint("name it by its step in six digits, as 000025, or export")
	}
	v, err := read[record.Validation](ctx, c, l.Validation(name))
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.NotFound, op, "run %s has no validation %q", l.Run, name).WithHint("name it by its step in six digits, as 000025, or export")
	}
	if err != nil {
		return nil, err
	}
	x := &index{c: c, l: l}
	for _, u := range v.Units {
		heads, err := x.heads(ctx, l.Trajectories(u))
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(heads, func(h trajectory.Head) bool { return h.Problem == problem && h.Sample == sample }) {
			continue
		}
		ts, verdicts, err := readUnit(ctx, c, l, u)
		if err != nil {
			return nil, err
		}
		it := &item{validation: name}
		return it.choose(ts, verdicts, place{problem, sample}, func(t *trajectory.Trajectory) place { return place{t.Problem, t.Sample} })
	}
	return nil, fault.New(fault.NotFound, op, "validation %s has no sample %d of problem %d", name, sample, problem).
		WithHint("the list of trajectories names what there is")
}

func (it *item) choose(ts []*trajectory.Trajectory, verdicts []batch.Verdict, want place, of func(*trajectory.Trajectory) place) (*item, error) {
	for i, t := range ts {
		p := of(t)
		it.all = append(it.all, p)
		if p != want {
			continue
		}
		it.t, it.at = t, i
		if i < len(verdicts) {
			it.verdict = &verdicts[i]
		}
	}
	if it.t == nil {
		return nil, fault.New(fault.NotFound, "live", "sample %d is not among the %d trajectories there", want.sample, len(ts)).
			WithHint("samples are counted from 0")
	}
	return it, nil
}

// readUnit reads a unit: with verdicts if it was judged, else its trajectories, else what was flushed of them.
func readUnit(ctx context.Context, c *Cache, l record.Layout, name string) ([]*trajectory.Trajectory, []batch.Verdict, error) {
	u, err := batch.LoadUnit(ctx, c, l, name)
	if err == nil {
		return u.Trajectories, u.Verdicts.Items, nil
	}
	if !fault.Is(err, fault.NotFound) {
		return nil, nil, err
	}
	data, _, err := c.Get(ctx, l.Trajectories(name))
	if err == nil {
		ts, err := trajectory.Decode(data)
		return ts, nil, err
	}
	if !fault.Is(err, fault.NotFound) {
		return nil, nil, err
	}
	ts, err := flushed(ctx, c, l, name)
	if err == nil && len(ts) == 0 {
		err = fault.New(fault.NotFound, "live.unit", "nothing is kept of the trajectories in %s", path.Base(name)).
			WithHint("they are not begun, or their files were removed")
	}
	return ts, nil, err
}

// flushed reads the files of single samples of a unit: of each the finished one, else the newest flush.
func flushed(ctx context.Context, c *Cache, l record.Layout, unit string) ([]*trajectory.Trajectory, error) {
	dir := strings.TrimSuffix(l.Root(), "/") + "/" + unit
	entries, err := c.Entries(ctx, dir)
	if err != nil {
		return nil, err
	}
	var names []string // sorted as the entries are
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".parquet") {
			names = append(names, dir+"/"+e.Name())
		}
	}
	return transcript.Newest(ctx, c, names)
}
