package activities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// Data is the role that prepares data sets.
type Data struct {
	Runs   *Runs
	Notes  *Notes
	Assets Assets
	Judge  func(*Run) Judger
	Slots  int    // programs that run at once
	Python string // version of the interpreter
}

// Register binds the activities of the role.
func (d *Data) Register(w contract.Registry) {
	contract.PlanDatasetActivity.Register(w, guard(d.Notes, d.plan))
	contract.PrepareShardActivity.Register(w, guard(d.Notes, d.shard))
	contract.FinishDatasetActivity.Register(w, guard(d.Notes, d.finish))
}

// prepared is the store directory of a data set; its unfinished work lies beside it.
func prepared(key string) string { return "datasets/" + key }

func unfinished(key string) string { return prepared(key) + ".work" }

// work opens the unfinished work on a data set.
func (d *Data) work(key string) (*dataset.Work, error) {
	dir, err := d.Runs.Store.Path(unfinished(key))
	if err != nil {
		return nil, err
	}
	return dataset.OpenWork(dir)
}

// plan digests the shards and the settings that decide about rows into a key. Idempotence: a function of its input.
func (d *Data) plan(ctx context.Context, q contract.PlanDatasetRequest, b *Beat) (contract.PlanDatasetResult, error) {
	run, err := d.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.PlanDatasetResult{}, err
	}
	if err := pythonFits(run, d.Python); err != nil {
		return contract.PlanDatasetResult{}, err
	}
	var inputs []dataset.Input
	for _, name := range run.Config.Data.Shards {
		b.Say("digest of %s", name)
		f, _, err := d.open(name)
		if err != nil {
			return contract.PlanDatasetResult{}, err
		}
		in, err := dataset.ReadInput(ctx, f)
		_ = f.Close() // only read
		if err != nil {
			return contract.PlanDatasetResult{}, err
		}
		inputs = append(inputs, in)
	}
	recipe, err := d.recipe(run)
	if err != nil {
		return contract.PlanDatasetResult{}, err
	}
	res := contract.PlanDatasetResult{Shards: run.Config.Data.Shards}
	if res.Key, err = recipe.Key(inputs); err != nil {
		return contract.PlanDatasetResult{}, err
	}
	res.Ready, err = tidyDataset(ctx, d.Runs.Store, res.Key)
	return res, err
}

// tidyDataset says whether a data set is ready, and removes the unfinished work on one that is: an attempt that was cut off and went on behind the one
// that finished the set may have written there again.
func tidyDataset(ctx context.Context, store artifact.Store, key string) (ready bool, err error) {
	ready, err = store.Exists(ctx, prepared(key)+"/"+dataset.ManifestFile)
	if err != nil || !ready {
		return false, err
	}
	return true, store.Remove(ctx, unfinished(key))
}

// recipe is how the data of a run is prepared.
func (d *Data) recipe(run *Run) (*dataset.Recipe, error) {
	tok, err := d.Runs.Tokenizer(run)
	if err != nil {
		return nil, err
	}
	var excluded map[string]bool
	if run.Config.Data.Exclude != "" {
		if excluded, err = d.Assets.Excluded(run.Config.Data.Exclude); err != nil {
			return nil, err
		}
	}
	return DataRecipe(run.Config, tok, excluded, d.Judge(run), d.Python, d.Slots), nil
}

// DataRecipe is how data is prepared under a configuration; python is the version of the judge's interpreter.
func DataRecipe(c *config.Config, tok *tokenizer.Tokenizer, excluded map[string]bool, j CodeJudge, python string, slots int) *dataset.Recipe {
	return &dataset.Recipe{
		Seed: c.Run.Seed, Train: c.Data.Train, Dev: c.Data.Dev, MaxPrompt: c.Rollout.MaxPrompt, Tries: c.Data.SolutionTries,
		Thinking: c.Rollout.Thinking, Tokenizer: tok.Digest(), Python: python, Excluded: excluded, Parallel: slots,
		Limits: fmt.Sprintf("%s %s %s %s", c.Sandbox.TimeLimit, c.Sandbox.Memory, c.Sandbox.OutputLimit, c.Sandbox.JudgeBudget),
		CountPrompt: func(statement string) (int, error) {
			ids, err := chat.Prompt(tok, statement, !c.Rollout.Thinking)
			return len(ids), err
		},
		Run: j.JudgeCode,
	}
}

// CodeJudge runs a program on tests; *judge.Judge is one.
type CodeJudge interface {
	JudgeCode(ctx context.Context, code string, tests []judge.Test) (judge.Verdict, error)
}

// open opens a shard for reading at any place.
func (d *Data) open(name string) (fs.File, io.ReaderAt, error) {
	f, err := d.Assets.OpenShard(name)
	if err != nil {
		return nil, nil, err
	}
	r, ok := f.(io.ReaderAt)
	if !ok {
		return nil, nil, fault.New(fault.Internal, "PrepareShard", "%s cannot be read at any place", name)
	}
	return f, r, nil
}

