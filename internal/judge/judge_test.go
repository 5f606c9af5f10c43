package judge_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/sandbox"
)

var longInteger = strings.Repeat("1234567890", 2000)

// comparisons are pairs with the answer that Compare must give; the fuzz test starts from them.
var comparisons = []struct {
	name, expected, got string
	want                bool
}{
	{"equal", "1 2\n3\n", "1 2\n3\n", true},
	{"no final newline", "1\n", "1", true},
	{"blank lines at the end", "1\n", "1\n\n \n\t\n", true},
	{"blanks at line ends", "1 \n2\n", "1\n2   \n", true},
	{"carriage returns", "1\r\n2\r\n", "1\n2\n", true},
	{"runs of blanks inside a line", "1 2", "1   2", true},
	{"both empty", "", "\n", true},
	{"something for nothing", "", "1", false},
	{"nothing for something", "1", "", false},
	{"order of tokens", "1 2 3", "3 2 1", false},
	{"order of lines", "1\n2", "2\n1", false},
	{"repetition", "1 1 2", "1 2 2", false},
	{"a right first line is not enough", "1\n2\n3", "1", false},
	{"a line more", "1\n2", "1\n2\n3", false},
	{"lines joined", "1\n2", "1 2", false},
	{"blank line inside", "1\n\n2", "1\n2", false},
	{"blank line in front", "1", "\n1", false},
	{"case", "YES", "yes", false},
	{"integer, one off", "100000000", "100000001", false},
	{"long integer", longInteger, longInteger, true},
	{"long integer, last digit", longInteger, longInteger[:len(longInteger)-1] + "1", false},
	{"integer printed as decimal", "3", "3.0", false},
	{"integer with a sign", "3", "+3", false},
	{"integer with zeros", "3", "03", false},
	{"negative zero integer", "0", "-0", false},
	{"integers on a line with a decimal stay exact", "1000000000 0.5", "1000000001 0.5", false},
	{"a minus sign makes nothing tolerant", "-1000000000", "-1000000001", false},
	{"decimal within absolute tolerance", "0.3333333", "0.33333396", true},
	{"decimal at the tolerance", "0.5", "0.500001", true},
	{"decimal above the tolerance", "0.5", "0.5000010001", false},
	{"decimal within relative tolerance", "1000000.5", "1000001.0", true},
	{"decimal, factor four", "0.25", "1.0", false},
	{"decimal printed as integer", "2.0", "2", true},
	{"decimal printed with exponent", "0.001", "1e-3", true},
	{"expected exponent", "1e3", "1000", true},
	{"expected point in front", ".5", "0.5", true},
	{"expected point at the end", "5.", "5", true},
	{"negative zero", "0.0", "-0.0", true},
	{"nan is text", "nan", "nan", true},
	{"nan for a decimal", "0.5", "nan", false},
	{"inf for a large decimal", "1e300", "inf", false},
	{"underscore", "1000.0", "1_000.0", false},
	{"foreign digits", "5.0", "٥.0", false},
	{"full-width digits", "5.0", "５.0", false},
	{"fraction bar", "0.5", "1/2", false},
	{"hexadecimal", "16.0", "0x10", false},
	{"huge exponent ends at once", "1.0", "1e999999999", false},
	{"huge expected exponent", "1e999999999", "1e999999999", true},
	{"smallest exponent that is computed", "1e-400", "0.0", true},
	{"a smaller one is text", "1e-401", "0.0", false},
	{"largest exponent that is computed", "1e400", "10e399", true},
	{"a larger one is text", "1e401", "10e400", false},
	{"exponent beyond any integer", "1e99999999999999999999", "1.0e99999999999999999999", false},
	{"longest token that is computed", "0." + strings.Repeat("3", 4094), "0.3333333333", true},
	{"a longer one is text", "0." + strings.Repeat("3", 4095), "0.3333333333", false},
	{"two points", "1.5", "1.5.0", false},
	{"digits lost in a double", "0.1000000000000000000000001", "0.1", true},
	{"no-break space is no white space", "1 2", "1\u00a02", false},
	{"invalid UTF-8 is compared as bytes", "\xff", "\xfe", false},
	{"byte order mark", "1", "\ufeff1", false},
	{"trailing zero byte", "1", "1\x00", false},
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, tt := range comparisons {
		if got := judge.Compare([]byte(tt.expected), []byte(tt.got)); got != tt.want {
			t.Errorf("%s: Compare(%.40q, %.40q) = %v, want %v", tt.name, tt.expected, tt.got, got, tt.want)
		}
	}
}

