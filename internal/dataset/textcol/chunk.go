package textcol

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// chunk reads a column of a row group, one page at a time.
type chunk struct {
	in    *bufio.Reader
	size  int64 // bytes of the chunk; no page has more
	codec format.CompressionCodec
	depth int

	dictionary *texts
	page       []byte // memory of the page, used again
	// What is left of the page: n cells, of which levels says which are null; the others are in plain, in values from number at on, or in
	// the dictionary under the numbers of indexes.
	n       int
	levels  *hybrid
	plain   []byte
	values  *texts
	at      int
	indexes *hybrid
}

// plainDictionary is the name that older writers give to plain dictionaries and to pages of their numbers.
const plainDictionary format.Encoding = 2

// texts are texts one behind the other; text i ends at ends[i].
type texts struct {
	data   []byte
	starts []uint32
	ends   []uint32
}

func (t *texts) get(i int) ([]byte, error) {
	if i < 0 || i >= len(t.ends) {
		return nil, fmt.Errorf("value %d of %d", i, len(t.ends))
	}
	from, to := t.starts[i], t.ends[i]
	if from > to || int(to) > len(t.data) {
		return nil, errors.New("a value beyond the page")
	}
	return t.data[from:to:to], nil
}

func newChunk(in io.Reader, size int64, codec format.CompressionCodec, depth int) *chunk {
	return &chunk{in: bufio.NewReaderSize(in, 64<<10), size: size, codec: codec, depth: depth}
}

// next returns the next cell. Errors: io.EOF (no page is left), others for damage.
func (c *chunk) next() (Cell, error) {
	for c.n == 0 {
		if _, err := c.read(0); err != nil {
			return Cell{}, err
		}
	}
	c.n--
	if c.levels != nil {
		level, err := c.levels.next()
		if err != nil {
			return Cell{}, fmt.Errorf("levels: %w", err)
		}
		if int(level) < c.depth {
			return Cell{Null: true}, nil
		}
	}
	text, err := c.value()
	return Cell{Text: text}, err
}

func (c *chunk) value() ([]byte, error) {
	switch {
	case c.indexes != nil:
		i, err := c.indexes.next()
		if err != nil {
			return nil, fmt.Errorf("numbers of a dictionary: %w", err)
		}
		return c.dictionary.get(int(i))
	case c.values != nil:
		c.at++
		return c.values.get(c.at - 1)
	}
	text, rest, err := cutText(c.plain)
	c.plain = rest
	return text, err
}

// cutText takes a text with its length before it off the data.
func cutText(data []byte) (text, rest []byte, err error) {
	if len(data) < 4 {
		return nil, nil, errors.New("the page ends in a length")
	}
	n := binary.LittleEndian.Uint32(data)
	if int64(n) > int64(len(data)-4) {
		return nil, nil, errors.New("the page ends in a text")
	}
	end := 4 + int(n)
	return data[4:end:end], data[end:], nil
}

// skip leaves out n cells.
func (c *chunk) skip(n int64) error {
	for n > 0 {
		if c.n == 0 {
			skipped, err := c.read(n)
			if err != nil {
				return err
			}
			n -= skipped
			continue
		}
		if _, err := c.next(); err != nil {
			return err
		}
		n--
	}
	return nil
}

// read reads the next page. A page of data with at most so many cells as may be skipped is left out, and the number of its cells returned.
func (c *chunk) read(mayskip int64) (skipped int64, err error) {
	var h format.PageHeader
	if err := thrift.NewDecoder((&thrift.CompactProtocol{}).NewReader(c.in)).Decode(&h); err != nil {
		return 0, fmt.Errorf("the header of a page: %w", err)
	}
	if h.CompressedPageSize < 0 || int64(h.CompressedPageSize) > c.size || h.UncompressedPageSize < 0 {
		return 0, fmt.Errorf("a page of %d bytes, %d decompressed, in %d", h.CompressedPageSize, h.UncompressedPageSize, c.size)
	}
	body := newBody(c.in, &h)
	cells, known := int32(0), true
	switch {
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		cells = h.DataPageHeader.V.NumValues
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
		cells = h.DataPageHeaderV2.V.NumValues
	case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
	default:
		known = false // an index, which nobody wants
	}
	if cells < 0 {
		return 0, fmt.Errorf("a page of %d cells", cells)
	}
	if !known || h.Type != format.DictionaryPage && int64(cells) <= mayskip {
		return int64(cells), body.discard()
	}
	switch h.Type {
	case format.DictionaryPage:
		err = c.readDictionary(body, &h)
	case format.DataPage:
		err = c.readV1(body, &h)
	default:
		err = c.readV2(body, &h)
	}
	if err == nil {
		err = body.discard()
	}
	return 0, err
}

