package scalars

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/steadyrl/steady/internal/fault"
)

// EventFile is the name that TensorBoard knows an event file by: it must hold "tfevents".
func (t *Table) EventFile() string {
	return fmt.Sprintf("events.out.tfevents.%010d.%s.%s", max(t.Started.Unix(), 0), t.Run, t.Lineage)
}

// WriteEvents writes the table as an event file of TensorBoard: a curve for every column that has a Tag, named by it.
//
// Values are 32-bit floats, as TensorBoard keeps them; one that is too large for them is left out. The time of a point is the start
// of the run plus Row.Seconds, because records hold no clock and the bytes must not depend on when they are written.
func (t *Table) WriteEvents(out io.Writer) error {
	w := &events{out: out}
	w.event(t.Started, 0, protowire.AppendString(protowire.AppendTag(nil, eventFileVersion, protowire.BytesType), "brain.Event:2"))
	columns := Columns()
	told := map[string]bool{}
	for _, r := range t.Rows {
		var summary []byte
		for k, c := range r.Cells {
			v, ok := float(c)
			if !ok || columns[k].Tag == "" {
				continue
			}
			summary = appendMessage(summary, summaryValue, scalar(columns[k], v, !told[columns[k].Tag]))
			told[columns[k].Tag] = true
		}
		if summary == nil {
			continue
		}
		at := t.Started.Add(time.Duration(r.Seconds * float64(time.Second)))
		w.event(at, int64(r.Step), appendMessage(nil, eventSummary, summary))
	}
	if w.err != nil {
		return fault.New(fault.Busy, "scalars.WriteEvents", "%w", w.err)
	}
	return nil
}

// Numbers of the fields of TensorFlow's messages Event, Summary, Summary.Value, SummaryMetadata and PluginData.
const (
	eventWallTime    = 1 // double, seconds
	eventStep        = 2
	eventFileVersion = 3
	eventSummary     = 5

	summaryValue = 1

	valueTag      = 1
	valueSimple   = 2 // float
	valueMetadata = 9

	metadataPlugin      = 1
	metadataDescription = 3
	metadataClass       = 4

	pluginName = 1

	classScalar = 1
)

// scalar is a Summary.Value. TensorBoard reads the metadata of the first value of a tag.
func scalar(c Column, v float32, first bool) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, valueTag, protowire.BytesType), c.Tag)
	b = protowire.AppendFixed32(protowire.AppendTag(b, valueSimple, protowire.Fixed32Type), math.Float32bits(v))
	if !first {
		return b
	}
	m := appendMessage(nil, metadataPlugin, protowire.AppendString(protowire.AppendTag(nil, pluginName, protowire.BytesType), "scalars"))
	m = protowire.AppendString(protowire.AppendTag(m, metadataDescription, protowire.BytesType), c.Doc)
	m = protowire.AppendVarint(protowire.AppendTag(m, metadataClass, protowire.VarintType), classScalar)
	return appendMessage(b, valueMetadata, m)
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

// float is a cell as a point of a curve.
func float(c Cell) (float32, bool) {
	var f float64
	switch v := c.(type) {
	case int64:
		f = float64(v)
	case float64:
		f = v
	default:
		return 0, false
	}
	return float32(f), math.Abs(f) <= math.MaxFloat32
}

// events writes TensorFlow's record format: length, checksum of the length, data, checksum of the data.
type events struct {
	out io.Writer
	err error
}

func (w *events) event(at time.Time, step int64, what []byte) {
	seconds := 0.0
	if !at.IsZero() {
		seconds = float64(at.UnixNano()) / 1e9
	}
	b := protowire.AppendFixed64(protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type), math.Float64bits(seconds))
	b = protowire.AppendVarint(protowire.AppendTag(b, eventStep, protowire.VarintType), uint64(step)) //nolint:gosec // as protobuf encodes it
	b = append(b, what...)
	var head [12]byte
	binary.LittleEndian.PutUint64(head[:8], uint64(len(b)))
	binary.LittleEndian.PutUint32(head[8:], masked(head[:8]))
	var foot [4]byte
	binary.LittleEndian.PutUint32(foot[:], masked(b))
	for _, part := range [][]byte{head[:], b, foot[:]} {
		if w.err == nil {
			_, w.err = w.out.Write(part)
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the checksum of the record format: a CRC-32C, rotated by 15 bits, plus a constant.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}
