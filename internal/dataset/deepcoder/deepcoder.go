package deepcoder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/dataset/textcol"
	"github.com/steadyrl/steady/internal/fault"
)

// Config names a configuration.
type Config string

// The configurations. All but LCB are told by their columns or by the shape of their tests; LCB alone has starter code.
const (
	PrimeIntellect Config = "primeintellect" // solutions, and tests as a list
	TACO           Config = "taco"           // solutions, and tests as one object
	LCB            Config = "lcbv5"          // starter_code, metadata
	Codeforces     Config = "codeforces"     // neither
)

// Configs lists the configurations.
func Configs() []Config { return []Config{PrimeIntellect, TACO, LCB, Codeforces} }

// Options of Open. The zero value takes every problem that has a test.
type Options struct {
	// Config is a part of the ids. Empty: that of each file, by the name of its directory or by what is in it.
	Config Config
	// Split is a part of the ids. Empty: that of each file's name (train-00000-of-00005.parquet), else train.
	Split string
	// MinTests and MaxTests bound the number of tests of a problem, MaxTestBytes their inputs and outputs; 0 means 1, no bound and
	// MaxCell. Problems that call a function are not held against them.
	MinTests, MaxTests, MaxTestBytes int
	// MaxCell bounds a cell with tests in bytes, MaxText another cell; 0 means 512 MiB and 4 MiB.
	MaxCell, MaxText int
}

// SecondRecipe are the bounds with which a specialist was trained: 5 to 200 tests, of at most 4 MiB.
func SecondRecipe() Options { return Options{MinTests: 5, MaxTests: 200, MaxTestBytes: 4 << 20} }

// file is one of the files of a set.
type file struct {
	path   string
	config Config
	split  string
}

// Open returns the problems of Parquet files, in the order of paths and rows; a directory means its Parquet files in the order of
// their names. Ids are configuration/split/row, where row counts the rows of all files of a split, from 0. Open reads footers, and at most
// one cell of a file. While the set is ranged over, ctx can end it.
//
// A row that is no usable problem is a *dataset.RowError. Errors of Open and, if a file changes afterwards, of the set: NotFound, Invalid (not these
// columns, a bad option, a part of a split before which another one is missing), Corrupt (no Parquet file, damaged pages).
func Open(ctx context.Context, paths []string, o Options) (dataset.EvalSet, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.MaxCell == 0 {
		o.MaxCell = 512 << 20
	}
	if o.MaxText == 0 {
		o.MaxText = 4 << 20
	}
	if o.MaxTestBytes == 0 {
		o.MaxTestBytes = o.MaxCell
	}
	paths, err := expand(paths)
	if err != nil {
		return nil, err
	}
	var files []file
	parts := map[string]int{}
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := identify(ctx, path, o)
		if err != nil {
			return nil, err
		}
		if err := f.part(parts); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return func(yield func(dataset.EvalProblem, error) bool) {
		rows := map[string]int64{}
		r := &reader{ctx: ctx, o: o, yield: yield}
		for _, f := range files {
			key := string(f.config) + "/" + f.split
			n, err := r.file(f, key, rows[key])
			if errors.Is(err, errStop) {
				return
			}
			if err != nil {
				yield(dataset.EvalProblem{}, err)
				return
			}
			rows[key] += n
		}
	}, nil
}

func (o Options) check() error {
	if o.Config != "" && !slices.Contains(Configs(), o.Config) {
		return fault.New(fault.Invalid, "deepcoder.Open", "no configuration %q", o.Config).WithHint("the configurations are %v", Configs())
	}
	for _, n := range []int{o.MinTests, o.MaxTests, o.MaxTestBytes, o.MaxCell, o.MaxText} {
		if n < 0 {
			return fault.New(fault.Invalid, "deepcoder.Open", "a bound of %d", n)
		}
	}
	if o.MaxTests > 0 && o.MinTests > o.MaxTests {
		return fault.New(fault.Invalid, "deepcoder.Open", "at least %d and at most %d tests", o.MinTests, o.MaxTests)
	}
	return nil
}

