package judge

import (
	"context"
	"errors"
	"time"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/sandbox"
)

// Kind says how a test or a submission ended.
type Kind string

// Kinds of tests and submissions. A failed submission has the kind of its first failed test.
const (
	Accepted     Kind = "accepted"
	WrongAnswer  Kind = "wrong_answer"
	RuntimeError Kind = "runtime_error" // also a right output before a failing exit, and a forbidden system call
	CompileError Kind = "compile_error"
	TimeLimit    Kind = "time_limit"
	MemoryLimit  Kind = "memory_limit"
	OutputLimit  Kind = "output_limit"
	// FormatError is for submissions only: nothing could be judged.
	FormatError Kind = "format_error"
	// NoTests is for submissions only: there was nothing to judge with.
	NoTests Kind = "no_tests"
	// BudgetExhausted is for submissions only: the tests that ran passed, the budget did not suffice for all.
	BudgetExhausted Kind = "budget_exhausted"
	// NotRun is for tests only: nothing to run, or no budget left. It counts as failed.
	NotRun Kind = "not_run"
)

// DefaultBudget is the sum of charged time that one submission may use.
const DefaultBudget = 90 * time.Second

// attempts is how often a program is tried if the sandbox itself fails.
const attempts = 3

// Test is one saved test: standard input and the expected output.
type Test struct {
	Input  string `json:"input"`
	Output string `json:"output"`
}

// Runner runs a program; *sandbox.Sandbox is one. An error of kind fault.Infrastructure is retried.
type Runner interface {
	Run(ctx context.Context, p sandbox.Program) (sandbox.Result, error)
}

// Options configure a Judge.
type Options struct {
	Runner Runner
	// Budget is the sum of charged time of one submission. Default DefaultBudget.
	Budget time.Duration
	// Limits bound one test. Nil: the runner's own.
	Limits *sandbox.Limits
}

// Judge scores submissions. It is safe for concurrent use: the tests of one submission run one after the other, and
// the runner bounds what runs at once.
type Judge struct{ opts Options }

// New returns a judge.
func New(o Options) *Judge {
	if o.Budget <= 0 {
		o.Budget = DefaultBudget
	}
	return &Judge{opts: o}
}

// TestVerdict is the outcome of one test. Times are seconds, 0 for a test that was not run.
type TestVerdict struct {
	Kind           Kind    `json:"kind"`
	ExitCode       int     `json:"exit_code"`
	Signal         int     `json:"signal,omitempty"`
	ChargedSeconds float64 `json:"charged_s"`
	CPUSeconds     float64 `json:"cpu_s"`
	WallSeconds    float64 `json:"wall_s"`
	QueueSeconds   float64 `json:"queue_s"`
	PeakRSSBytes   int64   `json:"peak_rss_bytes"`
}

// Verdict is the outcome of one submission.
type Verdict struct {
	FormatOK bool `json:"format_ok"` // a program could be extracted
	Kind     Kind `json:"kind"`
	Passed   int  `json:"passed"`
	Total    int  `json:"total"` // saved tests, run or not
	// Tests has one entry for each saved test, in order.
	Tests          []TestVerdict `json:"tests"`
	ChargedSeconds float64       `json:"charged_s"`
	QueueSeconds   float64       `json:"queue_s"`
	// BudgetExhausted is true if tests were left out for time, whatever Kind is.
	BudgetExhausted bool `json:"budget_exhausted"`
}

// Reward is passed / total, in [0, 1]; 0 where there are no tests.
func (v Verdict) Reward() float64 {
	if v.Total == 0 {
		return 0
	}
	return float64(v.Passed) / float64(v.Total)
}

// Solved reports whether every saved test passed and there was at least one.
func (v Verdict) Solved() bool { return v.Total > 0 && v.Passed == v.Total }

