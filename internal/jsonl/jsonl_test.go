package jsonl_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/jsonl"
)

func TestEach_refusesWhatIsNotALineAndSaysWhich(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want string }{
		"empty":                  {"", "no line"},
		"blank first":            {"\n{}", "line 1: it is blank"},
		"blank in the middle":    {"{}\n \t\r\n{}", "line 2: it is blank"},
		"blank at the end":       {"{}\n\n", "line 2: it is blank"},
		"blank without an end":   {"{}\n  ", "line 2: it is blank"},
		"not JSON":               {"{}\n{]", "line 2: it is not JSON"},
		"two values":             {"{} {}", "line 1: it is not JSON"},
		"byte order mark":        {"\ufeff{}", "line 1: it is not JSON"},
		"not UTF-8":              {"{}\n\"\xff\"", "line 2: it is not UTF-8"},
		"first half":             {`"\ud83d"`, "byte 2 is half"},
		"second half":            {`"x\udc00y"`, "byte 3 is half"},
		"halves in wrong order":  {`"\udc00\ud83d"`, "byte 2 is half"},
		"half, then other":       {`"\ud83d\u0041"`, "byte 2 is half"},
		"half after a backslash": {`"\\\ud83d"`, "byte 4 is half"},
		"half in a name":         {`{"\uDFFF":1}`, "byte 3 is half"},
	} {
		err := jsonl.Each(strings.NewReader(tt.in), func(int, json.RawMessage) error { return nil })
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want Invalid with %q", name, err, tt.want)
		}
	}
}