// expand puts the Parquet files of directories in their place.
func expand(paths []string) ([]string, error) {
	const hint = "give Parquet files of DeepCoder-Preview-Dataset, or the directory of one of its configurations"
	var out []string
	for _, path := range paths {
		st, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fault.New(fault.NotFound, "deepcoder.Open", "%w", err).WithHint(hint)
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, "deepcoder.Open", "%w", err).WithHint(hint)
		}
		if !st.IsDir() {
			out = append(out, path)
			continue
		}
		found, err := filepath.Glob(filepath.Join(escapeGlob(path), "*.parquet"))
		if err != nil || len(found) == 0 {
			return nil, fault.New(fault.NotFound, "deepcoder.Open", "%s has no file *.parquet", path).WithHint(hint)
		}
		out = append(out, found...)
	}
	if len(out) == 0 {
		return nil, fault.New(fault.Invalid, "deepcoder.Open", "no file").WithHint(hint)
	}
	return out, nil
}

// escapeGlob makes a path match itself alone.
func escapeGlob(path string) string {
	return regexp.MustCompile(`[*?\[\\]`).ReplaceAllString(path, `\$0`)
}

// partName is the name of a part of a split, as the data set's files have it.
var partName = regexp.MustCompile(`^([A-Za-z0-9_]+)-(\d+)-of-\d+\.parquet$`)

// part wants the parts of a split in their order, because ids count rows over all of them.
func (f *file) part(seen map[string]int) error {
	key := string(f.config) + "/" + f.split
	m := partName.FindStringSubmatch(filepath.Base(f.path))
	if m == nil {
		return nil
	}
	if n, err := strconv.Atoi(m[2]); err != nil || n != seen[key] {
		return fault.New(fault.Invalid, "deepcoder.Open", "%s is given as part %d of %s", f.path, seen[key], key).
			WithHint("give the parts of a split in their order and from the first one on: the number of a row counts over all parts")
	}
	seen[key]++
	return nil
}

// problem makes a problem of a row, or says why it is none.
func (o Options) problem(id string, r row) (dataset.EvalProblem, error) {
	p := dataset.EvalProblem{Problem: dataset.Problem{ID: id}}
	refused := func(reason dataset.Reason, format string, args ...any) (dataset.EvalProblem, error) {
		return p, &dataset.RowError{ID: id, Reason: reason, Evidence: fmt.Sprintf(format, args...)}
	}
	for _, c := range []textcol.Cell{r.problem, r.starter, r.fnName} {
		if len(c.Text) > o.MaxText {
			return refused(dataset.CellTooLarge, "a cell of %d bytes, the limit is %d", len(c.Text), o.MaxText)
		}
	}
	switch text := string(r.problem.Text); {
	case strings.TrimSpace(text) == "":
		return refused(dataset.BadStatement, "null or blank")
	case !utf8.ValidString(text):
		return refused(dataset.BadStatement, "not UTF-8")
	case strings.ContainsRune(text, 0):
		return refused(dataset.BadStatement, "a NUL character")
	}
	if r.tests.Null {
		return refused(dataset.BadTests, "null")
	}
	if len(r.tests.Text) > o.MaxCell {
		return refused(dataset.CellTooLarge, "tests of %d bytes, the limit is %d", len(r.tests.Text), o.MaxCell)
	}
	c, err := decode(r.tests.Text, limits{o.MaxTests, o.MaxTestBytes})
	if no, ok := errors.AsType[*refusal](err); ok {
		return refused(no.reason, "%s", no.evidence)
	}
	if err != nil {
		return p, err
	}
	name := strings.TrimSpace(string(r.fnName.Text))
	if name == "" {
		name = c.fnName
	}
	if name == "" && (c.function || strings.TrimSpace(string(r.starter.Text)) != "") {
		name = dataset.UnknownFn
	}
	if name == "" && c.stored < max(o.MinTests, 1) {
		return refused(dataset.NoTests, "%d tests", c.stored)
	}
	p.Statement, p.HiddenTests, p.FnName, p.Source = string(r.problem.Text), c.stored, name, "deepcoder"
	if name == "" {
		p.Tests = c.tests
	}
	return p, nil
}
