package eval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
)

// LeftFunction is why a problem is left out that calls a function: the judge has no way to. A row that is no usable problem is left
// out for the reason that its set gives. What is left out is counted and takes no part in any share.
const LeftFunction = "function"

// survey is what is known of the problems before the first response.
type survey struct {
	problems []Problem
	digests  [][sha256.Size]byte
	digest   string
}

// look reads all problems once: a mistake in the last one shall not be found after hours. prompt returns the number of tokens of a
// problem's prompt; first is the number of problems to look at, 0 for all. Errors: Invalid (prompts of more than limit tokens, an id twice, nothing to evaluate), those of the set.
func look(ctx context.Context, set dataset.EvalSet, first int, prompt func(p dataset.Problem) (int, error), limit int) (*survey, error) {
	const op = "eval.look"
	s := &survey{}
	seen := map[string]bool{}
	all := sha256.New()
	run := 0
	var long overlong
	for p, err := range set {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		q, d, err := entry(p, err)
		if err != nil {
			return nil, err
		}
		if seen[q.ID] {
			return nil, fault.New(fault.Invalid, op, "two problems have the id %q", q.ID)
		}
		seen[q.ID] = true
		if q.LeftOut == "" {
			run++
			n, err := prompt(p.Problem)
			if err != nil {
				return nil, err
			}
			long.add(q.ID, n, limit)
		}
		all.Write(d[:])
		s.problems, s.digests = append(s.problems, q), append(s.digests, d)
		if len(s.problems) == first {
			break
		}
	}
	if run == 0 {
		return nil, fault.New(fault.Invalid, op, "of %d problems none can be evaluated", len(s.problems)).
			WithHint("give a set of problems that read standard input, with tests")
	}
	s.digest = hex.EncodeToString(all.Sum(nil))
	return s, long.err(limit)
}

// overlong are problems whose prompt is too long. Leaving them out would flatter the model.
type overlong struct {
	n, most int
	id      string // of the longest
}

func (o *overlong) add(id string, n, limit int) {
	if n <= limit {
		return
	}
	if o.n++; n > o.most {
		o.most, o.id = n, id
	}
}

func (o *overlong) err(limit int) error {
	if o.n == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "eval.look", "%d problems have prompts of more than %d tokens (rollout.max_prompt), the longest, %s, has %d", o.n, limit, o.id, o.most).
		WithHint("raise rollout.max_prompt and, by as much, rollout.max_total")
}

// entry is what the result says of what a set yields, and the digest of everything of it that an evaluation depends on. Errors: any
// that ends the set.
func entry(p dataset.EvalProblem, err error) (Problem, [sha256.Size]byte, error) {
	q := Problem{ID: p.ID, Tests: max(len(p.Tests), p.HiddenTests)}
	row, unusable := errors.AsType[*dataset.RowError](err)
	switch {
	case unusable:
		q = Problem{ID: row.ID, LeftOut: string(row.Reason), Why: row.Evidence}
	case err != nil:
		return q, [sha256.Size]byte{}, err
	case p.FnName != "":
		q.LeftOut, q.Why = LeftFunction, p.FnName
	case len(p.Tests) == 0:
		q.LeftOut = string(dataset.NoTests)
	}
	h := sha256.New()
	if err := json.NewEncoder(h).Encode([]any{q.ID, q.LeftOut, q.Why, p.Statement, p.Tests}); err != nil {
		return q, [sha256.Size]byte{}, fault.New(fault.Internal, "eval.entry", "%w", err)
	}
	return q, [sha256.Size]byte(h.Sum(nil)), nil
}
