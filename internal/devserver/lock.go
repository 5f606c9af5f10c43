package devserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/steadyrl/steady/internal/fault"
)

// lockName is the file in a data directory that its one user holds. It holds that user's process id until the user
// gives the directory free.
const lockName = "lock"

// Lock holds a data directory for this process until Unlock or the end of the process, however it ends.
type Lock struct {
	file *os.File
	// abandoned is true if the last holder ended without Unlock: the server that it ran may still be ending.
	abandoned bool
}

// LockDir creates dir if need be and locks it. A holder that is ending, as after kill -9, is waited for up to 10 s;
// waiting, which may be nil, is then told once, after 1 s, for whom.
//
// Errors: Invalid if another process (or this one) holds it and goes on to, or the directory cannot be written; the
// context's.
func LockDir(ctx context.Context, dir string, waiting func(holder string)) (*Lock, error) {
	w := patience{ending: isEnding, poll: 50 * time.Millisecond, grace: 500 * time.Millisecond, tell: time.Second, limit: 10 * time.Second, waiting: waiting}
	return w.lock(ctx, dir)
}

// patience says how long to wait for another holder.
type patience struct {
	// ending reports whether a process has ended or is about to, whatever it wants.
	ending func(pid int) bool
	poll   time.Duration // between two tries
	// grace is how long a holder may look alive: a signal that was sent takes a moment to arrive.
	grace   time.Duration
	tell    time.Duration // after which waiting is told
	limit   time.Duration // for a holder that is ending
	waiting func(holder string)
	// busy, if not nil, is told of every try that failed.
	busy func()
}

func (w patience) lock(ctx context.Context, dir string) (*Lock, error) {
	const op = "devserver.LockDir"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fault.New(fault.Invalid, op, "%w", err).WithHint("choose a writable data directory with --data")
	}
	name := filepath.Join(dir, lockName)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fault.New(fault.Invalid, op, "%w", err).WithHint("choose a writable data directory with --data")
	}
	if err := w.acquire(ctx, f, dir); err != nil {
		_ = f.Close()
		return nil, err
	}
	l := &Lock{file: f, abandoned: holderOf(f) != ""}
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		_ = f.Close()
		return nil, fault.New(fault.Exhausted, op, "%s: %w", name, err)
	}
	return l, nil
}

// acquire takes the lock of f, or says who holds it.
func (w patience) acquire(ctx context.Context, f *os.File, dir string) error {
	const op = "devserver.LockDir"
	tick := time.NewTicker(w.poll)
	defer tick.Stop()
	began, told, alive := time.Now(), false, time.Duration(0)
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fault.New(fault.Invalid, op, "lock %s: %w", f.Name(), err).WithHint("choose a directory of a local file system with --data")
		}
		if w.busy != nil {
			w.busy()
		}
		// Read anew each time: the next holder may have come first.
		holder := holderOf(f)
		pid, err := strconv.Atoi(holder)
		if err == nil && pid > 0 && !w.ending(pid) {
			alive += w.poll
		} else {
			alive = 0
		}
		waited := time.Since(began)
		if alive > w.grace || waited > w.limit {
			return fault.New(fault.Invalid, op, "the data directory %s is in use by process %s", dir, orUnknown(holder)).
				WithHint("stop that process first, or choose another data directory with --data")
		}
		if !told && waited > w.tell {
			told = true
			if w.waiting != nil {
				w.waiting(orUnknown(holder))
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// isEnding reports whether a process is gone, a zombie, or bound to end.
func isEnding(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return true
	}
	return bound(pid)
}

// holderOf returns the process id in a lock file; empty after an orderly end.
func holderOf(f *os.File) string {
	var text [32]byte
	n, _ := f.ReadAt(text[:], 0) // what cannot be read is not known
	return strings.TrimSpace(string(text[:n]))
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(fmt.Sprintf("%d\n", os.Getpid())), 0)
	return err
}

func orUnknown(pid string) string {
	if pid == "" {
		return "unknown"
	}
	return pid
}

// Unlock gives the directory free. It may be called twice.
func (l *Lock) Unlock() {
	if l != nil && l.file != nil {
		_ = l.file.Truncate(0) // says that the end was in order; a file that keeps the id only makes the next start patient
		_ = l.file.Close()     // closing ends the lock; nothing was written that could be lost
		l.file = nil
	}
}
