package dataset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/judge"
)

func TestParseList(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		`['a', 'b']`: {"a", "b"}, `["it's", 'x\'y']`: {"it's", "x'y"}, `[]`: nil, `None`: nil, `['a`: nil, `[1]`: nil, `[`: nil, ``: nil,
	} {
		if diff := cmp.Diff(want, parseList(in)); diff != "" {
			t.Errorf("parseList(%q) (-want +got):\n%s", in, diff)
		}
	}
}

func TestSamples(t *testing.T) {
	t.Parallel()
	tests := []struct {
		statement string
		want      []judge.Test
	}{
		{"Sum.\n\nInput\n\nTwo numbers.\n\nOutput\n\nTheir sum.\n", nil},
		{
			"Sum.\n\n-----Input-----\nTwo numbers.\n\n-----Examples-----\nInput\n1 2\n\nOutput\n3\n\nInput\n4\n5\n\nOutput\n9\n\n\n\n-----Note-----\nx",
			[]judge.Test{{Input: "1 2\n", Output: "3\n"}, {Input: "4\n5\n", Output: "9\n"}},
		},
		{"Sum.\n\nSample Input 1\n\n1 2\n\nSample Output 1\n\n3\n", nil},
		{"Sum.\n\n# Examples\n\nInput:\n1\nOutput:\n2\n", []judge.Test{{Input: "1\n", Output: "2\n"}}},
	}
	// The first heading of the third is the line "Sample Input 1" itself.
	tests[2].want = []judge.Test{{Input: "1 2\n", Output: "3\n"}}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, samples(tt.statement)); diff != "" {
			t.Errorf("samples(%q) (-want +got):\n%s", tt.statement, diff)
		}
	}
}

func TestPlatformID(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://codeforces.com/problemset/problem/1492/B":                      "codeforces:1492+B",
		"http://www.codeforces.com/contest/1492/problem/c2/":                    "codeforces:1492+C2",
		"https://codeforces.com/gym/100001/problem/A?locale=en":                 "codeforces-gym:100001+A",
		"https://www.codechef.com/JAN20/problems/code":                          "codechef:CODE",
		"https://www.codechef.com/problems/CODE":                                "codechef:CODE",
		"https://atcoder.jp/contests/abc387/tasks/abc387_f":                     "atcoder:abc387_f",
		"https://arc001.contest.atcoder.jp/tasks/arc001_1":                      "atcoder:arc001_a",
		"http://judge.u-aizu.ac.jp/onlinejudge/description.jsp?lang=jp&id=0001": "aizu:0001",
		"https://onlinejudge.u-aizu.ac.jp/problems/0001":                        "aizu:0001",
		"https://www.hackerrank.com/contests/k/challenges/two-sum":              "hackerrank:two-sum",
		"https://www.hackerrank.com/challenges/two-sum/problem":                 "hackerrank:two-sum",
		"https://www.hackerearth.com/practice/a/b/some-task/":                   "hackerearth:some-task",
		"https://practice.geeksforgeeks.org/problems/abc/1":                     "geeksforgeeks:abc",
		"https://leetcode.com/problems/two-sum/description/":                    "leetcode:two-sum",
		"https://www.codewars.com/kata/0123456789abcdef01234567/train/python":   "codewars:0123456789abcdef01234567",
		"https://open.kattis.com/problems/hello":                                "kattis:hello",
		"https://codeforces.com/blog/entry/1":                                   "",
		"not an address":                                                        "",
		"":                                                                      "",
	} {
		if got := PlatformID(in); got != want {
			t.Errorf("PlatformID(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTextKey(t *testing.T) {
	t.Parallel()
	long := "Read two integers from one line and print their sum on a line."
	if a, b := TextKey(long+"\n\nExamples\n\nInput\n1 2"), TextKey(strings.ToUpper(long)+"\nSample Input 1\n7 8"); a != b || a == "" {
		t.Errorf("keys %q and %q, want equal ones without the examples", a, b)
	}
	if TextKey("Sum.\nExamples\n1") == TextKey("Sum.\nExamples\n2") {
		t.Error("a short statement must keep its examples in the key")
	}
}

// FuzzRow gives any texts to the rules of a row: a decision comes out, and a kept row is usable.
func FuzzRow(f *testing.F) {
	p := plain("A statement")
	f.Add(*p.Question, *p.Solutions, *p.InputOutput, "", "['a']", "0", "https://codeforces.com/contest/1/problem/A")
	f.Add("\xff", "[", `{"inputs":[[1]]}`, "def f():", `["\'`, "x", "%")
	f.Add("a", `[null]`, `{"inputs":["\ud800", []],"outputs":[1e999, [""]],"fn_name":""}`, " ", "[]", "-1", "a?id=;")
	f.Add("Examples\nInput\nOutput\n", `["a"]`, `null`, "", "[", "", "http://[")
	f.Fuzz(func(t *testing.T, question, solutions, io, starter, tags, pictures, url string) {
		r := Row{Question: &question, Solutions: &solutions, InputOutput: &io, StarterCode: &starter, RawTags: &tags, Tags: &tags, PictureNum: &pictures, URL: &url}
		c, reason, evidence := parse(&r, ShardOptions{MaxCell: 1 << 20})
		if !utf8.ValidString(evidence) {
			t.Errorf("evidence %q is not UTF-8", evidence)
		}
		if reason != Kept {
			return
		}
		if len(c.tests) == 0 || len(c.tests) != c.problem.HiddenTests || len(c.solutions) == 0 || !utf8.ValidString(c.problem.Statement) {
			t.Errorf("a kept row with %d tests, %d solutions, statement %q", len(c.tests), len(c.solutions), c.problem.Statement)
		}
		for _, id := range identities(&c.problem) {
			if strings.HasSuffix(id.key, ":") {
				t.Errorf("empty key %q of %q", id.key, url)
			}
		}
	})
}

// FuzzShard gives any bytes to the reader.
func FuzzShard(f *testing.F) {
	f.Add(shard(f, []Row{plain("a")}))
	f.Add(shard(f, family("a", 3), parquet.Compression(&parquet.Snappy), parquet.DataPageVersion(1)))
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = readRows(bytes.NewReader(data), int64(len(data)), 0, "s", func(*Row) error { return nil })
	})
}

