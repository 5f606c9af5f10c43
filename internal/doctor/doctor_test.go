package doctor_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/colour"
	"github.com/steadyrl/steady/internal/doctor"
	"github.com/steadyrl/steady/internal/fault"
)

func find(t *testing.T, checks []doctor.Check, name string) doctor.Check {
	t.Helper()
	for _, c := range checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q in %+v", name, checks)
	return doctor.Check{}
}

// listen returns a port that is in use.
func listen(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

func TestExamine_findings(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"dev/nvidia0": "", "usr/lib64/libcuda.so.1": "", "opt/odd/libnvidia-ml.so.1": "",
		"etc/ld.so.conf.d/odd.conf": "# comment\n/opt/odd\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	busy := listen(t)
	checks := doctor.Examine(t.Context(), doctor.Options{
		DataDir: filepath.Join(root, "not", "there", "yet"), Temporal: filepath.Join(root, "no-temporal"), Port: busy, Root: root,
		FindPython: func(context.Context) (doctor.Python, error) {
			return doctor.Python{Path: "/p", Version: "3.11.2", Warning: "3.12 is preferred"}, nil
		},
		TrySandbox: func(context.Context) (string, error) {
			return "", fault.New(fault.Infrastructure, "sandbox.New", "no way").WithHint("ask the kernel")
		},
	})
	for _, want := range []doctor.Check{
		{"python", doctor.Warn, "3.11.2 at /p", "3.12 is preferred"},
		{"sandbox", doctor.Fail, "sandbox.New: no way", "ask the kernel"},
		{"GPU", doctor.Warn, "1 NVIDIA devices; libraries: " + root + "/usr/lib64/libcuda.so.1, " + root + "/opt/odd/libnvidia-ml.so.1", "not found: libcudart.so; the CPU engines need none of them"},
	} {
		if d := cmp.Diff(want, find(t, checks, want.Name)); d != "" {
			t.Errorf("%s (-want +got):\n%s", want.Name, d)
		}
	}
	if c := find(t, checks, "Temporal port"); c.Status != doctor.Warn || !strings.Contains(c.Do, "--port") {
		t.Errorf("busy port = %+v, want a warning with the flag", c)
	}
	if c := find(t, checks, "temporal"); c.Status != doctor.Fail {
		t.Errorf("missing binary = %+v, want fail", c)
	}
	if c := find(t, checks, "disk"); !strings.HasSuffix(c.Found, " in "+root) {
		t.Errorf("disk = %+v, want the nearest existing folder %s", c, root)
	}
	for _, name := range []string{"processor", "memory", "landlock", "seccomp"} {
		if c := find(t, checks, name); c.Found == "" || c.Status == doctor.Fail && c.Do == "" {
			t.Errorf("%s = %+v, want a finding, and advice if it failed", name, c)
		}
	}
	if !doctor.Failed(checks) {
		t.Error("Failed = false with failed checks")
	}
	data, err := doctor.JSON(checks)
	if err != nil {
		t.Fatal(err)
	}
	var again []doctor.Check
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(checks, again); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
}

// The finding of the sandbox must agree with those of the layers below it.
func TestUseSandbox_tellsTheTruthAboutThisMachine(t *testing.T) {
	t.Parallel()
	var o doctor.Options
	o.UseSandbox("", "")
	checks := doctor.Examine(t.Context(), o)
	able := true
	for _, name := range []string{"python", "landlock", "seccomp"} {
		able = able && find(t, checks, name).Status != doctor.Fail
	}
	c := find(t, checks, "sandbox")
	if able != (c.Status == doctor.OK) || able != strings.Contains(c.Found, "self-test passed: Landlock ABI ") {
		t.Errorf("sandbox = %+v although layers and interpreter are there: %v", c, able)
	}

	o.UseSandbox(filepath.Join(t.TempDir(), "python3"), "")
	for _, name := range []string{"python", "sandbox"} {
		if c := find(t, doctor.Examine(t.Context(), o), name); c.Status != doctor.Fail || c.Do == "" {
			t.Errorf("%s with an interpreter that does not exist = %+v, want fail with advice", name, c)
		}
	}
}

func TestExamine_addressReplacesPorts(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if c := find(t, doctor.Examine(t.Context(), doctor.Options{Address: address}), "temporal server"); c.Status != doctor.OK {
		t.Errorf("listening address = %+v, want ok", c)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if c := find(t, doctor.Examine(t.Context(), doctor.Options{Address: address}), "temporal server"); c.Status != doctor.Fail || c.Do == "" {
		t.Errorf("closed address = %+v, want fail with advice", c)
	}
}

func TestText_adviceFollowsItsFinding(t *testing.T) {
	t.Parallel()
	got := doctor.Text([]doctor.Check{{"disk", doctor.OK, "7 GiB", ""}, {"python", doctor.Fail, "none", "install it"}}, colour.Palette{})
	want := "ok    disk            7 GiB\nfail  python          none\n                      try: install it\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
