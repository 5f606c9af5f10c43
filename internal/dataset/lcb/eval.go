package lcb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

// EvalOptions choose problems for an evaluation. The zero value takes release_v6.
type EvalOptions struct {
	// Release N, from 1 to 6, is the first N files; 0 means 6.
	Release int
	// From and Until bound the day of the contest, as 2024-08-01: From is the first day, Until the first one that is out. Empty: no bound.
	From, Until string
	// MaxTestBytes bounds the inputs and outputs of a problem; 0 means MaxInflated.
	MaxTestBytes int64
}

// Open returns the problems of a release in the order of files and lines: ids are livecodebench/ and the question's id, the samples are
// the public tests, the tests public and private ones in this order. All files of the release have to be there. While the set is ranged
// over, ctx can end it.
//
// Problems outside the days are left out without a word. A line with tests that cannot be read, without any, without a statement, with an id that was there
// before, or without a day if one is needed is a *dataset.RowError. Errors of Open: NotFound, Invalid; of the set: those of ReadDir.
func Open(ctx context.Context, dir string, o EvalOptions) (dataset.EvalSet, error) {
	const op = "lcb.Open"
	if o.Release == 0 {
		o.Release = len(Files())
	}
	if o.Release < 1 || o.Release > len(Files()) {
		return nil, fault.New(fault.Invalid, op, "no release_v%d", o.Release).WithHint("the releases are 1 to %d", len(Files()))
	}
	for _, day := range []string{o.From, o.Until} {
		if _, err := time.Parse(time.DateOnly, day); day != "" && err != nil {
			return nil, fault.New(fault.Invalid, op, "%w", err).WithHint("give a day such as 2024-08-01")
		}
	}
	if o.From != "" && o.Until != "" && o.From >= o.Until {
		return nil, fault.New(fault.Invalid, op, "no day is from %s on and before %s", o.From, o.Until)
	}
	if o.MaxTestBytes <= 0 {
		o.MaxTestBytes = MaxInflated
	}
	files := Files()[:o.Release]
	if err := present(dir, files); err != nil {
		return nil, err
	}
	return func(yield func(dataset.EvalProblem, error) bool) {
		n, seen := 0, map[string]bool{}
		missing, err := readFiles(ctx, dir, files, Options{Tests: true, Want: o.wanted}, func(_ string, q *Problem) error {
			if !o.wanted(q) {
				return nil
			}
			p, err := o.problem(q, seen)
			if err == nil {
				p.Index = n
				n++
			}
			if !yield(p, err) {
				return errStop
			}
			return nil
		})
		if len(missing) > 0 {
			err = fault.New(fault.NotFound, op, "%s has no %s any more", dir, missing[0])
		}
		if err != nil && !errors.Is(err, errStop) {
			yield(dataset.EvalProblem{}, err)
		}
	}, nil
}

// errStop ends the work without being an error.
var errStop = errors.New("stop")

// wanted is false for a problem of a day outside the bounds. One without a day is wanted, and refused later.
func (o EvalOptions) wanted(p *Problem) bool {
	day, ok := day(p.Date)
	return !ok || (o.From == "" || day >= o.From) && (o.Until == "" || day < o.Until)
}

// day is the day of a date in ISO form.
func day(date string) (string, bool) {
	d := date[:min(len(date), len(time.DateOnly))]
	_, err := time.Parse(time.DateOnly, d)
	return d, err == nil
}

// problem makes a problem of a line, or says why it is none.
func (o EvalOptions) problem(q *Problem, seen map[string]bool) (dataset.EvalProblem, error) {
	p := dataset.EvalProblem{Problem: dataset.Problem{ID: "livecodebench/" + q.ID}}
	refused := func(reason dataset.Reason, format string, args ...any) (dataset.EvalProblem, error) {
		return p, &dataset.RowError{ID: p.ID, Reason: reason, Evidence: fmt.Sprintf(format, args...)}
	}
	if seen[q.ID] {
		return refused(dataset.DuplicatePlatformID, "the id was there before")
	}
	seen[q.ID] = true
	if _, ok := day(q.Date); !ok && (o.From != "" || o.Until != "") {
		return refused(dataset.BadDate, "contest_date is %.40q", q.Date)
	}
	if strings.TrimSpace(q.Content) == "" || !utf8.ValidString(q.Content) || strings.ContainsRune(q.Content, 0) {
		return refused(dataset.BadStatement, "blank, or with a NUL character")
	}
	function := strings.TrimSpace(q.Starter) != ""
	var tests []judge.Test
	count, size := 0, int64(0)
	for _, cell := range []struct{ name, text string }{{"public", q.Public}, {"private", q.Private}} {
		if cell.text == "" {
			continue
		}
		_, err := Tests(cell.text, MaxInflated, func(t Test) error {
			count++
			if function = function || t.Type == "functional"; function {
				tests = nil
				return nil
			}
			if size += int64(len(t.Input) + len(t.Output)); size > o.MaxTestBytes {
				return errTests
			}
			tests = append(tests, judge.Test{Input: t.Input, Output: t.Output})
			return nil
		})
		if errors.Is(err, errTests) {
			return refused(dataset.TestsTooLarge, "more than %d bytes of tests", o.MaxTestBytes)
		}
		if err != nil {
			return refused(dataset.BadTests, "%s tests: %v", cell.name, err)
		}
		if cell.name == "public" {
			p.Samples = slices.Clone(tests)
		}
	}
	name, err := q.fnName()
	switch {
	case err != nil:
		return refused(dataset.BadTests, "metadata: %v", err)
	case name == "" && function:
		name = dataset.UnknownFn
	case name != "":
		tests = nil
	}
	if name != "" {
		p.Samples = nil
	} else if count == 0 {
		return refused(dataset.NoTests, "0 tests")
	}
	p.Statement, p.Title, p.Source, p.Platform = q.Content, q.Title, q.Platform, q.PlatformID()
	p.Difficulty, p.Date, p.HiddenTests, p.FnName = q.Difficulty, q.Date, count, name
	p.Tests = tests
	return p, nil
}

// errTests ends the reading of tests that are too large.
var errTests = errors.New("too many bytes")

// fnName is func_name of the metadata, which is an object in a text; empty without one.
func (p *Problem) fnName() (string, error) {
	if strings.TrimSpace(p.Metadata) == "" {
		return "", nil
	}
	var m struct {
		FnName string `json:"func_name"`
	}
	err := json.Unmarshal([]byte(p.Metadata), &m)
	return strings.TrimSpace(m.FnName), err
}
