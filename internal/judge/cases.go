package judge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/jsonl"
)

// maxMistakes is how many mistakes of a file are told; the others are counted.
const maxMistakes = 20

const caseHint = `a line is {"id": "a", "response_text": "...", "tests": [{"input": "...", "output": "..."}]}; docs/judge.md has the rules`

// Case is one line of a file of cases: a response and the tests to score it on.
type Case struct {
	ID       json.RawMessage // as it stands in the file: a string or a whole number
	Response string
	Tests    []Test // may be empty
}

// ReadCases reads JSON Lines, one case a line, and checks them all. Every key is required and no other is known; ids
// are not empty and differ. Blank lines are skipped, and a byte order mark in front. Text that would not survive the
// way to a program is refused: invalid UTF-8, and halves of surrogate pairs.
// Errors: Invalid, with name, line, field and what is expected for each mistake, up to maxMistakes of them; also if
// there is no case at all.
func ReadCases(r io.Reader, name string) ([]Case, error) {
	const op = "judge"
	var cases []Case
	var told []error
	mistakes := 0
	lineOf := map[string]int{}
	in := bufio.NewReaderSize(r, 1<<16)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF { //nolint:errorlint // bufio returns it bare
			return nil, fault.New(fault.Invalid, op, "%s line %d: %w", name, n, err)
		}
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			c, wrong := parseCase(text)
			if key := idKey(c.ID); key != "" {
				if first := lineOf[key]; first > 0 {
					wrong = append(wrong, fmt.Sprintf("id: expected one of its own, but %s is the id of line %d", c.ID, first))
				} else {
					lineOf[key] = n
				}
			}
			mistakes += len(wrong)
			for _, w := range wrong {
				if len(told) < maxMistakes {
					told = append(told, fmt.Errorf("%s line %d: %s", name, n, w))
				}
			}
			cases = append(cases, c)
		}
		if err != nil {
			break
		}
	}
	if rest := mistakes - len(told); rest > 0 {
		told = append(told, fmt.Errorf("%s: %d more mistakes like these", name, rest))
	}
	if len(told) > 0 {
		return nil, fault.New(fault.Invalid, op, "%w", errors.Join(told...)).WithHint("%s", caseHint)
	}
	if len(cases) == 0 {
		return nil, fault.New(fault.Invalid, op, "%s: expected at least one case, got a file without any", name).WithHint("%s", caseHint)
	}
	return cases, nil
}

// idKey is what must differ between cases: the text of the id. "1" and 1 are the same to most readers.
func idKey(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		s = string(raw)
	}
	return s
}

// parseCase returns a case and what is wrong with it, each as "field: expected this, got that".
func parseCase(line []byte) (c Case, wrong []string) {
	if !utf8.Valid(line) {
		return c, []string{fmt.Sprintf("expected UTF-8, got a byte that is none after %d bytes", validPrefix(line))}
	}
	if err := syntax(line); err != "" {
		return c, []string{err}
	}
	f := object{raw: line}
	f.read("id", func(raw []byte) {
		if text, bad := plainString(raw); bad == "" && strings.TrimSpace(text) != "" || isWhole(raw) {
			c.ID = slices.Clone(raw)
			return
		}
		f.wrong = append(f.wrong, "id: expected a string that is not blank, or a whole number, got "+describe(raw))
	})
	f.text("response_text", &c.Response)
	f.read("tests", func(raw []byte) {
		if jsonl.Kind(raw) != jsonl.List {
			f.wrong = append(f.wrong, "tests: expected a list of objects with input and output, got "+describe(raw))
			return
		}
		c.Tests = f.tests(raw)
	})
	f.finish()
	return c, f.wrong
}

// tests reads the list of tests; mistakes go to f.
func (f *object) tests(raw []byte) []Test {
	var items []json.RawMessage
	_ = json.Unmarshal(raw, &items) // its syntax has been checked
	tests := make([]Test, len(items))
	for i, item := range items {
		path := "tests[" + strconv.Itoa(i) + "]"
		if jsonl.Kind(item) != jsonl.Object {
			f.wrong = append(f.wrong, path+": expected an object with input and output, got "+describe(item))
			continue
		}
		t := object{raw: item, path: path + "."}
		t.text("input", &tests[i].Input)
		t.text("output", &tests[i].Output)
		t.finish()
		f.wrong = append(f.wrong, t.wrong...)
	}
	return tests
}

