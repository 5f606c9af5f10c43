package config_test

import (
	"strings"
	"testing"

	"github.com/steadyrl/steady/config"
)

// Keys are those of the reference, no more and no less, each with its meaning.
func TestKeys_areThoseOfTheReference(t *testing.T) {
	t.Parallel()
	reference := config.Reference()
	keys := config.Keys()
	for _, k := range keys {
		if k.Doc == "" || !strings.Contains(reference, "\n| `"+k.Name+"` |") {
			t.Errorf("key %q (%q) is not in the reference", k.Name, k.Doc)
		}
	}
	_, table, _ := strings.Cut(reference, "## Keys")
	if n := strings.Count(table, "\n| `"); n != len(keys) {
		t.Errorf("%d keys, the reference has %d", len(keys), n)
	}
}
