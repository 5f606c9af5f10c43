package tokenizer

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMergeLong_givesWhatMergeShortGives(t *testing.T) {
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
		short = tok.mergeShort(slices.Clone(ids))
		long = tok.mergeLong(ids)
		return short, long, slices.Equal(short, long)
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"print", "int", "in", " ", "t", "su", "m", "max", "p", "ü", "a"}), 0, 60).Draw(rt, "parts"), "")
		if short, long, ok := same(text); !ok {
			rt.Errorf("%q: heap %v, plain %v", text, long, short)
		}
	})
	for _, unit := range []string{" ", "print", "in", "aaab", "sum"} { // ties everywhere: the leftmost comes first
		if short, long, ok := same(strings.Repeat(unit, 300)); !ok {
			t.Errorf("%q repeated: heap %d ids, plain %d", unit, len(long), len(short))
		}
	}
}
