package testutil

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// WriteScript writes a shell script that can be started at once: dir/name with text after the first line, mode 0700.
// It returns the path.
//
// While a test writes a program, another test of the same process may fork; the child holds the file open for writing
// until its own exec, and whoever starts the program meanwhile gets "text file busy". No fork happens while the
// file is open here (golang.org/issue/22315).
func WriteScript(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil { //nolint:gosec // a program has to be executable
		t.Fatal(err)
	}
	return path
}
