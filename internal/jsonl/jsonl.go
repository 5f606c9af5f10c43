// Package jsonl reads JSON Lines strictly: one object a line, exactly the known fields in their exact case, each once.
//
// encoding/json alone ignores unknown and repeated fields and the case of names, and replaces broken text. Here all of
// that is an error that names the line and the field. It may import fault.
package jsonl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/steadyrl/steady/internal/fault"
)

// Kinds of JSON values, as Kind names them.
const (
	Object  = "an object"
	List    = "a list"
	String  = "a string"
	Number  = "a number"
	Boolean = "a boolean"
	Null    = "null"
	Missing = "missing"
)

// Kind names the type of a JSON value for a person; Missing if there is no value.
func Kind(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return Missing
	}
	switch raw[0] {
	case '{':
		return Object
	case '[':
		return List
	case '"':
		return String
	case 't', 'f':
		return Boolean
	case 'n':
		return Null
	}
	return Number
}

// What a reader that allows it looks for in the errors of Lines.
var (
	ErrBlank = errors.New("it is blank")
	ErrEmpty = errors.New("there is no line")
)

// Each calls each with every line of r and its number, from 1. Lines may be of any length and end in LF or CR LF; the
// last one needs no end.
//
// Errors: Invalid with the line's number (a blank line, no line at all, text that is not UTF-8, a value that is not
// JSON, an escape of half a surrogate pair), those of each with the line's number, those of r.
func Each(r io.Reader, each func(n int, line json.RawMessage) error) error {
	return Lines(r, func(n int, line json.RawMessage, wrong error) error {
		if wrong != nil {
			return wrong
		}
		return each(n, line)
	})
}

// Lines is Each for a reader that goes on after a bad line: each has its error (Invalid, without the line's number) and no value.
// Errors: Invalid for no line at all, those of each with the line's number, those of r.
func Lines(r io.Reader, each func(n int, line json.RawMessage, wrong error) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		last := errors.Is(err, io.EOF)
		switch {
		case err != nil && !last:
			return fmt.Errorf("line %d: %w", n, err)
		case last && len(line) == 0 && n == 1:
			return fault.New(fault.Invalid, "", "%w", ErrEmpty)
		case last && len(line) == 0:
			return nil
		}
		var wrong error
		if err := check(line); err != nil {
			line, wrong = nil, fault.New(fault.Invalid, "", "%w", err)
		}
		if err := each(n, bytes.TrimSpace(line), wrong); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if last {
			return nil
		}
	}
}

// Told gathers the bad lines of a file, of which the first ones are told and all are counted. The zero value with a Name is ready.
type Told struct {
	Name string // of the file

	lines []error
	bad   int
}

const (
	mostLines    = 20 // bad lines that are told
	mostMistakes = 5  // mistakes of a line that are told
)

// Add takes what is wrong with line n; nothing is no mistake.
func (t *Told) Add(n int, wrong ...error) {
	if len(wrong) == 0 {
		return
	}
	if t.bad++; t.bad > mostLines {
		return
	}
	var texts []string
	for _, err := range wrong[:min(len(wrong), mostMistakes)] {
		texts = append(texts, err.Error())
	}
	if more := len(wrong) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("%d more mistakes", more))
	}
	t.lines = append(t.lines, fmt.Errorf("%s: line %d: %s", t.Name, n, strings.Join(texts, "; ")))
}

// Err is nil without a bad line. Errors: Invalid, a line of text for each bad line up to 20, with file, line and up to 5 mistakes, then their number of
// all lines.
func (t *Told) Err(all int) *fault.Error {
	if t.bad == 0 {
		return nil
	}
	lines := t.lines
	if t.bad > mostLines {
		lines = append(slices.Clone(lines), fmt.Errorf("%s: %d of %d lines have mistakes, the first %d are told", t.Name, t.bad, all, mostLines))
	}
	return fault.New(fault.Invalid, "", "%w", errors.Join(lines...))
}

// mark is U+FEFF, which some editors write at the begin of a file.
var mark = []byte("\ufeff")

func check(line []byte) error {
	if bytes.HasPrefix(line, mark) {
		return errors.New("it is not JSON: it begins with a byte order mark")
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return ErrBlank
	}
	if !utf8.Valid(line) {
		return errors.New("it is not UTF-8")
	}
	if err := json.Unmarshal(line, new(json.RawMessage)); err != nil {
		if s, ok := errors.AsType[*json.SyntaxError](err); ok {
			return fmt.Errorf("it is not JSON: %w at byte %d", err, s.Offset)
		}
		return fmt.Errorf("it is not JSON: %w", err)
	}
	if at := HalfSurrogate(line); at >= 0 {
		return fmt.Errorf("the escape at byte %d is half a surrogate pair, which is no character", at+1)
	}
	return nil
}

