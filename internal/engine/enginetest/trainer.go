package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/weights"
)

// objectives are all forms of the loss; names are for messages.
func (h harness) objectives() map[string]rl.Objective {
	const k = 6
	out := map[string]rl.Objective{
		"proportional": rl.Default(k), "off": rl.Default(k), "full": rl.Default(h.cfg.Vocab),
		"tis": rl.Default(k), "band": rl.Default(k), "supervised": {Supervised: true},
	}
	edit := func(name string, f func(*rl.Objective)) {
		o := out[name]
		f(&o)
		out[name] = o
	}
	edit("off", func(o *rl.Objective) { o.Centering = rl.CenteringOff })
	edit("full", func(o *rl.Objective) { o.Centering = rl.CenteringFull })
	edit("tis", func(o *rl.Objective) { o.Rule, o.Cap = rl.RuleTIS, 1.05 })
	edit("band", func(o *rl.Objective) { o.Rule = rl.RuleBand })
	return out
}

// behaviour is near w, so that ratios of the sampler and the trainer are near 1 but not 1.
func (h harness) behaviour(w *model.Weights) *model.Weights {
	noise := model.NewWeights(h.cfg)
	noise.Init(99, 0.02)
	out := w.Clone()
	for i, s := range out.Specs {
		for j := range out.Data[i] {
			if !s.OnesInit {
				out.Data[i][j] += noise.Data[i][j]
			}
		}
	}
	return round(out)
}

// extracted returns the gradient of a backend: with zero moments the first moment after an update is (1 - beta1) g.
func (h harness) extracted(t *testing.T, w *model.Weights, b engine.Batch) (*model.Weights, engine.StepMetrics) {
	t.Helper()
	tr := h.trainer(t, w)
	m, err := tr.Update(t.Context(), b)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	g := tr.State().M
	for i := range g.Data {
		for j := range g.Data[i] {
			g.Data[i][j] = float32(float64(g.Data[i][j]) / (1 - b.Optim.Beta1))
		}
	}
	return g, m
}

func gradients(t *testing.T, h harness) {
	w := h.weights(20)
	for name, o := range h.objectives() {
		b := h.batch(t, o, h.behaviour(w))
		want, wantMetrics, err := ref.Gradient(w, b)
		if err != nil {
			t.Fatalf("%s: reference: %v", name, err)
		}
		got, metrics := h.extracted(t, w, b)
		if rel, tensor, at := worst(got, want); !(rel <= h.backend.gradTolerance()) {
			t.Errorf("%s: gradient of %s[%d] is off by %.3g of the tensor's largest, want at most %.3g", name, tensor, at, rel, h.backend.gradTolerance())
		}
		h.compareMetrics(t, name, metrics, wantMetrics)
	}
}

func (h harness) compareMetrics(t *testing.T, name string, got, want engine.StepMetrics) {
	t.Helper()
	if got.Tokens != want.Tokens || got.ClipFactor != 1 {
		t.Errorf("%s: %d tokens, clip factor %v, want %d and 1", name, got.Tokens, got.ClipFactor, want.Tokens)
	}
	for _, f := range []struct {
		name      string
		got, want float64
	}{
		{"loss", got.Loss, want.Loss},
		{"gradient norm", got.GradNorm, want.GradNorm},
		{"correction", got.Correction, want.Correction},
		{"correction times advantage", got.CorrectionA, want.CorrectionA},
		{"uncovered mass", got.Uncovered, want.Uncovered},
		{"trainer's tail", got.TrainerTail, want.TrainerTail},
		{"entropy", got.Entropy, want.Entropy},
		{"log-probability gap", got.LogProbGap, want.LogProbGap},
		{"KL", got.KL, want.KL},
		{"share outside", got.OutsideShare, want.OutsideShare},
		{"share floored", got.FloorShare, want.FloorShare},
		{"alpha", got.MaxAlpha, want.MaxAlpha},
	} {
		tol := h.backend.gradTolerance() * (1 + math.Abs(f.want))
		if math.IsNaN(f.got) != math.IsNaN(f.want) || !math.IsNaN(f.want) && !(math.Abs(f.got-f.want) <= tol) {
			t.Errorf("%s: %s = %v, want %v", name, f.name, f.got, f.want)
		}
	}
}

