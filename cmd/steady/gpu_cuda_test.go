//go:build cuda

package main

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/doctor"
)

// The binary with the GPU engine is built without a file of NVIDIA, starts on any machine, and what is missing there is no failure.
func TestBuildCuda_startsAnywhereAndSaysWhatIsMissing(t *testing.T) {
	build := exec.CommandContext(t.Context(), "make", "--no-print-directory", "build-cuda")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make build-cuda: %v\n%s", err, out)
	}
	const binary = "../../bin/steady-cuda"
	out, err := exec.CommandContext(t.Context(), binary, "doctor", "--json").Output()
	var checks []doctor.Check
	if json.Unmarshal(out, &checks) != nil {
		t.Fatalf("doctor --json: %v\n%s", err, out)
	}
	seen := map[string]doctor.Check{}
	for _, c := range checks {
		seen[c.Name] = c
	}
	for _, name := range []string{"GPU driver", "NVML", "NVRTC", "cuBLASLt", "cuDNN"} {
		c, ok := seen[name]
		if !ok || c.Status == doctor.Fail || c.Status == doctor.Warn && (c.Found == "" || c.Do == "") {
			t.Errorf("finding %q = %+v, want one that is no failure and says what to do", name, c)
		}
	}

	// What package cu has from a program under the GPL is not in the binary (decision 8).
	symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", binary).Output()
	if err != nil || !strings.Contains(string(symbols), "gorgonia.org/cu.SetCurrentContext") {
		t.Fatalf("go tool nm: %v, or the driver binding is missing", err)
	}
	copied := regexp.MustCompile(`gorgonia\.org/cu\.(Function\.Launch|\(\*Ctx\)\.LaunchKernel|offset|DevicePtr\.AddressRange)\b`)
	if found := copied.FindAllString(string(symbols), -1); len(found) > 0 {
		t.Errorf("the binary holds %q: use cudart's launcher", found)
	}
}
