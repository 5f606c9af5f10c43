package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
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
	Format  int          `json:"format"`  // 2; 1 is read, too
	Step    int          `json:"step"`    // step of the run
	Updates int          `json:"updates"` // updates of the optimiser
	State   string       `json:"state_digest"`
	Config  model.Config `json:"config"`
	Files   []FileDigest `json:"files"`
}

// FileDigest is a file with its digest.
type FileDigest struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	// Blocks is the SHA-256 of the file's header, followed by the lines that its tensors have in the state's digest (docs/numerics.md), in the order of
	// the file. All cores work on it, and each byte is hashed once for the file and the state.
	Blocks string `json:"blocks,omitempty"`
	// SHA256 is that of the file's bytes, in format 1.
	SHA256 string `json:"sha256,omitempty"`
}

// Save writes the state of a step to dir, block by block, on all cores. Of meta the caller gives Step, Updates and Config; it is returned complete.
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
	meta.Format, meta.Files = 2, nil
	l, err := weights.NewLayout(meta.Config.Tensors(), weights.F32)
	if err != nil {
		return meta, err
	}
	sums := weights.NewSums(meta.Config)
	for _, part := range engine.StateParts() {
		name := filepath.Join(dir, fileOf(part))
		err := durable.CreateAt(name, func(f *os.File) error { return writePart(ctx, f, part, r, meta.Config, l, sums) })
		if err != nil {
			return meta, classify("checkpoint.Save", err)
		}
		crashpoint.Here("trainer.checkpoint.file")
		meta.Files = append(meta.Files, FileDigest{Name: fileOf(part), Size: int64(l.Size), Blocks: digestOf(l, sums, part)})
	}
	meta.State = sums.Digest(meta.Updates)
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

// writePart writes a part and notes the sums of its blocks. Blocks of zeros, such as moments that have not begun, are left out: they become holes where
// the file system has them, and take no space.
func writePart(
	ctx context.Context, f *os.File, part engine.StatePart, r engine.StateReader, c model.Config, l weights.Layout, sums *weights.Sums,
) error {
	if err := f.Truncate(int64(l.Size)); err != nil {
		return err
	}
	if _, err := f.WriteAt(l.Header, 0); err != nil {
		return err
	}
	specs, offsets := c.Tensors(), offsetsOf(l)
	return weights.EachBlock(specs, func(b weights.Block, into []float32) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return r.ReadState(part, b.Tensor, b.From, into)
	}, func(b weights.Block, data []float32) error {
		if err := weights.CheckFinite(specs[b.Tensor].Name, data, b.From, weights.F32); err != nil {
			return err
		}
		raw := raws.Get().(*[]byte) //nolint:forcetypeassert,errcheck // nothing else is in it
		defer raws.Put(raw)
		*raw = weights.AppendF32((*raw)[:0], data)
		sums.Set(part, b, sha256.Sum256(*raw))
		if allZero(data) {
			return nil
		}
		_, err := f.WriteAt(*raw, offsets[b.Tensor]+4*int64(b.From))
		return err
	})
}

// raws are the bytes of blocks, for another use.
var raws = sync.Pool{New: func() any { return new([]byte) }}

// allZero reports whether every element is +0.
func allZero(data []float32) bool {
	for _, x := range data {
		if math.Float32bits(x) != 0 {
			return false
		}
	}
	return true
}

// offsetsOf returns where each tensor begins in a file, in module order.
func offsetsOf(l weights.Layout) []int64 {
	out := make([]int64, len(l.Order))
	for k, i := range l.Order {
		out[i] = int64(l.Tensors[k].Offset)
	}
	return out
}

