package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Tokenizer is immutable after loading, but for a cache of pieces. All methods may be called from any goroutine.
type Tokenizer struct {
	merges map[pair]merge
	byteID [256]int32
	bytes  [][]byte // by id; nil: no token
	added  []Added  // by length, longest first, so that the longest match wins
	byID   map[int32]Added
	byText map[string]int32
	digest string

	mu    sync.RWMutex
	cache map[string][]int32
}

// Added is a token that is matched as a whole in template text.
type Added struct {
	ID      int32
	Text    string
	Special bool // hidden by Decode with skipSpecial
}

const (
	maxCache      = 1 << 16
	maxCachePiece = 64
)

// Size is one more than the largest id.
func (t *Tokenizer) Size() int { return len(t.bytes) }

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

// Encode returns the ids of template text: added tokens in it are recognised, before NFC.
func (t *Tokenizer) Encode(text string) []int32 {
	var out []int32
	for len(text) > 0 {
		at, a := t.nextAdded(text)
		if at < 0 {
			return t.appendPlain(out, text)
		}
		out = append(t.appendPlain(out, text[:at]), a.ID)
		text = text[at+len(a.Text):]
	}
	return out
}

// EncodePlain returns the ids of untrusted text: nothing in it becomes an added token.
func (t *Tokenizer) EncodePlain(text string) []int32 { return t.appendPlain(nil, text) }

func (t *Tokenizer) nextAdded(text string) (int, Added) {
	from := 0
	for {
		i := strings.IndexByte(text[from:], '<')
		if !t.allAngled() {
			i = 0
		}
		if i < 0 || from+i >= len(text) {
			return -1, Added{}
		}
		from += i
		for _, a := range t.added {
			if strings.HasPrefix(text[from:], a.Text) {
				return from, a
			}
		}
		from++
	}
}

// allAngled reports whether every added token begins with '<', which makes the search fast.
func (t *Tokenizer) allAngled() bool {
	for _, a := range t.added {
		if a.Text[0] != '<' {
			return false
		}
	}
	return true
}

func (t *Tokenizer) appendPlain(out []int32, text string) []int32 {
	if !norm.NFC.IsNormalString(text) {
		text = norm.NFC.String(text)
	}
	for len(text) > 0 {
		n := nextPiece(text)
		out = t.appendPiece(out, text[:n])
		text = text[n:]
	}
	return out
}

func (t *Tokenizer) appendPiece(out []int32, piece string) []int32 {
	if len(piece) == 1 {
		return append(out, t.byteID[piece[0]])
	}
	if len(piece) > maxCachePiece {
		return t.bpe(piece, out)
	}
	t.mu.RLock()
	ids, ok := t.cache[piece]
	t.mu.RUnlock()
	if ok {
		return append(out, ids...)
	}
	begin := len(out)
	out = t.bpe(piece, out)
	t.mu.Lock()
	if len(t.cache) >= maxCache {
		t.cache = make(map[string][]int32, maxCache)
	}
	t.cache[strings.Clone(piece)] = append([]int32(nil), out[begin:]...)
	t.mu.Unlock()
	return out
}

// Decode returns the text of ids; broken UTF-8 becomes U+FFFD. With skipSpecial, special added tokens are left
// out (others, such as the think and tool tags, stay). Ids without a token give nothing.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	return repair(t.DecodeBytes(ids, skipSpecial))
}

// DecodeBytes is Decode without the repair of broken UTF-8.
func (t *Tokenizer) DecodeBytes(ids []int32, skipSpecial bool) []byte {
	var out []byte
	for _, id := range ids {
		if id < 0 || int(id) >= len(t.bytes) {
			continue
		}
		if a, ok := t.byID[id]; ok && a.Special && skipSpecial {
			continue
		}
		out = append(out, t.bytes[id]...)
	}
	return out
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
	s.held = append(s.held, s.t.DecodeBytes([]int32{id}, s.skip)...)
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
