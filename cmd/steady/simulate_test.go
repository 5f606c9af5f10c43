package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// small is a run that takes a moment.
var small = []string{
	"simulate", "--recipe", "demo", "--steps", "6", "--set", "rollout.batch_problems=2", "--set", "rollout.group_size=2", "--set", "data.dev=4",
	"--rollout-workers", "2", "--slots", "4", "--lengths", "lognormal:mean=100,sigma=1", "--update-seconds", "2", "--failures", "0.02",
}

func simulated(t *testing.T, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := run(append(append([]string{}, small...), args...), &out, &errOut); code != exitDone {
		t.Fatalf("exit %d\n%s", code, errOut.String())
	}
	return out.String()
}

func TestSimulate_theSameCommandPrintsTheSameBytes(t *testing.T) {
	t.Parallel()
	first := simulated(t)
	if second := simulated(t); second != first {
		t.Errorf("first:\n%s\nsecond:\n%s", first, second)
	}
	for _, want := range []string{"6 steps of 2 problems x 2 responses, mode async", "max=224", "steps/hour", "ledger", "RolloutGroup"} {
		if !strings.Contains(first, want) {
			t.Errorf("the table lacks %q:\n%s", want, first)
		}
	}
}

func TestSimulate_aSweepHasALineForEachCombination(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "plan.html")
	if err := os.WriteFile(page, bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil { // an older, longer one
		t.Fatal(err)
	}
	args := []string{"--sweep", "prefill=1,2", "--sweep", "workers=1,2,4", "--html", page}
	var got struct {
		Cases []struct {
			Settings []struct{ Name, Value string }
			Result   struct {
				Steps  int     `json:"steps"`
				PerH   float64 `json:"steps_per_hour"`
				LagMax int     `json:"lag_max"`
			}
		}
	}
	if err := json.Unmarshal([]byte(simulated(t, append(args, "--json")...)), &got); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range got.Cases {
		if c.Result.Steps != 6 || c.Result.PerH <= 0 {
			t.Errorf("%v: %+v", c.Settings, c.Result)
		}
		name := ""
		for _, s := range c.Settings {
			name += s.Name + s.Value + " "
		}
		names = append(names, strings.TrimSpace(name))
	}
	if want := "prefill1 workers1,prefill1 workers2,prefill1 workers4,prefill2 workers1,prefill2 workers2,prefill2 workers4"; strings.Join(names, ",") != want {
		t.Errorf("cases %v", names)
	}
	if slow, fast := got.Cases[0].Result.PerH, got.Cases[2].Result.PerH; slow >= fast {
		t.Errorf("1 worker makes %g steps an hour, 4 make %g", slow, fast)
	}
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(html)
	if !strings.HasSuffix(strings.TrimSpace(text), "</html>") || strings.Count(text, "<figure") != 6 || !strings.Contains(text, "prefill 2") {
		t.Errorf("a page of %d bytes with %d charts", len(text), strings.Count(text, "<figure"))
	}
	for _, bad := range []string{"<script", "http://", "https://", "NaN"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

func TestSimulate_badInputIsUsage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, says string
		args       []string
	}{
		{"unknown distribution", "gauss", []string{"--lengths", "gauss:mean=3"}},
		{"distribution without mean", "mean", []string{"--lengths", "lognormal:sigma=1"}},
		{"unknown parameter", "shape", []string{"--lengths", "lognormal:mean=3,shape=2"}},
		{"infinite mean", "shape", []string{"--lengths", "pareto:mean=3,shape=1"}},
		{"rate of 0", "--tokens-per-second", []string{"--tokens-per-second", "0"}},
		{"curve that falls back", "rise", []string{"--tokens-per-second", "8:40,4:50"}},
		{"negative steps", "run.steps", []string{"--steps=-1"}},
		{"too many steps", "--steps", []string{"--steps", "100001"}},
		{"no workers", "--rollout-workers", []string{"--rollout-workers", "0"}},
		{"no update", "--update-seconds", []string{"--update-seconds", "0"}},
		{"not a number", "--judge-seconds", []string{"--judge-seconds", "NaN"}},
		{"failures above one half", "--failures", []string{"--failures", "0.7"}},
		{"unknown sweep", "--sweep", []string{"--sweep", "learning_rate=1,2"}},
		{"sweep without values", "--sweep", []string{"--sweep", "prefill="}},
		{"sweep twice", "--sweep", []string{"--sweep", "prefill=1", "--sweep", "prefill=2"}},
		{"sweep of no number", "workers", []string{"--sweep", "workers=two"}},
		{"sweep into a bad configuration", "threshold=1", []string{"--sweep", "threshold=4,1"}},
		{"too many combinations", "combinations", []string{"--sweep", "workers=" + strings.Repeat("1,", 300) + "1"}},
		{"bad configuration", "rollout.group_size", []string{"--set", "rollout.group_size=1"}},
		{"no such recipe", "nothing", []string{"--recipe", "nothing"}},
		{"a page in no folder", "--html", []string{"--html", "/nowhere/at/all/x.html"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out, errOut bytes.Buffer
			if code := run(append([]string{"simulate"}, tt.args...), &out, &errOut); code != exitUsage {
				t.Errorf("exit %d, want %d\n%s", code, exitUsage, errOut.String())
			}
			if out.Len() > 0 || !strings.Contains(errOut.String(), tt.says) {
				t.Errorf("says %q, want something about %q", errOut.String(), tt.says)
			}
		})
	}
}
