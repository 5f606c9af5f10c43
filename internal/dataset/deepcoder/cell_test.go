package deepcoder

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/judge"
)

func pairs(texts ...string) (out []judge.Test) {
	for i := 0; i < len(texts); i += 2 {
		out = append(out, judge.Test{Input: texts[i], Output: texts[i+1]})
	}
	return out
}

func TestDecode_shapes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want cell
	}{
		"list":               {`[{"input": "1\n", "output": "2"}, {"output": "4", "input": "3", "x": [{}]}]`, cell{pairs("1\n", "2", "3", "4"), 2, false, ""}},
		"object":             {`{"inputs": ["1", "2"], "outputs": ["3", "4"]}`, cell{pairs("1", "3", "2", "4"), 2, false, ""}},
		"object, backwards":  {`{"outputs": ["3"], "z": 1, "inputs": ["1"], "fn_name": null}`, cell{pairs("1", "3"), 1, false, ""}},
		"lines and numbers":  {`{"inputs": [["a", "b"], []], "outputs": [-1.50, 12345678901234567890123]}`, cell{pairs("a\nb", "-1.50", "", "12345678901234567890123"), 2, false, ""}},
		"Python, list":       {`[{'input': 'it\'s', 'output': "é\x41\/", 'type': 'stdin_stdout'},]`, cell{pairs("it's", "éA\\/"), 1, false, ""}},
		"Python, object":     {`{'inputs': ('1',), 'outputs': (['2', '3'],), 'fn_name': None}`, cell{pairs("1", "2\n3"), 1, false, ""}},
		"JSON before Python": {`[{"input": "\ud83d\ude00\/", "output": ""}]`, cell{pairs("😀/", ""), 1, false, ""}},
		"no tests":           {`[]`, cell{}},
		"no tests, object":   {"{\"inputs\": [], \"outputs\": []}\n", cell{}},
		"kinds":              {`[{"input":"","output":"","testtype":"stdin"},{"input":"","output":"","type":""},{"input":"","output":"","type":null}]`, cell{pairs("", "", "", "", "", ""), 3, false, ""}},
		"a key twice":        {`[{"input": "1", "input": "5", "output": "3"}]`, cell{pairs("5", "3"), 1, false, ""}},
		"functional":         {`[{"input": "1", "output": "2", "testtype": "functional"}]`, cell{nil, 1, true, ""}},
		"named in each":      {`[{"input": [1, null], "output": {"a": 2}, "fn_name": "f"}, {"input": true, "output": [[1]], "fn_name": "f"}]`, cell{nil, 2, true, "f"}},
		"named last":         {`{"inputs": [[1, "a"], 2], "outputs": [null], "fn_name": " f "}`, cell{nil, 2, true, "f"}},
		"named, blank":       {`{"inputs": ["1"], "outputs": ["2"], "fn_name": " "}`, cell{pairs("1", "2"), 1, false, ""}},
		"one of two":         {`[{"input": "1", "output": "2"}, {"input": "1", "output": "2", "type": "function_call", "fn_name": "f"}]`, cell{nil, 2, true, "f"}},
		"functional, Python": {`[{'input': [(1, 2)], 'output': True, 'fn_name': 'f'}]`, cell{nil, 1, true, "f"}},
	} {
		got, err := decode([]byte(c.text), limits{})
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(cell{}), cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestDecode_refusals(t *testing.T) {
	t.Parallel()
	three := `[{"input":"12","output":"3"},{"input":"45","output":"6"},{"input":"78","output":"9"}]`
	object := `{"inputs":["12","45","78"],"outputs":["3","6","9"]}`
	for name, c := range map[string]struct {
		text string
		l    limits
		want dataset.Reason
	}{
		"nothing":               {"", limits{}, dataset.BadTests},
		"null":                  {"null", limits{}, dataset.BadTests},
		"a text":                {`"[]"`, limits{}, dataset.BadTests},
		"a number":              {"7", limits{}, dataset.BadTests},
		"words":                 {"see the statement", limits{}, dataset.BadTests},
		"cut":                   {three[:30], limits{}, dataset.BadTests},
		"two values":            {three + three, limits{}, dataset.BadTests},
		"an expression":         {`[{'input': open('a'), 'output': ''}]`, limits{}, dataset.BadTests},
		"deep":                  {strings.Repeat("[", 1<<20), limits{}, dataset.BadTests},
		"no object":             {`["a"]`, limits{}, dataset.BadTests},
		"no input":              {`[{"output": "1"}]`, limits{}, dataset.BadTests},
		"no output":             {`[{"input": "1"}]`, limits{}, dataset.BadTests},
		"null input":            {`[{"input": null, "output": "1"}]`, limits{}, dataset.BadTests},
		"an object as output":   {`[{"input": "1", "output": {"a": 1}}]`, limits{}, dataset.BadTests},
		"numbers as lines":      {`[{"input": [1, 2], "output": "1"}]`, limits{}, dataset.BadTests},
		"another kind":          {`[{"input": "1", "output": "1", "type": "interactive"}]`, limits{}, dataset.BadTests},
		"a number as kind":      {`[{"input": "1", "output": "1", "type": 1}]`, limits{}, dataset.BadTests},
		"a number as name":      {`[{"input": "1", "output": "1", "fn_name": false}]`, limits{}, dataset.BadTests},
		"inputs are a text":     {`{"inputs": "1", "outputs": ["1"]}`, limits{}, dataset.BadTests},
		"inputs twice":          {`{"inputs": ["1"], "inputs": ["1"], "outputs": ["1"]}`, limits{}, dataset.BadTests},
		"no outputs":            {`{"inputs": ["1"]}`, limits{}, dataset.UnequalTests},
		"uneven":                {`{"inputs": ["1"], "outputs": ["1", "2"]}`, limits{}, dataset.UnequalTests},
		"many":                  {three, limits{maxTests: 2}, dataset.TooManyTests},
		"many, object":          {object, limits{maxTests: 2}, dataset.TooManyTests},
		"large":                 {three, limits{maxBytes: 8}, dataset.TestsTooLarge},
		"large, object":         {object, limits{maxBytes: 8}, dataset.TestsTooLarge},
		"cut behind the limit":  {three[:len(three)-1], limits{maxTests: 1}, dataset.BadTests},
		"Python, many":          {strings.ReplaceAll(three, `"`, "'"), limits{maxTests: 2}, dataset.TooManyTests},
		"Python, another shape": {`['a']`, limits{}, dataset.BadTests},
	} {
		got, err := decode([]byte(c.text), c.l)
		no, ok := errors.AsType[*refusal](err)
		if !ok || no.reason != c.want || no.evidence == "" || got.stored != 0 {
			t.Errorf("%s: %+v, %v, want %s", name, got, err, c.want)
		}
	}
	// Exactly at the limits, and a function is not held against them.
	for _, text := range []string{three, object, strings.Replace(object, "{", `{"fn_name":"f",`, 1)} {
		if _, err := decode([]byte(text), limits{3, 9}); err != nil {
			t.Errorf("%s: %v, want it taken", text, err)
		}
	}
	for _, text := range []string{strings.Replace(object, "]}", `],"fn_name":"f"}`, 1), strings.Replace(three, `"9"`, `"9","type":"functional"`, 1)} {
		if c, err := decode([]byte(text), limits{1, 1}); err != nil || c.stored != 3 || !c.function {
			t.Errorf("%s: %+v, %v; want three tests of a function", text, c, err)
		}
	}
}

// asPython writes tests as repr does; asJSON as an encoder does.
func asPython(tests []judge.Test) string {
	quote := func(s string) string {
		var b strings.Builder
		for _, c := range s {
			switch {
			case c == '\'' || c == '\\':
				b.WriteString(`\` + string(c))
			case c < ' ' || c == 0x7f:
				fmt.Fprintf(&b, `\x%02x`, c)
			default:
				b.WriteRune(c)
			}
		}
		return "'" + b.String() + "'"
	}
	var b strings.Builder
	for _, t := range tests {
		fmt.Fprintf(&b, "{'input': %s, 'output': %s}, ", quote(t.Input), quote(t.Output))
	}
	return "[" + b.String() + "]"
}

// FuzzDecode gives any text as a cell, which must come back with tests or a *refusal, whatever the limits; and any texts as tests in all
// shapes, which must come back as they were.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{stdin, function, `{"inputs": ["1", ["2"]], "outputs": ["1", 5], "fn_name": ""}`, `[{'input': '\x41', "output": (1,)}]`, `{"inputs": [1`, "[]"} {
		f.Add(text, "a\nb", "it's", 1, 10)
	}
	f.Fuzz(func(t *testing.T, text, input, output string, maxTests, maxBytes int) {
		bounds := limits{max(maxTests, 0), max(maxBytes, 0)}
		free, freeErr := decode([]byte(text), limits{})
		c, err := decode([]byte(text), bounds)
		for _, err := range []error{err, freeErr} {
			if _, ok := errors.AsType[*refusal](err); err != nil && !ok {
				t.Fatalf("%q: %v, want a refusal", text, err)
			}
		}
		if freeErr != nil && err == nil {
			t.Fatalf("%q is taken with bounds and refused without: %v", text, freeErr)
		}
		size := 0
		for _, x := range free.tests {
			size += len(x.Input) + len(x.Output)
		}
		within := (bounds.maxTests == 0 || free.stored <= bounds.maxTests) && (bounds.maxBytes == 0 || size <= bounds.maxBytes) || free.function
		if freeErr == nil && (err == nil) != within {
			t.Fatalf("%q with %+v: %v; %d tests of %d bytes", text, bounds, err, free.stored, size)
		}
		if err == nil && (c.function && c.tests != nil || !c.function && len(c.tests) != c.stored) {
			t.Fatalf("%q: %+v", text, c)
		}
		input, output = strings.ToValidUTF8(input, ""), strings.ToValidUTF8(output, "")
		want := pairs(input, output, output, input)
		list, _ := json.Marshal(want) // of texts alone
		object, _ := json.Marshal(map[string][]string{"inputs": {input, output}, "outputs": {output, input}})
		for _, cell := range []string{string(list), string(object), asPython(want)} {
			got, err := decode([]byte(cell), limits{})
			if diff := cmp.Diff(want, got.tests); diff != "" || err != nil {
				t.Fatalf("%s: %v (-want +got):\n%s", cell, err, diff)
			}
		}
	})
}
