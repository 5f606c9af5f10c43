package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/colour"
	"github.com/steadyrl/steady/internal/devserver"
	"github.com/steadyrl/steady/internal/fault"
)

// Status is the outcome of a check.
type Status string

// The outcomes. Warn means that the demo runs, but something is slower, weaker or absent.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Check is one finding.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Do     string `json:"do,omitempty"` // what a person can do; empty if nothing is to be done
}

// Python is an interpreter that a search has found.
type Python struct {
	Path    string
	Version string
	Warning string // why it is not the preferred one; empty if it is
}

// Options say what to look at.
type Options struct {
	// DataDir is where runs keep their files; its nearest existing parent is measured.
	DataDir string
	// Temporal is the path of a temporal binary; empty to search.
	Temporal string
	// Port and UIPort are those of the development server.
	Port, UIPort int
	// Address, if not empty, is a running Temporal server that is used instead of the ports.
	Address string
	// FindPython looks for the interpreter of the sandbox; nil leaves the check out.
	FindPython func(context.Context) (Python, error)
	// TrySandbox runs a program in the sandbox and says how it is isolated; nil leaves the check out.
	TrySandbox func(context.Context) (string, error)
	// Worker leaves out what only the development server needs; TryTemporal then connects to the server of the environment, and nil leaves that out too.
	Worker      bool
	TryTemporal func(context.Context) (string, error)
	// TryStore looks at an artifact store in a bucket and says what is there; nil leaves the check out.
	TryStore func(context.Context) (string, error)
	// Root is the root of the file system that is searched for GPU libraries and for what a judge should not see; empty for "/".
	Root string
}

// Examine runs all checks, in a fixed order.
func Examine(ctx context.Context, o Options) []Check {
	checks := []Check{processor(), memory(), disk(o.DataDir)}
	if o.FindPython != nil {
		checks = append(checks, python(ctx, o.FindPython))
	}
	checks = append(checks, landlock(), seccomp())
	if o.TrySandbox != nil {
		checks = append(checks, trySandbox(ctx, o.TrySandbox))
	}
	checks = append(checks, privileges(o.Root))
	if o.TryStore != nil {
		checks = append(checks, tryStore(ctx, o.TryStore))
	}
	if o.Worker {
		if o.TryTemporal != nil {
			checks = append(checks, tryTemporal(ctx, o.TryTemporal))
		}
		return append(checks, gpu(o.Root))
	}
	checks = append(checks, temporal(ctx, o.Temporal))
	if o.Address == "" {
		checks = append(checks, port("Temporal port", o.Port, "--port"), port("Web UI port", o.UIPort, "--ui-port"))
	} else {
		checks = append(checks, reachable(ctx, o.Address))
	}
	return append(checks, gpu(o.Root))
}

// Failed reports whether a check failed.
func Failed(checks []Check) bool {
	return slices.ContainsFunc(checks, func(c Check) bool { return c.Status == Fail })
}

// Text renders checks for a person; p colours the states.
func Text(checks []Check, p colour.Palette) string {
	paint := map[Status]func(string) string{OK: p.Good, Warn: p.Warn, Fail: p.Bad}
	var b strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&b, "%s  %-15s %s\n", paint[c.Status](fmt.Sprintf("%-4s", c.Status)), c.Name, c.Found)
		if c.Do != "" {
			fmt.Fprintf(&b, "%22stry: %s\n", "", c.Do)
		}
	}
	return b.String()
}

// JSON renders checks for programs.
func JSON(checks []Check) ([]byte, error) {
	data, err := json.MarshalIndent(checks, "", "  ")
	if err != nil {
		return nil, fault.New(fault.Internal, "doctor.JSON", "%w", err)
	}
	return append(data, '\n'), nil
}

// portable is the advice where the vector instructions of the fast kernels are missing.
const portable = "use an x86-64 processor with AVX2 and FMA for speed: here portable code runs, several times slower, with the same results"

func processor() Check {
	c := Check{Name: "processor", Status: OK, Found: fmt.Sprintf("%s, %d cores", runtime.GOARCH, runtime.NumCPU())}
	if runtime.GOARCH != "amd64" {
		c.Status, c.Do = Warn, portable
		return c
	}
	var have, lack []string
	for _, f := range []struct {
		name string
		has  bool
	}{{"AVX2", cpu.X86.HasAVX2}, {"FMA", cpu.X86.HasFMA}, {"AVX-512", cpu.X86.HasAVX512F}} {
		if f.has {
			have = append(have, f.name)
		} else {
			lack = append(lack, f.name)
		}
	}
	if len(have) > 0 {
		c.Found += ", " + strings.Join(have, " ")
	}
	if slices.Contains(lack, "AVX2") || slices.Contains(lack, "FMA") {
		c.Status, c.Do = Warn, portable
	}
	return c
}

const gib = 1 << 30

func memory() Check {
	c := Check{Name: "memory", Status: OK}
	total, available, err := memoryBytes()
	if err != nil {
		c.Status, c.Found = Warn, err.Error()
		return c
	}
	c.Found = fmt.Sprintf("%.1f GiB, %.1f GiB available", float64(total)/gib, float64(available)/gib)
	if available < 2*gib {
		c.Status, c.Do = Warn, "close other programs: the demo wants about 2 GiB, one sandboxed program may take 1 GiB"
	}
	return c
}

