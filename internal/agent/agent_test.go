package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

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
		{"inside unfinished thinking", []string{"<think>" + good, "done"}, trajectory.EndStop, []string{"in_thinking"}, 0, "inside a think block that is not closed; write </think> before a call"},
		{"inside unfinished thinking, three times", []string{"<think>" + good, "<think>" + good, "<think>" + good}, trajectory.EndParse, []string{"in_thinking", "in_thinking", "in_thinking"}, 0, "error:"},
		{"inside unfinished thinking, then a call", []string{"<think>" + good, good, "<think>" + good, "done"}, trajectory.EndStop, []string{"in_thinking", "ran", "in_thinking"}, 1, "\n7\n"},
		{"unfinished thinking without a call", []string{"<think>hm"}, trajectory.EndStop, nil, 0, ""},
		{"after thinking", []string{"<think>hm</think>" + good, "done"}, trajectory.EndStop, []string{"ran"}, 1, "\n7\n"},
		{"closing think tag inside the code", []string{ask(`{"code": "print('</think><think>')", "stdin": "5"}`), "done"}, trajectory.EndStop, []string{"ran"}, 1, "\n5\n"},
		{"thinking twice", []string{"<think>a</think><think>" + good + "</think>" + good, "done"}, trajectory.EndStop, []string{"ran"}, 1, "\n7\n"},
		{"thinking again, unfinished", []string{"<think>a</think><think>" + good, "done"}, trajectory.EndStop, []string{"in_thinking"}, 0, "error:"},
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
		{"two calls", []string{good + good, "done"}, trajectory.EndStop, []string{"ran"}, 1, "(calls ignored: 1;"},
		{"five calls, one in thinking, one with tags in its code", []string{good + ask(`{"code": "'<tool_call>'"}`) + "<think>" + good + "</think>" + good + "<tool_call>{</tool_call>" + good, "done"}, trajectory.EndStop, []string{"ran"}, 1, "(calls ignored: 4;"},
		{"a bad call before a good one", []string{"<tool_call>{]</tool_call>" + good, "done"}, trajectory.EndStop, []string{"malformed"}, 0, "(calls ignored: 1;"},
		{"an unknown tool before a good call", []string{"<tool_call>{\"name\": \"rm\"}</tool_call>" + good, "done"}, trajectory.EndStop, []string{"unknown_tool"}, 0, "(calls ignored: 1;"},
		{"a closing tag alone", []string{"x</tool_call>"}, trajectory.EndStop, nil, 0, ""},
		{"arguments as text that is no object", []string{ask(`"print(1)"`), "done"}, trajectory.EndStop, []string{"bad_arguments"}, 0, "the arguments are not a JSON object"},
		{"arguments as a string in a string", []string{ask(`"\"{}\""`), "done"}, trajectory.EndStop, []string{"bad_arguments"}, 0, "it is a JSON string"},
		{"a call of null", []string{"<tool_call>null</tool_call>", "done"}, trajectory.EndStop, []string{"malformed"}, 0, `no "name"`},
		{"two failures, a good call, two failures", []string{"<tool_call>x", "<tool_call>", good, "<tool_call>y", "<tool_call>z", "done"}, trajectory.EndStop, []string{"malformed", "malformed", "ran", "malformed", "malformed"}, 1, "error:"},
		{"the last allowed turn is a failure", []string{good, good, good, good, good, "<tool_call>x"}, trajectory.EndTurns, []string{"ran", "ran", "ran", "ran", "ran", "not_run"}, 5, ""},
		{"an answer in the last allowed turn", []string{good, good, good, good, good, "done"}, trajectory.EndStop, []string{"ran", "ran", "ran", "ran", "ran"}, 5, "done"},
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

