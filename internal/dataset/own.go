package dataset

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/jsonl"
	"github.com/steadyrl/steady/internal/judge"
)

// OwnProblem is a line of a file of a user's own problems.
type OwnProblem struct {
	ID        string // not blank, unique in the file
	Statement string // the text of the user's message
	Tests     []judge.Test
	Solutions []string // programs, each expected to pass every test; may be empty
	// Title, Source, URL, Difficulty and Date are as in a row of BAAI/TACO; may be empty.
	Title, Source, URL, Difficulty, Date string
}

const ownHint = `a line is {"id": "sum", "statement": "...", "tests": [{"input": "1 2\n", "output": "3\n"}], "solutions": ["..."]}; docs/your-own.md has the rules`

// ReadOwn reads JSON Lines, one problem a line. Needed are id, statement and tests, one test at least; known beside them are solutions, title, source, url,
// difficulty and date. Any other key, a key twice, an id twice, and a text that is blank or no text are mistakes.
//
// Errors: Invalid, with name, line, and for each mistake field and what is wanted, up to 20 bad lines and 5 mistakes of each; the others are counted. Every
// line is looked at.
func ReadOwn(r io.Reader, name string) ([]OwnProblem, error) {
	var out []OwnProblem
	told, all := jsonl.Told{Name: name}, 0
	lineOf := map[string]int{}
	err := jsonl.Lines(r, func(n int, line json.RawMessage, broken error) error {
		all = n
		if broken != nil {
			told.Add(n, broken)
			return nil
		}
		p, wrong := parseOwn(line)
		switch first := lineOf[p.ID]; {
		case p.ID == "":
		case first > 0:
			wrong = append(wrong, jsonl.Bad("id", "%s is that of line %d too", jsonl.Short(p.ID), first))
		default:
			lineOf[p.ID] = n
		}
		if told.Add(n, wrong...); len(wrong) == 0 {
			out = append(out, p)
		}
		return nil
	})
	switch {
	case errors.Is(err, jsonl.ErrEmpty):
		return nil, fault.New(fault.Invalid, "", "%s: %w", name, err).WithHint("%s", ownHint)
	case err != nil: // the file could not be read
		return nil, fault.New(fault.Invalid, "", "%s: %w", name, err).WithHint("give a file that can be read")
	}
	if err := told.Err(all); err != nil {
		return nil, err.WithHint("%s", ownHint)
	}
	return out, nil
}

