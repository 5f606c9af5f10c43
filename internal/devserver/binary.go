package devserver

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/steadyrl/steady/internal/fault"
)

// Binary is a temporal command line that was asked for its version.
type Binary struct {
	Path   string
	CLI    string // version of the command line, for example 1.9.1
	Server string // version of the server in it, for example 1.32.0
	UI     string // version of the Web UI in it
}

// Versions of the command line. Older than minVersion is refused; one found on PATH must be at least pathVersion,
// which has the server's own pause of a workflow.
const (
	minVersion  = "1.5.1"
	pathVersion = "1.9.0"
)

const binaryHint = "name the temporal program with --temporal, or leave the flag out: `make build` puts one beside steady"

var versionText = regexp.MustCompile(`temporal version (\S+) \(Server (\S+?),? UI (\S+)\)`)

// Inspect runs "path --version" and reads the answer. Errors: NotFound, Invalid if it is not the temporal command
// line or older than 1.5.1, and the context's.
func Inspect(ctx context.Context, path string) (Binary, error) {
	b, err := inspect(ctx, path)
	return b, ended(ctx, err)
}

// ended returns the context's error for any that was met after its end: a program that was killed, as nobody waits for it, is not to blame.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func inspect(ctx context.Context, path string) (Binary, error) {
	const op = "devserver.Inspect"
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(limited, path, "--version").CombinedOutput()
	if err != nil {
		kind := fault.Invalid
		if _, statErr := exec.LookPath(path); statErr != nil {
			kind = fault.NotFound
		}
		return Binary{}, fault.New(kind, op, "%s --version: %w", path, err).WithHint("%s", binaryHint)
	}
	m := versionText.FindStringSubmatch(string(out))
	if m == nil {
		return Binary{}, fault.New(fault.Invalid, op, "%s is not the temporal command line: it says %q", path, firstLine(out)).WithHint("%s", binaryHint)
	}
	b := Binary{Path: path, CLI: m[1], Server: m[2], UI: m[3]}
	if compareVersions(b.CLI, minVersion) < 0 {
		return Binary{}, fault.New(fault.Invalid, op, "%s has version %s, at least %s is needed", path, b.CLI, minVersion).WithHint("%s", binaryHint)
	}
	return b, nil
}

// Find returns the temporal binary to use: explicit if it is not empty, else the one beside this program, else the
// one in the folder .tools of the working directory, else a new enough one on PATH. Errors: NotFound with a hint, and
// the context's.
func Find(ctx context.Context, explicit string) (Binary, error) {
	b, err := find(ctx, explicit)
	return b, ended(ctx, err)
}

func find(ctx context.Context, explicit string) (Binary, error) {
	if explicit != "" {
		return inspect(ctx, explicit)
	}
	var beside []string
	if self, err := os.Executable(); err == nil {
		beside = append(beside, filepath.Join(filepath.Dir(self), "temporal"))
	}
	beside = append(beside, filepath.Join(".tools", "temporal"))
	for _, path := range beside {
		if b, err := inspect(ctx, path); err == nil {
			return b, nil
		}
	}
	if b, ok := onPath(ctx); ok {
		return b, nil
	}
	return Binary{}, fault.New(fault.NotFound, "devserver.Find", "no temporal command line of version %s or newer on PATH, none in %s", pathVersion, strings.Join(beside, ", ")).
		WithHint("`make build` brings it; or install it from temporal.io and try again, or name it with --temporal")
}

func onPath(ctx context.Context) (Binary, bool) {
	path, err := exec.LookPath("temporal")
	if err != nil {
		return Binary{}, false
	}
	b, err := inspect(ctx, path)
	return b, err == nil && compareVersions(b.CLI, pathVersion) >= 0
}

// compareVersions compares dotted versions by their numbers; what is not a number counts as 0.
func compareVersions(a, b string) int {
	return slices.CompareFunc(versionNumbers(a), versionNumbers(b), cmp.Compare[int])
}

func versionNumbers(v string) []int {
	v, _, _ = strings.Cut(v, "-")
	numbers := make([]int, 3)
	for i, part := range strings.SplitN(v, ".", 3) {
		numbers[i], _ = strconv.Atoi(part) // 0 on error, as documented
	}
	return numbers
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line
}
