package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/steadyrl/steady/internal/agent"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// script is a sampler that says fixed turns: the token it gives depends on the prefix alone.
type script struct {
	tok     *tokenizer.Tokenizer
	prompt  int
	turns   [][]int32
	version int
}

func (s *script) Generate(ctx context.Context, r engine.Request, sink func(engine.Token) error) (engine.Finish, error) {
	end, _ := s.tok.ID(chat.TurnEnd)
	start, _ := s.tok.ID(chat.TurnStart)
	// The turn is the number of user turns after the prompt; the place in it follows from the last generation prompt.
	turn, at := 0, s.prompt
	head := s.tok.Encode(chat.GenerationPrompt(true))
	for i := s.prompt; i < len(r.Tokens); i++ {
		if r.Tokens[i] == start && i+len(head) <= len(r.Tokens) && slices.Equal(r.Tokens[i:i+len(head)], head) {
			turn++
			at = i + len(head)
		}
	}
	for n := 0; n < r.MaxNew; n++ {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		id := end
		if k := len(r.Tokens) + n - at; k < len(s.turns[turn]) {
			id = s.turns[turn][k]
		}
		t := engine.Token{ID: id, LogProb: -1, Version: s.version, TopIDs: []int32{id}, TopLogProbs: []float32{-1}}
		if err := sink(t); err != nil {
			return "", err
		}
		if slices.Contains(r.Stop, id) {
			return engine.FinishStop, nil
		}
	}
	return engine.FinishLength, nil
}

func (s *script) Score(context.Context, []int32) ([]float32, error)     { return nil, nil }
func (s *script) SetWeights(context.Context, int, *model.Weights) error { return nil }
func (s *script) Version() int                                          { return s.version }
func (s *script) Close() error                                          { return nil }

// echo is a tool that prints its input, or fails as told.
type echo struct {
	calls []string
	err   error
	long  int
}

func (e *echo) RunPython(_ context.Context, code, stdin string) (agent.ToolResult, error) {
	e.calls = append(e.calls, code)
	if e.err != nil {
		return agent.ToolResult{}, e.err
	}
	if strings.Contains(code, "fail") {
		return agent.ToolResult{Stderr: "Traceback\nValueError: x\n", Outcome: "runtime_error", Started: true}, nil
	}
	return agent.ToolResult{Stdout: stdin + strings.Repeat("y", e.long) + "\n", Outcome: "ok", Started: true}, nil
}

