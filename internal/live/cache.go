package live

import (
	"container/list"
	"context"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"

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

// NewCache wraps a store whose objects are files (artifact.Files): directories are listed, and parts of large files read, in the file system.
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

// folder lists a directory of the store, without unfinished writes; a missing one is empty.
func (c *Cache) folder(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := c.inner.Path(name)
	if err != nil {
		return nil, err
	}
	c.listed.Add(1)
	all, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, fault.New(fault.Busy, "live.folder", "list %s: %w", name, err)
	}
	out := all[:0]
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e)
		}
	}
	return out, nil
}

// open opens an object to read parts of it.
func (c *Cache) open(name string) (*os.File, int64, error) {
	p, err := c.inner.Path(name)
	if err != nil {
		return nil, 0, err
	}
	c.opened.Add(1)
	f, err := os.Open(p)
	if err != nil {
		kind := fault.Busy
		if os.IsNotExist(err) {
			kind = fault.NotFound
		}
		return nil, 0, fault.New(kind, "live.open", "%s: %w", name, err)
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, fault.New(fault.Busy, "live.open", "%s: %w", name, err)
	}
	return f, st.Size(), nil
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