// parseTestsByTree is parseTests with encoding/json and a copy of everything: what parseTests is compared with.
func parseTestsByTree(raw string) (inputs, outputs []string, callBased bool, err error) {
	var io struct {
		Inputs  []json.RawMessage `json:"inputs"`
		Outputs []json.RawMessage `json:"outputs"`
		FnName  json.RawMessage   `json:"fn_name"`
	}
	if err := json.Unmarshal([]byte(raw), &io); err != nil {
		return nil, nil, false, err
	}
	if fn := strings.TrimSpace(string(io.FnName)); fn != "" && fn != "null" && fn != `""` {
		return nil, nil, true, nil
	}
	if inputs, err = textsByTree(io.Inputs); err != nil {
		return nil, nil, false, fmt.Errorf("inputs: %w", err)
	}
	if outputs, err = textsByTree(io.Outputs); err != nil {
		return nil, nil, false, fmt.Errorf("outputs: %w", err)
	}
	return inputs, outputs, false, nil
}

func textsByTree(raw []json.RawMessage) ([]string, error) {
	out := make([]string, len(raw))
	for i, r := range raw {
		s, err := oneTextByTree(r)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		out[i] = s
	}
	return out, nil
}

func oneTextByTree(raw json.RawMessage) (string, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "", fmt.Errorf("nothing")
	}
	switch raw[0] {
	case '"':
		var s string
		return s, json.Unmarshal(raw, &s)
	case '[':
		var lines []json.RawMessage
		if err := json.Unmarshal(raw, &lines); err != nil {
			return "", err
		}
		parts := make([]string, len(lines))
		for i, l := range lines {
			if l = bytes.TrimSpace(l); l[0] != '"' {
				return "", fmt.Errorf("a list of something else than strings: %.40s", l)
			}
			if err := json.Unmarshal(l, &parts[i]); err != nil {
				return "", err
			}
		}
		return strings.Join(parts, "\n"), nil
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return string(raw), nil // a number of any length, as it is written
	}
	return "", fmt.Errorf("neither a string nor a list of strings: %.40s", raw)
}

var testCells = []string{
	`{"inputs": ["1 2\n", ["a", "b"], [], 3, -1.5e3], "outputs": ["3", "\u00e9\ud83d\ude00\ud800", "", "", 12345678901234567890123]}`,
	`{"inputs": [[1, 2]], "outputs": [3], "fn_name": "f"}`, `{"fn_name": "", "inputs": [], "outputs": []}`, `{"fn_name": " ", "inputs": null}`, `{"fn_name": null}`,
	`{"fn_name": {"a": 1}, "inputs": ["1"]}`, `{"fn_name": false}`, `{"fn_name": "f", "fn_name": null, "inputs": ["1"], "inputs": ["2", "3"]}`, `{"INPUTS": ["1"], "Outputs": ["2"]}`,
	`{"inputs": true, "fn_name": "f"}`, "{\"input\u017f\": [\"1\"]}", `null`, `true`, `[]`, `"a"`, `7`, ``, `{`, `{"inputs": "1"}`, `{"inputs": true}`, `{"inputs": [null]}`, `{"inputs": [true]}`, `{"inputs": [{"a": 1}]}`, `{"inputs": [["a", 1]]}`,
	`{"inputs": [["a", null]], "fn_name": "f"}`, `{"inputs": ["a"]} `, `{"inputs": ["a"]}{}`, `{"inputs": ["a"]}]`, `{"inputs": ["a",]}`, `{'inputs': ['a']}`, `{"inputs": ["\x"]}`,
	"{\"inputs\": [\"\xff\"]}", `{"other": {"inputs": [1]}, "outputs": ["a"]}`, `{"inputs": 3, "fn_name": "f"}`, `{"inputs": "x", "inputs": ["a"]}`,
}

// compareTests compares the two readers of tests.
func compareTests(t *testing.T, raw string) {
	t.Helper()
	in, out, call, err := parseTests(raw)
	wantIn, wantOut, wantCall, wrong := parseTestsByTree(raw)
	if (err == nil) != (wrong == nil) || call != wantCall {
		t.Fatalf("%q: %v, %v, want %v, %v", raw, call, err, wantCall, wrong)
	}
	if diff := cmp.Diff([][]string{wantIn, wantOut}, [][]string{in, out}, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%q (-want +got):\n%s", raw, diff)
	}
}

func TestParseTests_agreesWithTree(t *testing.T) {
	t.Parallel()
	for _, raw := range testCells {
		compareTests(t, raw)
	}
}

func FuzzParseTests_agreesWithTree(f *testing.F) {
	for _, raw := range testCells {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		for _, key := range []string{"inputs", "outputs", "fn_name"} {
			if strings.Count(strings.ToLower(raw), key) > 1 || strings.Contains(raw, `\u`) {
				return // encoding/json gives up at the first of two values, or keeps both
			}
		}
		if utf8.ValidString(raw) && strings.Count(raw, "[")+strings.Count(raw, "{") < 1000 {
			compareTests(t, raw)
		}
	})
}
