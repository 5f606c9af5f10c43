package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
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
		return 0, fault.New(fault.Corrupt, op, "the header claims %d bytes, the file has %d", n, length)
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
		return nil, nil, fmt.Errorf("begins with %v, want an object", tok)
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
	raw := file[t.Offset : t.Offset+t.Size]
	out := make([]float32, t.Size/t.DType.size())
	for i := range out {
		if t.DType == BF16 {
			out[i] = FromBF16(binary.LittleEndian.Uint16(raw[2*i:]))
		} else {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	}
	return out
}

// Named is a tensor to be written.
type Named struct {
	Name  string
	Shape []int
	Data  []float32
}

// WriteFile returns the bytes of a safetensors file: names sorted, compact header padded with spaces to eight
// bytes. Errors: Invalid (a name twice), Numeric (an element is not finite in dtype).
func WriteFile(tensors []Named, dtype DType) ([]byte, error) {
	const op = "weights.WriteFile"
	sorted := slices.Clone(tensors)
	slices.SortFunc(sorted, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	var header strings.Builder
	header.WriteString(`{"__metadata__":{"format":"pt"}`)
	offset := 0
	for i, t := range sorted {
		if i > 0 && sorted[i-1].Name == t.Name {
			return nil, fault.New(fault.Invalid, op, "tensor %s twice", t.Name)
		}
		size := len(t.Data) * dtype.size()
		shape, err := json.Marshal(t.Shape)
		if err != nil {
			return nil, fault.New(fault.Internal, op, "%w", err)
		}
		fmt.Fprintf(&header, `,%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, t.Name, dtype, shape, offset, offset+size)
		offset += size
	}
	header.WriteString("}")
	for header.Len()%8 != 0 {
		header.WriteByte(' ')
	}
	out := make([]byte, 8, 8+header.Len()+offset)
	binary.LittleEndian.PutUint64(out, uint64(header.Len())) //nolint:gosec // a length
	out = append(out, header.String()...)
	for _, t := range sorted {
		var err error
		if out, err = appendElements(out, t, dtype); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func appendElements(out []byte, t Named, dtype DType) ([]byte, error) {
	for i, x := range t.Data {
		if dtype == BF16 {
			h := ToBF16(x)
			if h&0x7f80 == 0x7f80 {
				return nil, fault.New(fault.Numeric, "weights.WriteFile", "tensor %s has %v at element %d, which is not finite in BF16", t.Name, x, i)
			}
			out = binary.LittleEndian.AppendUint16(out, h)
			continue
		}
		if b := math.Float32bits(x); b&0x7f800000 == 0x7f800000 {
			return nil, fault.New(fault.Numeric, "weights.WriteFile", "tensor %s has %v at element %d", t.Name, x, i)
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out, nil
}
