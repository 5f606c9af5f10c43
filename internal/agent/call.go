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

// parse finds the tool call in the decoded text of a turn; nil if there is none. Only text after the last closed
// think block counts, and none if a think block is still open.
func parse(turn string) *call {
	if i := strings.LastIndex(turn, chat.ThinkClose); i >= 0 {
		turn = turn[i+len(chat.ThinkClose):]
	}
	if strings.Contains(turn, chat.ThinkOpen) {
		return nil
	}
	_, rest, ok := strings.Cut(turn, chat.CallOpen)
	if !ok {
		return nil
	}
	c, rest := parseOne(rest)
	c.ignored = strings.Count(rest, chat.CallOpen)
	return c
}

// parseOne reads one call. A JSON decoder finds its end, so that a closing tag inside a string does not.
func parseOne(text string) (*call, string) {
	dec := json.NewDecoder(strings.NewReader(text))
	var obj struct {
		Name      *string         `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := dec.Decode(&obj); err != nil {
		return &call{status: "malformed", problem: "the call is not a JSON object: " + reason(err)}, text
	}
	rest := text[dec.InputOffset():]
	after, closed := strings.CutPrefix(strings.TrimLeft(rest, " \t\r\n"), chat.CallClose)
	switch {
	case !closed:
		return &call{status: "malformed", problem: "the call is not closed by " + chat.CallClose}, rest
	case obj.Name == nil:
		return &call{status: "malformed", problem: `the call has no "name"`}, after
	case *obj.Name != chat.ToolName:
		return &call{status: "unknown_tool", problem: fmt.Sprintf("there is no tool %q; the only tool is %s", short(*obj.Name), chat.ToolName)}, after
	}
	return arguments(obj.Arguments), after
}

// arguments reads {"code": ..., "stdin": ...}; a string that holds such an object is read too.
func arguments(raw json.RawMessage) *call {
	var inner string
	if json.Unmarshal(raw, &inner) == nil {
		raw = json.RawMessage(inner)
	}
	var args struct {
		Code  *string `json:"code"`
		Stdin *string `json:"stdin"`
	}
	if err := json.Unmarshal(raw, &args); err != nil {
		return &call{status: "bad_arguments", problem: "the arguments are not an object with strings: " + reason(err)}
	}
	if args.Code == nil {
		return &call{status: "bad_arguments", problem: `the argument "code" is missing`}
	}
	c := &call{code: *args.Code}
	if args.Stdin != nil {
		c.stdin = *args.Stdin
	}
	return c
}

// reason is a JSON error in few words.
func reason(err error) string {
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("%s at character %d", s.Error(), s.Offset)
	}
	return err.Error()
}

func short(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "..."
	}
	return s
}
