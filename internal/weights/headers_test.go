package weights_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/weights"
)

// The headers alone decide; each disagreement with the configuration names the tensor.
func TestCheckHeaders_comparesNamesAndShapes(t *testing.T) {
	t.Parallel()
	c := model.Config{
		Vocab: 6, Hidden: 4, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 2, Intermediate: 5, MaxPosition: 8, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
	}
	dir := func(tensors []weights.Named) string {
		data, err := weights.WriteFile(tensors, weights.BF16)
		if err != nil {
			t.Fatal(err)
		}
		d := t.TempDir()
		if err := os.WriteFile(filepath.Join(d, weights.SingleFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		return d
	}
	all := func() []weights.Named { return weights.Tensors(model.NewWeights(c)) }
	head := weights.Named{Name: "lm_head.weight", Shape: []int{6, 4}, Data: make([]float32, 24)}
	for name, tt := range map[string]struct {
		dir   string
		found bool
		bad   string
	}{
		"whole":          {dir(all()), true, ""},
		"a tied head":    {dir(append(all(), head)), true, ""},
		"no weights":     {t.TempDir(), false, ""},
		"one is missing": {dir(all()[1:]), true, "model.embed_tokens.weight"},
		"a foreign one":  {dir(append(all(), weights.Named{Name: "extra", Shape: []int{1}, Data: []float32{0}})), true, "extra"},
		"another shape": {func() string {
			w := all()
			w[0].Shape = []int{4, 6}
			return dir(w)
		}(), true, "shape [4 6], config.json says [6 4]"},
	} {
		found, err := weights.CheckHeaders(tt.dir, c)
		if found != tt.found || (err == nil) != (tt.bad == "") || err != nil && (!fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), tt.bad)) {
			t.Errorf("%s: found %v, %v; want %v, %q", name, found, err, tt.found, tt.bad)
		}
	}
	untied := c
	untied.TieEmbedding = false
	if _, err := weights.CheckHeaders(dir(all()), untied); err == nil || !strings.Contains(err.Error(), "lm_head.weight") {
		t.Errorf("a head of its own is missing: %v", err)
	}
	d := dir(append(all(), head))
	if _, err := weights.CheckHeaders(d, untied); err != nil {
		t.Errorf("a head of its own: %v", err)
	}
}
