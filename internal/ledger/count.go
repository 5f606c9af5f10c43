package ledger

import (
	"maps"
	"slices"
)

// Reason sums up the drops of one reason.
type Reason struct {
	Reason   string
	Groups   int
	Finished int // of these, groups whose generation was complete
	Tokens   int // sampled tokens that were never trained
}

// Counts are the totals of a ledger, in groups.
type Counts struct {
	Submitted, Trained, Dropped, Open int
	// Resubmitted are submissions of a problem whose earlier group was dropped.
	Resubmitted int
	LostTokens  int      // sampled tokens of all drops
	Reasons     []Reason // ordered by name
}

// Count sums up the ledger.
func (l Ledger) Count() Counts {
	c := Counts{Submitted: len(l.Groups)}
	reasons := map[string]*Reason{}
	for _, g := range l.Groups {
		if g.Submission > 0 {
			c.Resubmitted++
		}
		switch g.Fate {
		case Trained:
			c.Trained++
		case Open:
			c.Open++
		case Dropped:
			c.Dropped++
			c.LostTokens += g.Tokens
			r := reasons[g.Reason]
			if r == nil {
				r = &Reason{Reason: g.Reason}
				reasons[g.Reason] = r
			}
			r.Groups++
			r.Tokens += g.Tokens
			if g.Finished {
				r.Finished++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		c.Reasons = append(c.Reasons, *reasons[name])
	}
	return c
}