func TestRun_repeatedCallsAreMarked(t *testing.T) {
	t.Parallel()
	a, spaced := ask(`{"code": "a", "stdin": "7"}`), "again: "+ask(`{ "stdin": "7",  "code": "a"}`)
	for _, tt := range []struct {
		name  string
		turns []string
		want  []bool
	}{
		{"other code", []string{a, ask(`{"code": "b", "stdin": "7"}`), "done"}, []bool{false, false}},
		{"other input", []string{a, ask(`{"code": "a", "stdin": "8"}`), "done"}, []bool{false, false}},
		{"no input and an empty one", []string{ask(`{"code": "a"}`), ask(`{"code": "a", "stdin": ""}`), "done"}, []bool{false, true}},
		{"the same in other words", []string{a, spaced, "done"}, []bool{false, true}},
		{"not the one before", []string{a, ask(`{"code": "b"}`), a, "done"}, []bool{false, false, true}},
		{"after one that failed", []string{"<tool_call>x", a, a, "done"}, []bool{false, false, true}},
		{"an unreadable one, word for word", []string{"<tool_call>x", "<tool_call>x", "done"}, []bool{false, true}},
		{"unreadable ones that differ", []string{"<tool_call>x", "<tool_call>y", "done"}, []bool{false, false}},
		{"in the last turn, where it is not run", []string{a, a, a, a, a, a}, []bool{false, true, true, true, true, true}},
	} {
		s := prepare(t, tt.turns...)
		s.run(t)
		var got []bool
		for _, u := range s.traj.Turns {
			if u.Call != nil {
				got = append(got, u.Call.Repeated)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
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
	const used = trajectory.End("") // the end that is named after the budget
	for _, tt := range []struct {
		budget   int
		want     trajectory.End
		response int
		calls    int
	}{
		{full, trajectory.EndStop, full, 1},
		{full - 1, used, full - 1, 1},
		{turn1 + reply + 1, used, turn1 + reply + 1, 1},
		{turn1 + reply, used, turn1 + reply, 1},           // an exact fit is kept
		{turn1 + reply - 1, trajectory.EndTool, turn1, 1}, // one too many is not inserted
		{turn1 + 1, trajectory.EndTool, turn1, 1},
		{turn1, trajectory.EndTool, turn1, 0}, // not cut, but no answer would fit
		{turn1 - 1, used, turn1 - 1, 0},       // cut: its call is not run
		{1, used, 1, 0},
	} {
		for _, kind := range []trajectory.End{trajectory.EndLength, trajectory.EndTotal} {
			s := prepare(t, first, "abc")
			if kind == trajectory.EndTotal {
				s.opts.MaxTotal = s.traj.Prompt() + tt.budget
			} else {
				s.opts.MaxResponse = tt.budget
			}
			want := tt.want
			if want == used {
				want = kind
			}
			s.run(t)
			if s.traj.End != want || s.traj.Response() != tt.response || len(s.tool.calls) != tt.calls {
				t.Errorf("budget %d of %s: end %s, response %d, programs %d; want %s, %d, %d",
					tt.budget, kind, s.traj.End, s.traj.Response(), len(s.tool.calls), want, tt.response, tt.calls)
			}
			if s.traj.End.Cut() != (want != trajectory.EndStop) {
				t.Errorf("end %s counts as cut: %v", s.traj.End, s.traj.End.Cut())
			}
		}
	}
}

// The budget of a turn is for sampled tokens alone, counted anew in each turn.
func TestRun_turnBudgetIsExactAtEquality(t *testing.T) {
	t.Parallel()
	call, last := ask(`{"code": "a", "stdin": "7"}`), strings.Repeat("much more text than a call ", 30)
	whole := prepare(t, call, call, last)
	whole.run(t)
	size := func(turn int) int { return whole.traj.Turns[turn].End - whole.traj.Turns[turn].Begin }
	if size(0) != size(1) || size(2) <= size(0) {
		t.Fatalf("turns of %d, %d and %d tokens", size(0), size(1), size(2))
	}
	for _, tt := range []struct {
		budget, response int // response 0: the newest turn is cut at the budget
		want             trajectory.End
		turns, calls     int
	}{
		{0, whole.traj.Response(), trajectory.EndStop, 3, 2},
		{size(2), whole.traj.Response(), trajectory.EndStop, 3, 2}, // the end-of-turn token is the last that fits
		{size(2) - 1, whole.traj.Response() - 1, trajectory.EndTurnLength, 3, 2},
		{size(0), whole.traj.Response() - size(2) + size(0), trajectory.EndTurnLength, 3, 2},
		{size(0) - 1, size(0) - 1, trajectory.EndTurnLength, 1, 0},
		{1, 1, trajectory.EndTurnLength, 1, 0},
	} {
		s := prepare(t, call, call, last)
		s.opts.MaxTurn = tt.budget
		s.run(t)
		if s.traj.End != tt.want || s.traj.Response() != tt.response || len(s.traj.Turns) != tt.turns || len(s.tool.calls) != tt.calls {
			t.Errorf("budget %d: end %s, response %d, %d turns, %d programs; want %s, %d, %d, %d",
				tt.budget, s.traj.End, s.traj.Response(), len(s.traj.Turns), len(s.tool.calls), tt.want, tt.response, tt.turns, tt.calls)
		}
	}
	for name, tt := range map[string]struct {
		change func(*agent.Options, int)
		want   trajectory.End
	}{
		"turn and response": {func(o *agent.Options, _ int) { o.MaxTurn, o.MaxResponse = 5, 5 }, trajectory.EndLength},
		"turn and total":    {func(o *agent.Options, prompt int) { o.MaxTurn, o.MaxTotal = 5, prompt+5 }, trajectory.EndTotal},
		"all three":         {func(o *agent.Options, prompt int) { o.MaxTurn, o.MaxResponse, o.MaxTotal = 5, 5, prompt+5 }, trajectory.EndLength},
		"turn first":        {func(o *agent.Options, prompt int) { o.MaxTurn, o.MaxResponse, o.MaxTotal = 5, 6, prompt+6 }, trajectory.EndTurnLength},
		"a long prompt":     {func(o *agent.Options, prompt int) { o.MaxTotal = prompt }, trajectory.EndTotal},
	} {
		s := prepare(t, call, "done")
		tt.change(&s.opts, s.traj.Prompt())
		s.run(t)
		if s.traj.End != tt.want || s.traj.Response() > 5 {
			t.Errorf("%s: end %s after %d tokens, want %s", name, s.traj.End, s.traj.Response(), tt.want)
		}
	}
}

// With the limits of a run: 8,192 tokens of response and 12,288 in all, behind prompts of every length that counts.
func TestRun_limitsOfTheRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		prompt, response int
		want             trajectory.End
	}{
		{4096, 8192, trajectory.EndLength}, // both budgets end here
		{4095, 8192, trajectory.EndLength},
		{4097, 8191, trajectory.EndTotal},
		{12287, 1, trajectory.EndTotal},
		{12288, 0, trajectory.EndTotal},
	} {
		s := prepare(t)
		prompt := make([]int32, tt.prompt)
		s.traj = trajectory.New(trajectory.Key{}, prompt, 1)
		s.opts.MaxResponse, s.opts.MaxTotal = 8192, 12288
		s.opts.Sampler = endless{}
		s.run(t)
		if s.traj.End != tt.want || s.traj.Response() != tt.response {
			t.Errorf("prompt of %d: end %s after %d tokens, want %s after %d", tt.prompt, s.traj.End, s.traj.Response(), tt.want, tt.response)
		}
	}
}

// endless is a sampler that never ends a turn, and gives more than it is asked for only if it is asked for more.
type endless struct{ *script }

func (endless) Generate(_ context.Context, r engine.Request, sink func(engine.Token) error) (engine.Finish, error) {
	for range r.MaxNew {
		if err := sink(engine.Token{ID: 1, LogProb: -1, TopIDs: []int32{1}, TopLogProbs: []float32{-1}}); err != nil {
			return "", err
		}
	}
	return engine.FinishLength, nil
}

// Whatever is said, tokens are only ever added, what was sampled stays as it was sampled, all arrays have one length, no
// budget is overrun, and there is an end.
func TestRun_onlyEverAppends(t *testing.T) {
	t.Parallel()
	base := prepare(t)
	pieces := []string{
		"<think>", "</think>", "<tool_call>", "</tool_call>", "text ", "```python\nprint(1)\n```", chat.EndOfText, "\n",
		ask(`{"code": "a", "stdin": "7"}`), ask(`{"code": "fail"}`), ask(`"x"`), `{"name": "run_python", "arguments": {}}`,
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := *base
		var turns [][]int32
		for range 7 {
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 4).Draw(rt, "turn"), "")
			if rapid.Bool().Draw(rt, "bytes") { // ids that encoding the text would never give
				turns = append(turns, singly(s.tok, text))
			} else {
				turns = append(turns, s.tok.Encode(text))
			}
		}
		prompt := s.traj.IDs()
		s.traj = trajectory.New(trajectory.Key{}, prompt, 1)
		s.tool = &echo{long: rapid.IntRange(0, 60).Draw(rt, "output")}
		said := &recorder{script: &script{tok: s.tok, prompt: len(prompt), turns: turns}}
		s.opts.Sampler, s.opts.Tool = said, s.tool
		s.opts.MaxTurns = rapid.IntRange(1, 6).Draw(rt, "turns")
		s.opts.MaxTurn = rapid.IntRange(0, 200).Draw(rt, "turn budget")
		s.opts.MaxResponse = rapid.IntRange(1, 900).Draw(rt, "response budget")
		s.opts.MaxTotal = len(prompt) + rapid.IntRange(0, 900).Draw(rt, "total budget")
		before := slices.Clone(prompt)
		err := agent.Run(t.Context(), s.traj, s.opts, func(tr *trajectory.Trajectory) error {
			if ids := tr.IDs(); len(ids) < len(before) || !slices.Equal(ids[:len(before)], before) {
				rt.Fatalf("%v became %v", before, ids)
			}
			before = slices.Clone(tr.IDs())
			return tr.Check()
		})
		if err != nil {
			rt.Fatal(err)
		}
		checkLimits(rt, s.traj, s.opts)
		var masked []int32
		for i, m := range s.traj.Mask() {
			if m {
				masked = append(masked, s.traj.IDs()[i])
			}
		}
		if !slices.Equal(masked, said.ids) {
			rt.Fatalf("sampled %v, trained %v", said.ids, masked)
		}
		if len(s.tool.calls) > len(s.traj.Turns) {
			rt.Fatalf("%d programs in %d turns", len(s.tool.calls), len(s.traj.Turns))
		}
	})
}

