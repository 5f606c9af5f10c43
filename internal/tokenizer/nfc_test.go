package tokenizer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
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
		if at, _ := nextLater(text); at >= 0 {
			rt.Skip("the norm package knows more characters")
		}
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

// rows calls each with every line of a golden file.
func rows[T any](t *testing.T, name string, each func(T)) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	n := 0
	for ; lines.Scan(); n++ {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		each(row)
	}
	if err := lines.Err(); err != nil || n == 0 {
		t.Fatalf("%d lines, %v", n, err)
	}
}

// Characters that are younger than edition 9.0, in every order with marks and bases, give what Qwen's library gives.
func TestNFC_goldenTextsWithLaterCharacters(t *testing.T) {
	t.Parallel()
	type row struct{ Text, NFC string }
	rows(t, "testdata/nfc.jsonl", func(r row) {
		if got := nfc(r.Text); got != r.NFC {
			t.Errorf("form C of %+q is %+q, want %+q", r.Text, got, r.NFC)
		}
	})
}

// Every character, in contexts that show its class, its decomposition and what it composes with, and its class in the split
// pattern, by digests of what Qwen's library makes of them. A Go release or a norm package with newer tables that would change
// any id fails here; testdata/unicode.py says how the contexts are made.
func TestUnicode_everyCharacterIsThatOfTheLibrary(t *testing.T) {
	t.Parallel()
	type row struct {
		First        rune
		NFC, Classes string
	}
	digest := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:8])
	}
	seen := 0
	rows(t, "testdata/unicode.jsonl", func(r row) {
		var forms, classes strings.Builder
		for c := r.First; c < r.First+0x1000; c++ {
			if !utf8.ValidRune(c) {
				continue
			}
			seen++
			s, decomposed := string(c), string(c)
			if !isLater(c) {
				decomposed = norm.NFD.String(s)
			}
			forms.WriteString(nfc("q\u0345" + s + "\u0334" + s + "a\u0301" + s + "\u0323e" + s + "\u0301\u0307\u3099 " + decomposed + "\n"))
			classes.WriteByte("-LNS"[classOf(c)])
		}
		if got := digest(forms.String()); got != r.NFC {
			t.Errorf("characters from %#x: form C has the digest %s, want %s", r.First, got, r.NFC)
		}
		if got := digest(classes.String()); got != r.Classes {
			t.Errorf("characters from %#x: their classes have the digest %s, want %s", r.First, got, r.Classes)
		}
	})
	if seen != 0x40000-0x800+0x1000 { // the planes in which there are characters
		t.Errorf("%d characters were checked", seen)
	}
}
