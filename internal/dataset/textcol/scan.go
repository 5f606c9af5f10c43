package textcol

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// Column is a column of text that is not in a list.
type Column struct {
	index int
	depth int // definition level of a value; any lower one is null
}

// Open opens a Parquet file whose footer is at the end of its size bytes. An error says nothing of what is in the file.
func Open(r io.ReaderAt, size int64) (*parquet.File, error) {
	const magic = "PAR1"
	for _, place := range []struct {
		name string
		at   int64
	}{{"begin", 0}, {"end", size - int64(len(magic))}} {
		got := make([]byte, len(magic))
		if size >= int64(len(magic)) {
			if _, err := r.ReadAt(got, place.at); err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
		}
		if string(got) != magic {
			return nil, fmt.Errorf("it does not %s with %s", place.name, magic)
		}
	}
	return parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
}

// Find looks for a column by its path. It returns nil for one that the file does not have, and an error for one that is no text.
func Find(f *parquet.File, path ...string) (*Column, error) {
	leaf, ok := f.Schema().Lookup(path...)
	if !ok {
		for _, field := range f.Schema().Fields() {
			if field.Name() == path[0] && (len(path) > 1 || !field.Leaf()) {
				return nil, fmt.Errorf("the column %s is something else than %v", path[0], path)
			}
		}
		return nil, nil //nolint:nilnil // that is the answer
	}
	if leaf.MaxRepetitionLevel > 0 || leaf.Node.Type().Kind() != parquet.ByteArray {
		return nil, fmt.Errorf("the column %s is no text", path[0])
	}
	return &Column{leaf.ColumnIndex, leaf.MaxDefinitionLevel}, nil
}

// Cell is a value. Its text is valid until the next row.
type Cell struct {
	Text []byte
	Null bool // the value is null, or the column is not there
}

// DamageError means that a file is not what its footer and headers say, or cannot be read.
type DamageError struct{ Err error }

// Error is that of the cause.
func (e *DamageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Err }

// Scan gives the cells of each row, from row from on, in the order of columns, which may have nils. Errors: *DamageError, and those of each as they
// are. Panics of each pass.
func Scan(f *parquet.File, columns []*Column, from int64, each func([]Cell) error) (err error) {
	s := &scan{file: f, columns: columns, each: each, cells: make([]Cell, len(columns))}
	defer func() {
		// The decoders of other encodings may panic on pages that are not what their headers say.
		if p := recover(); p != nil {
			if s.outside {
				panic(p)
			}
			err = &DamageError{fmt.Errorf("%v", p)}
		}
	}()
	for g := range f.Metadata().RowGroups {
		rows := f.Metadata().RowGroups[g].NumRows
		if rows < 0 {
			return &DamageError{fmt.Errorf("row group %d has %d rows", g, rows)}
		}
		if from >= rows {
			from -= rows
			continue
		}
		if err := s.group(g, from, rows); err != nil {
			return err
		}
		from = 0
	}
	return nil
}

type scan struct {
	file    *parquet.File
	columns []*Column
	cells   []Cell
	each    func([]Cell) error
	outside bool // in the caller's function
}

// group gives the rows of a row group.
func (s *scan) group(g int, from, rows int64) error {
	chunks := make([]*chunk, len(s.columns))
	for i, c := range s.columns {
		s.cells[i] = Cell{Null: true}
		if c == nil {
			continue
		}
		var err error
		if chunks[i], err = s.open(g, c); err == nil {
			err = chunks[i].skip(from)
		}
		if err != nil {
			return s.wrap(g, from, c, err)
		}
	}
	for n := from; n < rows; n++ {
		for i, c := range chunks {
			if c == nil {
				continue
			}
			var err error
			if s.cells[i], err = c.next(); err != nil {
				return s.wrap(g, n, s.columns[i], err)
			}
		}
		s.outside = true
		err := s.each(s.cells)
		if s.outside = false; err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) wrap(g int, row int64, c *Column, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &DamageError{fmt.Errorf("row %d of row group %d, column %s: %w", row, g, s.file.Schema().Columns()[c.index][0], err)}
}

// open opens a column of a row group.
func (s *scan) open(g int, c *Column) (*chunk, error) {
	columns := s.file.Metadata().RowGroups[g].Columns
	if c.index >= len(columns) {
		return nil, errors.New("the row group does not have it")
	}
	m := &columns[c.index].MetaData
	if m.Type != format.ByteArray {
		return nil, fmt.Errorf("it is %s in the row group", m.Type)
	}
	start := m.DataPageOffset
	if d := m.DictionaryPageOffset; d > 0 && d < start {
		start = d
	}
	size := m.TotalCompressedSize
	if start < 0 || size < 0 || start > s.file.Size() || size > s.file.Size()-start {
		return nil, fmt.Errorf("%d bytes at %d are not in the file", size, start)
	}
	return newChunk(io.NewSectionReader(s.file, start, size), size, m.Codec, c.depth), nil
}
