package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/record"
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

// prepared is the store directory of a data set; shard files lie beside it.
func prepared(key string) string { return "datasets/" + key }

func shardFile(key string, i int) string {
	return fmt.Sprintf("datasets/%s.work/shard-%03d.jsonl", key, i)
}

func shardInput(key string, i int) string {
	return fmt.Sprintf("datasets/%s.work/shard-%03d.json", key, i)
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
		in, err := d.input(ctx, name)
		if err != nil {
			return contract.PlanDatasetResult{}, err
		}
		inputs = append(inputs, in)
	}
	settings, err := d.settings(run)
	if err != nil {
		return contract.PlanDatasetResult{}, err
	}
	text, err := json.Marshal(struct {
		Rules    int
		Inputs   []dataset.Input
		Settings map[string]string
	}{dataset.RulesVersion, inputs, settings})
	if err != nil {
		return contract.PlanDatasetResult{}, fault.New(fault.Internal, "PlanDataset", "%w", err)
	}
	res := contract.PlanDatasetResult{Key: artifact.Digest(text)[:24], Shards: run.Config.Data.Shards}
	res.Ready, err = d.Runs.Store.Exists(ctx, prepared(res.Key)+"/"+dataset.ManifestFile)
	return res, err
}

// settings are what decides about rows besides the shards and the rules.
func (d *Data) settings(run *Run) (map[string]string, error) {
	tok, err := d.Runs.Tokenizer(run)
	if err != nil {
		return nil, err
	}
	c := run.Config
	excluded := ""
	if c.Data.Exclude != "" {
		set, err := d.Assets.Excluded(c.Data.Exclude)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(set)
		if err != nil {
			return nil, fault.New(fault.Internal, "PlanDataset", "%w", err)
		}
		excluded = artifact.Digest(text)
	}
	return map[string]string{
		"tokenizer": tok.Digest(), "thinking": strconv.FormatBool(c.Rollout.Thinking), "max_prompt": strconv.Itoa(c.Rollout.MaxPrompt),
		"solution_tries": strconv.Itoa(c.Data.SolutionTries), "train": strconv.Itoa(c.Data.Train), "dev": strconv.Itoa(c.Data.Dev),
		"seed": strconv.FormatUint(c.Run.Seed, 10), "python": d.Python, "excluded": excluded,
		"limits": fmt.Sprintf("%s %s %s %s", c.Sandbox.TimeLimit, c.Sandbox.Memory, c.Sandbox.OutputLimit, c.Sandbox.JudgeBudget),
	}, nil
}

