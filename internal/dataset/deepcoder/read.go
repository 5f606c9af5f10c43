package deepcoder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
)

// value is a cell of text. Its memory is the page's, until the next row is read.
type value struct {
	text []byte
	null bool // or in a column that the file does not have
}

// row has the cells that an evaluation needs.
type row struct{ problem, starter, fnName, tests value }

// columns are the numbers of the leaf columns, negative for one that is not there.
type columns struct{ problem, starter, fnName, tests, solutions int }

// columnsOf finds the columns of a file and wants text in them.
func columnsOf(schema *parquet.Schema) (c columns, err error) {
	find := func(want bool, path ...string) int {
		leaf, ok := schema.Lookup(path...)
		switch {
		case err != nil:
		case !ok && want:
			err = fmt.Errorf("no column %s", path[0])
		case ok && (leaf.MaxRepetitionLevel > 0 || leaf.Node.Type().Kind() != parquet.ByteArray):
			err = fmt.Errorf("the column %s is no text", path[0])
		}
		if !ok {
			return -1
		}
		return leaf.ColumnIndex
	}
	c = columns{problem: find(true, "problem"), tests: find(true, "tests"), starter: find(false, "starter_code"), fnName: find(false, "metadata", "func_name"), solutions: -1}
	for _, f := range schema.Fields() {
		switch f.Name() {
		case "solutions":
			c.solutions = 0
		case "metadata":
			if c.fnName < 0 && err == nil {
				err = errors.New("the column metadata is no struct with a text func_name")
			}
		}
	}
	return c, err
}

// with opens a Parquet file for do. The reader of Parquet may panic on pages that are not what the footer says; that is Corrupt.
func with(path string, do func(f *parquet.File, c columns) error) (err error) {
	const op = "deepcoder.Open"
	in, err := os.Open(path)
	if err != nil {
		return fault.New(fault.NotFound, op, "%w", err)
	}
	defer in.Close() //nolint:errcheck // only read
	st, err := in.Stat()
	if err != nil {
		return fault.New(fault.Internal, op, "%w", err)
	}
	defer func() {
		if p := recover(); p != nil {
			if own, ok := p.(yieldPanic); ok {
				panic(own.value)
			}
			err = fault.New(fault.Corrupt, op, "%s: %v", path, p)
		}
	}()
	f, err := parquet.OpenFile(in, st.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return fault.New(fault.Corrupt, op, "%s is no readable Parquet file: %w", path, err).WithHint("fetch the file again")
	}
	c, err := columnsOf(f.Schema())
	if err != nil {
		return fault.New(fault.Invalid, op, "%s: %w", path, err).WithHint("give Parquet files of DeepCoder-Preview-Dataset")
	}
	return do(f, c)
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
	dir := Config(filepath.Base(filepath.Dir(path)))
	err := with(path, func(f *parquet.File, c columns) (err error) {
		switch {
		case out.config != "":
		case slices.Contains(Configs(), dir):
			out.config = dir
		case c.starter >= 0 || c.fnName >= 0:
			out.config = LCB
		case c.solutions < 0:
			out.config = Codeforces
		default:
			out.config, err = shape(ctx, path, f, c)
		}
		return err
	})
	return out, err
}

// shape tells two configurations by their first cell of tests.
func shape(ctx context.Context, path string, f *parquet.File, c columns) (Config, error) {
	out := PrimeIntellect
	err := rows(ctx, path, f, columns{problem: c.tests, starter: -1, fnName: -1, tests: -1}, func(r row) error {
		if text := bytes.TrimSpace(r.problem.text); len(text) > 0 {
			if text[0] == '{' {
				out = TACO
			}
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return out, err
}

// errStop ends the work without being an error.
var errStop = errors.New("stop")

// yieldPanic carries a panic of the caller's function through the recover of with.
type yieldPanic struct{ value any }

// reader yields the problems of files.
type reader struct {
	ctx     context.Context //nolint:containedctx // lives as long as one range over the set
	o       Options
	yield   func(dataset.EvalProblem, error) bool
	yielded int
}

// file yields the problems of a file, whose rows have numbers from first on, and returns the number of its rows. Errors: errStop.
func (r *reader) file(in file, key string, first int64) (n int64, err error) {
	err = with(in.path, func(f *parquet.File, c columns) error {
		return rows(r.ctx, in.path, f, c, func(cells row) error {
			id := fmt.Sprintf("%s/%05d", key, first+n)
			n++
			p, err := r.o.problem(id, cells)
			if _, ok := errors.AsType[*dataset.RowError](err); err != nil && !ok {
				return err
			}
			if err == nil {
				p.Index = r.yielded
				r.yielded++
			}
			if !r.give(p, err) {
				return errStop
			}
			return nil
		})
	})
	return n, err
}

// give calls the caller's function, whose panics are its own.
func (r *reader) give(p dataset.EvalProblem, err error) bool {
	defer func() {
		if p := recover(); p != nil {
			panic(yieldPanic{p})
		}
	}()
	return r.yield(p, err)
}

// rows gives the rows of a file to each, by row group, column and page. Errors: Corrupt, those of each, the context's.
func rows(ctx context.Context, path string, f *parquet.File, c columns, each func(row) error) error {
	const op = "deepcoder.Open"
	for g, group := range f.RowGroups() {
		err := func() error {
			var r row
			cells := []*value{&r.problem, &r.starter, &r.fnName, &r.tests}
			cursors := make([]*cursor, len(cells))
			for i, at := range []int{c.problem, c.starter, c.fnName, c.tests} {
				cells[i].null = true
				if at >= 0 {
					cursors[i] = &cursor{pages: group.ColumnChunks()[at].Pages()}
					defer cursors[i].close()
				}
			}
			for n := range group.NumRows() {
				if err := ctx.Err(); err != nil {
					return err
				}
				for i, cur := range cursors {
					if cur == nil {
						continue
					}
					v, err := cur.next()
					if err != nil {
						return fault.New(fault.Corrupt, op, "%s: row group %d, row %d: %w", path, g, n, err).WithHint("fetch the file again")
					}
					*cells[i] = v
				}
				if err := each(r); err != nil {
					return err
				}
			}
			return nil
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

// cursor reads the cells of a column of a row group. One page is in memory.
type cursor struct {
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
}

func (c *cursor) close() {
	parquet.Release(c.page)
	_ = c.pages.Close() // only read
}

// next returns the next cell. Errors: io.ErrUnexpectedEOF, those of the Parquet reader.
func (c *cursor) next() (value, error) {
	for {
		if c.page != nil {
			var one [1]parquet.Value
			n, err := c.values.ReadValues(one[:])
			if n == 1 {
				return value{one[0].ByteArray(), one[0].IsNull()}, nil
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return value{}, err
			}
			parquet.Release(c.page)
			c.page = nil
		}
		page, err := c.pages.ReadPage()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return value{}, err
		}
		c.page, c.values = page, page.Values()
	}
}
