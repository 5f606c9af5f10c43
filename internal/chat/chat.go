package chat

import (
	"encoding/json"
	"strings"

	"github.com/steadyrl/steady/internal/tokenizer"
)

// Texts and tokens of the template.
const (
	TurnStart  = "<|im_start|>"
	TurnEnd    = "<|im_end|>"
	EndOfText  = "<|endoftext|>"
	ThinkOpen  = "<think>"
	ThinkClose = "</think>"
	CallOpen   = "<tool_call>"
	CallClose  = "</tool_call>"
	ReplyOpen  = "<tool_response>"
	ReplyClose = "</tool_response>"
)

// SystemLine is the system text of every prompt (spec section 4).
const SystemLine = "Solve the programming task in Python 3. Finish with a complete solution in a Python code block."

// ToolName is the one tool, and ToolSchema its description as the template shows it.
const (
	ToolName   = "run_python"
	ToolSchema = `{"type": "function", "function": {"name": "run_python", "description": "Run a Python 3 program in an isolated process. Returns its standard output and standard error.", "parameters": {"type": "object", "properties": {"code": {"type": "string", "description": "Complete Python 3 source code."}, "stdin": {"type": "string", "description": "Text given to the program on standard input."}}, "required": ["code"]}}}`
)

// Message is one turn. Content and ReasoningContent that are not strings count as absent.
type Message struct {
	Role    string
	Content string
	// NoContent says that the content is absent, not an empty string: such a user turn is no query.
	NoContent        bool
	ReasoningContent *string
	ToolCalls        []ToolCall
}

// ToolCall is a call in an assistant turn. Arguments is a JSON value; a JSON string is inserted as it is.
type ToolCall struct {
	Name      string
	Arguments json.RawMessage
}

