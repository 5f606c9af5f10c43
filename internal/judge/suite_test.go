package judge_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/sandbox"
)

// suiteCase is a line of testdata/suite.jsonl: a response with the verdict that it must have, and why.
type suiteCase struct {
	ID       string       `json:"id"`
	Why      string       `json:"why"`
	Response string       `json:"response_text"`
	Tests    []judge.Test `json:"tests"`
	Want     want         `json:"want"`
	Slow     bool         `json:"slow"` // its time is charged for seconds
}

type want struct {
	FormatOK bool         `json:"format_ok"`
	Kind     judge.Kind   `json:"kind"`
	Passed   int          `json:"passed"`
	Tests    []judge.Kind `json:"tests"`
}

func readSuite(t *testing.T) []suiteCase {
	t.Helper()
	text, err := os.ReadFile("testdata/suite.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var suite []suiteCase
	seen := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	for dec.More() {
		var c suiteCase
		if err := dec.Decode(&c); err != nil {
			t.Fatal(err)
		}
		if seen[c.ID] || c.Why == "" || len(c.Want.Tests) != len(c.Tests) {
			t.Fatalf("case %q: the id occurs twice, there is no reason, or tests and expectations differ in number", c.ID)
		}
		seen[c.ID] = true
		suite = append(suite, c)
	}
	return suite
}

func openSandbox(t *testing.T, o sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	box, err := sandbox.New(t.Context(), o)
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, fault.HintOf(err))
	}
	t.Cleanup(func() { _ = box.Close() })
	return box
}

// judgeSuite judges all cases at once and checks each verdict.
func judgeSuite(t *testing.T, j *judge.Judge, suite []suiteCase) []judge.Verdict {
	t.Helper()
	verdicts := make([]judge.Verdict, len(suite))
	var wg sync.WaitGroup
	for i, c := range suite {
		wg.Go(func() {
			v, err := j.Judge(t.Context(), c.Response, c.Tests)
			if err != nil {
				t.Errorf("%s: %v", c.ID, err)
				return
			}
			verdicts[i] = v
			got := want{v.FormatOK, v.Kind, v.Passed, kinds(v)}
			if diff := cmp.Diff(c.Want, got); diff != "" || v.Total != len(c.Tests) || v.BudgetExhausted {
				t.Errorf("%s (%s): total %d, budget exhausted %v (-want +got):\n%s", c.ID, c.Why, v.Total, v.BudgetExhausted, diff)
			}
		})
	}
	wg.Wait()
	return verdicts
}

// Every response of the suite has the verdict that stands beside it.
func TestSuite(t *testing.T) {
	t.Parallel()
	suite := readSuite(t)
	if len(suite) < 60 {
		t.Errorf("the suite has %d cases, want at least 60", len(suite))
	}
	judgeSuite(t, judge.New(judge.Options{Runner: openSandbox(t, sandbox.Options{})}), suite)
}

// The suite has a test of every kind, and a submission of every kind but one that needs minutes.
func TestSuite_hasEveryKind(t *testing.T) {
	t.Parallel()
	tests, submissions := map[judge.Kind]int{}, map[judge.Kind]int{}
	for _, c := range readSuite(t) {
		submissions[c.Want.Kind]++
		for _, k := range c.Want.Tests {
			tests[k]++
		}
	}
	programs := []judge.Kind{
		judge.Accepted, judge.WrongAnswer, judge.RuntimeError, judge.CompileError, judge.TimeLimit, judge.MemoryLimit, judge.OutputLimit,
	}
	for _, k := range append(slices.Clone(programs), judge.NotRun) {
		if tests[k] == 0 {
			t.Errorf("no test is %s", k)
		}
	}
	for _, k := range append(slices.Clone(programs), judge.FormatError, judge.NoTests) {
		if submissions[k] == 0 {
			t.Errorf("no submission is %s", k)
		}
	}
}