// The slope of the reference's loss along a random direction in each tensor equals the backend's gradient times that direction. The loss is
// REINFORCE without centering: nothing in it is held fixed, so a difference quotient is its derivative.
func slopes(t *testing.T, h harness) {
	w := h.weights(21)
	b := h.batch(t, h.objectives()["off"], h.behaviour(w))
	g, _ := h.extracted(t, w, b)
	for i, s := range w.Specs {
		plus, minus := w.Clone(), w.Clone()
		dir := model.NewWeights(h.cfg)
		dir.Init(5, 1) // norm weights get the direction of all ones
		var want float64
		for j := range w.Data[i] {
			// 2^-9: the third-order term is about 1e-5 of the slope, and the reference has no rounding to speak of.
			plus.Data[i][j] += dir.Data[i][j] * 0x1p-9
			minus.Data[i][j] -= dir.Data[i][j] * 0x1p-9
			want += float64(g.Data[i][j]) * (float64(plus.Data[i][j]) - float64(minus.Data[i][j]))
		}
		_, up, err := ref.Gradient(plus, b)
		if err != nil {
			t.Fatal(err)
		}
		_, down, err := ref.Gradient(minus, b)
		if err != nil {
			t.Fatal(err)
		}
		// Of the slope and of the gradient that the direction crosses, the larger counts: a slope may be near 0 by chance. 16 units are for
		// the errors of a gradient's operations one after another, which average out in the sum; a wrong formula is off by the size of the gradient.
		var norm float64
		for j := range w.Data[i] {
			norm += math.Abs(float64(g.Data[i][j])) * 0x1p-8
		}
		if got := up.Loss - down.Loss; !(math.Abs(got-want) <= (2e-3+16*h.backend.Unit)*norm+1e-9) {
			t.Errorf("%s: the loss changes by %.9g, the gradient says %.9g", s.Name, got, want)
		}
	}
}

// A batch sampled from the published weights: the trainer sees the probabilities that were recorded, and centering corrects nothing.
func onPolicy(t *testing.T, h harness) {
	tr := h.trainer(t, h.weights(22))
	s := h.sampler(t, 0, tr.Published())
	on := h.sampled(t, s, rl.Default(6), []float64{1, 0.75, 1, 1.25})
	m, err := tr.Update(t.Context(), on)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	if tol := 2 * h.backend.logProbTolerance(); h.backend.ExactDecode && m.LogProbGap != 0 || !(m.LogProbGap <= tol) {
		t.Errorf("mean |log p - log q| = %v on-policy (exact: %v)", m.LogProbGap, h.backend.ExactDecode)
	}
	// C is a sum of (q - alpha p) log p; with p = q to float32 only the rounding of the record is left.
	if !(math.Abs(m.Correction) <= 1e-5) {
		t.Errorf("correction = %v on-policy, want 0 up to rounding", m.Correction)
	}
}

