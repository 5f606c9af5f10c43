package enginetest

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/weights"
)

func round(w *model.Weights) *model.Weights { return weights.Round(w) }

// prompt returns n tokens.
func (h harness) prompt(n int, label any) []int32 {
	st := rng.New(11, rng.Corpus, label)
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(st.IntN(uint64(i), h.cfg.Vocab)) //nolint:gosec // below the vocabulary
	}
	return p
}

// request asks for n tokens after a prompt of m.
func (h harness) request(m, n, topK int, temperature float64, label any) engine.Request {
	return engine.Request{
		Tokens: h.prompt(m, label), MaxNew: n, Random: rng.New(12, rng.Train, label),
		Sampling: engine.Sampling{Temperature: temperature, TopK: topK},
	}
}

// collect runs a request to its end.
func collect(t *testing.T, s engine.Sampler, req engine.Request) ([]engine.Token, engine.Finish) {
	t.Helper()
	toks, finish, err := generate(t.Context(), s, req)
	if err != nil {
		t.Fatalf("Generate after %d tokens: %v", len(toks), err)
	}
	return toks, finish
}

func generate(ctx context.Context, s engine.Sampler, req engine.Request) ([]engine.Token, engine.Finish, error) {
	var toks []engine.Token
	finish, err := s.Generate(ctx, req, func(tok engine.Token) error {
		toks = append(toks, tok)
		return nil
	})
	return toks, finish, err
}

func ids(toks []engine.Token) []int32 {
	out := make([]int32, len(toks))
	for i, tok := range toks {
		out[i] = tok.ID
	}
	return out
}

// distribution returns the oracle's log-probabilities [V] after prefix: Score of every continuation by one token at
// temperature 1, turned to another temperature (log p/T, normalised again).
func (h harness) distribution(t *testing.T, w *model.Weights, prefix []int32, temperature float64) []float64 {
	t.Helper()
	s, err := ref.NewSampler(h.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.SetWeights(t.Context(), 0, w); err != nil {
		t.Fatal(err)
	}
	// A record of the whole vocabulary is the distribution.
	req := engine.Request{Tokens: prefix, MaxNew: 1, Sampling: engine.Sampling{Temperature: temperature, TopK: h.cfg.Vocab}}
	toks, _ := collect(t, s, req)
	out := make([]float64, h.cfg.Vocab)
	for i, id := range toks[0].TopIDs {
		out[id] = float64(toks[0].TopLogProbs[i])
	}
	return out
}

// batch is sampled by the oracle under weights that differ from the trained ones, so that every part of the
// objective is at work; lengths, advantages and temperatures differ.
func (h harness) batch(t *testing.T, o rl.Objective, behaviour *model.Weights) engine.Batch {
	t.Helper()
	s, err := ref.NewSampler(h.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.SetWeights(t.Context(), 0, behaviour); err != nil {
		t.Fatal(err)
	}
	return h.sampled(t, s, o, []float64{1, 0.75, 1, 1.25})
}

// sampled is a batch of one sequence for each temperature, drawn from s.
func (h harness) sampled(t *testing.T, s engine.Sampler, o rl.Objective, temperatures []float64) engine.Batch {
	t.Helper()
	b := engine.Batch{Objective: o, Optim: rl.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}}
	for i, temperature := range temperatures {
		req := h.request(3+4*i, 5+3*i, o.TopK, temperature, i)
		toks, _ := collect(t, s, req)
		b.Sequences = append(b.Sequences, sequence(req, toks, []float32{0.75, -0.5, 0, 0.25}[i%4]))
	}
	b.Plan.MicroBatches = [][]int{{0}, {2, 1}}
	for i := 3; i < len(b.Sequences); i++ {
		b.Plan.MicroBatches = append(b.Plan.MicroBatches, []int{i})
	}
	return b
}

// sequence is the trainer's view of a request; the third token of the response counts as an observation.
func sequence(req engine.Request, toks []engine.Token, advantage float32) engine.Sequence {
	n, k := len(req.Tokens)+len(toks), req.TopK
	s := engine.Sequence{
		Tokens: slices.Clone(req.Tokens), Mask: make([]bool, n), LogProbs: make([]float32, n), TopK: k,
		TopIDs: make([]int32, n*k), TopLogProbs: make([]float32, n*k), Advantage: advantage, Temperature: req.Temperature,
	}
	for i, tok := range toks {
		at := len(req.Tokens) + i
		s.Tokens = append(s.Tokens, tok.ID)
		s.Mask[at], s.LogProbs[at] = i != 2, tok.LogProb
		copy(s.TopIDs[at*k:], tok.TopIDs)
		copy(s.TopLogProbs[at*k:], tok.TopLogProbs)
	}
	return s
}

// worst compares tensors and returns the largest difference relative to the tensor's largest magnitude, with its place.
func worst(got, want *model.Weights) (rel float64, tensor string, index int) {
	for i, s := range want.Specs {
		var top float64
		for _, x := range want.Data[i] {
			top = max(top, math.Abs(float64(x)))
		}
		for j, x := range want.Data[i] {
			if d := math.Abs(float64(got.Data[i][j])-float64(x)) / max(top, 1e-12); !(d <= rel) {
				rel, tensor, index = d, s.Name, j
			}
		}
	}
	return rel, tensor, index
}

// equalTokens compares tokens with all of their record, bit for bit but for the version.
func equalTokens(a, b []engine.Token) bool {
	return slices.EqualFunc(a, b, func(x, y engine.Token) bool {
		return x.ID == y.ID && bits(x.LogProb) == bits(y.LogProb) && bits(x.Entropy) == bits(y.Entropy) &&
			slices.Equal(x.TopIDs, y.TopIDs) && slices.EqualFunc(x.TopLogProbs, y.TopLogProbs, func(p, q float32) bool { return bits(p) == bits(q) })
	})
}

func bits(x float32) uint32 { return math.Float32bits(x) }
