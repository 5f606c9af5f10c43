package literal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree reads a value as encoding/json with UseNumber would give it.
func tree[T string | []byte](r *Reader[T]) (any, error) {
	switch r.Peek() {
	case Text:
		return r.Text()
	case Number:
		n, err := r.Number()
		return json.Number(n), err
	case Word:
		w, err := r.Word()
		return map[string]any{"true": true, "false": false, "null": nil}[w], err
	case List:
		out := []any{}
		err := r.List(func() error {
			v, err := tree(r)
			out = append(out, v)
			return err
		})
		return out, err
	case Object:
		out := map[string]any{}
		err := r.Object(func(key string) error {
			v, err := tree(r)
			out[key] = v
			return err
		})
		return out, err
	case None:
	}
	return nil, r.bad("no value")
}

func whole[T string | []byte](text T, s Syntax) (any, error) {
	r := NewReader(text, s)
	v, err := tree(r)
	if err == nil {
		err = r.End()
	}
	return v, err
}

func oracle(text string) (v any, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err = dec.Decode(&v); err == nil && !json.Valid([]byte(text)) {
		err = errors.New("more behind it")
	}
	return v, err
}

// same compares what the readers make of a text, as JSON, with encoding/json.
func same(t *testing.T, text string) {
	t.Helper()
	want, wrong := oracle(text)
	got, err := whole(text, JSON)
	again, err2 := whole([]byte(text), JSON)
	_, isSyntax := errors.AsType[*Error](err)
	if (err == nil) != (wrong == nil) || err != nil && !isSyntax || fmt.Sprint(err) != fmt.Sprint(err2) {
		t.Fatalf("%.200q: %v, and %v from bytes; encoding/json says %v", text, err, err2, wrong)
	}
	if err == nil {
		if !reflect.DeepEqual(want, got) || !reflect.DeepEqual(want, again) { // cmp needs minutes for 500 lists in each other
			t.Fatalf("%.200q: %.200q, and %.200q from bytes, want %.200q", text, got, again, want)
		}
	}
	r := NewReader(text, JSON)
	skipped := r.Skip()
	if skipped == nil {
		skipped = r.End()
	}
	if (err == nil) != (skipped == nil) {
		t.Fatalf("%.200q: %v, and %v if it is skipped", text, err, skipped)
	}
}

// seeds are texts that are JSON and texts that are nearly.
var seeds = []string{
	``, ` `, `null`, `nul`, `nulll`, `true`, `false`, `True`, `0`, `-0`, `01`, `-`, `1.5e-3`, `1.`, `.5`, `1e`, `1E+`, `+1`, `NaN`, `Infinity`, `--1`, `1 2`,
	strings.Repeat("7", 9131), `""`, `"`, `"\`, `"\"`, `"a\nb\t\"\\\/\b\f\r"`, `"\x41"`, `"\'"`, `'a'`, `"\u0041\u00e9\u20ac"`, `"\u004"`, `"\u00zz"`, `"\ud83d\ude00"`,
	`"\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ude00\ud83d"`, `"\ud83d\ud83d\ude00"`, `"\ud83d\n"`, "\"a\nb\"", "\"a\tb\"", "\"a\x00b\"", "\"\x7f\"", "\"\xff\"", "\"\xff\xfe\\n\"", "\"é\xc3\"",
	`[]`, `[ ]`, `[1]`, `[1,]`, `[,]`, `[,1]`, `[1 2]`, `[1,2`, `[`, `]`, `[1}`, `[[],[[]],{}]`, `{}`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{a:1}`, `{"a" 1}`, `{1:2}`, `{"a":1,"a":2}`, `{"A":1,"a":2}`,
	"\ufeff[]", "[1]\f", "[1]\x00", "\x00", `(1,)`, `[1] x`, ` [ 1 , "b" , { "c" : [ ] } ] `, "[1]\r\n\t ", `{"a":[{"b":["]"]},1,-2.5e3,true,null,""]}`, strings.Repeat("[", 500) + strings.Repeat("]", 500),
}

func TestReader_agreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, text := range seeds {
		same(t, text)
	}
	for _, text := range []string{strings.Repeat("[", 5000), strings.Repeat(`{"a":`, 5000)} {
		if _, err := whole(text, JSON); err == nil || !strings.Contains(err.Error(), "in each other") {
			t.Errorf("%.20s...: %v, want it refused for its depth", text, err)
		}
	}
}

func FuzzReader_agreesWithEncodingJSON(f *testing.F) {
	for _, text := range seeds {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Count(text, "[")+strings.Count(text, "{") <= maxDepth {
			same(t, text)
		}
	})
}