// HalfSurrogate returns the place of the first escape \uD800 to \uDFFF in valid JSON that is not in a pair, else -1. Decoding would
// replace it.
func HalfSurrogate(line []byte) int {
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' {
			continue
		}
		i++ // valid JSON: something follows
		if line[i] != 'u' {
			continue
		}
		switch u := hex4(line[i+1:]); {
		case u >= 0xd800 && u < 0xdc00 && len(line) > i+10 && line[i+5] == '\\' && line[i+6] == 'u' && hex4(line[i+7:])>>10 == 0xdc00>>10:
			i += 10
		case u >= 0xd800 && u < 0xe000:
			return i - 1
		default:
			i += 4
		}
	}
	return -1
}

// hex4 is the value of four hexadecimal digits, or -1.
func hex4(s []byte) int {
	u := 0
	for _, c := range s[:4] {
		switch {
		case c >= '0' && c <= '9':
			u = u<<4 | int(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			u = u<<4 | int(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	return u
}

// Fields returns the fields of an object; at is its name in messages, "" for the line itself. A field named in known
// with a final "?" may be missing. Errors: Invalid, for the first mistake.
func Fields(at string, raw json.RawMessage, known ...string) (map[string]json.RawMessage, error) {
	out, wrong := AllFields(at, raw, known...)
	if len(wrong) > 0 {
		return nil, wrong[0]
	}
	return out, nil
}

// AllFields is Fields for a reader that goes on after a mistake: it returns the known fields that are there, each as it stands first, and every mistake.
// Errors: Invalid.
func AllFields(at string, raw json.RawMessage, known ...string) (out map[string]json.RawMessage, wrong []error) {
	if k := Kind(raw); k != Object {
		return nil, []error{Bad(at, "is %s, want an object", k)}
	}
	required := map[string]bool{}
	var names []string
	for _, name := range known {
		bare, optional := strings.CutSuffix(name, "?")
		required[bare] = !optional
		names = append(names, bare)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, []error{Bad(at, "%w", err)}
	}
	out = map[string]json.RawMessage{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, append(wrong, Bad(at, "%w", err))
		}
		name := fmt.Sprint(tok)
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, append(wrong, Bad(join(at, name), "%w", err))
		}
		switch _, ok := required[name]; {
		case !ok:
			wrong = append(wrong, Bad(join(at, name), "is not known; known are %s", strings.Join(names, ", ")))
		case out[name] != nil:
			wrong = append(wrong, Bad(join(at, name), "is there twice"))
		default:
			out[name] = v
		}
	}
	for _, name := range names { // in the order of the caller
		if required[name] && out[name] == nil {
			wrong = append(wrong, Bad(join(at, name), "is missing"))
		}
	}
	return out, wrong
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// Exact is json.Unmarshal, but refuses names that are those of fields of v in another case, which Unmarshal would read as these. Names
// of no field are passed over. Errors: Invalid (also for a byte order mark), or those of Unmarshal.
func Exact(data []byte, v any) error {
	if bytes.HasPrefix(data, mark) {
		return fault.New(fault.Invalid, "", "it is not JSON: it begins with a byte order mark")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return err
	}
	return exact("", data, reflect.TypeOf(v))
}

// exact checks the names of structs in a value of type t, which Unmarshal has read.
func exact(at string, raw json.RawMessage, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch k := Kind(raw); {
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && k == List && holdsStruct(t.Elem()):
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
		for i, e := range list {
			if err := exact(fmt.Sprintf("%s[%d]", at, i), e, t.Elem()); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct && k == Object:
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return err
		}
		for i := range t.NumField() {
			want, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			for name := range object {
				if name != want && strings.EqualFold(name, want) {
					return Bad(join(at, name), "must be spelled %q", want)
				}
			}
			if err := exact(join(at, want), object[want], t.Field(i).Type); err != nil {
				return err
			}
		}
	}
	return nil
}

func holdsStruct(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

// Elements returns the elements of a list. Errors: Invalid.
func Elements(at string, raw json.RawMessage) ([]json.RawMessage, error) {
	if k := Kind(raw); k != List {
		return nil, Bad(at, "is %s, want a list", k)
	}
	out := []json.RawMessage{}
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, Bad(at, "%w", err)
	}
	return out, nil
}

// Text returns a string. Errors: Invalid.
func Text(at string, raw json.RawMessage) (string, error) {
	if k := Kind(raw); k != String {
		return "", Bad(at, "is %s, want a string", k)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", Bad(at, "%w", err)
	}
	return s, nil
}

// Bool returns a boolean. Errors: Invalid.
func Bool(at string, raw json.RawMessage) (bool, error) {
	if k := Kind(raw); k != Boolean {
		return false, Bad(at, "is %s, want true or false", k)
	}
	return bytes.TrimSpace(raw)[0] == 't', nil
}

// Short is a name or text of a file for a message: quoted, and cut if it is long.
func Short(s string) string {
	const most = 80 // bytes
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "..."
}

// Bad is the error of a field. Errors: always Invalid.
func Bad(field, format string, args ...any) error {
	if field == "" {
		return fault.New(fault.Invalid, "", "the value "+format, args...)
	}
	return fault.New(fault.Invalid, "", "field %s "+format, append([]any{Short(field)}, args...)...)
}
