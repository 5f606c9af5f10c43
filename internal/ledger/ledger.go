package ledger

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// Reasons of a drop, as the records spell them.
const (
	Stale          = "stale"          // too old for the step that would have trained it
	Infrastructure = "infrastructure" // a service around the rollout or the judge failed for good
	RunEnded       = "run_ended"      // left over when the loop ended
)

// Fate is what became of a group.
type Fate string

// The fates.
const (
	Open    Fate = "open" // submitted, neither trained nor dropped so far
	Trained Fate = "trained"
	Dropped Fate = "dropped"
)

// Group is one submitted group and its fate.
type Group struct {
	N          int
	Problem    int
	Tag        int // step in progress at submission
	Submission int // 0 for the first time that the problem was sent out in its epoch
	// Submitted is the step in whose record the submission stands, 0 for the record of the end.
	Submitted int
	Fate      Fate
	// Step trained the group, or is that of the record with the drop; 0 for the end and for open groups.
	Step int
	// Tokens is what the model sampled for it, 0 if unknown.
	Tokens int
	// Reason and Finished describe a drop, and whether the group was complete.
	Reason   string
	Finished bool
}

// Start is where the lineage began: the zero value for a run of its own, else the position of its parent.
type Start struct {
	Step      int
	Cursor    record.Cursor
	NextGroup int
}

// Ledger is the folded history of all groups of a lineage.
type Ledger struct {
	Start   Start
	Groups  []Group       // ordered by N
	Records int           // step records that were read
	Last    int           // step of the newest one, 0 if there is none
	Ended   bool          // the record of the end is there
	Cursor  record.Cursor // after the newest record

	violations []string
	next       int // number of the next group
}

// Load reads all ledger records of a lineage and folds them. A lineage without records gives an empty ledger.
//
// Errors: those of the store, Corrupt for a record under the wrong name, NotFound if the lineage has a parent
// whose record is gone.
func Load(ctx context.Context, s artifact.Store, l record.Layout) (Ledger, error) {
	return load(ctx, s, l, math.MaxInt)
}

// At is Load as it was when step was sealed: later records and that of the end are not read. The first step of a
// lineage has no record of its own; it gives the ledger that the lineage began with. Errors: as Load, and NotFound if there is no record
// of the step.
func At(ctx context.Context, s artifact.Store, l record.Layout, step int) (Ledger, error) {
	led, err := load(ctx, s, l, step)
	if err == nil && led.Last != step {
		err = fault.New(fault.NotFound, "ledger.At", "%s has no ledger record of step %d; the newest before is of step %d", l.Root(), step, led.Last)
	}
	return led, err
}

// Resume returns where a lineage begins that goes on from this ledger: after the cursor's own, the problems of groups that are still
// open come back, as those of dropped groups do.
func (l Ledger) Resume() record.Start {
	s := record.Start{Cursor: l.Cursor, NextGroup: l.next}
	s.Cursor.Returned = slices.Clone(l.Cursor.Returned)
	for _, g := range l.Groups {
		if g.Fate == Open {
			s.Cursor.Returned = append(s.Cursor.Returned, record.Returned{Problem: g.Problem, Submission: g.Submission + 1})
		}
	}
	return s
}

func load(ctx context.Context, s artifact.Store, l record.Layout, last int) (Ledger, error) {
	start, err := loadStart(ctx, s, l)
	if err != nil {
		return Ledger{}, err
	}
	prefix := strings.TrimSuffix(l.LedgerEnd(), "end.json")
	names, err := s.List(ctx, prefix)
	if err != nil {
		return Ledger{}, err
	}
	var records []record.Ledger
	var end *record.Ledger
	for _, name := range names {
		if last < math.MaxInt && (name == l.LedgerEnd() || name > l.Ledger(last)) {
			continue
		}
		var r record.Ledger
		if _, err := artifact.GetJSON(ctx, s, name, &r); err != nil {
			return Ledger{}, err
		}
		if name == l.LedgerEnd() {
			end = &r
			continue
		}
		step, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(name, prefix), ".json"))
		if err != nil || step != r.Step || l.Ledger(step) != name {
			return Ledger{}, fault.New(fault.Corrupt, "ledger.Load", "%s holds the record of step %d", name, r.Step)
		}
		records = append(records, r)
	}
	return Fold(start, records, end), nil
}