func checkLimits(rt *rapid.T, tr *trajectory.Trajectory, o agent.Options) {
	rt.Helper()
	if err := tr.Check(); err != nil || !slices.Contains(trajectory.Ends(), tr.End) {
		rt.Fatalf("end %q, %v", tr.End, err)
	}
	if len(tr.Turns) > o.MaxTurns || tr.Response() > o.MaxResponse || tr.Len() > max(o.MaxTotal, tr.Prompt()) {
		rt.Fatalf("%d turns, %d tokens of response, %d in all; limits %d, %d, %d", len(tr.Turns), tr.Response(), tr.Len(), o.MaxTurns, o.MaxResponse, o.MaxTotal)
	}
	for i, u := range tr.Turns {
		if o.MaxTurn > 0 && u.End-u.Begin > o.MaxTurn {
			rt.Fatalf("turn %d has %d tokens, the limit is %d", i, u.End-u.Begin, o.MaxTurn)
		}
		if u.Call == nil && i < len(tr.Turns)-1 {
			rt.Fatalf("turn %d is followed by another, but has no call", i)
		}
	}
}

// recorder keeps what its sampler said.
type recorder struct {
	*script
	ids []int32
}

func (r *recorder) Generate(ctx context.Context, q engine.Request, sink func(engine.Token) error) (engine.Finish, error) {
	return r.script.Generate(ctx, q, func(t engine.Token) error {
		r.ids = append(r.ids, t.ID)
		return sink(t)
	})
}

