package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/durable"
	"github.com/steadyrl/steady/internal/fault"
)

const tempPrefix = durable.TempPrefix

// Files is a Store in a directory of a local or shared file system.
type Files struct{ root string }

// NewFiles opens the store in dir and creates the directory if needed.
func NewFiles(dir string) (*Files, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fault.New(fault.Invalid, "artifact.NewFiles", "%s: %w", dir, err)
	}
	if err := makeDir(abs, ""); err != nil {
		return nil, classify("artifact.NewFiles", dir, err)
	}
	return &Files{root: abs}, nil
}

// Root returns the store's directory.
func (f *Files) Root() string { return f.root }

// Path implements Store.
func (f *Files) Path(name string) (string, error) {
	p, err := f.path(name)
	if err != nil {
		return "", err
	}
	return p, f.away("artifact.Path")
}

func (f *Files) path(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	return filepath.Join(f.root, filepath.FromSlash(name)), nil
}

// away returns Busy while the store's directory is gone or closed to this process, as with a device that is not mounted: then
// that nothing is found says nothing, and nothing may be made in its place.
func (f *Files) away(op string) error {
	_, err := os.Stat(f.root + "/.") // the dot wants the right to search it, too
	if !missing(err) && !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return fault.New(fault.Busy, op, "the artifact store is away: %w", err).
		WithHint("mount it, move it back or give the process access to it; the run waits and goes on by itself")
}

// classify gives an error of the file system its kind: Busy while the whole store is away.
func (f *Files) classify(op, name string, err error) error {
	if missing(err) || errors.Is(err, fs.ErrPermission) {
		if away := f.away(op); away != nil {
			return away
		}
	}
	return classify(op, name, err)
}

// Where implements Store.
func (f *Files) Where(name string) string { return filepath.Join(f.root, filepath.FromSlash(name)) }

// Open implements Store.
func (f *Files) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := f.path(name)
	if err != nil {
		return nil, err
	}
	file, err := durable.Open(p)
	if errors.Is(err, syscall.ENOTDIR) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, f.classify("artifact.Open", name, err)
	}
	return &stream{file: file, f: f, name: name}, nil
}

// stream gives errors of reading their kind.
type stream struct {
	file *os.File
	f    *Files
	name string
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.file.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = s.f.classify("artifact.Open", s.name, err)
	}
	return n, err
}

func (s *stream) Close() error { return s.file.Close() }

// Dirs implements Store.
func (f *Files) Dirs(ctx context.Context, name string) ([]string, error) {
	entries, err := f.Entries(ctx, name)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Entries implements Store.
func (f *Files) Entries(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := f.path(name)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(p) // sorted
	if missing(err) {
		return nil, f.away("artifact.Entries")
	}
	if err != nil {
		return nil, f.classify("artifact.Entries", name, err)
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), tempPrefix) }), nil
}

// OpenAt implements Store.
func (f *Files) OpenAt(ctx context.Context, name string) (Parts, error) {
	r, err := f.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	s := r.(*stream) //nolint:forcetypeassert,errcheck // Open returns nothing else
	st, err := s.file.Stat()
	if err == nil && st.IsDir() {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = s.file.Close()
		return nil, f.classify("artifact.OpenAt", name, err)
	}
	return &parts{stream: s, size: st.Size()}, nil
}

// parts is a file that is read in parts.
type parts struct {
	*stream
	size int64
}

func (p *parts) Size() int64 { return p.size }

func (p *parts) ReadAt(b []byte, at int64) (int, error) {
	n, err := p.file.ReadAt(b, at)
	if err != nil && !errors.Is(err, io.EOF) {
		err = p.f.classify("artifact.OpenAt", p.name, err)
	}
	return n, err
}

// Pull implements Store: the directory itself.
func (f *Files) Pull(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return f.Path(name)
}

// Build implements Store.
func (f *Files) Build(ctx context.Context, name string, build func(dir string) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, err := f.Path(name)
	if err != nil {
		return err
	}
	return build(p)
}

// Aside implements Store: the directory gets another name, with ".corrupt" at its end.
func (f *Files) Aside(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, err := f.Path(name)
	if err != nil {
		return err
	}
	aside := p + ".corrupt"
	err = os.RemoveAll(aside)
	if err == nil {
		err = os.Rename(p, aside)
	}
	if err != nil && !missing(err) {
		return f.classify("artifact.Aside", name, err)
	}
	return nil
}

