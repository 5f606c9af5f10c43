package weights

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"runtime"
	"sync"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/model"
)

// digestBlock is the number of elements that are hashed as one. It is part of every digest.
const digestBlock = 1 << 22

// Digest returns the digest of the BF16 form of w.
//
// A digest is the SHA-256 of a text with a line for each tensor in module order: name, shape, element type, and the SHA-256s of
// its little-endian elements in blocks of 4,194,304. So all cores work on the digest of a large model; their number does not change it.
func Digest(w *model.Weights) string {
	h := sha256.New()
	for i, s := range w.Specs {
		h.Write(tensorLine(s, w.Data[i], BF16))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// StateDigest returns the digest of a trainer's whole state: FP32 master weights, both moments, step counter.
func StateDigest(s *engine.State) string {
	digest, err := ReadStateDigest(s.Master.Config, s, s.Steps)
	if err != nil {
		panic("weights: a state in memory cannot be read: " + err.Error()) // *engine.State never fails
	}
	return digest
}

// ReadStateDigest is StateDigest of a state that is read tensor by tensor. Its errors are those of r.
func ReadStateDigest(c model.Config, r engine.StateReader, steps int) (string, error) {
	d := NewStateDigest(c)
	for _, part := range engine.StateParts() {
		for i := range d.specs {
			data, err := r.ReadState(part, i)
			if err != nil {
				return "", err
			}
			d.Add(part, i, data)
		}
	}
	return d.Sum(steps), nil
}

// PartialDigest collects the digest of a state whose tensors come in any order.
type PartialDigest struct {
	specs []model.Spec
	lines map[engine.StatePart][][]byte
}

// NewStateDigest begins the digest of a state of a model.
func NewStateDigest(c model.Config) *PartialDigest {
	d := &PartialDigest{specs: c.Tensors(), lines: map[engine.StatePart][][]byte{}}
	for _, part := range engine.StateParts() {
		d.lines[part] = make([][]byte, len(d.specs))
	}
	return d
}

// Add adds tensor i, in module order, of a part.
func (d *PartialDigest) Add(part engine.StatePart, i int, data []float32) {
	d.lines[part][i] = tensorLine(d.specs[i], data, F32)
}

// Sum returns the digest; a tensor that was not added counts as an empty line.
func (d *PartialDigest) Sum(steps int) string {
	h := sha256.New()
	for _, part := range engine.StateParts() {
		fmt.Fprintf(h, "%s\n", part)
		for _, line := range d.lines[part] {
			h.Write(line)
		}
	}
	fmt.Fprintf(h, "steps %d\n", steps)
	return hex.EncodeToString(h.Sum(nil))
}

// tensorLine is the line of a tensor in a digest.
func tensorLine(s model.Spec, data []float32, dtype DType) []byte {
	sums := make([][sha256.Size]byte, (len(data)+digestBlock-1)/digestBlock)
	blocks(len(data), func(from, to int) { sums[from/digestBlock] = blockSum(data[from:to], dtype) })
	line := fmt.Appendf(nil, "%s %v %s", s.Name, s.Shape, dtype)
	for _, sum := range sums {
		line = fmt.Appendf(line, " %x", sum)
	}
	return append(line, '\n')
}

// blocks calls do for every block of n elements, on all cores.
func blocks(n int, do func(from, to int)) {
	count := (n + digestBlock - 1) / digestBlock
	work := make(chan int)
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), count) {
		all.Go(func() {
			for i := range work {
				do(i*digestBlock, min((i+1)*digestBlock, n))
			}
		})
	}
	for i := range count {
		work <- i
	}
	close(work)
	all.Wait()
}

func blockSum(data []float32, dtype DType) [sha256.Size]byte {
	h := sha256.New()
	hashElements(h, data, dtype)
	return [sha256.Size]byte(h.Sum(nil))
}

// hashElements writes the little-endian elements of data into h.
func hashElements(h hash.Hash, data []float32, dtype DType) {
	const chunk = 1 << 14
	buf := make([]byte, 0, 4*chunk)
	for len(data) > 0 {
		n := min(chunk, len(data))
		buf = appendRaw(buf[:0], data[:n], dtype)
		h.Write(buf)
		data = data[n:]
	}
}

// appendRaw appends the little-endian elements of data.
func appendRaw(out []byte, data []float32, dtype DType) []byte {
	if dtype == BF16 {
		for _, x := range data {
			out = binary.LittleEndian.AppendUint16(out, ToBF16(x))
		}
		return out
	}
	for _, x := range data {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}
