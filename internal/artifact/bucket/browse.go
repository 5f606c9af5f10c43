package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
)

// entry is an object or a directory of a directory. It is its own description, as the list of a bucket has all of it.
type entry struct {
	name  string
	dir   bool
	size  int64
	at    time.Time
	bytes string // changes with the object's bytes
}

func (e *entry) Name() string               { return e.name }
func (e *entry) IsDir() bool                { return e.dir }
func (e *entry) Type() fs.FileMode          { return e.Mode().Type() }
func (e *entry) Info() (fs.FileInfo, error) { return e, nil }
func (e *entry) Size() int64                { return e.size }
func (e *entry) ModTime() time.Time         { return e.at }

func (e *entry) Mode() fs.FileMode {
	if e.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

func (e *entry) Sys() any {
	if e.bytes == "" {
		return nil
	}
	return e.bytes
}

// dirsAtOnce bounds the questions about directories that are asked at once.
const dirsAtOnce = 8

// Entries implements artifact.Store.
func (s *Store) Entries(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if err := check(ctx, name); err != nil {
		return nil, err
	}
	var out []*entry
	var built time.Time // when the list of this directory was written
	below := s.key(name) + "/"
	pages := s3.NewListObjectsV2Paginator(s.api, &s3.ListObjectsV2Input{Bucket: &s.o.Bucket, Prefix: &below, Delimiter: aws.String("/")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, s.classify(ctx, "artifact.Entries", name, err)
		}
		for _, o := range page.Contents {
			base := strings.TrimPrefix(aws.ToString(o.Key), below)
			if base == listFile {
				built = aws.ToTime(o.LastModified)
			}
			if artifact.CheckName(base) == nil && !strings.HasPrefix(base, own) {
				out = append(out, &entry{base, false, aws.ToInt64(o.Size), aws.ToTime(o.LastModified), aws.ToString(o.ETag)})
			}
		}
		for _, p := range page.CommonPrefixes {
			base := strings.TrimSuffix(strings.TrimPrefix(aws.ToString(p.Prefix), below), "/")
			if artifact.CheckName(base) == nil && !strings.HasPrefix(base, own) {
				out = append(out, &entry{name: base, dir: true})
			}
		}
	}
	if !built.IsZero() {
		l, err := s.list(ctx, name)
		if err != nil && !fault.Is(err, fault.NotFound) { // removed meanwhile
			return nil, err
		}
		for _, f := range l.Files {
			out = append(out, &entry{f.Name, false, f.Size, built, f.SHA256})
		}
	}
	out, err := s.appeared(ctx, name, out)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b *entry) int { return cmp.Compare(a.name, b.name) })
	list := make([]fs.DirEntry, len(out))
	for i, e := range out {
		list[i] = e
	}
	return list, nil
}

