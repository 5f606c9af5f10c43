package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

const goodCase = `{"id": "a", "response_text": "", "tests": []}`

// A mistake in the file ends the command with status 2 and names line, field and what is expected, before
// anything is started: the interpreter that these tests name does not exist, and nobody complains about that.
func TestJudge_badCases(t *testing.T) {
	t.Parallel()
	with := func(old, replacement string) string { return strings.Replace(goodCase, old, replacement, 1) }
	withTest := func(test string) string { return with("[]", "["+test+"]") }
	for _, tt := range []struct {
		name, file string
		want       []string // one substring for each line of error, in order
	}{
		{"empty file", "", []string{"expected at least one case"}},
		{"blank lines only", "\n \t\n\r\n", []string{"expected at least one case"}},
		{"byte order mark only", "\ufeff", []string{"expected at least one case"}},
		{"empty object", "{}", []string{"line 1: id: expected", "line 1: response_text: expected", "line 1: tests: expected"}},
		{"null", "null", []string{"line 1: expected an object, got null"}},
		{"a list of cases", "[" + goodCase + "]", []string{"line 1: expected an object, got a list"}},
		{"a number", "7", []string{"line 1: expected an object, got a number"}},
		{"a string", `"x"`, []string{"line 1: expected an object, got a string"}},
		{"a truth value", "true", []string{"line 1: expected an object, got true or false"}},
		{"not JSON", goodCase + "\nid: a", []string{"line 2: expected an object, got no JSON: invalid character 'i'"}},
		{"single quotes", "{'id': 1}", []string{`line 1: expected an object, got no JSON: invalid character '\''`}},
		{"not a number", with(`"a"`, "NaN"), []string{"line 1: expected an object, got no JSON"}},
		{"raw control character", with(`""`, "\"\x01\""), []string{`line 1: expected an object, got no JSON: invalid character '\x01' in string literal (byte 31)`}},
		{"two objects on a line", goodCase + " " + goodCase, []string{`line 1: expected the end of the line after the object, which ends at byte `}},
		{"object over several lines", "{\n\"id\": 1}", []string{"line 1: expected an object on one line, but the line ends inside it", "line 2: expected an object, got a string"}},
		{"last line cut in a string", goodCase + "\n" + goodCase[:30], []string{"line 2: expected an object on one line, but the line ends inside it"}},
		{"last line cut after a key", goodCase + "\n" + goodCase[:6], []string{"line 2: expected an object on one line, but the line ends inside it"}},
		{"missing id", with(`"id": "a", `, ""), []string{"line 1: id: expected, but it is missing"}},
		{"empty id", with(`"a"`, `""`), []string{`line 1: id: expected a string that is not blank, or a whole number, got the string ""`}},
		{"blank id", with(`"a"`, `" \t"`), []string{"line 1: id: expected a string that is not blank"}},
		{"null id", with(`"a"`, "null"), []string{"line 1: id: expected a string that is not blank, or a whole number, got null"}},
		{"fractional id", with(`"a"`, "1.5"), []string{"line 1: id: expected a string that is not blank, or a whole number, got the number 1.5"}},
		{"exponent in id", with(`"a"`, "1e3"), []string{"line 1: id: expected"}},
		{"list as id", with(`"a"`, "[1]"), []string{"line 1: id: expected a string that is not blank, or a whole number, got a list"}},
		{"same id twice", goodCase + "\n\n" + goodCase, []string{`line 3: id: expected one of its own, but "a" is the id of line 1`}},
		{"same id, escaped", goodCase + "\n" + with(`"a"`, `"\u0061"`), []string{`line 2: id: expected one of its own, but "\u0061" is the id of line 1`}},
		{"same id as string and number", with(`"a"`, "1") + "\n" + with(`"a"`, `"1"`), []string{`line 2: id: expected one of its own, but "1" is the id of line 1`}},
		{"missing response", with(`"response_text": "", `, ""), []string{"line 1: response_text: expected, but it is missing"}},
		{"null response", with(`""`, "null"), []string{"line 1: response_text: expected a string, got null"}},
		{"response as messages", with(`""`, `[{"role": "assistant"}]`), []string{"line 1: response_text: expected a string, got a list"}},
		{"response as number", with(`""`, "12"), []string{"line 1: response_text: expected a string, got the number 12"}},
		{"missing tests", with(`, "tests": []`, ""), []string{"line 1: tests: expected, but it is missing"}},
		{"null tests", with("[]", "null"), []string{"line 1: tests: expected a list of objects with input and output, got null"}},
		{"tests as object", with("[]", `{"inputs": [], "outputs": []}`), []string{"line 1: tests: expected a list of objects with input and output, got an object"}},
		{"tests as text", with("[]", `"[]"`), []string{`line 1: tests: expected a list of objects with input and output, got the string "[]"`}},
		{"test as list", withTest(`["1", "2"]`), []string{"line 1: tests[0]: expected an object with input and output, got a list"}},
		{"test as null", withTest(`{"input": "", "output": ""}, null`), []string{"line 1: tests[1]: expected an object with input and output, got null"}},
		{"empty test", withTest("{}"), []string{"line 1: tests[0].input: expected, but it is missing", "line 1: tests[0].output: expected, but it is missing"}},
		{"input as lines", withTest(`{"input": ["1"], "output": "1"}`), []string{"line 1: tests[0].input: expected a string, got a list"}},
		{"output as number", withTest(`{"input": "1", "output": 12345678901234567890123456789012345678901234567890}`), []string{"line 1: tests[0].output: expected a string, got the number 1234567890123456789012345678901234567890..."}},
		{"output null", withTest(`{"input": "1", "output": null}`), []string{"line 1: tests[0].output: expected a string, got null"}},
		{"unknown key", with(`"id"`, `"note": {"id": 1}, "id"`), []string{`line 1: "note": expected no other keys than id, response_text, tests`}},
		{"unknown key in a test", withTest(`{"input": "1", "output": "1", "type": "stdin"}`), []string{`line 1: tests[0]."type": expected no other keys than input, output`}},
		{"key in capitals", with("tests", "Tests"), []string{`line 1: "Tests": expected no other keys`, "line 1: tests: expected, but it is missing"}},
		{"key twice", with(`"id"`, `"id": "b", "id"`), []string{"line 1: id: expected once, got it again"}},
		{"invalid UTF-8", goodCase + "\n" + with(`""`, "\"ab\xff\""), []string{"line 2: expected UTF-8, got a byte that is none after 32 bytes"}},
		{"another encoding", "\xff\xfe{\x00}\x00", []string{"line 1: expected UTF-8"}},
		{"compressed", "\x1f\x8b\x08\x00\x00", []string{"line 1: expected UTF-8"}},
		{"half a surrogate pair", with(`""`, `"ab\ud83d"`), []string{`line 1: response_text: expected a string, got half of a surrogate pair, \ud83d`}},
		{"second half first", withTest(`{"input": "\ude00\ud83d", "output": ""}`), []string{`line 1: tests[0].input: expected a string, got half of a surrogate pair, \ude00`}},
		{"first half twice", withTest(`{"input": "", "output": "\ud83d\ud83d\ude00"}`), []string{`line 1: tests[0].output: expected a string, got half of a surrogate pair, \ud83d`}},
		{"a mistake after long good lines", with(`""`, `"`+strings.Repeat("x", 11<<20)+`"`) + "\n" + with(`"a"`, "1") + "\n{}", []string{"line 3: id:", "line 3: response_text:", "line 3: tests:"}},
		{"a long line that was cut", goodCase[:30] + strings.Repeat("x", 11<<20), []string{"line 1: expected an object on one line, but the line ends inside it"}},
		{"several lines", "null\n" + goodCase + "\n7", []string{"line 1: expected an object, got null", "line 3: expected an object, got a number"}},
	} {
		path := filepath.Join(t.TempDir(), "cases.jsonl")
		if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		code := run([]string{"judge", "--python", "/nonexistent/python3", "--cases", path}, &out, &errOut)
		if code != exitUsage || out.Len() > 0 {
			t.Errorf("%s: exit status %d and output %q, want %d and none", tt.name, code, out.String(), exitUsage)
		}
		var told []string
		hinted := false
		for line := range strings.Lines(errOut.String()) {
			text, isError := strings.CutPrefix(line, "error: ")
			if isError {
				told = append(told, text)
			}
			hinted = hinted || strings.HasPrefix(line, "try: ")
			if len(line) > 400 || strings.Contains(line, "judge.Case") || strings.Contains(line, "struct") || strings.Contains(line, "Go ") {
				t.Errorf("%s: %q is no line for a person", tt.name, line)
			}
		}
		if len(told) != len(tt.want) || !hinted {
			t.Errorf("%s: got %q, want %d errors and a hint", tt.name, errOut.String(), len(tt.want))
			continue
		}
		for i, want := range tt.want {
			if !strings.Contains(told[i], path) || !strings.Contains(told[i], want) {
				t.Errorf("%s: error %d is %q, want %q with the path in it", tt.name, i, told[i], want)
			}
		}
	}
}

