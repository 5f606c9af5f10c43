package bucket

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/durable"
	"github.com/steadyrl/steady/internal/fault"
)

// mostRivals bounds how often a Put looks again at who was quicker.
const mostRivals = 10

// own begins the parts of keys that belong to the store and are no names.
const own = "@"

// String is the address of the store.
func (s *Store) String() string { return s.o.Place.String() }

// Where implements artifact.Store.
func (s *Store) Where(name string) string {
	if name == "" {
		return s.String()
	}
	return Scheme + s.o.Bucket + "/" + s.key(name)
}

// Path implements artifact.Store: a place in the cache.
func (s *Store) Path(name string) (string, error) {
	if err := artifact.CheckName(name); err != nil {
		return "", err
	}
	return filepath.Join(s.o.Cache, filepath.FromSlash(name)), nil
}

func (s *Store) key(name string) string { return s.o.Prefix + name }

// check begins every call.
func check(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return artifact.CheckName(name)
}

// Put implements artifact.Store.
func (s *Store) Put(ctx context.Context, name string, data []byte) (artifact.Ref, error) {
	if err := check(ctx, name); err != nil {
		return artifact.Ref{}, err
	}
	ref := artifact.Ref{Name: name, Digest: artifact.Digest(data), Size: int64(len(data))}
	for try := 0; ; try++ {
		// The common second execution finds its own bytes and writes nothing.
		err := s.same(ctx, ref)
		if !fault.Is(err, fault.NotFound) {
			return refOf(ref, err)
		}
		if err := s.free(ctx, name); err != nil {
			return artifact.Ref{}, err
		}
		err = s.put(ctx, s.key(name), data, ref.Digest, true)
		switch rival := errors.Is(err, errExists); {
		case !rival && !errors.Is(err, errConflict):
			return refOf(ref, err)
		case try == mostRivals:
			return artifact.Ref{}, fault.New(fault.Busy, "artifact.Put", "%s: other writers come and go: %w", name, err).WithHint("the run tries again")
		}
		// Somebody was quicker, and may have been removed again meanwhile; or is not done.
	}
}

func refOf(ref artifact.Ref, err error) (artifact.Ref, error) {
	if err != nil {
		return artifact.Ref{}, err
	}
	return ref, nil
}

// same compares an object with what a Put wants to write: Stale if it is another.
func (s *Store) same(ctx context.Context, want artifact.Ref) error {
	got, err := s.head(ctx, s.key(want.Name))
	if err == nil && got.digest == "" { // written by another program
		_, got.digest, err = s.fetch(ctx, s.key(want.Name))
	}
	if err == nil && got.digest != want.Digest {
		return fault.New(fault.Stale, "artifact.Put", "%s exists with other content (digest %.12s, new %.12s)", want.Name, got.digest, want.Digest)
	}
	return err
}

