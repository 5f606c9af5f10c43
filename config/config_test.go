package config_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/fault"
)

var update = flag.Bool("update", false, "rewrite generated files")

func load(t *testing.T, o config.Options) (*config.Config, config.Sources) {
	t.Helper()
	c, sources, err := config.Load(o)
	if err != nil {
		t.Fatalf("Load(%+v): %v", o, err)
	}
	return c, sources
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestLoad_layersWinInOrder(t *testing.T) {
	t.Parallel()
	first := write(t, "run: {steps: 1, validate_every: 7}\ndata: {shards: [a, b]}\n")
	second := write(t, "run: {steps: 2}\ndata: {shards: [c]}\n")
	c, sources := load(t, config.Options{
		Recipe: "demo", Files: []string{first, second},
		Sets: []string{"rollout.prefill=1", "sandbox.memory=64MiB", "rollout.prefill=0", "model.path=", "data.shards=[x, y]"},
	})
	got := []any{c.Run.Steps, c.Run.ValidateEvery, c.Run.CheckpointEvery, c.Run.Seed, c.Data.Shards, c.Rollout.Prefill, c.Sandbox.Memory, c.Model.Path}
	want := []any{2, 7, 14, uint64(42), []string{"x", "y"}, 0, config.Bytes(64 << 20), ""}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("values (-want +got):\n%s", d)
	}
	for key, want := range map[string]string{
		"run.steps": "file " + second + ", line 1", "run.validate_every": "file " + first + ", line 1",
		"run.checkpoint_every": "recipe demo", "run.seed": "default",
		"rollout.prefill": "--set rollout.prefill=0", "recipe": "recipe demo",
	} {
		if got := sources.Of(key); got != want {
			t.Errorf("source of %s = %q, want %q", key, got, want)
		}
	}
}

func TestLoad_badFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.bad.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("files = %v, %v", files, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			head, _, _ := strings.Cut(string(text), "\n")
			want := strings.ReplaceAll(strings.TrimPrefix(head, "# want: "), "file F", "file "+name)
			_, _, err = config.Load(config.Options{Files: []string{name}})
			if err == nil || fault.KindOf(err) != fault.Invalid {
				t.Fatalf("error = %v, want kind Invalid", err)
			}
			if got := strings.TrimPrefix(err.Error(), "config.Load: "); got != want {
				t.Errorf("error\n got %s\nwant %s", got, want)
			}
		})
	}
}

// A file that is no configuration, a study or YAML at all is named with the line at which it stops being one; nothing of it is shown. What a key that is
// there was given is shown, but not all of a long text.
func TestLoad_showsNothingOfAnotherFile(t *testing.T) {
	t.Parallel()
	const word = "Geheimnis"
	for text, line := range map[string]int{
		word + "\n" + word:            1,
		word + ":x:0\n" + word + ":1": 1,
		"- " + word:                   1,
		"a: [" + word:                 2,
		"a: 1\nb: *" + word:           2,
		"a: 1\n\nb: \"\\q" + word:     3,
		"a: b: " + word:               1,
		"%" + word + "\n":             1,
		"a:\n\t- " + word:             2,
		"\"" + word:                   1,
		"{a: 1, " + word:              2,
	} {
		name := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := config.Load(config.Options{Files: []string{name}})
		_, serr := config.LoadStudy(name)
		for _, err := range []error{err, serr} {
			if !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "Geheim") || !strings.Contains(err.Error(), fmt.Sprintf("(file %s, line %d)", name, line)) {
				t.Errorf("%q: %v, want Invalid at line %d and no word of the file", text, err, line)
			}
		}
	}
	long := strings.Repeat("x", 5000)
	for _, text := range []string{"run:\n  steps: " + long, "mode: " + long, long + ": 1", "run:\n  " + long + ": 1", "run: " + long, "data:\n  shards: " + long, "timeouts:\n  update: " + long} {
		name := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, sources, err := config.Load(config.Options{Recipe: "demo", Files: []string{name}})
		if err == nil {
			_, err = cfg.Examine(sources)
		}
		if !fault.Is(err, fault.Invalid) || len(err.Error()) > 500 {
			t.Errorf("%.20q...: an error of %d bytes: %.300s", text, len(fmt.Sprint(err)), err)
		}
	}
}