func (c *chunk) readDictionary(b *body, h *format.PageHeader) error {
	if c.dictionary != nil {
		return errors.New("a second dictionary")
	}
	if e := h.DictionaryPageHeader.V.Encoding; e != format.Plain && e != plainDictionary {
		return fmt.Errorf("a dictionary in the encoding %s", e)
	}
	n := int(h.UncompressedPageSize)
	if err := b.possible(c.codec, n); err != nil {
		return err
	}
	data, err := b.decompress(nil, c.codec, n)
	if err != nil {
		return err
	}
	d := &texts{data: data}
	for rest := data; len(rest) > 0; {
		var text []byte
		if text, rest, err = cutText(rest); err != nil {
			return err
		}
		end := uint32(len(data) - len(rest)) // a page has less than 2 GiB
		d.starts, d.ends = append(d.starts, end-uint32(len(text))), append(d.ends, end)
	}
	c.dictionary = d
	return nil
}

func (c *chunk) readV1(b *body, h *format.PageHeader) error {
	p := &h.DataPageHeader.V
	data, err := c.decompress(b, int(h.UncompressedPageSize))
	if err != nil {
		return err
	}
	var levels []byte
	if c.depth > 0 {
		if p.DefinitionLevelEncoding != format.RLE {
			return fmt.Errorf("levels in the encoding %s", p.DefinitionLevelEncoding)
		}
		if levels, data, err = cutText(data); err != nil {
			return err
		}
	}
	return c.start(int(p.NumValues), levels, data, p.Encoding)
}

func (c *chunk) readV2(b *body, h *format.PageHeader) error {
	p := &h.DataPageHeaderV2.V
	repetition, definition := int(p.RepetitionLevelsByteLength), int(p.DefinitionLevelsByteLength)
	if repetition < 0 || definition < 0 || repetition > b.left || definition > b.left-repetition {
		return errors.New("levels beyond the page")
	}
	levels := make([]byte, repetition+definition)
	if err := b.full(levels); err != nil {
		return err
	}
	var data []byte
	var err error
	if p.IsCompressed.Valid && !p.IsCompressed.V {
		data = c.room(b.left)
		err = b.full(data)
	} else {
		data, err = c.decompress(b, int(h.UncompressedPageSize)-len(levels))
	}
	if err != nil {
		return err
	}
	return c.start(int(p.NumValues), levels[repetition:], data, p.Encoding)
}

// start makes a page the present one.
func (c *chunk) start(n int, levels, data []byte, e format.Encoding) error {
	c.n, c.levels, c.plain, c.values, c.at, c.indexes = n, nil, nil, nil, 0, nil
	if c.depth > 0 {
		c.levels = &hybrid{data: levels, width: bits.Len(uint(c.depth))}
	}
	switch e {
	case format.Plain:
		c.plain = data
	case plainDictionary, format.RLEDictionary:
		if c.dictionary == nil {
			return errors.New("numbers of a dictionary that is not there")
		}
		c.indexes = &hybrid{}
		if len(data) > 0 {
			if c.indexes.width = int(data[0]); c.indexes.width > 32 {
				return fmt.Errorf("numbers of a dictionary of %d bits", data[0])
			}
			c.indexes.data = data[1:]
		}
	default:
		decoder := parquet.LookupEncoding(e)
		values, offsets, err := decoder.DecodeByteArray(make([]byte, 0, decoder.EstimateDecodeByteArraySize(data)), data, make([]uint32, 0, 64))
		if err != nil {
			return err
		}
		c.values = &texts{data: values}
		if len(offsets) > 1 {
			c.values.starts, c.values.ends = offsets[:len(offsets)-1], offsets[1:]
		}
	}
	return nil
}

// room is memory for a page.
func (c *chunk) room(n int) []byte {
	c.plain, c.values, c.indexes, c.levels = nil, nil, nil, nil
	if n > cap(c.page) {
		c.page = nil // let it go first
		c.page = make([]byte, n)
	}
	return c.page[:n]
}

func (c *chunk) decompress(b *body, n int) ([]byte, error) {
	if err := b.possible(c.codec, n); err != nil {
		return nil, err
	}
	return b.decompress(c.room(n), c.codec, n)
}
