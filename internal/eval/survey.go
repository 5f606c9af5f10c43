package eval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
)

// Why a problem is left out: it counts, but takes no part in any share.
const (
	LeftFunction = "function" // it calls a function, which the judge cannot
	LeftNoTests  = "no_tests"
)

// survey is what is known of the problems before the first response.
type survey struct {
	problems []Problem
	digests  [][sha256.Size]byte
	digest   string
}

// look reads all problems once: a mistake in the last one shall not be found after hours. Errors: Invalid (a prompt that is too
// long, an id twice, nothing to evaluate), those of the set.
func look(ctx context.Context, set dataset.EvalSet, limit int, prompt func(p dataset.Problem) error) (*survey, error) {
	const op = "eval.look"
	s := &survey{}
	seen := map[string]bool{}
	all := sha256.New()
	run := 0
	for p, err := range set {
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if limit > 0 && len(s.problems) == limit {
			break
		}
		if seen[p.ID] {
			return nil, fault.New(fault.Invalid, op, "two problems have the id %q", p.ID)
		}
		seen[p.ID] = true
		q := Problem{ID: p.ID, Tests: len(p.Tests)}
		switch {
		case p.FnName != "":
			q.LeftOut = LeftFunction
		case len(p.Tests) == 0:
			q.LeftOut = LeftNoTests
		default:
			run++
			if err := prompt(p.Problem); err != nil {
				return nil, err
			}
		}
		d, err := digest(p)
		if err != nil {
			return nil, err
		}
		all.Write(d[:])
		s.problems, s.digests = append(s.problems, q), append(s.digests, d)
	}
	if run == 0 {
		return nil, fault.New(fault.Invalid, op, "of %d problems none can be evaluated", len(s.problems)).
			WithHint("give a set of problems that read standard input, with tests")
	}
	s.digest = hex.EncodeToString(all.Sum(nil))
	return s, nil
}

// digest is that of everything of a problem that an evaluation depends on.
func digest(p dataset.EvalProblem) ([sha256.Size]byte, error) {
	h := sha256.New()
	err := json.NewEncoder(h).Encode([]any{p.ID, p.Statement, p.FnName, p.Tests})
	if err != nil {
		return [sha256.Size]byte{}, fault.New(fault.Internal, "eval.digest", "%w", err)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}
