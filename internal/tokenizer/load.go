package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/jsonl"
)

// maxVocabulary bounds the memory that a broken file can ask for.
const maxVocabulary = 1 << 24

// FileName is the tokenizer of a model directory.
const FileName = "tokenizer.json"

// configName is the file beside it to which the Transformers library looks for more tokens.
const (
	configName = "tokenizer_config.json"
	fetchAgain = "fetch the model's files again, or give another model directory"
)

// Load reads the tokenizer of a model directory. A tokenizer_config.json beside it must not add to its tokens, which the
// Transformers library would do. Errors: as Parse, with the path of the file.
func Load(dir string) (*Tokenizer, error) {
	name := filepath.Join(dir, FileName)
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fault.New(fault.Invalid, "tokenizer.Load", "%w", err).
			WithHint("a model directory needs %s", FileName)
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fault.New(fault.Invalid, "tokenizer.Load", "%s: %w", name, err).WithHint("%s", cmp.Or(fault.HintOf(err), fetchAgain))
	}
	config, err := os.ReadFile(filepath.Join(dir, configName))
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = t.checkConfig(config)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "tokenizer.Load", "%s: %w", filepath.Join(dir, configName), err).WithHint("%s", cmp.Or(fault.HintOf(err), fetchAgain))
	}
	return t, nil
}

// checkConfig refuses a tokenizer_config.json that names a token which tokenizer.json has not, or has in another way.
func (t *Tokenizer) checkConfig(data []byte) error {
	var c map[string]json.RawMessage
	if err := jsonl.Exact(data, &c); err != nil {
		return err
	}
	var decoder map[string]json.RawMessage
	if raw := c["added_tokens_decoder"]; raw != nil {
		if err := json.Unmarshal(raw, &decoder); err != nil {
			return fmt.Errorf("added_tokens_decoder: %w", err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(decoder)) {
		var a fileAdded
		if err := jsonl.Exact(decoder[id], &a); err != nil {
			return fmt.Errorf("added_tokens_decoder: %s: %w", id, err)
		}
		n, err := strconv.ParseInt(id, 10, 32)
		has, known := t.byID[int32(n)]                                               //nolint:gosec // parsed as 32 bits
		switch want := (Added{ID: int32(n), Text: a.Content, Special: a.Special}); { //nolint:gosec // as above
		case err != nil || !known:
			return t.differs("added_tokens_decoder has the token %q with id %s, which %s has not", a.Content, id, FileName)
		case has != want || a.SingleWord || a.LStrip || a.RStrip || a.Normalized:
			return t.differs("added_tokens_decoder has the token %q with id %s otherwise than %s: %q", a.Content, id, FileName, has.Text)
		}
	}
	for _, key := range specialKeys {
		for _, text := range texts(c[key]) {
			if id, ok := t.byText[text]; !ok || !t.byID[id].Special {
				return t.differs("%s names the token %q, which is no special token of %s", key, text, FileName)
			}
		}
	}
	return nil
}

// specialKeys are the fields whose tokens the Transformers library adds if they are not there, and makes special.
var specialKeys = []string{
	"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "additional_special_tokens", "extra_special_tokens",
}

// texts are the tokens that a value names: a text, an object with content, or a list or an object of these.
func texts(raw json.RawMessage) []string {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		if one == "" {
			return nil
		}
		return []string{one}
	}
	var out []string
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		for _, e := range list {
			out = append(out, texts(e)...)
		}
		return out
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) == nil {
		if content, ok := object["content"]; ok {
			return texts(content)
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			out = append(out, texts(object[key])...)
		}
	}
	return out
}

func (t *Tokenizer) differs(format string, args ...any) error {
	return fault.New(fault.Invalid, "", format, args...).
		WithHint("use %s and %s of one model; tokens are added in %s", FileName, configName, FileName)
}

type file struct {
	Version       string      `json:"version"`
	Truncation    any         `json:"truncation"`
	Padding       any         `json:"padding"`
	AddedTokens   []fileAdded `json:"added_tokens"`
	Normalizer    *component  `json:"normalizer"`
	PreTokenizer  *component  `json:"pre_tokenizer"`
	PostProcessor *component  `json:"post_processor"`
	Decoder       *component  `json:"decoder"`
	Model         fileModel   `json:"model"`
}

