package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// PythonJSON rewrites JSON as json.dumps(json.loads(x), ensure_ascii=False) does in Python: separators ", " and ": ",
// only what must be escaped in strings escaped, numbers as Python prints them (1e3 is 1000.0), of equal keys the place of
// the first and the value of the last. Errors: Invalid.
func PythonJSON(raw json.RawMessage) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var b strings.Builder
	// Unmarshal checks the whole text, and its depth, before anything recurses.
	if err := json.Unmarshal(raw, new(json.RawMessage)); err != nil {
		return "", fault.New(fault.Invalid, "chat.PythonJSON", "%w", err)
	}
	v, err := read(dec)
	if err != nil {
		return "", fault.New(fault.Invalid, "chat.PythonJSON", "%w", err)
	}
	v.write(&b)
	return b.String(), nil
}

// value is a JSON value: a text that is written as it is, a list, or an object. Only when all is read is anything written, once, so
// a value deep inside is not copied for each level around it.
type value struct {
	text   string
	list   []value
	object *object
}

type object struct {
	keys   []string
	values map[string]value
}

// read reads one value.
func read(dec *json.Decoder) (value, error) {
	tok, err := dec.Token()
	if err != nil {
		return value{}, err
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '{' {
			return readObject(dec)
		}
		return readList(dec)
	case string:
		return value{text: PythonString(v)}, nil
	case json.Number:
		return value{text: pythonNumber(v.String())}, nil
	case bool:
		return value{text: strconv.FormatBool(v)}, nil
	}
	return value{text: "null"}, nil
}

func readList(dec *json.Decoder) (value, error) {
	list := []value{}
	for dec.More() {
		v, err := read(dec)
		if err != nil {
			return value{}, err
		}
		list = append(list, v)
	}
	_, err := dec.Token()
	return value{list: list}, err
}

func readObject(dec *json.Decoder) (value, error) {
	o := &object{values: map[string]value{}}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return value{}, err
		}
		v, err := read(dec)
		if err != nil {
			return value{}, err
		}
		key := tok.(string) //nolint:forcetypeassert // a key of valid JSON is a string
		if _, ok := o.values[key]; !ok {
			o.keys = append(o.keys, key)
		}
		o.values[key] = v
	}
	_, err := dec.Token()
	return value{object: o}, err
}

func (v value) write(b *strings.Builder) {
	switch {
	case v.object != nil:
		b.WriteByte('{')
		for i, k := range v.object.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(PythonString(k))
			b.WriteString(": ")
			v.object.values[k].write(b)
		}
		b.WriteByte('}')
	case v.list != nil:
		b.WriteByte('[')
		for i, e := range v.list {
			if i > 0 {
				b.WriteString(", ")
			}
			e.write(b)
		}
		b.WriteByte(']')
	default:
		b.WriteString(v.text)
	}
}

// pythonNumber spells a JSON number as Python does: integers of any length as they are, others as the shortest float
// that reads back, with an exponent below 1e-4 and from 1e16 on.
func pythonNumber(s string) string {
	if !strings.ContainsAny(s, ".eE") {
		if s == "-0" {
			return "0"
		}
		return s
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && math.IsInf(f, 0) {
		if f < 0 {
			return "-Infinity"
		}
		return "Infinity"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// PythonString quotes s as Python's json module does without ASCII escaping.
func PythonString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch r {
		case '"':
			b.WriteString(`\"`)
		case '\\':
			b.WriteString(`\\`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			if r < 0x20 {
				fmt.Fprintf(&b, `\u%04x`, r)
			} else {
				b.WriteRune(r)
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}
