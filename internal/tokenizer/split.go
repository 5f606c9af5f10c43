package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// pattern is the split expression of the family; tokenizer.json must carry exactly this one.
const pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// nextPiece returns the length in bytes of the first piece of s by pattern; s must not be empty. Bytes that
// are not UTF-8 count as one character that is neither letter nor number nor space.
func nextPiece(s string) int {
	if n := contraction(s); n > 0 {
		return n
	}
	r, w := decode(s)
	if n := letters(s, r, w); n > 0 {
		return n
	}
	if unicode.IsNumber(r) {
		return w
	}
	if n := symbols(s, r, w); n > 0 {
		return n
	}
	return spaces(s)
}

func decode(s string) (rune, int) { return utf8.DecodeRuneInString(s) }

// contraction matches (?i:'s|'t|'re|'ve|'m|'ll|'d); the letters fold by ASCII, and by U+017F, which folds to s.
func contraction(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	switch s[1] | 0x20 {
	case 's', 't', 'm', 'd':
		if s[1] >= 'A' {
			return 2
		}
	case 'r', 'v':
		if len(s) > 2 && s[2]|0x20 == 'e' && s[1] >= 'A' && s[2] >= 'A' {
			return 3
		}
	case 'l':
		if len(s) > 2 && s[2]|0x20 == 'l' && s[1] >= 'A' && s[2] >= 'A' {
			return 3
		}
	}
	if len(s) > 2 && s[1] == 0xc5 && s[2] == 0xbf { // 'ſ
		return 3
	}
	return 0
}

// letters matches [^\r\n\p{L}\p{N}]?\p{L}+.
func letters(s string, r rune, w int) int {
	n := 0
	if !unicode.IsLetter(r) {
		if r == '\r' || r == '\n' || unicode.IsNumber(r) {
			return 0
		}
		n = w
	}
	begin := n
	for n < len(s) {
		r, w := decode(s[n:])
		if !unicode.IsLetter(r) {
			break
		}
		n += w
	}
	if n == begin {
		return 0
	}
	return n
}

// symbols matches " ?[^\s\p{L}\p{N}]+[\r\n]*".
func symbols(s string, r rune, w int) int {
	n := 0
	if r == ' ' {
		n = w
	}
	begin := n
	for n < len(s) {
		r, w := decode(s[n:])
		if unicode.IsSpace(r) || unicode.IsLetter(r) || unicode.IsNumber(r) {
			break
		}
		n += w
	}
	if n == begin {
		return 0
	}
	for n < len(s) && (s[n] == '\r' || s[n] == '\n') {
		n++
	}
	return n
}

// spaces matches \s*[\r\n]+ up to the last line break of the run, else \s+(?!\S), else \s+.
func spaces(s string) int {
	n, lastBreak, lastWidth := 0, 0, 0
	for n < len(s) {
		r, w := decode(s[n:])
		if !unicode.IsSpace(r) {
			break
		}
		n += w
		lastWidth = w
		if r == '\r' || r == '\n' {
			lastBreak = n
		}
	}
	switch {
	case lastBreak > 0:
		return lastBreak
	case n == len(s) || n == lastWidth:
		return n
	}
	return n - lastWidth // one character goes to what follows
}
