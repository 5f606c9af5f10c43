package sandbox

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/sandbox/confine"
)

//go:embed probe.py
var probeCode string

// Python is one interpreter and what it needs to run.
type Python struct {
	Path    string `json:"path"`    // the executable itself, no shim and no virtual environment
	Version string `json:"version"` // for example "3.12.3"
	// Warning is not empty if the version is not the one that results are meant for.
	Warning string `json:"warning,omitempty"`

	stdlib    []string
	libraries []string
	withheld  string // not granted: paths that contain it, for tests
}

const pythonHint = "install Python 3.12 (3.12.3 or newer), or name an interpreter with --python PATH"

// version is a parsed interpreter version.
type version [3]int

func parseVersion(s string) (v version, ok bool) {
	n, err := fmt.Sscanf(s, "%d.%d.%d", &v[0], &v[1], &v[2])
	return v, err == nil && n == 3
}

// wanted is the range 3.12.3 to 3.12.x. Earlier 3.12 count C calls against a limit so low that ordinary recursive
// programs fail.
func (v version) wanted() bool { return v[0] == 3 && v[1] == 12 && v[2] >= 3 }

func (v version) usable() bool { return v[0] == 3 && v[1] >= 9 }

func (v version) crippled() bool { return v[0] == 3 && v[1] == 12 && v[2] < 3 }

// FindPython examines the interpreter at path, or, if path is empty, chooses one: a 3.12.3 to 3.12.x if one is found,
// else any python3 from 3.9 on with Warning set. Scripts in front of an interpreter are looked through.
// Errors: Invalid if path is not a usable interpreter, Infrastructure if none is found, and the context's.
func FindPython(ctx context.Context, path string) (Python, error) {
	p, err := findPython(ctx, path)
	if err != nil && ctx.Err() != nil { // a program that was killed, as nobody waits for it, is not to blame
		return Python{}, ctx.Err()
	}
	return p, err
}

func findPython(ctx context.Context, path string) (Python, error) {
	const op = "sandbox.FindPython"
	if path != "" {
		p, err := probe(ctx, path)
		if err != nil {
			return Python{}, fault.New(fault.Invalid, op, "%s: %w", path, err).WithHint("%s", pythonHint)
		}
		return p, nil
	}
	best, passed := choose(ctx, []string{
		"python3.12", "/usr/local/bin/python3.12", "/usr/bin/python3.12", "python3", "/usr/local/bin/python3", "/usr/bin/python3",
	})
	if best == "" {
		return Python{}, fault.New(fault.Infrastructure, op, "no python3 from 3.9 on was found%s", passed).WithHint("%s", pythonHint)
	}
	p, err := probe(ctx, best)
	if err != nil {
		return Python{}, fault.New(fault.Infrastructure, op, "%s: %w", best, err).WithHint("%s", pythonHint)
	}
	return p, nil
}

// choose returns the first interpreter of the wanted range, else the first that can be used, else why one that is there was passed over.
func choose(ctx context.Context, names []string) (best, passed string) {
	for _, name := range names {
		found, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		v, err := askVersion(ctx, found)
		if err != nil || !v.usable() {
			continue
		}
		switch {
		case v.wanted():
			return found, ""
		case v.crippled():
			passed = fmt.Sprintf(": %d.%d.%d at %s was passed over, as ordinary recursive programs fail in it", v[0], v[1], v[2], found)
		case best == "":
			best = found
		}
	}
	return best, passed
}

func python(ctx context.Context, path, code string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(limited, path, "-I", "-c", code)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("does not run: %w", err)
		if text := bytes.TrimSpace(stderr.Bytes()); len(text) > 0 {
			err = fmt.Errorf("%w: %s", err, text[max(0, len(text)-200):])
		}
		return nil, err
	}
	return out, nil
}

func askVersion(ctx context.Context, path string) (version, error) {
	out, err := python(ctx, path, `import sys; print("%d.%d.%d" % sys.version_info[:3])`)
	if err != nil {
		return version{}, err
	}
	v, ok := parseVersion(string(out))
	if !ok {
		return v, fmt.Errorf("says that its version is %q", out)
	}
	return v, nil
}