// free wants that a name of an object is no directory, and that no object lies above it. Two writers at once can break it: the store has no
// directories, and no names of steady do so.
func (s *Store) free(ctx context.Context, name string) error {
	taken := func(what string) error {
		return fault.New(fault.Invalid, "artifact.Put", "%s is %s", name, what).WithHint("a name cannot be an object and a directory of objects")
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		s.mu.Lock()
		known := s.folders[dir]
		s.mu.Unlock()
		if known {
			break
		}
		if _, err := s.head(ctx, s.key(dir)); err == nil {
			return taken("below the object " + dir)
		} else if !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	if is, err := s.isDir(ctx, name); err != nil || is {
		if is {
			err = taken("a directory")
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		s.folders[dir] = true
	}
	return nil
}

// Replace implements artifact.Store.
func (s *Store) Replace(ctx context.Context, name string, data []byte) (artifact.Ref, error) {
	if err := check(ctx, name); err != nil {
		return artifact.Ref{}, err
	}
	if err := s.free(ctx, name); err != nil {
		return artifact.Ref{}, err
	}
	ref := artifact.Ref{Name: name, Digest: artifact.Digest(data), Size: int64(len(data))}
	return refOf(ref, s.put(ctx, s.key(name), data, ref.Digest, false))
}

// Get implements artifact.Store.
func (s *Store) Get(ctx context.Context, name string) ([]byte, artifact.Ref, error) {
	if err := check(ctx, name); err != nil {
		return nil, artifact.Ref{}, err
	}
	data, digest, err := s.fetch(ctx, s.key(name))
	if fault.Is(err, fault.NotFound) {
		var f file
		if f, err = s.inside(ctx, name); err == nil {
			data, digest, err = s.fetch(ctx, f.key)
		}
	}
	if err != nil {
		return nil, artifact.Ref{}, err
	}
	return data, artifact.Ref{Name: name, Digest: digest, Size: int64(len(data))}, nil
}

// Open implements artifact.Store.
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := check(ctx, name); err != nil {
		return nil, err
	}
	d, err := s.open(ctx, s.key(name))
	if fault.Is(err, fault.NotFound) {
		var f file
		if f, err = s.inside(ctx, name); err == nil {
			d, err = s.open(ctx, f.key)
		}
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Exists implements artifact.Store.
func (s *Store) Exists(ctx context.Context, name string) (bool, error) {
	if err := check(ctx, name); err != nil {
		return false, err
	}
	_, err := s.head(ctx, s.key(name))
	if !fault.Is(err, fault.NotFound) {
		return err == nil, err
	}
	if is, err := s.isDir(ctx, name); is || err != nil {
		return is, err
	}
	_, err = s.inside(ctx, name)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// isDir reports whether something lies below a name: objects, or the list of a directory, but not only files of one that is being written.
func (s *Store) isDir(ctx context.Context, name string) (bool, error) {
	below := s.key(name) + "/"
	after := ""
	for {
		in := &s3.ListObjectsV2Input{Bucket: &s.o.Bucket, Prefix: &below, MaxKeys: aws.Int32(1)}
		if after != "" {
			in.StartAfter = &after
		}
		out, err := s.api.ListObjectsV2(ctx, in)
		if err != nil {
			return false, s.classify(ctx, "bucket.isDir", name, err)
		}
		if len(out.Contents) == 0 {
			return false, nil
		}
		rest := strings.TrimPrefix(aws.ToString(out.Contents[0].Key), below)
		if !strings.HasPrefix(rest, own) || rest == listFile {
			return true, nil
		}
		if after != "" && rest <= strings.TrimPrefix(after, below) { // a server that does not know StartAfter
			return false, nil
		}
		after = below + own + "~" // behind all of the store's own
		if rest > own+"~" {
			return true, nil
		}
	}
}

// keys calls f with the key of every object with a prefix, in order.
func (s *Store) keys(ctx context.Context, prefix string, f func(key string, size int64)) error {
	pages := s3.NewListObjectsV2Paginator(s.api, &s3.ListObjectsV2Input{Bucket: &s.o.Bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return s.classify(ctx, "artifact.List", strings.TrimPrefix(prefix, s.o.Prefix), err)
		}
		for _, o := range page.Contents {
			f(aws.ToString(o.Key), aws.ToInt64(o.Size))
		}
	}
	return nil
}

// List implements artifact.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir := path.Dir(prefix + "x")
	if !filepath.IsLocal(filepath.FromSlash(dir)) {
		return nil, artifact.BadName(prefix)
	}
	var names, dirs []string
	if dir != "." && !strings.HasSuffix(prefix, "/") {
		dirs = append(dirs, dir) // the prefix may be that of files in a directory
	}
	err := s.keys(ctx, s.key(prefix), func(key string, _ int64) {
		name := strings.TrimPrefix(key, s.o.Prefix)
		if strings.HasSuffix(name, "/"+listFile) {
			dirs = append(dirs, path.Dir(name))
		} else if artifact.CheckName(name) == nil { // else the store's own, or not of a store
			names = append(names, name)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, d := range dirs {
		l, err := s.list(ctx, d)
		if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Invalid) { // no directory, or removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, f := range l.Files {
			if name := d + "/" + f.Name; strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// Remove implements artifact.Store. The list of a directory goes first, so that it disappears at once; of other directories the objects
// disappear one after the other. A file of a directory is not removed alone.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	key := s.key(name)
	if _, err := s.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.o.Bucket, Key: &key}); err != nil {
		if err := s.classify(ctx, "artifact.Remove", name, err); !fault.Is(err, fault.NotFound) && !errors.Is(err, errFolder) {
			return err
		}
	}
	var lists, rest []string
	err := s.keys(ctx, key+"/", func(k string, _ int64) {
		if path.Base(k) == listFile {
			lists = append(lists, k)
		} else {
			rest = append(rest, k)
		}
	})
	if err == nil {
		err = s.delete(ctx, append(lists, rest...))
	}
	if err != nil {
		return err
	}
	if len(lists)+len(rest) > 0 {
		s.reap(ctx, key+"/")
	}
	s.mu.Lock()
	for _, known := range []map[string]bool{s.folders, s.seen} {
		for dir := range known {
			if dir == name || strings.HasPrefix(dir, name+"/") {
				delete(known, dir)
			}
		}
	}
	s.mu.Unlock()
	p, err := s.Path(name)
	if err != nil {
		return err
	}
	durable.Sweep(filepath.Dir(p))
	return cacheError(os.RemoveAll(p))
}

// delete removes objects, in order.
func (s *Store) delete(ctx context.Context, keys []string) error {
	const atOnce = 1000 // what the protocol allows
	for batch := range slices.Chunk(keys, atOnce) {
		var ids []types.ObjectIdentifier
		for _, k := range batch {
			ids = append(ids, types.ObjectIdentifier{Key: aws.String(k)})
		}
		out, err := s.api.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &s.o.Bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)}})
		if err != nil {
			return s.classify(ctx, "artifact.Remove", batch[0], err)
		}
		for _, e := range out.Errors {
			if code := aws.ToString(e.Code); code != "NoSuchKey" {
				return s.classify(ctx, "artifact.Remove", aws.ToString(e.Key), &deleteError{code, aws.ToString(e.Message)})
			}
		}
	}
	return nil
}

// decode reads the store's own JSON.
func decode(key string, data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fault.New(fault.Corrupt, "bucket", "%s is damaged: %w", key, err).WithHint("restore the object from another version or a copy of the bucket")
	}
	return nil
}