// singly encodes every byte by itself, control tokens apart.
func singly(tok *tokenizer.Tokenizer, text string) (ids []int32) {
	for _, id := range tok.Encode(text) {
		if _, ok := tok.Added(id); ok {
			ids = append(ids, id)
			continue
		}
		for _, b := range tok.DecodeBytes([]int32{id}, false) {
			ids = append(ids, tok.EncodePlain(string([]byte{b}))...)
		}
	}
	return ids
}

func TestRun_outputIsCutAtTheLimitInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit  int
		output string
		want   string
		cut    int
	}{
		{6, "abcdef", "abcdef", 0},
		{6, "abcdefg", "abc\n[1 characters cut from the middle]\nefg", 1},
		{5, "abcdefg", "abc\n[2 characters cut from the middle]\nfg", 2},
		{1, "abc", "a\n[2 characters cut from the middle]\n", 2},
		{0, "abc", "\n[3 characters cut from the middle]\n", 3},
		{4, "日本語🙂é!", "日本\n[2 characters cut from the middle]\né!", 2}, // characters, not bytes
		{3, "a\xff\xffb", "a\ufffdb", 0},                               // bytes that are no text are one character each run
		{4, "abcd\n\n", "abcd", 0},                                     // line breaks at the end do not count
	} {
		s := prepare(t, ask(`{"code": "x"}`), "done")
		s.opts.OutputLimit, s.opts.Tool = tt.limit, printer(tt.output)
		s.run(t)
		text := s.tok.Decode(s.traj.IDs()[s.traj.Turns[0].End:s.traj.Turns[1].Begin], false)
		call := s.traj.Turns[0].Call
		if !strings.Contains(text, "<tool_response>\n"+tt.want+"\n</tool_response>") || call.CutCharacters != tt.cut || call.Cut != (tt.cut > 0) {
			t.Errorf("limit %d, output %q: answer %q, %+v; want %q, %d cut", tt.limit, tt.output, text, call, tt.want, tt.cut)
		}
	}
}

// printer is a tool whose programs print a text.
type printer string

func (p printer) RunPython(context.Context, string, string) (agent.ToolResult, error) {
	return agent.ToolResult{Stdout: string(p), Outcome: "ok", Started: true}, nil
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
	if want := "BEGIN" + strings.Repeat("y", 15) + "\n[65 characters cut from the middle]\n" + strings.Repeat("y", 20) + "\n</tool_response>"; !strings.Contains(text, want) || !s.traj.Turns[0].Call.Cut {
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
