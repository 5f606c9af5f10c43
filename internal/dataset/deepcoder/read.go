package deepcoder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/dataset/textcol"
	"github.com/steadyrl/steady/internal/fault"
)

// row has the cells that an evaluation needs. Their memory is the pages', until the next row is read.
type row struct{ problem, starter, fnName, tests textcol.Cell }

// source is an open file and its columns, of which those that it does not have are nil.
type source struct {
	path                            string
	in                              *os.File
	file                            *parquet.File
	problem, starter, fnName, tests *textcol.Column
	solutions                       bool
}

// openSource opens a file and wants text in its columns. Errors: NotFound, Corrupt, Invalid (other columns).
func openSource(path string) (s *source, err error) {
	const op = "deepcoder.Open"
	in, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.NotFound, op, "%w", err)
	}
	defer func() {
		if p := recover(); p != nil { // the Parquet reader on a bad footer
			err = fault.New(fault.Corrupt, op, "%s: %v", path, p)
		}
		if err != nil {
			_ = in.Close() // nothing was read
		}
	}()
	st, err := in.Stat()
	if err != nil {
		return nil, fault.New(fault.Internal, op, "%w", err)
	}
	s = &source{path: path, in: in}
	s.file, err = textcol.Open(in, st.Size())
	if err != nil {
		return nil, fault.New(fault.Corrupt, op, "%s is no readable Parquet file: %w", path, err).WithHint("fetch the file again")
	}
	if err := s.find(); err != nil {
		return nil, fault.New(fault.Invalid, op, "%s: %w", path, err).WithHint("give Parquet files of DeepCoder-Preview-Dataset")
	}
	return s, nil
}

func (s *source) close() { _ = s.in.Close() } // only read

// find finds the columns.
func (s *source) find() error {
	for _, c := range []struct {
		to   **textcol.Column
		path []string
	}{{&s.problem, []string{"problem"}}, {&s.tests, []string{"tests"}}, {&s.starter, []string{"starter_code"}}, {&s.fnName, []string{"metadata", "func_name"}}} {
		var err error
		if *c.to, err = textcol.Find(s.file, c.path...); err != nil {
			return err
		}
	}
	for _, f := range s.file.Schema().Fields() {
		s.solutions = s.solutions || f.Name() == "solutions"
	}
	switch {
	case s.problem == nil:
		return errors.New("no column problem")
	case s.tests == nil:
		return errors.New("no column tests")
	}
	return nil
}

// scan gives the rows to each. Errors: Corrupt, those of each, the context's.
func (s *source) scan(ctx context.Context, each func(row) error) error {
	err := textcol.Scan(s.file, []*textcol.Column{s.problem, s.starter, s.fnName, s.tests}, 0, func(cells []textcol.Cell) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return each(row{cells[0], cells[1], cells[2], cells[3]})
	})
	if damage, ok := errors.AsType[*textcol.DamageError](err); ok {
		return fault.New(fault.Corrupt, "deepcoder.Open", "%s: %w", s.path, damage).WithHint("fetch the file again")
	}
	return err
}

// identify says to which configuration and split a file belongs.
func identify(ctx context.Context, path string, o Options) (file, error) {
	out := file{path: path, config: o.Config, split: o.Split}
	if m := partName.FindStringSubmatch(filepath.Base(path)); m != nil && out.split == "" {
		out.split = m[1]
	}
	if out.split == "" {
		out.split = string(dataset.Train)
	}
	s, err := openSource(path)
	if err != nil {
		return out, err
	}
	defer s.close()
	dir := Config(filepath.Base(filepath.Dir(path)))
	switch {
	case out.config != "":
	case slices.Contains(Configs(), dir):
		out.config = dir
	case s.starter != nil || s.fnName != nil:
		out.config = LCB
	case !s.solutions:
		out.config = Codeforces
	default:
		out.config, err = s.shape(ctx)
	}
	return out, err
}

// shape tells two configurations by their first cell of tests.
func (s *source) shape(ctx context.Context) (Config, error) {
	out := PrimeIntellect
	only := *s
	only.problem, only.starter, only.fnName = nil, nil, nil
	err := only.scan(ctx, func(r row) error {
		text := bytes.TrimSpace(r.tests.Text)
		if len(text) == 0 {
			return nil
		}
		if text[0] == '{' {
			out = TACO
		}
		return errStop
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return out, err
}

// errStop ends the work without being an error.
var errStop = errors.New("stop")

// reader yields the problems of files.
type reader struct {
	ctx     context.Context //nolint:containedctx // lives as long as one range over the set
	o       Options
	yield   func(dataset.EvalProblem, error) bool
	yielded int
}

// file yields the problems of a file, whose rows have numbers from first on, and returns the number of its rows. Errors: errStop.
func (r *reader) file(in file, key string, first int64) (n int64, err error) {
	s, err := openSource(in.path)
	if err != nil {
		return 0, err
	}
	defer s.close()
	err = s.scan(r.ctx, func(cells row) error {
		p, err := r.o.problem(fmt.Sprintf("%s/%05d", key, first+n), cells)
		n++
		if _, ok := errors.AsType[*dataset.RowError](err); err != nil && !ok {
			return err
		}
		if err == nil {
			p.Index = r.yielded
			r.yielded++
		}
		if !r.yield(p, err) {
			return errStop
		}
		return nil
	})
	return n, err
}
