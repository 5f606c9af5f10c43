package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// Where runs of marks are short, the way for long runs must give what the norm package gives.
func TestNFCAnyLength_agreesWithNormOnShortRuns(t *testing.T) {
	t.Parallel()
	characters := []rune("aeiqſKÅ한\u1100\u1161\u11a8\uac00\u0301\u0323\u0308\u0327\u0344\u0345\u093c\u0958\u0f71\u0f72\u212b\u1e69\u2adc\uf900🙂 \n")
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOfN(rapid.OneOf(rapid.SampledFrom(characters), rapid.Rune()), 0, 12, -1).Draw(rt, "text")
		if got, want := nfcAnyLength(text), norm.NFC.String(text); got != want {
			rt.Errorf("form C of %+q is %+q, want %+q", text, got, want)
		}
	})
}

func TestNFC_longRunsOfMarksAreNotBrokenUp(t *testing.T) {
	t.Parallel()
	acute := func(n int) string { return strings.Repeat("\u0301", n) }
	below := strings.Repeat("\u0323", 40)
	for _, tt := range []struct{ name, text, want string }{
		{"composes with the first", "a" + acute(60), "á" + acute(59)},
		{"orders by class", "q" + acute(40) + below, "q" + below + acute(40)},
		{"composes across the order", "e" + acute(40) + below, "ẹ" + below[len("\u0323"):] + acute(40)},
		{"no base", acute(50), acute(50)},
		{"blocked jamo", "\u1100" + acute(50) + "\u1161", "\u1100" + acute(50) + "\u1161"},
		{"broken bytes stay", "\xffa" + acute(33) + "\xc3", "\xffá" + acute(32) + "\xc3"},
	} {
		if got := nfc(tt.text); got != tt.want {
			t.Errorf("%s: form C of %+q is %+q, want %+q", tt.name, tt.text, got, tt.want)
		}
		if utf8.ValidString(tt.text) && strings.Contains(nfc(tt.text), "\u034f") {
			t.Errorf("%s: a joiner was inserted", tt.name)
		}
	}
}
