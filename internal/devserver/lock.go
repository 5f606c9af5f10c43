package devserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/steadyrl/steady/internal/fault"
)

// lockName is the file in a data directory that its one user holds.
const lockName = "lock"

// Lock holds a data directory for this process until Unlock or the end of the process, however it ends.
type Lock struct{ file *os.File }

// LockDir creates dir if need be and locks it. Errors: Invalid if another process (or this one) holds it, or the
// directory cannot be written.
func LockDir(dir string) (*Lock, error) {
	const op = "devserver.LockDir"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fault.New(fault.Invalid, op, "%w", err).WithHint("choose a writable data directory")
	}
	name := filepath.Join(dir, lockName)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fault.New(fault.Invalid, op, "%w", err).WithHint("choose a writable data directory")
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(name) // for the message only
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fault.New(fault.Invalid, op, "the data directory %s is in use by process %s", dir, orUnknown(holder)).
				WithHint("stop that process first, or choose another data directory with --data")
		}
		return nil, fault.New(fault.Invalid, op, "lock %s: %w", name, err)
	}
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		_ = f.Close()
		return nil, fault.New(fault.Exhausted, op, "%s: %w", name, err)
	}
	return &Lock{f}, nil
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(fmt.Sprintf("%d\n", os.Getpid())), 0)
	return err
}

func orUnknown(pid []byte) string {
	if s := strings.TrimSpace(string(pid)); s != "" {
		return s
	}
	return "unknown"
}

// Unlock gives the directory free. It may be called twice.
func (l *Lock) Unlock() {
	if l != nil && l.file != nil {
		_ = l.file.Close() // closing ends the lock; nothing was written that could be lost
		l.file = nil
	}
}