// shard parses, filters and checks the references of one shard. Idempotence: by key and number; rows that were finished by an
// earlier attempt stay.
func (d *Data) shard(ctx context.Context, q contract.PrepareShardRequest, b *Beat) (contract.PrepareShardResult, error) {
	run, err := d.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.PrepareShardResult{}, err
	}
	var done dataset.Input
	if _, err := artifact.GetJSON(ctx, d.Runs.Store, unfinished(q.Key)+"/"+dataset.ShardFile(q.Shard), &done); err == nil || !fault.Is(err, fault.NotFound) {
		return contract.PrepareShardResult{Rows: done.Rows}, err
	}
	set, err := d.openSet(ctx, q.Key)
	if err == nil && q.Shard < len(set.Manifest.Inputs) { // by another run, meanwhile
		return contract.PrepareShardResult{Rows: set.Manifest.Inputs[q.Shard].Rows}, nil
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return contract.PrepareShardResult{}, err
	}
	w, err := d.work(q.Key)
	if err != nil {
		return contract.PrepareShardResult{}, err
	}
	if in, err := w.Done(ctx, q.Shard); err == nil || !fault.Is(err, fault.NotFound) {
		if err == nil {
			err = d.share(ctx, q.Key, q.Shard, in)
		}
		return contract.PrepareShardResult{Rows: in.Rows}, err
	}
	recipe, err := d.recipe(run)
	if err != nil {
		return contract.PrepareShardResult{}, err
	}
	name := run.Config.Data.Shards[q.Shard]
	f, r, err := d.open(name)
	if err != nil {
		return contract.PrepareShardResult{}, err
	}
	defer f.Close()
	in, err := dataset.ReadInput(ctx, f)
	if err == nil {
		in, err = recipe.Shard(ctx, w, q.Shard, in, r, func(rows int) { b.Say("%s: %d rows", name, rows) })
	}
	if err == nil {
		err = d.share(ctx, q.Key, q.Shard, in)
	}
	// A late attempt, of which nobody waits for the result, is over as well; what it left is not.
	_, left := tidyDataset(context.WithoutCancel(ctx), d.Runs.Store, q.Key)
	return contract.PrepareShardResult{Rows: in.Rows}, errors.Join(err, left)
}

// share puts a finished shard into the store, where it lies already if the store is one of files. Its record comes last.
func (d *Data) share(ctx context.Context, key string, shard int, in dataset.Input) error {
	if in.Rows > 0 {
		err := d.Runs.Store.Build(ctx, unfinished(key)+"/"+dataset.ShardDir(shard), func(string) error { return nil })
		if err != nil {
			return err
		}
	}
	_, err := artifact.PutJSON(ctx, d.Runs.Store, unfinished(key)+"/"+dataset.ShardFile(shard), in)
	return err
}

// gather brings the finished shards here, whichever host prepared them.
func (d *Data) gather(ctx context.Context, w *dataset.Work, key string, shards int) error {
	for i := range shards {
		var in dataset.Input
		if _, err := artifact.GetJSON(ctx, d.Runs.Store, unfinished(key)+"/"+dataset.ShardFile(i), &in); err != nil {
			return err
		}
		if in.Rows > 0 {
			if _, err := d.Runs.Store.Pull(ctx, unfinished(key)+"/"+dataset.ShardDir(i)); err != nil {
				return err
			}
		}
		if err := w.Adopt(ctx, i, in); err != nil {
			return err
		}
	}
	return nil
}

// finish deduplicates, splits and writes the data set, and records that the run uses it. Idempotence: by key; a data set that is
// there and verifies stays. A training run refuses a set with too few problems.
func (d *Data) finish(ctx context.Context, q contract.FinishDatasetRequest, _ *Beat) (contract.DatasetResult, error) {
	run, err := d.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.DatasetResult{}, err
	}
	set, err := d.openSet(ctx, q.Key)
	if fault.Is(err, fault.NotFound) {
		err = d.Runs.Store.Build(ctx, prepared(q.Key), func(dir string) error { return d.write(ctx, run, q, dir) })
		if err == nil {
			set, err = d.openSet(ctx, q.Key)
		}
	}
	if err != nil {
		return contract.DatasetResult{}, err
	}
	// Also that of an attempt that was killed behind the data set's appearance.
	if _, err := tidyDataset(ctx, d.Runs.Store, q.Key); err != nil {
		return contract.DatasetResult{}, err
	}
	crashpoint.Here("data.work.after")
	m := set.Manifest
	if c := run.Config.Data; m.Train < c.Train || m.Dev < c.Dev {
		return contract.DatasetResult{}, fault.New(fault.Invalid, "FinishDataset", "%d of %d rows are good: %d for training and %d for dev, the run wants %d and %d",
			m.Good, m.Rows, m.Train, m.Dev, c.Train, c.Dev).WithHint("add shards, or lower data.train and data.dev")
	}
	rec := record.Dataset{Dir: prepared(q.Key), Key: q.Key, Rows: m.Rows, Train: m.Train, Dev: m.Dev}
	crashpoint.Here("data.record.before")
	if _, err := artifact.PutJSON(ctx, d.Runs.Store, run.Layout.Dataset(), rec); err != nil {
		return contract.DatasetResult{}, err
	}
	crashpoint.Here("data.record.after")
	return contract.DatasetResult{Dir: rec.Dir, Rows: rec.Rows, Train: rec.Train, Dev: rec.Dev}, nil
}

// openSet opens the data set of a key. Errors: NotFound, Corrupt.
func (d *Data) openSet(ctx context.Context, key string) (*dataset.Set, error) {
	dir, err := d.Runs.Store.Pull(ctx, prepared(key))
	if err != nil {
		return nil, err
	}
	return dataset.Open(dir)
}

// write makes the data set appear.
func (d *Data) write(ctx context.Context, run *Run, q contract.FinishDatasetRequest, dir string) error {
	w, err := d.work(q.Key)
	if err != nil {
		return err
	}
	if err := d.gather(ctx, w, q.Key, q.Shards); err != nil {
		return err
	}
	recipe, err := d.recipe(run)
	if err != nil {
		return err
	}
	_, err = recipe.Finish(ctx, w, dir, q.Shards)
	return err
}
