package textcol

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/format"
)

type sub struct {
	Name *string `parquet:"name,optional"`
}

// row has a column for every way to write a text.
type row struct {
	Number   int64    `parquet:"number"`
	Plain    *string  `parquet:"plain,optional,plain"`
	Dict     *string  `parquet:"dict,optional,dict"`
	Lengths  string   `parquet:"lengths,delta"`
	Needed   string   `parquet:"needed,plain"`
	NeededD  string   `parquet:"needed_dict,dict"`
	List     []string `parquet:"list,list"`
	Sub      *sub     `parquet:"sub,optional"`
	Shared   string   `parquet:"shared"`
	Constant string   `parquet:"constant,dict"`
}

var paths = [][]string{{"plain"}, {"dict"}, {"lengths"}, {"needed"}, {"needed_dict"}, {"sub", "name"}, {"shared"}, {"constant"}, {"absent"}}

func randomRows(s *rand.Rand, n int) []row {
	text := func() string {
		switch s.IntN(4) {
		case 0:
			return ""
		case 1:
			return fmt.Sprint("common ", s.IntN(3))
		default:
			return strings.Repeat(fmt.Sprint("text ", s.IntN(1000)), s.IntN(40)) + "é"
		}
	}
	maybe := func() *string {
		if s.IntN(3) == 0 {
			return nil
		}
		t := text()
		return &t
	}
	rows := make([]row, n)
	for i := range rows {
		rows[i] = row{int64(i), maybe(), maybe(), text(), text(), text(), []string{text(), text()}, nil, text(), "always"}
		if s.IntN(3) > 0 {
			rows[i].Sub = &sub{maybe()}
		}
		if i/50%2 == 1 { // runs
			rows[i].Plain, rows[i].Dict = nil, &rows[i].Constant
		}
	}
	return rows
}

func cellsOf(r row) (out []string) {
	show := func(s *string) {
		if s == nil {
			out = append(out, "null")
		} else {
			out = append(out, "="+*s)
		}
	}
	show(r.Plain)
	show(r.Dict)
	show(&r.Lengths)
	show(&r.Needed)
	show(&r.NeededD)
	if r.Sub == nil {
		show(nil)
	} else {
		show(r.Sub.Name)
	}
	show(&r.Shared)
	show(&r.Constant)
	show(nil)
	return out
}

func scanAll(data []byte, from int64) (out [][]string, err error) {
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, err
	}
	var columns []*Column
	for _, p := range paths {
		c, err := Find(f, p...)
		if err != nil {
			return nil, err
		}
		columns = append(columns, c)
	}
	err = Scan(f, columns, from, func(cells []Cell) error {
		var line []string
		for _, c := range cells {
			if c.Null {
				line = append(line, "null")
			} else {
				line = append(line, "="+string(c.Text))
			}
		}
		out = append(out, line)
		return nil
	})
	return out, err
}

