package dataset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

// leastProgram is the length, without blanks, from which a program in a statement is a reference that was shown. Shorter ones, such as
// print(int(input())**2), are in statements by chance.
const leastProgram = 40

// shown returns the number of a solution that stands whole in the statement, blanks aside, or -1.
func shown(statement string, solutions []string) int {
	text := squeeze(statement)
	for i, s := range solutions {
		if s = squeeze(s); len(s) >= leastProgram && strings.Contains(text, s) {
			return i
		}
	}
	return -1
}

// squeeze leaves out all blanks.
func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// Findings count what Check looked at.
type Findings struct {
	Problems int // in both splits
	Tests    int // saved tests of these problems
	Examples int // saved tests that stand in their statement: public by the source's choice
	Compared int // problems whose prompt was found to be the row's statement, without a solution
}

// Check verifies a data set: the digests of its files, the counts of its manifest, that no two problems are the same under any key, inside
// a split or across, and that what a prompt is made of holds the statement and its examples and nothing else. With the shards that the data set
// was made of, it also compares every prompt and every saved test with its row, and looks for the row's solutions in the prompt.
//
// Errors: as Open, Corrupt, and Invalid (a shard is not one of the data set's).
func Check(ctx context.Context, dir string, shards ...Source) (Findings, error) {
	var f Findings
	s, err := Open(dir)
	if err != nil {
		return f, err
	}
	seen := map[string]string{}
	for _, split := range Splits() {
		if want := map[Split]int{Train: s.Manifest.Train, Dev: s.Manifest.Dev}[split]; s.Len(split) != want {
			return f, corrupt("%s has %d problems, the manifest says %d", splitFile(split), s.Len(split), want)
		}
		if err := s.checkColumns(split); err != nil {
			return f, err
		}
		for i := range s.problems[split] {
			if err := ctx.Err(); err != nil {
				return f, err
			}
			p := &s.problems[split][i]
			for _, id := range identities(p) {
				if other, ok := seen[id.key]; ok {
					return f, corrupt("%s and %s are the same problem by %s", other, p.ID, clip(id.key))
				}
				seen[id.key] = p.ID
			}
			tests, err := s.Tests(split, i)
			if err != nil {
				return f, err
			}
			if err := f.problem(p, tests); err != nil {
				return f, err
			}
		}
	}
	decisions, err := readDecisions(dir, s.Manifest)
	if err != nil {
		return f, err
	}
	return f, s.compare(ctx, &f, decisions, shards)
}

func corrupt(format string, args ...any) error {
	return fault.New(fault.Corrupt, "dataset.Check", format, args...).WithHint("prepare the data set again")
}

// problem checks one problem on its own.
func (f *Findings) problem(p *Problem, tests []judge.Test) error {
	if len(tests) != p.HiddenTests || len(tests) == 0 {
		return corrupt("%s has %d tests, its row says %d", p.ID, len(tests), p.HiddenTests)
	}
	text := squeeze(p.Statement)
	for _, sample := range p.Samples {
		if !strings.Contains(text, squeeze(sample.Input)) || !strings.Contains(text, squeeze(sample.Output)) {
			return corrupt("%s has a sample that is not in its statement", p.ID)
		}
	}
	f.Problems++
	f.Tests += len(tests)
	for _, t := range tests {
		in, out := squeeze(t.Input), squeeze(t.Output)
		if in+out != "" && len(in)+len(out) <= len(text) && strings.Contains(text, in) && strings.Contains(text, out) {
			f.Examples++
		}
	}
	return nil
}

// checkColumns wants the columns that are written and no others, so that nothing can hide in one.
func (s *Set) checkColumns(split Split) error {
	f, size, err := s.open(split)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	file, err := parquet.OpenFile(f, size)
	if err != nil {
		return corrupt("%s: %w", splitFile(split), err)
	}
	names := func(schema *parquet.Schema) (out []string) {
		for _, f := range schema.Fields() {
			out = append(out, f.Name())
		}
		slices.Sort(out)
		return out
	}
	if got, want := names(file.Schema()), names(parquet.SchemaOf(problemRow{})); !slices.Equal(got, want) {
		return corrupt("%s has the columns %s, want %s", splitFile(split), strings.Join(got, " "), strings.Join(want, " "))
	}
	rows, err := readColumns[publicRow](f, size, 0, -1)
	if err != nil {
		return err
	}
	for _, r := range rows {
		var p Problem
		var samples []judge.Test
		if err := errors.Join(strict(r.Public, &p), strict(r.Samples, &samples)); err != nil {
			return corrupt("%s: %s holds something else than a problem: %w", splitFile(split), r.ID, err)
		}
		if p.ID != r.ID || p.Statement != "" || p.Samples != nil {
			return corrupt("%s: the row of %s holds more than the public part of one problem", splitFile(split), r.ID)
		}
	}
	return nil
}

// strict reads one JSON value without unknown keys.
func strict(text string, v any) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

// Source is a shard to compare with.
type Source struct {
	Input Input
	At    io.ReaderAt
}

// compare reads the shards again and compares what was kept with its row.
func (s *Set) compare(ctx context.Context, f *Findings, decisions []decisionRow, shards []Source) error {
	kept := map[string]*Problem{}
	for _, split := range Splits() {
		for i := range s.problems[split] {
			p := &s.problems[split][i]
			kept[p.ID] = p
		}
	}
	for _, shard := range shards {
		i := slices.IndexFunc(s.Manifest.Inputs, func(in Input) bool { return in.Name == shard.Input.Name })
		if i < 0 || s.Manifest.Inputs[i].SHA256 != shard.Input.SHA256 {
			return fault.New(fault.Invalid, "dataset.Check", "%s is no shard of this data set", shard.Input.Name).
				WithHint("give the files that the manifest names under inputs")
		}
		name := strings.TrimSuffix(shard.Input.Name, ".parquet")
		var ids []string
		for _, d := range decisions {
			if d.Shard == name {
				ids = append(ids, d.ID)
			}
		}
		at := 0
		err := readRows(shard.At, shard.Input.Size, 0, name, func(row *Row) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if at >= len(ids) {
				return corrupt("%s has a row %d, which has no decision", shard.Input.Name, at)
			}
			p := kept[ids[at]]
			at++
			if p == nil {
				return nil
			}
			f.Compared++
			return s.compareRow(p, row)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// compareRow compares a kept problem with its row.
func (s *Set) compareRow(p *Problem, r *Row) error {
	if p.Statement != value(r.Question) {
		return corrupt("the prompt of %s is not the statement of its row", p.ID)
	}
	solutions, err := parseSolutions(value(r.Solutions))
	if err != nil {
		return corrupt("%s was kept, but its solutions cannot be read: %w", p.ID, err)
	}
	if i := shown(p.Statement, solutions); i >= 0 {
		return corrupt("the prompt of %s holds solution %d of its row", p.ID, i)
	}
	split := Train
	if p.Index >= s.Len(Train) || s.problems[Train][p.Index].ID != p.ID {
		split = Dev
	}
	got, err := s.testsText(split, p.Index)
	if err != nil {
		return err
	}
	inputs, outputs, _, err := parseTests(value(r.InputOutput))
	if err != nil {
		return corrupt("%s was kept, but its tests cannot be read: %w", p.ID, err)
	}
	var tests []judge.Test
	for i := range inputs {
		tests = append(tests, judge.Test{Input: inputs[i], Output: outputs[i]})
	}
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(tests); err != nil || got+"\n" != want.String() {
		return corrupt("the saved tests of %s are not those of its row", p.ID)
	}
	return nil
}