// What CPython's repr writes, and what its ast.literal_eval takes; literal strings of Go on the right.
func TestReader_python(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		`'a'`: "a", `"it's"`: "it's", `'a"b'`: `a"b`, `'\''`: "'", `"\""`: `"`, `'\\n'`: `\n`, `'a\nb\tc\rd'`: "a\nb\tc\rd", `'\x00\x1b\x7f\xe9'`: "\x00\x1b\x7fé",
		`'\u20ac\U0001f600'`: "€😀", `'\ud83d'`: "\uFFFD", `'\ud83d\ude00'`: "\uFFFD\uFFFD", `'\a\b\f\v'`: "\a\b\f\v", `'\0\12\1234'`: "\x00\nS4", `'\/\d\ '`: `\/\d\ `,
		"'a\\\nb'": "ab", "'a\tb'": "a\tb", `''`: "", `[]`: []any{}, `()`: []any{}, `(1,)`: []any{json.Number("1")}, `(1, 2)`: []any{json.Number("1"), json.Number("2")},
		`[1, 2,]`: []any{json.Number("1"), json.Number("2")}, `{'a': 1, "b": None,}`: map[string]any{"a": json.Number("1"), "b": nil}, `[True, False, None]`: []any{true, false, nil},
		"\f [ 'a' ,\n ('b',) ]\n": []any{"a", []any{"b"}}, `-1e-05`: json.Number("-1e-05"), strings.Repeat("9", 5000): json.Number(strings.Repeat("9", 5000)), "'\xff'": "\uFFFD",
		`{'inputs': ['3\n1 2 3\n', ["4", '5']], 'outputs': ['6\n']}`: map[string]any{"inputs": []any{"3\n1 2 3\n", []any{"4", "5"}}, "outputs": []any{"6\n"}},
	} {
		got, err := whole(text, Python)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%.100s: %v (-want +got):\n%s", text, err, diff)
		}
		r := NewReader([]byte(text), Python)
		if err := errors.Join(r.Skip(), r.End()); err != nil {
			t.Errorf("%.100s cannot be skipped: %v", text, err)
		}
	}
	for _, text := range []string{
		`true`, `null`, `nan`, `inf`, `[,]`, `(,)`, `[1,,2]`, `(1)`, `(1`, `[1)`, `(1]`, `{'a'}`, `{1: 2}`, `{'a': 1`, `{,}`, `'a`, `'a'b`, `'a' 'b'`, `['a' 'b']`, `'''a'''`, `b'a'`, `u'a'`, `r'a'`,
		`f'a'`, `'\x4'`, `'\xzz'`, `'\u12'`, `'\U0001f60'`, `'\U00110000'`, `'\Uffffffff'`, `'\N{DASH}'`, "'a\nb'", "'a\rb'", "'a\x00'", `'\`, `01`, `__import__('os')`, `[x for x in y]`, `1 + 2`, `{}['a']`, `open('a')`, ``,
	} {
		got, err := whole(text, Python)
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%s: %v, %v; want it refused", text, got, err)
		}
	}
}

// repr writes a text as CPython does, as far as escapes go.
func repr(s string) string {
	var b strings.Builder
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteByte(quote)
	for _, c := range s {
		switch {
		case c == rune(quote) || c == '\\':
			b.WriteString(`\` + string(c))
		case c == '\n':
			b.WriteString(`\n`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c == 0x2028:
			fmt.Fprintf(&b, `\u%04x`, c)
		case c > 0xffff && c%2 == 0:
			fmt.Fprintf(&b, `\U%08x`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte(quote)
	return b.String()
}

// FuzzReader_python gives any text through repr and wants it back, and any text as a literal, which must come back with a value
// or an *Error.
func FuzzReader_python(f *testing.F) {
	for _, text := range seeds {
		f.Add(text)
	}
	f.Add(`{'inputs': ('3\n',), "b": '\x41\/'}`)
	f.Fuzz(func(t *testing.T, text string) {
		valid := strings.ToValidUTF8(text, "")
		if got, err := whole("["+repr(valid)+", ]", Python); err != nil || cmp.Diff([]any{valid}, got) != "" {
			t.Fatalf("%q as %s: %q, %v", valid, repr(valid), got, err)
		}
		got, err := whole([]byte(text), Python)
		if _, isSyntax := errors.AsType[*Error](err); err != nil && !isSyntax {
			t.Fatalf("%q: %v, %v", text, got, err)
		}
	})
}

// What is read from bytes does not change with them, and errors of the caller come back as they are.
func TestReader_ownership(t *testing.T) {
	t.Parallel()
	text := []byte(`["plain", "es\ncaped", 12]`)
	got, err := whole(text, JSON)
	copy(text, bytes.Repeat([]byte("x"), len(text)))
	if diff := cmp.Diff([]any{"plain", "es\ncaped", json.Number("12")}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	stop := errors.New("stop")
	r := NewReader(`[{"a": 1}]`, JSON)
	if err := r.List(func() error { return r.Object(func(string) error { return stop }) }); !errors.Is(err, stop) {
		t.Errorf("%v, want the error of the caller", err)
	}
	r = NewReader(`{"a": 1}`, JSON)
	for _, err := range []error{r.List(nil), second(r.Text())} {
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%v, want an object refused as something else", err)
		}
	}
	if err := NewReader(`1`, JSON).Object(nil); err == nil {
		t.Error("a number was taken as an object")
	}
}

func second[T any](_ T, err error) error { return err }
