package tokenizer_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// Goroutines share a tokenizer and with it the cache of pieces, which has fewer places than the texts have pieces. Each must
// get what a tokenizer of its own gives. `make race` runs it under the race detector.
func TestEncode_sharedByGoroutines(t *testing.T) {
	t.Parallel()
	data, err := tokenizer.Train(slices.Values([]string{strings.Repeat("the quick brown fox if x == y: return 12345\n", 20)}), 330, nil)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, 8)
	for i := range texts {
		r := rng.New(7, rng.Data, i%4) // two goroutines at once miss and fill the same places
		var b strings.Builder
		for at := range uint64(20_000) {
			word := r.Block(at)
			for i := range 1 + word[0]%8 {
				b.WriteByte('a' + byte(word[1]>>(4*i)%16))
			}
			b.WriteByte(' ')
		}
		texts[i] = b.String()
	}
	var all sync.WaitGroup
	for _, text := range texts {
		all.Go(func() {
			own, err := tokenizer.Parse(data)
			if err != nil {
				t.Error(err)
				return
			}
			want := own.EncodePlain(text)
			for range 2 {
				if !slices.Equal(shared.EncodePlain(text), want) {
					t.Error("a shared tokenizer gives other ids")
				}
			}
		})
	}
	all.Wait()
}
