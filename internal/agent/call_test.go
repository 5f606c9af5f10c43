package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/agent"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// The file records what another parser makes of these texts; this is what the loop makes of them.
func TestRun_goldenCalls(t *testing.T) {
	t.Parallel()
	want := map[string]string{ // status of the first turn's call, "" for none, and the program that ran
		"plain": "ran print(1)", "text_before": "ran print(1)", "no_close": "malformed", "no_open": "", "bad_json": "malformed",
		"raw_newline_in_string": "malformed", "single_quotes": "malformed", "args_is_string": "ran print(1)",
		"args_missing": "bad_arguments", "parameters_key": "bad_arguments", "two_calls": "ran print(1)", "good_then_bad": "ran print(1)",
		"inside_think": "", "think_and_after": "ran print(1)", "close_tag_in_code": "ran print('</tool_call>')",
		"open_tag_in_code": "ran print('<tool_call>')", "unknown_tool": "unknown_tool", "extra_keys": "ran print(1)",
		"args_list": "bad_arguments", "args_null": "bad_arguments", "unicode": "ran print(\"你好 🙂\")", "duplicate_keys": "ran 2",
		"nan_literal": "malformed", "empty": "malformed", "fenced_in_text": "ran print(1)", "name_not_string": "malformed",
	}
	data, err := os.ReadFile("testdata/hermes_tool_calls.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var row struct{ ID, Text string }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		s := prepare(t, strings.TrimSuffix(row.Text, chat.TurnEnd), "done")
		s.run(t)
		got := ""
		if c := s.traj.Turns[0].Call; c != nil {
			got = strings.TrimSpace(c.Status + " " + strings.Join(s.tool.calls, "|"))
		}
		w, known := want[row.ID]
		if !known || got != w {
			t.Errorf("%s: %q gives %q, want %q (known %v)", row.ID, row.Text, got, w, known)
		}
		delete(want, row.ID)
	}
	if len(want) > 0 {
		t.Errorf("the file lacks %v", want)
	}
}

// silent is a sampler that ends at once.
type silent struct{ *script }

func (silent) Generate(context.Context, engine.Request, func(engine.Token) error) (engine.Finish, error) {
	return engine.FinishStop, nil
}

func TestRun_refusesBadOptionsAndSilentSamplers(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*agent.Options){
		"no sampler":     func(o *agent.Options) { o.Sampler = nil },
		"no tool":        func(o *agent.Options) { o.Tool = nil },
		"no turns":       func(o *agent.Options) { o.MaxTurns = 0 },
		"no response":    func(o *agent.Options) { o.MaxResponse = 0 },
		"negative cut":   func(o *agent.Options) { o.OutputLimit = -1 },
		"turn budget":    func(o *agent.Options) { o.MaxTurn = -1 },
		"no total":       func(o *agent.Options) { o.MaxTotal = 0 },
		"no tokenizer":   func(o *agent.Options) { o.Tokenizer = nil },
		"no end of turn": func(o *agent.Options) { o.Tokenizer = withoutControls(t) },
	} {
		s := prepare(t, "done")
		spoil(&s.opts)
		if err := agent.Run(t.Context(), s.traj, s.opts, nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
	s := prepare(t, "done")
	s.opts.Sampler = silent{}
	if err := agent.Run(t.Context(), s.traj, s.opts, nil); !fault.Is(err, fault.Internal) {
		t.Errorf("a sampler that adds nothing: %v, want Internal", err)
	}
}

func withoutControls(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	data, err := tokenizer.Train(slices.Values([]string{"a"}), 256, nil)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}
