package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/steadyrl/steady/internal/dataset/textcol"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

// ShardOptions configure the work on a shard. Everything but Parallel and Progress can change a decision.
type ShardOptions struct {
	Name      string // the shard's name without .parquet; part of ids
	MaxPrompt int    // tokens, tool schema included
	MinTests  int    // 0 means 1
	MaxCell   int    // bytes; 0 means 64 MiB
	Tries     int    // reference solutions tried
	// CountPrompt returns the tokens of the prompt of a statement. Nil: no rule about length.
	CountPrompt func(statement string) (int, error)
	// Run judges a program on all tests. An error is an infrastructure fault: it ends the work, it never counts as a failed reference.
	Run      func(ctx context.Context, code string, tests []judge.Test) (judge.Verdict, error)
	Parallel int            // rows checked side by side; 0 means 1
	Progress func(rows int) // hears of finished rows; may be nil
}

// Checked is a row after the rules of a shard: its decision so far and, if kept, the problem with its hidden tests.
type Checked struct {
	Decision Decision     `json:"decision"`
	Problem  *Problem     `json:"problem,omitempty"`
	Tests    []judge.Test `json:"-"`
	place    place        // of the tests in the files of a Work
}

// checkRows applies the rules that need only a row and checks references, for the rows from number from on. It gives the rows
// to emit in their order, and returns the number of the row after the last.
//
// Determinism: a function of the shard and the options. Errors: Corrupt (not a Parquet file of these columns, naming the
// shard), Infrastructure, those of emit, and the context's.
func checkRows(ctx context.Context, r io.ReaderAt, size, from int64, o ShardOptions, emit func(Checked) error) (int64, error) {
	if o.MaxCell == 0 {
		o.MaxCell = defaultMaxCell
	}
	g, ctx := errgroup.WithContext(ctx)
	parallel := max(o.Parallel, 1)
	type job struct {
		size int64
		done chan Checked
	}
	jobs := make(chan job, 16*parallel) // in the order of rows
	slots := make(chan struct{}, parallel)
	memory := semaphore.NewWeighted(atOnceBytes)
	at, finished := from, from
	g.Go(func() error {
		defer close(jobs)
		return readRows(r, size, from, o.Name, func(row *Row) error {
			j, n := job{min(int64(row.bytes()), atOnceBytes), make(chan Checked, 1)}, at
			at++
			if err := memory.Acquire(ctx, j.size); err != nil {
				return err
			}
			for _, err := range []error{send(ctx, jobs, j), send(ctx, slots, struct{}{})} {
				if err != nil {
					return err
				}
			}
			g.Go(func() error {
				c, err := check(ctx, row, n, o)
				<-slots
				if err == nil {
					j.done <- c
				}
				return err
			})
			return nil
		})
	})
	g.Go(func() error {
		for j := range jobs {
			var c Checked
			select {
			case c = <-j.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := emit(c); err != nil {
				return err
			}
			memory.Release(j.size)
			if finished++; o.Progress != nil {
				o.Progress(int(finished))
			}
		}
		return nil
	})
	err := g.Wait()
	return finished, err
}

// send sends, unless the context ends before.
func send[T any](ctx context.Context, to chan<- T, v T) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// defaultMaxCell is ShardOptions.MaxCell if it is 0, in bytes.
const defaultMaxCell = 64 << 20

// atOnceBytes bounds the cells of the rows that are in memory together, if more than one is.
const atOnceBytes = 32 << 20

// readRows reads one row after the other from row from on, so that a shard of hundreds of megabytes is never in memory whole.
func readRows(r io.ReaderAt, size, from int64, name string, each func(*Row) error) error {
	const op = "dataset.PrepareShard"
	f, columns, err := openColumns(r, size, name)
	if err != nil {
		return err
	}
	// A usable row has a byte at least, so more rows than bytes are a lie of the footer.
	if n := f.NumRows(); n < 0 || n > size {
		return fault.New(fault.Corrupt, op, "%s promises %d rows in %d bytes", name, n, size)
	}
	if from < 0 || from > f.NumRows() {
		return fault.New(fault.Corrupt, op, "%s has %d rows, the work went on from row %d", name, f.NumRows(), from)
	}
	left := f.NumRows() - from
	err = textcol.Scan(f, columns, from, func(cells []textcol.Cell) error {
		if left--; left < 0 {
			return fault.New(fault.Corrupt, op, "%s has more rows than the %d of its footer", name, f.NumRows())
		}
		row := new(Row)
		for i, at := range row.places() {
			if !cells[i].Null {
				text := string(cells[i].Text)
				*at = &text
			}
		}
		return each(row)
	})
	if err == nil && left > 0 {
		err = &textcol.DamageError{Err: fmt.Errorf("%d rows of the footer are not there", left)}
	}
	if damage, ok := errors.AsType[*textcol.DamageError](err); ok {
		return fault.New(fault.Corrupt, op, "%s: %w", name, damage).WithHint("fetch the shard again")
	}
	return err
}

// openColumns opens a shard and finds the columns of a row, in the order of Row.places. Those without which no row can be judged
// have to be there; the others may be missing, which is like null. What is there must be text.
func openColumns(r io.ReaderAt, size int64, name string) (f *parquet.File, columns []*textcol.Column, err error) {
	const op = "dataset.PrepareShard"
	defer func() {
		if p := recover(); p != nil { // the Parquet reader on a bad footer
			err = fault.New(fault.Corrupt, op, "%s: %v", name, p)
		}
	}()
	f, err = textcol.Open(r, size)
	if err != nil {
		return nil, nil, fault.New(fault.Corrupt, op, "%s is no readable Parquet file: %w", name, err).WithHint("fetch the shard again")
	}
	for _, column := range columnNames {
		c, err := textcol.Find(f, column)
		if err == nil && c == nil && slices.Contains([]string{"question", "solutions", "input_output", "starter_code"}, column) {
			err = fmt.Errorf("no column %s", column)
		}
		if err != nil {
			return nil, nil, fault.New(fault.Corrupt, op, "%s: %w", name, err).WithHint("give shards in the schema of BAAI/TACO")
		}
		columns = append(columns, c)
	}
	return f, columns, nil
}

// check applies every rule of a shard to a row.
func check(ctx context.Context, r *Row, at int64, o ShardOptions) (Checked, error) {
	id := rowID(o.Name, at)
	out := Checked{Decision: Decision{Shard: o.Name, Row: at, ID: id, Source: clip(value(r.Source))}}
	c, reason, evidence := parse(r, o)
	if reason == Kept && o.CountPrompt != nil {
		n, err := o.CountPrompt(c.problem.Statement)
		if err != nil {
			return out, err
		}
		if n > o.MaxPrompt {
			reason, evidence = PromptTooLong, fmt.Sprintf("%d tokens, the limit is %d", n, o.MaxPrompt)
		}
	}
	if reason == Kept {
		var err error
		if reason, evidence, err = reference(ctx, c, o); err != nil {
			return out, err
		}
	}
	out.Decision.Reason, out.Decision.Evidence = reason, evidence
	if reason == Kept {
		c.problem.ID = id
		out.Problem, out.Tests = &c.problem, c.tests
	}
	return out, nil
}

// reference tries solutions in order until one passes all tests. A second program that runs cleanly on all tests but
// agrees with only some outputs hints at more than one right output.
func reference(ctx context.Context, c candidate, o ShardOptions) (Reason, string, error) {
	disagrees := ""
	last := ""
	for i, code := range c.solutions[:min(len(c.solutions), max(o.Tries, 1))] {
		v, err := o.Run(ctx, code, c.tests)
		if err != nil {
			return "", "", err
		}
		if v.Solved() {
			if disagrees != "" {
				return ReferencesDisagree, disagrees, nil
			}
			return Kept, fmt.Sprintf("solution %d passes %d tests", i, v.Total), nil
		}
		last = fmt.Sprintf("solution %d: %s, %d of %d tests", i, v.Kind, v.Passed, v.Total)
		if disagrees == "" && v.Passed > 0 && onlyWrong(v) {
			disagrees = last
		}
	}
	return ReferenceFailed, last, nil
}

// onlyWrong reports whether a program ran cleanly on every test and was wrong on some.
func onlyWrong(v judge.Verdict) bool {
	for _, t := range v.Tests {
		if t.Kind != judge.Accepted && t.Kind != judge.WrongAnswer {
			return false
		}
	}
	return v.Total > 0
}
