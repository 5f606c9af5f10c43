package rollout

import (
	"context"

	"github.com/steadyrl/steady/internal/agent"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/internal/span"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// Settings decide how trajectories are sampled. Lengths are in tokens, 0 means none unless said otherwise.
type Settings struct {
	Thinking    bool    `json:"thinking"`
	Temperature float64 `json:"temperature"`
	TopK        int     `json:"top_k_record"` // width of the record; it truncates nothing
	MaxTurns    int     `json:"max_turns"`
	MaxTurn     int     `json:"max_turn_tokens"` // 0: no budget of its own
	MaxPrompt   int     `json:"max_prompt"`
	MaxResponse int     `json:"max_response"`
	MaxTotal    int     `json:"max_total"`
	OutputLimit int     `json:"tool_output_limit"` // characters
}

// Begin returns a trajectory that holds the prompt of a problem. Errors: Invalid (longer than MaxPrompt).
func (s Settings) Begin(tok *tokenizer.Tokenizer, k trajectory.Key, statement string) (*trajectory.Trajectory, error) {
	prompt, err := chat.Prompt(tok, statement, !s.Thinking)
	if err != nil {
		return nil, err
	}
	if len(prompt) > s.MaxPrompt {
		return nil, fault.New(fault.Invalid, "rollout.Begin", "the prompt of %s has %d tokens, rollout.max_prompt is %d", k.ProblemID, len(prompt), s.MaxPrompt)
	}
	return trajectory.New(k, prompt, s.TopK), nil
}

// Options are those of the loop that makes a trajectory. Version, which may be nil, is the only policy version that may answer.
func (s Settings) Options(sampler engine.Sampler, tok *tokenizer.Tokenizer, tool agent.Tool, random rng.Stream, version *int) agent.Options {
	return agent.Options{
		Sampler: sampler, Tokenizer: tok, Tool: tool, MaxTurns: s.MaxTurns,
		MaxTurn: s.MaxTurn, MaxResponse: s.MaxResponse, MaxTotal: s.MaxTotal, OutputLimit: s.OutputLimit,
		Sampling: engine.Sampling{Temperature: s.Temperature, TopK: s.TopK},
		Random:   random, Pin: version, NoThinking: !s.Thinking,
	}
}

// ValidationStream gives the draws of a validation response. The same draws serve every validation and evaluation with a seed, so that
// models are compared and not luck.
func ValidationStream(seed uint64, problem string, sample int) rng.Stream {
	return rng.New(seed, rng.Validation, 0, problem, sample, 0)
}

// CheckRecord refuses what cannot come from a working sampler, so that it is dropped and never used. Errors: Infrastructure.
func CheckRecord(t *trajectory.Trajectory, vocab int) error {
	for i, sampled := range t.Mask() {
		if !sampled {
			continue
		}
		err := rl.CheckLogProb(t.LogProbs()[i])
		if err == nil && t.TopK() > 0 {
			ids, lps := t.Head(i)
			err = rl.CheckRecord(ids, lps, vocab)
		}
		if err != nil {
			return fault.New(fault.Infrastructure, "rollout.CheckRecord", "token %d of %s: %w", i, t.ProblemID, err)
		}
	}
	return nil
}

// Programs runs the programs of models, as *sandbox.Sandbox does.
type Programs interface {
	Level() sandbox.Level
	Run(ctx context.Context, p sandbox.Program) (sandbox.Result, error)
}

// Tool runs the model's programs in the sandbox, under Limits.
type Tool struct {
	Programs Programs
	Limits   *sandbox.Limits
}

// RunPython implements agent.Tool.
func (t Tool) RunPython(ctx context.Context, code, stdin string) (agent.ToolResult, error) {
	ctx, ended := span.Start(ctx, "run_program")
	res, err := t.Programs.Run(ctx, sandbox.Program{Source: []byte(code), Stdin: []byte(stdin), Limits: t.Limits})
	ended(err, span.Attr{Key: "outcome", Value: string(res.Outcome)})
	if err != nil {
		return agent.ToolResult{}, err
	}
	return agent.ToolResult{
		Stdout: string(res.Stdout), Stderr: string(res.Stderr), Outcome: string(res.Outcome), Started: true,
		Seconds: res.WallSeconds + res.StartupSeconds, QueueSeconds: res.QueueSeconds,
	}, nil
}
