package durable

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// TempPrefix begins the names of files and directories that are being made, and of directories that are being removed. Nobody
// reads them.
const TempPrefix = ".tmp-"

// Temp makes a new file in dir, mode 0600, under a name with TempPrefix. Until it is closed, by its process or by the end of it,
// Sweep leaves it alone.
func Temp(dir string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(dir, TempPrefix+"*")
		if err != nil || hold(f) {
			return f, err
		}
		_ = f.Close() // swept away before it was held: nothing is lost
	}
}

// TempDir makes a new directory in dir, mode 0700, under a name with TempPrefix. Until release is called, or its process ends, Sweep
// leaves it alone.
func TempDir(dir string) (path string, release func(), err error) {
	for {
		path, err := os.MkdirTemp(dir, TempPrefix)
		if err != nil {
			return "", nil, err
		}
		f, err := os.Open(path)
		if err == nil && hold(f) {
			return path, func() { _ = f.Close() }, nil
		}
		if err == nil {
			_ = f.Close() // swept away, as in Temp
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", nil, err
		}
	}
}

// hold locks a new file, and reports whether it still has its name.
func hold(f *os.File) bool {
	if errors.Is(lock(f), syscall.EWOULDBLOCK) {
		return false // who sweeps has it
	}
	there, err := os.Stat(f.Name())
	mine, merr := f.Stat()
	return err == nil && merr == nil && os.SameFile(there, mine)
}

// lock takes the lock of an open file, which goes with it. A file system without locks gives it to nobody.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) //nolint:gosec // descriptors are small
}

// Sweep removes from dir, not below it, what Temp, TempDir or a removal left whose process was killed. It does its best: what cannot be
// locked stays.
func Sweep(dir string) {
	entries, _ := os.ReadDir(dir) // what is not there needs no sweeping
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), TempPrefix) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if lock(f) == nil {
			_ = os.RemoveAll(name) // tried again next time
		}
		_ = f.Close()
	}
}