// Judge scores the last assistant segment of a response on the tests.
// Errors: Infrastructure if the sandbox failed attempts times in a row; the context's error. There is no verdict then.
func (j *Judge) Judge(ctx context.Context, response string, tests []Test) (Verdict, error) {
	code, ok := ExtractCode(response)
	if !ok {
		v := blank(tests)
		if v.Kind == "" {
			v.Kind = FormatError
		}
		return v, nil
	}
	return j.JudgeCode(ctx, code, tests)
}

// JudgeCode scores a program on the tests, as Judge does.
func (j *Judge) JudgeCode(ctx context.Context, code string, tests []Test) (Verdict, error) {
	v := blank(tests)
	v.FormatOK = true
	var spent time.Duration
	for i, test := range tests {
		if spent >= j.opts.Budget {
			v.BudgetExhausted = true
			break
		}
		p := sandbox.Program{Source: []byte(code), Stdin: []byte(test.Input), Limits: j.opts.Limits}
		r, err := j.run(ctx, p)
		if err != nil {
			return Verdict{}, err
		}
		spent += time.Duration(r.ChargedSeconds * float64(time.Second))
		v.Tests[i] = testVerdict(r, test)
		v.QueueSeconds += r.QueueSeconds
		v.ChargedSeconds += r.ChargedSeconds
		if r.Outcome == sandbox.CompileError {
			for k := i + 1; k < len(tests); k++ {
				v.Tests[k] = TestVerdict{Kind: CompileError, ExitCode: r.ExitCode}
			}
			break
		}
	}
	v.conclude()
	return v, nil
}

func blank(tests []Test) Verdict {
	v := Verdict{Total: len(tests), Tests: make([]TestVerdict, len(tests))}
	for i := range v.Tests {
		v.Tests[i].Kind = NotRun
	}
	if len(tests) == 0 {
		v.Kind = NoTests
	}
	return v
}

// run repeats a run that the sandbox failed.
func (j *Judge) run(ctx context.Context, p sandbox.Program) (sandbox.Result, error) {
	var failed error
	for range attempts {
		r, err := j.opts.Runner.Run(ctx, p)
		if err == nil {
			return r, nil
		}
		if !fault.Is(err, fault.Infrastructure) {
			return r, err
		}
		failed = errors.Join(failed, err)
		if err := ctx.Err(); err != nil {
			return r, err
		}
	}
	return sandbox.Result{}, fault.New(fault.Infrastructure, "judge.Judge", "%d attempts: %w", attempts, failed)
}

func testVerdict(r sandbox.Result, test Test) TestVerdict {
	v := TestVerdict{
		Kind: kindOf(r.Outcome), ExitCode: r.ExitCode, Signal: r.Signal, ChargedSeconds: r.ChargedSeconds, CPUSeconds: r.CPUSeconds,
		WallSeconds: r.WallSeconds, QueueSeconds: r.QueueSeconds, PeakRSSBytes: r.PeakRSSBytes,
	}
	if r.Outcome == sandbox.OK && !Compare([]byte(test.Output), r.Stdout) {
		v.Kind = WrongAnswer
	}
	return v
}

func kindOf(o sandbox.Outcome) Kind {
	switch o {
	case sandbox.OK:
		return Accepted
	case sandbox.CompileError:
		return CompileError
	case sandbox.RuntimeError, sandbox.Policy:
		return RuntimeError
	case sandbox.TimeLimit:
		return TimeLimit
	case sandbox.MemoryLimit:
		return MemoryLimit
	case sandbox.OutputLimit:
		return OutputLimit
	}
	return RuntimeError
}

// conclude counts and names the submission after its first failed test.
func (v *Verdict) conclude() {
	if v.Total == 0 {
		return
	}
	v.Kind = Accepted
	for _, t := range v.Tests {
		if t.Kind == Accepted {
			v.Passed++
			continue
		}
		if v.Kind == Accepted {
			v.Kind = t.Kind
		}
	}
	if v.Kind == NotRun {
		v.Kind = BudgetExhausted
	}
}
