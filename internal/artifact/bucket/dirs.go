package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/durable"
	"github.com/steadyrl/steady/internal/fault"
)

// The store's own objects of a directory. The list comes before the others in the order of keys.
const (
	listFile    = own + "dir.json"
	filesPrefix = own + "g-"
	asideFile   = own + "set-aside.json"
)

// list is what a directory holds.
type list struct {
	Format int    `json:"format"`
	ID     string `json:"id"` // of the content: names the folder of the files
	Files  []file `json:"files"`
}

// file is a file of a directory.
type file struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`

	key string // where it lies
}

// list reads the list of a directory. Errors: NotFound, Corrupt.
func (s *Store) list(ctx context.Context, name string) (list, error) {
	var l list
	if err := artifact.CheckName(name); err != nil {
		return l, err
	}
	data, _, err := s.fetch(ctx, s.key(name)+"/"+listFile)
	if err != nil {
		return l, err
	}
	if err := decode(name+"/"+listFile, data, &l); err != nil {
		return l, err
	}
	if l.Format != 1 {
		return l, fault.New(fault.Invalid, "bucket", "%s/%s has format %d, this program knows 1", name, listFile, l.Format).WithHint("use a newer steady")
	}
	for i := range l.Files {
		f := &l.Files[i]
		if strings.Contains(f.Name, "/") || artifact.CheckName(f.Name) != nil {
			return l, fault.New(fault.Corrupt, "bucket", "%s/%s names a file %q", name, listFile, f.Name)
		}
		f.key = s.key(name) + "/" + filesPrefix + l.ID + "/" + f.Name
	}
	return l, nil
}

// inside finds a name among the files of the directory above it. Errors: NotFound.
func (s *Store) inside(ctx context.Context, name string) (file, error) {
	dir, base := path.Split(name)
	none := fault.New(fault.NotFound, "bucket", "%s: %w", name, fs.ErrNotExist)
	if dir == "" {
		return file{}, none
	}
	l, err := s.list(ctx, strings.TrimSuffix(dir, "/"))
	if err != nil {
		return file{}, err
	}
	for _, f := range l.Files {
		if f.Name == base {
			return f, nil
		}
	}
	return file{}, none
}

// Dirs implements artifact.Store.
func (s *Store) Dirs(ctx context.Context, name string) ([]string, error) {
	if err := check(ctx, name); err != nil {
		return nil, err
	}
	var names []string
	below := s.key(name) + "/"
	pages := s3.NewListObjectsV2Paginator(s.api, &s3.ListObjectsV2Input{Bucket: &s.o.Bucket, Prefix: &below, Delimiter: aws.String("/")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, s.classify(ctx, "artifact.Dirs", name, err)
		}
		for _, p := range page.CommonPrefixes {
			base := strings.TrimSuffix(strings.TrimPrefix(aws.ToString(p.Prefix), below), "/")
			if strings.HasPrefix(base, own) {
				continue
			}
			is, err := s.isDir(ctx, name+"/"+base)
			if err != nil {
				return nil, err
			}
			if is {
				names = append(names, base)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// Pull implements artifact.Store. The local copy is compared with the list, and what differs is loaded.
func (s *Store) Pull(ctx context.Context, name string) (string, error) {
	p, unlock, err := s.hold(ctx, name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := s.pull(ctx, name, p); err != nil {
		return p, err
	}
	s.evict(ctx, name)
	return p, nil
}

// pull makes the local copy p.
func (s *Store) pull(ctx context.Context, name, p string) error {
	for try := 0; ; try++ {
		l, err := s.list(ctx, name)
		if fault.Is(err, fault.NotFound) {
			return s.pullObjects(ctx, name, p)
		}
		if err == nil {
			err = s.fill(ctx, p, l)
		}
		if fault.Is(err, fault.NotFound) { // replaced or removed between its list and its files
			if try < reopenings {
				continue
			}
			err = fault.New(fault.Corrupt, "artifact.Pull", "the directory %s lacks a file of its list: %w", name, err).
				WithHint("restore the object from another version or a copy of the bucket")
		}
		return err
	}
}

// fill makes the local directory equal to a list.
func (s *Store) fill(ctx context.Context, dir string, l list) error {
	if ok, err := equal(ctx, dir, l.Files); ok || err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil { //nolint:gosec // as every directory of the store
		return cacheError(err)
	}
	durable.Sweep(parent)
	tmp, release, err := durable.TempDir(parent)
	if err != nil {
		return cacheError(err)
	}
	defer release()
	defer os.RemoveAll(tmp) //nolint:errcheck // gone after a successful rename
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(filesAtOnce)
	for _, f := range l.Files {
		g.Go(func() error { return s.fetchFile(gctx, f.key, filepath.Join(tmp, f.Name), f) })
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // as every directory of the store
		return cacheError(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return cacheError(err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		if ok, _ := equal(ctx, dir, l.Files); ok { // another process was quicker
			return nil
		}
		return cacheError(err)
	}
	return nil
}

// pullObjects makes the local directory equal to the objects below a name.
func (s *Store) pullObjects(ctx context.Context, name, dir string) error {
	want := map[string]int64{}
	below := s.key(name) + "/"
	err := s.keys(ctx, below, func(key string, size int64) {
		if rest := strings.TrimPrefix(key, below); artifact.CheckName(rest) == nil {
			want[rest] = size
		}
	})
	if err != nil {
		return err
	}
	if len(want) == 0 {
		return fault.New(fault.NotFound, "artifact.Pull", "%s: %w", name, fs.ErrNotExist)
	}
	for rest, size := range want {
		if err := s.pullObject(ctx, name+"/"+rest, filepath.Join(dir, filepath.FromSlash(rest)), size); err != nil {
			return err
		}
	}
	return cacheError(filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(dir, p)
		if err != nil || rerr != nil || d.IsDir() {
			return errors.Join(err, rerr)
		}
		if _, ok := want[filepath.ToSlash(rel)]; !ok {
			return os.Remove(p)
		}
		return nil
	}))
}

// pullObject makes a local file equal to an object.
func (s *Store) pullObject(ctx context.Context, name, to string, size int64) error {
	if st, err := os.Stat(to); err == nil && st.Size() == size {
		got, err := s.head(ctx, s.key(name))
		if err != nil {
			return err
		}
		if mine, err := digestOf(ctx, to); err == nil && mine.SHA256 == got.digest {
			return nil
		}
	}
	data, _, err := s.fetch(ctx, s.key(name))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as every directory of the store
		return cacheError(err)
	}
	f, err := durable.Temp(filepath.Dir(to))
	if err != nil {
		return cacheError(err)
	}
	defer f.Close()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644)); err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return cacheError(err)
}

// Build implements artifact.Store. What the store has is loaded first, so that build can keep it; what cannot be loaded because it is
// damaged is made anew.
func (s *Store) Build(ctx context.Context, name string, build func(dir string) error) error {
	p, unlock, err := s.hold(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	old, err := s.list(ctx, name)
	there := err == nil
	if there {
		err = s.fill(ctx, p, old)
	}
	if k := fault.KindOf(err); k == fault.NotFound || k == fault.Corrupt {
		there, err = false, nil
	}
	if err == nil {
		err = cacheError(os.MkdirAll(filepath.Dir(p), 0o755)) //nolint:gosec // as every directory of the store
	}
	if err != nil {
		return err
	}
	if err := build(p); err != nil {
		return err
	}
	files, err := filesOf(ctx, p)
	if err != nil {
		return err
	}
	l := list{Format: 1, Files: files}
	text, err := json.Marshal(files)
	if err != nil {
		return fault.New(fault.Internal, "artifact.Build", "%w", err)
	}
	l.ID = artifact.Digest(text)[:32]
	if there && l.ID == old.ID {
		return nil
	}
	if err := s.send(ctx, name, p, l); err != nil {
		return err
	}
	s.sweep(ctx, name, l.ID)
	s.evict(ctx, name)
	return nil
}

// send uploads the files of a directory, then its list, which makes it appear.
func (s *Store) send(ctx context.Context, name, dir string, l list) error {
	s.reap(ctx, s.key(name)+"/")
	folder := s.key(name) + "/" + filesPrefix + l.ID + "/"
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(filesAtOnce)
	for _, f := range l.Files {
		g.Go(func() error {
			in, err := os.Open(filepath.Join(dir, f.Name))
			if err != nil {
				return cacheError(err)
			}
			defer in.Close()
			return s.upload(gctx, folder+f.Name, in, f.Size, f.SHA256, false)
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fault.New(fault.Internal, "artifact.Build", "%w", err)
	}
	return s.put(ctx, s.key(name)+"/"+listFile, text, artifact.Digest(text), false)
}

// sweep removes files of a directory that its list does not name and that nobody can be uploading any more. It does its best.
func (s *Store) sweep(ctx context.Context, name, id string) {
	below := s.key(name) + "/"
	var gone []string
	pages := s3.NewListObjectsV2Paginator(s.api, &s3.ListObjectsV2Input{Bucket: &s.o.Bucket, Prefix: aws.String(below + filesPrefix)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return
		}
		for _, o := range page.Contents {
			old := o.LastModified != nil && time.Since(*o.LastModified) > abandonedFor
			if old && !strings.HasPrefix(aws.ToString(o.Key), below+filesPrefix+id+"/") {
				gone = append(gone, aws.ToString(o.Key))
			}
		}
	}
	_ = s.delete(ctx, gone)
}

// Aside implements artifact.Store: the list of the directory gets another name, its files stay until the directory is removed.
func (s *Store) Aside(ctx context.Context, name string) error {
	p, unlock, err := s.hold(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.RemoveAll(p); err != nil {
		return cacheError(err)
	}
	s.mu.Lock()
	delete(s.seen, name)
	s.mu.Unlock()
	key := s.key(name) + "/" + listFile
	data, _, err := s.fetch(ctx, key)
	if fault.Is(err, fault.Corrupt) { // nothing can be said about it
		data, err = []byte("null\n"), nil
	}
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err == nil {
		err = s.put(ctx, s.key(name)+"/"+asideFile, data, artifact.Digest(data), false)
	}
	if err != nil {
		return err
	}
	_, err = s.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.o.Bucket, Key: &key})
	return s.classify(ctx, "artifact.Aside", name, err)
}

// hold lets one goroutine of this process work on the local copy of a directory, and returns its place.
func (s *Store) hold(ctx context.Context, name string) (dir string, unlock func(), err error) {
	if err := check(ctx, name); err != nil {
		return "", nil, err
	}
	if dir, err = s.Path(name); err != nil {
		return "", nil, err
	}
	l := s.lockOf(name)
	select {
	case l <- struct{}{}:
		return dir, func() { <-l }, nil
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
}

func (s *Store) lockOf(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[name]
	if l == nil {
		l = make(chan struct{}, 1)
		s.locks[name] = l
	}
	return l
}

// evict removes local copies beside a directory that the store has no more, as checkpoints that retention removed. It does its best.
func (s *Store) evict(ctx context.Context, name string) {
	parent := path.Dir(name)
	p, err := s.Path(name)
	if parent == "." || err != nil {
		return
	}
	entries, err := os.ReadDir(filepath.Dir(p))
	if err != nil || len(entries) < 2 {
		return
	}
	there, err := s.Dirs(ctx, parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		st, err := e.Info()
		old := err == nil && time.Since(st.ModTime()) > s.o.Grace
		if !e.IsDir() || !old || slices.Contains(there, e.Name()) || strings.HasPrefix(e.Name(), durable.TempPrefix) {
			continue
		}
		l := s.lockOf(parent + "/" + e.Name())
		select {
		case l <- struct{}{}:
			_ = os.RemoveAll(filepath.Join(filepath.Dir(p), e.Name()))
			<-l
		default: // in use
		}
	}
}

// filesOf digests the files of a local directory.
func filesOf(ctx context.Context, dir string) ([]file, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, cacheError(err)
	}
	files := make([]file, 0, len(entries))
	for _, e := range entries {
		if !e.Type().IsRegular() || artifact.CheckName(e.Name()) != nil {
			return nil, fault.New(fault.Internal, "artifact.Build", "%s holds %s, which is no file that a directory of the store can hold", dir, e.Name())
		}
		f, err := digestOf(ctx, filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// digestOf reads a local file, a piece at a time.
func digestOf(ctx context.Context, name string) (file, error) {
	f, err := os.Open(name)
	if err != nil {
		return file{}, cacheError(err)
	}
	defer f.Close()
	h := sha256.New()
	out := file{Name: filepath.Base(name)}
	for err == nil {
		if ctx.Err() != nil {
			return file{}, ctx.Err()
		}
		var n int64
		n, err = io.CopyN(h, f, 64<<20)
		out.Size += n
	}
	if !errors.Is(err, io.EOF) {
		return file{}, cacheError(err)
	}
	out.SHA256 = hexSum(h)
	return out, nil
}

// equal reports whether a local directory holds these files and no others. Only a cancelled context is an error.
func equal(ctx context.Context, dir string, want []file) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(want) {
		return false, nil //nolint:nilerr // it is loaded then
	}
	for _, f := range want { // sizes first
		if st, err := os.Stat(filepath.Join(dir, f.Name)); err != nil || st.Size() != f.Size {
			return false, nil //nolint:nilerr // as above
		}
	}
	for _, f := range want {
		got, err := digestOf(ctx, filepath.Join(dir, f.Name))
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil || got.SHA256 != f.SHA256 {
			return false, nil //nolint:nilerr // as above
		}
	}
	return true, nil
}
