package durable_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
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

// What is read is what was written, wherever its zeros lie and however the writes are cut; long stretches of zeros take no space.
func TestCreateSparse_holdsWhatWasWritten(t *testing.T) {
	t.Parallel()
	const block = 1 << 18
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		var want []byte
		for range 1 + random.IntN(6) {
			stretch := make([]byte, random.IntN(2*block))
			if i%3 == 0 { // whole blocks
				stretch = make([]byte, block*random.IntN(3))
			}
			if random.IntN(2) == 0 {
				for k := range stretch {
					stretch[k] = byte(1 + k%251) //nolint:gosec // below 256
				}
			}
			want = append(want, stretch...)
		}
		name := filepath.Join(t.TempDir(), "f")
		err := durable.CreateSparse(name, func(w io.Writer) error {
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 1+random.IntN(block))
				if _, err := w.Write(rest[:n]); err != nil {
					return err
				}
				rest = rest[n:]
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("file %d: %d bytes were read, %d written, equal: %v; %v", i, len(got), len(want), bytes.Equal(got, want), err)
		}
	}
	dir := t.TempDir()
	space := func(name string, create func(string, func(io.Writer) error) error) int64 {
		if err := create(filepath.Join(dir, name), func(w io.Writer) error {
			_, err := w.Write(make([]byte, 64*block))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks
	}
	if sparse, full := space("sparse", durable.CreateSparse), space("full", durable.Create); full > 0 && sparse > full/8 {
		t.Errorf("zeros take %d blocks, written out %d", sparse, full)
	}
	failed := errors.New("no more")
	if err := durable.CreateSparse(filepath.Join(dir, "failed"), func(io.Writer) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("an error of write: %v", err)
	}
}