func TestJudge_manyMistakesAreCounted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cases.jsonl")
	if err := os.WriteFile(path, []byte(strings.Repeat("null\n", 50)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	if code := run([]string{"judge", "--cases", path}, &out, &errOut); code != exitUsage {
		t.Errorf("exit status %d, want %d", code, exitUsage)
	}
	text := errOut.String()
	if strings.Count(text, "error: ") != 21 || !strings.Contains(text, "line 20: ") || !strings.Contains(text, "30 more mistakes") {
		t.Errorf("got %s; want 20 mistakes and the number of the others", text)
	}
}

func TestJudge_noFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	closed := filepath.Join(dir, "closed.jsonl")
	if err := os.WriteFile(closed, []byte(goodCase), 0); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"missing file", "no such file", []string{"--cases", filepath.Join(dir, "none.jsonl")}},
		{"directory", "is a directory", []string{"--cases", dir}},
		{"no flag", "--cases", nil},
		{"no value", "--cases", []string{"--cases"}},
	} {
		var out, errOut bytes.Buffer
		code := run(append([]string{"judge"}, tt.args...), &out, &errOut)
		if code != exitUsage || out.Len() > 0 || !strings.Contains(errOut.String(), tt.want) {
			t.Errorf("%s: exit status %d, output %q, errors %q; want %d and %q", tt.name, code, out.String(), errOut.String(), exitUsage, tt.want)
		}
	}
	if os.Geteuid() != 0 { // root reads everything
		var out, errOut bytes.Buffer
		if code := run([]string{"judge", "--cases", closed}, &out, &errOut); code != exitUsage || !strings.Contains(errOut.String(), "permission denied") {
			t.Errorf("unreadable file: exit status %d, %s", code, errOut.String())
		}
	}
}

