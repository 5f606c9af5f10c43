package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/audit"
	"github.com/steadyrl/steady/internal/record/recordtest"
)

func TestVerify_saysWhatWasRead(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	newWatched(t, data, "r").start(2)
	code, out, errOut := steady(t, "verify", "r", "--data", data)
	if code != exitDone || errOut != "" || !strings.Contains(out, "2 results") || !strings.HasSuffix(out, "nothing differs\n") {
		t.Errorf("status %d, output %q, errors %q", code, out, errOut)
	}
	code, _, errOut = steady(t, "verify", "q", "--data", data)
	if code != exitUsage || !strings.Contains(errOut, `no run "q"`) || !strings.Contains(errOut, "try: ") {
		t.Errorf("of no run: status %d, errors %q", code, errOut)
	}
}

func TestVerify_namesWhatWasChanged(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	w := newWatched(t, data, "r")
	w.start(3)
	for _, name := range []string{w.l.Result(1), w.l.Ledger(2)} {
		if !recordtest.ChangeNumber(t, w.s, name) {
			t.Fatalf("%s has no number", name)
		}
	}
	code, out, errOut := steady(t, "verify", "r", "--data", data)
	if code != exitMismatch || !strings.Contains(out, w.l.Result(1)) || !strings.Contains(out, w.l.Ledger(2)) || strings.Contains(out, "nothing differs") || strings.Contains(out, "artifact.") ||
		!strings.Contains(errOut, "run r differs from what it wrote; differences: 2") || !strings.Contains(errOut, "try: ") {
		t.Errorf("status %d, output %q, errors %q", code, out, errOut)
	}
	code, out, _ = steady(t, "verify", "r", "--data", data, "--json")
	var res audit.Result
	if err := json.Unmarshal([]byte(out), &res); err != nil || code != exitMismatch || len(res.Findings) != 2 || res.Findings[0].Lineage != "l0" {
		t.Errorf("status %d, %v, %+v", code, err, res)
	}
}