func newTok(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	data, err := tokenizer.Train(slices.Values([]string{chat.SystemLine, chat.ToolSchema}), 400, []tokenizer.Added{
		{Text: chat.EndOfText, Special: true},
		{Text: chat.TurnStart, Special: true},
		{Text: chat.TurnEnd, Special: true},
		{Text: chat.CallOpen},
		{Text: chat.CallClose},
		{Text: chat.ReplyOpen},
		{Text: chat.ReplyClose},
		{Text: chat.ThinkOpen},
		{Text: chat.ThinkClose},
	})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

type setup struct {
	tok  *tokenizer.Tokenizer
	tool *echo
	opts agent.Options
	traj *trajectory.Trajectory
}

func prepare(t *testing.T, turns ...string) *setup {
	t.Helper()
	tok := newTok(t)
	prompt, err := chat.Prompt(tok, "add", true)
	if err != nil {
		t.Fatal(err)
	}
	s := &script{tok: tok, prompt: len(prompt)}
	for _, u := range turns {
		s.turns = append(s.turns, tok.Encode(u))
	}
	e := &echo{}
	return &setup{
		tok: tok, tool: e, traj: trajectory.New(trajectory.Key{}, prompt, 1),
		opts: agent.Options{
			Sampler: s, Tokenizer: tok, Tool: e, MaxTurns: 6, MaxResponse: 4000, MaxTotal: 5000, OutputLimit: 40,
			Sampling: engine.Sampling{Temperature: 1, TopK: 1}, NoThinking: true,
		},
	}
}

func (s *setup) run(t *testing.T) {
	t.Helper()
	if err := agent.Run(t.Context(), s.traj, s.opts, func(*trajectory.Trajectory) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func ask(args string) string {
	return "<tool_call>\n{\"name\": \"run_python\", \"arguments\": " + args + "}\n</tool_call>"
}

func TestRun_everyEnd(t *testing.T) {
	t.Parallel()
	good := ask(`{"code": "print(1)", "stdin": "7"}`)
	tests := []struct {
		name     string
		turns    []string
		want     trajectory.End
		statuses []string
		calls    int
		shown    string // in the response
	}{
		{"no call", []string{"```python\nprint(1)\n```"}, trajectory.EndStop, nil, 0, "print"},
		{"one call", []string{good, "done"}, trajectory.EndStop, []string{"ran"}, 1, "<tool_response>\n7\n</tool_response>"},
		{"arguments as a string", []string{ask(`"{\"code\": \"x\", \"stdin\": \"8\"}"`), "done"}, trajectory.EndStop, []string{"ran"}, 1, "\n8\n"},
		{"closing tag inside the code", []string{ask(`{"code": "print('</tool_call>')", "stdin": "9"}`), "done"}, trajectory.EndStop, []string{"ran"}, 1, "\n9\n"},
		{"failing program", []string{ask(`{"code": "fail"}`), "done"}, trajectory.EndStop, []string{"ran"}, 1, "runtime_error: ValueError: x"},
		{"inside unfinished thinking", []string{"<think>" + good}, trajectory.EndStop, nil, 0, ""},
		{"after thinking", []string{"<think>hm</think>" + good, "done"}, trajectory.EndStop, []string{"ran"}, 1, "\n7\n"},
		{"closing think tag inside the code", []string{ask(`{"code": "print('</think><think>')", "stdin": "5"}`), "done"}, trajectory.EndStop, []string{"ran"}, 1, "\n5\n"},
		{"thinking twice", []string{"<think>a</think><think>" + good + "</think>" + good, "done"}, trajectory.EndStop, []string{"ran"}, 1, "\n7\n"},
		{"thinking again, unfinished", []string{"<think>a</think><think>" + good}, trajectory.EndStop, nil, 0, ""},
		{"end of text after a call", []string{good + chat.EndOfText, "done"}, trajectory.EndStop, []string{"not_run"}, 0, ""},
		{"keys in capitals", []string{ask(`{"CODE": "x"}`), "done"}, trajectory.EndStop, []string{"bad_arguments"}, 0, `"code" is missing`},
		{"stdin is null", []string{ask(`{"code": "x", "stdin": null}`), "done"}, trajectory.EndStop, []string{"ran"}, 1, "(no output)"},
		{"stdin is a number", []string{ask(`{"code": "x", "stdin": 3}`), "done"}, trajectory.EndStop, []string{"bad_arguments"}, 0, `"stdin" is not a string`},
		{"a list instead of a call", []string{"<tool_call>[1]</tool_call>", "done"}, trajectory.EndStop, []string{"malformed"}, 0, "it is a JSON array"},
		{"inside finished thinking", []string{"<think>" + good + "</think>done"}, trajectory.EndStop, nil, 0, ""},
		{"unknown tool", []string{"<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>", "done"}, trajectory.EndStop, []string{"unknown_tool"}, 0, `there is no tool "rm"`},
		{"no code", []string{ask(`{"stdin": "1"}`), "done"}, trajectory.EndStop, []string{"bad_arguments"}, 0, `"code" is missing`},
		{"code is a number", []string{ask(`{"code": 5}`), "done"}, trajectory.EndStop, []string{"bad_arguments"}, 0, "error:"},
		{"not closed", []string{"<tool_call>{\"name\": \"run_python\"}", "done"}, trajectory.EndStop, []string{"malformed"}, 0, "not closed"},
		{"not JSON, three times", []string{"<tool_call>x", "<tool_call>y", "<tool_call>z", "done"}, trajectory.EndParse, []string{"malformed", "malformed", "malformed"}, 0, "not a JSON object"},
		{"two calls", []string{good + good, "done"}, trajectory.EndStop, []string{"ran"}, 1, "1 further calls were ignored"},
		{"a call in every turn", []string{good, good, good, good, good, good}, trajectory.EndTurns, []string{"ran", "ran", "ran", "ran", "ran", "not_run"}, 5, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := prepare(t, tt.turns...)
			s.run(t)
			var statuses []string
			for _, u := range s.traj.Turns {
				if u.Call != nil {
					statuses = append(statuses, u.Call.Status)
				}
			}
			text := s.tok.Decode(s.traj.IDs()[s.traj.Prompt():], false)
			if s.traj.End != tt.want || !slices.Equal(statuses, tt.statuses) || len(s.tool.calls) != tt.calls || !strings.Contains(text, tt.shown) {
				t.Errorf("end %s, calls %v, programs %v, response %q; want %s, %v, %d programs, %q in the response",
					s.traj.End, statuses, s.tool.calls, text, tt.want, tt.statuses, tt.calls, tt.shown)
			}
		})
	}
}

// Appending must give what rendering the conversation gives, and only what the model sampled may train.
func TestRun_appendedTokensAreTheTemplates(t *testing.T) {
	t.Parallel()
	call := ask(`{"code": "print(1)", "stdin": "7"}`)
	s := prepare(t, call, "done")
	s.run(t)
	want := s.tok.Encode(call + "<|im_end|>\n<|im_start|>user\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\ndone<|im_end|>")
	if d := cmp.Diff(want, s.traj.IDs()[s.traj.Prompt():]); d != "" {
		t.Errorf("response ids (-want +got):\n%s", d)
	}
	sampled := ""
	for i, m := range s.traj.Mask() {
		if m {
			sampled += s.tok.Decode(s.traj.IDs()[i:i+1], false)
		}
	}
	if want := call + "<|im_end|>done<|im_end|>"; sampled != want {
		t.Errorf("masked text %q, want %q", sampled, want)
	}
	if got := agent.LastTurn(s.traj, s.tok); got != "done" {
		t.Errorf("last turn %q", got)
	}
}

// Killed after any token or tool call, and run again from the flush, the trajectory is the same.
func TestRun_resumesFromEveryFlush(t *testing.T) {
	t.Parallel()
	turns := []string{ask(`{"code": "a", "stdin": "7"}`), ask(`{"code": "b"}`), "the end"}
	whole := prepare(t, turns...)
	flushes := 0
	if err := agent.Run(t.Context(), whole.traj, whole.opts, func(*trajectory.Trajectory) error { flushes++; return nil }); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("killed")
	for at := 1; at <= flushes; at++ {
		s := prepare(t, turns...)
		n := 0
		var flushed []byte
		err := agent.Run(t.Context(), s.traj, s.opts, func(tr *trajectory.Trajectory) error {
			n++
			if n == at {
				var err error
				if flushed, err = trajectory.Encode([]*trajectory.Trajectory{tr}); err != nil {
					return err
				}
				return stop
			}
			return nil
		})
		if !errors.Is(err, stop) {
			t.Fatalf("flush %d: %v", at, err)
		}
		back, err := trajectory.Decode(flushed)
		if err != nil {
			t.Fatal(err)
		}
		s.traj = back[0]
		s.run(t)
		if d := cmp.Diff(whole.traj, s.traj, cmp.AllowUnexported(trajectory.Trajectory{}), cmpopts.EquateEmpty(),
			cmpopts.IgnoreFields(trajectory.Turn{}, "Seconds"), cmpopts.IgnoreFields(trajectory.Trajectory{}, "Seconds")); d != "" {
			t.Fatalf("resumed after flush %d of %d (-whole +resumed):\n%s", at, flushes, d)
		}
	}
}

func TestRun_budgetsAreExactAtEquality(t *testing.T) {
	t.Parallel()
	first := ask(`{"code": "a", "stdin": "7"}`)
	whole := prepare(t, first, "abc")
	whole.run(t)
	full := whole.traj.Response()
	turn1 := whole.traj.Turns[0].End - whole.traj.Prompt()
	reply := whole.traj.Turns[1].Begin - whole.traj.Turns[0].End
	for _, tt := range []struct {
		budget   int
		want     trajectory.End
		response int
		calls    int
	}{
		{full, trajectory.EndStop, full, 1},
		{full - 1, trajectory.EndLength, full - 1, 1},
		{turn1 + reply + 1, trajectory.EndLength, turn1 + reply + 1, 1},
		{turn1 + reply, trajectory.EndLength, turn1 + reply, 1}, // an exact fit is kept
		{turn1 + reply - 1, trajectory.EndLength, turn1, 1},     // one too many is not inserted
		{turn1, trajectory.EndLength, turn1, 0},                 // not cut, but no answer would fit
		{turn1 - 1, trajectory.EndLength, turn1 - 1, 0},         // cut: its call is not run
		{1, trajectory.EndLength, 1, 0},
	} {
		for _, total := range []bool{false, true} {
			s := prepare(t, first, "abc")
			if total {
				s.opts.MaxTotal = s.traj.Prompt() + tt.budget
			} else {
				s.opts.MaxResponse = tt.budget
			}
			s.run(t)
			if s.traj.End != tt.want || s.traj.Response() != tt.response || len(s.tool.calls) != tt.calls {
				t.Errorf("budget %d (total %v): end %s, response %d, programs %d; want %s, %d, %d",
					tt.budget, total, s.traj.End, s.traj.Response(), len(s.tool.calls), tt.want, tt.response, tt.calls)
			}
		}
	}
}

// A sampler that is cancelled, or whose policy moves on, leaves what it sampled; another version goes on from there.
func TestRun_goesOnUnderANewerVersion(t *testing.T) {
	t.Parallel()
	s := prepare(t, "a longer answer")
	stale := fault.New(fault.Stale, "sampler", "moved on")
	n := 0
	err := agent.Run(t.Context(), s.traj, s.opts, func(*trajectory.Trajectory) error {
		if n++; n == 3 {
			return stale
		}
		return nil
	})
	if !fault.Is(err, fault.Stale) || s.traj.Sampled() != 3 {
		t.Fatalf("%v after %d tokens, want Stale after 3", err, s.traj.Sampled())
	}
	newer := *s.opts.Sampler.(*script) //nolint:forcetypeassert // see prepare
	newer.version = 4
	s.opts.Sampler = &newer
	s.run(t)
	lo, hi, _ := s.traj.VersionRange()
	if lo != 0 || hi != 4 || s.traj.Versions()[s.traj.Prompt()+2] != 0 || s.traj.Versions()[s.traj.Prompt()+3] != 4 {
		t.Errorf("versions %v", s.traj.Versions()[s.traj.Prompt():])
	}
	if got := agent.LastTurn(s.traj, s.tok); got != "a longer answer" {
		t.Errorf("text %q", got)
	}
}

func TestRun_toolOutputIsCutInTheMiddleAndFaultsBubbleUp(t *testing.T) {
	t.Parallel()
	s := prepare(t, ask(`{"code": "a", "stdin": "BEGIN"}`), "done")
	s.tool.long = 100
	s.run(t)
	text := s.tok.Decode(s.traj.IDs()[s.traj.Prompt():], false)
	if want := "BEGIN" + strings.Repeat("y", 15) + "\n...\n" + strings.Repeat("y", 20) + "\n</tool_response>"; !strings.Contains(text, want) || !s.traj.Turns[0].Call.Cut {
		t.Errorf("response %q, want %q in it, and the cut noted", text, want)
	}
	s = prepare(t, ask(`{"code": "a"}`), "done")
	s.tool.err = fault.New(fault.Infrastructure, "sandbox", "no interpreter")
	err := agent.Run(t.Context(), s.traj, s.opts, func(*trajectory.Trajectory) error { return nil })
	if !fault.Is(err, fault.Infrastructure) || s.traj.End != "" || s.traj.Turns[0].Call != nil {
		t.Errorf("fault: %v, end %q", err, s.traj.End)
	}
	s.tool.err = nil // the worker tries again with what it holds
	s.run(t)
	if s.traj.End != trajectory.EndStop {
		t.Errorf("after the fault: end %q", s.traj.End)
	}
}
