package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/transcript/transcripttest"
)

func TestTrajectory_showAndExport(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	transcripttest.Write(t, data)
	file := filepath.Join(t.TempDir(), "out.jsonl")
	const gone = "of 1 of 4 groups nothing is kept\n"
	for _, tt := range []struct {
		args  string
		code  int
		lines int      // of JSON; 0: not JSON
		out   []string // in the output
		err   string   // in the errors
	}{
		{"show r --group 0", exitDone, 0, []string{"sample 0", "=== turn 1, sampled"}, ""},
		{"show r --group 0 --sample 1", exitDone, 0, []string{"answer to turn 1"}, ""},
		{"show r --group 0 --format html", exitDone, 0, []string{"<!doctype html>"}, ""},
		{"show r --group 2 --sample 1 --format json", exitDone, 1, []string{`"end":""`, `"fate":"open"`}, ""},
		{"show r --group 0 --format json --tokens", exitDone, 1, []string{`"log_probs":[0,`}, ""},
		{"show r --validation 000000 --problem 1", exitDone, 0, []string{"validation 000000", "problem    p1"}, ""},
		{"export r", exitDone, 6, []string{`"sample":1`}, gone},
		{"export r --step 1", exitDone, 2, []string{`"fate":"trained in step 1"`}, ""},
		{"export r --group 1", exitDone, 2, []string{`"dropped: stale"`}, ""},
		{"export r --validation 000000 --tokens", exitDone, 2, []string{`"ids":[`}, ""},
		{"export r --out " + file, exitDone, 0, nil, gone},
		{"show r", exitUsage, 0, nil, "neither --group nor --validation"},
		{"show r --group 0 --validation 000000", exitUsage, 0, nil, "can't be used together"},
		{"show r --validation 000000", exitUsage, 0, nil, "go together"},
		{"show r --group 0 --problem 1", exitUsage, 0, nil, "go together"},
		{"show r --group 0 --tokens", exitUsage, 0, nil, "--tokens needs --format json"},
		{"show r --group 0 --format pdf", exitUsage, 0, nil, "--format"},
		{"show r --group 0 --sample 2", exitUsage, 0, nil, "among the 2 trajectories"},
		{"show r --group 9", exitUsage, 0, nil, "no group 9"},
		{"show none --group 0", exitUsage, 0, nil, `no run "none"`},
		{"export r --group 3", exitUsage, 0, nil, "nothing is kept"},
		{"export r --step 7", exitUsage, 0, nil, "no batch of step 7"},
		{"export r --step 1 --group 0", exitUsage, 0, nil, "can't be used together"},
		{"export r --out " + file + "/x", exitUsage, 0, nil, "--out"},
	} {
		code, out, errOut := steady(t, append([]string{"trajectory"}, append(strings.Fields(tt.args), "--data", data)...)...)
		if code != tt.code || tt.err == "" && errOut != "" || !strings.Contains(errOut, tt.err) || (code != exitDone && out != "") {
			t.Errorf("%s: exit %d, output %q, errors %q; want exit %d, %q", tt.args, code, out, errOut, tt.code, tt.err)
			continue
		}
		for _, want := range tt.out {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in %q", tt.args, want, out)
			}
		}
		if tt.lines > 0 && validLines(out) != tt.lines {
			t.Errorf("%s: %d lines of JSON, want %d: %q", tt.args, validLines(out), tt.lines, out)
		}
	}
	if written, err := os.ReadFile(file); err != nil || validLines(string(written)) != 6 {
		t.Errorf("the file has %d lines of JSON, want 6: %v", validLines(string(written)), err)
	}
}

// validLines counts lines, or is -1 if one is not JSON.
func validLines(text string) int {
	n := 0
	for line := range strings.Lines(text) {
		if n++; !json.Valid([]byte(line)) {
			return -1
		}
	}
	return n
}