// extractions are responses with what ExtractCode must find; the fuzz test starts from them.
var extractions = []struct {
	name, segment, want string
	ok                  bool
}{
	{"one block", "text\n```python\nprint(1)\n```\n", "print(1)\n", true},
	{"no tag", "```\nx\n```", "x\n", true},
	{"foreign tag", "```py3 title=a\nx\n```", "x\n", true},
	{"the last of several", "```\na\n```\n```\nb\n```", "b\n", true},
	{"tildes", "~~~python\nx\n~~~", "x\n", true},
	{"tildes do not close backquotes", "```\nx\n~~~\n```", "x\n~~~\n", true},
	{"long fence holds a short one", "````\n```\nx\n```\n````", "```\nx\n```\n", true},
	{"longer closer", "```\nx\n`````", "x\n", true},
	{"shorter closer does not close", "````\nx\n```", "", false},
	{"indented fence", "  ```python\n  x\n    y\n  ```", "x\n  y\n", true},
	{"four blanks are text", "    ```\nx\n    ```", "", false},
	{"four blanks do not close", "```\nx\n    ```\n```", "x\n    ```\n", true},
	{"closer with text does not close", "```\nx\n``` done", "", false},
	{"closer in mid-line does not close", "```python\nprint(1)```", "", false},
	{"fence inside a string of the program", "```python\ns = '```'\n```", "s = '```'\n", true},
	{"inline code at the start of a line", "```x``` is code\n```\ny\n```", "y\n", true},
	{"blanks after fences", "```python \t\nx\n``` \t\n", "x\n", true},
	{"carriage returns", "```python\r\nx\r\n```\r\n", "x\r\n", true},
	{"empty block", "```python\n```", "", true},
	{"no block", "print(1)", "", false},
	{"nothing", "", "", false},
	{"cut in the block", "```python\nprint(1", "", false},
	{"a closed block, then a cut one", "```\na\n```\ntext\n```python\nb", "a\n", true},
	{"a closed block, then a stray fence", "```\na\n```\n```\n", "a\n", true},
	{"a long fence left open holds the rest", "````\n```\nx\n```", "", false},
	{"a fence in front swallows the next", "```\ntext\n```python\na\n```", "text\n```python\na\n", true},
	{"block in the reasoning only", "<think>\n```\na\n```\n</think>\nno code", "", false},
	{"after the reasoning", "<think>```\na\n</think>\n```\nb\n```", "b\n", true},
	{"reasoning end only", "a\n```\nx\n```\n</think>\n```\nb\n```", "b\n", true},
	{"reasoning not closed", "<think>\n```\na\n```\n", "", false},
	{"reasoning opened again", "<think></think>\n```\na\n```\n<think>\n", "", false},
	{"reasoning mark inside the program", "```python\nprint('<think>')\n```", "print('<think>')\n", true},
	{"reasoning mark inside a program that is cut", "```\na\n```\n```python\nprint('<think>')", "", false},
	{"reasoning mark inside a program that is not the last", "```python\nprint('<think>')\n```\n```\nb\n```", "b\n", true},
	{"an earlier turn", "```\na\n```<|im_end|>\n<|im_start|>user\nno<|im_end|>\n<|im_start|>assistant\nsorry<|im_end|>\n", "", false},
	{"the last turn", "```\na\n```<|im_end|>\n<|im_start|>user\nno<|im_end|>\n<|im_start|>assistant\n```\nb\n```<|im_end|>\n", "b\n", true},
	{"a turn that was not begun", "```\na\n```<|im_end|>\n<|im_start|>assistant", "", false},
	{"a tool's answer at the end", "```\na\n```<|im_end|>\n<|im_start|>user\n<tool_response>\n```\nb\n```\n</tool_response><|im_end|>\n", "a\n", true},
	{"reasoning not closed in an earlier turn", "<think>\n<|im_end|>\n<|im_start|>assistant\n```\nb\n```", "b\n", true},
	{"reasoning closed in an earlier turn only", "<think></think><|im_end|>\n<|im_start|>assistant\n<think>\n```\nb\n```", "", false},
	{"turn mark inside a line of the program", "```\ns = '<|im_start|>assistant'\n```", "s = '<|im_start|>assistant'\n", true},
	{"end of text after the fence", "```\na\n```<|endoftext|>", "a\n", true},
	{"answer tag is not needed and does no harm", "<answer>\n```\nx\n```\n</answer>", "x\n", true},
	{"bytes survive", "```\n\xff\xfe\n```", "\xff\xfe\n", true},
	{"text after the block", "```\nx\n```\nThis is `O(n)`.", "x\n", true},
}

