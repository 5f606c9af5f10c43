package textcol

import (
	"bufio"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// body is the body of a page on its way in.
type body struct {
	in   *bufio.Reader
	left int // bytes
	crc  hash.Hash32
	want uint32
}

// newBody wants the checksum of a page only if its header has one.
func newBody(in *bufio.Reader, h *format.PageHeader) *body {
	b := &body{in: in, left: int(h.CompressedPageSize)}
	if h.CRC != 0 {
		b.crc, b.want = crc32.NewIEEE(), uint32(h.CRC)
		b.in = bufio.NewReaderSize(io.TeeReader(io.LimitReader(in, int64(b.left)), b.crc), 16<<10)
	}
	return b
}

func (b *body) byte() (byte, error) {
	if b.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	b.left--
	return b.in.ReadByte()
}

func (b *body) full(to []byte) error {
	if len(to) > b.left {
		return io.ErrUnexpectedEOF
	}
	b.left -= len(to)
	_, err := io.ReadFull(b.in, to)
	return err
}

// discard reads what is left and compares the checksum.
func (b *body) discard() error {
	_, err := b.in.Discard(b.left)
	b.left = 0
	if err == nil && b.crc != nil && b.crc.Sum32() != b.want {
		err = errors.New("a page does not have its checksum")
	}
	return err
}

// possible refuses sizes that no page of these compressed bytes can have, before memory is taken. Snappy makes at most 64 bytes of 3.
func (b *body) possible(codec format.CompressionCodec, n int) error {
	if n < 0 || codec == format.Uncompressed && n > b.left || codec == format.Snappy && n/22 > b.left {
		return fmt.Errorf("a page of %d bytes in %d bytes of %s", n, b.left, codec)
	}
	return nil
}

// decompress reads n bytes into to, or into new memory. The compressed bytes of Snappy are never in memory together.
func (b *body) decompress(to []byte, codec format.CompressionCodec, n int) ([]byte, error) {
	if codec == format.Snappy || codec == format.Uncompressed {
		if to == nil {
			to = make([]byte, n)
		}
		if codec == format.Snappy {
			return to, b.snappy(to)
		}
		return to, b.full(to)
	}
	packed := make([]byte, b.left)
	if err := b.full(packed); err != nil {
		return nil, err
	}
	out, err := parquet.LookupCompressionCodec(codec).Decode(to, packed)
	if err == nil && len(out) != n {
		err = fmt.Errorf("%d bytes, want %d", len(out), n)
	}
	return out, err
}

// snappy decompresses a block into to, which it has to fill. Format: github.com/google/snappy, format_description.txt.
func (b *body) snappy(to []byte) error {
	if len(to) == 0 && b.left == 0 {
		return nil // some writers leave the block of an empty page out
	}
	size, err := b.varint()
	if err != nil {
		return err
	}
	if size != uint64(len(to)) {
		return fmt.Errorf("a block of %d bytes, want %d", size, len(to))
	}
	for at := 0; at < len(to); {
		tag, err := b.byte()
		if err != nil {
			return err
		}
		var n, offset int
		switch tag & 3 {
		case 0: // as it is
			if n = int(tag >> 2); n >= 60 {
				n, err = b.number(n - 59)
			}
			if n++; err == nil && n > len(to)-at {
				err = errBlock
			}
			if err == nil {
				err = b.full(to[at : at+n])
			}
			if err != nil {
				return err
			}
			at += n
			continue
		case 1: // 11 bits
			n = 4 + int(tag>>2&7)
			offset, err = b.number(1)
			offset |= int(tag>>5) << 8
		case 2:
			n = 1 + int(tag>>2)
			offset, err = b.number(2)
		default:
			n = 1 + int(tag>>2)
			offset, err = b.number(4)
		}
		if err == nil && (offset == 0 || offset > at || n > len(to)-at) {
			err = errBlock
		}
		if err != nil {
			return err
		}
		if offset >= n {
			copy(to[at:at+n], to[at-offset:])
		} else {
			for i := at; i < at+n; i++ {
				to[i] = to[i-offset]
			}
		}
		at += n
	}
	if b.left > 0 {
		return errBlock
	}
	return nil
}

var errBlock = errors.New("a damaged block")

// number reads up to four bytes, the lowest first.
func (b *body) number(bytes int) (int, error) {
	v := 0
	for i := range bytes {
		c, err := b.byte()
		if err != nil {
			return 0, err
		}
		v |= int(c) << (8 * i)
	}
	return v, nil
}

func (b *body) varint() (v uint64, err error) {
	for shift := 0; shift < 35; shift += 7 {
		c, err := b.byte()
		if err != nil {
			return 0, err
		}
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, nil
		}
	}
	return 0, errBlock
}
