package durable_test

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/steadyrl/steady/internal/durable"
)

func TestWriteNew_replacesNothing(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "f")
	if err := durable.WriteNew(name, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := durable.WriteNew(name, []byte("two")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second file: %v, want that it exists", err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "one" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if err := durable.WriteNew(filepath.Join(name, "g"), nil); err == nil {
		t.Error("a file below a file")
	}
	if err := durable.SyncDir(filepath.Dir(name)); err != nil {
		t.Error(err)
	}
	if err := durable.SyncDir(filepath.Join(filepath.Dir(name), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent directory: %v", err)
	}
}

// What write leaves is there, whatever the order it was written in; a hole is zeros, and an error of write is told.
func TestCreateAt_keepsWhatWasWrittenInAnyOrder(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "f")
	err := durable.CreateAt(name, func(f *os.File) error {
		_, end := f.WriteAt([]byte("end"), 7)
		_, begin := f.WriteAt([]byte("be"), 0)
		return errors.Join(end, begin)
	})
	if got, rerr := os.ReadFile(name); err != nil || string(got) != "be\x00\x00\x00\x00\x00end" {
		t.Errorf("%q, %v, %v", got, err, rerr)
	}
	if err := durable.CreateAt(name, func(*os.File) error { return nil }); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second file: %v, want that it exists", err)
	}
	failed := errors.New("no more")
	if err := durable.CreateAt(name+"2", func(*os.File) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("an error of write: %v", err)
	}
}

// Data of any length is in the file as it was given, and the error of a part is told.
func TestWriteAll_everyLength(t *testing.T) {
	t.Parallel()
	const part = 16 << 20
	data := make([]byte, 3*part+5)
	for i := range data {
		data[i] = byte(i % 251) //nolint:gosec // below 256
	}
	for _, n := range []int{0, 1, part - 1, part, part + 1, len(data)} {
		name := filepath.Join(t.TempDir(), "f")
		if err := durable.WriteNew(name, data[:n]); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, data[:n]) {
			t.Errorf("%d bytes were written, %d read, %v", n, len(got), err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := durable.WriteAll(f, data[:n]); n > 0 && err == nil {
			t.Errorf("%d bytes were written into a file that is open for reading", n)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpen_filesAndDirectoriesOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.Listen("unix", path("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(
		syscall.Mkfifo(path("pipe"), 0o600), os.Symlink("/dev/null", path("device")), os.Symlink("pipe", path("link")), os.WriteFile(path("file"), []byte("x"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"pipe": durable.ErrNoFile, "device": durable.ErrNoFile, "link": durable.ErrNoFile, "socket": durable.ErrNoFile, "absent": fs.ErrNotExist, "file": nil, ".": nil,
	} {
		f, err := durable.Open(path(name))
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err == nil {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