func TestExtractCode(t *testing.T) {
	t.Parallel()
	for _, tt := range extractions {
		got, ok := judge.ExtractCode(tt.segment)
		if got != tt.want || ok != tt.ok {
			t.Errorf("%s: ExtractCode(%q) = %q, %v; want %q, %v", tt.name, tt.segment, got, ok, tt.want, tt.ok)
		}
	}
}

// script is a runner that gives its results one after the other.
type script struct {
	results []sandbox.Result
	errs    []error
	calls   int
}

func (s *script) Run(context.Context, sandbox.Program) (sandbox.Result, error) {
	i := s.calls
	s.calls++
	var err error
	if i < len(s.errs) {
		err = s.errs[i]
	}
	return s.results[min(i, len(s.results)-1)], err
}

func ended(o sandbox.Outcome, out string, charged float64) sandbox.Result {
	return sandbox.Result{Outcome: o, Stdout: []byte(out), ChargedSeconds: charged, QueueSeconds: 0.5}
}

func kinds(v judge.Verdict) []judge.Kind {
	list := make([]judge.Kind, len(v.Tests))
	for i, t := range v.Tests {
		list[i] = t.Kind
	}
	return list
}

func TestJudgeCode_kinds(t *testing.T) {
	t.Parallel()
	tests := make([]judge.Test, 3)
	for i := range tests {
		tests[i] = judge.Test{Output: "1"}
	}
	ok, bad := ended(sandbox.OK, "1", 1), ended(sandbox.OK, "2", 1)
	for _, tt := range []struct {
		name    string
		results []sandbox.Result
		budget  time.Duration
		want    judge.Kind
		passed  int
		tests   []judge.Kind
		calls   int
	}{
		{"all pass", []sandbox.Result{ok}, 0, judge.Accepted, 3, []judge.Kind{"accepted", "accepted", "accepted"}, 3},
		{"the first failure names it, later tests run", []sandbox.Result{ok, bad, ok}, 0, judge.WrongAnswer, 2, []judge.Kind{"accepted", "wrong_answer", "accepted"}, 3},
		{
			"right output and a failing exit",
			[]sandbox.Result{ended(sandbox.RuntimeError, "1", 1), bad, ended(sandbox.TimeLimit, "1", 3)},
			0, judge.RuntimeError, 0,
			[]judge.Kind{"runtime_error", "wrong_answer", "time_limit"},
			3,
		},
		{
			"limits",
			[]sandbox.Result{ended(sandbox.MemoryLimit, "1", 1), ended(sandbox.OutputLimit, "1", 1), ended(sandbox.Policy, "1", 1)},
			0, judge.MemoryLimit, 0,
			[]judge.Kind{"memory_limit", "output_limit", "runtime_error"},
			3,
		},
		{"compile error runs once", []sandbox.Result{ended(sandbox.CompileError, "", 0)}, 0, judge.CompileError, 0, []judge.Kind{"compile_error", "compile_error", "compile_error"}, 1},
		{"budget", []sandbox.Result{ok}, 2 * time.Second, judge.BudgetExhausted, 2, []judge.Kind{"accepted", "accepted", "not_run"}, 2},
		{"budget after a failure", []sandbox.Result{bad}, 2 * time.Second, judge.WrongAnswer, 0, []judge.Kind{"wrong_answer", "wrong_answer", "not_run"}, 2},
	} {
		runner := &script{results: tt.results}
		v, err := judge.New(judge.Options{Runner: runner, Budget: tt.budget}).JudgeCode(t.Context(), "", tests)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if v.Kind != tt.want || v.Passed != tt.passed || v.Total != 3 || runner.calls != tt.calls {
			t.Errorf("%s: kind %s, passed %d of %d, %d runs; want %s, %d of 3, %d", tt.name, v.Kind, v.Passed, v.Total, runner.calls, tt.want, tt.passed, tt.calls)
		}
		if diff := cmp.Diff(tt.tests, kinds(v)); diff != "" {
			t.Errorf("%s: kinds of tests (-want +got):\n%s", tt.name, diff)
		}
		if want := float64(tt.passed) / 3; v.Reward() != want || math.IsNaN(v.Reward()) {
			t.Errorf("%s: reward = %v, want %v", tt.name, v.Reward(), want)
		}
	}
}

