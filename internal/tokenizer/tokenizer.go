package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Tokenizer is immutable after loading, but for a cache of pieces. All methods may be called from any goroutine.
type Tokenizer struct {
	merges mergeTable
	byteID [256]int32
	bytes  [][]byte // by id; nil: no token
	added  []Added  // by length, longest first, so that the longest match wins
	// addedStart marks the first bytes of added tokens.
	addedStart [256]bool
	byID       map[int32]Added
	byText     map[string]int32
	digest     string
	cache      *cache
}

// Added is a token that is matched as a whole in template text.
type Added struct {
	ID      int32
	Text    string
	Special bool // hidden by Decode with skipSpecial
}

// Size is one more than the largest id.
func (t *Tokenizer) Size() int { return len(t.bytes) }

// Has reports whether id is a token.
func (t *Tokenizer) Has(id int32) bool {
	return id >= 0 && int(id) < len(t.bytes) && t.bytes[id] != nil
}

// Digest is the SHA-256 of the tokenizer.json it was read from.
func (t *Tokenizer) Digest() string { return t.digest }

// ID returns the id of an added token by its text.
func (t *Tokenizer) ID(added string) (int32, bool) {
	id, ok := t.byText[added]
	return id, ok
}

// Added returns the added token of an id.
func (t *Tokenizer) Added(id int32) (Added, bool) {
	a, ok := t.byID[id]
	return a, ok
}

// Part is a stretch of text. Only in trusted text (of a template) are added tokens recognised.
type Part struct {
	Text    string
	Trusted bool
}

// Encode returns the ids of template text: added tokens in it are recognised, before NFC.
func (t *Tokenizer) Encode(text string) []int32 { return t.EncodeParts([]Part{{text, true}}) }

// EncodePlain returns the ids of untrusted text: nothing in it becomes an added token.
func (t *Tokenizer) EncodePlain(text string) []int32 { return t.appendPlain(nil, text) }

// EncodeParts returns the ids of the joined text of parts. Pieces and merges cross the borders of parts, so the result
// is that of the whole text; but an added token counts only where all of it is trusted.
func (t *Tokenizer) EncodeParts(parts []Part) []int32 {
	var whole strings.Builder
	var edges []int // alternating: begin and end of trusted stretches
	for _, p := range parts {
		if p.Trusted && p.Text != "" {
			if n := len(edges); n > 0 && edges[n-1] == whole.Len() {
				edges = edges[:n-1]
			} else {
				edges = append(edges, whole.Len())
			}
			edges = append(edges, whole.Len()+len(p.Text))
		}
		whole.WriteString(p.Text)
	}
	text := whole.String()
	var out []int32
	done := 0
	for e := 0; e < len(edges); e += 2 {
		for at := edges[e]; at < edges[e+1]; {
			i, a := t.nextAdded(text[at:edges[e+1]])
			if i < 0 {
				break
			}
			out = append(t.appendPlain(out, text[done:at+i]), a.ID)
			at += i + len(a.Text)
			done = at
		}
	}
	return t.appendPlain(out, text[done:])
}

// nextAdded finds the first added token in text, the longest of those that begin there; -1 if there is none.
func (t *Tokenizer) nextAdded(text string) (int, Added) {
	for at := range len(text) {
		if !t.addedStart[text[at]] {
			continue
		}
		for _, a := range t.added {
			if strings.HasPrefix(text[at:], a.Text) {
				return at, a
			}
		}
	}
	return -1, Added{}
}

func (t *Tokenizer) appendPlain(out []int32, text string) []int32 {
	text = nfc(text)
	out = slices.Grow(out, len(text)/4) // of code; the rest is grown where it is needed
	for len(text) > 0 {
		n := nextPiece(text)
		out = t.appendPiece(out, text[:n])
		text = text[n:]
	}
	return out
}

func (t *Tokenizer) appendPiece(out []int32, piece string) []int32 {
	switch {
	case len(piece) == 1:
		return append(out, t.byteID[piece[0]])
	case len(piece) > maxCachePiece:
		return t.bpe(piece, out)
	}
	return t.cache.appendIDs(out, piece, t.bpe)
}

// Decode returns the text of ids; broken UTF-8 becomes U+FFFD. With skipSpecial, special added tokens are left
// out (others, such as the think and tool tags, stay). Ids without a token give nothing.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	return repair(t.DecodeBytes(ids, skipSpecial))
}

// Odd is a place in decoded text that stands for something which is not text.
type Odd struct {
	At   int    // where in the text, in bytes
	What string // such as "the control token <|im_start|>"
}

// Written returns the text of sampled ids with nothing left out, and the places that are not text: special tokens, which are spelled
// out; ids without a token and bytes that are not UTF-8, which become U+FFFD. Where none is odd, it is what Decode gives.
func (t *Tokenizer) Written(ids []int32) (text string, odd []Odd) {
	var out strings.Builder
	var held []byte
	flush := func() {
		for len(held) > 0 {
			n := 0 // of whole characters
			for n < len(held) {
				r, w := utf8.DecodeRune(held[n:])
				if r == utf8.RuneError && w == 1 {
					break
				}
				n += w
			}
			out.Write(held[:n])
			if held = held[n:]; len(held) > 0 {
				odd = append(odd, Odd{out.Len(), "bytes that are not UTF-8"})
				out.WriteRune(utf8.RuneError)
				held = held[brokenPart(held):]
			}
		}
		held = held[:0]
	}
	for _, id := range ids {
		switch a := t.byID[id]; {
		case !t.Has(id):
			flush()
			odd = append(odd, Odd{out.Len(), fmt.Sprintf("the id %d, which is no token", id)})
			out.WriteRune(utf8.RuneError)
		case a.Special:
			flush()
			odd = append(odd, Odd{out.Len(), "the control token " + a.Text})
			out.WriteString(a.Text)
		default:
			held = append(held, t.bytes[id]...)
		}
	}
	flush()
	return out.String(), odd
}

// DecodeBytes is Decode without the repair of broken UTF-8.
func (t *Tokenizer) DecodeBytes(ids []int32, skipSpecial bool) []byte {
	out := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		out = t.appendBytes(out, id, skipSpecial)
	}
	return out
}

func (t *Tokenizer) appendBytes(out []byte, id int32, skipSpecial bool) []byte {
	if id < 0 || int(id) >= len(t.bytes) || skipSpecial && t.byID[id].Special {
		return out
	}
	return append(out, t.bytes[id]...)
}

// Stream decodes ids as they come and holds back an incomplete character at the end.
type Stream struct {
	t    *Tokenizer
	skip bool
	held []byte
}

// Stream returns a decoder of one sequence.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream { return &Stream{t: t, skip: skipSpecial} }

// Next returns the text that id completes.
func (s *Stream) Next(id int32) string {
	s.held = s.t.appendBytes(s.held, id, s.skip)
	n := len(s.held)
	for back := 1; back <= min(3, n); back++ { // an unfinished character has at most three bytes
		if b := s.held[n-back]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(s.held[n-back:]) {
				n -= back
			}
			break
		}
	}
	text := repair(s.held[:n])
	s.held = append(s.held[:0], s.held[n:]...)
	return text
}

// Flush returns what is held back, repaired.
func (s *Stream) Flush() string {
	text := repair(s.held)
	s.held = nil
	return text
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
