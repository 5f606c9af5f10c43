// Package literal reads JSON and Python literals that are in memory already, piece by piece: it builds no tree, so a value of
// hundreds of megabytes costs what its reader keeps of it. Nothing is ever evaluated. Numbers are text of any length.
//
// Of Python's literals it knows what repr writes of texts, numbers, truth values, None, lists, tuples and dictionaries with texts as
// keys, and commas before a closing bracket. Prefixes of strings, triple quotes, strings side by side, named characters (\N) and sets are
// refused.
//
// The package imports nothing of this module.
package literal

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Syntax is one of the two forms.
type Syntax int

// The forms.
const (
	JSON   Syntax = iota // RFC 8259, one value
	Python               // as repr writes it
)

// Kind says what a value is by its first character.
type Kind int

// The kinds. None is the end of the text and anything that begins no value.
const (
	None Kind = iota
	Text
	Number
	List // or a tuple
	Object
	Word // true, false, null, True, False, None
)

// maxDepth bounds lists and objects in each other.
const maxDepth = 1000

// Error is a mistake in the syntax.
type Error struct {
	At   int // bytes before it
	What string
}

// Error says what is wrong and where.
func (e *Error) Error() string { return fmt.Sprintf("byte %d: %s", e.At, e.What) }

// Reader reads one value after the other. Its methods return *Error for wrong syntax, and what the caller's functions return. After an
// error nothing more can be read.
//
// Ownership: the text must not change while it is read. Strings that are read from a string may share its memory; those from
// bytes never do.
type Reader[T string | []byte] struct {
	text   T
	at     int
	depth  int
	syntax Syntax
}

// NewReader reads from the start of a text.
func NewReader[T string | []byte](text T, syntax Syntax) *Reader[T] {
	return &Reader[T]{text: text, syntax: syntax}
}

func (r *Reader[T]) bad(what string, args ...any) error {
	return &Error{r.at, fmt.Sprintf(what, args...)}
}

// next skips blanks and returns the byte that follows, 0 at the end.
func (r *Reader[T]) next() byte {
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\n', '\r':
		case '\f':
			if r.syntax == JSON {
				return c
			}
		default:
			return c
		}
	}
	return 0
}

// Peek says what kind of value follows.
func (r *Reader[T]) Peek() Kind {
	switch c := r.next(); {
	case c == '"', c == '\'' && r.syntax == Python:
		return Text
	case c == '-', '0' <= c && c <= '9':
		return Number
	case c == '[', c == '(' && r.syntax == Python:
		return List
	case c == '{':
		return Object
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		return Word
	}
	return None
}

// End wants nothing but blanks.
func (r *Reader[T]) End() error {
	if r.next(); r.at < len(r.text) {
		return r.bad("something behind the value")
	}
	return nil
}

// List reads a list; each has to read one element.
func (r *Reader[T]) List(each func() error) error {
	if r.Peek() != List {
		return r.bad("no list")
	}
	tuple := r.text[r.at] == '('
	end := byte(']')
	if tuple {
		end = ')'
	}
	n, comma, err := r.series(end, each)
	if err == nil && tuple && n == 1 && !comma {
		err = r.bad("a bracket around one value is no tuple")
	}
	return err
}

// Object reads an object or dictionary; each has to read the value of a key. A key may come more than once.
func (r *Reader[T]) Object(each func(key string) error) error {
	if r.Peek() != Object {
		return r.bad("no object")
	}
	_, _, err := r.series('}', func() error {
		key, err := r.Text()
		if err != nil {
			return err
		}
		if r.next() != ':' {
			return r.bad("no colon behind a key")
		}
		r.at++
		return each(key)
	})
	return err
}

// series reads what is between two brackets and returns the number of elements and whether a comma is behind the last one.
func (r *Reader[T]) series(end byte, each func() error) (n int, comma bool, err error) {
	r.at++
	if r.depth++; r.depth > maxDepth {
		return 0, false, r.bad("more than %d brackets in each other", maxDepth)
	}
	for {
		if r.next() == end && (!comma || r.syntax == Python) {
			r.at++
			r.depth--
			return n, comma, nil
		}
		if n > 0 && !comma {
			return n, comma, r.bad("no comma between two values")
		}
		if err := each(); err != nil {
			return n, comma, err
		}
		n++
		if comma = r.next() == ','; comma {
			r.at++
		}
	}
}

// Skip reads a value that nobody wants.
func (r *Reader[T]) Skip() error {
	switch r.Peek() {
	case Text:
		_, err := r.Text()
		return err
	case Number:
		_, err := r.Number()
		return err
	case List:
		return r.List(r.Skip)
	case Object:
		return r.Object(func(string) error { return r.Skip() })
	case Word:
		_, err := r.Word()
		return err
	case None:
	}
	return r.bad("no value")
}

// Word reads true, false or null, which is what Python's words are called too.
func (r *Reader[T]) Word() (string, error) {
	words := [...][2]string{{"true", "True"}, {"false", "False"}, {"null", "None"}}
	r.next()
	for _, w := range words {
		as := w[r.syntax]
		if strings.HasPrefix(string(r.text[r.at:min(len(r.text), r.at+len(as))]), as) {
			r.at += len(as)
			return w[0], nil
		}
	}
	return "", r.bad("no value")
}

