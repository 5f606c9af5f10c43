package live

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/trajectory"
)

// Row is a trajectory in the list.
type Row struct {
	Step    int // that trained it; of a validation: the version
	Group   int // of a validation: the number of the problem in its split
	Sample  int
	Problem string // id in the data set

	Reward, Advantage      *float64
	Tokens, Sampled        int
	MinVersion, MaxVersion int

	// Read says that the rest was read from the verdicts and the trajectory file of the group; Gone why it could not be.
	Read          bool
	Gone          string
	Outcome       string
	Passed, Total int
	End           string
	Turns         int
	Seconds       float64
}

// unit is a file of trajectories with its verdicts, and the rows that it fills.
type unit struct {
	file, verdicts string // names in the store
	rows           []*Row // by sample, or in the order of the file for a validation
	read           bool
}

// index is the list of all trajectories of a lineage: those of sealed batches as soon as the batch is there, and of each validation.
// What the verdicts and the files of trajectories say is read once for each unit, when somebody asks.
type index struct {
	c *Cache
	l record.Layout

	mu      sync.Mutex
	steps   map[int]bool
	sets    map[string][]*unit // by set: train, or a validation
	filling map[string]*filling
}

// filling is the work to read all units of a set.
type filling struct {
	done chan struct{}
	err  error
}

// trainSet is the set of the training trajectories.
const trainSet = "train"

func newIndex(c *Cache, l record.Layout) *index {
	return &index{c: c, l: l, steps: map[int]bool{}, sets: map[string][]*unit{}, filling: map[string]*filling{}}
}

// update adds the batches and validations that are new.
func (x *index) update(ctx context.Context, v *view) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range v.numbers["batches"] {
		if x.steps[n] {
			continue
		}
		b, err := read[record.Sealed](ctx, x.c, x.l.Batch(n))
		if err != nil {
			return err
		}
		x.addBatch(b)
		x.steps[n] = true
	}
	for _, name := range v.named {
		if _, ok := x.sets[name]; ok {
			continue
		}
		r, err := read[record.Validation](ctx, x.c, x.l.Validation(name))
		if err != nil {
			return err
		}
		x.sets[name] = x.validation(r)
	}
	return nil
}

func (x *index) addBatch(b *record.Sealed) {
	for _, g := range b.Groups {
		u := &unit{file: g.File.Name, verdicts: g.Verdicts.Name}
		for _, s := range b.Samples {
			if s.Group != g.N {
				continue
			}
			u.rows = append(u.rows, &Row{
				Step: b.Step, Group: g.N, Sample: s.Index, Problem: g.ProblemID, Reward: record.Num(s.Reward), Advantage: record.Num(s.Advantage),
				Tokens: s.Tokens, Sampled: s.Sampled, MinVersion: s.MinVersion, MaxVersion: s.MaxVersion,
			})
		}
		x.sets[trainSet] = append(x.sets[trainSet], u)
	}
}

// validation makes the units of a validation. Its items are in the order of the units' rows, one each, if there is one sample a problem;
// the files say which row is which.
func (x *index) validation(r *record.Validation) []*unit {
	out := []*unit{} // not nil: it is known
	for _, name := range r.Units {
		out = append(out, &unit{file: x.l.Trajectories(name), verdicts: x.l.Verdicts(name), rows: []*Row{{Step: r.Version, Group: -1}}})
	}
	return out
}

// verdictFile is what the list needs of the judge's record of a unit.
type verdictFile struct {
	Items []struct {
		Reward float64    `json:"reward"`
		Kind   judge.Kind `json:"kind"`
		Passed int        `json:"passed"`
		Total  int        `json:"total"`
	} `json:"items"`
}

