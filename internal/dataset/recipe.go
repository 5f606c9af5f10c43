package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

// Recipe is everything besides the shards and the rules that decides about rows, and how the work is done. The command and the
// workflow prepare a data set by the same recipe: Key, Shard for every shard, Finish.
type Recipe struct {
	Seed       uint64
	Train, Dev int // problems wanted
	MaxPrompt  int // tokens, tool schema included
	Tries      int // reference solutions tried
	Thinking   bool
	Tokenizer  string // digest
	Python     string // version of the interpreter
	Limits     string // of a judged program, in words
	// Excluded are identities that must not appear (ReadExcluded). Nil: no list.
	Excluded map[string]bool

	// CountPrompt returns the tokens of the prompt of a statement.
	CountPrompt func(statement string) (int, error)
	// Run judges a program on all tests. An error is an infrastructure fault: it ends the work, it never counts as a failed reference.
	Run func(ctx context.Context, code string, tests []judge.Test) (judge.Verdict, error)
	// Parallel is the number of rows checked side by side; 0 means 1. It decides nothing.
	Parallel int
}

// settings are the recipe as the manifest has it.
func (r *Recipe) settings() (map[string]string, error) {
	excluded := ""
	if r.Excluded != nil {
		text, err := json.Marshal(r.Excluded) // keys are sorted
		if err != nil {
			return nil, fault.New(fault.Internal, "dataset.Recipe", "%w", err)
		}
		excluded = artifact.Digest(text)
	}
	return map[string]string{
		"tokenizer": r.Tokenizer, "thinking": strconv.FormatBool(r.Thinking), "max_prompt": strconv.Itoa(r.MaxPrompt),
		"solution_tries": strconv.Itoa(r.Tries), "train": strconv.Itoa(r.Train), "dev": strconv.Itoa(r.Dev),
		"seed": strconv.FormatUint(r.Seed, 10), "python": r.Python, "excluded": excluded, "limits": r.Limits,
	}, nil
}

// Key names the data set that comes out: a digest of the rules, the shards and the recipe. Errors: Invalid (two shards of one
// name, whose rows would have the same ids).
func (r *Recipe) Key(inputs []Input) (string, error) {
	settings, err := r.settings()
	if err != nil {
		return "", err
	}
	return key(RulesVersion, inputs, settings)
}

func key(rules int, inputs []Input, settings map[string]string) (string, error) {
	names := map[string]bool{}
	plain := make([]Input, len(inputs))
	for i, in := range inputs {
		if names[in.Name] {
			return "", fault.New(fault.Invalid, "dataset.Key", "two shards have the name %s", in.Name).
				WithHint("name every shard once; shards of other directories need names of their own")
		}
		names[in.Name] = true
		plain[i] = in
		plain[i].Rows = 0 // not known before the work
	}
	text, err := json.Marshal(struct {
		Rules    int
		Inputs   []Input
		Settings map[string]string
	}{rules, plain, settings})
	if err != nil {
		return "", fault.New(fault.Internal, "dataset.Key", "%w", err)
	}
	return artifact.Digest(text)[:24], nil
}

// Key is that of the recipe and the shards that the manifest is of. Errors: as Recipe.Key.
func (m *Manifest) Key() (string, error) { return key(m.RulesVersion, m.Inputs, m.Settings) }

// Shard does the work on one shard. progress hears of the number of finished rows; it may be nil. Idempotence and errors: as
// Work.Shard.
func (r *Recipe) Shard(ctx context.Context, w *Work, shard int, in Input, at io.ReaderAt, progress func(rows int)) (Input, error) {
	return w.Shard(ctx, shard, in, at, ShardOptions{
		Name: strings.TrimSuffix(in.Name, ".parquet"), MaxPrompt: r.MaxPrompt, Tries: r.Tries, CountPrompt: r.CountPrompt, Run: r.Run,
		Parallel: r.Parallel, Progress: progress,
	})
}

// Finish writes the data set. Idempotence and errors: as Work.Finish.
func (r *Recipe) Finish(ctx context.Context, w *Work, dir string, shards int) (Manifest, error) {
	settings, err := r.settings()
	if err != nil {
		return Manifest{}, err
	}
	return w.Finish(ctx, dir, shards, FinishOptions{Seed: r.Seed, Train: r.Train, Dev: r.Dev, Excluded: r.Excluded, Settings: settings})
}

// ReadInput reads a shard to its end for its digest. Errors: Corrupt (it cannot be read), and the context's.
func ReadInput(ctx context.Context, f fs.File) (Input, error) {
	const op = "dataset.ReadInput"
	st, err := f.Stat()
	if err != nil {
		return Input{}, fault.New(fault.Corrupt, op, "%w", err)
	}
	h := sha256.New()
	n, err := io.Copy(h, ContextReader(ctx, f))
	if ctx.Err() != nil {
		return Input{}, ctx.Err()
	}
	if err != nil {
		return Input{}, fault.New(fault.Corrupt, op, "%s: %w", st.Name(), err)
	}
	return Input{Name: st.Name(), SHA256: hex.EncodeToString(h.Sum(nil)), Size: n}, nil
}

// ContextReader reads from r until ctx ends.
func ContextReader(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

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
