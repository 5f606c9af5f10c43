package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/cmd/steady/internal/simulate"
	"github.com/steadyrl/steady/internal/demo"
)

func TestPlan_saysWhatFitsAndWhatItTakes(t *testing.T) {
	t.Parallel()
	code, out, errOut := steady(t, "plan", "sc-taco-1gpu", "--price", "2")
	if code != exitDone || errOut != "" {
		t.Fatalf("exit %d\n%s", code, errOut)
	}
	if _, again, _ := steady(t, "plan", "--recipe", "sc-taco-1gpu", "--price", "2"); again != out {
		t.Errorf("first:\n%s\nsecond:\n%s", out, again)
	}
	for _, want := range []string{
		"200 steps of 16 problems x 4 responses, mode sync", "4,022,468,096 weights", "master weights", "keys and values", "fits on H200", "H100-80GB",
		"tokens/s", "GPU-hours", "at the price given", "steady simulate --recipe sc-taco-1gpu", "checkpoints", "14B", "estimate for H200",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the plan lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "NaN") || strings.Contains(out, "Inf") {
		t.Errorf("not finite:\n%s", out)
	}
}

// The command that the plan prints for a simulation is one that the program takes.
func TestPlan_theSimulationItNamesRuns(t *testing.T) {
	t.Parallel()
	_, out, _ := steady(t, "plan", "sc-taco-2gpu", "--set", "run.steps=2", "--set", "rollout.batch_problems=2", "--set", "data.dev=4", "--json")
	var got struct {
		Estimate struct {
			Simulate string `json:"simulate_command"`
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(got.Estimate.Simulate)
	if len(args) < 5 {
		t.Fatalf("no command: %s", out)
	}
	if code, _, errOut := steady(t, args[1:]...); code != exitDone {
		t.Errorf("%s: exit %d\n%s", got.Estimate.Simulate, code, errOut)
	}
}

// Whatever is planned: the simulation that a plan names is one that the program takes, word for word as a shell reads it, or the plan says why there is
// none. More GPUs than a simulation takes are refused.
func TestPlan_namesOnlySimulationsThatAreTaken(t *testing.T) {
	t.Parallel()
	odd := filepath.Join(t.TempDir(), "it's my $HOME run.yaml")
	if err := os.WriteFile(odd, []byte("recipe: sc-taco-2gpu\nrun:\n  steps: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	most := 1 + simulate.MostWorkers
	for _, c := range []struct {
		args []string
		no   string // why there is no simulation
	}{
		{args: []string{"sc-taco-2gpu"}},
		{args: []string{"sc-taco-1gpu"}},
		{args: []string{"sc-taco-2gpu", "--gpus", fmt.Sprint(most)}},
		{args: []string{"sc-taco-2gpu", "--gpus", fmt.Sprint(most - 1), "--model", "0.6B"}},
		{args: []string{"-f", odd}},
		{args: []string{"sc-taco-2gpu", "--set", "data.shards=[a b.parquet, 'c']"}},
		{args: []string{"sc-taco-2gpu", "--mean-response", "1", "--model", "0.6B", "--set", "rollout.batch_problems=1", "--set", "rollout.group_size=2"}},
		{args: []string{"sc-taco-2gpu", "--set", "run.steps=999999"}, no: "--steps must be from 1 to"},
		{args: []string{"sc-taco-2gpu", "--set", "run.init_run=other", "--set", "run.init_step=3"}, no: "run.init_run"},
		{args: []string{"sc-taco-2gpu", "--memory", "1e6", "--set", "engine.max_sequences=16384", "--set", "rollout.batch_problems=64", "--set", "rollout.group_size=1024", "--model", "0.6B", "--set", "rollout.prefill=1"}, no: "--slots must be from 1 to"},
	} {
		code, out, errOut := steady(t, append([]string{"plan", "--json"}, c.args...)...)
		var got struct {
			Estimate struct {
				Simulate string `json:"simulate_command"`
				No       string `json:"no_simulation"`
			}
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitDone {
			t.Fatalf("%q: exit %d, %v\n%s%s", c.args, code, err, out, errOut)
		}
		if _, text, _ := steady(t, append([]string{"plan"}, c.args...)...); !strings.Contains(text, "\n  "+got.Estimate.Simulate+got.Estimate.No+"\n") {
			t.Errorf("%q: the text lacks %q", c.args, got.Estimate)
		}
		if c.no != "" {
			if got.Estimate.Simulate != "" || !strings.Contains(got.Estimate.No, c.no) {
				t.Errorf("%q: %+v, want no simulation because of %q", c.args, got.Estimate, c.no)
			}
			continue
		}
		words, err := exec.CommandContext(t.Context(), "sh", "-c", "for w in "+got.Estimate.Simulate+"; do printf '%s\\0' \"$w\"; done").Output()
		if err != nil {
			t.Fatalf("%s: %v", got.Estimate.Simulate, err)
		}
		args := strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00")
		if args[0] != "steady" || args[1] != "simulate" {
			t.Errorf("%q is not the command of the program", args)
		} else if err := tryCommand(args[1:]); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, gpus := range []int{most + 1, 4096, 1_000_000, 1_000_000_000} {
		code, out, errOut := steady(t, "plan", "sc-taco-2gpu", "--gpus", fmt.Sprint(gpus))
		if code != exitUsage || out != "" || !strings.Contains(errOut, fmt.Sprintf("--gpus %d: want at most %d", gpus, most)) || !strings.Contains(errOut, "try: ") {
			t.Errorf("%d GPUs: exit %d, %s%s", gpus, code, out, errOut)
		}
	}
	if err := tryCommand([]string{"simulate", "--rollout-workers", fmt.Sprint(most)}); err == nil {
		t.Error("a simulation takes as many rollout workers as there are GPUs, trainer included")
	}
}

// In JSON the classes add up to the least memory of each GPU, which decides whether the run fits.
func TestPlan_jsonAddsUp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"sc-taco-1gpu"},
		{"sc-taco-2gpu", "--gpu", "RTX-PRO-6000"},
		{"sc-taco-2gpu", "--model", "0.6B", "--gpu", "L40S"},
		{"demo", "--gpu", "L4"},
		{"sc-taco-1gpu", "--memory", "40"},
		{"sc-taco"},
	} {
		_, out, _ := steady(t, append([]string{"plan", "--json"}, args...)...)
		var got struct {
			GPU struct {
				Memory int `json:"memory_mib"`
			} `json:"gpu"`
			Memory []struct {
				Classes []struct {
					Class string
					Bytes map[string]int
				}
				Least int  `json:"least_bytes"`
				Fits  bool `json:"fits"`
			}
			Refused  []string          `json:"refused"`
			Not      []json.RawMessage `json:"does_not_fit"`
			Estimate *struct {
				Hours float64
			}
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		fits := true
		for _, m := range got.Memory {
			sum := 0
			for _, c := range m.Classes {
				for _, n := range c.Bytes {
					sum += n
				}
			}
			if sum != m.Least || m.Fits != (m.Least <= got.GPU.Memory<<20) {
				t.Errorf("%v: the classes add up to %d, the least is %d of %d MiB, fits %v", args, sum, m.Least, got.GPU.Memory, m.Fits)
			}
			fits = fits && m.Fits
		}
		if fits == (len(got.Not) > 0) {
			t.Errorf("%v: fits %v with %d refusals", args, fits, len(got.Not))
		}
		estimated := fits && len(got.Refused) == 0 && args[0] != "demo" // a small model is not estimated
		if (got.Estimate != nil) != estimated || estimated && got.Estimate.Hours <= 0 {
			t.Errorf("%v: estimate %+v", args, got.Estimate)
		}
	}
}

// What cannot be started ends with status 2, the reason, and what to change.
func TestPlan_refusesWithWhatToChange(t *testing.T) {
	t.Parallel()
	for command, want := range map[string][]string{
		"plan sc-taco":                   {"refused when it starts: engine.trainer_ranks: this build has no trainer that is sharded", "sc-taco-1gpu"},
		"plan sc-taco-2gpu --gpu H100":   {"trainer of this model needs at least", "79.6 GiB", "a smaller model: Qwen3-1.7B", "H200"},
		"plan sc-taco-1gpu --memory 100": {"together need at least", "two GPUs of this kind"},
		"plan sc-taco-2gpu --memory 90 --set train.micro_batch_tokens=200000":              {"a smaller model"},
		"plan sc-taco-2gpu --gpu H200 --set train.micro_batch_tokens=100000":               {"train.micro_batch_tokens="},
		"plan sc-taco-2gpu --gpu L4 --set engine.max_sequences=20000":                      {"engine.max_sequences="},
		"plan sc-taco-2gpu --cache-tokens 2000000":                                         {"--cache-tokens 0"},
		"plan sc-taco-2gpu --gpu L4 --model 14B":                                           {"another card"},
		"plan sc-taco-2gpu --set rollout.max_response=60000 --set rollout.max_total=60000": {"max_position_embeddings", "lower rollout.max_total to 40960"},
		"plan":                              {"no recipe and no file", "steady plan sc-taco-1gpu"},
		"plan nope":                         {"want one of demo, sc-taco"},
		"plan demo --recipe sc-taco":        {"the recipe is demo and --recipe sc-taco"},
		"plan sc-taco-1gpu --gpu H300":      {"no card named", "--memory"},
		"plan sc-taco-1gpu --model nowhere": {"no model directory and no size"},
		"plan sc-taco-1gpu --price=-1":      {"--price"},
		"plan sc-taco-1gpu --memory=NaN":    {"--memory"},
		"plan sc-taco-1gpu --gpus=-1":       {"--gpus"},
		"plan demo --set run.steps=-1":      {"run.steps: must be at least 1"},
	} {
		code, _, errOut := steady(t, strings.Fields(command)...)
		if code != exitUsage {
			t.Errorf("%s: exit %d, want %d\n%s", command, code, exitUsage, errOut)
		}
		for _, text := range want {
			if !strings.Contains(errOut, text) {
				t.Errorf("%s: the message lacks %q:\n%s", command, text, errOut)
			}
		}
	}
}

// Sizes come from config.json; headers of weights that are there must agree with it.
func TestPlan_readsAModelDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, demo.Model()); err != nil {
		t.Fatal(err)
	}
	plan := func() (int, string, string) { return steady(t, "plan", "demo", "--model", dir) }
	if code, out, errOut := plan(); code != exitDone || !strings.Contains(out, "config.json and the headers of its weights: 861,568 weights") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	weights := filepath.Join(dir, "model.safetensors")
	data, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func() error{
		"lacks": func() error { return replaceIn(weights, data, "model.norm.weight", "model.norn.weight") },
		"cut":   func() error { return os.WriteFile(weights, data[:len(data)/2], 0o600) },
	} {
		if err := edit(); err != nil {
			t.Fatal(err)
		}
		if code, _, errOut := plan(); code != exitMismatch || !strings.Contains(errOut, "model.safetensors") {
			t.Errorf("%s: exit %d\n%s", name, code, errOut)
		}
	}
	if err := os.Remove(weights); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := plan(); code != exitDone || !strings.Contains(out, "its weights are not there") {
		t.Errorf("without weights: exit %d\n%s%s", code, out, errOut)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type":"llama"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := plan(); code != exitUsage || !strings.Contains(errOut, "want qwen3") {
		t.Errorf("another architecture: exit %d\n%s", code, errOut)
	}
}

func replaceIn(name string, data []byte, from, to string) error {
	out := strings.Replace(string(data), from, to, 1)
	if len(from) != len(to) || out == string(data) {
		return fmt.Errorf("%s: %q: %w", name, from, fs.ErrInvalid)
	}
	return os.WriteFile(name, []byte(out), 0o600)
}

// docs/planning.md shows what the command prints.
func TestPlan_documentIsTrue(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/planning.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	_, rest, ok := strings.Cut(text, "<!-- plan -->\n```text\n")
	shown, _, ended := strings.Cut(rest, "```\n<!-- /plan -->")
	_, out, _ := steady(t, "plan", "sc-taco-1gpu", "--price", "3")
	if !ok || !ended || shown != out {
		t.Errorf("docs/planning.md shows\n%s\nthe command prints\n%s", shown, out)
	}
	code, _, errOut := steady(t, "plan", "sc-taco-2gpu", "--gpu", "H100")
	if code != exitUsage || !strings.Contains(text, "$ steady plan sc-taco-2gpu --gpu H100\n"+errOut) {
		t.Errorf("docs/planning.md does not show the refusal (%d):\n%s", code, errOut)
	}
}