// fill reads what is known of the trajectories of u beyond the batch. What is gone is noted in the rows. Errors: Busy, and that of ctx.
func (x *index) fill(ctx context.Context, u *unit) error {
	x.mu.Lock()
	done := u.read
	x.mu.Unlock()
	if done {
		return nil
	}
	var v verdictFile
	_, verr := artifact.GetJSON(ctx, x.c, u.verdicts, &v)
	heads, herr := x.heads(ctx, u.file)
	for _, err := range []error{verr, herr} {
		if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Corrupt) {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if u.read {
		return nil
	}
	u.read = true
	if len(u.rows) == 1 && u.rows[0].Group < 0 { // a validation: the file says what is there
		step := u.rows[0].Step
		u.rows = nil
		for i, h := range heads {
			u.rows = append(u.rows, &Row{Step: step, Group: h.Problem, Sample: h.Sample, Problem: h.ProblemID, Sampled: h.Sampled, MinVersion: step, MaxVersion: step})
			if i < len(v.Items) {
				u.rows[i].Reward = record.Num(v.Items[i].Reward)
			}
		}
	}
	for i, r := range u.rows {
		at := r.Sample
		if r.Advantage == nil {
			at = i
		}
		r.Read, r.Gone = true, reason(verr, herr)
		if at < len(v.Items) {
			it := v.Items[at]
			r.Outcome, r.Passed, r.Total = string(it.Kind), it.Passed, it.Total
		}
		if at < len(heads) {
			h := heads[at]
			r.End, r.Turns, r.Seconds = string(h.End), len(h.Turns), h.Seconds
		}
	}
	return nil
}

func reason(errs ...error) string {
	for _, err := range errs {
		switch {
		case fault.Is(err, fault.NotFound):
			return "its files are not kept"
		case err != nil:
			return "a file is damaged"
		}
	}
	return ""
}

func (x *index) heads(ctx context.Context, name string) ([]trajectory.Head, error) {
	f, err := x.c.OpenAt(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return trajectory.ReadHeads(f, f.Size())
}

// complete begins to read all units of a set, unless that is under way; run starts the work. Its channel is closed at the end.
func (x *index) complete(ctx context.Context, set string, run func(func())) *filling {
	x.mu.Lock()
	defer x.mu.Unlock()
	var todo []*unit
	for _, u := range x.sets[set] {
		if !u.read {
			todo = append(todo, u)
		}
	}
	if f := x.filling[set]; f != nil {
		select {
		case <-f.done:
		default:
			return f
		}
	}
	f := &filling{done: make(chan struct{})}
	x.filling[set] = f
	if len(todo) == 0 {
		close(f.done)
		return f
	}
	run(func() {
		defer close(f.done)
		for _, u := range todo {
			if f.err = x.fill(ctx, u); f.err != nil {
				return
			}
		}
	})
	return f
}

// Filter chooses trajectories.
type Filter struct {
	Set     string // train, or the name of a validation
	Step    int    // -1 for all
	Problem string // part of the id
	Outcome string // of the judge, or "solved" and "unsolved"
	End     string
	Sort    string // newest, oldest, reward, advantage, tokens, lag
}

// deep reports whether the filter looks at what is in the files of the groups.
func (f Filter) deep() bool { return f.Outcome != "" || f.End != "" || f.Set != trainSet }

// Sorts lists the orders of the list: the first is the default.
func Sorts() []string { return []string{"newest", "oldest", "reward", "advantage", "tokens", "lag"} }

func (f Filter) keeps(r *Row) bool {
	switch {
	case f.Step >= 0 && r.Step != f.Step:
	case f.Problem != "" && !strings.Contains(r.Problem, f.Problem):
	case f.End != "" && r.End != f.End:
	case f.Outcome == "solved":
		return r.Total > 0 && r.Passed == r.Total
	case f.Outcome == "unsolved":
		return r.Read && (r.Total == 0 || r.Passed < r.Total)
	case f.Outcome != "" && r.Outcome != f.Outcome:
	default:
		return true
	}
	return false
}

// found is a row with its unit.
type found struct {
	row *Row
	u   *unit
}

// list returns copies of the rows that f keeps, in its order, and how many units of the set have been read.
func (x *index) list(f Filter) (rows []found, read, units int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, u := range x.sets[f.Set] {
		units++
		if u.read {
			read++
		}
		for _, r := range u.rows {
			if r.Group >= 0 && f.keeps(r) {
				rows = append(rows, found{r, u})
			}
		}
	}
	num := func(p *float64) float64 {
		if p == nil {
			return 0
		}
		return *p
	}
	place := func(a, b *Row) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Sample, b.Sample))
	}
	slices.SortStableFunc(rows, func(p, q found) int {
		a, b := p.row, q.row
		by := 0
		switch f.Sort {
		case "oldest":
			return place(a, b)
		case "reward":
			by = cmp.Compare(num(b.Reward), num(a.Reward))
		case "advantage":
			by = cmp.Compare(num(b.Advantage), num(a.Advantage))
		case "tokens":
			by = cmp.Compare(b.Tokens, a.Tokens)
		case "lag":
			by = cmp.Compare(b.Step-b.MinVersion, a.Step-a.MinVersion)
		}
		return cmp.Or(by, cmp.Compare(b.Step, a.Step), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Sample, b.Sample))
	})
	return rows, read, units
}

// copied returns the rows as they are now.
func (x *index) copied(rows []found) []Row {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]Row, len(rows))
	for i, f := range rows {
		out[i] = *f.row
	}
	return out
}

// names lists the sets, train first.
func (x *index) names() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := []string{trainSet}
	for _, n := range slices.Sorted(maps.Keys(x.sets)) {
		if n != trainSet {
			out = append(out, n)
		}
	}
	return out
}
