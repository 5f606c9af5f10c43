package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/jsonl"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// rowsFlags name a tokenizer and a file of rows.
type rowsFlags struct {
	Tokenizer string `required:"" type:"existingdir" placeholder:"DIR" help:"Model directory, or any directory with a tokenizer.json."`
	File      string `arg:"" type:"existingfile" help:"JSON Lines, one object a line; - for standard input."`
}

// each reads the rows of the file and prints what row makes of the fields of each, in order, a line each. Rows are
// printed as they come, so those before a bad one are there. Errors: Invalid, with line and field.
func (f rowsFlags) each(s *streams, op string, row func(map[string]json.RawMessage) (any, error), known ...string) error {
	in, name := io.Reader(os.Stdin), "standard input"
	if f.File != "-" {
		file, err := os.Open(f.File)
		if err != nil {
			return fault.New(fault.Invalid, op, "%w", err).WithHint("give a file that can be read, or - for standard input")
		}
		defer file.Close()
		in, name = file, f.File
	} else if st, err := os.Stdin.Stat(); err == nil && st.IsDir() {
		return fault.New(fault.Invalid, op, "standard input is a directory").WithHint("give a file of JSON Lines")
	}
	out := bufio.NewWriter(s.out)
	err := jsonl.Each(&flusher{in, out}, func(_ int, line json.RawMessage) error {
		fields, err := jsonl.Fields("", line, known...)
		if err != nil {
			return err
		}
		v, err := row(fields)
		if err != nil {
			return err
		}
		return printJSON(out, v)
	})
	// A failed write is sticky, and no fault of the line that was read then.
	if err := out.Flush(); err != nil {
		return fault.New(fault.Internal, op, "the output cannot be written: %w", err)
	}
	if err != nil {
		return fault.New(fault.KindOf(err), op, "%s: %w", name, err).WithHint("a line is an object with %s; `steady %s --help` says more", strings.Join(known, ", "), op)
	}
	return nil
}

// flusher writes out what waits before a read may block.
type flusher struct {
	io.Reader
	out *bufio.Writer
}

func (f *flusher) Read(p []byte) (int, error) {
	if err := f.out.Flush(); err != nil {
		return 0, err
	}
	return f.Reader.Read(p)
}

type tokenizeCmd struct{ rowsFlags }

// Run prints {"ids", "ids_plain"} for each {"text"}.
func (c *tokenizeCmd) Run(s *streams) error {
	tok, err := tokenizer.Load(c.Tokenizer)
	if err != nil {
		return err
	}
	return c.each(s, "tokenize", func(f map[string]json.RawMessage) (any, error) {
		text, err := jsonl.Text("text", f["text"])
		if err != nil {
			return nil, err
		}
		return struct {
			IDs   []int32 `json:"ids"`
			Plain []int32 `json:"ids_plain"`
		}{list(tok.Encode(text)), list(tok.EncodePlain(text))}, nil
	}, "text")
}

// list is ids, but never null in JSON.
func list(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}

type detokenizeCmd struct{ rowsFlags }

// Run prints {"text"} for each {"ids", "skip_special_tokens"}.
func (c *detokenizeCmd) Run(s *streams) error {
	tok, err := tokenizer.Load(c.Tokenizer)
	if err != nil {
		return err
	}
	return c.each(s, "detokenize", func(f map[string]json.RawMessage) (any, error) {
		ids, err := readIDs(tok, f["ids"])
		if err != nil {
			return nil, err
		}
		skip, err := jsonl.Bool("skip_special_tokens", f["skip_special_tokens"])
		if err != nil {
			return nil, err
		}
		return struct {
			Text string `json:"text"`
		}{tok.Decode(ids, skip)}, nil
	}, "ids", "skip_special_tokens")
}

// readIDs reads a list of ids that are tokens.
func readIDs(tok *tokenizer.Tokenizer, raw json.RawMessage) ([]int32, error) {
	elements, err := jsonl.Elements("ids", raw)
	if err != nil {
		return nil, err
	}
	ids := make([]int32, len(elements))
	for i, e := range elements {
		at := fmt.Sprintf("ids[%d]", i)
		if k := jsonl.Kind(e); k != jsonl.Number {
			return nil, jsonl.Bad(at, "is %s, want a number", k)
		}
		var n json.Number
		if err := json.Unmarshal(e, &n); err != nil {
			return nil, jsonl.Bad(at, "%w", err)
		}
		if err := json.Unmarshal(e, &ids[i]); err != nil || !tok.Has(ids[i]) {
			return nil, jsonl.Bad(at, "is %.40s, want the id of a token, 0 to %d", n, tok.Size()-1)
		}
	}
	return ids, nil
}

type chatCmd struct {
	Render chatRenderCmd `cmd:"" help:"Render conversations with Qwen3's chat template: {\"messages\", \"tools\", \"add_generation_prompt\", \"enable_thinking\"} to {\"rendered\", \"ids\"}."`
}

type chatRenderCmd struct {
	rowsFlags
	Untrusted bool `help:"Encode as rollouts do: control tokens only from the template, never from the text of messages."`
}

// Run renders each conversation. A directory with a chat template must have one that is known; one with a tokenizer
// alone is taken for Qwen3's.
func (c *chatRenderCmd) Run(s *streams) error {
	tok, err := tokenizer.Load(c.Tokenizer)
	if err != nil {
		return err
	}
	if err := chat.CheckTokenizer(tok); err != nil {
		return err
	}
	model := os.DirFS(c.Tokenizer)
	if _, err := chat.FindTemplate(model, c.Tokenizer); !fault.Is(err, fault.NotFound) {
		if err := chat.CheckModel(model, filepath.Clean(c.Tokenizer)); err != nil {
			return err
		}
	}
	return c.each(s, "chat render", func(f map[string]json.RawMessage) (any, error) {
		parts, err := renderRow(f)
		if err != nil {
			return nil, err
		}
		text := chat.Text(parts)
		ids := tok.Encode(text)
		if c.Untrusted {
			ids = tok.EncodeParts(parts)
		}
		return struct {
			Rendered string  `json:"rendered"`
			IDs      []int32 `json:"ids"`
		}{text, list(ids)}, nil
	}, "messages", "tools", "add_generation_prompt", "enable_thinking")
}

func renderRow(f map[string]json.RawMessage) ([]tokenizer.Part, error) {
	messages, err := chat.ReadMessages(f["messages"])
	if err != nil {
		return nil, err
	}
	var o chat.Options
	if o.Tools, err = chat.ReadTools(f["tools"]); err != nil {
		return nil, err
	}
	if o.Generate, err = jsonl.Bool("add_generation_prompt", f["add_generation_prompt"]); err != nil {
		return nil, err
	}
	if jsonl.Kind(f["enable_thinking"]) != jsonl.Null {
		thinking, err := jsonl.Bool("enable_thinking", f["enable_thinking"])
		if err != nil {
			return nil, err
		}
		o.NoThinking = !thinking
	}
	return chat.Render(messages, o)
}
