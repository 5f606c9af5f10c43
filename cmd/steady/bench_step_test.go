package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/testutil"
)

// exampleStep is a batch of two sequences with records of two tokens.
func exampleStep() stepBatch {
	var b stepBatch
	for i, n := range []int{5, 9} {
		s := stepSequence{TopK: 2, Advantage: float32(1 - 2*i), Temperature: 1}
		for k := range n {
			s.Tokens, s.Mask = append(s.Tokens, int32(3+5*k+i)), append(s.Mask, k > 0) //nolint:gosec // small
			s.LogProbs = append(s.LogProbs, -1.5)
			s.TopIDs, s.TopLogProbs = append(s.TopIDs, int32(3+5*k+i), 2), append(s.TopLogProbs, -1.5, -2) //nolint:gosec // small
		}
		b.Sequences = append(b.Sequences, s)
	}
	b.Objective = rl.Objective{Centering: rl.CenteringProportional, Rule: rl.RuleNone, TopK: 2}
	b.Optim = rl.AdamW{LearningRate: 1e-4, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1}
	b.Plan = engine.Plan{MicroBatches: [][]int{{0, 1}}}
	return b
}

// The step is the same with any number of threads, near that of the reference, and a batch that is none is refused with its name and what to do.
func TestBenchStep_writesTheStep(t *testing.T) {
	t.Parallel()
	dir, model := t.TempDir(), filepath.Join(testutil.Root(), "internal", "demo", "model")
	good, err := json.Marshal(exampleStep())
	if err != nil {
		t.Fatal(err)
	}
	batch := filepath.Join(dir, "batch.json")
	if err := os.WriteFile(batch, good, 0o600); err != nil {
		t.Fatal(err)
	}
	results := map[string]stepResults{}
	for name, flags := range map[string][]string{"one": {"--threads", "1"}, "three": {"--threads", "3"}, "ref": {"--engine", "ref"}} {
		to := filepath.Join(dir, name)
		if code, _, errOut := steady(t, append([]string{"bench", "step", "--model", model, "--batch", batch, "--out", to, "--top", "7"}, flags...)...); code != exitDone {
			t.Fatalf("%s: exit %d: %s", name, code, errOut)
		}
		data, err := os.ReadFile(filepath.Join(to, "results.json"))
		var r stepResults
		if err != nil || json.Unmarshal(data, &r) != nil {
			t.Fatalf("%s: %v: %s", name, err, data)
		}
		if r.Tokens != 12 || len(r.Sequences) != 2 || len(r.Sequences[0].LogProbs) != 4 || len(r.Sequences[1].NextIDs) != 7 || r.Metrics.Loss == nil || r.Metrics.GradNorm == nil {
			t.Fatalf("%s: %s", name, data)
		}
		if _, err := os.Stat(filepath.Join(to, "state", "master.safetensors")); err != nil {
			t.Error(err)
		}
		results[name] = r
	}
	one, three, ref := results["one"], results["three"], results["ref"]
	if one.State != three.State || one.Weights != three.Weights || *one.Metrics.Loss != *three.Metrics.Loss {
		t.Errorf("one thread: state %s, loss %v; three: state %s, loss %v", one.State, *one.Metrics.Loss, three.State, *three.Metrics.Loss)
	}
	for _, pair := range [][2]*float64{{one.Metrics.Loss, ref.Metrics.Loss}, {one.Metrics.GradNorm, ref.Metrics.GradNorm}, {one.Metrics.Entropy, ref.Metrics.Entropy}} {
		if math.Abs(*pair[0]-*pair[1]) > 1e-4*math.Abs(*pair[1]) {
			t.Errorf("cpu %v, ref %v", *pair[0], *pair[1])
		}
	}
	outside := exampleStep()
	outside.Sequences[0].Tokens[2] = 1 << 30
	bad, err := json.Marshal(outside)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"no JSON": "{", "an unknown key": `{"sequence": []}`, "more behind it": string(good) + "{}", "no sequences": "{}", "a token that is none": string(bad),
	} {
		name := filepath.Join(dir, "bad.json")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, "bad")
		code, _, errOut := steady(t, "bench", "step", "--model", model, "--batch", name, "--out", to)
		if code != exitUsage || !strings.Contains(errOut, name) || !strings.Contains(errOut, "try:") {
			t.Errorf("%s: exit %d: %s", what, code, errOut)
		}
		if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
			t.Errorf("%s: %v was written; %v", what, left, err)
		}
	}
}