// digestOf is FileDigest.Blocks of a part.
func digestOf(l weights.Layout, sums *weights.Sums, part engine.StatePart) string {
	h := sha256.New()
	h.Write(l.Header)
	for _, i := range l.Order {
		h.Write(sums.Line(part, i))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Load reads and verifies a checkpoint. Errors: NotFound (no checkpoint in dir), Corrupt (naming the file).
func Load(ctx context.Context, dir string) (*engine.State, Meta, error) {
	meta, err := Describe(dir)
	if err != nil {
		return nil, Meta{}, err
	}
	s := &engine.State{Steps: meta.Updates}
	into := map[engine.StatePart]*model.Weights{}
	for i, w := range []**model.Weights{&s.Master, &s.M, &s.V} {
		*w = model.NewWeights(meta.Config)
		into[engine.StateParts()[i]] = *w
	}
	if err := Read(ctx, dir, meta, putInto(into)); err != nil {
		return nil, Meta{}, err
	}
	return s, meta, nil
}

// LoadMaster reads the master weights and verifies every file. Errors as Load.
func LoadMaster(ctx context.Context, dir string) (*model.Weights, Meta, error) {
	meta, err := Describe(dir)
	if err != nil {
		return nil, Meta{}, err
	}
	w := model.NewWeights(meta.Config)
	if err := Read(ctx, dir, meta, putInto(map[engine.StatePart]*model.Weights{engine.Master: w})); err != nil {
		return nil, Meta{}, err
	}
	return w, meta, nil
}

// putInto copies what is read into weights; parts without are passed over.
func putInto(into map[engine.StatePart]*model.Weights) engine.PutState {
	return func(p engine.StatePart, i, from int, data []float32) error {
		if w := into[p]; w != nil {
			copy(w.Data[i][from:], data)
		}
		return nil
	}
}

// File is a file of a checkpoint that is read in parts, from several goroutines.
type File interface {
	io.ReaderAt
	io.Closer
	// Size is in bytes.
	Size() int64
}

// Describe reads what a checkpoint says of itself, and verifies nothing. Errors as Load.
func Describe(dir string) (Meta, error) { return readMeta(dir, opener(dir)) }

// Read gives every element of a checkpoint that Describe described to put, once: blocks in the order of the parts and tensors, while later ones are read and
// hashed. What put was given is confirmed by the digests only when Read returns nil. Errors: as Load, and those of put.
func Read(ctx context.Context, dir string, meta Meta, put engine.PutState) error {
	return readFrom(ctx, dir, meta, opener(dir), put)
}

// Verify checks the digest of every file without holding one. Errors as Load.
func Verify(ctx context.Context, dir string) (Meta, error) { return VerifyFrom(ctx, dir, opener(dir)) }

// VerifyFrom is Verify of files that open opens, wherever they lie; dir is what messages call their directory. A file that is not there is an error of
// open that is fs.ErrNotExist.
func VerifyFrom(ctx context.Context, dir string, open func(file string) (File, error)) (Meta, error) {
	meta, err := readMeta(dir, open)
	if err == nil {
		err = readFrom(ctx, dir, meta, open, func(engine.StatePart, int, int, []float32) error { return nil })
	}
	if err != nil {
		return Meta{}, err
	}
	return meta, nil
}

func readFrom(ctx context.Context, dir string, meta Meta, open func(file string) (File, error), put engine.PutState) error {
	l, err := weights.NewLayout(meta.Config.Tensors(), weights.F32)
	if err != nil {
		return err
	}
	sums := weights.NewSums(meta.Config)
	for i, part := range engine.StateParts() {
		f := meta.Files[i]
		file, err := open(f.Name)
		if err == nil {
			err = readPart(ctx, file, f, part, meta.Config, l, sums, put)
			_ = file.Close() // was only read
		}
		if err != nil {
			return unreadable(dir, f, err)
		}
	}
	return confirm(dir, meta, l, sums)
}

// readPart reads the blocks of a part on all cores, notes their sums, and gives them to put in their order. Of format 1, which has digests of whole
// files, it reads the file as a whole before.
func readPart(
	ctx context.Context, file File, f FileDigest, part engine.StatePart, c model.Config, l weights.Layout, sums *weights.Sums, put engine.PutState,
) error {
	header := make([]byte, len(l.Header))
	if n, err := file.ReadAt(header, 0); n < len(header) {
		return err
	}
	if file.Size() != int64(l.Size) || !bytes.Equal(header, l.Header) {
		return errOther
	}
	if f.SHA256 != "" {
		if sum, err := digest(ctx, file); err != nil || sum != f.SHA256 {
			return cmp.Or(err, errOther)
		}
	}
	offsets := offsetsOf(l)
	return weights.InOrder(c.Tensors(), func(b weights.Block, into []float32) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		raw := raws.Get().(*[]byte) //nolint:forcetypeassert,errcheck // nothing else is in it
		defer raws.Put(raw)
		*raw = slices.Grow((*raw)[:0], 4*len(into))[:4*len(into)]
		if n, err := file.ReadAt(*raw, offsets[b.Tensor]+4*int64(b.From)); n < len(*raw) { // the last block may come with io.EOF
			return err
		}
		sums.Set(part, b, sha256.Sum256(*raw))
		weights.DecodeF32(into, *raw)
		return nil
	}, func(b weights.Block, data []float32) error { return put(part, b.Tensor, b.From, data) })
}

// digest is the SHA-256 of a whole file.
func digest(ctx context.Context, file File) (string, error) {
	hash := sha256.New()
	for at := int64(0); at < file.Size(); at += 64 << 20 {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if _, err := io.Copy(hash, io.NewSectionReader(file, at, min(64<<20, file.Size()-at))); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// confirm compares the sums of all blocks with the recorded digests.
func confirm(dir string, meta Meta, l weights.Layout, sums *weights.Sums) error {
	for i, part := range engine.StateParts() {
		if f := meta.Files[i]; meta.Format > 1 && (digestOf(l, sums, part) != f.Blocks || f.Size != int64(l.Size)) {
			return damaged(dir, f)
		}
	}
	if got := sums.Digest(meta.Updates); got != meta.State {
		return fault.New(fault.Corrupt, "checkpoint.Load", "%s: the state has digest %.12s, recorded was %.12s", dir, got, meta.State)
	}
	return nil
}

func opener(dir string) func(string) (File, error) {
	return func(file string) (File, error) {
		f, err := durable.Open(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		st, err := f.Stat()
		if err == nil && st.IsDir() {
			err = errOther
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return localFile{f, st.Size()}, nil
	}
}

type localFile struct {
	*os.File
	size int64
}

func (f localFile) Size() int64 { return f.size }

// errOther says that a file's bytes are not those that were written.
var errOther = errors.New("other bytes")

func damaged(dir string, f FileDigest) error {
	return fault.New(fault.Corrupt, "checkpoint.Load", "%s/%s does not have its recorded digest", dir, f.Name)
}

func unreadable(dir string, f FileDigest, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.Corrupt, "checkpoint.Load", "%s/%s is missing", dir, f.Name)
	case errors.Is(err, errOther), errors.Is(err, durable.ErrNoFile), errors.Is(err, syscall.ELOOP), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return damaged(dir, f)
	}
	return classify("checkpoint.Load", err)
}

func readMeta(dir string, open func(string) (File, error)) (Meta, error) {
	const op = "checkpoint.Load"
	file, err := open(MetaFile)
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.NewSectionReader(file, 0, min(file.Size(), maxMeta)))
		_ = file.Close() // was only read
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Meta{}, classify(op, err)
	}
	if err != nil {
		return Meta{}, unreadable(dir, FileDigest{Name: MetaFile}, err)
	}
	var meta Meta
	if err := json.Unmarshal(data, &meta); err != nil {
		return Meta{}, fault.New(fault.Corrupt, op, "%s/%s: %w", dir, MetaFile, err)
	}
	if meta.Format < 1 || meta.Format > 2 || len(meta.Files) != 3 {
		return Meta{}, fault.New(fault.Corrupt, op, "%s: format %d with %d files, want 1 or 2 with 3", dir, meta.Format, len(meta.Files))
	}
	for i, p := range engine.StateParts() {
		if meta.Files[i].Name != fileOf(p) {
			return Meta{}, fault.New(fault.Corrupt, op, "%s: file %d is %q, want %s", dir, i, meta.Files[i].Name, fileOf(p))
		}
	}
	if err := meta.Config.Check(); err != nil {
		return Meta{}, fault.New(fault.Corrupt, op, "%s: %w", dir, err)
	}
	return meta, checkSizes(dir, meta, open)
}

// maxMeta bounds a meta.json that is none.
const maxMeta = 1 << 20

// checkSizes compares the files' sizes with the model's shape, before anything is made in that shape.
func checkSizes(dir string, meta Meta, open func(string) (File, error)) error {
	l, err := weights.NewLayout(meta.Config.Tensors(), weights.F32)
	if err != nil {
		return err
	}
	for _, f := range meta.Files {
		file, err := open(f.Name)
		if err != nil {
			return unreadable(dir, f, err)
		}
		size := file.Size()
		_ = file.Close() // was only looked at
		if f.Size != int64(l.Size) || size != f.Size {
			return damaged(dir, f)
		}
	}
	return nil
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