func TestEach_givesEveryLineInOrder(t *testing.T) {
	t.Parallel()
	in := "{\"a\":1}\r\n [2]\n\"\\ud83d\\ude00 \\\\ud83d " + strings.Repeat("x", 1<<17) + "\"\nnull"
	var got []string
	err := jsonl.Each(strings.NewReader(in), func(n int, line json.RawMessage) error {
		if got = append(got, string(line)); n != len(got) {
			t.Errorf("line %d has the number %d", len(got), n)
		}
		return nil
	})
	if err != nil || len(got) != 4 || got[0] != `{"a":1}` || got[1] != "[2]" || len(got[2]) < 1<<17 || got[3] != "null" {
		t.Errorf("%d lines, %v", len(got), err)
	}
	stop := errors.New("enough")
	n := 0
	err = jsonl.Each(strings.NewReader(in), func(int, json.RawMessage) error {
		if n++; n == 2 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || !strings.HasPrefix(err.Error(), "line 2: ") || n != 2 {
		t.Errorf("after %d lines: %v", n, err)
	}
}

func TestEach_anErrorOfTheReaderIsNoFaultOfTheInput(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	err := jsonl.Each(iotest.ErrReader(broken), func(int, json.RawMessage) error { return nil })
	if !errors.Is(err, broken) || fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

// Whatever string is written as JSON is read back as it was, however it is escaped.
func TestEach_acceptsEveryStringThatJSONCanSpell(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.String().Filter(utf8.ValidString).Draw(rt, "text")
		var line strings.Builder
		line.WriteByte('"')
		for _, r := range want {
			if rapid.Bool().Draw(rt, "escape") {
				for _, u := range utf16Of(r) {
					line.WriteString(`\u` + string("0123456789abcdef"[u>>12]) + string("0123456789ABCDEF"[u>>8&15]) +
						string("0123456789abcdef"[u>>4&15]) + string("0123456789ABCDEF"[u&15]))
				}
				continue
			}
			one, err := json.Marshal(string(r))
			if err != nil {
				rt.Fatal(err)
			}
			line.Write(one[1 : len(one)-1])
		}
		line.WriteByte('"')
		err := jsonl.Each(strings.NewReader(line.String()), func(_ int, raw json.RawMessage) error {
			got, err := jsonl.Text("x", raw)
			if got != want {
				rt.Errorf("%s reads as %q, want %q", line.String(), got, want)
			}
			return err
		})
		if err != nil {
			rt.Errorf("%s: %v", line.String(), err)
		}
	})
}

func utf16Of(r rune) []rune {
	if r < 0x10000 {
		return []rune{r}
	}
	r -= 0x10000
	return []rune{0xd800 + r>>10, 0xdc00 + r&0x3ff}
}

func TestFields_exactlyTheKnownOnes(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"a":1}`:                   "",
		`{"a":null,"b":[]}`:         "",
		`{"b":1}`:                   `field "m.a" is missing`,
		`{"a":1,"A":2}`:             `field "m.A" is not known; known are a, b`,
		`{"a":1,"b?":2}`:            `field "m.b?" is not known; known are a, b`,
		`{"a":1,"a":1}`:             `field "m.a" is there twice`,
		`{"a":{"x":1,"x":2},"b":1}`: "",
		`[]`:                        `field "m" is a list, want an object`,
		`3`:                         `field "m" is a number, want an object`,
		`null`:                      `field "m" is null, want an object`,
	} {
		got, err := jsonl.Fields("m", json.RawMessage(raw), "a", "b?")
		if want == "" && (err != nil || got["a"] == nil) || want != "" && (!fault.Is(err, fault.Invalid) || err.Error() != want) {
			t.Errorf("%s: %v, %v; want %q", raw, got, err, want)
		}
	}
	if _, err := jsonl.Fields("", json.RawMessage(`true`)); err == nil || err.Error() != "the value is a boolean, want an object" {
		t.Errorf("a line: %v", err)
	}
}

func TestValues_otherTypesAreRefused(t *testing.T) {
	t.Parallel()
	values := map[string]string{jsonl.Object: `{}`, jsonl.List: `[]`, jsonl.String: `"x"`, jsonl.Number: `-1`, jsonl.Boolean: `false`, jsonl.Null: `null`, jsonl.Missing: ``}
	for kind, raw := range values {
		if got := jsonl.Kind(json.RawMessage(raw)); got != kind {
			t.Errorf("Kind(%s) = %s, want %s", raw, got, kind)
		}
		_, text := jsonl.Text("f", json.RawMessage(raw))
		_, boolean := jsonl.Bool("f", json.RawMessage(raw))
		_, list := jsonl.Elements("f", json.RawMessage(raw))
		for want, err := range map[string]error{jsonl.String: text, jsonl.Boolean: boolean, jsonl.List: list} {
			if (err == nil) != (kind == want) || err != nil && !strings.Contains(err.Error(), `field "f" is `+kind) {
				t.Errorf("%s read as %s: %v", kind, want, err)
			}
		}
	}
}

func TestExact_refusesNamesInAnotherCase(t *testing.T) {
	t.Parallel()
	type inner struct {
		X int `json:"x"`
	}
	type outer struct {
		One  inner           `json:"one"`
		Ptr  *inner          `json:"ptr,omitempty"`
		List []inner         `json:"list"`
		Map  map[string]int  `json:"map"`
		Any  any             `json:"any"`
		Raw  json.RawMessage `json:"raw"`
		Ptrs []*inner        `json:"ptrs"`
	}
	for raw, want := range map[string]string{
		`{}`: "",
		`{"one":{"x":1},"ptr":null,"list":[{"x":1}],"map":{"X":1,"x":2},"any":{"ONE":1},"raw":{"ONE":1}}`: "",
		`{"other":1,"one":{"y":1}}`: "",
		`{"ONE":{"x":1}}`:           `"ONE" must be spelled "one"`,
		`{"one":{"X":1}}`:           `"one.X" must be spelled "x"`,
		`{"ptr":{"X":1}}`:           `"ptr.X" must be`,
		`{"list":[{},{"X":1}]}`:     `"list[1].X" must be`,
		`{"ptrs":[{"X":1}]}`:        `"ptrs[0].X" must be`,
		`{"one":{"x":1},"One":{}}`:  `"One" must be`,
		"\ufeff{}":                  "byte order mark",
		`{"one":[]}`:                "cannot unmarshal",
		`{`:                         "unexpected end",
	} {
		err := jsonl.Exact([]byte(raw), new(outer))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}
