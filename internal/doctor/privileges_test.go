package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/fault"
)

func TestPrivileges_saysWhatAJudgeDoesNotNeed(t *testing.T) {
	t.Parallel()
	const plain = "Name:\tsteady\nUid:\t10001\t10001\t10001\t10001\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
	for name, c := range map[string]struct {
		status string
		files  []string
		want   Status
		found  string
		do     string
	}{
		"as in the example":       {plain, nil, OK, "user 10001, no capabilities, no_new_privs", ""},
		"a token":                 {plain, []string{tokenFile}, Warn, "token is mounted", "automountServiceAccountToken: false"},
		"privileged container":    {"Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nNoNewPrivs:\t0\nSeccomp:\t0\n", []string{".dockerenv"}, Warn, "user 0", "CAP_SYS_ADMIN"},
		"root of a machine":       {"Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nNoNewPrivs:\t0\nSeccomp:\t0\n", nil, OK, "user 0", ""},
		"ordinary container":      {"Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\nNoNewPrivs:\t0\nSeccomp:\t2\n", []string{".dockerenv"}, OK, "user 0", ""},
		"a user who may too much": {"Uid:\t7\t7\t7\t7\nCapEff:\t0000000000080000\nNoNewPrivs:\t0\nSeccomp:\t2\n", nil, Warn, "user 7", "CAP_SYS_PTRACE"},
		"no such lines":           {"Name:\tx\n", nil, Warn, "no user", "/proc"},
	} {
		root := t.TempDir()
		for file, text := range map[string]string{"proc/self/status": c.status} {
			write(t, filepath.Join(root, file), text)
		}
		for _, file := range c.files {
			write(t, filepath.Join(root, file), "x")
		}
		got := privileges(root)
		if got.Status != c.want || !strings.Contains(got.Found, c.found) || !strings.Contains(got.Do, c.do) || (got.Do == "") != (c.want == OK) {
			t.Errorf("%s: %+v, want %s with %q and %q", name, got, c.want, c.found, c.do)
		}
	}
	if got := privileges(t.TempDir()); got.Status != Warn || got.Do == "" {
		t.Errorf("without /proc: %+v, want a warning", got)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTryStore_saysWhatIsThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		found string
		err   error
		want  Status
	}{
		"there":   {"s3://b", nil, OK},
		"not yet": {"", fault.New(fault.NotFound, "x", "there is no artifact store"), OK},
		"refused": {"", fault.New(fault.Invalid, "x", "no credentials").WithHint("set them"), Fail},
	} {
		got := tryStore(t.Context(), func(context.Context) (string, error) { return c.found, c.err })
		if got.Status != c.want || got.Found == "" || c.want == Fail && got.Do != "set them" {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

// A worker needs neither the development server's program nor its ports.
func TestExamine_ofAWorker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want Status
	}{{nil, OK}, {fault.New(fault.Lost, "connect", "does not answer").WithHint("set TEMPORAL_ADDRESS"), Fail}} {
		checks := Examine(t.Context(), Options{
			DataDir: t.TempDir(), Temporal: "/nowhere", Port: -1, UIPort: -1, Worker: true,
			TryTemporal: func(context.Context) (string, error) { return "host:7233", c.err },
		})
		seen := false
		for _, k := range checks {
			if k.Name == "temporal" || strings.Contains(k.Name, "port") {
				t.Errorf("a worker is asked for %+v", k)
			}
			if k.Name == "Temporal server" {
				seen = k.Status == c.want && (c.want == OK) == (k.Do == "")
			}
		}
		if !seen {
			t.Errorf("with %v: %+v, want the server as %s", c.err, checks, c.want)
		}
	}
}
