package chat

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/jsonl"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// Template is the text of the chat template that this package renders, as Qwen3-4B ships it.
//
//go:embed chat_template.jinja
var Template string

// known are the SHA-256 of templates that this package renders exactly, by what they are.
var known = map[string]string{
	"a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8": "Qwen3, of May 2025 and later; the bundled model's too",
	// It differs from the later one only for content that is null or a list, on which it fails.
	"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5": "Qwen3, of April 2025",
}

// Files of a model directory that can hold the chat template; the first counts, as in the Transformers library.
const (
	templateFile  = "chat_template.jinja"
	tokenizerFile = "tokenizer_config.json"
)

// The Transformers library takes another template than the default one where a conversation has tools: the one of this name, or
// one in this folder. Every prompt of a run has a tool.
const (
	toolTemplate   = "tool_use"
	templateFolder = "additional_chat_templates"
)

// Found is the chat template of a model.
type Found struct {
	Text   string
	Digest string // SHA-256 of Text without one line break at its end, which does not change what is rendered
	File   string // in which it was
	Name   string // what template it is; empty if it is not known
	Tools  string // text of a second template for conversations with tools; empty if there is none
}

// CheckModel refuses a model whose chat template is not one that this package renders, by its digest. The template is
// looked for in chat_template.jinja, then in tokenizer_config.json; name is that of the model in messages. A second template that
// would be taken for conversations with tools is refused too, unless it is known, and so is a folder of more templates.
//
// Errors: Invalid, naming the file, the digest and what to do.
func CheckModel(model fs.FS, name string) error {
	switch more, err := fs.ReadDir(model, templateFolder); {
	case err == nil && len(more) > 0:
		return fault.New(fault.Invalid, "chat.CheckModel", "%s has more chat templates, in %s: %s", name, templateFolder, more[0].Name()).
			WithHint("if the default template is the one to use with tools, remove %s", templateFolder)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.Invalid, "chat.CheckModel", "%s: %w", name, err)
	}
	f, err := FindTemplate(model, name)
	if err != nil {
		return fault.New(fault.Invalid, "chat.CheckModel", "%w", err)
	}
	if f.Name != "" {
		if f.Tools != "" && known[digest(f.Tools)] == "" {
			return fault.New(fault.Invalid, "chat.CheckModel", "%s of %s has a second chat template, %s, which is not Qwen3's: SHA-256 %s",
				f.File, name, toolTemplate, digest(f.Tools)).
				WithHint("if the default template is the one to use with tools, remove the template %s", toolTemplate)
		}
		return nil
	}
	e := fault.New(fault.Invalid, "chat.CheckModel", "the chat template in %s of %s is not Qwen3's: SHA-256 %s", f.File, name, f.Digest)
	if f.File == templateFile {
		if inline, err := inlineTemplate(model, name); err == nil && inline.Name != "" {
			return e.WithHint("%s of this model holds the template of %s: if that is the one to use, remove %s", tokenizerFile, inline.Name, f.File)
		}
	}
	return e.WithHint("%s; another template would be rendered wrongly, so it is refused", advice(f.Text))
}

// advice says what to do about a template that is not known.
func advice(text string) string {
	switch {
	case !strings.Contains(text, TurnStart):
		return "use a Qwen3 model"
	case !strings.Contains(text, "enable_thinking"):
		return "use a Qwen3 model with the thinking switch, as Qwen3-4B has; Qwen2.5 and the 2507 models of Qwen3 have templates of their own"
	}
	return "it was edited: put the chat_template of the Qwen3 model it comes from in its place"
}

// FindTemplate returns the chat template of a model directory, known or not. Errors: NotFound (no file that could hold
// one), Invalid (the files hold none, or cannot be read).
func FindTemplate(model fs.FS, name string) (Found, error) {
	data, err := fs.ReadFile(model, templateFile)
	switch {
	case err == nil:
		return found(string(data), templateFile), nil
	case !errors.Is(err, fs.ErrNotExist):
		return Found{}, fault.New(fault.Invalid, "chat.FindTemplate", "%s: %w", name, err)
	}
	return inlineTemplate(model, name)
}

// inlineTemplate reads tokenizer_config.json, whose chat_template is a text or a list of named ones.
func inlineTemplate(model fs.FS, name string) (Found, error) {
	const op = "chat.FindTemplate"
	data, err := fs.ReadFile(model, tokenizerFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Found{}, fault.New(fault.NotFound, op, "%s has neither %s nor %s", name, templateFile, tokenizerFile).
			WithHint("copy both from the model that it comes from")
	case err != nil:
		return Found{}, fault.New(fault.Invalid, op, "%s: %w", name, err)
	}
	var c map[string]json.RawMessage // unlike the fields of a struct, keys in their exact case
	if err := jsonl.Exact(data, &c); err != nil {
		return Found{}, fault.New(fault.Invalid, op, "%s of %s: %w", tokenizerFile, name, err).
			WithHint("copy %s from the model that it comes from", tokenizerFile)
	}
	if s, ok := text(c["chat_template"]); ok {
		return found(s, tokenizerFile), nil
	}
	named := map[string]string{} // of equal names the last counts
	var list []map[string]json.RawMessage
	if json.Unmarshal(c["chat_template"], &list) == nil {
		for _, t := range list {
			n, hasName := text(t["name"])
			s, ok := text(t["template"])
			if !hasName || !ok {
				return Found{}, fault.New(fault.Invalid, op, "%s of %s: a template in the list chat_template has no name or no text", tokenizerFile, name).
					WithHint("copy %s from the model that it comes from", tokenizerFile)
			}
			named[n] = s
		}
	}
	if s, ok := named["default"]; ok {
		f := found(s, tokenizerFile)
		f.Tools = named[toolTemplate]
		return f, nil
	}
	return Found{}, fault.New(fault.Invalid, op, "%s of %s has no chat_template, nor is there a %s", tokenizerFile, name, templateFile).
		WithHint("copy %s from the model that it comes from", tokenizerFile)
}

func found(s, file string) Found {
	d := digest(s)
	return Found{Text: s, Digest: d, File: file, Name: known[d]}
}

// digest is the SHA-256 of a template without one line break at its end.
func digest(template string) string {
	sum := sha256.Sum256([]byte(strings.TrimSuffix(template, "\n")))
	return hex.EncodeToString(sum[:])
}

// CheckTokenizer refuses a tokenizer that lacks a control token of the template. Errors: Invalid.
func CheckTokenizer(t *tokenizer.Tokenizer) error {
	var missing []string
	for _, tag := range []string{TurnStart, TurnEnd, EndOfText, ThinkOpen, ThinkClose, CallOpen, CallClose, ReplyOpen, ReplyClose} {
		if _, ok := t.ID(tag); !ok {
			missing = append(missing, tag)
		}
	}
	if len(missing) > 0 {
		return fault.New(fault.Invalid, "chat.CheckTokenizer", "the tokenizer lacks the control tokens %s", strings.Join(missing, " ")).
			WithHint("use the %s of a Qwen3 model", tokenizer.FileName)
	}
	return nil
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
