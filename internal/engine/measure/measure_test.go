package measure

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/model"
)

var small = model.Config{
	Vocab: 40, Hidden: 8, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 12, MaxPosition: 32, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
}

// The counts against ones made by hand from the shapes of the weights.
func TestTraffic_countsWeightsAndCache(t *testing.T) {
	w := 0
	for _, s := range model.NewWeights(small).Specs {
		if len(s.Shape) == 2 {
			w += s.Shape[0] * s.Shape[1]
		}
	}
	if got, want := Traffic(small, 3, 10, 2), float64(2*(w+3*10*2*2*1*4)); got != want {
		t.Errorf("Traffic = %v, want %v", got, want)
	}
	pairs := 0
	for i := range 6 {
		pairs += i + 1
	}
	want := float64(2*6*(w-40*8)) + float64(4*2*2*4*pairs)
	if got := Operations(small, 6); math.Abs(got-want) > float64(2*2*2*4*6) { // the diagonal is counted half
		t.Errorf("Operations = %v, want %v", got, want)
	}
}

func TestSampler_measuresAndReportsErrors(t *testing.T) {
	s, err := cpu.NewSampler(small, cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := model.NewWeights(small)
	w.Init(1, 0.1)
	if err := s.SetWeights(t.Context(), 0, w); err != nil {
		t.Fatal(err)
	}
	var _ engine.Sampler = s
	decode, whole, err := Sampler(t.Context(), s, small, Load{3, 5, 20, 2})
	if err != nil || !(whole > 0) || decode < 0 {
		t.Errorf("Sampler = %v, %v, %v", decode, whole, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Sampler(ended, s, small, Load{3, 5, 20, 2}); err == nil {
		t.Error("a cancelled measurement gives no error")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestPrint_saysShareOfRoofline(t *testing.T) {
	var b strings.Builder
	if err := Print(&b, []Figure{{"decode", 50, "tok/s", 200, "memory"}, {"copy", 4, "TB/s", 0, ""}}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strings.Fields(b.String()), " "); got != "decode 50.00 tok/s 25.0% of 200 (memory) copy 4.00 TB/s" {
		t.Errorf("printed %q", got)
	}
}
