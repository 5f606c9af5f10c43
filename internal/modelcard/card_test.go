package modelcard_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/modelcard"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
	"github.com/steadyrl/steady/internal/rl"
)

var update = flag.Bool("update", false, "rewrite golden files")

const configText = `{"recipe":"sc-taco-2gpu","mode":"async","run":{"seed":42,"steps":2},"model":{"path":"/disk/someone/models/Qwen3-4B"},
"data":{"shards":["/disk/someone/data/TACO/ALL/train-00002-of-00009.parquet"],"exclude":"/disk/someone/known.jsonl","train":4,"dev":2},
"rollout":{"group_size":4,"batch_problems":1,"staleness_threshold":4,"staleness_policy":"drop","top_k_record":128,"thinking":true},
"validation":{"temperature":0.6},"sandbox":{"python":"/opt/python","python_version":"3.12","slots":3},
"train":{"objective":{"centering":"proportional","rule":"none","cap":2,"lo":0.5,"hi":5},"learning_rate":1e-6,"clip_norm":1},
"retention":{"checkpoints":2},"timeouts":{"stall":"10m0s"},"engine":{"backend":"cuda","threads":7}}`

const modelText = `{"model_type":"qwen3","architectures":["Qwen3ForCausalLM"],"hidden_act":"silu","vocab_size":151936,"hidden_size":2560,"num_hidden_layers":36,
"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"intermediate_size":9728,"max_position_embeddings":40960,"rms_norm_eps":1e-6,
"rope_theta":1000000,"tie_word_embeddings":true}`

// made is a run of two steps in a store, and the files of its base model.
type made struct {
	t     *testing.T
	store *artifact.Files
	l     record.Layout
	base  string
}

func (m made) put(name string, v any) {
	m.t.Helper()
	if _, err := artifact.ReplaceJSON(m.t.Context(), m.store, name, v); err != nil {
		m.t.Fatal(err)
	}
}

func (m made) text(name, text string) {
	m.t.Helper()
	if _, err := m.store.Replace(m.t.Context(), name, []byte(text)); err != nil {
		m.t.Fatal(err)
	}
}

func (m made) baseFile(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.base, name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m made) card() string {
	m.t.Helper()
	card, err := modelcard.Make(m.t.Context(), m.store, m.l, 2, m.base)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(card)
}

// config writes the configuration and the record of the run that names it.
func (m made) config(text string) {
	m.t.Helper()
	m.text(m.l.ConfigFile(), text)
	m.put(m.l.LineageFile(), record.Run{
		Run: "r1", Lineage: "l0", Owner: "o", ConfigDigest: artifact.Digest([]byte(text)), Recipe: "sc-taco-2gpu", Steady: "v1 abc", Engine: "cuda",
		BaseModel: "/disk/someone/models/Qwen3-4B", Started: "2026-01-02T03:04:05Z",
	})
}

// newMade has the record of the run and its configuration, no more.
func newMade(t *testing.T) made {
	t.Helper()
	store, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := made{t: t, store: store, l: record.Layout{Run: "r1", Lineage: "l0"}, base: t.TempDir()}
	m.config(configText)
	return m
}

func num(v float64) *float64 { return &v }

