package weights

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// CheckDir reads a whole model directory, on all cores, and reports the first thing that keeps it from being trained:
// a missing, cut or malformed file, a tensor that is missing, foreign, repeated or of another shape, a number that is not
// finite, a tied head that differs from the embedding. name is what messages call the directory.
//
// Errors: Invalid (no model, or one that this build cannot run), Corrupt or Numeric, naming the file, the tensor and the element.
func CheckDir(ctx context.Context, dir fs.FS, name string) error {
	c, err := loadConfig(dir, name)
	if err != nil {
		return err
	}
	files, err := weightFiles(dir, name)
	if err != nil {
		return err
	}
	k := checker{dir: dir, config: c, shapes: map[string]string{}, in: map[string]place{}}
	for _, s := range c.Tensors() {
		k.shapes[s.Name] = fmt.Sprint(s.Shape)
	}
	if c.TieEmbedding {
		k.shapes[tiedHead] = k.shapes[embedding]
	}
	for _, f := range files {
		if err := k.file(ctx, f); err != nil {
			return fault.New(fault.KindOf(err), "weights.CheckDir", "%s: %w", path.Join(name, f), err).
				WithHint(fetchAgain)
		}
	}
	in := map[string]string{}
	for tensor, p := range k.in {
		in[tensor] = p.file
	}
	if err := checkIndex(dir, name, in); err != nil {
		return err
	}
	for _, s := range c.Tensors() {
		if _, ok := k.in[s.Name]; !ok {
			return fault.New(fault.Corrupt, "weights.CheckDir", "%s: tensor %s is in none of the %d weight files", name, s.Name, len(files)).
				WithHint(fetchAgain)
		}
	}
	return k.head(name)
}

const (
	tiedHead  = "lm_head.weight"
	embedding = "model.embed_tokens.weight"
)

type place struct {
	file string
	Tensor
}

type checker struct {
	dir    fs.FS
	config model.Config
	shapes map[string]string // wanted, by tensor
	in     map[string]place  // found, by tensor
}

func (k *checker) file(ctx context.Context, name string) error {
	const op = "weights.CheckDir"
	f, err := openSource(k.dir, name)
	if err != nil {
		return fault.New(fault.Corrupt, op, "%w", err)
	}
	defer f.Close() //nolint:errcheck // was only read
	tensors, err := f.header()
	if err != nil {
		return err
	}
	var specs []model.Spec
	for _, t := range tensors {
		want, ok := k.shapes[t.Name]
		switch {
		case !ok:
			return fault.New(fault.Corrupt, op, "tensor %s does not belong to this model", t.Name)
		case fmt.Sprint(t.Shape) != want:
			return fault.New(fault.Corrupt, op, "tensor %s has shape %v, %s says %s", t.Name, t.Shape, ConfigFile, want)
		case k.in[t.Name].file != "":
			return fault.New(fault.Corrupt, op, "tensor %s is in %s too", t.Name, k.in[t.Name].file)
		}
		specs = append(specs, model.Spec{Name: t.Name, Shape: t.Shape})
		k.in[t.Name] = place{name, t}
	}
	return eachBlock(specs, func(b Block) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := tensors[b.Tensor]
		raw, release, err := f.block(t, b)
		if err != nil {
			return fault.New(fault.Corrupt, op, "tensor %s: %w", t.Name, err)
		}
		defer release()
		if i := notFinite(raw, t.DType); i >= 0 {
			return fault.New(fault.Numeric, op, "tensor %s has %v at element %d", t.Name, element(raw[i*t.DType.size():], t.DType), b.From+i)
		}
		return nil
	})
}

// notFinite returns the index of the first element that is not finite, -1 if there is none.
func notFinite(raw []byte, d DType) int {
	for i := range len(raw) / d.size() {
		if d == BF16 && binary.LittleEndian.Uint16(raw[2*i:])&0x7f80 == 0x7f80 ||
			d == F32 && binary.LittleEndian.Uint32(raw[4*i:])&0x7f800000 == 0x7f800000 {
			return i
		}
	}
	return -1
}

func element(raw []byte, d DType) float32 {
	if d == BF16 {
		return FromBF16(binary.LittleEndian.Uint16(raw))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(raw))
}

// head compares a tied head that is stored all the same with the embedding.
func (k *checker) head(name string) error {
	head, ok := k.in[tiedHead]
	if !ok || !k.config.TieEmbedding {
		return nil
	}
	same, err := k.same(head, k.in[embedding])
	if err != nil {
		return fault.New(fault.Corrupt, "weights.CheckDir", "%s: %w", name, err)
	}
	if !same {
		return headDiffers(name)
	}
	return nil
}

// same reports whether two tensors of one shape have equal elements.
func (k *checker) same(a, b place) (bool, error) {
	fa, err := openSource(k.dir, a.file)
	if err != nil {
		return false, err
	}
	defer fa.Close() //nolint:errcheck // was only read
	fb, err := openSource(k.dir, b.file)
	if err != nil {
		return false, err
	}
	defer fb.Close() //nolint:errcheck // was only read
	err = eachBlock([]model.Spec{{Name: a.Name, Shape: a.Shape}}, func(at Block) error {
		pa, release, err := fa.block(a.Tensor, at)
		if err != nil {
			return err
		}
		defer release()
		pb, release, err := fb.block(b.Tensor, at)
		if err != nil {
			return err
		}
		defer release()
		for i := range at.To - at.From {
			if math.Float32bits(element(pa[i*a.DType.size():], a.DType)) != math.Float32bits(element(pb[i*b.DType.size():], b.DType)) {
				return errDiffer
			}
		}
		return nil
	})
	if errors.Is(err, errDiffer) {
		return false, nil
	}
	return err == nil, err
}

var errDiffer = errors.New("they differ")

func headDiffers(name string) error {
	return fault.New(fault.Corrupt, "weights.CheckDir", "%s: tie_word_embeddings is true, but %s differs from the embedding", name, tiedHead).
		WithHint("set tie_word_embeddings to false in %s if the head is meant to be its own", ConfigFile)
}
