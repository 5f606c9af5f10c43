package dataset

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/durable"
	"github.com/steadyrl/steady/internal/fault"
)

// groupBytes is the size of cells after which a row group of an output ends: what a writer holds in memory.
const groupBytes = 16 << 20

// Finish drops excluded problems and duplicates, splits, and writes the data set of the finished shards 0 to shards-1 to dir, which
// must not exist or be empty. The directory appears whole or not at all.
//
// A bad copy cannot shadow a good one: only rows that passed the rules of their shard count as copies. o.Inputs are not
// needed. Idempotence: a data set of the same manifest that is there stays. Errors: NotFound (a shard is not finished), Corrupt (a file of the work),
// Invalid (dir holds something else), Busy.
func (w *Work) Finish(ctx context.Context, dir string, shards int, o FinishOptions) (Manifest, error) {
	const op = "dataset.Finish"
	var rows []Checked
	o.Inputs = nil
	for i := range shards {
		in, err := w.Done(ctx, i)
		if err != nil {
			return Manifest{}, err
		}
		of, err := w.rows(ctx, i, in)
		if err != nil {
			return Manifest{}, err
		}
		rows, o.Inputs = append(rows, of...), append(o.Inputs, in)
	}
	tmp, err := os.MkdirTemp(w.files.Root(), "out-")
	if err != nil {
		return Manifest{}, fileError(op, err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // gone after a successful rename
	m, err := w.write(ctx, tmp, rows, o)
	if err != nil {
		return Manifest{}, err
	}
	return m, appear(tmp, dir)
}

// write writes all files of the data set.
func (w *Work) write(ctx context.Context, dir string, rows []Checked, o FinishOptions) (Manifest, error) {
	good := identify(rows, o.Excluded)
	dev, train := assign(rows, good, o)
	m := manifest(rows, o, len(good), len(train), len(dev))
	m.Files = map[string]string{}
	members := map[Split][]int{Dev: dev, Train: train}
	for _, split := range Splits() {
		name := splitFile(split)
		sum, err := writeParquet(filepath.Join(dir, name), len(members[split]), func(n int) (problemRow, int, error) {
			if err := ctx.Err(); err != nil {
				return problemRow{}, 0, err
			}
			return w.problemRow(&rows[members[split][n]], n)
		})
		if err != nil {
			return m, err
		}
		m.Files[name] = sum
	}
	sum, err := writeParquet(filepath.Join(dir, DecisionsFile), len(rows), func(n int) (decisionRow, int, error) {
		d := rows[n].Decision
		return decisionRow{d.Shard, d.Row, d.ID, d.Source, d.Keep, string(d.Split), string(d.Reason), d.Evidence}, len(d.Evidence) + 100, nil
	})
	if err != nil {
		return m, err
	}
	m.Files[DecisionsFile] = sum
	text, err := encodeManifest(m)
	if err != nil {
		return m, err
	}
	crashpoint.Here("data.manifest.before")
	if err := durable.WriteNew(filepath.Join(dir, ManifestFile), text); err != nil {
		return m, fileError("dataset.Finish", err)
	}
	crashpoint.Here("data.manifest.after")
	return m, nil
}

// problemRow makes the row of a problem of a split, and says how large it is.
func (w *Work) problemRow(c *Checked, index int) (problemRow, int, error) {
	p := *c.Problem
	p.Index = index
	statement, samples := p.Statement, p.Samples
	p.Statement, p.Samples = "", nil // they have columns of their own
	tests, err := w.tests(c.place)
	if err != nil {
		return problemRow{}, 0, err
	}
	var texts [2]string
	for k, v := range []any{samples, p} {
		text, err := json.Marshal(v)
		if err != nil {
			return problemRow{}, 0, fault.New(fault.Internal, "dataset.Finish", "%w", err)
		}
		texts[k] = string(text)
	}
	return problemRow{p.ID, statement, texts[0], texts[1], tests}, len(statement) + len(texts[0]) + len(texts[1]) + len(tests), nil
}

// writeParquet writes n rows and returns the SHA-256 of the file.
func writeParquet[T any](path string, n int, row func(int) (T, int, error)) (sum string, err error) {
	const op = "dataset.Finish"
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as every file of the store
	if err != nil {
		return "", fileError(op, err)
	}
	defer f.Close() //nolint:errcheck // closed and checked below
	h := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(h, f), 1<<20)
	w := parquet.NewGenericWriter[T](out, writerOptions[T]()...)
	held := 0
	for i := range n {
		r, size, err := row(i)
		if err != nil {
			return "", err
		}
		if _, err := w.Write([]T{r}); err != nil {
			return "", fileError(op, err)
		}
		if held += size; held >= groupBytes {
			if err := w.Flush(); err != nil {
				return "", fileError(op, err)
			}
			held = 0
		}
	}
	for _, end := range []func() error{w.Close, out.Flush, f.Sync, f.Close} {
		if err := end(); err != nil {
			return "", fileError(op, err)
		}
	}
	crashpoint.Here("data.file.after")
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writerOptions leave out the least and greatest value of pages: these are whole cells, which would be in the file three times.
func writerOptions[T any]() []parquet.WriterOption {
	var row T
	o := []parquet.WriterOption{parquet.CreatedBy("steady", "1", "1"), parquet.Compression(&parquet.Snappy), parquet.DataPageStatistics(false)}
	for _, f := range parquet.SchemaOf(row).Fields() {
		o = append(o, parquet.SkipPageBounds(f.Name()))
	}
	return o
}

// appear gives the finished directory its name.
func appear(tmp, dir string) error {
	const op = "dataset.Finish"
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // as every directory of the store
		return fileError(op, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // as every directory of the store
		return fileError(op, err)
	}
	if err := durable.SyncDir(tmp); err != nil {
		return fileError(op, err)
	}
	_ = syscall.Rmdir(dir) // if it is empty; os.Rename wants none
	crashpoint.Here("data.rename.before")
	err := os.Rename(tmp, dir)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.ENOTDIR) {
		return same(tmp, dir)
	}
	if err == nil {
		crashpoint.Here("data.rename.after")
		err = durable.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		return fileError(op, err)
	}
	return nil
}

// same wants dir to hold the data set that lies in tmp.
func same(tmp, dir string) error {
	want, err := os.ReadFile(filepath.Join(tmp, ManifestFile))
	if err != nil {
		return fileError("dataset.Finish", err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, ManifestFile)); err != nil || string(got) != string(want) {
		return fault.New(fault.Invalid, "dataset.Finish", "%s is there and holds something else than this data set", dir).
			WithHint("remove it, or choose another directory")
	}
	_, err = Open(dir)
	return err
}

// fileError gives an error of the file system its kind.
func fileError(op string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.New(fault.Busy, op, "%w", err).WithHint("free space on the device")
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, op, "%w", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		return fault.New(fault.Invalid, op, "%w", err).WithHint("choose a directory that can be written")
	}
	return fault.New(fault.Internal, op, "%w", err)
}
