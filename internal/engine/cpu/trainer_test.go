package cpu

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu/kernel"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/rng"
)

// gradient runs forward and backward of a batch and returns the loss and the gradient, without an optimiser step.
func gradient(t *testing.T, tr *Trainer, b *engine.Batch) (float64, *model.Weights) {
	t.Helper()
	tokens, err := b.Check(tr.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range tr.g.weights {
		clear(w)
	}
	tr.stats = tr.stats[:0]
	for _, micro := range b.Plan.MicroBatches {
		targets := tr.load(b, micro)
		tr.forward()
		tr.headLoss(b, targets, 1/float64(tokens))
		tr.backward()
	}
	m, err := tr.metrics(b.Objective)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range tr.g.weights {
		tr.unfuse(tr.grads, i, w)
	}
	return m.Loss, tr.grads.Clone()
}

func supervisedBatch(cfg model.Config) *engine.Batch {
	b := &engine.Batch{Objective: rl.Objective{Supervised: true}, Optim: rl.AdamW{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}}
	for i := range 3 {
		toks := prompt(cfg, 45+13*i, 1, i)
		s := engine.Sequence{Tokens: toks, Mask: make([]bool, len(toks)), Advantage: 1 + 0.25*float32(i), Temperature: 1.25}
		for j := range toks {
			s.Mask[j] = j > 3 && j%5 != 0
		}
		b.Sequences = append(b.Sequences, s)
	}
	b.Plan.MicroBatches = [][]int{{1}, {0, 2}}
	return b
}

// TestGradient_everyTensorAlongItsDirection compares the loss difference along each tensor's own gradient with the
// gradient's squared norm. Working weights bypass the BF16 rounding here, which would hide small steps.
func TestGradient_everyTensorAlongItsDirection(t *testing.T) {
	t.Parallel()
	for _, cfg := range []model.Config{odd, even} {
		w := initial(cfg, 5)
		tr := startTrainer(t, cfg, Options{Threads: 1}, w)
		b := supervisedBatch(cfg)
		tr.w.load(tr.layout, w)
		_, g := gradient(t, tr, b)
		for i, spec := range w.Specs {
			var norm float64
			for _, x := range g.Data[i] {
				norm += float64(x) * float64(x)
			}
			norm = math.Sqrt(norm)
			if norm == 0 {
				t.Errorf("%s: the gradient is zero", spec.Name)
				continue
			}
			// A step of 0.02 along the unit gradient keeps the third-order term and float32 noise of the loss
			// both below one per cent at these sizes.
			const step = 0.02
			var losses [2]float64
			for side, sign := range []float64{1, -1} {
				moved := w.Clone()
				for j := range moved.Data[i] {
					moved.Data[i][j] += float32(sign * step / norm * float64(g.Data[i][j]))
				}
				tr.w.load(tr.layout, moved)
				losses[side], _ = gradient(t, tr, b)
			}
			got := (losses[0] - losses[1]) / (2 * step)
			if math.Abs(got-norm) > 0.02*norm+1e-5 {
				t.Errorf("%s: slope along the gradient = %v, want its norm %v", spec.Name, got, norm)
			}
		}
	}
}

func TestUpdate_logProbsOfDecodingEqualTraining(t *testing.T) {
	t.Parallel()
	for _, cfg := range []model.Config{odd, even} {
		tr := startTrainer(t, cfg, Options{Threads: 2}, initial(cfg, 7))
		s := startSampler(t, cfg, Options{Threads: 2}, tr.Published())
		b := sampledBatch(t, cfg, s, 6, 8)
		m := update(t, tr, b)
		if m.LogProbGap != 0 || m.KL != 0 {
			t.Errorf("%d tokens: mean |log p - log q| = %v, KL = %v, want exactly 0", m.Tokens, m.LogProbGap, m.KL)
		}
		// A record made by a sampler with the same weights cancels the correction; only rounding of the tail is left.
		if !(math.Abs(m.Correction) < 1e-5) {
			t.Errorf("correction = %v on-policy, want about 0", m.Correction)
		}
	}
}

func threeSteps(t *testing.T, cfg model.Config, opts Options) string {
	t.Helper()
	tr := startTrainer(t, cfg, opts, initial(cfg, 7))
	s := startSampler(t, cfg, opts, tr.Published())
	b := sampledBatch(t, cfg, s, 5, 8)
	for range 3 {
		update(t, tr, b)
	}
	st := tr.State()
	return digest(st.Master, st.M, st.V, tr.Published())
}

// golden are the digests of threeSteps. They change only when the arithmetic changes.
var golden = map[string]string{"odd": "c3e850e2b02003f8", "even": "0e01a5c10a1a8389"}

func TestUpdate_oneDigestForThreadsAndKernels(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]model.Config{"odd": odd, "even": even} {
		for _, level := range kernel.Supported() {
			for _, threads := range []int{1, 2, 3, 7} {
				if got := threeSteps(t, cfg, Options{Threads: threads, Kernels: level.String()}); got != golden[name] {
					t.Errorf("%s, %s, %d threads: digest after three steps = %s, want %s", name, level, threads, got, golden[name])
				}
			}
		}
	}
}

