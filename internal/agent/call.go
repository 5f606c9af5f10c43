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

// parse finds the tool call in the decoded text of a turn; nil if there is none. Calls in a finished think block do not
// count. One in a block that is not closed cannot be run, for the model has not done thinking, but it is answered.
func parse(turn string) *call {
	open, found := nextCall(turn)
	if !found {
		if open >= 0 {
			return &call{status: "in_thinking", problem: "the call is inside a think block that is not closed; write " + chat.ThinkClose + " before a call"}
		}
		return nil
	}
	c, rest := parseOne(turn[open:])
	for {
		open, found := nextCall(rest)
		if !found {
			return c
		}
		c.ignored++
		_, rest = parseOne(rest[open:])
	}
}

// nextCall returns where the first call outside of think blocks begins, after its tag. If there is none, found is false,
// and at is the begin of one inside a block that is not closed, else -1.
func nextCall(text string) (at int, found bool) {
	for from := 0; ; {
		think, open := strings.Index(text[from:], chat.ThinkOpen), strings.Index(text[from:], chat.CallOpen)
		switch {
		case open < 0:
			return -1, false
		case think < 0 || open < think:
			return from + open + len(chat.CallOpen), true
		}
		end := strings.Index(text[from+think:], chat.ThinkClose)
		if end < 0 {
			return from + open, false
		}
		from += think + end + len(chat.ThinkClose)
	}
}

// parseOne reads one call. A JSON decoder finds its end, so that a closing tag inside a string does not; where the call
// is broken, its text ends at the next closing tag.
func parseOne(text string) (*call, string) {
	dec := json.NewDecoder(strings.NewReader(text))
	var obj map[string]json.RawMessage // keys in their exact case; of equal keys the last counts
	if err := dec.Decode(&obj); err != nil {
		_, rest, _ := strings.Cut(text, chat.CallClose)
		return &call{status: "malformed", problem: "the call is not a JSON object: " + reason(err)}, rest
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