func probe(ctx context.Context, path string) (Python, error) {
	v, err := askVersion(ctx, path)
	if err != nil {
		return Python{}, err
	}
	if !v.usable() {
		return Python{}, fmt.Errorf("is Python %d.%d.%d; at least 3.9 is needed", v[0], v[1], v[2])
	}
	out, err := python(ctx, path, probeCode)
	if err != nil {
		return Python{}, err
	}
	var found struct {
		Version, Implementation, Executable string
		Stdlib, Libraries                   []string
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return Python{}, fmt.Errorf("did not describe itself: %w", err)
	}
	if found.Implementation != "cpython" {
		return Python{}, fmt.Errorf("is %s; CPython is needed", found.Implementation)
	}
	p := Python{Path: found.Executable, Version: found.Version, stdlib: found.Stdlib, libraries: found.Libraries}
	if !v.wanted() {
		p.Warning = fmt.Sprintf("Python %s instead of 3.12 (3.12.3 or newer): verdicts may differ from published ones", p.Version)
	}
	return p, nil
}

// optional are files that are read if they are there.
var optional = []string{
	"/etc/ld.so.cache", "/dev/urandom", "/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8", "/usr/lib/locale/locale-archive",
}

// grants lists what a program may read: the interpreter, its standard library without installed packages, and the
// libraries that these load. Nothing else on the machine can be opened.
func (p Python) grants() ([]confine.Grant, error) {
	set := map[string]uint64{p.Path: confine.Execute | confine.ReadFile}
	for _, lib := range p.libraries {
		set[lib] |= confine.ReadFile
		if isLoader(lib) {
			set[lib] |= confine.Execute
		}
		// A thread that ends loads this one by name.
		if strings.HasPrefix(filepath.Base(lib), "libc.so") || strings.HasPrefix(filepath.Base(lib), "libc-2") {
			addIfThere(set, filepath.Join(filepath.Dir(lib), "libgcc_s.so.1"))
		}
	}
	for _, path := range optional {
		addIfThere(set, path)
	}
	for _, dir := range p.stdlib {
		if err := grantLibrary(set, dir); err != nil {
			return nil, err
		}
	}
	list := make([]confine.Grant, 0, len(set))
	for path, rights := range set {
		if p.withheld != "" && strings.Contains(path, p.withheld) {
			continue
		}
		list = append(list, confine.Grant{Path: path, Rights: rights})
	}
	slices.SortFunc(list, func(a, b confine.Grant) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

func isLoader(path string) bool { return strings.HasPrefix(filepath.Base(path), "ld-") }

func addIfThere(set map[string]uint64, path string) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case info.IsDir():
		set[path] |= confine.ReadFile | confine.ReadDir
	default:
		set[path] |= confine.ReadFile
	}
}

// grantLibrary opens a folder of the standard library entry by entry, because a rule cannot leave out the packages
// that are installed inside it. Names below it can be listed, the packages cannot be read.
func grantLibrary(set map[string]uint64, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	set[dir] |= confine.ReadDir
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "-packages") {
			addIfThere(set, filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// closedTo returns the first of paths that a user without any group cannot reach or read, "" if there is none.
func closedTo(paths []confine.Grant) string {
	seen := map[string]bool{}
	for _, g := range paths {
		real, err := filepath.EvalSymlinks(g.Path)
		if err != nil {
			return g.Path
		}
		info, err := os.Stat(real)
		if err != nil || info.Mode().Perm()&4 == 0 || g.Rights&confine.Execute != 0 && info.Mode().Perm()&1 == 0 {
			return g.Path
		}
		for _, path := range []string{g.Path, real} {
			for dir := filepath.Dir(path); !seen[dir]; dir = filepath.Dir(dir) {
				seen[dir] = true
				if info, err := os.Stat(dir); err != nil || info.Mode().Perm()&1 == 0 {
					return dir
				}
			}
		}
	}
	return ""
}
