package parity

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/weights"
)

// tolerance is relative to the largest magnitude of a tensor. The library rounds to float32 inside its norms, its rotation
// angles and its attention softmax even in a float64 model: 2^-24 in each of some 20 operations, through two layers of
// matrices that can amplify it, and the goldens are stored as float32. Measured: 1.2e-6 for the oracle, 3.5e-6 for cpu.
// A float32 backend adds errors of the same size in every operation, and sums of up to 96 products.
var backends = []struct {
	name      string
	tolerance float64
	sampler   func(model.Config) (engine.Sampler, error)
	trainer   func(model.Config, *model.Weights) (engine.Trainer, error)
}{
	{"ref", 4e-6, ref.NewSampler, ref.NewTrainer},
	{
		"cpu", 2e-5,
		func(c model.Config) (engine.Sampler, error) { return cpu.NewSampler(c, cpu.Options{}) },
		func(c model.Config, w *model.Weights) (engine.Trainer, error) {
			return cpu.NewTrainer(c, w, cpu.Options{})
		},
	},
}

type golden struct {
	Tokens   []int32  `json:"tokens"`
	Mask     []bool   `json:"mask"`
	Stride   int      `json:"stride"`
	Loss     float64  `json:"loss"`
	GradNorm float64  `json:"grad_norm"`
	Optim    rl.AdamW `json:"optim"`

	weights *model.Weights
	tensors map[string][]float32
}

func read(t *testing.T, name string) golden {
	t.Helper()
	dir := filepath.Join("testdata", name)
	var g golden
	data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if g.weights, err = weights.LoadDir(dir); err != nil {
		t.Fatalf("load the model as the library saved it: %v", err)
	}
	file, err := os.ReadFile(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := weights.ReadHeader(file)
	if err != nil {
		t.Fatal(err)
	}
	g.tensors = map[string][]float32{}
	for _, x := range tensors {
		g.tensors[x.Name] = x.Floats(file)
	}
	return g
}

// compare reports the worst element relative to want's largest magnitude and returns that difference.
func compare(t *testing.T, what string, got, want []float32, tolerance float64) float64 {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	var top, diff float64
	at := 0
	for i, x := range want {
		top = max(top, math.Abs(float64(x)))
		if d := math.Abs(float64(got[i]) - float64(x)); !(d <= diff) {
			diff, at = d, i
		}
	}
	if !(diff/top <= tolerance) {
		t.Errorf("%s[%d] = %v, want %v (off by %.3g of the largest, %v)", what, at, got[at], want[at], diff/top, top)
	}
	return diff / top
}

func thin(x []float32, stride int) []float32 {
	var out []float32
	for i := 0; i < len(x); i += stride {
		out = append(out, x[i])
	}
	return out
}

func TestParity_huggingFace(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{"grouped_untied", "wide_tied"} {
		g := read(t, shape)
		for _, b := range backends {
			t.Run(shape+"/"+b.name, func(t *testing.T) {
				t.Parallel()
				s, err := b.sampler(g.weights.Config)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if err := s.SetWeights(t.Context(), 0, g.weights); err != nil {
					t.Fatal(err)
				}
				checkLogProbs(t, s, g, b.tolerance)
				checkLogits(t, s, g, b.tolerance)
				tr, err := b.trainer(g.weights.Config, g.weights)
				if err != nil {
					t.Fatal(err)
				}
				defer tr.Close()
				checkUpdate(t, tr, g, b.tolerance)
			})
		}
	}
}

func checkLogProbs(t *testing.T, s engine.Sampler, g golden, tolerance float64) {
	t.Helper()
	got, err := s.Score(t.Context(), g.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("log-probabilities: worst relative difference %.2g", compare(t, "log-probability", got, g.tensors["log_probs"], tolerance))
}

// checkLogits compares whole distributions: the logits of the library less their log-sum-exp.
func checkLogits(t *testing.T, s engine.Sampler, g golden, tolerance float64) {
	t.Helper()
	v := g.weights.Config.Vocab
	for _, at := range []int{0, 1, 20, 44} {
		want := slices.Clone(g.tensors["logits"][at*v : (at+1)*v])
		top, sum := float64(slices.Max(want)), 0.0
		for _, x := range want {
			sum += math.Exp(float64(x) - top)
		}
		for i := range want {
			want[i] -= float32(top + math.Log(sum))
		}
		got := make([]float32, v)
		req := engine.Request{Tokens: g.Tokens[:at+1], MaxNew: 1, Sampling: engine.Sampling{Temperature: 1, TopK: v}}
		_, err := s.Generate(t.Context(), req, func(tok engine.Token) error {
			for i, id := range tok.TopIDs {
				got[id] = tok.TopLogProbs[i]
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "distribution", got, want, tolerance)
	}
}

// checkUpdate compares the loss, all gradients (as the first moment after a step without clipping) and the master
// weights after one clipped step with decay.
func checkUpdate(t *testing.T, tr engine.Trainer, g golden, tolerance float64) {
	t.Helper()
	initial := tr.State()
	batch := engine.Batch{
		Sequences: []engine.Sequence{{Tokens: g.Tokens, Mask: g.Mask, Advantage: 1, Temperature: 1}},
		Objective: rl.Objective{Supervised: true}, Optim: g.Optim, Plan: engine.Plan{MicroBatches: [][]int{{0}}},
	}
	batch.Optim.ClipNorm = 0
	m, err := tr.Update(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(m.Loss-g.Loss) > tolerance*g.Loss || math.Abs(m.GradNorm-g.GradNorm) > tolerance*g.GradNorm {
		t.Errorf("loss %v, gradient norm %v, want %v and %v", m.Loss, m.GradNorm, g.Loss, g.GradNorm)
	}
	worst := 0.0
	moments := tr.State().M
	for i, s := range moments.Specs {
		grad := thin(moments.Data[i], g.Stride)
		for j := range grad {
			grad[j] = float32(float64(grad[j]) / (1 - batch.Optim.Beta1))
		}
		worst = max(worst, compare(t, "gradient of "+s.Name, grad, g.tensors["grad."+s.Name], tolerance))
	}
	t.Logf("gradients: worst relative difference %.2g", worst)
	if err := tr.SetState(initial); err != nil {
		t.Fatal(err)
	}
	batch.Optim.ClipNorm = g.Optim.ClipNorm
	if _, err := tr.Update(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	after := tr.State().Master
	for i, s := range after.Specs {
		compareStep(t, s.Name, thin(after.Data[i], g.Stride), thin(initial.Master.Data[i], g.Stride), g, tolerance)
	}
}

// compareStep compares how far the weights moved. Adam's first step is rate * g / (|g| + epsilon), so an element whose gradient is
// about as small as its error may move either way; where the gradient is a thousand times the error, the step
// is known to a thousandth.
func compareStep(t *testing.T, name string, got, before []float32, g golden, tolerance float64) {
	t.Helper()
	want, grads := g.tensors["step."+name], g.tensors["grad."+name]
	var top float64
	for _, x := range grads {
		top = max(top, math.Abs(float64(x)))
	}
	compared := 0
	for i, x := range want {
		if math.Abs(float64(grads[i])) < 1000*tolerance*top {
			continue
		}
		compared++
		if d := math.Abs(float64(got[i]) - float64(x)); d > 2e-3*g.Optim.LearningRate+math.Abs(float64(x))*0x1p-23 {
			t.Errorf("%s element %d of the thinned tensor went from %v to %v, want %v", name, i, before[i], got[i], x)
			return
		}
	}
	if compared == 0 {
		t.Errorf("%s: no element could be compared", name)
	}
}
