package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// tokenFile is where Kubernetes puts the credentials of a pod, unless it is told not to.
const tokenFile = "var/run/secrets/kubernetes.io/serviceaccount/token"

// capabilities that a process which runs untrusted programs should never have; the sandbox needs none of them.
var excessive = []struct {
	bit  uint
	name string
}{{12, "CAP_NET_ADMIN"}, {16, "CAP_SYS_MODULE"}, {17, "CAP_SYS_RAWIO"}, {19, "CAP_SYS_PTRACE"}, {21, "CAP_SYS_ADMIN"}, {22, "CAP_SYS_BOOT"}}

// privileges says what this process has that a judge does not need. A root directory other than "" or "/" is for tests.
func privileges(root string) Check {
	status, err := os.ReadFile(filepath.Join("/", root, "proc/self/status"))
	if err != nil {
		return Check{"privileges", Warn, err.Error(), "mount /proc: without it nobody can say what a judge here may do"}
	}
	c := Check{Name: "privileges", Status: OK}
	fields := map[string]string{}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	user, _, _ := strings.Cut(fields["Uid"], "\t")
	caps, err := strconv.ParseUint(fields["CapEff"], 16, 64)
	if err != nil || user == "" {
		return Check{"privileges", Warn, "/proc/self/status has no user or no capabilities", "use Linux with /proc mounted"}
	}
	c.Found = "user " + user + ", no capabilities"
	if caps != 0 {
		c.Found = fmt.Sprintf("user %s, capabilities %#x", user, caps)
	}
	if fields["NoNewPrivs"] == "1" {
		c.Found += ", no_new_privs"
	}
	var advice []string
	var names []string
	for _, e := range excessive {
		if caps&(1<<e.bit) != 0 {
			names = append(names, e.name)
		}
	}
	if len(names) > 0 && user != "0" || fields["Seccomp"] == "0" && len(names) > 0 && inContainer(root) {
		advice = append(advice, "drop "+strings.Join(names, " ")+": a judge needs no capability (docs/deployment.md)")
	}
	if _, err := os.Stat(filepath.Join("/", root, tokenFile)); err == nil {
		c.Found += ", a Kubernetes token is mounted"
		advice = append(advice, "set automountServiceAccountToken: false in the pods of judges")
	}
	if len(advice) > 0 {
		c.Status, c.Do = Warn, strings.Join(advice, "; ")
	}
	return c
}

// inContainer reports whether a container engine says so.
func inContainer(root string) bool {
	for _, name := range []string{".dockerenv", "run/.containerenv", "var/run/secrets/kubernetes.io"} {
		if _, err := os.Stat(filepath.Join("/", root, name)); err == nil {
			return true
		}
	}
	return false
}

func tryStore(ctx context.Context, try func(context.Context) (string, error)) Check {
	found, err := try(ctx)
	switch {
	case fault.Is(err, fault.NotFound):
		return Check{"artifact store", OK, err.Error() + "; the first worker makes it", ""}
	case err != nil:
		return Check{"artifact store", Fail, err.Error(), orElse(fault.HintOf(err), "check the address and the AWS environment")}
	}
	return Check{"artifact store", OK, found, ""}
}

func tryTemporal(ctx context.Context, try func(context.Context) (string, error)) Check {
	found, err := try(ctx)
	if err != nil {
		return Check{"Temporal server", Fail, err.Error(), orElse(fault.HintOf(err), "set TEMPORAL_ADDRESS")}
	}
	return Check{"Temporal server", OK, found, ""}
}