// UnmarshalJSON reads the form of the Hugging Face library, in which content may be null or a list.
func (m *Message) UnmarshalJSON(data []byte) error {
	var raw struct {
		Role             string          `json:"role"`
		Content          json.RawMessage `json:"content"`
		ReasoningContent json.RawMessage `json:"reasoning_content"`
		ToolCalls        []struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
			Function  *struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	s, ok := text(raw.Content)
	*m = Message{Role: raw.Role, Content: s, NoContent: !ok}
	if s, ok := text(raw.ReasoningContent); ok {
		m.ReasoningContent = &s
	}
	for _, c := range raw.ToolCalls {
		call := ToolCall{Name: c.Name, Arguments: c.Arguments}
		if c.Function != nil {
			call = ToolCall{Name: c.Function.Name, Arguments: c.Function.Arguments}
		}
		m.ToolCalls = append(m.ToolCalls, call)
	}
	return nil
}

func text(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	return s, json.Unmarshal(raw, &s) == nil
}

// Options of a rendering.
type Options struct {
	// Tools are JSON objects, shown as Python prints them.
	Tools []json.RawMessage
	// Generate adds the beginning of an assistant turn.
	Generate bool
	// NoThinking adds an empty think block to it.
	NoThinking bool
}

// Render returns the parts of a conversation. Errors: Invalid (a tool or arguments that are not JSON).
func Render(messages []Message, o Options) ([]tokenizer.Part, error) {
	r := &renderer{}
	if err := r.head(messages, o.Tools); err != nil {
		return nil, err
	}
	last := lastQuery(messages)
	for i, m := range messages {
		switch {
		case m.Role == "user", m.Role == "system" && i > 0:
			r.template(TurnStart + m.Role + "\n")
			r.content(m.Content)
			r.template(TurnEnd + "\n")
		case m.Role == "assistant":
			if err := r.assistant(m, i > last, i == len(messages)-1); err != nil {
				return nil, err
			}
		case m.Role == "tool":
			if i == 0 || messages[i-1].Role != "tool" {
				r.template(TurnStart + "user")
			}
			r.template("\n" + ReplyOpen + "\n")
			r.content(m.Content)
			r.template("\n" + ReplyClose)
			if i == len(messages)-1 || messages[i+1].Role != "tool" {
				r.template(TurnEnd + "\n")
			}
		}
	}
	if o.Generate {
		r.template(GenerationPrompt(o.NoThinking))
	}
	return r.parts, nil
}

// GenerationPrompt is the beginning of an assistant turn.
func GenerationPrompt(noThinking bool) string {
	s := TurnStart + "assistant\n"
	if noThinking {
		s += ThinkOpen + "\n\n" + ThinkClose + "\n\n"
	}
	return s
}

// ToolReply returns what follows an assistant turn that ended with TurnEnd: the line break after it, the tool's
// output as a user turn, and the beginning of the next assistant turn. Only output is untrusted.
func ToolReply(output string, noThinking bool) []tokenizer.Part {
	r := &renderer{}
	r.template("\n" + TurnStart + "user\n" + ReplyOpen + "\n")
	r.content(output)
	r.template("\n" + ReplyClose + TurnEnd + "\n" + GenerationPrompt(noThinking))
	return r.parts
}

// Text joins parts.
func Text(parts []tokenizer.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

type renderer struct{ parts []tokenizer.Part }

func (r *renderer) template(s string) {
	r.parts = append(r.parts, tokenizer.Part{Text: s, Trusted: true})
}
func (r *renderer) content(s string) { r.parts = append(r.parts, tokenizer.Part{Text: s}) }

func (r *renderer) head(messages []Message, tools []json.RawMessage) error {
	system := len(messages) > 0 && messages[0].Role == "system"
	switch {
	case len(tools) == 0 && system:
		r.template(TurnStart + "system\n")
		r.content(messages[0].Content)
		r.template(TurnEnd + "\n")
		return nil
	case len(tools) == 0:
		return nil
	}
	r.template(TurnStart + "system\n")
	if system {
		r.content(messages[0].Content)
		r.template("\n\n")
	}
	r.template("# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>")
	for _, t := range tools {
		s, err := PythonJSON(t)
		if err != nil {
			return err
		}
		r.template("\n" + s)
	}
	r.template("\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>" + TurnEnd + "\n")
	return nil
}

// lastQuery is the index of the last user turn with content that is not a wrapped tool reply; the last index if there is none.
func lastQuery(messages []Message) int {
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		if m.Role == "user" && !m.NoContent && !(strings.HasPrefix(m.Content, ReplyOpen) && strings.HasSuffix(m.Content, ReplyClose)) {
			return i
		}
	}
	return len(messages) - 1
}

// assistant renders an assistant turn; thinking is shown only after the last query. The tags that the template writes are
// template; those that stand in the turn's own text are content, like all text that comes with a message.
func (r *renderer) assistant(m Message, afterQuery, last bool) error {
	content, reasoning := m.Content, ""
	if m.ReasoningContent != nil {
		reasoning = *m.ReasoningContent
	} else if before, _, ok := strings.Cut(content, ThinkClose); ok {
		before = strings.TrimRight(before, "\n")
		if i := strings.LastIndex(before, ThinkOpen); i >= 0 {
			before = before[i+len(ThinkOpen):]
		}
		reasoning = strings.TrimLeft(before, "\n")
		content = strings.TrimLeft(content[strings.LastIndex(content, ThinkClose)+len(ThinkClose):], "\n")
	}
	r.template(TurnStart + "assistant\n")
	if afterQuery && (last || reasoning != "") {
		r.template(ThinkOpen + "\n")
		r.content(strings.Trim(reasoning, "\n"))
		r.template("\n" + ThinkClose + "\n\n")
		r.content(strings.TrimLeft(content, "\n"))
	} else {
		r.content(content)
	}
	for i, c := range m.ToolCalls {
		if i > 0 || content != "" {
			r.template("\n")
		}
		args, ok := text(c.Arguments)
		if !ok {
			var err error
			if args, err = PythonJSON(c.Arguments); err != nil {
				return err
			}
		}
		r.template(CallOpen + "\n{\"name\": \"")
		r.content(c.Name)
		r.template("\", \"arguments\": ")
		r.content(args)
		r.template("}\n" + CallClose)
	}
	r.template(TurnEnd + "\n")
	return nil
}