func TestLoad_goodFilesSurvivePrinting(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.good.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("files = %v, %v", files, err)
	}
	for _, name := range files {
		c, sources := load(t, config.Options{Files: []string{name}})
		checkPrinting(t, c, sources)
		if err := c.Validate(sources); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoad_everyProblemAtOnce(t *testing.T) {
	t.Parallel()
	name := write(t, "run:\n  steps: x\n  stepz: 1\nmodel: [1]\n")
	_, _, err := config.Load(config.Options{Files: []string{name}, Sets: []string{"nokey", "a.b=1", "train.beta1=zero"}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`run.steps: want a whole number, got "x"`, "run.stepz: unknown key", "model: want keys and values, got a list",
		"want key=value", "a: unknown key", `train.beta1: want a finite number, got "zero" (--set train.beta1=zero)`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestLoad_emptyAndMissingFiles(t *testing.T) {
	t.Parallel()
	c, _ := load(t, config.Options{Files: []string{write(t, ""), write(t, "# only a comment\n"), write(t, "run:\nrollout:\n")}})
	if d := cmp.Diff(config.Default(), c); d != "" {
		t.Errorf("empty files changed the defaults (-want +got):\n%s", d)
	}
	_, _, err := config.Load(config.Options{Files: []string{filepath.Join(t.TempDir(), "absent.yaml")}})
	if fault.KindOf(err) != fault.NotFound {
		t.Errorf("missing file: error = %v, want kind NotFound", err)
	}
}

func TestLoad_recipeKeyOfFileChoosesTheRecipe(t *testing.T) {
	t.Parallel()
	name := write(t, "recipe: demo\nrun: {steps: 5}\n")
	c, _ := load(t, config.Options{Files: []string{name}})
	want, _ := load(t, config.Options{Recipe: "demo", Sets: []string{"run.steps=5"}})
	if d := cmp.Diff(want, c); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	_, _, err := config.Load(config.Options{Recipe: "sc-taco", Files: []string{name}})
	if err == nil || !strings.Contains(err.Error(), `"demo" disagrees with the recipe "sc-taco"`) {
		t.Errorf("two recipes: error = %v", err)
	}
}

// checkPrinting demands that both printed forms read back as c.
func checkPrinting(t *testing.T, c *config.Config, sources config.Sources) {
	t.Helper()
	text := c.YAML(sources)
	again, _ := load(t, config.Options{Files: []string{write(t, string(text))}})
	if d := cmp.Diff(c, again); d != "" {
		t.Errorf("YAML round trip (-want +got):\n%s\n%s", d, text)
	}
	data, err := c.JSON()
	if err != nil {
		t.Fatal(err)
	}
	again, _, err = config.DecodeJSON(data)
	if err != nil {
		t.Fatalf("DecodeJSON: %v", err)
	}
	if d := cmp.Diff(c, again); d != "" {
		t.Errorf("JSON round trip (-want +got):\n%s", d)
	}
}

func TestRecipes_allLoad(t *testing.T) {
	t.Parallel()
	for _, r := range config.Recipes() {
		c, sources := load(t, config.Options{Recipe: r.Name})
		checkPrinting(t, c, sources)
		err := c.Validate(sources)
		if r.Name != "sc-taco" {
			if err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
			continue
		}
		// Until the trainer can be sharded.
		if err == nil || !strings.Contains(err.Error(), "engine.trainer_ranks: this build has no trainer that is sharded") || !strings.Contains(err.Error(), "(from recipe sc-taco)") {
			t.Errorf("%s: error = %v, want a refusal of the ranks with their source", r.Name, err)
		}
	}
}

// Every value that a recipe sets says on its line why.
func TestRecipes_everyKeySaysWhy(t *testing.T) {
	t.Parallel()
	for _, r := range config.Recipes() {
		data, err := os.ReadFile("recipes/" + r.Name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		keys := 0
		for line := range strings.Lines(string(data)) {
			text := strings.TrimSpace(line)
			if text == "" || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "- ") {
				continue
			}
			value, why, commented := strings.Cut(text, " # ")
			section := strings.HasSuffix(value, ":")
			if !section {
				keys++
			}
			if !section && (!commented || len(strings.TrimSpace(why)) < 8) {
				t.Errorf("%s.yaml: %q does not say why", r.Name, text)
			}
		}
		if keys == 0 {
			t.Errorf("%s.yaml sets nothing", r.Name)
		}
	}
}

// The recipes for one trainer are the published run but for what they must change, and say where each value came from.
func TestRecipes_smallOnesDepartInNamedKeysOnly(t *testing.T) {
	t.Parallel()
	published, _ := load(t, config.Options{Recipe: "sc-taco"})
	for name, edit := range map[string]func(*config.Config){
		"sc-taco-1gpu": func(c *config.Config) { c.Mode, c.Engine.TrainerRanks = "sync", 1 },
		"sc-taco-2gpu": func(c *config.Config) { c.Engine.TrainerRanks = 1 },
	} {
		c, sources := load(t, config.Options{Recipe: name})
		want := *published
		want.Recipe = name
		edit(&want)
		if d := cmp.Diff(&want, c); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		for key, want := range map[string]string{"engine.trainer_ranks": "recipe " + name, "run.steps": "recipe sc-taco", "train.learning_rate": "default"} {
			if got := sources.Of(key); got != want {
				t.Errorf("%s: %s is from %q, want %q", name, key, got, want)
			}
		}
		if text := string(c.YAML(sources)); !strings.Contains(text, "trainer_ranks: 1 # recipe "+name) {
			t.Errorf("%s: the printed configuration does not name the source:\n%s", name, text)
		}
	}
}

// The published run's numbers; a change of a default must not change the recipe silently.
func TestRecipes_scTacoIsThePublishedRun(t *testing.T) {
	t.Parallel()
	c, _ := load(t, config.Options{Recipe: "sc-taco"})
	want := config.Default()
	want.Recipe = "sc-taco"
	want.Run = config.Run{Seed: 42, Steps: 200, ValidateEvery: 25, CheckpointEvery: 50, ContinueEvery: 25}
	want.Engine.Backend, want.Engine.TrainerRanks = "cuda", 4
	want.Model.Path = "models/Qwen3-4B"
	want.Data = config.Data{Train: 2000, Dev: 256, SolutionTries: 10, Exclude: c.Data.Exclude, Shards: c.Data.Shards}
	want.Rollout = config.Rollout{
		GroupSize: 4, BatchProblems: 16, Prefill: 2, StalenessThreshold: 4, StalenessPolicy: "drop",
		FaultWindow: 4, FaultShare: 0.5, FaultAction: "pause",
		MaxTurns: 6, MaxCallsPerTurn: 1, MaxPrompt: 4096, MaxResponse: 8192, MaxTotal: 12288, ToolOutputLimit: 4096,
		Temperature: 1, Precision: "fp32", TopKRecord: 128, FlushInterval: config.Duration(2 * time.Second), Thinking: true,
	}
	want.Validation.Temperature = 0.6
	want.Sandbox = config.Sandbox{
		PythonVersion: "3.12", TimeLimit: config.Duration(3 * time.Second), Memory: 1 << 30, OutputLimit: 1 << 20,
		JudgeBudget: config.Duration(90 * time.Second),
	}
	want.Train = config.Train{
		Objective:    config.Objective{Centering: "proportional", Rule: "none", Cap: 2, Lo: 0.5, Hi: 5},
		LearningRate: 1e-6, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, ClipNorm: 1, MicroBatchTokens: 16384,
	}
	if d := cmp.Diff(want, c); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(c.Data.Shards) != 3 {
		t.Errorf("shards = %v, want 02, 03, 04", c.Data.Shards)
	}
}

func TestDecodeJSON_wrongShapes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{`"demo"`, "configuration: want an object"},
		{`null`, "configuration: want an object"},
		{`[]`, "configuration: want an object"},
		{`{"run":`, "configuration: not JSON"},
		{`mode: sync`, "configuration: not JSON"},
		{`{"run":{"stepz":1}}`, "run.stepz: unknown key, did you mean steps?"},
		{`{"run":{"steps":"many"}}`, `run.steps: want a whole number, got "many"`},
		{`{"run":{"steps":null}}`, "run.steps: want a whole number, got nothing"},
		{`{"data":{"shards":"a"}}`, `data.shards: want a list, got "a"`},
	} {
		_, _, err := config.DecodeJSON([]byte(tt.in))
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("DecodeJSON(%s) = %v, want Invalid with %q", tt.in, err, tt.want)
		}
	}
	c, _, err := config.DecodeJSON([]byte(`{"recipe":"demo","mode":"sync"}`))
	if err != nil || c.Mode != "sync" || c.Model.Path != config.Bundled {
		t.Errorf("a recipe name as input = %+v, %v", c, err)
	}
}

func TestValidate_everyRuleHasAFailingValue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ set, want string }{
		{"mode=both", "mode: must be one of async, sync, got both (from --set mode=both)"},
		{"run.steps=0", "run.steps: must be at least 1, got 0"},
		{"run.steps=1000000", "run.steps: must be at most 999999, got 1000000"},
		{"engine.threads=4097", "engine.threads: must be at most 4096, got 4097"},
		{"engine.max_sequences=65537", "engine.max_sequences: must be at most 65536, got 65537"},
		{"rollout.group_size=1025", "rollout.group_size: must be at most 1024, got 1025"},
		{"rollout={batch_problems: 4097}", "rollout.batch_problems: must be at most 4096, got 4097"},
		{"rollout.staleness_threshold=1001", "rollout.staleness_threshold: must be at most 1000, got 1001"},
		{"sandbox.slots=4097", "sandbox.slots: must be at most 4096, got 4097"},
		{"run.validate_every=0", "run.validate_every: must be"},
		{"run.checkpoint_every=0", "run.checkpoint_every: must be"},
		{"run.continue_every=0", "run.continue_every: must be"},
		{"run.init_run=../x", "run.init_run: must be the name of a run"},
		{"run.init_step=3", "run.init_step: needs run.init_run"},
		{"run.init_lineage=l", "run.init_lineage: needs run.init_run"},
		{"run={init_run: a, init_step: 42}", "run.init_step: must be before run.steps (42), got 42"},
		{"model.path=", "model.path: must be given"},
		{"engine.backend=tpu", "engine.backend: must be one of cpu, ref"},
		{"engine.backend=external", "engine.backend: a run trains, in either mode, and an external server cannot take the weights of a step"},
		{"engine.threads=-1", "engine.threads: must be"},
		{"engine.max_sequences=0", "engine.max_sequences: must be"},
		{"engine.trainer_ranks=2", "engine.trainer_ranks: this build"},
		{"data.shards=[]", "data.shards: must list at least one file"},
		{"data.shards=[bundled, x]", "data.shards: bundled stands for all"},
		{"data.shards=['']", "data.shards: must not hold an empty name"},
		{"data.train=4", "data.train: must be at least rollout.batch_problems (12), got 4"},
		{"data.dev=0", "data.dev: must be"},
		{"data.solution_tries=0", "data.solution_tries: must be"},
		{"rollout.group_size=1", "rollout.group_size: must be at least 2"},
		{"rollout.prefill=4", "rollout.prefill: must be smaller than rollout.staleness_threshold (4)"},
		{"rollout.batch_problems=1001", "rollout.batch_problems: times (rollout.prefill + 1) must be at most 1000 groups in flight, they are 3003"},
		{"rollout.staleness_threshold=0", "rollout.staleness_threshold: must be"},
		{"rollout.staleness_policy=keep", "rollout.staleness_policy: must be one of drop, wait, cancel_early, got keep"},
		{"rollout.fault_window=0", "rollout.fault_window: must be at least 1"},
		{"rollout.fault_window=2000", "rollout.fault_window: must be at most 1000"},
		{"rollout.fault_share=0", "rollout.fault_share: must be greater than 0"},
		{"rollout.fault_action=ignore", "rollout.fault_action: must be one of pause, fail"},
		{"timeouts.stall=5s", "timeouts.stall: must be at least sandbox.judge_budget"},
		{"rollout.max_turns=0", "rollout.max_turns: must be"},
		{"rollout.max_calls_per_turn=2", "rollout.max_calls_per_turn: this build runs 1"},
		{"rollout.max_turn_tokens=-1", "rollout.max_turn_tokens: must be"},
		{"rollout.max_total=100000", "rollout.max_total: must be more than"},
		{"rollout.max_total=10", "rollout.max_total: must be more than"},
		{"rollout.tool_output_limit=0", "rollout.tool_output_limit: must be"},
		{"rollout.temperature=0", "rollout.temperature: must be at least 0.001 and at most 1000, got 0"},
		{"rollout.lag=-1", "rollout.lag: must be at least 0, got -1"},
		{"rollout.lag=1", "rollout.lag: must be 0 in mode async"},
		{"rollout.precision=fp16", "rollout.precision: must be one of fp32, bf16, int8, got fp16"},
		{"rollout.top_k_record=0", "rollout.top_k_record: must be at least 1 for train.objective.centering proportional"},
		{"rollout.flush_interval=1ms", "rollout.flush_interval: must be at least 100ms, got 1ms"},
		{"validation.temperature=1e-300", "validation.temperature: must be at least 0.001"},
		{"validation.temperature=0", "validation.temperature: must be"},
		{"validation.chunk=0", "validation.chunk: must be"},
		{"sandbox.python_version=2.7", "sandbox.python_version: must look like"},
		{"sandbox.time_limit=0s", "sandbox.time_limit: must be"},
		{"sandbox.memory=1MiB", "sandbox.memory: must be at least 64MiB, got 1MiB"},
		{"sandbox.judge_budget=1s", "sandbox.judge_budget: must be at least sandbox.time_limit (3s), got 1s"},
		{"train.objective.centering=on", "train.objective.centering: must be one of"},
		{"train.objective.rule=ppo", "train.objective.rule: must be one of"},
		{"train.objective.cap=0", "train.objective.cap: must be"},
		{"train.objective.lo=9", "train.objective.hi: must be greater than lo (9), got 5"},
		{"train.learning_rate=0", "train.learning_rate: must be"},
		{"train.learning_rate=1e-320", "train.learning_rate: must be at least 1.18e-38"},
		{"train.beta1=1", "train.beta1: must be in [0, 1), got 1"},
		{"train.beta2=-0.1", "train.beta2: must be in"},
		{"train.epsilon=0", "train.epsilon: must be"},
		{"train.micro_batch_tokens=0", "train.micro_batch_tokens: must be"},
		{"retention.checkpoints=1", "retention.checkpoints: must be at least 2"},
		{"export.shard_size=1kB", "export.shard_size: must be at least 1MiB, got 1kB"},
		{"timeouts.heartbeat=0s", "timeouts.heartbeat: must be at least 1s, got 0s"},
		{"timeouts.closed_check=1m", "timeouts.closed_check: must be at most 30s, got 1m"},
	} {
		c, sources := load(t, config.Options{Recipe: "demo", Sets: []string{tt.set}})
		err := c.Validate(sources)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("--set %s: error = %v, want Invalid with %q", tt.set, err, tt.want)
		}
	}
}

func TestExamine_tellsMistakesFromWhatIsOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options config.Options
		open    []string // keys
		wrong   []string
	}{
		"the demo":               {config.Options{Recipe: "demo"}, nil, nil},
		"no recipe":              {config.Options{}, []string{"run.steps", "model.path", "data.shards"}, nil},
		"no recipe, no steps":    {config.Options{Sets: []string{"run.steps=0"}}, []string{"model.path", "data.shards"}, []string{"run.steps"}},
		"a recipe for GPUs":      {config.Options{Recipe: "sc-taco"}, []string{"engine.trainer_ranks"}, nil},
		"what this build lacks":  {config.Options{Recipe: "demo", Sets: []string{"engine.trainer_ranks=2", "rollout.max_calls_per_turn=2"}}, []string{"engine.trainer_ranks", "rollout.max_calls_per_turn"}, nil},
		"a mistake":              {config.Options{Recipe: "demo", Sets: []string{"run.steps=-1"}}, nil, []string{"run.steps"}},
		"no such engine":         {config.Options{Recipe: "demo", Sets: []string{"engine.backend=tpu"}}, nil, []string{"engine.backend"}},
		"a mistake among others": {config.Options{Recipe: "sc-taco", Sets: []string{"run.steps=0", "rollout.max_calls_per_turn=2"}}, []string{"engine.trainer_ranks", "rollout.max_calls_per_turn"}, []string{"run.steps"}},
	} {
		cfg, sources := load(t, c.options)
		open, err := cfg.Examine(sources)
		var wrong []string
		if err != nil {
			wrong = strings.Split(strings.TrimPrefix(err.Error(), "config.Validate: "), "\n")
		}
		keys := func(lines []string) (out []string) {
			for _, line := range lines {
				key, _, _ := strings.Cut(line, ":")
				out = append(out, key)
			}
			return out
		}
		if d := cmp.Diff([][]string{c.open, c.wrong}, [][]string{keys(open), keys(wrong)}); d != "" {
			t.Errorf("%s: open and wrong keys (-want +got):\n%s", name, d)
		}
		if all := cfg.Validate(sources); (all == nil) != (len(open)+len(wrong) == 0) {
			t.Errorf("%s: Validate says %v, Examine %q and %q", name, all, open, wrong)
		}
	}
}

func TestReference_isCommitted(t *testing.T) {
	t.Parallel()
	const name = "../docs/config.md"
	if *update {
		if err := os.WriteFile(name, []byte(config.Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(config.Reference(), string(got)); d != "" {
		t.Errorf("docs/config.md is stale, run `make docs` (-want +got):\n%s", d)
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{"", "run: {steps: 1}", "a: &a [*a]", "- 1", "? [x]\n: y", "run:\n  - x", "\x00", "mode: !!binary aGk="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, sources, err := config.Load(config.Options{Files: []string{write(t, text)}})
		if err != nil {
			return
		}
		checkPrinting(t, c, sources)
	})
}