// parseOwn reads a line and returns everything that is wrong with it, each naming its field. The id is empty if it is wrong.
func parseOwn(line json.RawMessage) (p OwnProblem, wrong []error) {
	f, wrong := jsonl.AllFields("", line, "id", "statement", "tests", "solutions?", "title?", "source?", "url?", "difficulty?", "date?")
	for _, t := range []struct {
		name   string
		to     *string
		needed bool
	}{
		{"id", &p.ID, true},
		{"statement", &p.Statement, true},
		{"title", &p.Title, false},
		{"source", &p.Source, false},
		{"url", &p.URL, false},
		{"difficulty", &p.Difficulty, false},
		{"date", &p.Date, false},
	} {
		raw, there := f[t.name]
		if !there {
			continue
		}
		text, err := jsonl.Text(t.name, raw)
		if why := badText(text); err == nil && why != "" && (t.needed || text != "") {
			err = jsonl.Bad(t.name, "cannot be used: %s", why)
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		*t.to = text
	}
	if raw, there := f["tests"]; there {
		tests, bad := ownTests(raw)
		p.Tests, wrong = tests, append(wrong, bad...)
	}
	if raw, there := f["solutions"]; there {
		solutions, bad := ownSolutions(raw)
		p.Solutions, wrong = solutions, append(wrong, bad...)
	}
	return p, wrong
}

func ownTests(raw json.RawMessage) (tests []judge.Test, wrong []error) {
	list, err := jsonl.Elements("tests", raw)
	if err == nil && len(list) == 0 {
		err = jsonl.Bad("tests", "is empty, want at least one test")
	}
	if err != nil {
		return nil, []error{err}
	}
	tests = make([]judge.Test, len(list))
	for i, item := range list {
		at := fmt.Sprintf("tests[%d]", i)
		f, bad := jsonl.AllFields(at, item, "input", "output")
		wrong = append(wrong, bad...)
		text := func(name string) string {
			raw, there := f[name]
			if !there {
				return "" // told above
			}
			s, err := jsonl.Text(at+"."+name, raw)
			if err != nil {
				wrong = append(wrong, err)
			}
			return s
		}
		tests[i] = judge.Test{Input: text("input"), Output: text("output")}
	}
	return tests, wrong
}

func ownSolutions(raw json.RawMessage) (out []string, wrong []error) {
	list, err := jsonl.Elements("solutions", raw)
	if err != nil {
		return nil, []error{err}
	}
	out = make([]string, len(list))
	for i, item := range list {
		at := fmt.Sprintf("solutions[%d]", i)
		out[i], err = jsonl.Text(at, item)
		if why := badText(out[i]); err == nil && why != "" {
			err = jsonl.Bad(at, "cannot be used: %s", why)
		}
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	return out, wrong
}

// row is the problem in the schema of BAAI/TACO. A problem without a title has its id there, so that it is found again.
func (p OwnProblem) row() (Row, error) {
	var tests struct {
		Inputs  []string `json:"inputs"`
		Outputs []string `json:"outputs"`
	}
	for _, t := range p.Tests {
		tests.Inputs, tests.Outputs = append(tests.Inputs, t.Input), append(tests.Outputs, t.Output)
	}
	pairs, err := json.Marshal(tests)
	if err != nil {
		return Row{}, err
	}
	solutions, err := json.Marshal(append([]string{}, p.Solutions...))
	if err != nil {
		return Row{}, err
	}
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return Row{
		Question: &p.Statement, Solutions: text(string(solutions)), InputOutput: text(string(pairs)), Name: text(cmp.Or(p.Title, p.ID)),
		Source: text(p.Source), URL: text(p.URL), Difficulty: text(p.Difficulty), Date: text(p.Date),
	}, nil
}

// WriteOwn writes the problems, in their order, as a Parquet shard in the schema of BAAI/TACO, which the preparation of data sets reads. The same problems
// give the same bytes. Errors: Internal, those of w.
func WriteOwn(w io.Writer, problems []OwnProblem) error {
	const op = "dataset.WriteOwn"
	out := parquet.NewGenericWriter[Row](w, parquet.CreatedBy("steady", "1", "1"), parquet.Compression(&parquet.Snappy))
	for _, p := range problems {
		row, err := p.row()
		if err != nil {
			return fault.New(fault.Internal, op, "%s: %w", p.ID, err)
		}
		if _, err := out.Write([]Row{row}); err != nil {
			return fault.New(fault.Internal, op, "%w", err)
		}
	}
	if err := out.Close(); err != nil {
		return fault.New(fault.Internal, op, "%w", err)
	}
	return nil
}

// OpenOwn reads files of own problems and returns them in the order of files and lines, with their own ids; none of the rules for training data are applied,
// and solutions are not needed. While the set is ranged over, ctx can end it. Errors: NotFound, and those of ReadOwn; also for an id of two files.
func OpenOwn(ctx context.Context, paths []string) (EvalSet, error) {
	var all []OwnProblem
	fileOf := map[string]string{}
	for _, path := range paths {
		list, err := readOwnFile(path)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			if other, twice := fileOf[p.ID]; twice {
				return nil, fault.New(fault.Invalid, "", "%s: the id %s is in %s too", path, jsonl.Short(p.ID), other).WithHint("give each problem an id of its own")
			}
			fileOf[p.ID] = path
		}
		all = append(all, list...)
	}
	return func(yield func(EvalProblem, error) bool) {
		for i, p := range all {
			if err := ctx.Err(); err != nil {
				yield(EvalProblem{}, err)
				return
			}
			q := Problem{
				ID: p.ID, Index: i, Statement: p.Statement, Samples: samples(p.Statement), Title: strings.TrimSpace(p.Title), Source: p.Source, URL: p.URL,
				Platform: PlatformID(p.URL), Difficulty: p.Difficulty, Date: p.Date, HiddenTests: len(p.Tests),
			}
			if !yield(EvalProblem{Problem: q, Tests: p.Tests}, nil) {
				return
			}
		}
	}, nil
}

func readOwnFile(path string) ([]OwnProblem, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.NotFound, "", "%w", err).WithHint("give JSON Lines files of your own problems; %s", ownHint)
	}
	defer f.Close() //nolint:errcheck // only read
	return ReadOwn(f, path)
}
