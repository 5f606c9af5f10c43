package weights

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// CheckDir reads a whole model directory, 1 MiB at a time, and reports the first thing that keeps it from being trained:
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
	f, err := k.dir.Open(name)
	if err != nil {
		return fault.New(fault.Corrupt, "weights.CheckDir", "%w", err)
	}
	defer f.Close()
	tensors, err := readHeader(f)
	if err != nil {
		return err
	}
	for _, t := range tensors { // in the order of their bytes, without holes
		if err := k.tensor(ctx, f, t); err != nil {
			return err
		}
		k.in[t.Name] = place{name, t}
	}
	return nil
}

// readHeader reads the header of a safetensors file, no more.
func readHeader(f fs.File) ([]Tensor, error) {
	const op = "weights.CheckDir"
	st, err := f.Stat()
	if err != nil {
		return nil, fault.New(fault.Corrupt, op, "%w", err)
	}
	length := int(st.Size())
	header := make([]byte, min(8, length))
	if _, err := io.ReadFull(f, header); err != nil {
		return nil, fault.New(fault.Corrupt, op, "%w", err)
	}
	base, err := headerEnd(header, length)
	if err != nil {
		return nil, err
	}
	header = append(header, make([]byte, base-8)...)
	if _, err := io.ReadFull(f, header[8:]); err != nil {
		return nil, fault.New(fault.Corrupt, op, "%w", err)
	}
	return parseHeader(header, length)
}

// tensor checks the tensor whose bytes come next in r.
func (k *checker) tensor(ctx context.Context, r io.Reader, t Tensor) error {
	const op = "weights.CheckDir"
	want, ok := k.shapes[t.Name]
	switch {
	case !ok:
		return fault.New(fault.Corrupt, op, "tensor %s does not belong to this model", t.Name)
	case fmt.Sprint(t.Shape) != want:
		return fault.New(fault.Corrupt, op, "tensor %s has shape %v, %s says %s", t.Name, t.Shape, ConfigFile, want)
	case k.in[t.Name].file != "":
		return fault.New(fault.Corrupt, op, "tensor %s is in %s too", t.Name, k.in[t.Name].file)
	}
	buf := make([]byte, min(1<<20, t.Size))
	size := t.DType.size()
	for done := 0; done < t.Size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := buf[:min(len(buf), t.Size-done)]
		if _, err := io.ReadFull(r, part); err != nil {
			return fault.New(fault.Corrupt, op, "tensor %s: %w", t.Name, err)
		}
		if i := notFinite(part, t.DType); i >= 0 {
			return fault.New(fault.Numeric, op, "tensor %s has %v at element %d", t.Name, element(part[i*size:], t.DType), done/size+i)
		}
		done += len(part)
	}
	return nil
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
	ra, err := k.open(a)
	if err != nil {
		return false, err
	}
	defer ra.Close()
	rb, err := k.open(b)
	if err != nil {
		return false, err
	}
	defer rb.Close()
	const most = 1 << 18 // elements at a time
	sa, sb := a.DType.size(), b.DType.size()
	for left := a.Size / sa; left > 0; left -= min(left, most) {
		n := min(left, most)
		pa, pb := make([]byte, n*sa), make([]byte, n*sb)
		if _, err := io.ReadFull(ra, pa); err != nil {
			return false, err
		}
		if _, err := io.ReadFull(rb, pb); err != nil {
			return false, err
		}
		for i := range n {
			if math.Float32bits(element(pa[i*sa:], a.DType)) != math.Float32bits(element(pb[i*sb:], b.DType)) {
				return false, nil
			}
		}
	}
	return true, nil
}

// open returns the file of a tensor at the tensor's first byte.
func (k *checker) open(p place) (fs.File, error) {
	f, err := k.dir.Open(p.file)
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, f, int64(p.Offset)); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func headDiffers(name string) error {
	return fault.New(fault.Corrupt, "weights.CheckDir", "%s: tie_word_embeddings is true, but %s differs from the embedding", name, tiedHead).
		WithHint("set tie_word_embeddings to false in %s if the head is meant to be its own", ConfigFile)
}
