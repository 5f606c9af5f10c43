package tokenizer

import (
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// Train learns a byte-level BPE from a corpus and returns its tokenizer.json, in the form that the Hugging Face
// library reads: 256 byte tokens, then merges, then the added tokens, size tokens in all.
//
// Determinism: a pure function of its arguments; of equally frequent pairs the one with the smaller ids is
// merged first. Errors: Invalid if size has no room for the bytes and the added tokens.
func Train(corpus iter.Seq[string], size int, added []Added) ([]byte, error) {
	room := size - 256 - len(added)
	if room < 0 {
		return nil, fault.New(fault.Invalid, "tokenizer.Train", "a vocabulary of %d has no room for 256 bytes and %d added tokens", size, len(added))
	}
	tr := newTrainer(corpus)
	for len(tr.spell) < 256+room && tr.mergeOnce() { //nolint:revive // the condition does the work
	}
	next := int32(len(tr.spell)) //nolint:gosec // small
	var tokens []fileAdded
	for i, a := range added {
		tokens = append(tokens, fileAdded{ID: next + int32(i), Content: a.Text, Special: a.Special}) //nolint:gosec // small
	}
	return marshal(tr, tokens)
}

type word struct {
	ids   []int32
	count int
}

// pair is two neighbouring ids.
type pair [2]int32

type bpeTrainer struct {
	words  []word
	spell  []string // by id, in the byte alphabet
	merges []pair
}

func newTrainer(corpus iter.Seq[string]) *bpeTrainer {
	counts := map[string]int{}
	for text := range corpus {
		text = nfc(text)
		for len(text) > 0 {
			n := nextPiece(text)
			counts[text[:n]]++
			text = text[n:]
		}
	}
	tr := &bpeTrainer{}
	order := make([]int, 256) // ids of the bytes follow the characters that stand for them
	for b := range 256 {
		order[b] = b
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(byteRune[a], byteRune[b]) })
	var byteID [256]int32
	for id, b := range order {
		byteID[b] = int32(id) //nolint:gosec // below 256
		tr.spell = append(tr.spell, string(byteRune[b]))
	}
	pieces := make([]string, 0, len(counts))
	for p := range counts {
		pieces = append(pieces, p)
	}
	slices.Sort(pieces)
	for _, p := range pieces {
		w := word{count: counts[p]}
		for i := range len(p) {
			w.ids = append(w.ids, byteID[p[i]])
		}
		tr.words = append(tr.words, w)
	}
	return tr
}

// mergeOnce merges the most frequent pair; false if no pair occurs twice.
func (tr *bpeTrainer) mergeOnce() bool {
	counts := map[pair]int{}
	for _, w := range tr.words {
		for i := range len(w.ids) - 1 {
			counts[pair{w.ids[i], w.ids[i+1]}] += w.count
		}
	}
	var best pair
	most := 1
	for p, n := range counts { // the order does not matter: ties are decided by the ids
		if n > most || n == most && n > 1 && slices.Compare(p[:], best[:]) < 0 {
			best, most = p, n
		}
	}
	if most < 2 {
		return false
	}
	id := tr.idOf(tr.spell[best[0]] + tr.spell[best[1]])
	tr.merges = append(tr.merges, best)
	for k := range tr.words {
		w := &tr.words[k]
		out := w.ids[:0]
		for i := 0; i < len(w.ids); i++ {
			if i+1 < len(w.ids) && w.ids[i] == best[0] && w.ids[i+1] == best[1] {
				out = append(out, id)
				i++
				continue
			}
			out = append(out, w.ids[i])
		}
		w.ids = out
	}
	return true
}

// idOf returns the token of a spelling, which two merges may share.
func (tr *bpeTrainer) idOf(spelling string) int32 {
	if i := slices.Index(tr.spell, spelling); i >= 0 {
		return int32(i) //nolint:gosec // small
	}
	tr.spell = append(tr.spell, spelling)
	return int32(len(tr.spell) - 1) //nolint:gosec // small
}

func marshal(tr *bpeTrainer, added []fileAdded) ([]byte, error) {
	no := false
	f := file{
		Version: "1.0", AddedTokens: added,
		Normalizer: &component{Type: "NFC"},
		PreTokenizer: &component{Type: "Sequence", Pretokenizers: []component{
			{Type: "Split", Pattern: &filePattern{Regex: pattern}, Behavior: "Isolated", Invert: &no},
			{Type: "ByteLevel", AddPrefixSpace: &no, TrimOffsets: &no, UseRegex: &no},
		}},
		PostProcessor: &component{Type: "ByteLevel", AddPrefixSpace: &no, TrimOffsets: &no, UseRegex: &no},
		Decoder:       &component{Type: "ByteLevel", AddPrefixSpace: &no, TrimOffsets: &no, UseRegex: &no},
		Model:         fileModel{Type: "BPE", Vocab: map[string]int32{}},
	}
	for id, s := range tr.spell {
		f.Model.Vocab[s] = int32(id) //nolint:gosec // small
	}
	for _, m := range tr.merges {
		raw, err := json.Marshal([]string{tr.spell[m[0]], tr.spell[m[1]]})
		if err != nil {
			return nil, fault.New(fault.Internal, "tokenizer.Train", "%w", err)
		}
		f.Model.Merges = append(f.Model.Merges, raw)
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(f); err != nil {
		return nil, fault.New(fault.Internal, "tokenizer.Train", "%w", err)
	}
	return []byte(b.String()), nil
}
