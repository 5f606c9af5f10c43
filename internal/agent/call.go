package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/jsonl"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// call is what the parser makes of a turn.
type call struct {
	code, stdin string
	status      string // "" : a good call; else the status of trajectory.Call
	problem     string // for the model
	ignored     int    // further calls
}

// parse finds the tool call in the decoded text of a turn; nil if there is none. Calls in a finished think block do not
// count. One in a block that is not closed cannot be run, for the model has not done thinking, but it is answered. The
// work is linear in the length of the text, whatever stands in it. A call is read as it was written or not at all: one with something odd
// in it, or with an escape that is no character, is malformed.
func parse(turn string, odd []tokenizer.Odd) *call {
	s := newScan(turn)
	s.odd = odd
	return s.turn()
}

// scan walks over a turn once, from its begin to its end.
type scan struct {
	text string
	odd  []tokenizer.Odd // places in text that are not text, in order
	next [len(tags)]int  // place of the next tag of each kind that was found so far
	work int             // bytes that were looked at, for the proof that they are few
}

// tags are what a scan looks for.
var tags = [...]string{chat.ThinkOpen, chat.ThinkClose, chat.CallOpen, chat.CallClose}

const (
	thinkOpen = iota
	thinkClose
	callOpen
	callClose
)

// nowhere is the place of a tag that does not come.
const nowhere = math.MaxInt

func newScan(text string) *scan { return &scan{text: text, next: [len(tags)]int{-1, -1, -1, -1}} }

// find returns the place of the first tag at or behind from. What was found once is kept, so as long as from grows, the text is
// searched once for each kind of tag.
func (s *scan) find(tag, from int) int {
	if s.next[tag] < from {
		i := strings.Index(s.text[from:], tags[tag])
		if i < 0 {
			s.work += len(s.text) - from
			s.next[tag] = nowhere
		} else {
			s.work += i + len(tags[tag])
			s.next[tag] = from + i
		}
	}
	return s.next[tag]
}

func (s *scan) turn() *call {
	at, found := s.call(0)
	if !found {
		if at >= 0 {
			return &call{status: "in_thinking", problem: "the call is inside a think block that is not closed; write " + chat.ThinkClose + " before a call"}
		}
		return nil
	}
	c, rest := s.one(at)
	if i := slices.IndexFunc(s.odd, func(o tokenizer.Odd) bool { return o.At >= at && o.At < rest }); i >= 0 {
		c = &call{status: "malformed", problem: "the call holds " + s.odd[i].What}
	}
	for {
		if at, found = s.call(rest); !found {
			return c
		}
		c.ignored++
		_, rest = s.one(at)
	}
}

// call returns where the first call outside of think blocks begins, after its tag, at or behind from. If there is none,
// found is false, and at is the begin of one inside a block that is not closed, else -1.
func (s *scan) call(from int) (at int, found bool) {
	for {
		open, think := s.find(callOpen, from), s.find(thinkOpen, from)
		switch {
		case open == nowhere:
			return -1, false
		case open < think:
			return open + len(chat.CallOpen), true
		}
		end := s.find(thinkClose, think)
		if end == nowhere {
			return open, false
		}
		from = end + len(chat.ThinkClose)
	}
}

// one reads the call whose tag ends at begin, and returns where the text behind it begins. A JSON decoder finds its end, so that
// a closing tag inside a string does not; where the call is broken, its text ends at the next closing tag.
func (s *scan) one(begin int) (c *call, rest int) {
	in := strings.NewReader(s.text[begin:])
	dec := json.NewDecoder(in)
	var obj map[string]json.RawMessage // keys in their exact case; of equal keys the last counts
	err := dec.Decode(&obj)
	s.work += int(in.Size()) - in.Len()
	if err != nil {
		rest = len(s.text)
		if i := s.find(callClose, begin); i != nowhere {
			rest = i + len(chat.CallClose)
		}
		return &call{status: "malformed", problem: "the call is not a JSON object: " + reason(err)}, rest
	}
	rest = begin + int(dec.InputOffset())
	behind := strings.TrimLeft(s.text[rest:], " \t\r\n")
	if !strings.HasPrefix(behind, chat.CallClose) {
		return &call{status: "malformed", problem: "the call is not closed by " + chat.CallClose}, rest
	}
	rest = len(s.text) - len(behind) + len(chat.CallClose)
	if i := jsonl.HalfSurrogate([]byte(s.text[begin : begin+int(dec.InputOffset())])); i >= 0 {
		return &call{status: "malformed", problem: halfPair(i)}, rest
	}
	name, named := stringOf(obj["name"])
	switch {
	case !named:
		return &call{status: "malformed", problem: `the call has no "name"`}, rest
	case name != chat.ToolName:
		return &call{status: "unknown_tool", problem: fmt.Sprintf("there is no tool %q; the only tool is %s", short(name), chat.ToolName)}, rest
	}
	return arguments(obj["arguments"]), rest
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
		if i := jsonl.HalfSurrogate(raw); i >= 0 { // of arguments in a string; others were looked at with the call
			return bad(halfPair(i))
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

func halfPair(at int) string {
	return fmt.Sprintf("the escape at byte %d is half a surrogate pair, which is no character", at+1)
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
