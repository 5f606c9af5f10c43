package cpu

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/rng"
)

// odd has no width that is a multiple of 32, grouped queries and an untied head.
var odd = model.Config{
	Vocab: 75, Hidden: 36, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 10, Intermediate: 50,
	MaxPosition: 160, RMSEps: 1e-6, RopeTheta: 10000,
}

// even is tied, with heads wider than a panel.
var even = model.Config{
	Vocab: 96, Hidden: 64, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 64, Intermediate: 96,
	MaxPosition: 160, RMSEps: 1e-6, RopeTheta: 1e6, TieEmbedding: true,
}

func initial(cfg model.Config, seed uint64) *model.Weights {
	w := model.NewWeights(cfg)
	w.Init(seed, 0.08)
	return w
}

func startSampler(t testing.TB, cfg model.Config, opts Options, w *model.Weights) engine.Sampler {
	t.Helper()
	s, err := NewSampler(cfg, opts)
	if err != nil {
		t.Fatalf("NewSampler: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.SetWeights(context.Background(), 0, w); err != nil {
		t.Fatalf("SetWeights: %v", err)
	}
	return s
}

func startTrainer(t testing.TB, cfg model.Config, opts Options, w *model.Weights) *Trainer {
	t.Helper()
	tr, err := NewTrainer(cfg, w, opts)
	if err != nil {
		t.Fatalf("NewTrainer: %v", err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr.(*Trainer)
}

// prompt returns n tokens; prompts of the same group share their first 40.
func prompt(cfg model.Config, n, group, member int) []int32 {
	st, own := rng.New(9, rng.Corpus, group), rng.New(9, rng.Corpus, group, member)
	p := make([]int32, n)
	for i := range p {
		if i < 40 {
			p[i] = int32(st.IntN(uint64(i), cfg.Vocab))
		} else {
			p[i] = int32(own.IntN(uint64(i), cfg.Vocab))
		}
	}
	return p
}

// generate runs one request to its end and returns its tokens.
func generate(t testing.TB, s engine.Sampler, req engine.Request) []engine.Token {
	t.Helper()
	var out []engine.Token
	if _, err := s.Generate(context.Background(), req, func(tok engine.Token) error { out = append(out, tok); return nil }); err != nil {
		t.Errorf("Generate: %v", err)
	}
	return out
}

// sequenceOf makes the trainer's view of a prompt and its tokens.
func sequenceOf(p []int32, toks []engine.Token, topK int, advantage float32) engine.Sequence {
	n := len(p) + len(toks)
	s := engine.Sequence{
		Tokens: append([]int32{}, p...), Mask: make([]bool, n), LogProbs: make([]float32, n), TopK: topK,
		TopIDs: make([]int32, n*topK), TopLogProbs: make([]float32, n*topK), Advantage: advantage, Temperature: 1,
	}
	for i, tok := range toks {
		at := len(p) + i
		s.Tokens = append(s.Tokens, tok.ID)
		s.Mask[at], s.LogProbs[at] = true, tok.LogProb
		copy(s.TopIDs[at*topK:], tok.TopIDs)
		copy(s.TopLogProbs[at*topK:], tok.TopLogProbs)
	}
	return s
}

// sampledBatch samples n sequences of different lengths and plans them in micro-batches of three.
func sampledBatch(t testing.TB, cfg model.Config, s engine.Sampler, n, topK int) engine.Batch {
	t.Helper()
	b := engine.Batch{
		Objective: rl.Default(topK),
		Optim:     rl.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01, ClipNorm: 0.5},
	}
	var micro []int
	for i := range n {
		p := prompt(cfg, 41+7*i, 0, i)
		toks := generate(t, s, engine.Request{
			Tokens: p, MaxNew: 5 + 11*i, Sampling: engine.Sampling{Temperature: 1, TopK: topK}, Random: rng.New(3, rng.Train, i),
		})
		b.Sequences = append(b.Sequences, sequenceOf(p, toks, topK, float32(i%3)-0.9))
		micro = append(micro, i)
		if len(micro) == 3 || i == n-1 {
			b.Plan.MicroBatches = append(b.Plan.MicroBatches, micro)
			micro = nil
		}
	}
	return b
}

// digest hashes the bits of all tensors.
func digest(ws ...*model.Weights) string {
	h := sha256.New()
	var buf [4]byte
	for _, w := range ws {
		for _, d := range w.Data {
			for _, x := range d {
				binary.LittleEndian.PutUint32(buf[:], math.Float32bits(x))
				h.Write(buf[:])
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func update(t testing.TB, tr *Trainer, b engine.Batch) engine.StepMetrics {
	t.Helper()
	m, err := tr.Update(context.Background(), b)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	return m
}
