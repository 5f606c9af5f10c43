package weights

import (
	"fmt"
	"math"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// Encode returns one safetensors file of all tensors of w.
func Encode(w *model.Weights, dtype DType) ([]byte, error) {
	return WriteFile(Tensors(w), dtype)
}

// Tensors lists the tensors of w with their shapes, in module order.
func Tensors(w *model.Weights) []Named {
	out := make([]Named, len(w.Specs))
	for i, s := range w.Specs {
		out[i] = Named{Name: s.Name, Shape: s.Shape, Data: w.Data[i]}
	}
	return out
}

// Decode reads a complete set of tensors for c from safetensors files, each tensor exactly once. A tied head that is
// stored all the same must equal the embedding. Errors: Corrupt, naming what is missing, odd or repeated.
func Decode(c model.Config, files ...[]byte) (*model.Weights, error) {
	const op = "weights.Decode"
	w := model.NewWeights(c)
	seen := map[string]bool{}
	var head []float32
	for _, file := range files {
		tensors, err := ReadHeader(file)
		if err != nil {
			return nil, err
		}
		for _, t := range tensors {
			if seen[t.Name] {
				return nil, fault.New(fault.Corrupt, op, "tensor %s is in two files", t.Name)
			}
			seen[t.Name] = true
			if c.TieEmbedding && t.Name == tiedHead {
				head = t.Floats(file)
				continue
			}
			if err := fill(w, t, file); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range w.Specs {
		if !seen[s.Name] {
			return nil, fault.New(fault.Corrupt, op, "tensor %s is missing", s.Name)
		}
	}
	if head != nil && !sameBits(head, w.Get(embedding)) {
		return nil, headDiffers("the model")
	}
	return w, nil
}

func fill(w *model.Weights, t Tensor, file []byte) error {
	dst := w.Get(t.Name)
	if dst == nil {
		return fault.New(fault.Corrupt, "weights.Decode", "tensor %s does not belong to this model", t.Name)
	}
	for _, s := range w.Specs {
		if s.Name == t.Name && fmt.Sprint(s.Shape) != fmt.Sprint(t.Shape) {
			return fault.New(fault.Corrupt, "weights.Decode", "tensor %s has shape %v, config.json says %v", t.Name, t.Shape, s.Shape)
		}
	}
	t.read(dst, file)
	return nil
}

func sameBits(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}

// Round returns a copy of w with every element rounded to BF16: the published form.
func Round(w *model.Weights) *model.Weights {
	out := model.NewWeights(w.Config)
	for i := range w.Data {
		for j, x := range w.Data[i] {
			out.Data[i][j] = RoundBF16(x)
		}
	}
	return out
}
