package workers

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/weights"
)

// assets resolves model and data paths; config.Bundled stands for the files of the program.
type assets struct{}

// modelFiles are the small files of a model directory that an export carries on; the first ones are required.
var modelFiles = []struct {
	name     string
	required bool
}{
	{weights.ConfigFile, true},
	{tokenizer.FileName, true},
	{"tokenizer_config.json", true},
	{"generation_config.json", false},
	{"chat_template.jinja", false},
	{"vocab.json", false},
	{"merges.txt", false},
	{"special_tokens_map.json", false},
	{"added_tokens.json", false},
	{"LICENSE", false},
}

// modelFS returns the files of a model directory.
func modelFS(dir string) (fs.FS, error) {
	if dir == config.Bundled {
		return demo.Model(), nil
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, fault.New(fault.Invalid, "workers.assets", "model.path %q is no directory", dir).
			WithHint("give a model directory in Hugging Face layout, or %q", config.Bundled)
	}
	return os.DirFS(dir), nil
}

// CheckModel implements activities.Assets.
func (assets) CheckModel(ctx context.Context, dir string) error {
	files, err := modelFS(dir)
	if err != nil {
		return err
	}
	var found []error
	for _, f := range modelFiles {
		if _, err := fs.Stat(files, f.name); err != nil && f.required {
			found = append(found, lacks(dir, f.name))
		}
	}
	if len(found) > 0 {
		return errors.Join(found...)
	}
	if err := chat.CheckModel(files, dir); err != nil {
		return err
	}
	return weights.CheckDir(ctx, files, dir)
}

// CheckInputs looks at the files that a configuration names, before a run needs them; the model is read as a whole. Errors:
// Invalid, Corrupt or Numeric, with every file that is missing or cannot be used, and its key.
func CheckInputs(ctx context.Context, c *config.Config) error {
	found := []error{assets{}.CheckModel(ctx, c.Model.Path)}
	for _, name := range c.Data.Shards {
		f, err := assets{}.OpenShard(name)
		if err != nil {
			found = append(found, err)
			continue
		}
		_ = f.Close() // nothing was read
	}
	if c.Data.Exclude != "" {
		if _, err := (assets{}).Excluded(c.Data.Exclude); err != nil {
			found = append(found, err)
		}
	}
	return errors.Join(found...)
}

func lacks(dir, name string) error {
	return fault.New(fault.Invalid, "workers.assets", "model.path: the model directory %s lacks %s", dir, name).
		WithHint("give a complete model directory in Hugging Face layout")
}

// CopyModelFiles implements activities.Assets.
func (assets) CopyModelFiles(ctx context.Context, s artifact.Store, l layout, dir string) error {
	files, err := modelFS(dir)
	if err != nil {
		return err
	}
	if err := chat.CheckModel(files, dir); err != nil {
		return err
	}
	for _, f := range modelFiles {
		data, err := fs.ReadFile(files, f.name)
		if err != nil && !f.required {
			continue
		}
		if err != nil {
			return lacks(dir, f.name)
		}
		if _, err := s.Put(ctx, path.Join(l.Base(), f.name), data); err != nil {
			return err
		}
	}
	base, err := s.Pull(ctx, l.Base())
	if err != nil {
		return err
	}
	c, err := weights.LoadConfig(base)
	if err != nil {
		return err
	}
	tok, err := tokenizer.Load(base)
	if err != nil {
		return err
	}
	if err := chat.CheckTokenizer(tok); err != nil {
		return err
	}
	if tok.Size() > c.Vocab {
		return fault.New(fault.Invalid, "workers.assets", "the tokenizer of %s has %d ids, the model's embedding %d rows", dir, tok.Size(), c.Vocab)
	}
	return nil
}

// InitialState implements activities.Assets.
func (assets) InitialState(_ context.Context, dir string) (*engine.State, error) {
	files, err := modelFS(dir)
	if err != nil {
		return nil, err
	}
	w, err := weights.LoadFS(files)
	if err != nil {
		return nil, err
	}
	return &engine.State{Master: w}, nil
}

// OpenShard implements activities.Assets.
func (assets) OpenShard(name string) (fs.File, error) {
	if name == config.Bundled {
		return demo.Shard()
	}
	f, err := openFile(name)
	if err != nil {
		return nil, fault.New(fault.Invalid, "workers.assets", "data.shards: %w", err).
			WithHint("give Parquet files in TACO's schema, or %q", config.Bundled)
	}
	return f, nil
}

// Excluded implements activities.Assets.
func (assets) Excluded(name string) (map[string]bool, error) {
	var f fs.File
	var err error
	if name == config.Bundled {
		f, err = demo.Excluded()
	} else {
		f, err = openFile(name)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "workers.assets", "data.exclude: %w", err).
			WithHint("give a JSON Lines file of identities, or leave it empty for no exclusion")
	}
	defer f.Close()
	return dataset.ReadExcluded(f, "data.exclude: "+name)
}

// openFile opens a file for reading, and refuses a directory, which opens too.
func openFile(name string) (fs.File, error) {
	f, err := os.Open(filepath.Clean(name))
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || st.IsDir() {
		_ = f.Close() // nothing was read
		return nil, cmp.Or(err, error(&fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}))
	}
	return f, nil
}
