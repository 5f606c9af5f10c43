package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// DType is a safetensors element type.
type DType string

// The element types of model weights.
const (
	F32  DType = "F32"
	BF16 DType = "BF16"
)

func (d DType) size() int {
	switch d {
	case F32:
		return 4
	case BF16:
		return 2
	}
	return 0
}

// Tensor is a named tensor in a file.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	// Offset and Size are bytes, relative to the whole file.
	Offset, Size int
}

// maxHeader bounds a header that claims to be huge.
const maxHeader = 100 << 20

type headerEntry struct {
	DType       DType  `json:"dtype"`
	Shape       []int  `json:"shape"`
	DataOffsets [2]int `json:"data_offsets"`
}

// ReadHeader checks the header of a safetensors file against the file and returns its tensors by offset.
// Errors: Corrupt, naming the tensor.
func ReadHeader(file []byte) ([]Tensor, error) {
	base, err := headerEnd(file, len(file))
	if err != nil {
		return nil, err
	}
	return parseHeader(file[:base], len(file))
}

// headerEnd returns where the tensors begin, from the first 8 bytes of a file of length bytes.
func headerEnd(start []byte, length int) (int, error) {
	const op = "weights.ReadHeader"
	if length < 8 {
		return 0, fault.New(fault.Corrupt, op, "%d bytes are no safetensors file", length)
	}
	n := binary.LittleEndian.Uint64(start)
	if n > maxHeader || n > uint64(length-8) { //nolint:gosec // at least 8
		// Not the number: in another kind of file it is 8 bytes of its content.
		return 0, fault.New(fault.Corrupt, op, "the header claims to be longer than a header can be in a file of %d bytes", length)
	}
	return 8 + int(n), nil //nolint:gosec // bounded above
}

// parseHeader checks the header, which begins a file of length bytes and ends where the tensors begin.
func parseHeader(header []byte, length int) ([]Tensor, error) {
	const op = "weights.ReadHeader"
	base := len(header)
	names, entries, err := decodeHeader(header[8:])
	if err != nil {
		return nil, fault.New(fault.Corrupt, op, "header: %w", err)
	}
	var out []Tensor
	for _, name := range names {
		e := entries[name]
		elements := 1
		for _, d := range e.Shape {
			if d < 0 || d > 0 && elements > math.MaxInt32*64/d {
				return nil, fault.New(fault.Corrupt, op, "tensor %s has shape %v", name, e.Shape)
			}
			elements *= d
		}
		size := e.DataOffsets[1] - e.DataOffsets[0]
		switch {
		case e.DType.size() == 0:
			return nil, fault.New(fault.Corrupt, op, "tensor %s has type %q, want F32 or BF16", name, e.DType)
		case e.DataOffsets[0] < 0 || size < 0 || e.DataOffsets[1] > length-base:
			return nil, fault.New(fault.Corrupt, op, "tensor %s lies at bytes %v of %d", name, e.DataOffsets, length-base)
		case size != elements*e.DType.size():
			return nil, fault.New(fault.Corrupt, op, "tensor %s of shape %v and type %s has %d bytes", name, e.Shape, e.DType, size)
		}
		out = append(out, Tensor{Name: name, DType: e.DType, Shape: e.Shape, Offset: base + e.DataOffsets[0], Size: size})
	}
	slices.SortFunc(out, func(a, b Tensor) int { return cmp.Or(cmp.Compare(a.Offset, b.Offset), strings.Compare(a.Name, b.Name)) })
	at := base
	for _, t := range out {
		if t.Offset != at {
			return nil, fault.New(fault.Corrupt, op, "tensor %s begins at byte %d, expected %d: overlap or hole", t.Name, t.Offset, at)
		}
		at += t.Size
	}
	if at != length {
		return nil, fault.New(fault.Corrupt, op, "%d bytes after the last tensor", length-at)
	}
	return out, nil
}

// decodeHeader reads the JSON object with a token reader, because a map would hide a duplicate name.
func decodeHeader(data []byte) ([]string, map[string]headerEntry, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	tok, err := dec.Token()
	if err != nil {
		return nil, nil, err
	}
	if tok != json.Delim('{') {
		return nil, nil, errors.New("it is no object")
	}
	var names []string
	entries := map[string]headerEntry{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, nil, err
		}
		name := fmt.Sprint(tok)
		if name == "__metadata__" {
			var meta map[string]string
			if err := dec.Decode(&meta); err != nil {
				return nil, nil, err
			}
			continue
		}
		var e headerEntry
		if err := dec.Decode(&e); err != nil {
			return nil, nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		if _, ok := entries[name]; ok {
			return nil, nil, fmt.Errorf("tensor %s appears twice", name)
		}
		entries[name] = e
		names = append(names, name)
	}
	if _, err := dec.Token(); err != nil {
		return nil, nil, err
	}
	return names, entries, nil
}