// Put implements Store.
func (f *Files) Put(ctx context.Context, name string, data []byte) (Ref, error) {
	digest := make(chan string, 1)
	go func() { digest <- Digest(data) }() // while it is written: for gigabytes each takes seconds
	ref := Ref{Name: name, Size: int64(len(data))}
	// The common second execution finds its own bytes and writes nothing.
	if _, got, err := f.Get(ctx, name); err == nil {
		ref.Digest = <-digest
		return f.existing(ref, got)
	} else if !fault.Is(err, fault.NotFound) {
		return Ref{}, err
	}
	file, dst, err := f.writeTemp(ctx, name, data)
	if err != nil {
		return Ref{}, err
	}
	ref.Digest = <-digest
	tmp := file.Name()
	defer file.Close()   // all is synced
	defer os.Remove(tmp) //nolint:errcheck // after a successful link only the temporary name goes
	// Link refuses an existing name atomically, which rename does not.
	if err := os.Link(tmp, dst); err != nil {
		if !errors.Is(err, fs.ErrExist) {
			return Ref{}, f.classify("artifact.Put", name, err)
		}
		_, got, err := f.Get(ctx, name)
		if err != nil {
			return Ref{}, err
		}
		return f.existing(ref, got)
	}
	crashpoint.Here("store.put.linked")
	if err := syncDir(filepath.Dir(dst)); err != nil {
		return Ref{}, f.classify("artifact.Put", name, err)
	}
	crashpoint.Here("store.put.synced")
	return ref, nil
}

// existing answers a Put whose name is taken. The directory is synced also here: who put the object may have
// been killed before it did so.
func (f *Files) existing(want, got Ref) (Ref, error) {
	if want.Digest != got.Digest {
		return Ref{}, fault.New(fault.Stale, "artifact.Put", "%s exists with other content (digest %.12s, new %.12s)", want.Name, got.Digest, want.Digest)
	}
	p, err := f.path(want.Name)
	if err != nil {
		return Ref{}, err
	}
	if err := syncDir(filepath.Dir(p)); err != nil {
		return Ref{}, f.classify("artifact.Put", want.Name, err)
	}
	return want, nil
}

// Replace implements Store.
func (f *Files) Replace(ctx context.Context, name string, data []byte) (Ref, error) {
	file, dst, err := f.writeTemp(ctx, name, data)
	if err != nil {
		return Ref{}, err
	}
	tmp := file.Name()
	defer file.Close() // all is synced
	if err := os.Rename(tmp, dst); err != nil {
		_ = os.Remove(tmp)
		return Ref{}, f.classify("artifact.Replace", name, err)
	}
	crashpoint.Here("store.replace.renamed")
	if err := syncDir(filepath.Dir(dst)); err != nil {
		return Ref{}, f.classify("artifact.Put", name, err)
	}
	crashpoint.Here("store.replace.synced")
	return Ref{Name: name, Digest: Digest(data), Size: int64(len(data))}, nil
}

// writeTemp writes and syncs a file beside dst, the place of name, and returns it open: as long as it is, nobody sweeps it away.
func (f *Files) writeTemp(ctx context.Context, name string, data []byte) (file *os.File, dst string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	dst, err = f.path(name)
	if err != nil {
		return nil, "", err
	}
	if err := makeDir(filepath.Dir(dst), f.root); err != nil {
		return nil, "", f.classify("artifact.Put", name, err)
	}
	file, err = durable.Temp(filepath.Dir(dst))
	if err != nil {
		return nil, "", f.classify("artifact.Put", name, err)
	}
	crashpoint.Here("store.temp.made")
	err = durable.WriteAll(file, data)
	crashpoint.Here("store.temp.written")
	if err == nil {
		err = file.Chmod(0o644)
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		_ = os.Remove(file.Name())
		_ = file.Close() // it is not needed
		return nil, "", f.classify("artifact.Put", name, err)
	}
	crashpoint.Here("store.temp.synced")
	return file, dst, nil
}

// Get implements Store.
func (f *Files) Get(ctx context.Context, name string) ([]byte, Ref, error) {
	if err := ctx.Err(); err != nil {
		return nil, Ref{}, err
	}
	p, err := f.path(name)
	if err != nil {
		return nil, Ref{}, err
	}
	data, err := readFile(p)
	if errors.Is(err, syscall.ENOTDIR) { // an object lies where the name has a directory
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, Ref{}, f.classify("artifact.Get", name, err)
	}
	return data, Ref{Name: name, Digest: Digest(data), Size: int64(len(data))}, nil
}

func readFile(name string) ([]byte, error) {
	f, err := durable.Open(name)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	var data bytes.Buffer
	data.Grow(int(min(st.Size(), 1<<40)) + bytes.MinRead)
	_, err = data.ReadFrom(f)
	return data.Bytes(), errors.Join(err, f.Close())
}

// Exists implements Store.
func (f *Files) Exists(ctx context.Context, name string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	p, err := f.path(name)
	if err != nil {
		return false, err
	}
	_, err = os.Stat(p)
	if missing(err) {
		return false, f.away("artifact.Exists")
	}
	if err != nil {
		return false, f.classify("artifact.Exists", name, err)
	}
	return true, nil
}