type fileAdded struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type component struct {
	Type           string       `json:"type"`
	Pretokenizers  []component  `json:"pretokenizers,omitempty"`
	Pattern        *filePattern `json:"pattern,omitempty"`
	Behavior       string       `json:"behavior,omitempty"`
	Invert         *bool        `json:"invert,omitempty"`
	AddPrefixSpace *bool        `json:"add_prefix_space,omitempty"`
	TrimOffsets    *bool        `json:"trim_offsets,omitempty"`
	UseRegex       *bool        `json:"use_regex,omitempty"`
}

type filePattern struct {
	Regex string `json:"Regex"`
}

type fileModel struct {
	Type                    string            `json:"type"`
	Dropout                 any               `json:"dropout"`
	UnkToken                any               `json:"unk_token"`
	ContinuingSubwordPrefix string            `json:"continuing_subword_prefix"`
	EndOfWordSuffix         string            `json:"end_of_word_suffix"`
	FuseUnk                 bool              `json:"fuse_unk"`
	ByteFallback            bool              `json:"byte_fallback"`
	IgnoreMerges            bool              `json:"ignore_merges"`
	Vocab                   map[string]int32  `json:"vocab"`
	Merges                  []json.RawMessage `json:"merges"`
}

// Parse reads a tokenizer.json. Errors: Invalid, saying what is not of this family.
func Parse(data []byte) (*Tokenizer, error) {
	var f file
	if err := jsonl.Exact(data, &f); err != nil {
		return nil, fault.New(fault.Invalid, "tokenizer.Parse", "%s: %w", FileName, err)
	}
	if bad := f.foreign(); bad != "" {
		return nil, fault.New(fault.Invalid, "tokenizer.Parse", "%s is not of Qwen's family: %s", FileName, bad).
			WithHint("use a Qwen3 model directory, or train a tokenizer with this program")
	}
	t := &Tokenizer{
		merges: newMergeTable(len(f.Model.Merges)), byID: map[int32]Added{}, byText: map[string]int32{},
		cache: newCache(), digest: digestOf(data),
	}
	if err := t.addVocabulary(f.Model.Vocab, f.AddedTokens); err != nil {
		return nil, err
	}
	if err := t.addMerges(f.Model); err != nil {
		return nil, err
	}
	return t, nil
}

// foreign says what the file has that this package does not do.
func (f *file) foreign() string {
	split, level := f.splitAndLevel()
	on := func(b *bool) bool { return b != nil && *b }
	m := f.Model
	switch {
	case m.Type != "BPE":
		return fmt.Sprintf("model type %q", m.Type)
	case m.Dropout != nil || m.UnkToken != nil && m.UnkToken != "" || m.ContinuingSubwordPrefix != "" || m.EndOfWordSuffix != "" || m.ByteFallback || m.IgnoreMerges:
		return "the BPE has dropout, an unknown token, affixes, byte fall-back or ignored merges"
	case f.Truncation != nil || f.Padding != nil:
		return "it truncates or pads"
	case f.PostProcessor != nil && f.PostProcessor.Type != "ByteLevel":
		return "the post-processor adds tokens"
	case f.Normalizer == nil || f.Normalizer.Type != "NFC":
		return "the normalizer is not NFC"
	case split == nil || level == nil:
		return "the pre-tokenizer is not a split followed by ByteLevel"
	case split.Pattern == nil || split.Pattern.Regex != pattern || split.Behavior != "Isolated" || on(split.Invert):
		return "the split pattern is another one"
	case on(level.AddPrefixSpace) || on(level.UseRegex):
		return "ByteLevel adds a prefix space or splits by itself"
	case f.Decoder == nil || f.Decoder.Type != "ByteLevel":
		return "the decoder is not ByteLevel"
	}
	for _, a := range f.AddedTokens {
		if a.SingleWord || a.LStrip || a.RStrip || a.Normalized || a.Content == "" {
			return fmt.Sprintf("added token %q strips, is normalized, or wants word borders", a.Content)
		}
	}
	return ""
}

func (f *file) splitAndLevel() (split, level *component) {
	p := f.PreTokenizer
	if p == nil || p.Type != "Sequence" || len(p.Pretokenizers) != 2 ||
		p.Pretokenizers[0].Type != "Split" || p.Pretokenizers[1].Type != "ByteLevel" {
		return nil, nil
	}
	return &p.Pretokenizers[0], &p.Pretokenizers[1]
}

