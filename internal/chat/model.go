package chat

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// Template is the text of the chat template that this package renders, as Qwen3-4B ships it.
//
//go:embed chat_template.jinja
var Template string

// known are the SHA-256 of templates that this package renders exactly: Qwen3-4B's, and the one before it,
// which differs only for content that is null or a list.
var known = map[string]bool{
	"a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8": true,
	"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5": true,
}

// CheckModel refuses a model directory whose chat template is not one that this package renders. The template is
// looked for in chat_template.jinja, then in tokenizer_config.json. Errors: Invalid.
func CheckModel(dir string) error {
	text, err := templateOf(dir)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(text))
	if !known[hex.EncodeToString(sum[:])] {
		return fault.New(fault.Invalid, "chat.CheckModel", "the chat template of %s is not Qwen3's (SHA-256 %x)", dir, sum[:6]).
			WithHint("use a Qwen3 model; another template would be rendered wrongly, so it is refused")
	}
	return nil
}

func templateOf(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja"))
	if err == nil {
		return string(data), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.Invalid, "chat.CheckModel", "%w", err)
	}
	data, err = os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return "", fault.New(fault.Invalid, "chat.CheckModel", "no chat template: %w", err).WithHint("a model directory needs tokenizer_config.json or chat_template.jinja")
	}
	var c struct {
		Template *string `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &c); err != nil || c.Template == nil {
		return "", fault.New(fault.Invalid, "chat.CheckModel", "tokenizer_config.json of %s has no chat template", dir)
	}
	return *c.Template, nil
}

// Prompt returns the ids of the prompt of a problem: system line, tool schema, statement, generation prompt.
func Prompt(t *tokenizer.Tokenizer, statement string, noThinking bool) ([]int32, error) {
	parts, err := Render([]Message{{Role: "system", Content: SystemLine}, {Role: "user", Content: statement}},
		Options{Tools: []json.RawMessage{json.RawMessage(ToolSchema)}, Generate: true, NoThinking: noThinking})
	if err != nil {
		return nil, err
	}
	return t.EncodeParts(parts), nil
}
