package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
