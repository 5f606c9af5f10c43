package tokenizer

import "unicode/utf8"

// pattern is the split expression of the family; tokenizer.json must carry exactly this one.
const pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// class is what the pattern tells apart.
type class uint8

const (
	other class = iota
	letter
	number
	space
)

var asciiClass = func() (t [utf8.RuneSelf]class) {
	for b := range t {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z':
			t[b] = letter
		case b >= '0' && b <= '9':
			t[b] = number
		case b >= '\t' && b <= '\r', b == ' ':
			t[b] = space
		}
	}
	return t
}()

// classRange is a range of characters of one class.
type classRange struct {
	first, last rune
	class       class
}

// pages hold the classes of 256 characters each, and pageOf the page of a character by its upper bits. Most pages are all of one class
// and shared.
var pages, pageOf = paginate()

func paginate() (pages [][256]class, of [(utf8.MaxRune + 1) / 256]uint16) {
	pages = make([][256]class, space+1, 256) // of one class, by their class
	for c := range pages {
		for i := range pages[c] {
			pages[c][i] = class(c) //nolint:gosec // one of four
		}
	}
	var mixed [256]class
	next := 0 // the range that ends at or behind r
	for n := range of {
		begin := rune(n) * 256 //nolint:gosec // up to the last character
		for next < len(classes) && classes[next].last < begin {
			next++
		}
		switch {
		case n == 0: // ASCII is not in the ranges
		case next == len(classes) || classes[next].first > begin+0xff:
			continue // all other
		case classes[next].first <= begin && classes[next].last >= begin+0xff:
			of[n] = uint16(classes[next].class)
			continue
		}
		for i := range mixed {
			r := begin + rune(i) //nolint:gosec // as above
			for next < len(classes) && classes[next].last < r {
				next++
			}
			switch {
			case r < utf8.RuneSelf:
				mixed[i] = asciiClass[r]
			case next < len(classes) && classes[next].first <= r:
				mixed[i] = classes[next].class
			default:
				mixed[i] = other
			}
		}
		of[n] = uint16(len(pages)) //nolint:gosec // fewer pages than upper bits
		pages = append(pages, mixed)
	}
	return pages, of
}

// classOf returns the class that r has in the edition of Unicode that Qwen's tokenizers library has in its regular expressions. That
// of the Go release is another one, and changes with the release.
func classOf(r rune) class { return pages[pageOf[r>>8]][r&0xff] }

// classAt returns the class and the width of the character at the beginning of s. A byte that is not UTF-8 is a
// character that is neither letter nor number nor space.
func classAt(s string) (class, int) {
	if b := s[0]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}
	r, w := utf8.DecodeRuneInString(s)
	return classOf(r), w
}

// nextPiece returns the length in bytes of the first piece of s by pattern; s must not be empty.
func nextPiece(s string) int {
	if n := contraction(s); n > 0 {
		return n
	}
	c, w := classAt(s)
	switch {
	case c == letter:
		return w + run(s[w:], letter)
	case c == number:
		return w
	case s[0] != '\r' && s[0] != '\n': // one character may stand in front of letters
		if n := run(s[w:], letter); n > 0 {
			return w + n
		}
	}
	if n := symbols(s); n > 0 {
		return n
	}
	return spaces(s)
}

// run is the length of the characters of class want at the beginning of s.
func run(s string, want class) int {
	n := 0
	for n < len(s) {
		if b := s[n]; b < utf8.RuneSelf {
			if asciiClass[b] != want {
				break
			}
			n++
			continue
		}
		c, w := classAt(s[n:])
		if c != want {
			break
		}
		n += w
	}
	return n
}

// contraction matches (?i:'s|'t|'re|'ve|'m|'ll|'d); the letters fold by ASCII, and U+017F folds to s.
func contraction(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	second := byte(0)
	if len(s) > 2 {
		second = lower(s[2])
	}
	switch lower(s[1]) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if second == 'e' {
			return 3
		}
	case 'l':
		if second == 'l' {
			return 3
		}
	case 0xc5: // with BF it is U+017F
		if second == 0xbf {
			return 3
		}
	}
	return 0
}

func lower(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// symbols matches " ?[^\s\p{L}\p{N}]+[\r\n]*".
func symbols(s string) int {
	begin := 0
	if s[0] == ' ' {
		begin = 1
	}
	n := begin + run(s[begin:], other)
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
		c, w := classAt(s[n:])
		if c != space {
			break
		}
		if s[n] == '\r' || s[n] == '\n' {
			lastBreak = n + 1
		}
		n += w
		lastWidth = w
	}
	switch {
	case lastBreak > 0:
		return lastBreak
	case n == len(s) || n == lastWidth:
		return n
	}
	return n - lastWidth // one character goes to what follows
}
