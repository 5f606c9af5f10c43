package main

import (
	"strings"
	"testing"
)

// A program without an end is refused before it fills the memory.
func TestSandboxRun_refusesAnEndlessProgram(t *testing.T) {
	t.Parallel()
	code, out, errOut := steady(t, "sandbox", "run", "/dev/zero")
	if code != exitUsage || out != "" || !strings.Contains(errOut, "more than 16 MiB") || !strings.Contains(errOut, "try:") {
		t.Errorf("exit %d, output %q, errors %q; want exit %d and the limit", code, out, errOut, exitUsage)
	}
}