func write(t testing.TB, rows []row, o ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b, o...)
	for i := range rows { // one by one, so that pages can be small
		if _, err := w.Write(rows[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Every encoding, compression, version and size of pages gives the rows that were written, from any row on.
func TestScan_readsWhatWasWritten(t *testing.T) {
	t.Parallel()
	s := rand.New(rand.NewPCG(1, 2))
	for _, codec := range []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Zstd, &parquet.Lz4Raw, &parquet.Brotli} {
		for _, version := range []int{1, 2} {
			for _, pages := range []int{1, 500, 1 << 20} {
				if plain := codec == &parquet.Snappy || codec == &parquet.Uncompressed; !plain && pages == 1 {
					continue // these make a page slowly
				}
				n := 110 + s.IntN(20)
				rows := randomRows(s, n)
				data := write(t, rows, parquet.Compression(codec), parquet.DataPageVersion(version), parquet.PageBufferSize(pages),
					parquet.MaxRowsPerRowGroup(int64(1+s.IntN(150))), parquet.DictionaryMaxBytes([]int64{0, 300}[s.IntN(2)]))
				name := fmt.Sprintf("%s, version %d, pages of %d", codec, version, pages)
				for _, from := range []int64{0, 1, int64(s.IntN(n)), int64(n - 1), int64(n), int64(n + 5)} {
					got, err := scanAll(data, from)
					var want [][]string
					for _, r := range rows[min(int(from), n):] {
						want = append(want, cellsOf(r))
					}
					if diff := cmp.Diff(want, got); diff != "" || err != nil {
						t.Fatalf("%s from row %d: %v (-want +got):\n%.2000s", name, from, err, diff)
					}
				}
			}
		}
	}
}

func TestFind_wantsText(t *testing.T) {
	t.Parallel()
	data := write(t, randomRows(rand.New(rand.NewPCG(1, 1)), 3))
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range [][]string{{"number"}, {"list"}, {"list", "list", "element"}, {"sub"}, {"sub", "other"}, {"plain", "more"}} {
		if c, err := Find(f, path...); err == nil {
			t.Errorf("%v: %v, want it refused", path, c)
		}
	}
	if c, err := Find(f, "absent"); c != nil || err != nil {
		t.Errorf("%v, %v; want nothing", c, err)
	}
}

// Errors and panics of the caller are its own.
func TestScan_callersErrors(t *testing.T) {
	t.Parallel()
	data := write(t, randomRows(rand.New(rand.NewPCG(1, 1)), 3))
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	n := 0
	if err := Scan(f, nil, 0, func([]Cell) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
		t.Errorf("%v after %d rows", err, n)
	}
	defer func() {
		if p := recover(); p != "mine" {
			t.Errorf("%v, want the panic of the caller", p)
		}
	}()
	_ = Scan(f, nil, 0, func([]Cell) error { panic("mine") })
}

// A byte that changes is an error or other cells, never a panic, and never more rows.
func TestScan_damage(t *testing.T) {
	t.Parallel()
	s := rand.New(rand.NewPCG(5, 6))
	for _, version := range []int{1, 2} {
		for _, codec := range []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Zstd} {
			data := write(t, randomRows(s, 60), parquet.Compression(codec), parquet.DataPageVersion(version), parquet.MaxRowsPerRowGroup(40))
			refused := 0
			for range 100 {
				bad := bytes.Clone(data)
				bad[s.IntN(len(bad)/2)] ^= byte(1 << s.IntN(8))
				if got, err := scanAll(bad, 0); err != nil {
					refused++
				} else if len(got) != 60 {
					t.Fatalf("%d rows, want 60 or an error", len(got))
				}
			}
			// Pages have checksums, so most changes in columns that are read are found.
			if refused < 40 {
				t.Errorf("%s, version %d: %d of 100 changes are refused", codec, version, refused)
			}
			if got, err := scanAll(data[:len(data)/2], 0); err == nil {
				t.Errorf("half a file: %d rows, want it refused", len(got))
			}
		}
	}
}

// blocks are blocks of Snappy of all kinds: two writers, and copies that reach far, overlap and have long forms.
func blocks(t testing.TB) map[string][2]string {
	t.Helper()
	out := map[string][2]string{
		"copy of 1 byte":  {"\x05\x00a\x01\x01", "aaaaa"},
		"copy of 2 bytes": {"\x06\x04ab\x0e\x02\x00", "ababab"},
		"copy of 4 bytes": {"\x06\x04ab\x0f\x02\x00\x00\x00", "ababab"},
		"long literal":    {"\x3c\xf0\x3b" + strings.Repeat("x", 60), strings.Repeat("x", 60)},
		"longer literal":  {"\x03\xfc\x02\x00\x00\x00abc", "abc"},
		"empty":           {"\x00", ""},
	}
	s := rand.New(rand.NewPCG(7, 8))
	for i, n := range []int{1, 100, 70_000, 300_000} {
		var b strings.Builder
		for b.Len() < n {
			fmt.Fprintf(&b, "%d %d\n", s.IntN(100), s.IntN(1_000_000))
		}
		text := b.String()[:n]
		packed, err := parquet.Snappy.Encode(nil, []byte(text+text))
		if err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprint("text ", i)] = [2]string{string(packed), text + text}
	}
	return out
}