// appeared leaves out directories that are being written and have not appeared yet. One that has is remembered: a run's folders stay, and each
// question is a request.
func (s *Store) appeared(ctx context.Context, name string, list []*entry) ([]*entry, error) {
	hidden := make([]bool, len(list))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(dirsAtOnce)
	for i, e := range list {
		dir := path.Join(name, e.name)
		s.mu.Lock()
		known := s.seen[dir]
		s.mu.Unlock()
		if !e.dir || known {
			continue
		}
		g.Go(func() error {
			is, err := s.isDir(gctx, dir)
			if err != nil {
				return err
			}
			if hidden[i] = !is; is {
				s.mu.Lock()
				s.seen[dir] = true
				s.mu.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	var out []*entry
	for i, e := range list {
		if !hidden[i] {
			out = append(out, e)
		}
	}
	return out, nil
}

// Blocks of an object that is read in parts, in bytes, and how many are kept. Readers of Parquet ask for a few bytes at a time.
const (
	blockSize  = 256 << 10
	blocksKept = 64
)

// parts is an object that is read in parts, a block at a time, as long as it is the same object.
type parts struct {
	s    *Store
	ctx  context.Context //nolint:containedctx // lives as long as the caller reads
	key  string
	etag *string
	size int64

	mu     sync.Mutex
	blocks map[int64][]byte
}

// OpenAt implements artifact.Store.
func (s *Store) OpenAt(ctx context.Context, name string) (artifact.Parts, error) {
	if err := check(ctx, name); err != nil {
		return nil, err
	}
	p, err := s.openAt(ctx, s.key(name))
	if fault.Is(err, fault.NotFound) {
		var f file
		if f, err = s.inside(ctx, name); err == nil {
			p, err = s.openAt(ctx, f.key)
		}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (s *Store) openAt(ctx context.Context, key string) (*parts, error) {
	out, err := s.api.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.o.Bucket, Key: &key})
	if err != nil {
		return nil, s.classify(ctx, "artifact.OpenAt", key, err)
	}
	return &parts{s: s, ctx: ctx, key: key, etag: out.ETag, size: aws.ToInt64(out.ContentLength), blocks: map[int64][]byte{}}, nil
}

// Size implements artifact.Parts.
func (p *parts) Size() int64 { return p.size }

// Close implements io.Closer.
func (p *parts) Close() error { return nil }

// ReadAt implements io.ReaderAt.
func (p *parts) ReadAt(b []byte, at int64) (int, error) {
	if at < 0 {
		return 0, fault.New(fault.Invalid, "artifact.OpenAt", "%s is read at %d", p.key, at)
	}
	n := 0
	if len(b) > blockSize && at+int64(len(b)) <= p.size { // nothing to keep, and nobody to wait for: several read a large object at once
		return len(b), p.fetch(b, at)
	}
	for n < len(b) && at < p.size {
		block, err := p.block(at / blockSize)
		if err != nil {
			return n, err
		}
		c := copy(b[n:], block[at%blockSize:])
		n, at = n+c, at+int64(c)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (p *parts) block(i int64) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, ok := p.blocks[i]; ok {
		return b, nil
	}
	from := i * blockSize
	b := make([]byte, min(blockSize, p.size-from))
	if err := p.fetch(b, from); err != nil {
		return nil, err
	}
	if len(p.blocks) >= blocksKept {
		clear(p.blocks)
	}
	p.blocks[i] = b
	return b, nil
}

// fetch reads a range, again where the connection breaks.
func (p *parts) fetch(b []byte, from int64) (err error) {
	for range reopenings {
		if err = p.load(b, from); err == nil || !errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
	}
	if errors.Is(err, errExists) { // If-Match did not hold
		err = fault.New(fault.Busy, "artifact.OpenAt", "%s changed while it was read", p.key).WithHint("try again")
	}
	return err
}

// load reads a range. A connection that breaks gives io.ErrUnexpectedEOF in a Busy.
func (p *parts) load(b []byte, from int64) error {
	out, err := p.s.api.GetObject(p.ctx, &s3.GetObjectInput{
		Bucket: &p.s.o.Bucket, Key: &p.key, IfMatch: p.etag, Range: aws.String(fmt.Sprintf("bytes=%d-%d", from, from+int64(len(b))-1)),
	})
	if err != nil {
		return p.s.classify(p.ctx, "artifact.OpenAt", p.key, err)
	}
	defer out.Body.Close()
	if n := aws.ToInt64(out.ContentLength); n != int64(len(b)) {
		return fault.New(fault.Invalid, "artifact.OpenAt", "the server of the artifact store answers with %d bytes of %s, asked for were %d", n, p.key, len(b)).
			WithHint("use a server that knows ranges of bytes")
	}
	if _, err := io.ReadFull(out.Body, b); err != nil {
		if p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		return fault.New(fault.Busy, "artifact.OpenAt", "%s breaks off: %w", p.key, errors.Join(io.ErrUnexpectedEOF, err)).
			WithHint("look at the network and the server of the artifact store")
	}
	return nil
}
