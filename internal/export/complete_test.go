package export

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/weights"
)

var tiny = model.Config{
	Vocab: 16, Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 8, MaxPosition: 32, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
}

// loadable is a directory that the Hugging Face library loads, with weights in files of at most limit bytes.
func loadable(t *testing.T, limit int64) string {
	t.Helper()
	dir := t.TempDir()
	w := model.NewWeights(tiny)
	w.Init(1, 0.1)
	files, err := weights.Shards(w, weights.BF16, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		write(t, dir, f.Name, string(f.Data))
	}
	for name, text := range map[string]string{
		"config.json":            `{"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "eos_token_id": 1}`,
		"generation_config.json": `{"eos_token_id": [1, 15]}`,
		"tokenizer_config.json":  `{"tokenizer_class": "Qwen2Tokenizer"}`,
		"chat_template.jinja":    "{{ messages }}",
	} {
		write(t, dir, name, text)
	}
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// edit replaces text of the same length, so that offsets hold.
func edit(t *testing.T, dir, name, from, to string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), from) {
		t.Fatalf("%s has no %q", name, from)
	}
	write(t, dir, name, strings.Replace(string(data), from, to, 1))
}

// What a base model lacks is named, one thing at a time, and nothing else.
func TestComplete_namesWhatIsLacking(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit func(dir string)
		want []string
	}{
		"whole": {func(string) {}, nil},
		"template in a key": {func(dir string) {
			_ = os.Remove(filepath.Join(dir, "chat_template.jinja"))
			write(t, dir, "tokenizer_config.json", `{"tokenizer_class": "x", "chat_template": "y"}`)
		}, nil},
		"one end":             {func(dir string) { write(t, dir, "generation_config.json", `{"eos_token_id": 3}`) }, nil},
		"no template":         {func(dir string) { _ = os.Remove(filepath.Join(dir, "chat_template.jinja")) }, []string{"no chat template"}},
		"no generation":       {func(dir string) { _ = os.Remove(filepath.Join(dir, "generation_config.json")) }, []string{"generation_config.json: the base model has none"}},
		"no end":              {func(dir string) { write(t, dir, "generation_config.json", `{"eos_token_id": null}`) }, []string{"generation_config.json names no eos_token_id"}},
		"an end too far":      {func(dir string) { write(t, dir, "generation_config.json", `{"eos_token_id": [16]}`) }, []string{"outside the vocabulary"}},
		"no tokenizer config": {func(dir string) { _ = os.Remove(filepath.Join(dir, "tokenizer_config.json")) }, []string{"tokenizer_config.json: the base model has none"}},
		"no tokenizer class":  {func(dir string) { write(t, dir, "tokenizer_config.json", `{}`) }, []string{"names no tokenizer_class"}},
		"no architecture":     {func(dir string) { edit(t, dir, "config.json", "Qwen3ForCausalLM", "Other") }, []string{"config.json names no architecture"}},
		"no dtype":            {func(dir string) { edit(t, dir, "config.json", "torch_dtype", "x") }, []string{"config.json names no dtype"}},
		"nothing":             {func(dir string) { write(t, dir, "config.json", `{}`) }, []string{"config.json names no architecture", "config.json names no dtype", "config.json names no eos_token_id"}},
	} {
		dir := loadable(t, 1<<20)
		tt.edit(dir)
		got, err := complete(dir, tiny)
		if err != nil || len(got) != len(tt.want) || !slices.IsSorted(got) {
			t.Errorf("%s: lacks %q (%v), want %q", name, got, err, tt.want)
			continue
		}
		for i, want := range tt.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: lacks %q, want %q", name, got[i], want)
			}
		}
	}
}

// What the export writes itself may not be wrong, in one file or in several.
func TestComplete_refusesWhatTheLibraryWouldMisread(t *testing.T) {
	t.Parallel()
	const first, second = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"
	for name, break_ := range map[string]func(dir string){
		"no format":             func(dir string) { edit(t, dir, first, `"format":"pt"`, `"format":"np"`) },
		"a tensor's name":       func(dir string) { edit(t, dir, first, "embed_tokens", "embed_tokenz") },
		"a tensor's shape":      func(dir string) { edit(t, dir, first, `"shape":[16,8]`, `"shape":[8,16]`) },
		"a file is gone":        func(dir string) { _ = os.Remove(filepath.Join(dir, second)) },
		"the index is gone":     func(dir string) { _ = os.Remove(filepath.Join(dir, weights.IndexFile)) },
		"the size in the index": func(dir string) { edit(t, dir, weights.IndexFile, `"total_size": `, `"total_size": 1`) },
		"half an index":         func(dir string) { write(t, dir, weights.IndexFile, `{"weight_map": {`) },
		"half a config":         func(dir string) { write(t, dir, "config.json", `{"architectures"`) },
		"a list of settings":    func(dir string) { write(t, dir, "generation_config.json", `[]`) },
	} {
		dir := loadable(t, 500)
		if lacks, err := complete(dir, tiny); err != nil || len(lacks) != 0 {
			t.Fatalf("before: %q, %v", lacks, err)
		}
		if names, err := weights.WeightFiles(dir); err != nil || len(names) != 3 {
			t.Fatalf("weights are in %v (%v), the test wants three files", names, err)
		}
		break_(dir)
		if lacks, err := complete(dir, tiny); !fault.Is(err, fault.Corrupt) && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: lacks %q, %v; want an error", name, lacks, err)
		}
	}
}
