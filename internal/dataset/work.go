package dataset

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

// A part ends after so many rows, or so many bytes: what an interrupted process has to do again at most.
const (
	partRows  = 32
	partBytes = 8 << 20
)

// Work is a directory with the unfinished work on one data set. A shard is written in parts of a few rows, each of which
// appears whole or not at all, so work that was interrupted goes on behind its last part.
//
// Concurrency: two processes that work on the same shard write the same parts.
type Work struct{ files *artifact.Files }

// OpenWork opens the directory and makes it if needed. Errors: Invalid, Busy (the device is full).
func OpenWork(dir string) (*Work, error) {
	files, err := artifact.NewFiles(dir)
	return &Work{files}, err
}

// Remove removes the directory.
func (w *Work) Remove() error {
	if err := os.RemoveAll(w.files.Root()); err != nil {
		return fileError("dataset.Work", err)
	}
	return nil
}

// place is where the tests of a kept row are: a line of a part.
type place struct {
	part  string
	at, n int64
}

func partName(shard int, row int64) string { return fmt.Sprintf("%s/rows-%08d", ShardDir(shard), row) }

// ShardDir is the directory of the parts of a shard in the directory of the work. A shard without rows has none.
func ShardDir(shard int) string { return fmt.Sprintf("shard-%03d", shard) }

// ShardFile is the record (Input) of a shard that was finished, in the directory of the work.
func ShardFile(shard int) string { return ShardDir(shard) + ".json" }

// Adopt takes over a shard that another process finished, whose parts lie here. Idempotence: an equal record stays. Errors: Stale (another
// record is here).
func (w *Work) Adopt(ctx context.Context, shard int, in Input) error {
	_, err := artifact.PutJSON(ctx, w.files, ShardFile(shard), in)
	return err
}

// Done returns a shard that was finished. Errors: NotFound (it was not).
func (w *Work) Done(ctx context.Context, shard int) (Input, error) {
	var in Input
	_, err := artifact.GetJSON(ctx, w.files, ShardFile(shard), &in)
	return in, err
}

// Shard applies the rules of a shard to all its rows and returns in with their number. in.SHA256 and in.Size are those of r.
//
// Idempotence: rows that are in parts already are not looked at again, by whatever process they were written. Errors: Corrupt
// (not a Parquet file of these columns), Infrastructure, Busy, and the context's.
func (w *Work) Shard(ctx context.Context, shard int, in Input, r io.ReaderAt, o ShardOptions) (Input, error) {
	if done, err := w.Done(ctx, shard); err == nil || !fault.Is(err, fault.NotFound) {
		return done, err
	}
	from := int64(0)
	for {
		lines, err := w.part(ctx, shard, from)
		if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) { // a damaged part is written again
			break
		}
		if err != nil {
			return Input{}, err
		}
		from += int64(len(lines))
	}
	p := &partWriter{ctx: ctx, files: w.files, shard: shard, first: from}
	rows, err := checkRows(ctx, r, in.Size, from, o, p.add)
	if err == nil {
		err = p.flush()
	}
	if err != nil {
		return Input{}, err
	}
	in.Rows = int(rows)
	crashpoint.Here("data.shard.before")
	if _, err = artifact.ReplaceJSON(ctx, w.files, ShardFile(shard), in); err != nil {
		return Input{}, err
	}
	crashpoint.Here("data.shard.after")
	return in, nil
}

// partWriter collects rows and writes parts.
type partWriter struct {
	ctx         context.Context //nolint:containedctx // lives as long as one call
	files       *artifact.Files
	shard, rows int
	first       int64
	buf         bytes.Buffer
}

// add appends a row: a line with its decision and problem and a line with its tests, empty if it is not kept.
func (p *partWriter) add(c Checked) error {
	enc := json.NewEncoder(&p.buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(c)
	if err == nil && c.Problem != nil {
		err = enc.Encode(c.Tests)
	} else {
		p.buf.WriteByte('\n')
	}
	if err != nil {
		return fault.New(fault.Internal, "dataset.Work", "%w", err)
	}
	if p.rows++; p.rows == partRows || p.buf.Len() >= partBytes {
		return p.flush()
	}
	return nil
}

// flush writes what was collected, with its digest as the last line.
func (p *partWriter) flush() error {
	if p.rows == 0 {
		return nil
	}
	sum := sha256.Sum256(p.buf.Bytes())
	p.buf.WriteString(hex.EncodeToString(sum[:]) + "\n")
	crashpoint.Here("data.part.before")
	if _, err := p.files.Replace(p.ctx, partName(p.shard, p.first), p.buf.Bytes()); err != nil {
		return err
	}
	crashpoint.Here("data.part.after")
	p.first += int64(p.rows)
	p.rows = 0
	p.buf.Reset()
	return nil
}

// rawRow is a row as it lies in a part.
type rawRow struct {
	row   []byte
	place place
}

// part reads the rows of the part that begins with a row. Errors: NotFound, Corrupt.
func (w *Work) part(ctx context.Context, shard int, first int64) ([]rawRow, error) {
	name := partName(shard, first)
	data, _, err := w.files.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	const trailer = 2*sha256.Size + 1
	text := data[:max(0, len(data)-trailer)]
	sum := sha256.Sum256(text)
	if len(text) == 0 || string(data[len(text):]) != hex.EncodeToString(sum[:])+"\n" {
		return nil, fault.New(fault.Corrupt, "dataset.Work", "%s is not as it was written", name).WithHint("remove this file and prepare the data set again")
	}
	var rows []rawRow
	for at := 0; at < len(text); {
		row := line(text[at:])
		at += len(row)
		tests := line(text[at:])
		rows = append(rows, rawRow{row, place{name, int64(at), int64(len(tests) - 1)}})
		at += len(tests)
	}
	return rows, nil
}

// line is the first line with its break. A text with a right digest ends with one.
func line(text []byte) []byte { return text[:bytes.IndexByte(text, '\n')+1] }

// rows reads the rows of a finished shard without their tests.
func (w *Work) rows(ctx context.Context, shard int, in Input) ([]Checked, error) {
	const op = "dataset.Finish"
	var out []Checked
	for len(out) < in.Rows {
		raw, err := w.part(ctx, shard, int64(len(out)))
		if err != nil {
			return nil, err
		}
		for _, r := range raw {
			var c Checked
			if err := json.Unmarshal(r.row, &c); err != nil || c.Decision.Row != int64(len(out)) {
				return nil, fault.New(fault.Corrupt, op, "%s: row %d cannot be read: %w", r.place.part, len(out), err)
			}
			c.place = r.place
			out = append(out, c)
		}
	}
	return out, nil
}

// tests reads the tests of a row as JSON.
func (w *Work) tests(p place) (string, error) {
	const op = "dataset.Finish"
	f, err := os.Open(filepath.Join(w.files.Root(), filepath.FromSlash(p.part)))
	if err != nil {
		return "", fileError(op, err)
	}
	defer f.Close() //nolint:errcheck // only read
	text := make([]byte, p.n)
	if _, err := f.ReadAt(text, p.at); err != nil {
		return "", fileError(op, err)
	}
	return string(text), nil
}

// decodeTests reads the column hidden_tests.
func decodeTests(text string) ([]judge.Test, error) {
	var tests []judge.Test
	err := json.Unmarshal([]byte(text), &tests)
	return tests, err
}
