package weights

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"runtime"
	"slices"
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
	sums := newSums(w.Specs)
	_ = eachBlock(w.Specs, func(b Block) error { // it never fails
		sums.set(b, blockSum(w.Data[b.Tensor][b.From:b.To], BF16))
		return nil
	})
	return sums.digest(w.Specs, BF16)
}

// StateDigest returns the digest of a trainer's whole state: FP32 master weights, both moments, step counter.
func StateDigest(s *engine.State) string {
	digest, err := ReadStateDigest(s.Master.Config, s, s.Steps)
	if err != nil {
		panic("weights: a state in memory cannot be read: " + err.Error()) // *engine.State never fails
	}
	return digest
}

// ReadStateDigest is StateDigest of a state that is read block by block, while earlier blocks are hashed. Its errors are those of r.
func ReadStateDigest(c model.Config, r engine.StateReader, steps int) (string, error) {
	d := NewSums(c)
	for _, part := range engine.StateParts() {
		err := EachBlock(c.Tensors(), func(b Block, into []float32) error { return r.ReadState(part, b.Tensor, b.From, into) },
			func(b Block, data []float32) error {
				d.Set(part, b, blockSum(data, F32))
				return nil
			})
		if err != nil {
			return "", err
		}
	}
	return d.Digest(steps), nil
}

// Block is a part of a tensor that is hashed as one: elements [From, To), at most 4,194,304.
type Block struct {
	Tensor   int // in module order
	From, To int
}

// Blocks lists the blocks of tensors, in order.
func Blocks(specs []model.Spec) []Block {
	var out []Block
	for i, s := range specs {
		for from := 0; from < s.Size(); from += digestBlock {
			out = append(out, Block{i, from, min(from+digestBlock, s.Size())})
		}
	}
	return out
}

// eachBlock calls do for every block, on all cores and in any order. It ends with the error of the earliest block, and begins with none after a failed one.
func eachBlock(specs []model.Spec, do func(b Block) error) error {
	return EachBlock(specs, nil, func(b Block, _ []float32) error { return do(b) })
}

// EachBlock calls read for every block of the tensors, one after the other in their order, and do with what was read, on all cores and in any order; data
// is good until do returns, and nil without read. It ends with the first error, in the order of the blocks, and calls nothing any more then.
func EachBlock(specs []model.Spec, read func(b Block, into []float32) error, do func(b Block, data []float32) error) error {
	all := Blocks(specs)
	largest := 0
	for _, b := range all {
		largest = max(largest, b.To-b.From)
	}
	workers := min(runtime.GOMAXPROCS(0), len(all))
	type piece struct {
		at   int
		data []float32
	}
	free, work := make(chan []float32, workers+1), make(chan piece, workers)
	for range workers + 1 {
		free <- nil
	}
	first := failure{at: len(all)}
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for p := range work {
				if err := do(all[p.at], p.data); err != nil {
					first.set(p.at, err)
				}
				free <- p.data
			}
		})
	}
	for i, b := range all {
		if first.get() != nil {
			break
		}
		buf := <-free
		if read != nil {
			if buf == nil {
				buf = make([]float32, largest)
			}
			buf = buf[:b.To-b.From]
			if err := read(b, buf); err != nil {
				first.set(i, err)
				break
			}
		}
		work <- piece{i, buf}
	}
	close(work)
	wait.Wait()
	return first.get()
}

// InOrder is EachBlock the other way round: read is called on all cores, ahead of do, which gets the blocks one after the other in their order. It ends with the
// first error in that order.
func InOrder(specs []model.Spec, read func(b Block, into []float32) error, do func(b Block, data []float32) error) error {
	type piece struct {
		data []float32
		err  error
	}
	all := Blocks(specs)
	ahead := min(runtime.GOMAXPROCS(0), len(all)) + 1
	free := make(chan []float32, ahead)
	for range ahead {
		free <- nil
	}
	coming := make(chan chan piece, ahead)
	stop := make(chan struct{})
	go func() {
		defer close(coming)
		for _, b := range all {
			var buf []float32
			select {
			case buf = <-free:
			case <-stop:
				return
			}
			here := make(chan piece, 1)
			coming <- here
			go func() {
				n := b.To - b.From
				if cap(buf) < n {
					buf = make([]float32, n)
				}
				here <- piece{buf[:n], read(b, buf[:n])}
			}()
		}
	}()
	var err error
	at, stopped := 0, false
	for here := range coming { // to the end, so that nothing runs any more afterwards
		p := <-here
		if err == nil {
			err = p.err
		}
		if err == nil {
			err = do(all[at], p.data)
		}
		if err == nil {
			free <- p.data
		} else if !stopped {
			close(stop)
			stopped = true
		}
		at++
	}
	return err
}

