package tokenizer

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// fewMarks is a number of combining marks in a row for which the norm package does not break the run up.
const fewMarks = 8

// nfc is Unicode normalization form C, by edition 9.0 of Unicode, which Qwen's tokenizers library knows: characters that
// are younger stay as they are and where they are. What one edition says of its characters, all later ones say, so no upgrade of the
// norm package can change a result, as long as the table of younger characters holds all that the package knows.
//
// A younger character is a border: nothing composes with it and no mark passes it. Text that is in form C by a later edition is
// so by this one, for there is nothing but borders that could be added.
func nfc(s string) string {
	if norm.NFC.IsNormalString(s) {
		return s
	}
	at, width := nextLater(s)
	if at < 0 {
		return nfcKnown(s)
	}
	var b strings.Builder
	for ; at >= 0; at, width = nextLater(s) {
		b.WriteString(nfcKnown(s[:at]))
		b.WriteString(s[at : at+width])
		s = s[at+width:]
	}
	b.WriteString(nfcKnown(s))
	return b.String()
}

// firstLater is the first byte of the first of the later characters; all begin with this one or a higher one.
var firstLater = string(later[0][0])[0]

// nextLater returns the place and the width of the first character in s that edition 9.0 does not know; at is -1 if there is none.
func nextLater(s string) (at, width int) {
	for at < len(s) {
		if s[at] < firstLater {
			at++
			continue
		}
		r, w := utf8.DecodeRuneInString(s[at:])
		if isLater(r) {
			return at, w
		}
		at += w
	}
	return -1, 0
}

func isLater(r rune) bool {
	i, found := slices.BinarySearchFunc(later[:], r, func(span [2]rune, r rune) int { return cmp.Compare(span[0], r) })
	return found || i > 0 && r <= later[i-1][1]
}

// nfcKnown is form C of text without later characters. The norm package makes text "stream-safe": it inserts U+034F into long runs
// of combining marks, which form C does not do, so such text takes a way of its own.
func nfcKnown(s string) string {
	switch {
	case norm.NFC.IsNormalString(s):
		return s
	case hasMarks(s, fewMarks):
		return nfcAnyLength(s)
	}
	return norm.NFC.String(s)
}

// hasMarks reports whether s has a run of more than n characters that begin with a combining mark.
func hasMarks(s string, n int) bool {
	run := 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			run = 0
			i++
			continue
		}
		p := norm.NFD.PropertiesString(s[i:])
		if p.LeadCCC() == 0 {
			run = 0
		} else if run++; run > n {
			return true
		}
		i += max(p.Size(), 1)
	}
	return false
}

// mark is a character with its canonical combining class; 0 for characters that begin a cluster.
type mark struct {
	text  string
	class uint8
}

// nfcAnyLength is form C by its definition: decompose, order marks by class, compose with the unblocked base.
func nfcAnyLength(s string) string {
	all := decompose(s)
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].class != 0 {
			j++
		}
		slices.SortStableFunc(all[i:j], func(a, b mark) int { return cmp.Compare(a.class, b.class) })
		i = j + 1
	}
	var out []mark
	base := -1
	for _, m := range all {
		// The previous class is 0 where m follows the base directly; equal or higher classes between them block it.
		if base >= 0 && (len(out)-1 == base || out[len(out)-1].class < m.class) {
			if one, ok := compose(out[base].text, m.text); ok {
				out[base].text = one
				continue
			}
		}
		if m.class == 0 {
			base = len(out)
		}
		out = append(out, m)
	}
	var b strings.Builder
	for _, m := range out {
		b.WriteString(m.text)
	}
	return b.String()
}

// decompose splits s into characters of its canonical decomposition. Hangul syllables stay whole, which form C undoes
// anyway, and so do bytes that are not UTF-8.
func decompose(s string) []mark {
	var out []mark
	for len(s) > 0 {
		p := norm.NFD.PropertiesString(s)
		n := max(p.Size(), 1)
		if d := p.Decomposition(); d != nil {
			for _, r := range string(d) {
				c := string(r)
				out = append(out, mark{c, norm.NFD.PropertiesString(c).CCC()})
			}
		} else {
			out = append(out, mark{s[:n], p.CCC()})
		}
		s = s[n:]
	}
	return out
}

// compose returns the one character that a base and a mark form, if there is one.
func compose(base, m string) (string, bool) {
	if !utf8.ValidString(base) || !utf8.ValidString(m) {
		return "", false
	}
	one := norm.NFC.String(base + m)
	return one, utf8.RuneCountInString(one) == 1
}
