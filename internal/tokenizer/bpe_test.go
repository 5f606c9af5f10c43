package tokenizer

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// reference looks at all pairs again after every merge, as the method is defined.
func reference(t *Tokenizer, ids []int32) []int32 {
	out := slices.Clone(ids)
	for {
		best, at := merge{rank: noMerge}, -1
		for i := range len(out) - 1 {
			if m := t.merges.find(out[i], out[i+1]); m.rank < best.rank {
				best, at = m, i
			}
		}
		if at < 0 {
			return out
		}
		out = slices.Replace(out, at, at+2, best.id)
	}
}

func TestMerges_bothWaysGiveWhatTheDefinitionGives(t *testing.T) {
	t.Parallel()
	tok, err := Load(filepath.Join("testdata", "trained"))
	if err != nil {
		t.Fatal(err)
	}
	same := func(text string) (short, long []int32, ok bool) {
		var ids []int32
		for i := range len(text) {
			ids = append(ids, tok.byteID[text[i]])
		}
		short = reference(tok, ids)
		if len(ids) <= maxShort {
			own := slices.Clone(ids)
			if own = own[:tok.mergeShort(own)]; !slices.Equal(own, short) {
				return short, own, false
			}
		}
		long = ids[:tok.mergeLong(ids)]
		return short, long, slices.Equal(short, long)
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"print", "int", "in", " ", "t", "su", "m", "max", "p", "ü", "a"}), 0, 60).Draw(rt, "parts"), "")
		if short, long, ok := same(text); !ok {
			rt.Errorf("%q: got %v, want %v", text, long, short)
		}
	})
	for _, unit := range []string{" ", "print", "in", "aaab", "sum"} { // ties everywhere: the leftmost comes first
		if short, long, ok := same(strings.Repeat(unit, 100)); !ok {
			t.Errorf("%q repeated: got %d ids, want %d", unit, len(long), len(short))
		}
	}
}

// FuzzMerges compares both ways with the definition on any bytes.
func FuzzMerges(f *testing.F) {
	tok, err := Load(filepath.Join("testdata", "trained"))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"", "a", "print(sum(map(int, input().split())))", strings.Repeat("aab", 50), strings.Repeat("  ", 40)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var ids []int32
		for i := range min(len(text), 300) {
			ids = append(ids, tok.byteID[text[i]])
		}
		want := reference(tok, ids)
		long := slices.Clone(ids)
		if long = long[:tok.mergeLong(long)]; !slices.Equal(long, want) {
			t.Errorf("%q: the queue gives %v, want %v", text, long, want)
		}
		if len(ids) > maxShort {
			return
		}
		if ids = ids[:tok.mergeShort(ids)]; !slices.Equal(ids, want) {
			t.Errorf("%q: the scan gives %v, want %v", text, ids, want)
		}
	})
}
