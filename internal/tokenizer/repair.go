package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// repair returns b as text, each maximal broken part of a character replaced by one U+FFFD, as the Rust and the
// web decoders do (Unicode standard, section 3.9).
func repair(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, w := utf8.DecodeRune(b)
		if r == utf8.RuneError && w == 1 {
			w = brokenPart(b)
		}
		out.WriteRune(r)
		b = b[w:]
	}
	return out.String()
}

// brokenPart is the length of the longest beginning of b that could begin a character, at least 1.
func brokenPart(b []byte) int {
	need, lo, hi := 0, byte(0x80), byte(0xbf)
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		need = 1
	case c >= 0xe0 && c <= 0xef:
		need = 2
		if c == 0xe0 {
			lo = 0xa0
		} else if c == 0xed {
			hi = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		need = 3
		if c == 0xf0 {
			lo = 0x90
		} else if c == 0xf4 {
			hi = 0x8f
		}
	}
	n := 1
	for n <= need && n < len(b) && b[n] >= lo && b[n] <= hi {
		n++
		lo, hi = 0x80, 0xbf
	}
	return n
}
