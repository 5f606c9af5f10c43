package agent_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/agent"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// oddIDs are what a model can sample that is not text: special tokens, an id without a token, half of a character.
func oddIDs(t *testing.T, tok *tokenizer.Tokenizer) map[string][]int32 {
	t.Helper()
	start, _ := tok.ID(chat.TurnStart)
	return map[string][]int32{
		"the control token <|im_start|>": {start},
		"which is no token":              {int32(tok.Size()) + 7}, //nolint:gosec // small
		"bytes that are not UTF-8":       singly(tok, "é")[:1],
	}
}

// A good call into which something is put that is not text, at any place, is never run, the sampled ids stay as they are, and the
// model is told what its call held. Where the tag is broken, there is no call, for nothing vanishes that would join its halves.
func TestRun_whatIsNotTextInsideACallIsNeverPassedOver(t *testing.T) {
	t.Parallel()
	base := prepare(t)
	call := ask(`{"code": "print('a')", "stdin": "é"}`)
	ids := slices.Concat(base.tok.Encode(chat.CallOpen), singly(base.tok, strings.TrimPrefix(call, chat.CallOpen)))
	for what, odd := range oddIDs(t, base.tok) {
		for at := 0; at <= len(ids); at++ {
			s := prepare(t)
			turn := slices.Insert(slices.Clone(ids), at, odd...)
			s.opts.Sampler = &script{tok: s.tok, prompt: s.traj.Prompt(), turns: [][]int32{turn, s.tok.Encode("done")}}
			s.run(t)
			u := s.traj.Turns[0]
			if got := s.traj.IDs()[u.Begin : u.End-1]; !slices.Equal(got, turn) {
				t.Fatalf("%s at %d: the ids are %v, want %v", what, at, got, turn)
			}
			status, outside := "", at == 0 || at == len(ids)
			if u.Call != nil {
				status = u.Call.Status
			}
			if want := map[bool]string{true: "ran", false: "malformed"}[outside]; status != want || (len(s.tool.calls) == 1) != outside {
				t.Errorf("%s at %d: status %q, %d programs, want %q", what, at, status, len(s.tool.calls), want)
			}
			if answer := s.tok.Decode(s.traj.IDs()[u.End:], false); !outside && !strings.Contains(answer, "error: the call holds ") && !strings.Contains(answer, "error: the call is not closed") {
				t.Errorf("%s at %d: the model is told %q", what, at, answer)
			}
		}
		s := prepare(t) // in a tag that is spelled as text
		turn := slices.Concat(singly(s.tok, "<tool_"), odd, singly(s.tok, "call>"), ids[1:])
		s.opts.Sampler = &script{tok: s.tok, prompt: s.traj.Prompt(), turns: [][]int32{turn}}
		if s.run(t); s.traj.Turns[0].Call != nil || s.traj.End != trajectory.EndStop {
			t.Errorf("%s in the tag: %+v, end %s", what, s.traj.Turns[0].Call, s.traj.End)
		}
	}
}

// What is judged holds all that was sampled but the token that ended the turn.
func TestLastTurn_nothingVanishes(t *testing.T) {
	t.Parallel()
	tok := newTok(t)
	end, _ := tok.ID(chat.TurnEnd)
	eot, _ := tok.ID(chat.EndOfText)
	start, _ := tok.ID(chat.TurnStart)
	none := int32(tok.Size()) //nolint:gosec // small
	a, e := tok.Encode("a"), singly(tok, "é")
	for _, tt := range []struct {
		ids  []int32
		want string
	}{
		{nil, ""},
		{[]int32{end}, ""},
		{slices.Concat(a, []int32{end}), "a"},
		{slices.Concat(a, []int32{eot}), "a"},
		{slices.Concat(a, []int32{start}), "a<|im_start|>"},
		{slices.Concat(a, []int32{start}, a, []int32{end}), "a<|im_start|>a"},
		{slices.Concat(a, []int32{none}, a), "a\ufffda"},
		{slices.Concat(e, e[:1], []int32{start}, e[1:], a), "é\ufffd<|im_start|>\ufffda"},
		{slices.Concat(tok.Encode(chat.ThinkOpen), a, tok.Encode(chat.ThinkClose)), "<think>a</think>"},
	} {
		tr := trajectory.New(trajectory.Key{}, []int32{1}, 1)
		tr.BeginTurn()
		for _, id := range tt.ids {
			if err := tr.AppendSampled(engine.Token{ID: id, LogProb: -1, TopIDs: []int32{id}, TopLogProbs: []float32{-1}}); err != nil {
				t.Fatal(err)
			}
		}
		if got := agent.LastTurn(tr, tok); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.ids, got, tt.want)
		}
	}
}

// Half of a surrogate pair is no character, wherever in a call it is escaped; whole pairs and escaped backslashes are text.
func TestRun_halfSurrogatesInCallsAreNotRun(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		`{"code": "\ud800"}`:               "malformed",
		`{"code": "\uDC00\ud800"}`:         "malformed",
		`{"code": "a", "stdin": "\udfff"}`: "malformed",
		`{"code": "a", "\ud834": 1}`:       "malformed",
		`"{\"code\": \"\ud800\"}"`:         "malformed",
		`"{\"code\": \"\\ud800\"}"`:        "bad_arguments",
		`"{\"code\": \"\\ud83d\\ude42\"}"`: "ran",
		`{"code": "\ud83d\ude42"}`:         "ran",
		`{"code": "\\ud800"}`:              "ran",
		`{"code": "\ufffd"}`:               "ran",
	} {
		s := prepare(t, ask(args), "done")
		s.run(t)
		if c := s.traj.Turns[0].Call; c == nil || c.Status != want || (len(s.tool.calls) == 1) != (want == "ran") {
			t.Errorf("%s: %+v and %q, want %s", args, c, s.tool.calls, want)
		}
	}
}

// Where nothing is odd, Written is Decode; each odd place is told and stands in the text.
func TestWritten_isDecodeWhereNothingIsOdd(t *testing.T) {
	t.Parallel()
	tok := newTok(t)
	rapid.Check(t, func(rt *rapid.T) {
		ids := rapid.SliceOf(rapid.Int32Range(0, int32(tok.Size())+2)).Draw(rt, "ids") //nolint:gosec // small
		text, odd := tok.Written(ids)
		if len(odd) == 0 && text != tok.Decode(ids, true) {
			rt.Errorf("%q, Decode gives %q", text, tok.Decode(ids, true))
		}
		for i, o := range odd {
			rest := text[o.At:]
			if !strings.HasPrefix(rest, "\ufffd") && !strings.HasPrefix(rest, "<|") || i > 0 && o.At <= odd[i-1].At {
				rt.Errorf("odd at %d of %q: %s", o.At, text, o.What)
			}
		}
		if strings.Contains(text, "\ufffd") && len(odd) == 0 {
			rt.Errorf("%q has nothing odd", text)
		}
	})
}
