package lcb

import (
	"bufio"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// Test is a saved test. Of a functional one the input has a JSON value a line.
type Test struct {
	Input  string `json:"input"`
	Output string `json:"output"`
	Type   string `json:"testtype"` // stdin or functional
}

// Encoding says how a cell with tests is stored.
type Encoding string

// The encodings.
const (
	JSON       Encoding = "json"
	Compressed Encoding = "zlib"   // base64 of zlib of JSON
	Pickled    Encoding = "pickle" // base64 of zlib of a pickle of one string of JSON
)

// MaxInflated is the limit of Tests on the bytes that a cell may inflate to.
const MaxInflated = 2 << 30

// Tests gives the tests of a cell (Public or Private) to each. It holds one test at a time. Errors: Corrupt (none of the encodings, a pickle with any
// instruction that does not belong to a string, more than limit bytes, a test that is none), and those of each. Tests that were given before an error count for nothing.
func Tests(cell string, limit int64, each func(Test) error) (Encoding, error) {
	if text := strings.TrimSpace(cell); strings.HasPrefix(text, "[") {
		return JSON, list(strings.NewReader(text), each)
	}
	z, err := zlib.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(cell)))
	if err != nil {
		return "", bad("neither JSON nor base64 of zlib: %w", err)
	}
	defer z.Close() //nolint:errcheck // only read
	r := bufio.NewReader(&bounded{z, limit})
	first, err := r.Peek(1)
	if err != nil {
		return "", bad("%w", err)
	}
	if first[0] == '[' {
		return Compressed, list(r, each)
	}
	return Pickled, pickled(r, each)
}

func bad(format string, args ...any) error {
	return fault.New(fault.Corrupt, "lcb.Tests", format, args...)
}

// bounded ends with an error behind left bytes.
type bounded struct {
	r    io.Reader
	left int64
}

var errTooLarge = errors.New("it inflates to more than is allowed")

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// eachError is an error of the caller's function, which is no fault of the cell.
type eachError struct{ error }

func (e eachError) Unwrap() error { return e.error }

// list reads a JSON list of tests and wants nothing behind it.
func list(r io.Reader, each func(Test) error) error {
	err := elements(json.NewDecoder(&oneBlank{r: r}), each)
	if own, ok := errors.AsType[eachError](err); ok {
		return own.error
	}
	if err != nil {
		return bad("%w", err)
	}
	return nil
}

// oneBlank leaves one of several blanks between the parts of a JSON text: the decoder reads a run of them again with every piece that comes, and a
// cell of some kilobytes can inflate to gigabytes of blanks.
type oneBlank struct {
	r                        io.Reader
	text, escaped, lastBlank bool
}

func (o *oneBlank) Read(p []byte) (int, error) {
	for {
		n, err := o.r.Read(p)
		kept := p[:0]
		for _, c := range p[:n] {
			blank := !o.text && (c == ' ' || c == '\t' || c == '\n' || c == '\r')
			if !blank || !o.lastBlank {
				kept = append(kept, c)
			}
			o.lastBlank = blank
			switch {
			case o.escaped:
				o.escaped = false
			case o.text && c == '\\':
				o.escaped = true
			case c == '"':
				o.text = !o.text
			}
		}
		if len(kept) > 0 || err != nil || len(p) == 0 {
			return len(kept), err
		}
	}
}

func elements(dec *json.Decoder, each func(Test) error) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("no list of tests: %w", errors.Join(err))
	}
	for dec.More() {
		var t *Test
		if err := dec.Decode(&t); err != nil {
			return err
		}
		if t == nil || t.Type != "stdin" && t.Type != "functional" {
			return errors.New("a test that is neither stdin nor functional")
		}
		if err := each(*t); err != nil {
			return eachError{err}
		}
	}
	if _, err := dec.Token(); err != nil { // the bracket
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("something behind the list"), err)
	}
	return nil
}

// pickled reads a pickle of one string of JSON.
func pickled(r *bufio.Reader, each func(Test) error) error {
	n, err := pickleHead(r)
	if err != nil {
		return bad("%w", err)
	}
	body := &io.LimitedReader{R: r, N: n}
	if err := list(body, each); err != nil {
		return err
	}
	if body.N > 0 {
		return bad("the string is shorter than its length says")
	}
	if err := pickleTail(r); err != nil {
		return bad("%w", err)
	}
	return nil
}

// The instructions of a pickle that are allowed, and their arguments in bytes.
const (
	opProto      = 0x80 // 1: version
	opFrame      = 0x95 // 8: length
	opShort      = 0x8c // 1: length of a string
	opUnicode    = 'X'  // 4
	opUnicode8   = 0x8d // 8
	opMemoize    = 0x94
	opBinPut     = 'q' // 1
	opLongBinPut = 'r' // 4
	opStop       = '.'
)

// pickleHead reads up to the characters of the string and returns how many bytes they are.
func pickleHead(r *bufio.Reader) (int64, error) {
	for {
		op, err := r.ReadByte()
		if err != nil {
			return 0, cut(err)
		}
		switch op {
		case opProto:
			if v, err := number(r, 1); err != nil || v < 2 || v > 5 {
				return 0, errors.Join(fmt.Errorf("a pickle of version %d", v), err)
			}
		case opFrame:
			if _, err := number(r, 8); err != nil {
				return 0, err
			}
		case opShort:
			return number(r, 1)
		case opUnicode:
			return number(r, 4)
		case opUnicode8:
			return number(r, 8)
		default:
			return 0, refuse(op)
		}
	}
}

// pickleTail reads what may follow the string, up to the end.
func pickleTail(r *bufio.Reader) error {
	for {
		op, err := r.ReadByte()
		if err != nil {
			return cut(err)
		}
		switch op {
		case opMemoize:
		case opFrame:
			_, err = number(r, 8)
		case opBinPut:
			_, err = number(r, 1)
		case opLongBinPut:
			_, err = number(r, 4)
		case opStop:
			if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
				return errors.Join(errors.New("something behind the pickle"), err)
			}
			return nil
		default:
			return refuse(op)
		}
		if err != nil {
			return err
		}
	}
}

func refuse(op byte) error {
	return fmt.Errorf("the instruction %#02x (%q) of a pickle, which does not belong to a string; nothing was run", op, op)
}

// number reads a number of n bytes, the lowest first. One that is no length of anything is an error.
func number(r *bufio.Reader, n int) (int64, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:n]); err != nil {
		return 0, cut(err)
	}
	v := binary.LittleEndian.Uint64(b[:])
	if v > 1<<40 {
		return 0, fmt.Errorf("a length of %d", v)
	}
	return int64(v), nil
}

func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the pickle ends too early")
	}
	return err
}
