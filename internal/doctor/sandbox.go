package doctor

import (
	"context"

	"github.com/steadyrl/steady/internal/sandbox"
)

// UseSandbox lets o look for the interpreter as a run does and try the sandbox with it.
//
// python is the interpreter that the user names, empty to search. helper is the binary that holds the sandbox's
// helper, empty for the running one.
func (o *Options) UseSandbox(python, helper string) {
	o.FindPython = func(ctx context.Context) (Python, error) {
		p, err := sandbox.FindPython(ctx, python)
		return Python{Path: p.Path, Version: p.Version, Warning: p.Warning}, err
	}
	o.TrySandbox = func(ctx context.Context) (string, error) { return trySandboxed(ctx, python, helper) }
}

// trySandboxed makes a sandbox, which tests itself, and says what it enforces.
func trySandboxed(ctx context.Context, python, helper string) (string, error) {
	p, err := sandbox.FindPython(ctx, python)
	if err != nil {
		return "", err
	}
	s, err := sandbox.New(ctx, sandbox.Options{Python: p, Helper: helper, Slots: 1})
	if err != nil {
		return "", err
	}
	l := s.Level()
	if err := s.Close(); err != nil {
		return "", err
	}
	return "self-test passed: " + l.String(), nil
}
