package tokenizer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// tiny is a tokenizer.json of 256 bytes, two merges and two added tokens.
func tiny(t *testing.T) []byte {
	t.Helper()
	data, err := tokenizer.Train(slices.Values([]string{"abc abc abc ab"}), 260, []tokenizer.Added{{Text: "<|end|>", Special: true}, {Text: "<tag>"}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Files that are read in another way by the tokenizers library, or of which it makes other ids, are refused.
func TestParse_refusesWhatTheLibraryReadsOtherwise(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	model := func(f object) object { return f["model"].(object) }
	vocab := func(f object) object { return model(f)["vocab"].(object) }
	added := func(f object, i int) object { return f["added_tokens"].([]any)[i].(object) }
	for name, tt := range map[string]struct {
		change func(object)
		want   string // empty: it is accepted
	}{
		"as it is":            {func(object) {}, ""},
		"another field":       {func(f object) { f["comment"] = 1 }, ""},
		"a merge twice":       {func(f object) { m := model(f); l := m["merges"].([]any); m["merges"] = append(l, l[0]) }, "is there twice"},
		"an empty entry":      {func(f object) { vocab(f)[""] = 258; added(f, 0)["id"], added(f, 1)["id"] = 259, 260 }, `entry "" with id 258`},
		"a gap":               {func(f object) { added(f, 1)["id"] = 300 }, `added token "<tag>" has the id 300, but the next free one is 259`},
		"out of order":        {func(f object) { added(f, 0)["id"], added(f, 1)["id"] = 259, 258 }, "the next free one is 258"},
		"an entry, other id":  {func(f object) { added(f, 1)["content"], added(f, 1)["id"] = "ab", 259 }, `added token "ab" has the id 259, and 256 in the vocabulary`},
		"an entry, its id":    {func(f object) { added(f, 1)["content"], added(f, 1)["id"] = "ab", 256 }, ""},
		"added twice":         {func(f object) { added(f, 1)["content"] = "<|end|>" }, "is there twice"},
		"a byte's character":  {func(f object) { added(f, 1)["content"] = "é" }, "characters that stand for bytes"},
		"special, such too":   {func(f object) { added(f, 0)["content"] = "Ġ<é>" }, "characters that stand for bytes"},
		"other characters":    {func(f object) { added(f, 1)["content"] = "é <语>" }, ""},
		"case of a section":   {func(f object) { f["Normalizer"] = f["normalizer"]; delete(f, "normalizer") }, `"Normalizer" must be spelled "normalizer"`},
		"case beside it":      {func(f object) { f["MODEL"] = f["model"] }, `"MODEL" must be spelled "model"`},
		"case in the model":   {func(f object) { model(f)["Dropout"] = nil }, `"model.Dropout" must be spelled "dropout"`},
		"case in a token":     {func(f object) { added(f, 1)["Special"] = false }, `"added_tokens[1].Special" must be`},
		"case in a component": {func(f object) { f["decoder"].(object)["Type"] = "ByteLevel" }, `"decoder.Type" must be`},
	} {
		var f object
		if err := json.Unmarshal(tiny(t), &f); err != nil {
			t.Fatal(err)
		}
		tt.change(f)
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tokenizer.Parse(data)
		if tt.want == "" && err != nil || tt.want != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// The tokens of tokenizer_config.json must be those of tokenizer.json, and an error names the file.
func TestLoad_refusesTokensOfTheConfigAlone(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{}`: "",
		`{"added_tokens_decoder":{"258":{"content":"<|end|>","special":true},"259":{"content":"<tag>","lstrip":false,"special":false}}}`: "",
		`{"added_tokens_decoder":{"258":{"content":"<|end|>","special":true}},"eos_token":"<|end|>","pad_token":null,"unk_token":""}`:    "",
		`{"additional_special_tokens":["<|end|>"],"pad_token":{"content":"<|end|>"},"extra_special_tokens":{"image":"<|end|>"}}`:         "",
		`{"Added_Tokens_Decoder":{"1":{"content":"x"}}}`:                        "",
		`{"added_tokens_decoder":{"260":{"content":"<|new|>","special":true}}}`: `the token "<|new|>" with id 260, which tokenizer.json has not`,
		`{"added_tokens_decoder":{"64":{"content":"a"}}}`:                       "which tokenizer.json has not",
		`{"added_tokens_decoder":{"x":{"content":"<|end|>"}}}`:                  "which tokenizer.json has not",
		`{"added_tokens_decoder":{"259":{"content":"<|end|>","special":true}}}`: `the token "<|end|>" with id 259 otherwise`,
		`{"added_tokens_decoder":{"259":{"content":"<tag>","special":true}}}`:   "otherwise",
		`{"added_tokens_decoder":{"259":{"content":"<tag>","rstrip":true}}}`:    "otherwise",
		`{"added_tokens_decoder":{"259":{"Content":"<tag>"}}}`:                  `must be spelled "content"`,
		`{"added_tokens_decoder":[]}`:                                           "added_tokens_decoder: ",
		`{"pad_token":"<pad>"}`:                                                 `pad_token names the token "<pad>"`,
		`{"eos_token":{"content":"<eos>","lstrip":false}}`:                      `eos_token names the token "<eos>"`,
		`{"additional_special_tokens":["<|end|>","<tag>"]}`:                     `additional_special_tokens names the token "<tag>", which is no special token`,
		`{"additional_special_tokens":[{"content":"<x>"}]}`:                     `"<x>"`,
		`{"extra_special_tokens":{"a":"<|end|>","image":"<image>"}}`:            `"<image>"`,
		`{`: "unexpected end",
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, "tokenizer_config.json")
		for file, data := range map[string][]byte{filepath.Join(dir, tokenizer.FileName): tiny(t), name: []byte(config)} {
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := tokenizer.Load(dir)
		if want == "" && err != nil || want != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name)) {
			t.Errorf("%s: %v, want %q and the file", config, err, want)
		}
	}
	dir := t.TempDir()
	name := filepath.Join(dir, tokenizer.FileName)
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tokenizer.Load(dir); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), name) {
		t.Errorf("a broken %s: %v", name, err)
	}
}
