//go:build cuda

package cuda

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/rng"
)

// packed are sequences of very different lengths, one of them of more than one split, with a record that is not the trainer's distribution.
func packed(c model.Config, k int, lengths ...int) engine.Batch {
	b := engine.Batch{
		Objective: rl.Default(k), Optim: rl.AdamW{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}, Plan: engine.Plan{MicroBatches: [][]int{nil}},
	}
	for i, n := range lengths {
		s := engine.Sequence{
			Tokens: ids(n, c.Vocab, i), Mask: make([]bool, n), LogProbs: make([]float32, n), TopK: k, TopIDs: make([]int32, n*k), TopLogProbs: make([]float32, n*k),
			Advantage: 1 - 0.5*float32(i), Temperature: 0.75 + 0.25*float64(i%3),
		}
		for j := range n {
			s.Mask[j], s.LogProbs[j] = j > 0 && j%3 != 0, -5
			for v := range k {
				s.TopIDs[j*k+v], s.TopLogProbs[j*k+v] = int32((7*j+v)%c.Vocab), -4-0.5*float32(v)
			}
		}
		b.Sequences = append(b.Sequences, s)
		b.Plan.MicroBatches[0] = append(b.Plan.MicroBatches[0], i)
	}
	return b
}

// gradientErrors are, by tensor, the norm of the difference to the reference's gradient over the norm of that; and both sides' figures of the step.
func gradientErrors(t *testing.T, o Options, c model.Config, b engine.Batch) (out map[string]float64, got, want engine.StepMetrics) {
	t.Helper()
	w := weightsOf(c, 8, 0.08)
	for i := range w.Data {
		for j, x := range w.Data[i] {
			w.Data[i][j] = math.Float32frombits(uint32(toBF16(x)) << 16)
		}
	}
	right, want, err := ref.Gradient(w, b)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := NewTrainer(c, w, o)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = tr.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	moments := tr.State().M
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	out = map[string]float64{}
	for i, s := range right.Specs {
		var d2, n2 float64
		for j, x := range right.Data[i] {
			d := float64(moments.Data[i][j])/(1-b.Optim.Beta1) - float64(x)
			d2, n2 = d2+d*d, n2+float64(x)*float64(x)
		}
		out[s.Name] = math.Sqrt(d2 / n2)
	}
	return out, got, want
}

// In BF16 an input of a product is off by 2^-9 at random, and a gradient passes through tens of products: some per cent of a tensor's gradient at most. A
// missing or wrong term is off by the size of what it leaves out.
func TestGradient_packedIsNearTheReference(t *testing.T) {
	c := medium
	c.Vocab, c.Hidden, c.Layers, c.Heads, c.Intermediate = 300, 72, 2, 4, 136
	b := packed(c, 5, 3, 264, 1, 40)
	for p, tolerance := range map[Precision]float64{BF16: 0.04, Float32: 1e-4} {
		o := options(t, p)
		errors, _, _ := gradientErrors(t, o, c, b)
		for name, e := range errors {
			if !(e < tolerance) {
				t.Errorf("%s: the gradient of %s is off by %.2g of its norm, want less than %v", p, name, e, tolerance)
			}
		}
	}
}

// Sequences that share a micro-batch do not see each other, and a micro-batch smaller than the one before finds no remains of it.
func TestGradient_sequencesAreApart(t *testing.T) {
	o := options(t, Float32)
	c := medium
	c.Vocab, c.Layers = 60, 1
	b := packed(c, 3, 30, 70, 5)
	b.Sequences[0].Advantage, b.Sequences[1].Advantage = 0, 0
	sum := func(plan [][]int) *model.Weights {
		tr, err := NewTrainer(c, weightsOf(c, 9, 0.1), o)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		b.Plan.MicroBatches = plan
		if _, err := tr.Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		return tr.State().M
	}
	alone := sum([][]int{{2}, {0}, {1}})
	for _, plan := range [][][]int{{{0, 1, 2}}, {{2, 1, 0}}, {{1}, {0, 2}}} {
		got := sum(plan)
		for i, s := range got.Specs {
			for j, x := range got.Data[i] {
				if d := math.Abs(float64(x - alone.Data[i][j])); !(d <= 1e-6) {
					t.Fatalf("plan %v: %s[%d] = %v, alone %v", plan, s.Name, j, x, alone.Data[i][j])
				}
			}
		}
	}
}