// Floats returns the elements of t in file as float32.
func (t Tensor) Floats(file []byte) []float32 {
	out := make([]float32, t.Size/t.DType.size())
	decode(out, file[t.Offset:], t.DType)
	return out
}

// Named is a tensor to be written.
type Named struct {
	Name  string
	Shape []int
	Data  []float32
}

// WriteFile returns the bytes of a safetensors file: names sorted, compact header padded with spaces to eight
// bytes. Errors: Invalid (a name twice, a tensor of another size than its shape's), Numeric (an element is not finite in dtype).
func WriteFile(tensors []Named, dtype DType) ([]byte, error) {
	specs := make([]model.Spec, len(tensors))
	for i, t := range tensors {
		specs[i] = model.Spec{Name: t.Name, Shape: t.Shape}
		if len(t.Data) != specs[i].Size() {
			return nil, fault.New(fault.Invalid, "weights.WriteFile", "tensor %s has %d elements and shape %v", t.Name, len(t.Data), t.Shape)
		}
	}
	l, err := NewLayout(specs, dtype)
	if err != nil {
		return nil, err
	}
	out := make([]byte, l.Size)
	copy(out, l.Header)
	at := make([]int, len(specs))
	for k, i := range l.Order {
		at[i] = l.Tensors[k].Offset
	}
	return out, eachBlock(specs, func(b Block) error {
		data := tensors[b.Tensor].Data[b.From:b.To]
		if err := CheckFinite(specs[b.Tensor].Name, data, b.From, dtype); err != nil {
			return err
		}
		encode(out[at[b.Tensor]+b.From*dtype.size():], data, dtype)
		return nil
	})
}

// Layout is where tensors lie in a safetensors file.
type Layout struct {
	// Header is the beginning of the file, with its length.
	Header []byte
	// Tensors are in the order of the file, that of their names; Order has their indices in the list that the layout is of.
	Tensors []Tensor
	Order   []int
	// Size is the file's, in bytes.
	Size int
}

// NewLayout returns the layout of a file of tensors, whatever their order. Errors: Invalid (a name twice).
func NewLayout(specs []model.Spec, dtype DType) (Layout, error) {
	const op = "weights.WriteFile"
	l := Layout{Order: make([]int, len(specs))}
	for i := range l.Order {
		l.Order[i] = i
	}
	slices.SortFunc(l.Order, func(a, b int) int { return strings.Compare(specs[a].Name, specs[b].Name) })
	var header strings.Builder
	header.WriteString(`{"__metadata__":{"format":"pt"}`)
	offset := 0
	for k, i := range l.Order {
		t := specs[i]
		if k > 0 && specs[l.Order[k-1]].Name == t.Name {
			return l, fault.New(fault.Invalid, op, "tensor %s twice", t.Name)
		}
		size := t.Size() * dtype.size()
		shape, err := json.Marshal(t.Shape)
		if err != nil {
			return l, fault.New(fault.Internal, op, "%w", err)
		}
		fmt.Fprintf(&header, `,%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, t.Name, dtype, shape, offset, offset+size)
		l.Tensors = append(l.Tensors, Tensor{Name: t.Name, DType: dtype, Shape: t.Shape, Offset: offset, Size: size})
		offset += size
	}
	header.WriteString("}")
	for header.Len()%8 != 0 {
		header.WriteByte(' ')
	}
	l.Header = binary.LittleEndian.AppendUint64(nil, uint64(header.Len())) //nolint:gosec // a length
	l.Header = append(l.Header, header.String()...)
	for k := range l.Tensors {
		l.Tensors[k].Offset += len(l.Header)
	}
	l.Size = len(l.Header) + offset
	return l, nil
}

// CheckFinite returns a Numeric error for the first of some elements of a tensor, from index from on, that is not finite when it is rounded to dtype.
func CheckFinite(name string, data []float32, from int, dtype DType) error {
	for i, x := range data {
		if notFiniteIn(x, dtype) {
			where := ""
			if dtype == BF16 {
				where = ", which is not finite in BF16"
			}
			return fault.New(fault.Numeric, "weights.WriteFile", "tensor %s has %v at element %d%s", name, x, from+i, where)
		}
	}
	return nil
}

// notFiniteIn reports whether x, rounded to dtype, is infinite or NaN.
func notFiniteIn(x float32, dtype DType) bool {
	if dtype == BF16 {
		return ToBF16(x)&0x7f80 == 0x7f80
	}
	return math.Float32bits(x)&0x7f800000 == 0x7f800000
}
