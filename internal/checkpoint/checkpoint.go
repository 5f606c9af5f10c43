package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/steadyrl/steady/internal/crashpoint"
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

// Save writes the state of a step to dir, tensor by tensor. Of meta the caller gives Step, Updates and Config; it is returned complete.
// Idempotence: a directory that holds the same state already, and verifies, stays; one that holds another state, or does not
// verify, is replaced.
//
// Errors: Numeric (the state is not finite), Busy (disk full; nothing is half visible), the file system's and those of r.
func Save(ctx context.Context, dir string, r engine.StateReader, meta Meta) (Meta, error) {
	const op = "checkpoint.Save"
	if old, err := Verify(ctx, dir); err == nil && old.Step == meta.Step {
		now, err := weights.ReadStateDigest(meta.Config, r, meta.Updates)
		if err != nil || now == old.State {
			return old, err
		}
	}
	parent := filepath.Dir(dir)
	// What is above belongs to the store: if it is away, nothing may be made in its place.
	if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return Meta{}, classify(op, err)
	}
	durable.Sweep(parent) // a trainer that was killed while it saved leaves gigabytes
	tmp, release, err := durable.TempDir(parent)
	if err != nil {
		return Meta{}, classify(op, err)
	}
	defer release()
	defer os.RemoveAll(tmp) //nolint:errcheck // gone after a successful rename
	if meta, err = writeParts(ctx, tmp, r, meta); err != nil {
		return Meta{}, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // as every directory of the store
		return Meta{}, classify(op, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return Meta{}, classify(op, err)
	}
	crashpoint.Here("trainer.checkpoint.before")
	if err := os.Rename(tmp, dir); err != nil {
		return Meta{}, classify(op, err)
	}
	crashpoint.Here("trainer.checkpoint.after")
	if err := durable.SyncDir(parent); err != nil {
		return Meta{}, classify(op, err)
	}
	return meta, nil
}

// SaveState is Save of a state in memory.
func SaveState(ctx context.Context, dir string, s *engine.State, step int) (Meta, error) {
	return Save(ctx, dir, s, Meta{Step: step, Updates: s.Steps, Config: s.Master.Config})
}

// fileOf names the file of a part.
func fileOf(p engine.StatePart) string {
	switch p {
	case engine.FirstMoment:
		return mFile
	case engine.SecondMoment:
		return vFile
	}
	return MasterFile
}

func writeParts(ctx context.Context, dir string, r engine.StateReader, meta Meta) (Meta, error) {
	meta.Format, meta.Files = 1, nil
	state := weights.NewStateDigest(meta.Config)
	for _, part := range engine.StateParts() {
		f, err := writePart(ctx, dir, part, r, meta.Config, state)
		if err != nil {
			return meta, err
		}
		crashpoint.Here("trainer.checkpoint.file")
		meta.Files = append(meta.Files, f)
	}
	meta.State = state.Sum(meta.Updates)
	data, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return meta, fault.New(fault.Internal, "checkpoint.Save", "%w", err)
	}
	if err := errors.Join(durable.WriteNew(filepath.Join(dir, MetaFile), append(data, '\n')), durable.SyncDir(dir)); err != nil {
		return meta, classify("checkpoint.Save", err)
	}
	crashpoint.Here("trainer.checkpoint.meta")
	return meta, nil
}

func writePart(ctx context.Context, dir string, part engine.StatePart, r engine.StateReader, c model.Config, state *weights.PartialDigest) (FileDigest, error) {
	specs := c.Tensors()
	index := map[string]int{}
	for i, s := range specs {
		index[s.Name] = i
	}
	out := FileDigest{Name: fileOf(part)}
	hash := newHasher()
	err := durable.CreateSparse(filepath.Join(dir, out.Name), func(f io.Writer) error {
		return weights.Write(io.MultiWriter(f, hash, (*counter)(&out.Size)), specs, weights.F32, func(name string) ([]float32, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			data, err := r.ReadState(part, index[name])
			if err == nil {
				state.Add(part, index[name], data)
			}
			return data, err
		})
	})
	out.SHA256 = hash.sum()
	if err != nil {
		return out, classify("checkpoint.Save", err)
	}
	return out, nil
}

// hasher computes a SHA-256 beside the writing of the file: each takes a core's time for gigabytes.
type hasher struct {
	buf    []byte
	blocks chan []byte
	free   chan []byte
	done   chan string
}

const hashBlock = 1 << 20

func newHasher() *hasher {
	h := &hasher{blocks: make(chan []byte, 8), free: make(chan []byte, 10), done: make(chan string, 1)}
	go func() {
		sum := sha256.New()
		for b := range h.blocks {
			sum.Write(b)
			h.free <- b[:0] // never full: ten blocks at most are under way
		}
		h.done <- hex.EncodeToString(sum.Sum(nil))
	}()
	for range cap(h.free) {
		h.free <- nil
	}
	return h
}

func (h *hasher) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if h.buf == nil {
			if h.buf = <-h.free; h.buf == nil {
				h.buf = make([]byte, 0, hashBlock)
			}
		}
		take := min(len(p), hashBlock-len(h.buf))
		h.buf, p = append(h.buf, p[:take]...), p[take:]
		if len(h.buf) == hashBlock {
			h.blocks <- h.buf
			h.buf = nil
		}
	}
	return n, nil
}

// sum ends the hasher and returns the digest of what was written.
func (h *hasher) sum() string {
	if h.buf != nil {
		h.blocks <- h.buf
	}
	close(h.blocks)
	return <-h.done
}

