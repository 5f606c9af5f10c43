package weights

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/model"
)

// The line of a tensor has the SHA-256 of each block, also of a last one that is not full, computed here in the plain way.
func TestTensorLine_hashesBlocks(t *testing.T) {
	t.Parallel()
	data := make([]float32, digestBlock+3)
	for i := range data {
		data[i] = float32(i%1013) - 0.3
	}
	s := model.Spec{Name: "t", Shape: []int{len(data)}}
	for _, dtype := range []DType{F32, BF16} {
		var raw []byte
		for _, x := range data {
			if dtype == BF16 {
				raw = binary.LittleEndian.AppendUint16(raw, ToBF16(x))
			} else {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
		}
		cut := digestBlock * dtype.size()
		want := fmt.Sprintf("t [%d] %s %x %x\n", len(data), dtype, sha256.Sum256(raw[:cut]), sha256.Sum256(raw[cut:]))
		if got := string(tensorLine(s, data, dtype)); got != want {
			t.Errorf("%s: got %q, want %q", dtype, got, want)
		}
	}
}

func TestStateDigest_tensorsInAnyOrder(t *testing.T) {
	t.Parallel()
	w := tiny(true)
	s := &engine.State{Master: w.Clone(), M: w.Clone(), V: model.NewWeights(w.Config), Steps: 3}
	s.M.Data[1][0] = 5
	d := NewStateDigest(w.Config)
	for _, part := range []engine.StatePart{engine.SecondMoment, engine.Master, engine.FirstMoment} {
		for i := range slices.Backward(w.Specs) {
			data, err := s.ReadState(part, i)
			if err != nil {
				t.Fatal(err)
			}
			d.Add(part, i, data)
		}
	}
	if got, want := d.Sum(3), StateDigest(s); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

type failing struct{ after int }

func (f *failing) ReadState(engine.StatePart, int) ([]float32, error) {
	if f.after--; f.after < 0 {
		return nil, errors.New("the device is gone")
	}
	return nil, nil
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
