package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"

	"github.com/steadyrl/steady/internal/fault"
)

// Ref names an object together with its content.
type Ref struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // SHA-256, hexadecimal
	Size   int64  `json:"size"`   // bytes
}

// Store keeps named objects. Names are slash-separated paths of letters, digits, '.', '_' and '-'; no part of one
// starts with ".tmp-", and no name is both an object and a directory of others.
//
// Errors: Invalid (bad name), NotFound, Corrupt (digest differs), Stale (the name exists with other content), Busy
// (the device is full, failing or not there: the same call may succeed later). Concurrency: all methods may be called from any
// goroutine and from several processes at once.
type Store interface {
	// Put writes an object that must not exist, or exists with the same bytes (then nothing is written).
	Put(ctx context.Context, name string, data []byte) (Ref, error)
	// Replace writes an object whether or not it exists; readers see the old bytes or the new ones.
	Replace(ctx context.Context, name string, data []byte) (Ref, error)
	// Get returns an object's bytes and reference.
	Get(ctx context.Context, name string) ([]byte, Ref, error)
	// Exists reports whether the object, or a directory of that name, exists.
	Exists(ctx context.Context, name string) (bool, error)
	// List returns the names with the prefix, sorted, without unfinished writes.
	List(ctx context.Context, prefix string) ([]string, error)
	// Remove deletes an object, or everything below a directory, which disappears at once; a missing one is no error.
	Remove(ctx context.Context, name string) error
	// Open returns the bytes of an object as a stream, for what is larger than memory. The caller closes it. An error while reading
	// has a kind too; the stream is not compared with a digest.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Dirs returns the directories that lie directly in a directory, by their own names, sorted. A missing one has none.
	Dirs(ctx context.Context, name string) ([]string, error)

	// Entries returns what lies directly in a directory, objects and directories, sorted by name, without unfinished writes. A missing one
	// is empty. Info gives size and time of change of an object as far as the store knows them; its Sys is a text that changes
	// with the object's bytes, or nil where the time says enough.
	Entries(ctx context.Context, name string) ([]fs.DirEntry, error)
	// OpenAt opens an object to read parts of it, which are not compared with a digest. The caller closes it. An error while reading has
	// a kind too: Busy if the object has changed meanwhile.
	OpenAt(ctx context.Context, name string) (Parts, error)

	// Pull returns a local directory with the files of a directory of the store (a checkpoint, a data set, an export), whole and
	// with the right digests as far as the store knows them. The caller only reads it. A directory that is not there is NotFound, or a
	// place where nothing is.
	Pull(ctx context.Context, name string) (dir string, err error)
	// Build makes a directory of files, without directories in it. build makes it at dir, whole, by a rename, or leaves there
	// what is right already; then Build returns when it is in the store, where it appears at once.
	Build(ctx context.Context, name string, build func(dir string) error) error
	// Aside takes a directory out of the way that cannot be used: its name is free afterwards, its bytes stay for a person to look at. One that
	// was set aside before may be lost. A missing one is no error.
	Aside(ctx context.Context, name string) error
	// Path returns the place of a name in the local file system: for scratch that is no object, and to tell a person. In a store of
	// files the objects lie there, too. It is Busy while the store as a whole is known to be away.
	Path(name string) (string, error)
	// Where tells a person the place of a name, or of the whole store for ""; there is no secret in it.
	Where(name string) string
}

// Parts is an object that is read in parts. ReadAt may be called from several goroutines.
type Parts interface {
	io.ReaderAt
	io.Closer
	// Size is in bytes.
	Size() int64
}

// Digest returns the SHA-256 of data in hexadecimal.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Fetch returns the bytes of ref and verifies size and digest (Corrupt).
func Fetch(ctx context.Context, s Store, ref Ref) ([]byte, error) {
	data, got, err := s.Get(ctx, ref.Name)
	if err != nil {
		return nil, err
	}
	if got.Digest != ref.Digest || got.Size != ref.Size {
		return nil, fault.New(fault.Corrupt, "artifact.Fetch", "%s has digest %.12s and %d bytes, recorded were %.12s and %d",
			ref.Name, got.Digest, got.Size, ref.Digest, ref.Size)
	}
	return data, nil
}

// PutJSON writes v as indented JSON with a seal. An object of an older build, the same without a seal, is as good.
func PutJSON(ctx context.Context, s Store, name string, v any) (Ref, error) {
	data, err := encode(name, v)
	if err != nil {
		return Ref{}, err
	}
	ref, err := s.Put(ctx, name, Seal(data))
	if !fault.Is(err, fault.Stale) {
		return ref, err
	}
	if _, old, gerr := s.Get(ctx, name); gerr == nil && old.Digest == Digest(data) {
		return s.Put(ctx, name, data)
	}
	return ref, err
}

// ReplaceJSON replaces an object by v as indented JSON with a seal.
func ReplaceJSON(ctx context.Context, s Store, name string, v any) (Ref, error) {
	data, err := encode(name, v)
	if err != nil {
		return Ref{}, err
	}
	return s.Replace(ctx, name, Seal(data))
}

// GetJSON reads an object into v. Bytes that are not JSON of v's shape, or not those that were sealed, are Corrupt.
func GetJSON(ctx context.Context, s Store, name string, v any) (Ref, error) {
	ref, _, err := GetSealed(ctx, s, name, v)
	return ref, err
}

// GetSealed is GetJSON, and returns the seal: empty for an object of a build that wrote none.
func GetSealed(ctx context.Context, s Store, name string, v any) (ref Ref, seal string, err error) {
	data, ref, err := s.Get(ctx, name)
	if err != nil {
		return Ref{}, "", err
	}
	if seal, err = Decode(name, data, v); err != nil {
		return Ref{}, "", err
	}
	return ref, seal, nil
}

// FetchJSON reads and verifies ref into v.
func FetchJSON(ctx context.Context, s Store, ref Ref, v any) error {
	data, err := Fetch(ctx, s, ref)
	if err != nil {
		return err
	}
	_, err = Decode(ref.Name, data, v)
	return err
}

func encode(name string, v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fault.New(fault.Numeric, "artifact.PutJSON", "%s: %w", name, err)
	}
	return append(data, '\n'), nil
}