func disk(dir string) Check {
	c := Check{Name: "disk", Status: OK}
	dir, err := filepath.Abs(dir)
	for err == nil {
		if _, statErr := os.Stat(dir); statErr == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	var s unix.Statfs_t
	if err == nil {
		err = unix.Statfs(dir, &s)
	}
	if err == nil {
		err = unix.Access(dir, unix.W_OK)
	}
	if err != nil {
		return Check{"disk", Fail, fmt.Sprintf("%s: %v", dir, err), "choose a writable data directory with --data"}
	}
	free := float64(s.Bavail) * float64(s.Bsize) / gib
	c.Found = fmt.Sprintf("%.1f GiB free in %s", free, dir)
	switch {
	case free < 0.5:
		c.Status, c.Do = Fail, "free some space, or choose another data directory with --data: the demo wants 1 GiB"
	case free < 2:
		c.Status, c.Do = Warn, "the demo fits; a run of a real model wants hundreds of GiB"
	}
	return c
}

func python(ctx context.Context, find func(context.Context) (Python, error)) Check {
	p, err := find(ctx)
	if err != nil {
		return Check{"python", Fail, err.Error(), orElse(fault.HintOf(err), "install Python 3.12 (3.9 or newer runs the demo), or name one with --python")}
	}
	c := Check{Name: "python", Status: OK, Found: p.Version + " at " + p.Path}
	if p.Warning != "" {
		c.Status, c.Do = Warn, p.Warning
	}
	return c
}

func trySandbox(ctx context.Context, try func(context.Context) (string, error)) Check {
	found, err := try(ctx)
	if err != nil {
		return Check{"sandbox", Fail, err.Error(), orElse(fault.HintOf(err), "see the findings landlock, seccomp and python")}
	}
	return Check{Name: "sandbox", Status: OK, Found: found}
}

func landlock() Check {
	abi, err := landlockABI()
	if err != nil {
		return Check{
			"landlock", Fail, "not available: " + err.Error(),
			"untrusted programs cannot be confined here: use a Linux kernel from 5.13 on with landlock in its lsm= list (see /sys/kernel/security/lsm)",
		}
	}
	return Check{Name: "landlock", Status: OK, Found: "ABI " + strconv.Itoa(abi)}
}

func seccomp() Check {
	if err := seccompFilters(); err != nil {
		return Check{
			"seccomp", Fail, "filters are not available: " + err.Error(),
			"untrusted programs cannot be confined here: use a kernel with seccomp filters, and a container profile that allows them",
		}
	}
	return Check{Name: "seccomp", Status: OK, Found: "filters that kill a process"}
}

func temporal(ctx context.Context, explicit string) Check {
	b, err := devserver.Find(ctx, explicit)
	if err != nil {
		return Check{"temporal", Fail, err.Error(), fault.HintOf(err)}
	}
	return Check{Name: "temporal", Status: OK, Found: fmt.Sprintf("%s (server %s, UI %s) at %s", b.CLI, b.Server, b.UI, b.Path)}
}

func port(name string, number int, flag string) Check {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(number)))
	if err != nil {
		return Check{
			name, Warn, fmt.Sprintf("%d is in use or not allowed: %v", number, err),
			fmt.Sprintf("if that is a `steady dev` of yours, all is well; else stop the program or choose another port with %s", flag),
		}
	}
	if err := l.Close(); err != nil {
		return Check{name, Warn, err.Error(), ""}
	}
	return Check{Name: name, Status: OK, Found: strconv.Itoa(number) + " is free"}
}

func reachable(ctx context.Context, address string) Check {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return Check{"temporal server", Fail, err.Error(), "start `steady dev`, or give the address of a running server with --address"}
	}
	_ = conn.Close()
	return Check{Name: "temporal server", Status: OK, Found: address + " answers"}
}

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}

// gpu looks for devices and libraries of NVIDIA as files below root.
func gpu(root string) Check {
	if root == "" {
		root = "/"
	}
	devices, err := filepath.Glob(filepath.Join(root, "dev/nvidia[0-9]*"))
	var lack, have []string
	for _, lib := range []string{"libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so"} {
		if path := findLibrary(root, lib); path != "" {
			have = append(have, path)
		} else {
			lack = append(lack, lib)
		}
	}
	c := Check{Name: "GPU", Status: OK, Found: fmt.Sprintf("%d NVIDIA devices; libraries: %s", len(devices), orElse(strings.Join(have, ", "), "none"))}
	switch {
	case err != nil:
		return Check{"GPU", Warn, err.Error(), ""}
	case len(devices) == 0 && len(have) == 0:
		c.Found = "none; the CPU engines need none"
	case len(lack) > 0:
		c.Status, c.Do = Warn, "not found: "+strings.Join(lack, ", ")+"; the CPU engines need none of them"
	}
	return c
}

// findLibrary returns the first file of that name, or with a version behind it, in the usual folders and in
// those of ld.so.conf.
func findLibrary(root, name string) string {
	folders := []string{
		"usr/lib/" + triplet(), "usr/lib64", "usr/lib", "lib/" + triplet(), "lib64", "lib",
		"usr/local/cuda/lib64", "usr/local/nvidia/lib64", "usr/lib/wsl/lib", "opt/cuda/lib64",
	}
	for _, folder := range append(folders, loaderFolders(root)...) {
		found, err := filepath.Glob(filepath.Join(root, folder, name+"*"))
		if err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

func triplet() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}

// loaderFolders lists the folders that the dynamic loader's configuration names.
func loaderFolders(root string) []string {
	files, err := filepath.Glob(filepath.Join(root, "etc/ld.so.conf.d/*.conf"))
	if err != nil {
		return nil
	}
	var folders []string
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				folders = append(folders, line)
			}
		}
	}
	return folders
}
