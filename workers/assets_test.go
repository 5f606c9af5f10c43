package workers

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/fault"
)

var lineage = layout{Run: "r", Lineage: "l0"}

func newStore(t *testing.T) *artifact.Files {
	t.Helper()
	s, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// modelDir is a copy of the bundled model after change.
func modelDir(t *testing.T, change func(dir string)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dir, demo.Model()); err != nil {
		t.Fatal(err)
	}
	change(dir)
	return dir
}

func TestAssets_copyModelFiles(t *testing.T) {
	t.Parallel()
	remove := func(name string) func(string) {
		return func(dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	}
	shrink := func(dir string) {
		name := filepath.Join(dir, "config.json")
		data, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		var c map[string]any
		if err := json.Unmarshal(data, &c); err != nil {
			t.Error(err)
		}
		c["vocab_size"] = 5
		if data, err = json.Marshal(c); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Error(err)
		}
	}
	none := func(string) {}
	tests := []struct {
		name string
		dir  string
		kind fault.Kind
	}{
		{"bundled", config.Bundled, ""},
		{"a copy", modelDir(t, none), ""},
		{"without generation settings", modelDir(t, remove("generation_config.json")), ""},
		{"no such directory", filepath.Join(t.TempDir(), "absent"), fault.Invalid},
		{"no configuration", modelDir(t, remove("config.json")), fault.Invalid},
		{"no tokenizer", modelDir(t, remove("tokenizer.json")), fault.Invalid},
		{"no tokenizer settings", modelDir(t, remove("tokenizer_config.json")), fault.Invalid},
		{"an embedding smaller than the tokenizer", modelDir(t, shrink), fault.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			for round := range 2 {
				if err := (assets{}).CopyModelFiles(t.Context(), s, lineage, tt.dir); fault.KindOf(err) != tt.kind {
					t.Errorf("round %d: got %v, want %q", round, err, tt.kind)
				}
			}
			if tt.kind != "" {
				return
			}
			want, err := fs.ReadFile(demo.Model(), "config.json")
			if err != nil {
				t.Fatal(err)
			}
			if got, _, err := s.Get(t.Context(), lineage.Base()+"/config.json"); err != nil || string(got) != string(want) {
				t.Errorf("config.json: got %d bytes, %v; want those of the model", len(got), err)
			}
		})
	}
}

func TestAssets_checkModel(t *testing.T) {
	t.Parallel()
	cut := func(dir string) {
		if err := os.Truncate(filepath.Join(dir, "model.safetensors"), 10_000); err != nil {
			t.Error(err)
		}
	}
	remove := func(dir string) {
		if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		name string
		dir  string
		kind fault.Kind
	}{
		{"bundled", config.Bundled, ""},
		{"no such directory", filepath.Join(t.TempDir(), "absent"), fault.Invalid},
		{"cut weights", modelDir(t, cut), fault.Corrupt},
		{"no tokenizer", modelDir(t, remove), fault.Invalid},
	} {
		err := assets{}.CheckModel(t.Context(), tt.dir)
		if fault.KindOf(err) != tt.kind || err != nil && fault.HintOf(err) == "" {
			t.Errorf("%s: got %v, want %q with a hint", tt.name, err, tt.kind)
		}
	}
}

// A model that would be prompted wrongly is refused before a file of it is kept, so that a corrected one can be started.
func TestAssets_refusesModelsOfAnotherTemplateBeforeTheyAreCopied(t *testing.T) {
	t.Parallel()
	replace := func(file, old, text string) func(string) {
		return func(dir string) {
			name := filepath.Join(dir, file)
			data, err := os.ReadFile(name)
			if err != nil || !strings.Contains(string(data), old) {
				t.Errorf("%s has no %q: %v", file, old, err)
			}
			if err := os.WriteFile(name, []byte(strings.ReplaceAll(string(data), old, text)), 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		change func(string)
		want   string
	}{
		"other wording": {replace("chat_template.jinja", "# Tools", "# Functions"), "chat_template.jinja"},
		"always thinks": {replace("chat_template.jinja", "enable_thinking", "no_switch"), "SHA-256"},
		"other model":   {replace("chat_template.jinja", "<|im_start|>", "[INST]"), "is not Qwen3's"},
	} {
		s, dir := newStore(t), modelDir(t, tt.change)
		err := assets{}.CopyModelFiles(t.Context(), s, lineage, dir)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v; hint %q", name, err, fault.HintOf(err))
		}
		if cerr := (assets{}).CheckModel(t.Context(), dir); cerr == nil || err != nil && cerr.Error() != err.Error() {
			t.Errorf("%s: CheckModel: %v, want the same refusal", name, cerr)
		}
		if left, err := s.List(t.Context(), lineage.Base()+"/"); err != nil || len(left) > 0 {
			t.Errorf("%s: the store holds %v, %v", name, left, err)
		}
	}
	dir := modelDir(t, func(dir string) {
		replace("tokenizer.json", "<tool_response>", "<tool_answer>")(dir)
		replace("tokenizer_config.json", "<tool_response>", "<tool_answer>")(dir)
	})
	if err := (assets{}).CopyModelFiles(t.Context(), newStore(t), lineage, dir); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "lacks the control tokens <tool_response>") {
		t.Errorf("a tokenizer without a control token: %v", err)
	}
}