// whole adds everything that a run of two steps leaves.
func whole(t *testing.T) made {
	m := newMade(t)
	m.baseFile("config.json", modelText)
	m.baseFile("LICENSE", "   Apache License\n   Version 2.0, January 2004\n")
	m.put(m.l.Dataset(), record.Dataset{Dir: "datasets/k", Key: "k", Rows: 10, Train: 4, Dev: 2})
	m.put("datasets/k/"+dataset.ManifestFile, dataset.Manifest{
		Format: 1, RulesVersion: 3, Seed: 42, Rows: 10, Good: 7, Train: 4, Dev: 2, Exclusions: 1055,
		Inputs:  []dataset.Input{{Name: "train-00002-of-00009.parquet", SHA256: "aa", Rows: 10}},
		Reasons: []dataset.Count{{Name: "kept", Rows: 6}, {Name: "image", Rows: 3}, {Name: "not_selected", Rows: 1}}, Settings: map[string]string{"python": "3.12.3", "max_prompt": "4096"},
	})
	for step, solved := range []int{0, 2} {
		v := record.Validation{Name: record.StepName(2 * step), Version: 2 * step, Problems: 2, Source: "published"}
		for i := range 2 {
			passed := 1
			if i < solved {
				passed = 4
			}
			v.Items = append(v.Items, record.DevItem{Problem: fmt.Sprint("p", i), Kind: "passed", Passed: passed, Total: 4})
		}
		v.Metrics = record.DevMetrics{Solved: solved, Acc: float64(solved) / 2, PassRate: 0.5, FormatOK: 1, ToolUsed: 1}
		m.put(m.l.Validation(v.Name), v)
	}
	m.put(m.l.Validation("export"), record.Validation{Name: "export", Version: 2, Source: "export", Problems: 2})
	m.put(m.l.WeightsInfo(0), record.Version{Digest: "start"})
	for step := 1; step <= 2; step++ {
		b := record.Sealed{
			Step: step, Samples: []record.Sample{{Group: step, Sampled: 100}, {Group: step, Index: 1, Sampled: 50}}, Optim: rl.AdamW{LearningRate: 1e-6 * float64(step)},
			Rollout: record.BatchMetrics{RewardMean: num(0.25 * float64(step)), LagMean: num(1), LagMax: num(float64(step)), LengthCutShare: num(0.5)},
		}
		recordtest.PutStep(t, m.store, m.l, b, record.Result{WeightsDigest: fmt.Sprint("w", step), StateDigest: fmt.Sprint("s", step), Metrics: record.UpdateMetrics{LogProbGap: num(0.01)}})
	}
	m.put(m.l.Ledger(1), record.Ledger{Step: 1, Submitted: []record.Submitted{{}, {N: 1, Problem: 1}}, Trained: []int{0}, NextGroup: 2})
	m.put(m.l.Ledger(2), record.Ledger{
		Step: 2, Submitted: []record.Submitted{{N: 2, Problem: 1, Tag: 1, Submission: 1}}, Trained: []int{2},
		Dropped: []record.Drop{{N: 1, Reason: "infrastructure", Tokens: 70, Finished: true}}, NextGroup: 3,
	})
	m.put(m.l.Worker("secret-host"), record.Worker{Host: "secret-host", Steady: "v1 abc", Engine: "cuda, NVIDIA H200", Python: "3.12.3"})
	m.put(m.l.Event("a"), record.Event{Time: "2026-01-02T03:04:06Z", Kind: "Lost", Where: "secret-host", Message: "gone"})
	m.put(m.l.Event("b"), record.Event{Time: "2026-01-02T03:04:07Z", Kind: "recovered"})
	return m
}

func TestMake_wholeCard(t *testing.T) {
	t.Parallel()
	got := whole(t).card()
	const golden = "testdata/card.md"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil { //nolint:gosec // part of the repository
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("the card changed; `make golden` after review (-want +got):\n%s", d)
	}
}

