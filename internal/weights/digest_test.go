package weights

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/model"
)

// The line of a tensor has the SHA-256 of each block, also of a last one that is not full, computed here in the plain way.
func TestDigest_hashesBlocks(t *testing.T) {
	t.Parallel()
	c := model.Config{
		Vocab: digestBlock/8 + 1, Hidden: 8, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 4, Intermediate: 2, MaxPosition: 8, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
	}
	w := model.NewWeights(c)
	var text, state []byte
	for i, s := range w.Specs {
		for j := range w.Data[i] {
			w.Data[i][j] = float32((i+j)%1013) - 0.3
		}
		for _, dtype := range []DType{F32, BF16} {
			var raw []byte
			for _, x := range w.Data[i] {
				if dtype == BF16 {
					raw = binary.LittleEndian.AppendUint16(raw, ToBF16(x))
				} else {
					raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
				}
			}
			line := fmt.Sprintf("%s %v %s", s.Name, s.Shape, dtype)
			for cut := digestBlock * dtype.size(); len(raw) > 0; raw = raw[min(cut, len(raw)):] {
				line += fmt.Sprintf(" %x", sha256.Sum256(raw[:min(cut, len(raw))]))
			}
			if dtype == BF16 {
				text = append(text, line+"\n"...)
			} else {
				state = append(state, line+"\n"...)
			}
		}
	}
	if got, want := Digest(w), fmt.Sprintf("%x", sha256.Sum256(text)); got != want {
		t.Errorf("weights: got %s, want %s", got, want)
	}
	all := fmt.Sprintf("master\n%sm\n%sv\n%ssteps 4\n", state, state, state)
	if got, want := StateDigest(&engine.State{Master: w, M: w, V: w, Steps: 4}), fmt.Sprintf("%x", sha256.Sum256([]byte(all))); got != want {
		t.Errorf("state: got %s, want %s", got, want)
	}
	// What is read from a file in parts has the same digest.
	data, err := Encode(w, BF16)
	if err != nil {
		t.Fatal(err)
	}
	back, digest, err := ReadWeights(c, bytes.NewReader(data), int64(len(data)))
	if err != nil || digest != Digest(w) || !back.Equal(Round(w)) {
		t.Errorf("read: digest %s, want %s, %v", digest, Digest(w), err)
	}
}

func TestStateDigest_tensorsInAnyOrder(t *testing.T) {
	t.Parallel()
	w := tiny(true)
	s := &engine.State{Master: w.Clone(), M: w.Clone(), V: model.NewWeights(w.Config), Steps: 3}
	s.M.Data[1][0] = 5
	d := NewSums(w.Config)
	for _, part := range []engine.StatePart{engine.SecondMoment, engine.Master, engine.FirstMoment} {
		for _, b := range slices.Backward(Blocks(w.Specs)) {
			data := make([]float32, b.To-b.From)
			if err := s.ReadState(part, b.Tensor, b.From, data); err != nil {
				t.Fatal(err)
			}
			d.Set(part, b, blockSum(data, F32))
		}
	}
	if got, want := d.Digest(3), StateDigest(s); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// Moments that are not there are zeros.
	zero := &engine.State{Master: w, M: model.NewWeights(w.Config), V: model.NewWeights(w.Config)}
	if StateDigest(&engine.State{Master: w}) != StateDigest(zero) {
		t.Error("a state without moments has another digest than one whose moments are zero")
	}
}

type failing struct{ after int }

func (f *failing) ReadState(engine.StatePart, int, int, []float32) error {
	if f.after--; f.after < 0 {
		return errors.New("the device is gone")
	}
	return nil
}

func TestReadStateDigest_tellsAFailure(t *testing.T) {
	t.Parallel()
	if _, err := ReadStateDigest(tiny(true).Config, &failing{after: 4}, 1); err == nil {
		t.Error("a state that cannot be read has no digest")
	}
	var none *engine.State // what a trainer gives after a failure of its device
	if _, err := ReadStateDigest(tiny(true).Config, none, 1); err == nil {
		t.Error("no state has no digest")
	}
}

// Whatever fails, and wherever: every block before it is done, the error is that of the earliest block, and what is in order is in order.
func TestBlocks_earliestErrorAndOrder(t *testing.T) {
	t.Parallel()
	specs := []model.Spec{{Name: "a", Shape: []int{3}}, {Name: "b", Shape: []int{2, digestBlock + 5}}, {Name: "c", Shape: []int{0}}, {Name: "d", Shape: []int{1}}}
	for i := range 60 {
		specs = append(specs, model.Spec{Name: fmt.Sprint(i), Shape: []int{i + 1}})
	}
	all := Blocks(specs)
	sizes := make([]int, len(specs))
	for _, b := range all {
		if b.From != sizes[b.Tensor] || b.To-b.From > digestBlock {
			t.Fatalf("block %+v after %d elements", b, sizes[b.Tensor])
		}
		sizes[b.Tensor] = b.To
	}
	for i, s := range specs {
		if sizes[i] != s.Size() {
			t.Errorf("tensor %d has %d elements in blocks, %d in its shape", i, sizes[i], s.Size())
		}
	}
	number := map[Block]int{}
	for i, b := range all {
		number[b] = i
	}
	fill := func(b Block, into []float32) { into[0], into[len(into)-1] = float32(number[b]), float32(number[b]) }
	for _, bad := range [][]int{nil, {0}, {len(all) - 1}, {7, 8, 9}, {40, 3}, {1, 2}} {
		want := error(nil)
		if len(bad) > 0 {
			want = fmt.Errorf("block %d", slices.Min(bad))
		}
		for _, reads := range []bool{true, false} { // which of the two calls fails
			fails := func(b Block, here bool) error {
				if here && slices.Contains(bad, number[b]) {
					return fmt.Errorf("block %d", number[b])
				}
				return nil
			}
			var mu sync.Mutex
			done := map[int]bool{}
			last := -1
			took := func(b Block, data []float32) {
				mu.Lock()
				defer mu.Unlock()
				done[number[b]] = true
				if data[0] != float32(number[b]) || data[len(data)-1] != float32(number[b]) {
					t.Errorf("block %d got the data of %v and %v", number[b], data[0], data[len(data)-1])
				}
			}
			check := func(what string, err error) {
				if fmt.Sprint(err) != fmt.Sprint(want) {
					t.Errorf("%s with errors at %v: %v, want %v", what, bad, err, want)
				}
				end := len(all)
				if len(bad) > 0 {
					end = slices.Min(bad)
				}
				for i := range end {
					if !done[i] {
						t.Errorf("%s with errors at %v: block %d was not done", what, bad, i)
					}
				}
				done, last = map[int]bool{}, -1
			}
			check("EachBlock", EachBlock(specs, func(b Block, into []float32) error {
				if number[b] != last+1 {
					t.Errorf("block %d was read after %d", number[b], last)
				}
				last = number[b]
				fill(b, into)
				return fails(b, reads)
			}, func(b Block, data []float32) error {
				took(b, data)
				return fails(b, !reads)
			}))
			check("InOrder", InOrder(specs, func(b Block, into []float32) error {
				fill(b, into)
				return fails(b, reads)
			}, func(b Block, data []float32) error {
				if number[b] != last+1 {
					t.Errorf("block %d came after %d", number[b], last)
				}
				last = number[b]
				took(b, data)
				return fails(b, !reads)
			}))
		}
	}
}