func unpack(packed string, n int) ([]byte, error) {
	b := &body{in: bufio.NewReader(strings.NewReader(packed)), left: len(packed)}
	if err := b.possible(format.Snappy, n); err != nil {
		return nil, err
	}
	return b.decompress(nil, format.Snappy, n)
}

func TestBody_snappy(t *testing.T) {
	t.Parallel()
	for name, b := range blocks(t) {
		got, err := unpack(b[0], len(b[1]))
		if err != nil || string(got) != b[1] {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, len(b[1]))
		}
		for cut := range min(len(b[0]), 50) {
			if got, err := unpack(b[0][:cut], len(b[1])); err == nil && (cut > 0 || len(b[1]) > 0) {
				t.Errorf("%s cut to %d: %q, want it refused", name, cut, got)
			}
		}
		for _, n := range []int{-1, len(b[1]) - 1, len(b[1]) + 1, 1 << 30} {
			if _, err := unpack(b[0], n); err == nil {
				t.Errorf("%s as %d bytes was taken", name, n)
			}
		}
		if _, err := unpack(b[0]+"x", len(b[1])); err == nil {
			t.Errorf("%s with a byte behind it was taken", name)
		}
	}
}

// FuzzBody_snappy compares with the decoder of parquet-go, and gives any text through its encoder.
func FuzzBody_snappy(f *testing.F) {
	for _, b := range blocks(f) {
		f.Add([]byte(b[0]))
	}
	f.Add([]byte("\x05\x00a\x01\x02"))
	f.Fuzz(func(t *testing.T, data []byte) {
		packed, err := parquet.Snappy.Encode(nil, data)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := unpack(string(packed), len(data)); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%q came back as %q, %v", data, got, err)
		}
		if len(data) > 3 && data[0]&data[1]&data[2] >= 0x80 {
			return // the other decoder takes memory for the size that the block claims
		}
		want, wrong := parquet.Snappy.Decode(nil, data)
		got, err := unpack(string(data), len(want))
		if wrong == nil && err == nil && !bytes.Equal(got, want) || wrong == nil && err != nil && len(data) > 0 {
			t.Fatalf("%x: %x, %v, want %x", data, got, err, want)
		}
	})
}

// FuzzHybrid reads any bytes as numbers of any width: it ends, and the numbers fit.
func FuzzHybrid(f *testing.F) {
	f.Add([]byte{3, 0x88, 0xc6, 0xfa}, 3)
	f.Add([]byte{8, 5}, 4)
	f.Fuzz(func(t *testing.T, data []byte, width int) {
		h := &hybrid{data: data, width: int(uint(width) % 33)}
		for range 100_000 {
			v, err := h.next()
			if err != nil {
				if !errors.Is(err, errRun) {
					t.Fatal(err)
				}
				return
			}
			if h.packed != nil && uint64(v) >= 1<<h.width {
				t.Fatalf("%d in %d bits", v, h.width)
			}
		}
	})
}

func TestHybrid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data  []byte
		width int
		want  []uint32
	}{
		"the specification's example": {[]byte{3, 0x88, 0xc6, 0xfa}, 3, []uint32{0, 1, 2, 3, 4, 5, 6, 7}},
		"a run":                       {[]byte{8, 5}, 4, []uint32{5, 5, 5, 5}},
		"a run of wide numbers":       {[]byte{4, 1, 2, 3}, 20, []uint32{0x30201, 0x30201}},
		"no bits":                     {[]byte{3}, 0, []uint32{0, 0, 0, 0, 0, 0, 0, 0}},
		"a run of no bits":            {[]byte{6}, 0, []uint32{0, 0, 0}},
		"both":                        {[]byte{2, 1, 3, 0b10101010}, 1, []uint32{1, 0, 1, 0, 1, 0, 1, 0, 1}},
		"a group that is cut":         {[]byte{3, 0b00000011}, 4, []uint32{3, 0}},
	} {
		h := &hybrid{data: c.data, width: c.width}
		var got []uint32
		for {
			v, err := h.next()
			if err != nil {
				break
			}
			got = append(got, v)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
