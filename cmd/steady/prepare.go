package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/steadyrl/steady/activities"
	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/dataset/lcb"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/internal/tokenizer"
)

type datasetPrepareCmd struct {
	sandboxFlags
	Shards    []string `required:"" placeholder:"FILE,..." help:"Parquet shards in the schema of BAAI/TACO, in this order."`
	Exclude   string   `placeholder:"FILE" help:"JSON Lines of excluded problems: {\"platform\"}, {\"url\"} or {\"text\"}."`
	LCB       string   `name:"lcb" placeholder:"DIR" help:"Directory with LiveCodeBench's test.jsonl to test6.jsonl (release_v6); its problems are excluded too."`
	Tokenizer string   `required:"" type:"path" placeholder:"DIR" help:"Directory with the tokenizer.json of the model; prompts are counted with it."`
	Out       string   `required:"" type:"path" placeholder:"DIR" help:"Directory of the data set, new or empty. Unfinished work lies in DIR.work."`
	Train     int      `default:"2000" help:"Training problems."`
	Dev       int      `default:"256" help:"Dev problems."`
	Seed      uint64   `default:"42" help:"Seed of the split."`
}

// mostProblems bounds a split, as no more fit in memory.
const mostProblems = 1_000_000_000

// check wants usable flags, before anything starts.
func (c *datasetPrepareCmd) check() error {
	errs := []error{
		checkWithin("--train", c.Train, 1, mostProblems), checkWithin("--dev", c.Dev, 1, mostProblems), checkWithin("--slots", c.Slots, 0, config.MostSlots),
		checkPresent(c.Tokenizer, "the directory of a model or of its tokenizer.json"),
	}
	for _, name := range c.Shards {
		f, err := openShard(name)
		if err == nil {
			err = f.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func openShard(name string) (*os.File, error) {
	f, err := openInput(name)
	if err != nil {
		return nil, fault.New(fault.Invalid, "", "--shards: %w", err).WithHint("give Parquet files in the schema of BAAI/TACO, with commas between them")
	}
	return f, nil
}

// openInput opens a file for reading and refuses a directory, which opens too.
func openInput(name string) (*os.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || st.IsDir() {
		_ = f.Close() // nothing was read
		if err == nil {
			err = fmt.Errorf("%s is a directory", name)
		}
		return nil, err
	}
	return f, nil
}

// Run prepares the data set. What is there already stays; work that was interrupted goes on.
func (c *datasetPrepareCmd) Run(ctx context.Context, s *streams) error {
	if err := c.check(); err != nil {
		return err
	}
	defer limitMemory()()
	excluded, err := c.excluded(ctx, s)
	if err != nil {
		return err
	}
	tok, err := tokenizer.Load(c.Tokenizer)
	if err != nil {
		return err
	}
	if err := chat.CheckTokenizer(tok); err != nil {
		return err
	}
	inputs, err := c.inputs(ctx)
	if err != nil {
		return err
	}
	box, err := c.open(ctx, s.err)
	if err != nil {
		return err
	}
	defer box.Close() //nolint:errcheck // nothing runs any more
	m, err := c.prepare(ctx, s, c.recipe(tok, excluded, box), inputs)
	if err != nil {
		return err
	}
	if m.Train < c.Train || m.Dev < c.Dev {
		fmt.Fprintf(s.err, "warning: %d of %d rows are good: %d for training and %d for dev, wanted were %d and %d; a run that wants as many refuses this data set\n",
			m.Good, m.Rows, m.Train, m.Dev, c.Train, c.Dev)
	}
	if excluded != nil {
		fmt.Fprintf(s.err, "%d identities of excluded problems were compared, %d rows have one\n", m.Exclusions, m.Count(dataset.Excluded))
	}
	_, err = fmt.Fprintf(s.out, "%d rows, %d good: %d for training, %d for dev, in %s\n", m.Rows, m.Good, m.Train, m.Dev, c.Out)
	return err
}

// excluded joins the lists of excluded problems; nil without one.
func (c *datasetPrepareCmd) excluded(ctx context.Context, s *streams) (map[string]bool, error) {
	var set map[string]bool
	if c.Exclude != "" {
		f, err := openInput(c.Exclude)
		if err != nil {
			return nil, fault.New(fault.Invalid, "", "--exclude: %w", err).WithHint("give a JSON Lines file of identities, or leave it out")
		}
		defer f.Close() //nolint:errcheck // only read
		if set, err = dataset.ReadExcluded(f, "--exclude: "+c.Exclude); err != nil {
			return nil, err
		}
	}
	if c.LCB == "" {
		return set, nil
	}
	if set == nil {
		set = map[string]bool{}
	}
	before, n := len(set), 0
	err := readLCB(ctx, s, c.LCB, lcb.Options{}, func(_ string, p *lcb.Problem) error {
		n++
		dataset.Exclude(set, p.Exclusion())
		return nil
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(s.err, "%d problems of LiveCodeBench are excluded, %d new identities\n", n, len(set)-before)
	return set, nil
}

func (c *datasetPrepareCmd) inputs(ctx context.Context) ([]dataset.Input, error) {
	var inputs []dataset.Input
	for _, name := range c.Shards {
		f, err := openShard(name)
		if err != nil {
			return nil, err
		}
		in, err := dataset.ReadInput(ctx, f)
		_ = f.Close() // only read
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}

// recipe is that of a run with the default limits.
func (c *datasetPrepareCmd) recipe(tok *tokenizer.Tokenizer, excluded map[string]bool, box *sandbox.Sandbox) *dataset.Recipe {
	conf := config.Default()
	conf.Run.Seed, conf.Data.Train, conf.Data.Dev = c.Seed, c.Train, c.Dev
	j := judge.New(judge.Options{Runner: box, Budget: conf.Sandbox.JudgeBudget.Std(), Limits: activities.Limits(conf)})
	return activities.DataRecipe(conf, tok, excluded, j, box.Level().Python.Version, box.Slots())
}

// prepare does the work, unless the data set is there.
func (c *datasetPrepareCmd) prepare(ctx context.Context, s *streams, r *dataset.Recipe, inputs []dataset.Input) (dataset.Manifest, error) {
	key, err := r.Key(inputs)
	if err != nil {
		return dataset.Manifest{}, err
	}
	work, err := c.place(key)
	if work == "" || err != nil {
		m := dataset.Manifest{}
		if err == nil {
			m, err = dataset.Counts(c.Out)
		}
		return m, err
	}
	w, err := dataset.OpenWork(work)
	if err != nil {
		return dataset.Manifest{}, err
	}
	for i, name := range c.Shards {
		if err := c.shard(ctx, s, r, w, i, name, inputs[i]); err != nil {
			return dataset.Manifest{}, err
		}
	}
	m, err := r.Finish(ctx, w, c.Out, len(inputs))
	if err != nil {
		return m, err
	}
	if err := w.Remove(); err != nil {
		return m, err
	}
	_ = os.Remove(filepath.Dir(work)) // stays if the work on another data set is in it
	return m, nil
}

// place looks at the directory of the data set and returns that of the unfinished work, empty if there is nothing to do. Errors: Invalid (something else is
// there), Corrupt.
func (c *datasetPrepareCmd) place(key string) (string, error) {
	work := filepath.Join(c.Out+".work", key)
	entries, err := os.ReadDir(c.Out)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return work, nil
	}
	if err != nil {
		return "", fault.New(fault.Invalid, "", "--out: %w", err).WithHint("choose a new or empty directory with --out")
	}
	m, err := dataset.Counts(c.Out)
	if fault.Is(err, fault.Corrupt) {
		return "", err
	}
	got := ""
	if err == nil {
		got, err = m.Key()
	}
	if err != nil || got != key {
		return "", fault.New(fault.Invalid, "", "--out: %s holds something else than a data set of these shards and settings", c.Out).
			WithHint("choose a new or empty directory with --out")
	}
	return "", nil
}

// shard does the work on one shard and says how far it is.
func (c *datasetPrepareCmd) shard(ctx context.Context, s *streams, r *dataset.Recipe, w *dataset.Work, i int, name string, in dataset.Input) error {
	f, err := openShard(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	const often = 200
	next := often
	done, err := r.Shard(ctx, w, i, in, f, func(rows int) {
		if rows >= next {
			next = rows - rows%often + often
			fmt.Fprintf(s.err, "shard %d of %d, %s: %d rows\n", i+1, len(c.Shards), in.Name, rows)
		}
	})
	if err == nil {
		fmt.Fprintf(s.err, "shard %d of %d, %s: all %d rows\n", i+1, len(c.Shards), in.Name, done.Rows)
	}
	return err
}
