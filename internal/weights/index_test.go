package weights

import (
	"os"
	"testing"
)

// The published index comes out byte for byte when sharded as published.
func TestIndex_publishedModel(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/model.safetensors.index.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := LoadConfig("testdata")
	if err != nil {
		t.Fatal(err)
	}
	// Upstream's limit; sizes only, since 8 GB of data would prove nothing more.
	groups, total := split(c.Tensors(), BF16, 4_000_000_000)
	got, err := encodeIndex(groups, total)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("index of %d bytes differs from the published one of %d bytes", len(got), len(want))
	}
}
