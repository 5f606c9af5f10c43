package durable_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/steadyrl/steady/internal/durable"
)

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

func TestSweep_removesWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// What a killed process leaves: files and directories that nobody has open.
	for _, name := range []string{".tmp-dead", "kept", "below/.tmp-other"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, ".tmp-rm-1", "x"), 0o750); err != nil {
		t.Fatal(err)
	}
	f, err := durable.Temp(dir)
	if err != nil {
		t.Fatal(err)
	}
	made, release, err := durable.TempDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	durable.Sweep(dir)
	want := map[string]bool{"below": true, "kept": true, filepath.Base(f.Name()): true, filepath.Base(made): true}
	got := names(t, dir)
	if parts := strings.Fields(got); len(parts) != len(want) || !want[parts[0]] || !want[parts[1]] {
		t.Errorf("left are %q, want %v", got, want)
	}
	release()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	durable.Sweep(dir)
	if got := names(t, dir); got != "below kept" {
		t.Errorf("left are %q, want below kept", got)
	}
	durable.Sweep(filepath.Join(dir, "none")) // is no reason to fail
}

// However makers and sweepers meet, who has made a file or a directory has it.
func TestSweep_takesNothingFromWhoHasJustMadeIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	done := make(chan struct{})
	var sweepers, makers sync.WaitGroup
	for range 2 {
		sweepers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					durable.Sweep(dir)
				}
			}
		})
	}
	for range 4 {
		makers.Go(func() {
			for i := range 200 {
				if err := makeAndCheck(dir, i%2 == 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	makers.Wait()
	close(done)
	sweepers.Wait()
	durable.Sweep(dir)
	if got := names(t, dir); got != "" {
		t.Errorf("left are %q, want nothing", got)
	}
}

func makeAndCheck(dir string, file bool) error {
	if file {
		f, err := durable.Temp(dir)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := os.Stat(f.Name()); err != nil {
			return fmt.Errorf("a file that is held: %w", err)
		}
		return nil
	}
	path, release, err := durable.TempDir(dir)
	if err != nil {
		return err
	}
	defer release()
	return os.WriteFile(filepath.Join(path, "x"), nil, 0o600)
}