func TestJudge_nothingToJudge(t *testing.T) {
	t.Parallel()
	runner := &script{results: []sandbox.Result{ended(sandbox.OK, "", 0)}}
	j := judge.New(judge.Options{Runner: runner})
	v, err := j.Judge(t.Context(), "no code", []judge.Test{{Output: "1"}, {Output: "2"}})
	if err != nil || v.FormatOK || v.Kind != judge.FormatError || v.Total != 2 || v.Reward() != 0 || v.Tests[1].Kind != judge.NotRun {
		t.Errorf("no code: %+v, %v", v, err)
	}
	v, err = j.Judge(t.Context(), "```\nx\n```", nil)
	if err != nil || !v.FormatOK || v.Kind != judge.NoTests || v.Total != 0 || v.Reward() != 0 || v.Solved() {
		t.Errorf("no tests: %+v, %v", v, err)
	}
	if runner.calls != 0 {
		t.Errorf("%d programs were run for nothing", runner.calls)
	}
	text, err := json.Marshal(v)
	if err != nil || !strings.Contains(string(text), `"tests":[]`) {
		t.Errorf("JSON = %s, %v; want an empty list of tests", text, err)
	}
}

func TestJudge_infrastructureIsRetriedAndNeverScored(t *testing.T) {
	t.Parallel()
	broken := fault.New(fault.Infrastructure, "sandbox.Run", "no way")
	tests := []judge.Test{{Output: "1"}}
	once := &script{results: []sandbox.Result{ended(sandbox.OK, "1", 1)}, errs: []error{broken, broken}}
	if v, err := judge.New(judge.Options{Runner: once}).JudgeCode(t.Context(), "", tests); err != nil || v.Kind != judge.Accepted || once.calls != 3 {
		t.Errorf("two faults: %+v, %v after %d calls; want accepted after 3", v, err, once.calls)
	}
	always := &script{results: []sandbox.Result{{}}, errs: []error{broken, broken, broken, broken}}
	v, err := judge.New(judge.Options{Runner: always}).JudgeCode(t.Context(), "", tests)
	if !fault.Is(err, fault.Infrastructure) || always.calls != 3 || v.Tests != nil {
		t.Errorf("faults without end: %+v, %v after %d calls; want kind Infrastructure after 3 and no verdict", v, err, always.calls)
	}
	cancelled := &script{results: []sandbox.Result{{}}, errs: []error{context.Canceled}}
	if _, err := judge.New(judge.Options{Runner: cancelled}).JudgeCode(t.Context(), "", tests); !errors.Is(err, context.Canceled) || cancelled.calls != 1 {
		t.Errorf("cancelled: %v after %d calls, want the context's error after 1", err, cancelled.calls)
	}
}
