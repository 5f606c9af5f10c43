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
	if err := rewrite(dec, &b); err != nil {
		return "", fault.New(fault.Invalid, "chat.PythonJSON", "%w", err)
	}
	return b.String(), nil
}

// rewrite copies one value.
func rewrite(dec *json.Decoder, b *strings.Builder) error {
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '{' {
			return rewriteObject(dec, b)
		}
		return rewriteList(dec, b)
	case string:
		b.WriteString(PythonString(v))
	case json.Number:
		b.WriteString(pythonNumber(v.String()))
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case nil:
		b.WriteString("null")
	}
	return nil
}

func rewriteList(dec *json.Decoder, b *strings.Builder) error {
	b.WriteByte('[')
	for i := 0; dec.More(); i++ {
		if i > 0 {
			b.WriteString(", ")
		}
		if err := rewrite(dec, b); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	_, err := dec.Token()
	return err
}

func rewriteObject(dec *json.Decoder, b *strings.Builder) error {
	var keys []string
	values := map[string]string{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		var v strings.Builder
		if err := rewrite(dec, &v); err != nil {
			return err
		}
		key := tok.(string) //nolint:forcetypeassert // a key of valid JSON is a string
		if _, ok := values[key]; !ok {
			keys = append(keys, key)
		}
		values[key] = v.String()
	}
	b.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(PythonString(k) + ": " + values[k])
	}
	b.WriteByte('}')
	_, err := dec.Token()
	return err
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
