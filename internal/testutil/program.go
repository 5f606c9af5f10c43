package testutil

import (
	"context"
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

// Asked returns a pipe that never has anything to read, and a context that is cancelled once somebody has opened the pipe: a program that
// does `exec cat PIPE` is interrupted while it runs.
func Asked(t *testing.T) (pipe string, ctx context.Context) {
	t.Helper()
	pipe = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	go func() {
		f, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the reader
		cancel()
		<-end
		if err == nil {
			_ = f.Close() // nothing was written
		}
	}()
	return pipe, ctx
}
