package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

// Set is a prepared data set. It is immutable and safe for concurrent use.
type Set struct {
	Manifest Manifest
	dir      string
	problems map[Split][]Problem
}

// Open reads and verifies a data set. Errors: NotFound (no data set in dir), Corrupt (the manifest does not have its seal, a file
// not its digest).
func Open(dir string) (*Set, error) {
	data, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "dataset.Open", "%s has no %s", dir, ManifestFile).
			WithHint("give the directory of a prepared data set, datasets/KEY in a store")
	}
	if err != nil {
		return nil, fault.New(fault.Internal, "dataset.Open", "%w", err)
	}
	s := &Set{dir: dir, problems: map[Split][]Problem{}}
	if s.Manifest, err = decodeManifest(data); err != nil {
		return nil, err
	}
	for _, split := range Splits() {
		rows, err := readFile[publicRow](dir, splitFile(split), s.Manifest.Files)
		if err != nil {
			return nil, err
		}
		for i, r := range rows {
			var p Problem
			if err := errors.Join(json.Unmarshal([]byte(r.Public), &p), json.Unmarshal([]byte(r.Samples), &p.Samples)); err != nil {
				return nil, fault.New(fault.Corrupt, "dataset.Open", "%s row %d cannot be read: %w", splitFile(split), i, err).
					WithHint("prepare the data set again: another version of the program wrote it, or it is damaged")
			}
			p.Statement = r.Prompt
			s.problems[split] = append(s.problems[split], p)
		}
	}
	return s, nil
}

// Decisions reads the decision of every input row, in input order. It verifies as Open does, and that the manifest counts the same
// decisions. Errors: as Open.
func Decisions(dir string) ([]Decision, error) {
	s, err := Open(dir)
	if err != nil {
		return nil, err
	}
	rows, err := readDecisions(dir, s.Manifest)
	if err != nil {
		return nil, err
	}
	out := make([]Decision, len(rows))
	for i, d := range rows {
		out[i] = Decision{d.Shard, d.Row, d.ID, d.Source, d.Keep, Split(d.Split), Reason(d.Reason), d.Evidence}
	}
	return out, nil
}

// Counts returns the manifest, verified as Decisions does. Errors: as Open.
func Counts(dir string) (Manifest, error) {
	s, err := Open(dir)
	if err != nil {
		return Manifest{}, err
	}
	_, err = readDecisions(dir, s.Manifest)
	return s.Manifest, err
}

// readFile reads the columns of T, after the whole file was found to have its digest.
func readFile[T any](dir, name string, digests map[string]string) (rows []T, err error) {
	const op = "dataset.Open"
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, fault.New(fault.Corrupt, op, "%w", err).WithHint("prepare the data set again")
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return nil, fault.New(fault.Internal, op, "%w", err)
	}
	if hex.EncodeToString(h.Sum(nil)) != digests[name] {
		return nil, damaged(name)
	}
	return readColumns[T](f, size, 0, -1)
}

// readColumns reads n rows from row from on, all for a negative n.
func readColumns[T any](r io.ReaderAt, size, from, n int64) (rows []T, err error) {
	const op = "dataset.Open"
	defer func() {
		if p := recover(); p != nil { // the Parquet reader on bad pages
			rows, err = nil, fault.New(fault.Corrupt, op, "%v", p)
		}
	}()
	f, err := parquet.OpenFile(r, size)
	if err != nil {
		return nil, fault.New(fault.Corrupt, op, "%w", err)
	}
	pr := parquet.NewGenericReader[T](f)
	defer pr.Close()
	if n < 0 {
		n = f.NumRows() - from
	}
	if err := pr.SeekToRow(from); err != nil {
		return nil, fault.New(fault.Corrupt, op, "%w", err)
	}
	rows = make([]T, n)
	for got := 0; got < len(rows); {
		k, err := pr.Read(rows[got:])
		got += k
		if err == nil && k == 0 {
			err = io.ErrNoProgress
		}
		if err != nil && !(errors.Is(err, io.EOF) && got == len(rows)) {
			return nil, fault.New(fault.Corrupt, op, "row %d: %w", from+int64(got), err)
		}
	}
	return rows, nil
}

// Len is the number of problems of a split.
func (s *Set) Len(split Split) int { return len(s.problems[split]) }