// What a model hub reads is YAML with the keys that it knows.
func TestMake_frontMatterIsYAML(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]made{"whole": whole(t), "bare": newMade(t)} {
		parts := strings.SplitN(m.card(), "---\n", 3)
		if len(parts) != 3 || parts[0] != "" {
			t.Fatalf("%s: no front matter:\n%s", name, m.card())
		}
		var front struct {
			License  string   `yaml:"license"`
			Base     string   `yaml:"base_model"`
			Library  string   `yaml:"library_name"`
			Pipeline string   `yaml:"pipeline_tag"`
			Language []string `yaml:"language"`
			Datasets []string `yaml:"datasets"`
			Index    []struct {
				Name    string
				Results []struct {
					Task    struct{ Type string }
					Dataset struct{ Type, Name, Split string }
					Metrics []struct {
						Type, Name string
						Value      float64
					}
				}
			} `yaml:"model-index"`
		}
		if err := yaml.Unmarshal([]byte(parts[1]), &front); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, parts[1])
		}
		if front.Library != "transformers" || front.Pipeline != "text-generation" || len(front.Language) != 1 {
			t.Errorf("%s: %+v", name, front)
		}
		if name == "bare" {
			if front.License != "unknown" || front.Base != "" || len(front.Index) != 0 {
				t.Errorf("what is not recorded is claimed: %+v", front)
			}
			continue
		}
		if front.License != "apache-2.0" || front.Base != "Qwen/Qwen3-4B" || len(front.Datasets) != 1 || front.Datasets[0] != "BAAI/TACO" || len(front.Index) != 1 {
			t.Fatalf("%+v", front)
		}
		r := front.Index[0].Results[0]
		if front.Index[0].Name != "r1" || len(r.Metrics) != 2 || r.Metrics[0].Type != "accuracy" || r.Metrics[0].Value != 1 || r.Metrics[1].Value != 1 || r.Dataset.Split != "dev" {
			t.Errorf("%+v", r)
		}
	}
}

// Only what makes the model is in the card: neither times nor hosts nor the folders of a machine.
func TestMake_isAFunctionOfTheRunNotOfTheMachine(t *testing.T) {
	t.Parallel()
	m := whole(t)
	first := m.card()
	for _, secret := range []string{"/disk", "someone", "secret-host", "2026-01", "/opt", m.base} {
		if strings.Contains(first, secret) {
			t.Errorf("the card has %q:\n%s", secret, first)
		}
	}
	m.put(m.l.Worker("another"), record.Worker{Host: "another", Steady: "v1 abc", Engine: "cuda, NVIDIA H200", Python: "3.12.3"})
	m.put(m.l.Event("a"), record.Event{Time: "2027-01-02T03:04:06Z", Kind: "Lost", Where: "elsewhere", Message: "gone"})
	if d := cmp.Diff(first, m.card()); d != "" {
		t.Errorf("hosts and times changed the card:\n%s", d)
	}
}

// What goes wrong is said, and what is unknown is not claimed.
func TestMake_saysWhatIsMissingOrDamaged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit func(made)
		want []string
		not  []string
	}{
		"nothing but the run":     {func(m made) { *m.store = *newMade(m.t).store }, []string{"No validation is recorded", "manifest of the data set is not recorded", "ledger is not recorded", "No failure or recovery"}, []string{"NaN", "balances"}},
		"a damaged event":         {func(m made) { m.text(m.l.Event("a"), "{") }, []string{"Records of the run are damaged", "events and workers"}, nil},
		"a record without a seal": {func(m made) { m.text(m.l.Validation("000002"), `{"name":"000002","version":2,"source":"published"}`) }, []string{"- 1 of the ", "carry no seal"}, []string{"are damaged"}},
		"a damaged batch":         {func(m made) { m.text(m.l.Batch(2), "[]") }, []string{"batches and results"}, nil},
		"a damaged validation":    {func(m made) { m.text(m.l.Validation("000002"), "x") }, []string{"damaged", "validations"}, nil},
		"another model":           {func(m made) { m.baseFile("config.json", strings.Replace(modelText, "2560", "2048", 1)) }, []string{"Qwen3-4B"}, []string{"base_model:"}},
		"another licence":         {func(m made) { m.baseFile("LICENSE", "Terms of a company") }, []string{"license: other"}, []string{"apache"}},
		"other data":              {func(m made) { m.config(strings.ReplaceAll(configText, "/TACO/", "/mine/")) }, []string{"type: steady-generated"}, []string{"BAAI"}},
		"replay had other bits":   {func(m made) { m.put(m.l.Event("c"), record.Event{Kind: record.ReplayMismatch}) }, []string{"cannot be reproduced bit for bit"}, nil},
		"a trained group twice":   {func(m made) { m.put(m.l.Ledger(2), record.Ledger{Step: 2, Trained: []int{0}, NextGroup: 2}) }, []string{"does NOT balance"}, []string{"the ledger balances"}},
		"an update was divided": {func(m made) {
			var r record.Result
			if _, err := artifact.GetJSON(m.t.Context(), m.store, m.l.Result(2), &r); err != nil {
				m.t.Fatal(err)
			}
			r.Plan = &engine.Plan{MicroBatches: [][]int{{0}, {1}}}
			m.put(m.l.Result(2), r)
		}, []string{"1 updates ran out of memory and were divided"}, nil},
		"stopped early": {func(m made) { m.config(strings.Replace(configText, `"steps":2`, `"steps":9`, 1)) }, []string{"planned for 9 steps and ended after step 2"}, nil},
		"no exclusions": {func(m made) { m.put("datasets/k/"+dataset.ManifestFile, dataset.Manifest{Rows: 1}) }, []string{"No list of excluded problems was given"}, nil},
	} {
		m := whole(t)
		tt.edit(m)
		card := m.card()
		for _, want := range tt.want {
			if !strings.Contains(card, want) {
				t.Errorf("%s: the card lacks %q:\n%s", name, want, card)
			}
		}
		for _, not := range tt.not {
			if strings.Contains(card, not) {
				t.Errorf("%s: the card has %q:\n%s", name, not, card)
			}
		}
	}
}