func TestAssets_bundledFiles(t *testing.T) {
	t.Parallel()
	s, err := assets{}.InitialState(t.Context(), config.Bundled)
	if err != nil {
		t.Fatal(err)
	}
	if s.Steps != 0 || s.Master == nil {
		t.Fatalf("got a state of %d steps, want the initial one", s.Steps)
	}
	if s.M != nil || s.V != nil {
		t.Fatal("a run begins with moments, want none, which are zero")
	}
	f, err := assets{}.OpenShard(config.Bundled)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() == 0 {
		t.Errorf("bundled shard: got %v, %v; want a file with content", st, err)
	}
	if set, err := (assets{}).Excluded(config.Bundled); err != nil || len(set) == 0 {
		t.Errorf("bundled exclusions: got %d, %v; want some", len(set), err)
	}
}

func TestAssets_missingFilesAreInvalid(t *testing.T) {
	t.Parallel()
	absent := filepath.Join(t.TempDir(), "absent")
	_, shard := assets{}.OpenShard(absent)
	_, excluded := assets{}.Excluded(absent)
	_, state := assets{}.InitialState(t.Context(), absent)
	for name, err := range map[string]error{"shard": shard, "exclusions": excluded, "model": state} {
		if !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v, want Invalid with a hint", name, err)
		}
	}
}

func TestCheckInputs_namesEveryFileThatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	absent, half := filepath.Join(dir, "absent"), modelDir(t, func(d string) {
		if err := os.Remove(filepath.Join(d, "tokenizer.json")); err != nil {
			t.Error(err)
		}
	})
	list := write("list.jsonl", `{"platform": "atcoder:abc387_f"}`)
	for name, c := range map[string]struct {
		model   string
		shards  []string
		exclude string
		want    []string // in the message; none if all is there
	}{
		"bundled":                      {config.Bundled, []string{config.Bundled}, config.Bundled, nil},
		"own files":                    {modelDir(t, func(string) {}), []string{list}, list, nil},
		"no exclusion":                 {config.Bundled, []string{list}, "", nil},
		"everything is missing":        {absent, []string{absent + "1", list, absent + "2"}, absent + "3", []string{"model.path", "absent1", "absent2", "absent3"}},
		"half a model":                 {half, []string{list}, "", []string{"model.path", "tokenizer.json"}},
		"directories":                  {config.Bundled, []string{dir}, dir, []string{"data.shards", "data.exclude", "is a directory"}},
		"a file for a model":           {list, []string{list}, "", []string{"model.path"}},
		"exclusions cut in the middle": {config.Bundled, []string{list}, write("cut.jsonl", `{"platform": "a:b"}`+"\n"+`{"platf`), []string{"data.exclude", "cut.jsonl", "line 2"}},
		"exclusions with a stray end":  {config.Bundled, []string{list}, write("end.jsonl", `{"platform": "a:b"}`+"\n]\n"), []string{"data.exclude", "line 2"}},
		"exclusions of another form":   {config.Bundled, []string{list}, write("other.jsonl", `{"platfrom": "a:b"}`), []string{"data.exclude", "line 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Default()
			cfg.Model.Path, cfg.Data.Shards, cfg.Data.Exclude = c.model, c.shards, c.exclude
			err := CheckInputs(t.Context(), cfg)
			if c.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
				t.Fatalf("got %v, want Invalid with a hint", err)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestEngines_ofABackend(t *testing.T) {
	t.Parallel()
	for backend, kind := range map[string]fault.Kind{"cpu": "", "ref": "", "cuda": fault.Invalid, "": fault.Invalid} {
		f, err := engines(Options{Backend: backend, Threads: 1})
		if fault.KindOf(err) != kind || err == nil && (f.sampler == nil || f.trainer == nil) {
			t.Errorf("engine %q: got %v, want %q", backend, err, kind)
		}
	}
}