func (d *Data) input(ctx context.Context, name string) (dataset.Input, error) {
	f, _, err := d.open(name)
	if err != nil {
		return dataset.Input{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, contextReader{ctx, f})
	if err != nil {
		return dataset.Input{}, fault.New(fault.Corrupt, "PlanDataset", "%s: %w", name, err)
	}
	st, err := f.Stat()
	if err != nil {
		return dataset.Input{}, fault.New(fault.Corrupt, "PlanDataset", "%s: %w", name, err)
	}
	return dataset.Input{Name: st.Name(), SHA256: hex.EncodeToString(h.Sum(nil)), Size: n}, nil
}

type contextReader struct {
	ctx context.Context //nolint:containedctx // a reader has no other way to be stopped
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
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

// shard parses, filters and checks the references of one shard. Idempotence: by key and number; the first file stays.
func (d *Data) shard(ctx context.Context, q contract.PrepareShardRequest, b *Beat) (contract.PrepareShardResult, error) {
	run, err := d.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.PrepareShardResult{}, err
	}
	var in dataset.Input
	if _, err := artifact.GetJSON(ctx, d.Runs.Store, shardInput(q.Key, q.Shard), &in); err == nil {
		return contract.PrepareShardResult{Rows: in.Rows}, nil
	} else if !fault.Is(err, fault.NotFound) {
		return contract.PrepareShardResult{}, err
	}
	tok, err := d.Runs.Tokenizer(run)
	if err != nil {
		return contract.PrepareShardResult{}, err
	}
	name := run.Config.Data.Shards[q.Shard]
	if in, err = d.input(ctx, name); err != nil {
		return contract.PrepareShardResult{}, err
	}
	f, r, err := d.open(name)
	if err != nil {
		return contract.PrepareShardResult{}, err
	}
	defer f.Close()
	j := d.Judge(run)
	data, err := dataset.PrepareShard(ctx, r, in.Size, dataset.ShardOptions{
		Name: strings.TrimSuffix(in.Name, ".parquet"), MaxPrompt: run.Config.Rollout.MaxPrompt, Tries: run.Config.Data.SolutionTries,
		CountPrompt: func(statement string) (int, error) {
			ids, err := chat.Prompt(tok, statement, !run.Config.Rollout.Thinking)
			return len(ids), err
		},
		Run: func(ctx context.Context, code string, tests []judge.Test) (judge.Verdict, error) {
			return j.JudgeCode(ctx, code, tests)
		},
		Parallel: d.Slots,
		Progress: func(rows int) { in.Rows = rows; b.Say("%s: %d rows", name, rows) },
	})
	if err != nil {
		return contract.PrepareShardResult{}, err
	}
	if _, err := d.Runs.Store.Replace(ctx, shardFile(q.Key, q.Shard), data); err != nil {
		return contract.PrepareShardResult{}, err
	}
	_, err = artifact.ReplaceJSON(ctx, d.Runs.Store, shardInput(q.Key, q.Shard), in)
	return contract.PrepareShardResult{Rows: in.Rows}, err
}

// finish deduplicates, splits and writes the data set, and records that the run uses it. Idempotence: by key; a data set that is
// there and verifies stays. A training run refuses a set with too few problems.
func (d *Data) finish(ctx context.Context, q contract.FinishDatasetRequest, _ *Beat) (contract.DatasetResult, error) {
	run, err := d.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.DatasetResult{}, err
	}
	dir, err := d.Runs.Store.Path(prepared(q.Key))
	if err != nil {
		return contract.DatasetResult{}, err
	}
	set, err := dataset.Open(dir)
	if fault.Is(err, fault.NotFound) {
		if err := d.write(ctx, run, q); err != nil {
			return contract.DatasetResult{}, err
		}
		set, err = dataset.Open(dir)
	}
	if err != nil {
		return contract.DatasetResult{}, err
	}
	m := set.Manifest
	if c := run.Config.Data; m.Train < c.Train || m.Dev < c.Dev {
		return contract.DatasetResult{}, fault.New(fault.Invalid, "FinishDataset", "%d of %d rows are good: %d for training and %d for dev, the run wants %d and %d",
			m.Good, m.Rows, m.Train, m.Dev, c.Train, c.Dev).WithHint("add shards, or lower data.train and data.dev")
	}
	rec := record.Dataset{Dir: prepared(q.Key), Key: q.Key, Rows: m.Rows, Train: m.Train, Dev: m.Dev}
	if _, err := artifact.PutJSON(ctx, d.Runs.Store, run.Layout.Dataset(), rec); err != nil {
		return contract.DatasetResult{}, err
	}
	return contract.DatasetResult{Dir: rec.Dir, Rows: rec.Rows, Train: rec.Train, Dev: rec.Dev}, nil
}

// write makes the files of the data set; the manifest comes last and makes it whole.
func (d *Data) write(ctx context.Context, run *Run, q contract.FinishDatasetRequest) error {
	var shards [][]byte
	o := dataset.FinishOptions{Seed: run.Config.Run.Seed, Train: run.Config.Data.Train, Dev: run.Config.Data.Dev}
	var err error
	if o.Settings, err = d.settings(run); err != nil {
		return err
	}
	if run.Config.Data.Exclude != "" {
		if o.Excluded, err = d.Assets.Excluded(run.Config.Data.Exclude); err != nil {
			return err
		}
	}
	for i := range q.Shards {
		data, _, err := d.Runs.Store.Get(ctx, shardFile(q.Key, i))
		if err != nil {
			return err
		}
		var in dataset.Input
		if _, err := artifact.GetJSON(ctx, d.Runs.Store, shardInput(q.Key, i), &in); err != nil {
			return err
		}
		shards, o.Inputs = append(shards, data), append(o.Inputs, in)
	}
	files, _, err := dataset.Finish(shards, o)
	if err != nil {
		return err
	}
	last := files[dataset.ManifestFile]
	delete(files, dataset.ManifestFile)
	for name, data := range files {
		if _, err := d.Runs.Store.Replace(ctx, prepared(q.Key)+"/"+name, data); err != nil {
			return err
		}
	}
	_, err = d.Runs.Store.Replace(ctx, prepared(q.Key)+"/"+dataset.ManifestFile, last)
	return err
}
