package weights

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

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
	var sources []source
	for _, f := range files {
		sources = append(sources, source{bytes.NewReader(f), len(f)})
	}
	w, _, err := decodeAll(c, sources)
	return w, err
}

// ReadWeights is Decode of one file of size bytes that is read in parts, by all cores. It returns the digest, too, if the elements are BF16; else that is empty.
// Errors: also those of r.
func ReadWeights(c model.Config, r io.ReaderAt, size int64) (w *model.Weights, digest string, err error) {
	return decodeAll(c, []source{{r, int(size)}})
}

// source is a safetensors file.
type source struct {
	io.ReaderAt
	size int
}

func (s source) header() ([]Tensor, error) {
	header := make([]byte, min(8, s.size))
	if err := s.read(header, 0); err != nil {
		return nil, err
	}
	base, err := headerEnd(header, s.size)
	if err != nil {
		return nil, err
	}
	header = append(header, make([]byte, base-8)...)
	if err := s.read(header[8:], 8); err != nil {
		return nil, err
	}
	return parseHeader(header, s.size)
}

func (s source) read(into []byte, at int) error {
	n, err := s.ReadAt(into, int64(at))
	if n == len(into) {
		return nil
	}
	return err
}

// block reads a block of a tensor; the bytes are good until release is called.
func (s source) block(t Tensor, b Block) (raw []byte, release func(), err error) {
	buf := raws.Get().(*[]byte) //nolint:forcetypeassert,errcheck // nothing else is in it
	n := (b.To - b.From) * t.DType.size()
	*buf = slices.Grow((*buf)[:0], n)[:n]
	if err := s.read(*buf, t.Offset+b.From*t.DType.size()); err != nil {
		raws.Put(buf)
		return nil, nil, err
	}
	return *buf, func() { raws.Put(buf) }, nil
}

// stored is a tensor in its file.
type stored struct {
	Tensor
	source
}

// find returns where each tensor of a model lies, in module order, and after them a tied head that is stored all the same, with their shapes.
func find(c model.Config, files []source) (at []stored, specs []model.Spec, err error) {
	const op = "weights.Decode"
	specs = c.Tensors()
	index := map[string]int{}
	for i, s := range specs {
		index[s.Name] = i
	}
	at = make([]stored, len(specs))
	seen := map[string]bool{}
	for _, file := range files {
		tensors, err := file.header()
		if err != nil {
			return nil, nil, err
		}
		for _, t := range tensors {
			if seen[t.Name] {
				return nil, nil, fault.New(fault.Corrupt, op, "tensor %s is in two files", t.Name)
			}
			seen[t.Name] = true
			i, ok := index[t.Name]
			if c.TieEmbedding && t.Name == tiedHead {
				i, ok = len(at), true
				at, specs = append(at, stored{}), append(specs, model.Spec{Name: t.Name, Shape: specs[index[embedding]].Shape})
			}
			if !ok {
				return nil, nil, fault.New(fault.Corrupt, op, "tensor %s does not belong to this model", t.Name)
			}
			if fmt.Sprint(specs[i].Shape) != fmt.Sprint(t.Shape) {
				return nil, nil, fault.New(fault.Corrupt, op, "tensor %s has shape %v, config.json says %v", t.Name, t.Shape, specs[i].Shape)
			}
			at[i] = stored{t, file}
		}
	}
	for _, s := range specs {
		if !seen[s.Name] {
			return nil, nil, fault.New(fault.Corrupt, op, "tensor %s is missing", s.Name)
		}
	}
	return at, specs, nil
}

// decodeAll reads the tensors of a model from files. The digest is that of what was read if all elements are BF16. Nothing is made in the model's size
// before the files have shown that they are as large.
func decodeAll(c model.Config, files []source) (w *model.Weights, digest string, err error) {
	at, specs, err := find(c, files)
	if err != nil {
		return nil, "", err
	}
	w = model.NewWeights(c)
	into := slices.Clone(w.Data)
	if len(specs) > len(into) {
		into = append(into, make([]float32, specs[len(into)].Size()))
	}
	half := !slices.ContainsFunc(at, func(s stored) bool { return s.DType != BF16 })
	sums := newSums(specs)
	if err := eachBlock(specs, func(b Block) error {
		p := at[b.Tensor]
		raw, release, err := p.block(p.Tensor, b)
		if err != nil {
			return err
		}
		defer release()
		if half {
			sums.set(b, sha256.Sum256(raw))
		}
		decode(into[b.Tensor][b.From:b.To], raw, p.DType)
		return nil
	}); err != nil {
		return nil, "", err
	}
	if len(into) > len(w.Data) && !sameBits(into[len(w.Data)], w.Get(embedding)) {
		return nil, "", headDiffers("the model")
	}
	if half {
		digest = sums.digest(w.Specs, BF16)
	}
	return w, digest, nil
}

// raws are the bytes of blocks, for another use.
var raws = sync.Pool{New: func() any { return new([]byte) }}

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
