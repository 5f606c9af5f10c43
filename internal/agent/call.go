package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/steadyrl/steady/internal/chat"
)

// call is what the parser makes of a turn.
type call struct {
	code, stdin string
	status      string // "" : a good call; else the status of trajectory.Call
	problem     string // for the model
	ignored     int    // further calls
}

// parse finds the tool call in the decoded text of a turn; nil if there is none. Calls in a think block do not count, and
// nothing counts after one that is not closed.
func parse(turn string) *call {
	for {
		think, open := strings.Index(turn, chat.ThinkOpen), strings.Index(turn, chat.CallOpen)
		switch {
		case open < 0:
			return nil
		case think >= 0 && think < open:
			_, after, closed := strings.Cut(turn[think:], chat.ThinkClose)
			if !closed {
				return nil
			}
			turn = after
			continue
		}
		c, rest := parseOne(turn[open+len(chat.CallOpen):])
		c.ignored = strings.Count(rest, chat.CallOpen)
		return c
	}
}

// parseOne reads one call. A JSON decoder finds its end, so that a closing tag inside a string does not.
func parseOne(text string) (*call, string) {
	dec := json.NewDecoder(strings.NewReader(text))
	var obj map[string]json.RawMessage // keys in their exact case; of equal keys the last counts
	if err := dec.Decode(&obj); err != nil {
		return &call{status: "malformed", problem: "the call is not a JSON object: " + reason(err)}, text
	}
	rest := text[dec.InputOffset():]
	after, closed := strings.CutPrefix(strings.TrimLeft(rest, " \t\r\n"), chat.CallClose)
	name, named := stringOf(obj["name"])
	switch {
	case !closed:
		return &call{status: "malformed", problem: "the call is not closed by " + chat.CallClose}, rest
	case !named:
		return &call{status: "malformed", problem: `the call has no "name"`}, after
	case name != chat.ToolName:
		return &call{status: "unknown_tool", problem: fmt.Sprintf("there is no tool %q; the only tool is %s", short(name), chat.ToolName)}, after
	}
	return arguments(obj["arguments"]), after
}

// arguments reads {"code": ..., "stdin": ...}; a string that holds such an object is read too.
func arguments(raw json.RawMessage) *call {
	if inner, ok := stringOf(raw); ok {
		raw = json.RawMessage(inner)
	}
	bad := func(problem string) *call { return &call{status: "bad_arguments", problem: problem} }
	var args map[string]json.RawMessage
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &args); err != nil {
			return bad("the arguments are not a JSON object: " + reason(err))
		}
	}
	code, ok := stringOf(args["code"])
	if !ok {
		return bad(`the argument "code" is missing or not a string`)
	}
	stdin, ok := stringOf(args["stdin"])
	if given := args["stdin"]; !ok && given != nil && string(given) != "null" {
		return bad(`the argument "stdin" is not a string`)
	}
	return &call{code: code, stdin: stdin}
}

// stringOf returns the text of a JSON string; ok is false for anything else.
func stringOf(raw json.RawMessage) (text string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return text, json.Unmarshal(raw, &text) == nil
}

// reason is a JSON error in few words.
func reason(err error) string {
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("%s at byte %d", s.Error(), s.Offset)
	}
	if v, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return "it is a JSON " + v.Value
	}
	return "it ends too early"
}

func short(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "..."
	}
	return s
}