// loadStart finds the position of the parent, if the run's record names one.
func loadStart(ctx context.Context, s artifact.Store, l record.Layout) (Start, error) {
	var run record.Run
	_, err := artifact.GetJSON(ctx, s, l.LineageFile(), &run)
	if fault.Is(err, fault.NotFound) {
		return Start{}, nil
	}
	if err != nil {
		return Start{}, err
	}
	if run.Start != nil && run.Parent != nil {
		return Start{Step: run.Parent.Step, Cursor: run.Start.Cursor, NextGroup: run.Start.NextGroup}, nil
	}
	p := run.Parent
	if p == nil || p.Step == 0 || run.Lineage != l.Lineage {
		return Start{}, nil
	}
	var r record.Ledger
	if _, err := artifact.GetJSON(ctx, s, record.Layout{Run: p.Run, Lineage: p.Lineage}.Ledger(p.Step), &r); err != nil {
		return Start{}, err
	}
	return Start{Step: p.Step, Cursor: r.Cursor, NextGroup: r.NextGroup}, nil
}

// Fold makes the ledger from the records of the steps, in any order, and that of the end (nil while the loop runs).
// What contradicts itself is kept for Balance; the first fate of a group stands.
func Fold(start Start, records []record.Ledger, end *record.Ledger) Ledger {
	l := Ledger{Start: start, Records: len(records), Last: start.Step, Ended: end != nil, Cursor: start.Cursor}
	ordered := slices.Clone(records)
	slices.SortStableFunc(ordered, func(a, b record.Ledger) int { return cmp.Compare(a.Step, b.Step) })
	f := folder{l: &l, groups: map[int]*Group{}, debt: map[record.Returned]int{}, next: start.NextGroup}
	for _, r := range start.Cursor.Returned {
		f.debt[r]++
	}
	for _, r := range ordered {
		if want := l.Last + 1; r.Step != want {
			f.violation("record of step %d follows that of step %d", r.Step, l.Last)
		}
		l.Last = r.Step
		f.add(r)
	}
	if end != nil {
		f.add(*end)
	}
	l.next = f.next
	for _, n := range slices.Sorted(maps.Keys(f.groups)) {
		l.Groups = append(l.Groups, *f.groups[n])
	}
	f.close()
	return l
}

// Group returns the group with number n.
func (l Ledger) Group(n int) (Group, bool) {
	i, ok := slices.BinarySearchFunc(l.Groups, n, func(g Group, n int) int { return cmp.Compare(g.N, n) })
	if !ok {
		return Group{}, false
	}
	return l.Groups[i], true
}

// Violations lists everything that does not balance, in the order of the records.
func (l Ledger) Violations() []string { return slices.Clone(l.violations) }

// Balance returns nil if the books balance, else an error of kind Corrupt that names the first violations:
// every group is submitted exactly once, with numbers in sequence; trained or dropped at most once, after its
// submission; a dropped problem that was returned is submitted once more, with the next submission count; and
// once the loop has ended no group is open.
func (l Ledger) Balance() error {
	const shown = 5
	n := len(l.violations)
	if n == 0 {
		return nil
	}
	text := strings.Join(l.violations[:min(n, shown)], "; ")
	if n > shown {
		text += "; ..."
	}
	return fault.New(fault.Corrupt, "ledger.Balance", "%d violations: %s", n, text).
		WithHint("the records under ledger/ contradict each other: keep them and report it, this is never expected")
}
