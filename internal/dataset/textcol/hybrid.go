package textcol

import (
	"encoding/binary"
	"errors"
)

// hybrid reads numbers of a fixed number of bits in Parquet's mix of runs and packed groups, one at a time, so that a run of any
// length takes no memory.
type hybrid struct {
	data  []byte
	width int // bits, at most 32

	left   uint64 // numbers of the present run
	value  uint32 // of a run of one value
	packed []byte // of groups; nil in a run of one value
	bit    uint64 // read of packed
}

var errRun = errors.New("a run that is cut")

func (h *hybrid) next() (uint32, error) {
	for h.left == 0 {
		if err := h.run(); err != nil {
			return 0, err
		}
	}
	h.left--
	if h.packed == nil {
		return h.value, nil
	}
	var v uint64
	first, end := h.bit/8, (h.bit+uint64(h.width)+7)/8
	if end > uint64(len(h.packed)) {
		return 0, errRun
	}
	for i := first; i < end; i++ {
		v |= uint64(h.packed[i]) << (8 * (i - first))
	}
	v = v >> (h.bit % 8) & (1<<h.width - 1)
	h.bit += uint64(h.width)
	return uint32(v), nil
}

// run reads the head of a run.
func (h *hybrid) run() error {
	head, n := binary.Uvarint(h.data)
	if n <= 0 {
		return errRun
	}
	h.data = h.data[n:]
	if head&1 == 1 { // groups of eight
		h.left = head >> 1 * 8
		size := head >> 1 * uint64(h.width)
		if size > uint64(len(h.data)) {
			size = uint64(len(h.data)) // a last group may be cut behind its last number
		}
		h.packed, h.data, h.bit, h.value = h.data[:size:size], h.data[size:], 0, 0
		return nil
	}
	bytes := (h.width + 7) / 8
	if len(h.data) < bytes {
		return errRun
	}
	h.left, h.packed, h.value = head>>1, nil, 0
	for i := range bytes {
		h.value |= uint32(h.data[i]) << (8 * i)
	}
	h.data = h.data[bytes:]
	return nil
}
