package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// PythonJSON rewrites JSON as Python's json.dumps(ensure_ascii=False) does: separators ", " and ": ", the order of
// keys and the spelling of numbers kept, only what must be escaped in strings escaped. Errors: Invalid.
func PythonJSON(raw json.RawMessage) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var b strings.Builder
	if err := rewrite(dec, &b); err != nil {
		return "", fault.New(fault.Invalid, "chat.PythonJSON", "%w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return "", fault.New(fault.Invalid, "chat.PythonJSON", "text after the JSON value")
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
		return rewriteCompound(dec, b, v)
	case string:
		b.WriteString(PythonString(v))
	case json.Number:
		b.WriteString(v.String())
	case bool:
		fmt.Fprint(b, v)
	case nil:
		b.WriteString("null")
	}
	return nil
}

func rewriteCompound(dec *json.Decoder, b *strings.Builder, open json.Delim) error {
	b.WriteString(open.String())
	for i := 0; dec.More(); i++ {
		if i > 0 {
			b.WriteString(", ")
		}
		if open == '{' {
			if err := rewrite(dec, b); err != nil {
				return err
			}
			b.WriteString(": ")
		}
		if err := rewrite(dec, b); err != nil {
			return err
		}
	}
	end, err := dec.Token()
	if err != nil {
		return err
	}
	b.WriteString(end.(json.Delim).String()) //nolint:forcetypeassert // More returned false, so this closes
	return nil
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
