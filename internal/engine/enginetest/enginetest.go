package enginetest

import (
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/model"
)

// Backend makes the engines under test.
type Backend struct {
	NewSampler func(c model.Config) (engine.Sampler, error)
	// NewTrainer may be nil for a backend that only samples: then the trainer's tests are left out.
	NewTrainer func(c model.Config, initial *model.Weights) (engine.Trainer, error)
	// Unit is the relative rounding error of one operation of the backend: 2^-53 for float64, 2^-24 for float32,
	// 2^-8 for BF16 with float32 sums. Every tolerance is a multiple of it.
	Unit float64
	// ExactDecode says that the log-probability of a token sampled with a cache has the bits of the
	// training forward pass, so that the gap of an on-policy update is exactly 0.
	ExactDecode bool
}

// Unit values.
const (
	Float64 = 0x1p-53
	Float32 = 0x1p-24
)

// logProbTolerance bounds the error of a log-probability. Logits of the models here are below 16 in magnitude and come from sums of
// at most 200 products in a row of about 10 operations; errors of a random walk grow with the root of that, and 2^8 units of a
// logit is a bound with a wide margin. What is compared is stored as float32, which adds half a unit of it at 8.
func (b Backend) logProbTolerance() float64 { return 16*0x1p8*b.Unit + 8*0x1p-24 }

// gradTolerance is relative to the largest gradient of the tensor. A gradient passes through about twice the operations of a log-probability and
// is a sum over all tokens, whose terms partly cancel: 2^14 units, and what a float32 moment adds.
func (b Backend) gradTolerance() float64 { return 0x1p14*b.Unit + 4*0x1p-24 }

// configs are the shapes: grouped queries with an own head and no width that is a multiple of 8; tied with heads
// wider than hidden/heads; one query head to each key/value head.
var configs = []struct {
	name string
	cfg  model.Config
}{
	{"grouped_untied", model.Config{Vocab: 37, Hidden: 20, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6, Intermediate: 26, MaxPosition: 96, RMSEps: 1e-6, RopeTheta: 1e4}},
	{"wide_heads_tied", model.Config{Vocab: 64, Hidden: 16, Layers: 3, Heads: 2, KVHeads: 1, HeadDim: 16, Intermediate: 32, MaxPosition: 96, RMSEps: 1e-5, RopeTheta: 1e6, TieEmbedding: true}},
	{"no_groups_tied", model.Config{Vocab: 24, Hidden: 32, Layers: 1, Heads: 2, KVHeads: 2, HeadDim: 8, Intermediate: 40, MaxPosition: 96, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true}},
}

// Run drives the whole suite against b.
func Run(t *testing.T, b Backend) {
	for _, c := range configs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := harness{backend: b, cfg: c.cfg}
			type test struct {
				name string
				run  func(*testing.T, harness)
			}
			tests := []test{
				{"score_equals_reference", scoreEqualsReference},
				{"record_equals_reference", recordEqualsReference},
				{"score_equals_generate", scoreEqualsGenerate},
				{"stop_and_length", stopAndLength},
				{"bad_requests", badRequests},
				{"ties_by_smaller_id", tiesBySmallerID},
				{"versions", versions},
				{"swap_in_flight", swapInFlight},
				{"batch_independence", batchIndependence},
				{"endings", endings},
				{"damaged_weights", damagedWeights},
			}
			if b.NewTrainer != nil {
				tests = append(tests, []test{
					{"gradients", gradients},
					{"slopes", slopes},
					{"on_policy", onPolicy},
					{"optimizer", optimizer},
					{"plan_does_not_matter_much", planSums},
					{"bad_batches", badBatches},
					{"state_round_trip", stateRoundTrip},
					{"state_in_pieces", statePieces},
					{"learns", learns},
				}...)
			}
			for _, tt := range tests {
				t.Run(tt.name, func(t *testing.T) {
					t.Parallel()
					tt.run(t, h)
				})
			}
		})
	}
}

// harness makes engines and inputs of one shape.
type harness struct {
	backend Backend
	cfg     model.Config
}

// weights are random, of norms away from 1, and exactly representable in BF16.
func (h harness) weights(seed uint64) *model.Weights {
	w := model.NewWeights(h.cfg)
	w.Init(seed, 0.25)
	for i, s := range w.Specs {
		if s.OnesInit {
			for j := range w.Data[i] {
				w.Data[i][j] = 0.75 + 0.125*float32((int(seed)+i+3*j)%5)
			}
		}
	}
	return round(w)
}

func (h harness) sampler(t *testing.T, version int, w *model.Weights) engine.Sampler {
	t.Helper()
	s, err := h.backend.NewSampler(h.cfg)
	if err != nil {
		t.Fatalf("NewSampler: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if got := s.Version(); got != -1 {
		t.Errorf("Version before SetWeights = %d, want -1", got)
	}
	if err := s.SetWeights(t.Context(), version, w); err != nil {
		t.Fatalf("SetWeights: %v", err)
	}
	return s
}

func (h harness) trainer(t *testing.T, w *model.Weights) engine.Trainer {
	t.Helper()
	tr, err := h.backend.NewTrainer(h.cfg, w)
	if err != nil {
		t.Fatalf("NewTrainer: %v", err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return tr
}
