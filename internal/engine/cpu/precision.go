package cpu

import (
	"math"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/weights"
)

// Precision is the arithmetic of a sampler. Published weights are BF16 values in any case.
//
// BF16 rounds the result of every product, norm, head, attention and sum to BF16 (to nearest, ties to even), logits included; sums inside a product,
// the softmax of attention and the distribution that is drawn from are FP32. INT8 rounds the matrices of the layers, not embedding, head
// and norms: of each row, the largest magnitude becomes 127 steps, and every weight a whole number of them; all arithmetic is FP32. The
// log-probabilities that are recorded are those of the distribution that was drawn from, so of the rounded model.
type Precision string

// Precisions of a sampler.
const (
	FP32 Precision = "fp32"
	BF16 Precision = "bf16"
	INT8 Precision = "int8"
)

func (p Precision) check(op string) error {
	switch p {
	case "", FP32, BF16, INT8:
		return nil
	}
	return fault.New(fault.Invalid, op, "precision %q: want fp32, bf16 or int8", p)
}

// narrow rounds m rows of width n of y, row stride ld, in a BF16 sampler.
func (c *core) narrow(y []float32, ld, m, n int) {
	if !c.bf16 {
		return
	}
	for i := range m {
		row := y[i*ld:][:n]
		for j, v := range row {
			row[j] = weights.RoundBF16(v)
		}
	}
}

// quantized returns w with the matrices of its layers rounded to INT8, as float32; w is not changed.
func quantized(w *model.Weights) *model.Weights {
	out := &model.Weights{Config: w.Config, Specs: w.Specs, Data: make([][]float32, len(w.Data))}
	for i, s := range w.Specs {
		out.Data[i] = w.Data[i]
		if !strings.HasSuffix(s.Name, "_proj.weight") {
			continue
		}
		out.Data[i] = append([]float32(nil), w.Data[i]...)
		width := s.Shape[len(s.Shape)-1]
		for r := 0; r < len(out.Data[i]); r += width {
			quantizeRow(out.Data[i][r:][:width])
		}
	}
	return out
}

// quantizeRow replaces each value by the nearest multiple of a 127th of the largest magnitude, ties to even.
func quantizeRow(row []float32) {
	var most float32
	for _, v := range row {
		most = max(most, float32(math.Abs(float64(v))))
	}
	if most == 0 {
		return
	}
	for i, v := range row {
		steps := math.RoundToEven(float64(v) * 127 / float64(most))
		row[i] = float32(steps * float64(most) / 127)
	}
}