// A card says when a record that it is made from was changed; it claims nothing of those that it could not read.
func TestMake_changedNumberIsNoticed(t *testing.T) {
	t.Parallel()
	m := whole(t)
	names, err := m.store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, name := range names {
		data, _, err := m.store.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if !recordtest.ChangeNumber(t, m.store, name) {
			continue
		}
		changed++
		card, err := modelcard.Make(t.Context(), m.store, m.l, 2, m.base)
		if err == nil && !strings.Contains(string(card), "Records of the run are damaged") || err != nil && !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v, the card does not say so", name, err)
		}
		if _, err := m.store.Replace(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
	}
	if changed < 12 {
		t.Errorf("only %d records were changed", changed)
	}
	if card := m.card(); strings.Contains(card, "damaged") || strings.Contains(card, "no seal") {
		t.Errorf("as it was again:\n%s", card)
	}
}

// Text of records cannot add structure to the page.
func TestMake_textOfRecordsStaysText(t *testing.T) {
	t.Parallel()
	evil := "x\n---\nlicense: mit\n| a | <script> `"
	m := whole(t)
	var run record.Run
	if _, err := artifact.GetJSON(t.Context(), m.store, m.l.LineageFile(), &run); err != nil {
		t.Fatal(err)
	}
	run.BaseModel, run.Recipe, run.Steady = evil, evil, evil
	m.put(m.l.LineageFile(), run)
	m.put(m.l.Event("c"), record.Event{Kind: evil})
	m.put(m.l.Worker("w"), record.Worker{Steady: evil, Engine: evil})
	card := m.card()
	if bytes.Count([]byte(card), []byte("\n---\n")) != 1 || strings.Contains(card, "<script>") || strings.Contains(card, "\nlicense: mit") {
		t.Errorf("text became structure:\n%s", card)
	}
}

func TestMake_needsTheRun(t *testing.T) {
	t.Parallel()
	m := newMade(t)
	if _, err := modelcard.Make(t.Context(), m.store, record.Layout{Run: "other", Lineage: "l0"}, 2, m.base); !fault.Is(err, fault.NotFound) {
		t.Errorf("a run that does not exist: %v", err)
	}
	m.text(m.l.ConfigFile(), "{")
	if _, err := modelcard.Make(t.Context(), m.store, m.l, 2, m.base); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a damaged configuration: %v", err)
	}
}