// Three steps with clipping and decay follow the reference. The bound is the learning rate times the relative error of a step, which
// is that of the gradient where it is not tiny; Adam's first steps are +-1 times the rate whatever the size of the gradient, so elements whose gradient is
// below its own error may go another way: they are left out by comparing where the reference's moment is above the error.
func optimizer(t *testing.T, h harness) {
	w := h.weights(23)
	b := h.batch(t, rl.Default(6), h.behaviour(w))
	b.Optim.ClipNorm, b.Optim.WeightDecay = 0.05, 0.1
	tr := h.trainer(t, w)
	oracle, err := ref.NewTrainer(h.cfg, w)
	if err != nil {
		t.Fatal(err)
	}
	for step := range 3 {
		m, err := tr.Update(t.Context(), b)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		// Published weights differ where a master lies near the middle of two BF16 values, so each step starts from one state.
		want, err := oracle.Update(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if !(m.ClipFactor < 1) || math.Abs(m.ClipFactor-want.ClipFactor) > h.backend.gradTolerance() {
			t.Errorf("step %d: clip factor %v, want %v", step, m.ClipFactor, want.ClipFactor)
		}
		h.compareStep(t, step, tr.State(), oracle.State(), b.Optim.LearningRate)
		if tr.Steps() != step+1 {
			t.Errorf("Steps = %d, want %d", tr.Steps(), step+1)
		}
		// A state that is read tensor by tensor is the state.
		state := tr.State()
		if got, err := weights.ReadStateDigest(h.cfg, engine.ReaderOf(tr), tr.Steps()); err != nil || got != weights.StateDigest(state) {
			t.Errorf("step %d: the state read has digest %.12s, the copy %.12s, %v", step, got, weights.StateDigest(state), err)
		}
		if !tr.Published().Equal(round(state.Master)) {
			t.Errorf("step %d: the published weights are not the BF16 rounding of the master weights", step)
		}
		if err := oracle.SetState(tr.State()); err != nil {
			t.Fatal(err)
		}
	}
}

func (h harness) compareStep(t *testing.T, step int, got, want *engine.State, rate float64) {
	t.Helper()
	for i, s := range want.Master.Specs {
		var top float64
		for _, x := range want.M.Data[i] {
			top = max(top, math.Abs(float64(x)))
		}
		for j, x := range want.Master.Data[i] {
			noise := top * h.backend.gradTolerance()
			size := math.Abs(float64(want.M.Data[i][j]))
			if size < 100*noise {
				continue
			}
			// One step is at most a few times the rate; its relative error is noise/size, and the sum is rounded to float32.
			tol := 10*rate*noise/size + 4*rate*0x1p-20 + math.Abs(float64(x))*0x1p-22
			if d := math.Abs(float64(got.Master.Data[i][j]) - float64(x)); !(d <= tol) {
				t.Errorf("step %d: %s[%d] = %v, want %v (off by %.3g of a step)", step, s.Name, j, got.Master.Data[i][j], x, d/rate)
				return
			}
		}
	}
}

// Sums over micro-batches are the same sums in another order.
func planSums(t *testing.T, h harness) {
	w := h.weights(24)
	b := h.batch(t, rl.Default(6), h.behaviour(w))
	one, _ := h.extracted(t, w, b)
	again, _ := h.extracted(t, w, b)
	if !one.Equal(again) {
		t.Error("the same state and batch gave other gradients: results must be bitwise reproducible")
	}
	b.Plan.MicroBatches = [][]int{{3, 1, 0, 2}}
	other, _ := h.extracted(t, w, b)
	if rel, tensor, at := worst(other, one); !(rel <= 2*h.backend.gradTolerance()) {
		t.Errorf("with another plan %s[%d] is off by %.3g of the tensor's largest", tensor, at, rel)
	}
}

func badBatches(t *testing.T, h harness) {
	w := h.weights(25)
	tr := h.trainer(t, w)
	good := h.batch(t, rl.Default(6), h.behaviour(w))
	if _, err := tr.Update(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	before := tr.State()
	nan := float32(math.NaN())
	last := func(s *engine.Sequence) int { return len(s.Tokens) - 1 }
	for _, tt := range []struct {
		name string
		edit func(b *engine.Batch, s *engine.Sequence)
	}{
		{"no trained token", func(b *engine.Batch, _ *engine.Sequence) {
			for i := range b.Sequences {
				b.Sequences[i].Mask = make([]bool, len(b.Sequences[i].Tokens))
			}
		}},
		{"mask at the first token", func(_ *engine.Batch, s *engine.Sequence) { s.Mask[0] = true }},
		{"mask too short", func(_ *engine.Batch, s *engine.Sequence) { s.Mask = s.Mask[1:] }},
		{"id above the vocabulary", func(_ *engine.Batch, s *engine.Sequence) { s.Tokens[0] = int32(h.cfg.Vocab) }}, //nolint:gosec // small
		{"too long", func(_ *engine.Batch, s *engine.Sequence) { s.Tokens = h.prompt(h.cfg.MaxPosition+1, 0) }},
		{"advantage not a number", func(_ *engine.Batch, s *engine.Sequence) { s.Advantage = nan }},
		{"temperature 0", func(_ *engine.Batch, s *engine.Sequence) { s.Temperature = 0 }},
		{"log-probability not a number", func(_ *engine.Batch, s *engine.Sequence) { s.LogProbs[last(s)] = nan }},
		{"record not a number", func(_ *engine.Batch, s *engine.Sequence) { s.TopLogProbs[last(s)*6] = nan }},
		{"id recorded twice", func(_ *engine.Batch, s *engine.Sequence) { s.TopIDs[last(s)*6] = s.TopIDs[last(s)*6+1] }},
		{"record heavier than 1", func(_ *engine.Batch, s *engine.Sequence) {
			s.TopLogProbs[last(s)*6], s.TopLogProbs[last(s)*6+1] = -0.1, -0.2
		}},
		{"record of another width", func(_ *engine.Batch, s *engine.Sequence) { s.TopK = 5 }},
		{"plan leaves one out", func(b *engine.Batch, _ *engine.Sequence) { b.Plan.MicroBatches = [][]int{{0, 1, 2}} }},
		{"plan names one twice", func(b *engine.Batch, _ *engine.Sequence) { b.Plan.MicroBatches = [][]int{{0, 1, 2, 3, 0}} }},
		{"beta 1", func(b *engine.Batch, _ *engine.Sequence) { b.Optim.Beta1 = 1 }},
		{"rate not a number", func(b *engine.Batch, _ *engine.Sequence) { b.Optim.LearningRate = math.NaN() }},
		{"unknown centering", func(b *engine.Batch, _ *engine.Sequence) { b.Objective.Centering = "some" }},
	} {
		b := copyBatch(good)
		tt.edit(&b, &b.Sequences[1])
		if _, err := tr.Update(t.Context(), b); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want Invalid", tt.name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tr.Update(ctx, good); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if !sameState(tr.State(), before) {
		t.Fatal("a refused update changed the state")
	}
	before.Master.Get("model.norm.weight")[1] = float32(math.Inf(1))
	if err := tr.SetState(before); err != nil {
		t.Fatalf("SetState: %v", err)
	}
	if _, err := tr.Update(t.Context(), good); !fault.Is(err, fault.Numeric) || tr.Steps() != before.Steps {
		t.Errorf("infinite weights: %v at step %d, want Numeric and no step", err, tr.Steps())
	}
}

func copyBatch(b engine.Batch) engine.Batch {
	b.Sequences = slices.Clone(b.Sequences)
	for i, s := range b.Sequences {
		s.Tokens, s.Mask, s.LogProbs = slices.Clone(s.Tokens), slices.Clone(s.Mask), slices.Clone(s.LogProbs)
		s.TopIDs, s.TopLogProbs = slices.Clone(s.TopIDs), slices.Clone(s.TopLogProbs)
		b.Sequences[i] = s
	}
	b.Plan.MicroBatches = slices.Clone(b.Plan.MicroBatches)
	return b
}

func sameState(a, b *engine.State) bool {
	return a.Steps == b.Steps && a.Master.Equal(b.Master) && a.M.Equal(b.M) && a.V.Equal(b.V)
}

// Saving and restoring between two steps changes nothing, and State and Published are copies.
func stateRoundTrip(t *testing.T, h harness) {
	w := h.weights(26)
	b := h.batch(t, rl.Default(6), h.behaviour(w))
	whole, first, second := h.trainer(t, w), h.trainer(t, w), h.trainer(t, h.weights(27))
	for _, tr := range []engine.Trainer{whole, whole, first} {
		if _, err := tr.Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	saved := first.State()
	if err := second.SetState(saved); err != nil {
		t.Fatalf("SetState: %v", err)
	}
	saved.Master.Data[0][0], saved.M.Data[0][0] = 7, 7
	first.Published().Data[0][0] = 7
	if _, err := second.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if !sameState(second.State(), whole.State()) || second.Steps() != 2 {
		t.Errorf("restored after step 1 and trained on: the state differs from a run without a stop (steps %d)", second.Steps())
	}
	other := h.cfg
	other.Hidden += 2
	bad := &engine.State{Master: model.NewWeights(other), M: model.NewWeights(other), V: model.NewWeights(other)}
	if err := second.SetState(bad); !fault.Is(err, fault.Invalid) || !sameState(second.State(), whole.State()) {
		t.Errorf("state of another model: %v, want Invalid and no change", err)
	}
	if err := second.SetState(nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("no state: %v, want Invalid", err)
	}
}

// A state that is given in pieces, whatever their size and order, is the state; so is one that is read in pieces. Moments that are not given are zero.
func statePieces(t *testing.T, h harness) {
	b := h.batch(t, rl.Default(6), h.behaviour(h.weights(26)))
	source, want := h.trainer(t, h.weights(26)), h.trainer(t, h.weights(26))
	for range 2 {
		if _, err := source.Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if _, err := want.Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := want.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 20, 1, 7} { // 7 is no divisor of a row
		got := h.trainer(t, nil)
		err := engine.LoadState(got, h.cfg, 2, func(put engine.PutState) error {
			r := engine.ReaderOf(source)
			for _, part := range slices.Backward(engine.StateParts()) {
				for i, s := range slices.Backward(h.cfg.Tensors()) {
					for from := 0; from < s.Size(); from += size {
						piece := make([]float32, min(size, s.Size()-from))
						if err := r.ReadState(part, i, from, piece); err != nil {
							return err
						}
						if err := put(part, i, from, piece); err != nil {
							return err
						}
						clear(piece) // it belongs to the caller
					}
				}
			}
			return nil
		})
		if err != nil || !sameState(got.State(), source.State()) || !got.Published().Equal(source.Published()) {
			t.Fatalf("pieces of %d: the state differs; %v", size, err)
		}
		if _, err := got.Update(t.Context(), b); err != nil || !sameState(got.State(), want.State()) {
			t.Errorf("pieces of %d: trained on, the state differs from a run without a stop; %v", size, err)
		}
	}
	failed := errors.New("the checkpoint is damaged")
	if err := engine.LoadState(h.trainer(t, nil), h.cfg, 2, func(engine.PutState) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("an error of what loads: %v", err)
	}
	for _, p := range []struct {
		part    engine.StatePart
		i, from int
	}{{"other", 0, 0}, {engine.Master, -1, 0}, {engine.Master, len(h.cfg.Tensors()), 0}, {engine.FirstMoment, 0, -1}, {engine.SecondMoment, 0, 1 << 30}} {
		if err := engine.ReaderOf(source).ReadState(p.part, p.i, p.from, make([]float32, 1)); !fault.Is(err, fault.Internal) {
			t.Errorf("read %+v: %v, want Internal", p, err)
		}
		if err := engine.LoadState(h.trainer(t, nil), h.cfg, 2, func(put engine.PutState) error {
			return put(p.part, p.i, p.from, make([]float32, 1))
		}); !fault.Is(err, fault.Internal) {
			t.Errorf("put %+v: %v, want Internal", p, err)
		}
	}
	if err := source.SetState(&engine.State{Master: h.weights(27)}); err != nil {
		t.Fatal(err)
	}
	if !sameState(source.State(), &engine.State{Master: h.weights(27), M: model.NewWeights(h.cfg), V: model.NewWeights(h.cfg)}) {
		t.Error("a state without moments is not one whose moments are zero")
	}
}

// A toy corpus is learned by heart, and what is rewarded becomes more probable.
func learns(t *testing.T, h harness) {
	tr := h.trainer(t, h.weights(28))
	s := engine.Sequence{Tokens: h.prompt(16, "corpus"), Mask: make([]bool, 16), Advantage: 1, Temperature: 1}
	for i := range s.Mask {
		s.Mask[i] = i > 0
	}
	b := engine.Batch{
		Sequences: []engine.Sequence{s}, Objective: rl.Objective{Supervised: true}, Plan: engine.Plan{MicroBatches: [][]int{{0}}},
		Optim: rl.AdamW{LearningRate: 0.02, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, ClipNorm: 1},
	}
	var losses []float64
	for range 25 {
		m, err := tr.Update(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, m.Loss)
	}
	if end := losses[len(losses)-1]; !(end < losses[0]/4) {
		t.Errorf("loss went from %v to %v in 25 steps, want less than a quarter (%s)", losses[0], end, fmt.Sprint(losses))
	}
}
