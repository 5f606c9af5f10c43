package ledger_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
)

// model plays a step loop with random fates and keeps its own, independent account of them.
type model struct {
	t        *rapid.T
	problems int
	cursor   record.Cursor
	next     int
	open     []record.Submitted
	now      record.Ledger
	records  []record.Ledger
	fates    map[int]ledger.Fate
	lost     int // tokens of drops
}

func (m *model) submit(tag int) {
	s := record.Submitted{N: m.next, Tag: tag}
	m.next++
	if r := m.cursor.Returned; len(r) > 0 {
		s.Problem, s.Submission = r[0].Problem, r[0].Submission
		m.cursor.Returned = slices.Clone(r[1:])
	} else {
		if m.cursor.Next == m.problems {
			m.cursor.Epoch, m.cursor.Next = m.cursor.Epoch+1, 0
		}
		s.Problem = m.cursor.Next
		m.cursor.Next++
	}
	m.open = append(m.open, s)
	m.now.Submitted = append(m.now.Submitted, s)
	m.fates[s.N] = ledger.Open
}

func (m *model) drop(i int, reason string) {
	s := m.open[i]
	m.open = slices.Delete(m.open, i, i+1)
	d := record.Drop{N: s.N, Tag: s.Tag, Reason: reason, Finished: rapid.Bool().Draw(m.t, "finished")}
	if d.Finished {
		d.Tokens = rapid.IntRange(1, 500).Draw(m.t, "tokens")
	}
	m.lost += d.Tokens
	m.now.Dropped = append(m.now.Dropped, d)
	m.fates[s.N] = ledger.Dropped
	if reason != ledger.RunEnded {
		m.cursor.Returned = append(slices.Clone(m.cursor.Returned), record.Returned{Problem: s.Problem, Submission: s.Submission + 1})
	}
}

func (m *model) seal(step int) record.Ledger {
	r := m.now
	r.Step, r.Cursor, r.NextGroup = step, m.cursor, m.next
	m.now = record.Ledger{}
	return r
}

// play runs steps 1..n and, if ended, the end.
func play(t *rapid.T, ended bool) (*model, *record.Ledger) {
	m := &model{t: t, problems: rapid.IntRange(1, 12).Draw(t, "problems"), fates: map[int]ledger.Fate{}}
	batch := rapid.IntRange(1, 4).Draw(t, "batch")
	for range batch * 2 {
		m.submit(1)
	}
	steps := rapid.IntRange(1, 8).Draw(t, "steps")
	for step := 1; step <= steps; step++ {
		for range batch {
			m.submit(step)
		}
		for range rapid.IntRange(0, 3).Draw(t, "drops") {
			if len(m.open) == batch {
				break
			}
			reason := rapid.SampledFrom([]string{ledger.Stale, ledger.Infrastructure}).Draw(t, "reason")
			m.drop(rapid.IntRange(0, len(m.open)-1).Draw(t, "which"), reason)
			if rapid.Bool().Draw(t, "replaced") {
				m.submit(step)
			}
		}
		for range batch {
			i := rapid.IntRange(0, len(m.open)-1).Draw(t, "trained")
			m.now.Trained = append(m.now.Trained, m.open[i].N)
			m.fates[m.open[i].N] = ledger.Trained
			m.open = slices.Delete(m.open, i, i+1)
		}
		m.records = append(m.records, m.seal(step))
	}
	if !ended {
		return m, nil
	}
	for len(m.open) > 0 {
		m.drop(0, ledger.RunEnded)
	}
	end := m.seal(0)
	return m, &end
}

func TestFold_balancesForEveryCourseOfALoop(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, end := play(t, rapid.Bool().Draw(t, "ended"))
		l := ledger.Fold(ledger.Start{}, rapid.Permutation(m.records).Draw(t, "order"), end)
		if err := l.Balance(); err != nil {
			t.Fatal(err)
		}
		if len(l.Groups) != len(m.fates) {
			t.Fatalf("%d groups, want %d", len(l.Groups), len(m.fates))
		}
		for _, g := range l.Groups {
			if g.Fate != m.fates[g.N] {
				t.Errorf("group %d is %s, want %s", g.N, g.Fate, m.fates[g.N])
			}
		}
		c := l.Count()
		if c.Submitted != c.Trained+c.Dropped+c.Open || c.LostTokens != m.lost {
			t.Errorf("%+v: parts do not add up, or lost tokens differ from %d", c, m.lost)
		}
		if end != nil && c.Open != 0 {
			t.Errorf("%d groups open at the end", c.Open)
		}
	})
}

// mistakes change one record so that the books cannot balance.
var mistakes = map[string]func(t *rapid.T, r *record.Ledger) bool{
	"training lost": func(t *rapid.T, r *record.Ledger) bool {
		return remove(t, &r.Trained)
	},
	"drop lost": func(t *rapid.T, r *record.Ledger) bool {
		return remove(t, &r.Dropped)
	},
	"submission lost": func(t *rapid.T, r *record.Ledger) bool {
		return remove(t, &r.Submitted)
	},
	"trained twice": func(t *rapid.T, r *record.Ledger) bool {
		return repeat(t, &r.Trained)
	},
	"dropped twice": func(t *rapid.T, r *record.Ledger) bool {
		return repeat(t, &r.Dropped)
	},
	"submitted twice": func(t *rapid.T, r *record.Ledger) bool {
		return repeat(t, &r.Submitted)
	},
	"other submission count": func(t *rapid.T, r *record.Ledger) bool {
		if len(r.Submitted) == 0 {
			return false
		}
		r.Submitted[rapid.IntRange(0, len(r.Submitted)-1).Draw(t, "which")].Submission++
		return true
	},
	"returned twice": func(t *rapid.T, r *record.Ledger) bool {
		r.Cursor.Returned = append(slices.Clone(r.Cursor.Returned), record.Returned{Problem: rapid.IntRange(0, 12).Draw(t, "problem"), Submission: 1})
		return true
	},
	"return lost": func(t *rapid.T, r *record.Ledger) bool {
		r.Cursor.Returned = slices.Clone(r.Cursor.Returned)
		return remove(t, &r.Cursor.Returned)
	},
}

func remove[T any](t *rapid.T, list *[]T) bool {
	if len(*list) == 0 {
		return false
	}
	i := rapid.IntRange(0, len(*list)-1).Draw(t, "which")
	*list = slices.Delete(slices.Clone(*list), i, i+1)
	return true
}

func repeat[T any](t *rapid.T, list *[]T) bool {
	if len(*list) == 0 {
		return false
	}
	*list = append(slices.Clone(*list), (*list)[rapid.IntRange(0, len(*list)-1).Draw(t, "which")])
	return true
}

func TestBalance_findsAnyMistakeAnywhere(t *testing.T) {
	t.Parallel()
	for name, plant := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				m, end := play(t, true)
				i := rapid.IntRange(0, len(m.records)-1).Draw(t, "record")
				if !plant(t, &m.records[i]) {
					t.Skip("nothing to change in this record")
				}
				if err := ledger.Fold(ledger.Start{}, m.records, end).Balance(); err == nil {
					t.Fatalf("the mistake in step %d was not found", m.records[i].Step)
				}
			})
		})
	}
}