// The lines that the documentation and the hint show are lines that can be judged.
func TestJudge_examples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "judge.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = judge.ReadCases(strings.NewReader("{}"), "cases.jsonl")
	hint, _, _ := strings.Cut(fault.HintOf(err), "; ")
	lines := strings.Split(string(page), "\n")
	lines = append(lines, strings.TrimPrefix(hint, "a line is "))
	examples := 0
	for _, line := range lines {
		if !strings.HasPrefix(line, "{") || !strings.Contains(line, "response_text") {
			continue
		}
		examples++
		cases, err := judge.ReadCases(strings.NewReader(line), "docs")
		if err != nil || len(cases) != 1 || len(cases[0].Tests) != 1 {
			t.Errorf("%s: %+v, %v; want a case with a test", line, cases, err)
		}
	}
	if examples != 2 {
		t.Errorf("%d examples, want 2", examples)
	}
}

// What is unusual but right is judged: blank lines, no final newline, line ends of another system, a byte order mark,
// long lines, ids that are numbers, any text in an id. Ids come back as they were, verdicts in the order of the file.
func TestJudge_goodCases(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs programs; left out by -short")
	}
	long := strings.Repeat("y", 11<<20)
	lines := []string{
		"\ufeff" + goodCase, "", " \t\r",
		strings.ReplaceAll(goodCase, `"a"`, "-12345678901234567890123") + "\r",
		strings.ReplaceAll(goodCase, `"a"`, `"<b> \ud83d\ude00 \\ud83d \u0000"`),
		`{"tests": [{"output": "4\r\n", "input": "3"}], "response_text": "` + long + "\\n```python\\nprint(int(input()) + 1)\\n```" + `", "id": "long"}`,
		`{"id": "wrong", "response_text": "~~~\nprint(\"\ud83d\ude00\")\n~~~", "tests": [{"input": "", "output": "😀"}, {"input": "", "output": "x"}]}`,
		`{"id": "none", "response_text": "no code", "tests": [{"input": "", "output": ""}]}`,
	}
	lines[6] = strings.ReplaceAll(lines[6], "\n", `\n`)
	path := filepath.Join(t.TempDir(), "cases.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range judgeFile(t, path) {
		text := string(v.ID) + " " + v.Kind + " " + strconv.FormatBool(v.FormatOK) + " " + strconv.Itoa(v.Passed) + "/" + strconv.Itoa(v.Total)
		got = append(got, strings.Join(append([]string{text}, v.kinds()...), " "))
	}
	want := []string{
		`"a" no_tests false 0/0`,
		`-12345678901234567890123 no_tests false 0/0`,
		`"<b> \ud83d\ude00 \\ud83d \u0000" no_tests false 0/0`,
		`"long" accepted true 1/1 accepted`,
		`"wrong" wrong_answer true 1/2 accepted wrong_answer`,
		`"none" format_error false 0/1 not_run`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

// printed is what the tests read of a line that `steady judge` prints.
type printed struct {
	ID       json.RawMessage `json:"id"`
	FormatOK bool            `json:"format_ok"`
	Passed   int             `json:"passed"`
	Total    int             `json:"total"`
	Kind     string          `json:"kind"`
	Tests    []struct {
		Kind string  `json:"kind"`
		Wall float64 `json:"wall_s"`
	} `json:"tests"`
}

func (p printed) kinds() []string {
	list := []string{}
	for _, test := range p.Tests {
		list = append(list, test.Kind)
	}
	return list
}

// judgeFile runs the command, which must end well, and reads what it prints.
func judgeFile(t *testing.T, path string, args ...string) []printed {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := run(append([]string{"judge", "--cases", path}, args...), &out, &errOut); code != exitDone {
		t.Fatalf("exit status %d: %s", code, errOut.String())
	}
	var list []printed
	for line := range strings.Lines(out.String()) {
		var v printed
		if err := json.Unmarshal([]byte(line), &v); err != nil || v.Tests == nil {
			t.Fatalf("line %q: %v; want an object with a list of tests", line, err)
		}
		list = append(list, v)
	}
	return list
}

// A part of the judge's suite, through the command: the same verdicts, in the order of the file, which is from slow to fast
// here, so that a command that prints what is ready would be found out.
func TestJudge_suite(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs programs; left out by -short")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "internal", "judge", "testdata", "suite.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	type expectation struct {
		FormatOK bool     `json:"format_ok"`
		Kind     string   `json:"kind"`
		Passed   int      `json:"passed"`
		Tests    []string `json:"tests"`
	}
	var slow, fast bytes.Buffer
	var first, second []string
	want := map[string]expectation{}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		var c struct {
			ID       string          `json:"id"`
			Response json.RawMessage `json:"response_text"`
			Tests    json.RawMessage `json:"tests"`
			Want     expectation     `json:"want"`
			Slow     bool            `json:"slow"`
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		if !c.Slow && n%3 != 0 {
			continue // internal/judge runs them all
		}
		want[c.ID] = c.Want
		to, ids := &fast, &second
		if c.Slow {
			to, ids = &slow, &first
		}
		*ids = append(*ids, c.ID)
		fmt.Fprintf(to, `{"id": %q, "response_text": %s, "tests": %s}`+"\n", c.ID, c.Response, c.Tests)
	}
	path := filepath.Join(t.TempDir(), "cases.jsonl")
	if err := os.WriteFile(path, append(slow.Bytes(), fast.Bytes()...), 0o600); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, v := range judgeFile(t, path) {
		var id string
		if err := json.Unmarshal(v.ID, &id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		got := expectation{v.FormatOK, v.Kind, v.Passed, v.kinds()}
		if diff := cmp.Diff(want[id], got); diff != "" || v.Total != len(v.Tests) {
			t.Errorf("%s: total %d (-want +got):\n%s", id, v.Total, diff)
		}
	}
	if diff := cmp.Diff(append(first, second...), ids); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// Four at once: each of the first four waits for the three others, so a loop that runs fewer never ends, and a fifth that comes before one
// of them is done is found. The results come in order, whichever is ready first.
func TestSideBySide_asManyAtOnceAsAllowed(t *testing.T) {
	t.Parallel()
	const n, atOnce = 12, 4
	var inside, most atomic.Int64
	all, meet := make(chan struct{}), sync.Once{}
	used := 0
	err := sideBySide(t.Context(), n, atOnce, func(ctx context.Context, i int) (int, error) {
		now := inside.Add(1)
		defer inside.Add(-1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		if now == atOnce {
			meet.Do(func() { close(all) })
		}
		select {
		case <-all:
			return i * i, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}, func(i, v int) error {
		if i != used || v != i*i {
			t.Errorf("thing %d is %d and comes as number %d", i, v, used)
		}
		used++
		return nil
	})
	if err != nil || most.Load() != atOnce || used != n {
		t.Errorf("%d of %d came, %d at once, %v; want %d at once", used, n, most.Load(), err, atOnce)
	}
}
