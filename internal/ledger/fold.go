package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/steadyrl/steady/internal/record"
)

// folder applies records in order.
type folder struct {
	l      *Ledger
	groups map[int]*Group
	// debt counts, for a problem and submission count, how often it was returned and not yet sent out again.
	debt map[record.Returned]int
	next int // group number that comes next
}

func (f *folder) violation(format string, args ...any) {
	f.l.violations = append(f.l.violations, fmt.Sprintf(format, args...))
}

func (f *folder) add(r record.Ledger) {
	for _, s := range r.Submitted {
		f.submit(r.Step, s)
	}
	if r.NextGroup != f.next {
		f.violation("%s: next_group is %d, the submissions give %d", place(r.Step), r.NextGroup, f.next)
		f.next = r.NextGroup
	}
	if n := len(r.TrainedTokens); n > 0 && n != len(r.Trained) {
		f.violation("%s: %d groups are trained, the tokens of %d are given", place(r.Step), len(r.Trained), n)
	}
	for i, n := range r.Trained {
		if g := f.open(r.Step, n, "trained"); g != nil {
			g.Fate, g.Step = Trained, r.Step
			if i < len(r.TrainedTokens) {
				g.Tokens = r.TrainedTokens[i]
			}
			if g.Tag > r.Step {
				f.violation("group %d has tag %d and is trained in step %d", n, g.Tag, r.Step)
			}
		}
	}
	for _, d := range r.Dropped {
		f.drop(r.Step, d)
	}
	f.returned(r)
	f.l.Cursor = r.Cursor
}

func (f *folder) submit(step int, s record.Submitted) {
	if g := f.groups[s.N]; g != nil {
		f.violation("%s: group %d is submitted again (before: %s)", place(step), s.N, place(g.Submitted))
		return
	}
	if s.N != f.next {
		f.violation("%s: group %d is submitted where %d comes next", place(step), s.N, f.next)
	}
	f.next = s.N + 1
	if step > 0 && s.Tag > step {
		f.violation("%s: group %d has the later tag %d", place(step), s.N, s.Tag)
	}
	f.groups[s.N] = &Group{N: s.N, Problem: s.Problem, Tag: s.Tag, Submission: s.Submission, Submitted: step, Fate: Open}
	if s.Submission > 0 {
		f.debt[record.Returned{Problem: s.Problem, Submission: s.Submission}]--
	}
}

// open returns the group if it can still meet a fate.
func (f *folder) open(step, n int, fate string) *Group {
	g := f.groups[n]
	switch {
	case g == nil:
		f.violation("%s: group %d is %s but was never submitted", place(step), n, fate)
		return nil
	case g.Fate != Open:
		f.violation("%s: group %d is %s but was %s in %s", place(step), n, fate, g.Fate, place(g.Step))
		return nil
	}
	return g
}

func (f *folder) drop(step int, d record.Drop) {
	g := f.open(step, d.N, "dropped")
	if g == nil {
		return
	}
	g.Fate, g.Step, g.Reason, g.Tokens, g.Finished = Dropped, step, d.Reason, d.Tokens, d.Finished
	if d.Tag != g.Tag {
		f.violation("%s: group %d is dropped with tag %d, submitted with %d", place(step), d.N, d.Tag, g.Tag)
	}
	switch d.Reason {
	case Stale, Infrastructure:
		f.debt[record.Returned{Problem: g.Problem, Submission: g.Submission + 1}]++
	case RunEnded: // the problem does not come back: there is no step left to use it
	default:
		f.violation("%s: group %d is dropped for the unknown reason %q", place(step), d.N, d.Reason)
	}
}

// returned compares the problems that wait in the cursor with those that the drops and submissions leave.
func (f *folder) returned(r record.Ledger) {
	waiting := map[record.Returned]int{}
	for _, p := range r.Cursor.Returned {
		waiting[p]++
	}
	keys := map[record.Returned]bool{}
	for k, n := range f.debt {
		if n == 0 {
			delete(f.debt, k)
			continue
		}
		keys[k] = true
	}
	for k := range waiting {
		keys[k] = true
	}
	for _, k := range slices.SortedFunc(maps.Keys(keys), compareReturned) {
		if f.debt[k] == waiting[k] {
			continue
		}
		f.violation("%s: problem %d, submission %d: dropped and not sent out again %d times, but %d wait in the cursor",
			place(r.Step), k.Problem, k.Submission, f.debt[k], waiting[k])
		f.debt[k] = waiting[k] // one mistake is reported once
	}
}

func compareReturned(a, b record.Returned) int {
	return cmp.Or(cmp.Compare(a.Problem, b.Problem), cmp.Compare(a.Submission, b.Submission))
}

// close checks what must hold when the loop has ended.
func (f *folder) close() {
	if !f.l.Ended {
		return
	}
	for _, g := range f.l.Groups {
		if g.Fate == Open {
			f.violation("group %d has no fate at the end", g.N)
		}
	}
}

func place(step int) string {
	if step == 0 {
		return "the end"
	}
	return fmt.Sprintf("step %d", step)
}