// Number reads a number as it is written, of any length.
func (r *Reader[T]) Number() (string, error) {
	r.next()
	from := r.at
	if r.is('-') {
		r.at++
	}
	if r.is('0') {
		r.at++
	} else if !r.digits() {
		return "", r.bad("no digit")
	}
	if r.is('.') {
		r.at++
		if !r.digits() {
			return "", r.bad("no digit behind a point")
		}
	}
	if r.is('e') || r.is('E') {
		r.at++
		if r.is('-') || r.is('+') {
			r.at++
		}
		if !r.digits() {
			return "", r.bad("no digit in an exponent")
		}
	}
	return string(r.text[from:r.at]), nil
}

func (r *Reader[T]) is(c byte) bool { return r.at < len(r.text) && r.text[r.at] == c }

// digits reads one or more.
func (r *Reader[T]) digits() bool {
	from := r.at
	for r.at < len(r.text) && '0' <= r.text[r.at] && r.text[r.at] <= '9' {
		r.at++
	}
	return r.at > from
}

// Text reads a string. What is no UTF-8 and lone surrogates become U+FFFD.
func (r *Reader[T]) Text() (string, error) {
	if r.Peek() != Text {
		return "", r.bad("no text")
	}
	from, to, plain, err := r.quoted()
	if err != nil {
		return "", err
	}
	if plain {
		return valid(string(r.text[from:to])), nil
	}
	return r.unescape(from, to)
}

// valid puts U+FFFD for every byte that is no UTF-8.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// quoted reads over a string and returns where it is between its quotes; plain is true without any escape.
func (r *Reader[T]) quoted() (from, to int, plain bool, err error) {
	quote := r.text[r.at]
	r.at++
	from, plain = r.at, true
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; {
		case c == quote:
			r.at++
			return from, r.at - 1, plain, nil
		case c == '\\':
			plain = false
			r.at++
		case c < ' ' && (r.syntax == JSON || c == '\n' || c == '\r' || c == 0):
			return 0, 0, false, r.bad("a control character or line break in a text")
		}
	}
	r.at = min(r.at, len(r.text))
	return 0, 0, false, r.bad("a text without an end")
}

// unescape resolves the escapes of the text from from up to to.
func (r *Reader[T]) unescape(from, to int) (string, error) {
	var b strings.Builder
	b.Grow(to - from)
	for at := from; at < to; {
		if c := r.text[at]; c != '\\' {
			b.WriteByte(c)
			at++
			continue
		}
		n, c := r.escape(at+1, to)
		if n == 0 {
			r.at = at
			return "", r.bad("an escape that is unknown or cut")
		}
		if n < 0 { // Python keeps what it does not know
			b.WriteByte('\\')
			at++
			continue
		}
		if c >= 0 {
			b.WriteRune(c)
		}
		at += 1 + n
	}
	return valid(b.String()), nil
}

// escape resolves what follows a backslash: n is its length, 0 for a wrong one and negative for one that is no escape in Python; a
// negative c stands for nothing.
func (r *Reader[T]) escape(at, to int) (n int, c rune) {
	if at >= to {
		return 0, 0
	}
	first := r.text[at]
	switch first {
	case '"', '\\':
		return 1, rune(first)
	case 'b':
		return 1, '\b'
	case 'f':
		return 1, '\f'
	case 'n':
		return 1, '\n'
	case 'r':
		return 1, '\r'
	case 't':
		return 1, '\t'
	case 'u':
		return r.unicode(at, to)
	}
	if r.syntax == JSON {
		if first == '/' {
			return 1, '/'
		}
		return 0, 0
	}
	switch first {
	case '\n':
		return 1, -1
	case '\'':
		return 1, '\''
	case 'a':
		return 1, '\a'
	case 'v':
		return 1, '\v'
	case 'x':
		return plus(r.hex(at+1, to, 2))
	case 'U':
		n, c := plus(r.hex(at+1, to, 8))
		if c > utf8.MaxRune {
			return 0, 0
		}
		return n, c
	case 'N':
		return 0, 0
	case '0', '1', '2', '3', '4', '5', '6', '7':
		for n < 3 && at+n < to && '0' <= r.text[at+n] && r.text[at+n] <= '7' {
			c = c*8 + rune(r.text[at+n]-'0')
			n++
		}
		return n, c
	}
	return -1, 0
}

// unicode resolves uXXXX; in JSON two of them may be one character.
func (r *Reader[T]) unicode(at, to int) (n int, c rune) {
	n, c = plus(r.hex(at+1, to, 4))
	if n == 0 || r.syntax != JSON || !utf16.IsSurrogate(c) {
		return n, c
	}
	if at+n+1 < to && r.text[at+n] == '\\' && r.text[at+n+1] == 'u' {
		if m, low := r.hex(at+n+2, to, 4); m > 0 {
			if both := utf16.DecodeRune(c, low); both != utf8.RuneError {
				return n + 2 + m, both
			}
		}
	}
	return n, utf8.RuneError
}

// plus counts the letter before the digits.
func plus(n int, c rune) (int, rune) {
	if n > 0 {
		n++
	}
	return n, c
}

// hex reads n digits; 0 if there are fewer.
func (r *Reader[T]) hex(at, to, n int) (int, rune) {
	if at+n > to {
		return 0, 0
	}
	c := uint32(0)
	for i := range n {
		d := r.text[at+i]
		switch {
		case '0' <= d && d <= '9':
			d -= '0'
		case 'a' <= d && d <= 'f':
			d -= 'a' - 10
		case 'A' <= d && d <= 'F':
			d -= 'A' - 10
		default:
			return 0, 0
		}
		c = c<<4 | uint32(d)
	}
	if c > utf8.MaxRune {
		return n, utf8.MaxRune + 1
	}
	return n, rune(c)
}
