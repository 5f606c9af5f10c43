package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/devserver"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/workers"
)

// What a person typed is checked before anything starts. Every check returns an error of kind Invalid or NotFound that names the
// flag, its value and what is allowed.

// checkName wants the name of a run or a lineage.
func checkName(flag, name string) error {
	if config.ValidRunName(name) {
		return nil
	}
	return fault.New(fault.Invalid, "", "%s %q is no name: want 1 to 100 letters, digits, '.', '_' and '-', the first a letter or digit", flag, name).
		WithHint("choose a name such as demo-2")
}

// checkAtLeast wants a number that is not too small.
func checkAtLeast(flag string, n, least int) error {
	if n >= least {
		return nil
	}
	return fault.New(fault.Invalid, "", "%s %d: want at least %d", flag, n, least)
}

// checkWithin wants a number that is neither too small nor absurd.
func checkWithin(flag string, n, least, most int) error {
	if n <= most {
		return checkAtLeast(flag, n, least)
	}
	return fault.New(fault.Invalid, "", "%s %d: want at least %d and at most %d", flag, n, least, most)
}

// checkDir makes a directory if need be and wants to write in it. A full device passes: a run waits until there is space.
func checkDir(flag, dir string) error {
	err := errNoName
	if ferr := checkNoFile(flag, dir); ferr != nil {
		return ferr
	}
	if dir != "" {
		err = os.MkdirAll(dir, 0o755) //nolint:gosec // as every directory of the store
	}
	if err == nil {
		err = tryCreate(dir)
	}
	if err == nil || isFull(err) {
		return nil
	}
	return fault.New(fault.Invalid, "", "%s %q is no directory that can be written: %w", flag, dir, err).
		WithHint("choose a writable directory with %s", flag)
}

// checkNoFile wants that the place of a directory is none of a file; it makes nothing.
func checkNoFile(flag, dir string) error {
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return fault.New(fault.Invalid, "", "%s %q is a file, not a directory", flag, dir).
			WithHint("choose a directory with %s; the files in it get their own names", flag)
	}
	return nil
}

// checkPresent wants a directory that is there; what says which.
func checkPresent(dir, what string) error {
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = fault.New(fault.NotFound, "", "there is no %s", dir).WithHint("give %s", what)
	case err != nil:
		err = fault.New(fault.NotFound, "", "%s cannot be read: %w", dir, cause(err)).WithHint("give %s", what)
	case !st.IsDir():
		err = fault.New(fault.Invalid, "", "%s is a file, not a directory", dir).WithHint("give %s", what)
	}
	return err
}

// cause is the error of a file without the call that met it and the file's name.
func cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

// checkOutput wants a place where a file can be written later, a new one or an old one that is replaced.
func checkOutput(flag, path string) error {
	err := errNoName
	if path != "" {
		err = tryWrite(path)
	}
	if err == nil || isFull(err) {
		return nil
	}
	return fault.New(fault.Invalid, "", "%s %q cannot be written: %w", flag, path, err).
		WithHint("choose a file in an existing, writable directory with %s", flag)
}

var errNoName = errors.New("the name is empty")

// tryWrite finds out whether a file can be written, and leaves no trace.
func tryWrite(path string) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return tryCreate(filepath.Dir(path))
	case err != nil:
		return err
	case st.IsDir():
		return &os.PathError{Op: "write", Path: path, Err: syscall.EISDIR}
	case st.Mode().Type() == os.ModeNamedPipe && filepath.Dir(path) != "/dev":
		return errors.New("it is a pipe, which would wait for a reader")
	case !st.Mode().IsRegular():
		return nil // a device: opening one can have an effect
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func tryCreate(dir string) error {
	f, err := os.CreateTemp(dir, ".steady-*")
	if err != nil {
		if cause, ok := errors.AsType[*os.PathError](err); ok { // without the made-up name
			return &os.PathError{Op: "write in", Path: dir, Err: cause.Err}
		}
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// check looks at the flags of a worker process.
func (f processFlags) check(ctx context.Context) error {
	err := errors.Join(checkWithin("--threads", f.Threads, 0, config.MostThreads), checkWithin("--slots", f.Slots, 0, config.MostSlots),
		f.telemetryFlags.check())
	if f.Python != "" {
		_, perr := sandbox.FindPython(ctx, f.Python)
		err = errors.Join(err, perr)
	}
	return err
}

// check looks at the flags of a worker process and its engine.
func (f engineFlags) check(ctx context.Context) error {
	return errors.Join(checkEngine(f.Engine), checkWithin("--max-sequences", f.MaxSequences, 1, config.MostSequences),
		checkAtLeast("--cache-tokens", f.CacheTokens, 0), f.processFlags.check(ctx))
}

// checkEngine wants an engine that this program has.
func checkEngine(name string) error {
	if name != "cuda" || workers.HasCUDA {
		return nil
	}
	return fault.New(fault.Invalid, "", "--engine cuda: this program was built without the CUDA engine").
		WithHint("build bin/steady-cuda with `make build-cuda`, and use that")
}

// check looks at the flags of the development server.
func (f serverFlags) check(ctx context.Context) error {
	err := errors.Join(devserver.CheckPorts(f.Port, f.UIPort), checkDir("--data", f.Data), f.storeFlags.check())
	if f.Temporal != "" {
		_, terr := devserver.Inspect(ctx, f.Temporal)
		err = errors.Join(err, terr)
	}
	return err
}