func (t *Tokenizer) addVocabulary(vocab map[string]int32, added []fileAdded) error {
	const op = "tokenizer.Parse"
	last := int32(-1)
	for _, id := range vocab {
		last = max(last, id)
	}
	for _, a := range added {
		last = max(last, a.ID)
	}
	if last >= maxVocabulary {
		return fault.New(fault.Invalid, op, "the largest id is %d, the limit %d", last, maxVocabulary-1)
	}
	t.bytes = make([][]byte, last+1)
	for text, id := range vocab {
		if id < 0 {
			return fault.New(fault.Invalid, op, "vocabulary entry %q has the id %d, which is negative", text, id)
		}
		b, ok := unspell(text)
		if !ok || text == "" || t.bytes[id] != nil {
			return fault.New(fault.Invalid, op, "vocabulary entry %q with id %d is not of the byte alphabet, or its id is taken", text, id)
		}
		t.bytes[id] = b
	}
	for b := range 256 {
		id, ok := vocab[string(byteRune[b])]
		if !ok {
			return fault.New(fault.Invalid, op, "byte %#02x has no token", b)
		}
		t.byteID[b] = id
	}
	next := int32(len(vocab)) //nolint:gosec // its ids are different and below 2^24
	for _, a := range added {
		if a.ID < 0 {
			return fault.New(fault.Invalid, op, "added token %q has the id %d, which is negative", a.Content, a.ID)
		}
		_, inVocabulary := vocab[a.Content]
		if !inVocabulary {
			if a.ID != next { // the tokenizers library would give it this id, whatever the file says
				return fault.New(fault.Invalid, op, "added token %q has the id %d, but the next free one is %d", a.Content, a.ID, next)
			}
			next++
		}
		if _, twice := t.byText[a.Content]; twice {
			return fault.New(fault.Invalid, op, "added token %q is there twice", a.Content)
		}
		if b, ok := unspell(a.Content); ok && string(b) != a.Content {
			return fault.New(fault.Invalid, op, "added token %q consists of characters that stand for bytes, so decoding would not give it back", a.Content)
		}
		if id := vocab[a.Content]; inVocabulary && id != a.ID {
			return fault.New(fault.Invalid, op, "added token %q has the id %d, and %d in the vocabulary", a.Content, a.ID, id)
		}
		if t.bytes[a.ID] != nil && string(t.bytes[a.ID]) != a.Content {
			return fault.New(fault.Invalid, op, "added token %q has the id %d of another token", a.Content, a.ID)
		}
		t.bytes[a.ID] = []byte(a.Content)
		tok := Added{ID: a.ID, Text: a.Content, Special: a.Special}
		t.byID[a.ID], t.byText[a.Content] = tok, a.ID
		t.added = append(t.added, tok)
		t.addedStart[a.Content[0]] = true
	}
	slices.SortStableFunc(t.added, func(a, b Added) int { return len(b.Text) - len(a.Text) })
	return nil
}

func (t *Tokenizer) addMerges(m fileModel) error {
	for rank, raw := range m.Merges {
		var two []string
		if err := json.Unmarshal(raw, &two); err != nil {
			var line string
			if err := json.Unmarshal(raw, &line); err != nil {
				return fault.New(fault.Invalid, "tokenizer.Parse", "merge %d: %w", rank, err)
			}
			two = strings.Split(line, " ")
		}
		if len(two) != 2 {
			return fault.New(fault.Invalid, "tokenizer.Parse", "merge %d has %d parts", rank, len(two))
		}
		l, lok := m.Vocab[two[0]]
		r, rok := m.Vocab[two[1]]
		id, ok := m.Vocab[two[0]+two[1]]
		if !lok || !rok || !ok {
			return fault.New(fault.Invalid, "tokenizer.Parse", "merge %d of %q and %q is not in the vocabulary", rank, two[0], two[1])
		}
		if t.merges.find(l, r).rank != noMerge {
			return fault.New(fault.Invalid, "tokenizer.Parse", "merge %d of %q and %q is there twice", rank, two[0], two[1])
		}
		t.merges.add(l, r, merge{rank: int32(rank), id: id}) //nolint:gosec // bounded by the vocabulary
	}
	return nil
}