// Problem returns what a rollout may see. Errors: Invalid (no such index).
func (s *Set) Problem(split Split, index int) (Problem, error) {
	if index < 0 || index >= len(s.problems[split]) {
		return Problem{}, fault.New(fault.Invalid, "dataset.Problem", "%s has %d problems, asked for is %d", split, len(s.problems[split]), index)
	}
	return s.problems[split][index], nil
}

// Find returns a problem by its id. Errors: NotFound.
func (s *Set) Find(id string) (Split, Problem, error) {
	for _, split := range Splits() {
		for _, p := range s.problems[split] {
			if p.ID == id {
				return split, p, nil
			}
		}
	}
	return "", Problem{}, fault.New(fault.NotFound, "dataset.Find", "no problem %q is in the splits", id)
}

// Tests reads the hidden tests of a problem, for the judge alone. Errors: Invalid (no such index), Corrupt, NotFound (the
// directory is gone).
func (s *Set) Tests(split Split, index int) ([]judge.Test, error) {
	text, err := s.testsText(split, index)
	if err != nil {
		return nil, err
	}
	tests, err := decodeTests(text)
	if err != nil {
		return nil, fault.New(fault.Corrupt, "dataset.Tests", "row %d of %s: %w", index, splitFile(split), err)
	}
	return tests, nil
}

// testsText reads the hidden tests of a problem as JSON.
func (s *Set) testsText(split Split, index int) (string, error) {
	p, err := s.Problem(split, index)
	if err != nil {
		return "", err
	}
	f, size, err := s.open(split)
	if err != nil {
		return "", err
	}
	defer f.Close()
	rows, err := readColumns[testsRow](f, size, int64(index), 1)
	if err != nil {
		return "", err
	}
	if rows[0].ID != p.ID {
		return "", fault.New(fault.Corrupt, "dataset.Tests", "row %d of %s is %q, want the tests of %q", index, splitFile(split), rows[0].ID, p.ID)
	}
	return rows[0].Tests, nil
}

// open opens the file of a split. Errors: NotFound.
func (s *Set) open(split Split) (*os.File, int64, error) {
	const op = "dataset.Tests"
	f, err := os.Open(filepath.Join(s.dir, splitFile(split)))
	if err != nil {
		return nil, 0, fault.New(fault.NotFound, op, "%w", err)
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close() // nothing was read
		return nil, 0, fault.New(fault.Internal, op, "%w", err)
	}
	return f, st.Size(), nil
}

// readDecisions reads the decisions and compares their numbers with the manifest.
func readDecisions(dir string, m Manifest) ([]decisionRow, error) {
	const op = "dataset.Open"
	rows, err := readFile[decisionRow](dir, DecisionsFile, m.Files)
	if err != nil {
		return nil, err
	}
	counts, splits := map[string]int{}, map[string]int{}
	for _, d := range rows {
		counts[d.Reason]++
		splits[d.Split]++
	}
	if len(rows) != m.Rows {
		return nil, fault.New(fault.Corrupt, op, "%d decisions, the manifest says %d rows", len(rows), m.Rows)
	}
	total := 0
	for _, c := range m.Reasons {
		if counts[c.Name] != c.Rows {
			return nil, fault.New(fault.Corrupt, op, "%d rows are decided as %s, the manifest says %d", counts[c.Name], c.Name, c.Rows)
		}
		total += c.Rows
	}
	if total != m.Rows {
		return nil, fault.New(fault.Corrupt, op, "the manifest gives reasons for %d of %d rows", total, m.Rows)
	}
	for split, want := range map[Split]int{Train: m.Train, Dev: m.Dev} {
		if splits[string(split)] != want {
			return nil, fault.New(fault.Corrupt, op, "%d rows are in the split %s, the manifest says %d", splits[string(split)], split, want)
		}
	}
	return rows, nil
}

// Eval returns the problems of a split with their hidden tests, as an evaluation needs them. Its errors are those of Tests.
func (s *Set) Eval(split Split) EvalSet {
	return func(yield func(EvalProblem, error) bool) {
		for i, p := range s.problems[split] {
			tests, err := s.Tests(split, i)
			if !yield(EvalProblem{Problem: p, Tests: tests}, err) || err != nil {
				return
			}
		}
	}
}