// counter counts what is written into it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// Load reads and verifies a checkpoint, one file after the other. Errors: NotFound (no checkpoint in dir), Corrupt (naming the file).
func Load(ctx context.Context, dir string) (*engine.State, Meta, error) {
	meta, err := readMeta(dir, opener(dir))
	if err != nil {
		return nil, Meta{}, err
	}
	s := &engine.State{Steps: meta.Updates}
	for i, into := range []**model.Weights{&s.Master, &s.M, &s.V} {
		if *into, err = load(ctx, dir, meta, i); err != nil {
			return nil, Meta{}, err
		}
	}
	if got := weights.StateDigest(s); got != meta.State {
		return nil, Meta{}, fault.New(fault.Corrupt, "checkpoint.Load", "%s: the state has digest %.12s, recorded was %.12s", dir, got, meta.State)
	}
	return s, meta, nil
}

// LoadMaster reads the master weights and verifies every file. Errors as Load.
func LoadMaster(ctx context.Context, dir string) (*model.Weights, Meta, error) {
	meta, err := Verify(ctx, dir)
	if err != nil {
		return nil, Meta{}, err
	}
	w, err := load(ctx, dir, meta, 0)
	return w, meta, err
}

// load reads and verifies file i.
func load(ctx context.Context, dir string, meta Meta, i int) (*model.Weights, error) {
	f := meta.Files[i]
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, f.Name))
	if err != nil {
		return nil, unreadable(dir, f, err)
	}
	sum := make(chan string, 1)
	go func() { sum <- digest(data) }() // as long as the decoding takes
	w, err := weights.Decode(meta.Config, data)
	if int64(len(data)) != f.Size || <-sum != f.SHA256 {
		return nil, damaged(dir, f)
	}
	if err != nil {
		return nil, fault.New(fault.Corrupt, "checkpoint.Load", "%s/%s: %w", dir, f.Name, err)
	}
	return w, nil
}

// Verify checks the digest of every file without holding one. Errors as Load.
func Verify(ctx context.Context, dir string) (Meta, error) {
	return VerifyFrom(ctx, dir, opener(dir))
}

// VerifyFrom is Verify of files that open opens, from several goroutines, wherever they lie; dir is what messages call their directory. A file that is not
// there is an error of open that is fs.ErrNotExist.
func VerifyFrom(ctx context.Context, dir string, open func(file string) (io.ReadCloser, error)) (Meta, error) {
	meta, err := readMeta(dir, open)
	if err != nil {
		return Meta{}, err
	}
	errs := make([]error, len(meta.Files))
	var all sync.WaitGroup
	for i, f := range meta.Files {
		all.Go(func() { errs[i] = verify(ctx, dir, f, open) })
	}
	all.Wait()
	for _, err := range errs { // the first file's first
		if err != nil {
			return Meta{}, err
		}
	}
	return meta, nil
}

func opener(dir string) func(string) (io.ReadCloser, error) {
	return func(file string) (io.ReadCloser, error) { return os.Open(filepath.Join(dir, file)) }
}

func verify(ctx context.Context, dir string, f FileDigest, open func(string) (io.ReadCloser, error)) error {
	file, err := open(f.Name)
	if err != nil {
		return unreadable(dir, f, err)
	}
	defer file.Close() //nolint:errcheck // was only read
	hash := sha256.New()
	var size int64
	for err == nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		var n int64
		n, err = io.CopyN(hash, file, 64<<20)
		size += n
	}
	if !errors.Is(err, io.EOF) {
		return unreadable(dir, f, err)
	}
	if size != f.Size || hex.EncodeToString(hash.Sum(nil)) != f.SHA256 {
		return damaged(dir, f)
	}
	return nil
}

func damaged(dir string, f FileDigest) error {
	return fault.New(fault.Corrupt, "checkpoint.Load", "%s/%s does not have its recorded digest", dir, f.Name)
}

func unreadable(dir string, f FileDigest, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Corrupt, "checkpoint.Load", "%s/%s is missing", dir, f.Name)
	}
	return classify("checkpoint.Load", err)
}

func readMeta(dir string, open func(string) (io.ReadCloser, error)) (Meta, error) {
	const op = "checkpoint.Load"
	file, err := open(MetaFile)
	if err != nil {
		return Meta{}, classify(op, err)
	}
	data, err := io.ReadAll(file)
	_ = file.Close() // was only read
	if err != nil {
		return Meta{}, classify(op, err)
	}
	var meta Meta
	if err := json.Unmarshal(data, &meta); err != nil {
		return Meta{}, fault.New(fault.Corrupt, op, "%s/%s: %w", dir, MetaFile, err)
	}
	if meta.Format != 1 || len(meta.Files) != 3 {
		return Meta{}, fault.New(fault.Corrupt, op, "%s: format %d with %d files, want 1 with 3", dir, meta.Format, len(meta.Files))
	}
	for i, p := range engine.StateParts() {
		if meta.Files[i].Name != fileOf(p) {
			return Meta{}, fault.New(fault.Corrupt, op, "%s: file %d is %q, want %s", dir, i, meta.Files[i].Name, fileOf(p))
		}
	}
	if err := meta.Config.Check(); err != nil {
		return Meta{}, fault.New(fault.Corrupt, op, "%s: %w", dir, err)
	}
	return meta, nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// classify gives an error of the file system its kind; others have theirs.
func classify(op string, err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, op, "%w", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.New(fault.Busy, op, "%w", err).WithHint("free space on the device of the artifact store; the run waits and goes on by itself")
	}
	return fault.New(fault.Internal, op, "%w", err)
}
