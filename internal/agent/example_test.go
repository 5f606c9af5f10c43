package agent_test

import (
	"context"
	"fmt"

	"github.com/steadyrl/steady/internal/agent"
)

// short runs short programs only; the model reads why another one was not run.
type short struct {
	agent.Tool
	most int // bytes
}

func (t short) RunPython(ctx context.Context, code, stdin string) (agent.ToolResult, error) {
	if len(code) > t.most {
		return agent.ToolResult{Outcome: "refused", Stderr: fmt.Sprintf("a program may have %d bytes", t.most)}, nil
	}
	return t.Tool.RunPython(ctx, code, stdin)
}

// mirror stands for the sandbox.
type mirror struct{}

func (mirror) RunPython(_ context.Context, code, _ string) (agent.ToolResult, error) {
	return agent.ToolResult{Stdout: code, Outcome: "ok", Started: true}, nil
}

// A rule of one's own about the tool is a Tool around another one.
func ExampleTool() {
	tool := short{Tool: mirror{}, most: 10}
	for _, code := range []string{"print(1)", "print('much more')"} {
		r, err := tool.RunPython(context.Background(), code, "")
		fmt.Printf("%s: %q %q %v\n", r.Outcome, r.Stdout, r.Stderr, err)
	}
	// Output:
	// ok: "print(1)" "" <nil>
	// refused: "" "a program may have 10 bytes" <nil>
}