func TestSetState_resumeIsBitEqual(t *testing.T) {
	t.Parallel()
	tr := startTrainer(t, odd, Options{}, initial(odd, 7))
	b := supervisedBatch(odd)
	update(t, tr, *b)
	other := startTrainer(t, odd, Options{}, initial(odd, 8))
	if err := other.SetState(tr.State()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		update(t, tr, *b)
		update(t, other, *b)
	}
	x, y := tr.State(), other.State()
	if got, want := digest(y.Master, y.M, y.V), digest(x.Master, x.M, x.V); got != want || y.Steps != x.Steps {
		t.Errorf("resumed digest %s at step %d, uninterrupted %s at %d", got, y.Steps, want, x.Steps)
	}
}

func TestUpdate_errorLeavesTheState(t *testing.T) {
	t.Parallel()
	broken := initial(odd, 7)
	broken.Get("model.norm.weight")[3] = float32(math.NaN())
	record := func(f func(s *engine.Sequence)) func(*engine.Batch) {
		return func(b *engine.Batch) {
			b.Objective = rl.Default(2)
			s := &b.Sequences[0]
			n := len(s.Tokens)
			s.TopK, s.LogProbs = 2, make([]float32, n)
			s.TopIDs, s.TopLogProbs = make([]int32, 2*n), make([]float32, 2*n)
			for i := range n {
				s.LogProbs[i], s.TopIDs[2*i+1] = -1, 1
				s.TopLogProbs[2*i], s.TopLogProbs[2*i+1] = -1, -1
			}
			f(s)
			b.Sequences, b.Plan.MicroBatches = b.Sequences[:1], [][]int{{0}}
		}
	}
	tests := []struct {
		name    string
		weights *model.Weights
		change  func(b *engine.Batch)
		want    fault.Kind
	}{
		{"weights not finite", broken, func(*engine.Batch) {}, fault.Numeric},
		{"token outside the vocabulary", nil, func(b *engine.Batch) { b.Sequences[0].Tokens[2] = 75 }, fault.Invalid},
		{"plan misses a sequence", nil, func(b *engine.Batch) { b.Plan.MicroBatches = [][]int{{0, 1}} }, fault.Invalid},
		{"plan repeats a sequence", nil, func(b *engine.Batch) { b.Plan.MicroBatches = [][]int{{0, 1, 1}} }, fault.Invalid},
		{"first token masked", nil, func(b *engine.Batch) { b.Sequences[1].Mask[0] = true }, fault.Invalid},
		{"temperature 0", nil, func(b *engine.Batch) { b.Sequences[1].Temperature = 0 }, fault.Invalid},
		{"beta 1", nil, func(b *engine.Batch) { b.Optim.Beta2 = 1 }, fault.Invalid},
		{"record of another width", nil, record(func(s *engine.Sequence) { s.TopK = 1 }), fault.Invalid},
		{"repeated id in a record", nil, record(func(s *engine.Sequence) { s.TopIDs[2*6+1] = 0 }), fault.Invalid},
		{"record of mass above 1", nil, record(func(s *engine.Sequence) { s.TopLogProbs[2*6] = -0.1 }), fault.Invalid},
		{"log-probability not finite", nil, record(func(s *engine.Sequence) { s.LogProbs[6] = float32(math.NaN()) }), fault.Invalid},
	}
	for _, tt := range tests {
		w := tt.weights
		if w == nil {
			w = initial(odd, 7)
		}
		tr := startTrainer(t, odd, Options{}, w)
		st := tr.State()
		want := digest(st.Master, st.M, st.V)
		b := supervisedBatch(odd)
		tt.change(b)
		_, err := tr.Update(context.Background(), *b)
		if got := fault.KindOf(err); got != tt.want {
			t.Errorf("%s: Update = %v of kind %q, want kind %q", tt.name, err, got, tt.want)
		}
		st = tr.State()
		if got := digest(st.Master, st.M, st.V); got != want || tr.Steps() != 0 {
			t.Errorf("%s: the state changed: %s to %s, step %d", tt.name, want, got, tr.Steps())
		}
	}
}

func TestUpdate_supervisedLossFalls(t *testing.T) {
	t.Parallel()
	tr := startTrainer(t, even, Options{}, initial(even, 7))
	b := supervisedBatch(even)
	first := update(t, tr, *b).Loss
	var last float64
	for range 15 {
		last = update(t, tr, *b).Loss
	}
	if !(last < 0.8*first) {
		t.Errorf("loss went from %v to %v in 16 steps on one batch, want a fall below 80 %%", first, last)
	}
}

func BenchmarkUpdate_demo(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			cfg := demo
			tr := startTrainer(b, cfg, Options{Threads: threads}, initial(cfg, 1))
			batch := engine.Batch{Objective: rl.Objective{Supervised: true}, Optim: rl.DefaultAdamW()}
			var tokens int
			for i := range 32 {
				n := 200 + 4*i
				s := engine.Sequence{Tokens: make([]int32, n), Mask: make([]bool, n), Advantage: 1, Temperature: 1}
				for j := range n {
					s.Tokens[j] = int32(rng.New(1, rng.Corpus, i).IntN(uint64(j), cfg.Vocab))
					s.Mask[j] = j > n/2
				}
				tokens += n
				batch.Sequences = append(batch.Sequences, s)
				if i%8 == 0 {
					batch.Plan.MicroBatches = append(batch.Plan.MicroBatches, nil)
				}
				batch.Plan.MicroBatches[i/8] = append(batch.Plan.MicroBatches[i/8], i)
			}
			for b.Loop() {
				update(b, tr, batch)
			}
			b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// demo is the size of the demonstration model.
var demo = model.Config{
	Vocab: 600, Hidden: 128, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32, Intermediate: 384,
	MaxPosition: 512, RMSEps: 1e-6, RopeTheta: 10000, TieEmbedding: true,
}
