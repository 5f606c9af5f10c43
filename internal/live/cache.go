package live

import (
	"container/list"
	"context"
	"io"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// cacheBytes bounds the records that a Cache holds.
const cacheBytes = 64 << 20

// Cache is a store that only reads, and that reads what never changes once.
//
// Concurrency: all methods may be called from any goroutine.
type Cache struct {
	inner artifact.Store
	limit int64

	opened, listed atomic.Int64

	mu    sync.Mutex
	held  map[string]*list.Element // of *entry
	order *list.List               // newest use first
	bytes int64
	seen  map[record.Layout]*Status // of Look
}

type entry struct {
	name  string
	data  []byte
	ref   artifact.Ref
	value any // what the bytes mean, once somebody asked
}

var _ artifact.Store = (*Cache)(nil)

// NewCache wraps a store.
func NewCache(s artifact.Store) *Cache {
	return &Cache{inner: s, limit: cacheBytes, held: map[string]*list.Element{}, order: list.New(), seen: map[record.Layout]*Status{}}
}

// Opened is the number of files opened so far, Listed that of directories.
func (c *Cache) Opened() int64 { return c.opened.Load() }

// Listed is the number of directories listed so far.
func (c *Cache) Listed() int64 { return c.listed.Load() }

// lasting reports whether an object of this name is written once: the records of runs and prepared data sets, but not the
// pointers, not what workers say of themselves, and none of the large files.
func lasting(name string) bool {
	if !strings.HasSuffix(name, ".json") {
		return false
	}
	p := strings.Split(name, "/")
	switch {
	case p[0] == "datasets":
		return true
	case p[0] != "runs" || len(p) < 3:
		return false
	case len(p) == 3:
		return p[2] == "run.json"
	case len(p) == 4:
		return p[3] == "run.json" || p[3] == "config.json" || p[3] == "dataset.json" || p[3] == "base.json"
	case len(p) != 5:
		return false
	}
	switch p[3] {
	case "batches", "results", "ledger", "validation", "events", "weights":
		return true
	}
	return p[3] == "export" && p[4] == "certificate.json"
}

// Get implements artifact.Store.
func (c *Cache) Get(ctx context.Context, name string) ([]byte, artifact.Ref, error) {
	e, err := c.get(ctx, name)
	if err != nil {
		return nil, artifact.Ref{}, err
	}
	return e.data, e.ref, nil
}

func (c *Cache) get(ctx context.Context, name string) (*entry, error) {
	keep := lasting(name)
	if keep {
		c.mu.Lock()
		if el, ok := c.held[name]; ok {
			c.order.MoveToFront(el)
			c.mu.Unlock()
			return el.Value.(*entry), nil //nolint:forcetypeassert // the list holds nothing else
		}
		c.mu.Unlock()
	}
	c.opened.Add(1)
	data, ref, err := c.inner.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	e := &entry{name: name, data: data, ref: ref}
	if keep {
		c.keep(e)
	}
	return e, nil
}

func (c *Cache) keep(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.held[e.name]; ok {
		return // another request was as quick
	}
	c.held[e.name] = c.order.PushFront(e)
	c.bytes += int64(len(e.data))
	for c.bytes > c.limit && c.order.Len() > 1 {
		c.drop(c.order.Back())
	}
}

func (c *Cache) drop(el *list.Element) {
	e := el.Value.(*entry) //nolint:forcetypeassert // the list holds nothing else
	c.order.Remove(el)
	delete(c.held, e.name)
	c.bytes -= int64(len(e.data))
}

// forget drops everything below a prefix: the run was removed and another has its name.
func (c *Cache) forget(prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, el := range c.held {
		if strings.HasPrefix(name, prefix) {
			c.drop(el)
		}
	}
}

// read returns the value of a record; it is shared and must not be changed. Errors: as artifact.GetJSON.
func read[T any](ctx context.Context, c *Cache, name string) (*T, error) {
	e, err := c.get(ctx, name)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	v, ok := e.value.(*T)
	c.mu.Unlock()
	if ok {
		return v, nil
	}
	v = new(T)
	if _, err := artifact.Decode(name, e.data, v); err != nil {
		return nil, err
	}
	c.mu.Lock()
	e.value = v
	c.mu.Unlock()
	return v, nil
}

// Entries implements artifact.Store.
func (c *Cache) Entries(ctx context.Context, name string) ([]fs.DirEntry, error) {
	c.listed.Add(1)
	return c.inner.Entries(ctx, name)
}

// foldersAtOnce bounds the directories that are listed at once: in a bucket each is a request or more.
const foldersAtOnce = 10

// folders lists several directories, in their order.
func (c *Cache) folders(ctx context.Context, names []string) ([][]fs.DirEntry, error) {
	out := make([][]fs.DirEntry, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(foldersAtOnce)
	for i, name := range names {
		g.Go(func() (err error) {
			out[i], err = c.Entries(gctx, name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return out, nil
}

// OpenAt implements artifact.Store.
func (c *Cache) OpenAt(ctx context.Context, name string) (artifact.Parts, error) {
	c.opened.Add(1)
	return c.inner.OpenAt(ctx, name)
}

// Exists implements artifact.Store.
func (c *Cache) Exists(ctx context.Context, name string) (bool, error) {
	return c.inner.Exists(ctx, name)
}

// List implements artifact.Store.
func (c *Cache) List(ctx context.Context, prefix string) ([]string, error) {
	c.listed.Add(1)
	return c.inner.List(ctx, prefix)
}

// Path implements artifact.Store.
func (c *Cache) Path(name string) (string, error) { return c.inner.Path(name) }

// Where implements artifact.Store.
func (c *Cache) Where(name string) string { return c.inner.Where(name) }

// Open implements artifact.Store.
func (c *Cache) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	c.opened.Add(1)
	return c.inner.Open(ctx, name)
}

// Dirs implements artifact.Store.
func (c *Cache) Dirs(ctx context.Context, name string) ([]string, error) {
	c.listed.Add(1)
	return c.inner.Dirs(ctx, name)
}

// Pull implements artifact.Store.
func (c *Cache) Pull(ctx context.Context, name string) (string, error) {
	return c.inner.Pull(ctx, name)
}

// Build refuses: the pages only read.
func (c *Cache) Build(context.Context, string, func(string) error) error { return readOnly("Build") }

// Aside refuses.
func (c *Cache) Aside(context.Context, string) error { return readOnly("Aside") }

// Put refuses.
func (c *Cache) Put(context.Context, string, []byte) (artifact.Ref, error) {
	return artifact.Ref{}, readOnly("Put")
}

// Replace refuses.
func (c *Cache) Replace(context.Context, string, []byte) (artifact.Ref, error) {
	return artifact.Ref{}, readOnly("Replace")
}

// Remove refuses.
func (c *Cache) Remove(context.Context, string) error { return readOnly("Remove") }

func readOnly(what string) error {
	return fault.New(fault.Internal, "live.Cache", "%s on a store that is only read", what)
}
