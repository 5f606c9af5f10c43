package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/steadyrl/steady/internal/durable"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/weights"
)

// MetaFile is the file that makes a directory a checkpoint.
const MetaFile = "meta.json"

// MasterFile holds the FP32 master weights; the moments lie beside it.
const (
	MasterFile = "master.safetensors"
	mFile      = "adam_m.safetensors"
	vFile      = "adam_v.safetensors"
)

// Meta describes a checkpoint.
type Meta struct {
	Format  int          `json:"format"`  // 1
	Step    int          `json:"step"`    // step of the run
	Updates int          `json:"updates"` // updates of the optimiser
	State   string       `json:"state_digest"`
	Config  model.Config `json:"config"`
	Files   []FileDigest `json:"files"`
}

// FileDigest is a file with its SHA-256.
type FileDigest struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Save writes the state of a step to dir. Idempotence: a directory that holds the same state already, and
// verifies, stays; one that holds another state, or does not verify, is replaced.
//
// Errors: Numeric (the state is not finite), Busy (disk full; nothing is half visible), and the file system's.
func Save(ctx context.Context, dir string, s *engine.State, meta Meta) error {
	const op = "checkpoint.Save"
	meta.Format, meta.Updates, meta.State, meta.Config = 1, s.Steps, weights.StateDigest(s), s.Master.Config
	if old, err := Verify(ctx, dir); err == nil && old.State == meta.State && old.Step == meta.Step {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return classify(op, err)
	}
	tmp, err := os.MkdirTemp(parent, ".tmp-")
	if err != nil {
		return classify(op, err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // gone after a successful rename
	if err := writeParts(ctx, tmp, s, &meta); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // as every directory of the store
		return classify(op, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return classify(op, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return classify(op, err)
	}
	if err := durable.SyncDir(parent); err != nil {
		return classify(op, err)
	}
	return nil
}

func writeParts(ctx context.Context, dir string, s *engine.State, meta *Meta) error {
	for _, part := range []struct {
		name string
		w    *model.Weights
	}{{MasterFile, s.Master}, {mFile, s.M}, {vFile, s.V}} {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := weights.Encode(part.w, weights.F32)
		if err != nil {
			return err
		}
		if err := durable.WriteNew(filepath.Join(dir, part.name), data); err != nil {
			return classify("checkpoint.Save", err)
		}
		meta.Files = append(meta.Files, FileDigest{part.name, int64(len(data)), digest(data)})
	}
	data, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return fault.New(fault.Internal, "checkpoint.Save", "%w", err)
	}
	if err := errors.Join(durable.WriteNew(filepath.Join(dir, MetaFile), append(data, '\n')), durable.SyncDir(dir)); err != nil {
		return classify("checkpoint.Save", err)
	}
	return nil
}

// Load reads and verifies a checkpoint. Errors: NotFound (no checkpoint in dir), Corrupt (naming the file).
func Load(ctx context.Context, dir string) (*engine.State, Meta, error) {
	meta, files, err := read(ctx, dir)
	if err != nil {
		return nil, Meta{}, err
	}
	s := &engine.State{Steps: meta.Updates}
	for _, part := range []struct {
		name string
		w    **model.Weights
	}{{MasterFile, &s.Master}, {mFile, &s.M}, {vFile, &s.V}} {
		if *part.w, err = weights.Decode(meta.Config, files[part.name]); err != nil {
			return nil, Meta{}, fault.New(fault.Corrupt, "checkpoint.Load", "%s/%s: %w", dir, part.name, err)
		}
	}
	if got := weights.StateDigest(s); got != meta.State {
		return nil, Meta{}, fault.New(fault.Corrupt, "checkpoint.Load", "%s: the state has digest %.12s, recorded was %.12s", dir, got, meta.State)
	}
	return s, meta, nil
}

// Verify checks every digest without keeping the state. Errors as Load.
func Verify(ctx context.Context, dir string) (Meta, error) {
	meta, _, err := read(ctx, dir)
	return meta, err
}

func read(ctx context.Context, dir string) (Meta, map[string][]byte, error) {
	const op = "checkpoint.Load"
	data, err := os.ReadFile(filepath.Join(dir, MetaFile))
	if err != nil {
		return Meta{}, nil, classify(op, err)
	}
	var meta Meta
	if err := json.Unmarshal(data, &meta); err != nil {
		return Meta{}, nil, fault.New(fault.Corrupt, op, "%s/%s: %w", dir, MetaFile, err)
	}
	if meta.Format != 1 || len(meta.Files) != 3 {
		return Meta{}, nil, fault.New(fault.Corrupt, op, "%s: format %d with %d files, want 1 with 3", dir, meta.Format, len(meta.Files))
	}
	if err := meta.Config.Check(); err != nil {
		return Meta{}, nil, fault.New(fault.Corrupt, op, "%s: %w", dir, err)
	}
	files := map[string][]byte{}
	for _, f := range meta.Files {
		if err := ctx.Err(); err != nil {
			return Meta{}, nil, err
		}
		data, err := os.ReadFile(filepath.Join(dir, filepath.Base(f.Name)))
		if errors.Is(err, fs.ErrNotExist) {
			return Meta{}, nil, fault.New(fault.Corrupt, op, "%s/%s is missing", dir, f.Name)
		}
		if err != nil {
			return Meta{}, nil, classify(op, err)
		}
		if int64(len(data)) != f.Size || digest(data) != f.SHA256 {
			return Meta{}, nil, fault.New(fault.Corrupt, op, "%s/%s does not have its recorded digest", dir, f.Name)
		}
		files[f.Name] = data
	}
	return meta, files, nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func classify(op string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, op, "%w", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.New(fault.Busy, op, "%w", err).WithHint("free space on the device of the artifact store; the run waits and goes on by itself")
	}
	return fault.New(fault.Internal, op, "%w", err)
}