// failure keeps the error of the earliest block.
type failure struct {
	mu  sync.Mutex
	at  int
	err error
}

func (f *failure) set(at int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at < f.at {
		f.at, f.err = at, err
	}
}

func (f *failure) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Sum is the SHA-256 of a block's little-endian elements.
type Sum = [sha256.Size]byte

// tensorSums are the sums of the blocks of tensors.
type tensorSums [][]Sum

func newSums(specs []model.Spec) tensorSums {
	out := make(tensorSums, len(specs))
	for i, s := range specs {
		out[i] = make([]Sum, (s.Size()+digestBlock-1)/digestBlock)
	}
	return out
}

func (t tensorSums) set(b Block, sum Sum) { t[b.Tensor][b.From/digestBlock] = sum }

// line is the line of tensor i in a digest.
func (t tensorSums) line(s model.Spec, i int, dtype DType) []byte {
	out := fmt.Appendf(nil, "%s %v %s", s.Name, s.Shape, dtype)
	for _, sum := range t[i] {
		out = fmt.Appendf(out, " %x", sum)
	}
	return append(out, '\n')
}

func (t tensorSums) digest(specs []model.Spec, dtype DType) string {
	h := sha256.New()
	for i, s := range specs {
		h.Write(t.line(s, i, dtype))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Sums collects the sums of the blocks of a state, in any order and from several goroutines.
type Sums struct {
	specs []model.Spec
	parts map[engine.StatePart]tensorSums
}

// NewSums returns an empty collection for the state of a model.
func NewSums(c model.Config) *Sums {
	d := &Sums{specs: c.Tensors(), parts: map[engine.StatePart]tensorSums{}}
	for _, part := range engine.StateParts() {
		d.parts[part] = newSums(d.specs)
	}
	return d
}

// Set notes the sum of a block of a part.
func (d *Sums) Set(part engine.StatePart, b Block, sum Sum) { d.parts[part].set(b, sum) }

// Line is the line of tensor i of a part in a digest.
func (d *Sums) Line(part engine.StatePart, i int) []byte {
	return d.parts[part].line(d.specs[i], i, F32)
}

// Digest returns the state's digest; a block that was not set counts as a sum of zeros.
func (d *Sums) Digest(steps int) string {
	h := sha256.New()
	for _, part := range engine.StateParts() {
		fmt.Fprintf(h, "%s\n", part)
		for i := range d.specs {
			h.Write(d.Line(part, i))
		}
	}
	fmt.Fprintf(h, "steps %d\n", steps)
	return hex.EncodeToString(h.Sum(nil))
}

// blockSum hashes the little-endian elements of data, 64 KiB at a time.
func blockSum(data []float32, dtype DType) Sum {
	const chunk = 1 << 14
	h := sha256.New()
	buf := make([]byte, min(chunk, len(data))*dtype.size())
	for len(data) > 0 {
		n := min(chunk, len(data))
		h.Write(encode(buf, data[:n], dtype))
		data = data[n:]
	}
	return Sum(h.Sum(nil))
}

// encode fills the beginning of out with the little-endian elements of data, and returns it.
func encode(out []byte, data []float32, dtype DType) []byte {
	out = out[:len(data)*dtype.size()]
	if dtype == BF16 {
		for i, x := range data {
			binary.LittleEndian.PutUint16(out[2*i:], ToBF16(x))
		}
		return out
	}
	for i, x := range data {
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(x))
	}
	return out
}

// decode fills out with the elements of raw.
func decode(out []float32, raw []byte, dtype DType) {
	raw = raw[:len(out)*dtype.size()]
	if dtype == BF16 {
		for i := range out {
			out[i] = FromBF16(binary.LittleEndian.Uint16(raw[2*i:]))
		}
		return
	}
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
}

// AppendF32 appends the little-endian elements of data.
func AppendF32(out []byte, data []float32) []byte {
	at := len(out)
	out = slices.Grow(out, 4*len(data))[:at+4*len(data)]
	encode(out[at:], data, F32)
	return out
}

// DecodeF32 fills out with the little-endian elements at the beginning of raw.
func DecodeF32(out []float32, raw []byte) { decode(out, raw, F32) }
