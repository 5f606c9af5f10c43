//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
)

const twoArms = `
name: tiny
about: two lags
recipe: demo
set: [mode=sync, run.steps=2, run.validate_every=2, data.train=16, data.dev=8, rollout.batch_problems=2, rollout.max_response=48, rollout.max_total=560]
seeds: [1]
arms:
  - {name: now, set: [rollout.lag=0]}
  - {name: late, set: [rollout.lag=1]}
comparisons:
  - {a: late, b: now}
`

// A study from its file to its table; the same command again makes nothing new, and the report comes from the records.
func TestStudy_fromFileToTable(t *testing.T) {
	dir := t.TempDir()
	file, data := filepath.Join(dir, "tiny.yaml"), filepath.Join(dir, "data")
	if err := os.WriteFile(file, []byte(twoArms), 0o600); err != nil {
		t.Fatal(err)
	}
	steady := testutil.Binary(t, "steady")
	run := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		out, code, err := testutil.Run(ctx, steady, append(args, "--data", data)...)
		if err != nil || code != 0 {
			t.Fatalf("steady %s ended with status %d: %v\n%s", strings.Join(args, " "), code, err, out)
		}
		return out
	}
	ports := []string{"--port", strconv.Itoa(testutil.FreePort(t)), "--ui-port", strconv.Itoa(testutil.FreePort(t)), "--temporal", testutil.Binary(t, "temporal")}
	first := run(append([]string{"study", file, "--out", filepath.Join(dir, "first")}, ports...)...)
	store, err := artifact.NewFiles(filepath.Join(data, "store"))
	if err != nil {
		t.Fatal(err)
	}
	var runs []record.StudyRun
	for _, arm := range []string{"now", "late"} {
		var r record.StudyRun
		if _, err := artifact.GetJSON(t.Context(), store, record.StudyLayout{Study: "tiny"}.Run(arm, 1), &r); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
		if len(r.Items) != 8 || len(r.Steps) != 2 || r.Failure != "" {
			t.Errorf("%s: %d dev problems, %d steps, failure %q", arm, len(r.Items), len(r.Steps), r.Failure)
		}
	}
	// Both arms train the same tokens in step 1. In step 2 the late one trains tokens of version 0.
	if lag := *runs[0].Steps[1].LagMean; lag != 0 {
		t.Errorf("without a lag, step 2 trains tokens of lag %v", lag)
	}
	if lag := *runs[1].Steps[1].LagMean; lag != 1 {
		t.Errorf("with lag 1, step 2 trains tokens of lag %v", lag)
	}
	again := run(append([]string{"study", file, "--out", filepath.Join(dir, "again")}, ports...)...)
	if !strings.Contains(first, "difference") || !strings.Contains(again, "difference") {
		t.Errorf("no table:\n%s\n%s", first, again)
	}
	if names, err := store.List(t.Context(), "runs/tiny.now.s1-2/"); err != nil || len(names) > 0 {
		t.Errorf("a run that had a result was made again: %v, %v", names, err)
	}
	run("study", "report", "tiny", "--out", filepath.Join(dir, "report"))
	for _, name := range []string{"study.md", "study.svg", "study.csv", "study-problems.csv"} {
		var texts []string
		for _, d := range []string{"first", "again", "report"} {
			text, err := os.ReadFile(filepath.Join(dir, d, name))
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		if texts[0] == "" || texts[0] != texts[1] || texts[1] != texts[2] {
			t.Errorf("%s differs between the command, the command again and the report", name)
		}
	}
}
