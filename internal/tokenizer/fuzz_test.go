package tokenizer_test

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// both are the bundled tokenizer and, where it was fetched, Qwen3's.
func both(tb testing.TB) []*tokenizer.Tokenizer {
	tb.Helper()
	data, err := fs.ReadFile(demo.Model(), tokenizer.FileName)
	if err != nil {
		tb.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		tb.Fatal(err)
	}
	out := []*tokenizer.Tokenizer{tok}
	if big, err := qwen3(); err == nil {
		out = append(out, big)
	}
	return out
}

// texts calls seed with the golden texts and with some that are not UTF-8.
func texts(tb testing.TB, seed func(string)) {
	tb.Helper()
	rows(tb, "tokenizer_qwen3.jsonl", func(v struct{ Text string }) { seed(v.Text) })
	for _, s := range []string{"\xff", "a\xc3", "\xe2\x82<|im_end|>", "\xf0\x9f\x99", "q" + strings.Repeat("\u0301", 40), strings.Repeat("ab", 200)} {
		seed(s)
	}
}

// FuzzEncode: what is encoded comes back in normal form, untrusted text never becomes a control token, and the ids of
// a text with a control token in it are those of the stretches around it.
func FuzzEncode(f *testing.F) {
	toks := both(f)
	texts(f, func(s string) { f.Add(s) })
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range toks {
			plain, ids := tok.EncodePlain(text), tok.Encode(text)
			for _, id := range plain {
				if a, ok := tok.Added(id); ok {
					t.Fatalf("untrusted %q has the control token %s", text, a.Text)
				}
			}
			back := tok.DecodeBytes(plain, false)
			checkForm(t, text, back)
			if norm.NFC.IsNormalString(text) { // so is every stretch of it, then
				if got := tok.DecodeBytes(ids, false); string(got) != text {
					t.Fatalf("%q comes back as %q", text, got)
				}
			}
			if again := tok.EncodePlain(string(back)); !slices.Equal(again, plain) {
				t.Fatalf("%q encodes to %v, what comes back of it to %v", text, plain, again)
			}
			end, _ := tok.ID("<|im_end|>")
			whole := tok.Encode(text + "<|im_end|>" + text)
			if want := slices.Concat(ids, []int32{end}, ids); !slices.Equal(whole, want) {
				t.Fatalf("%q around a control token encodes to %v, want %v", text, whole, want)
			}
		}
	})
}

// checkForm compares what came back with text: equal if text is in form C, and else with what the norm package says, which
// is no form C in runs of more than 30 marks.
func checkForm(t *testing.T, text string, back []byte) {
	t.Helper()
	want := norm.NFC.String(text)
	if strings.Count(want, "\u034f") != strings.Count(text, "\u034f") {
		return
	}
	if string(back) != want {
		t.Fatalf("%q comes back as %q, want %q", text, back, want)
	}
}

// FuzzEncodeParts: the ids are those of the whole text, but for control tokens that are not wholly trusted. Parts of one
// kind are as good as one part.
func FuzzEncodeParts(f *testing.F) {
	toks := both(f)
	texts(f, func(s string) {
		f.Add("<|im_start|>user\n"+s, s, s+"<|im_end|>\n", uint(len(s)/2))
		f.Add("<|im_", "start|>", s, uint(3))
	})
	f.Fuzz(func(t *testing.T, head, middle, tail string, cut uint) {
		cut %= uint(len(middle)) + 1
		for _, tok := range toks {
			parts := func(trusted ...bool) []tokenizer.Part {
				return []tokenizer.Part{
					{Text: head, Trusted: trusted[0]}, {Text: middle[:cut], Trusted: trusted[1]}, {Text: middle[cut:], Trusted: trusted[1]}, {Text: tail, Trusted: trusted[2]},
				}
			}
			whole := head + middle + tail
			if got, want := tok.EncodeParts(parts(true, true, true)), tok.Encode(whole); !slices.Equal(got, want) {
				t.Fatalf("trusted parts of %q give %v, the whole %v", whole, got, want)
			}
			if got, want := tok.EncodeParts(parts(false, false, false)), tok.EncodePlain(whole); !slices.Equal(got, want) {
				t.Fatalf("untrusted parts of %q give %v, the whole %v", whole, got, want)
			}
			got := tok.EncodeParts(parts(true, false, true))
			want := slices.Concat(controlIDs(tok, tok.Encode(head)), controlIDs(tok, tok.Encode(tail)))
			if !slices.Equal(controlIDs(tok, got), want) {
				t.Fatalf("%q, untrusted %q, %q: control tokens %v, want %v", head, middle, tail, controlIDs(tok, got), want)
			}
			if norm.NFC.IsNormalString(whole) && string(tok.DecodeBytes(got, false)) != whole {
				t.Fatalf("%q comes back as %q", whole, tok.DecodeBytes(got, false))
			}
		}
	})
}

// controlIDs are the added tokens among ids.
func controlIDs(tok *tokenizer.Tokenizer, ids []int32) (out []int32) {
	for _, id := range ids {
		if _, ok := tok.Added(id); ok {
			out = append(out, id)
		}
	}
	return out
}

// FuzzDecode: text is valid whatever the ids are, a beginning of the ids gives a beginning of the bytes, and a stream
// that is stopped after any token has given what decoding at once gives.
func FuzzDecode(f *testing.F) {
	toks := both(f)
	texts(f, func(s string) {
		var raw []byte
		for _, id := range toks[len(toks)-1].Encode(s) {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(id)) //nolint:gosec // same bits
		}
		f.Add(raw, true, false)
		f.Add([]byte(s), false, true)
	})
	f.Fuzz(func(t *testing.T, raw []byte, wide, skip bool) {
		for _, tok := range toks {
			var ids []int32
			for i := 0; i < min(len(raw), 400); {
				if wide {
					if i+4 > len(raw) {
						break
					}
					ids = append(ids, int32(binary.LittleEndian.Uint32(raw[i:]))) //nolint:gosec // any id
					i += 4
				} else { // mostly bytes, so that characters break
					ids = append(ids, tok.EncodePlain(string(raw[i:i+1]))...)
					i++
				}
			}
			checkStream(t, tok, ids, skip)
		}
	})
}

func checkStream(t *testing.T, tok *tokenizer.Tokenizer, ids []int32, skip bool) {
	t.Helper()
	all, text := tok.DecodeBytes(ids, skip), tok.Decode(ids, skip)
	if !utf8.ValidString(text) || utf8.Valid(all) && text != string(all) {
		t.Fatalf("%v decodes to %q, the bytes are %q", ids, text, all)
	}
	var given string
	live := tok.Stream(skip)
	for n, id := range ids {
		if begin := tok.DecodeBytes(ids[:n], skip); !bytes.HasPrefix(all, begin) {
			t.Fatalf("%v: the first %d ids give %q, all give %q", ids, n, begin, all)
		}
		stopped := tok.Stream(skip)
		var early string
		for _, id := range ids[:n] {
			early += stopped.Next(id)
		}
		if got, want := early+stopped.Flush(), tok.Decode(ids[:n], skip); got != want {
			t.Fatalf("%v: stopped after %d ids the stream has given %q, want %q", ids, n, got, want)
		}
		given += live.Next(id)
		if !strings.HasPrefix(text, given) {
			t.Fatalf("%v: after %d ids the stream has given %q, the text is %q", ids, n+1, given, text)
		}
	}
	if given += live.Flush(); given != text {
		t.Fatalf("%v: the stream gives %q, want %q", ids, given, text)
	}
}