// object reads the members of one JSON object of known syntax and collects what is wrong.
type object struct {
	raw   []byte
	path  string // prefix of the names of its members
	keys  []string
	reads []func([]byte)
	wrong []string
}

// read declares a required member.
func (o *object) read(key string, use func(raw []byte)) {
	o.keys, o.reads = append(o.keys, key), append(o.reads, use)
}

// text declares a required member that is a string.
func (o *object) text(key string, to *string) {
	o.read(key, func(raw []byte) {
		s, bad := plainString(raw)
		if bad != "" {
			o.wrong = append(o.wrong, o.path+key+": expected a string, got "+bad)
		}
		*to = s
	})
}

// finish reads the object. Names are compared byte for byte.
func (o *object) finish() {
	seen := make([]bool, len(o.keys))
	dec := json.NewDecoder(bytes.NewReader(o.raw))
	_, _ = dec.Token()
	for dec.More() {
		token, _ := dec.Token()
		key, _ := token.(string)
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return // cannot be: the syntax has been checked
		}
		switch i := slices.Index(o.keys, key); {
		case i < 0:
			o.wrong = append(o.wrong, fmt.Sprintf("%s%s: expected no other keys than %s", o.path, quote(key), strings.Join(o.keys, ", ")))
		case seen[i]:
			o.wrong = append(o.wrong, o.path+key+": expected once, got it again")
		default:
			seen[i] = true
			o.reads[i](value)
		}
	}
	for i, key := range o.keys {
		if !seen[i] {
			o.wrong = append(o.wrong, o.path+key+": expected, but it is missing")
		}
	}
}

// syntax says in words why line is not one JSON object; "" if it is.
func syntax(line []byte) string {
	dec := json.NewDecoder(bytes.NewReader(line))
	var value json.RawMessage
	switch err := dec.Decode(&value); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "expected an object on one line, but the line ends inside it (was the file cut, or written over several lines?)"
	case err != nil:
		where := ""
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			where = fmt.Sprintf(" (byte %d)", e.Offset)
		}
		return "expected an object, got no JSON: " + err.Error() + where
	}
	if jsonl.Kind(value) != jsonl.Object {
		return "expected an object, got " + typeName(value)
	}
	if rest := bytes.TrimSpace(line[dec.InputOffset():]); len(rest) > 0 {
		return fmt.Sprintf("expected the end of the line after the object, which ends at byte %d", dec.InputOffset())
	}
	return ""
}

// plainString decodes a JSON string; bad says what stands there instead.
func plainString(raw []byte) (text, bad string) {
	if jsonl.Kind(raw) != jsonl.String || json.Unmarshal(raw, &text) != nil {
		return "", describe(raw)
	}
	if at := jsonl.HalfSurrogate(raw); at >= 0 {
		return "", "half of a surrogate pair, " + string(raw[at:at+6]) + ", which is no text"
	}
	return text, ""
}

func isWhole(raw []byte) bool {
	return digits(bytes.TrimPrefix(raw, []byte("-"))) == len(bytes.TrimPrefix(raw, []byte("-")))
}

// describe names a value that is not what was expected; of strings and numbers it shows the beginning.
func describe(raw []byte) string {
	switch jsonl.Kind(raw) {
	case jsonl.String:
		return "the string " + shorten(string(raw))
	case jsonl.Number:
		return "the number " + shorten(string(raw))
	default:
		return typeName(raw)
	}
}

// typeName names the type of a value.
func typeName(raw []byte) string {
	if kind := jsonl.Kind(raw); kind != jsonl.Boolean {
		return kind
	}
	return "true or false"
}

func quote(s string) string { return strconv.Quote(shorten(s)) }

func shorten(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

func validPrefix(b []byte) int {
	n := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		n += size
	}
	return n
}