// The gradients' products against float64, by cuBLASLt where it is: any number of rows, a stride of dy, and sums on top of what is there.
func TestProduct_gradients(t *testing.T) {
	o, err := options(t, BF16).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, shape := range [][3]int{{96, 64, 300}, {256, 128, 129}, {1000, 512, 700}, {37, 20, 131}} {
		c := medium
		c.Vocab, c.Hidden = shape[0], shape[1]
		g, err := newTrainGPU(c, o)
		if err != nil {
			t.Fatal(err)
		}
		m, n := g.w.head, shape[2]
		rows, stride := pad(n, tile), pad(m.rows, plan.Align)
		st := rng.New(2, rng.Corpus, shape)
		half := func(height, width, used, from int) (bits []uint16, values []float64) {
			bits, values = make([]uint16, height*width), make([]float64, height*width)
			for i := range bits {
				if i/width < n && i%width < used {
					bits[i] = toBF16(float32(st.Uniform(uint64(from+i)) - 0.5))
					values[i] = float64(math.Float32frombits(uint32(bits[i]) << 16))
				}
			}
			return bits, values
		}
		wBits, _ := half(m.rows, m.colsP, m.cols, 0)
		w := make([]float64, len(wBits))
		for i := range wBits { // all rows of the weights count, not n of them
			wBits[i] = toBF16(float32(st.Uniform(uint64(1<<30+i)) - 0.5))
			w[i] = float64(math.Float32frombits(uint32(wBits[i]) << 16))
		}
		dyBits, dy := half(rows, stride, m.rows, 1<<20)
		xBits, x := half(rows, m.colsP, m.cols, 2<<20)
		var dyAt, xAt, dxAt cudart.Ptr
		b := &batch{d: &g.device}
		for at, bytes := range map[*cudart.Ptr]int{&dyAt: 2 * len(dyBits), &xAt: 2 * len(xBits), &dxAt: 4 * rows * m.colsP} {
			b.do(func() error { return g.alloc(at, bytes) })
		}
		b.do(func() error { return cudart.Upload(g.ctx, m.at, wBits) })
		b.do(func() error { return cudart.Upload(g.ctx, dyAt, dyBits) })
		b.do(func() error { return cudart.Upload(g.ctx, xAt, xBits) })
		dw := g.grad(m)
		ones := slices.Repeat([]float32{1}, m.size())
		b.do(func() error { return cudart.Upload(g.ctx, dw, ones) })
		b.inputGrad(dxAt, dyAt, stride, m, n)
		b.weightsGrad(dw, dyAt, xAt, stride, m, n)
		dx := make([]float32, rows*m.colsP)
		b.do(func() error { return cudart.Download(g.ctx, dx, dxAt) })
		b.do(func() error { return cudart.Download(g.ctx, ones, dw) })
		if b.err != nil {
			t.Fatal(b.err)
		}
		for _, r := range []int{0, 1, 127, 128, n - 1} {
			for _, col := range []int{0, 1, m.cols - 1} {
				var want, size float64
				for k := range m.rows {
					want += dy[r*stride+k] * w[k*m.colsP+col]
					size += math.Abs(dy[r*stride+k] * w[k*m.colsP+col])
				}
				if d := math.Abs(float64(dx[r*m.colsP+col]) - want); !(d <= 1e-5*size) {
					t.Errorf("%v: dx[%d,%d] = %v, want %v", shape, r, col, dx[r*m.colsP+col], want)
				}
			}
		}
		for _, r := range []int{0, 1, m.rows - 1} {
			for _, col := range []int{0, 1, m.cols - 1} {
				want, size := 1.0, 1.0
				for k := range n {
					want += dy[k*stride+r] * x[k*m.colsP+col]
					size += math.Abs(dy[k*stride+r] * x[k*m.colsP+col])
				}
				if d := math.Abs(float64(ones[r*m.colsP+col]) - want); !(d <= 1e-5*size) {
					t.Errorf("%v: dw[%d,%d] = %v, want %v", shape, r, col, ones[r*m.colsP+col], want)
				}
			}
		}
		if err := g.close(); err != nil {
			t.Error(err)
		}
	}
}