// List implements Store.
func (f *Files) List(ctx context.Context, prefix string) ([]string, error) {
	dir := path.Dir(prefix + "x")
	if !filepath.IsLocal(filepath.FromSlash(dir)) {
		return nil, BadName(prefix)
	}
	var names []string
	err := filepath.WalkDir(filepath.Join(f.root, filepath.FromSlash(dir)), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if missing(err) {
				return f.away("artifact.List") // else nothing is there, or gone while walking
			}
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if strings.HasPrefix(d.Name(), tempPrefix) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(f.root, p)
		if err != nil {
			return err
		}
		if name := filepath.ToSlash(rel); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, f.classify("artifact.List", prefix, err)
	}
	slices.Sort(names)
	return names, nil
}

// Remove implements Store.
func (f *Files) Remove(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, err := f.path(name)
	if err != nil {
		return err
	}
	crashpoint.Here("store.remove.before")
	err = os.Remove(p)
	if err == nil {
		return nil
	}
	// Whether or not it is there, what a killed removal or write has left beside it goes too.
	defer durable.Sweep(filepath.Dir(p))
	if missing(err) {
		return f.away("artifact.Remove")
	}
	if info, serr := os.Lstat(p); serr != nil || !info.IsDir() {
		return f.classify("artifact.Remove", name, err)
	}
	// A directory disappears at once, under a name that nobody lists; a crash leaves no half of it behind. The
	// name is made without creating anything, since removal must work on a full device.
	gone := filepath.Join(filepath.Dir(p), fmt.Sprintf("%srm-%d-%d-%s", tempPrefix, os.Getpid(), removals.Add(1), filepath.Base(p)))
	if err := os.Rename(p, gone); err != nil {
		if missing(err) {
			return nil
		}
		gone = p // the name is taken by what a crash left
	}
	crashpoint.Here("store.remove.renamed")
	if err := os.RemoveAll(gone); err != nil {
		return f.classify("artifact.Remove", name, err)
	}
	crashpoint.Here("store.remove.after")
	return nil
}

var removals atomic.Int64

// missing reports whether err says that there is nothing of that name.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// makeDir makes a directory and what is missing above it, but not above or at root, which is there or away; "" for no such
// bound. It syncs every directory that got a new entry.
func makeDir(dir, root string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if dir == root {
		return fs.ErrNotExist
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := makeDir(parent, root); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			if info, serr := os.Stat(dir); serr == nil && info.IsDir() {
				return nil
			}
			return syscall.ENOTDIR
		}
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	if err := durable.SyncDir(dir); err != nil {
		return classify("artifact.Put", dir, err)
	}
	return nil
}

// CheckName returns Invalid for what no object can be called.
func CheckName(name string) error {
	bad := name == "" || name == "." || path.Clean(name) != name || path.IsAbs(name) || strings.HasPrefix(name, "..")
	for _, r := range name {
		ok := r == '/' || r == '.' || r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		bad = bad || !ok
	}
	for part := range strings.SplitSeq(name, "/") {
		bad = bad || strings.HasPrefix(part, tempPrefix) // would be invisible
	}
	if bad {
		return BadName(name)
	}
	return nil
}

// BadName is the error about a name or prefix that no object can have.
func BadName(name string) error {
	return fault.New(fault.Invalid, "artifact.Path", "bad object name %q", name).
		WithHint("names are relative paths of letters, digits, '.', '_' and '-'")
}

// classify maps an error of the file system to a fault kind.
func classify(op, name string, err error) error {
	switch {
	case fault.Is(err, fault.Busy): // of a directory on the way, classified already
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, op, "%s: %w", name, err)
	case errors.Is(err, durable.ErrNoFile), errors.Is(err, syscall.ELOOP):
		return fault.New(fault.Corrupt, op, "%s: %w", name, err).WithHint("remove it; the store holds files and directories only")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.New(fault.Busy, op, "%s: %w", name, err).WithHint("free space on the device of the artifact store; the run waits and goes on by itself")
	case errors.Is(err, syscall.EFBIG):
		return fault.New(fault.Busy, op, "%s: %w", name, err).WithHint("raise the limit on the size of files of this process; the run tries again")
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG):
		return fault.New(fault.Invalid, op, "%s: %w", name, err).WithHint("a name cannot be an object and a directory of objects, and a part of it has at most 255 characters")
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ESTALE), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fault.New(fault.Busy, op, "%s: %w", name, err).WithHint("check the device of the artifact store; the run tries again")
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Invalid, op, "%s: %w", name, err).WithHint("give the process write access to the artifact store")
	}
	return fault.New(fault.Internal, op, "%s: %w", name, err)
}
