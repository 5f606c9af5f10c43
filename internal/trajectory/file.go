package trajectory

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/fault"
)

// headRow has the columns of one small value each, which ReadHeads reads alone. Parquet matches columns by name.
type headRow struct {
	ProblemID     string  `parquet:"problem_id"`
	Problem       int32   `parquet:"problem"`
	Split         string  `parquet:"split"`
	Group         int32   `parquet:"group"`
	Sample        int32   `parquet:"sample"`
	Tag           int32   `parquet:"tag"`
	Submission    int32   `parquet:"submission"`
	PromptTokens  int32   `parquet:"prompt_tokens"`
	SampledTokens int32   `parquet:"sampled_tokens"`
	End           string  `parquet:"end"`
	Turns         string  `parquet:"turns"`
	Seconds       float64 `parquet:"seconds"`
	TopK          int32   `parquet:"top_k"`
}

func (r headRow) key() Key {
	return Key{
		ProblemID: r.ProblemID, Problem: int(r.Problem), Split: r.Split, Group: int(r.Group), Sample: int(r.Sample),
		Tag: int(r.Tag), Submission: int(r.Submission),
	}
}

// row is a row of a file; the columns of its head come first.
type row struct {
	headRow
	IDs          []int32   `parquet:"ids,list"`
	Mask         []bool    `parquet:"mask,list"`
	LogProbs     []float32 `parquet:"log_probs,list"`
	Entropies    []float32 `parquet:"entropies,list"`
	Versions     []int32   `parquet:"versions,list"`
	Turn         []int32   `parquet:"turn_index,list"`
	HeadIDs      []byte    `parquet:"head_ids"`
	HeadLogProbs []byte    `parquet:"head_log_probs"`
}

// digestKey is the entry of the file's own metadata that holds the SHA-256 of all rows, hexadecimal.
const digestKey = "steady.rows_sha256"

// groupBytes is the size of records after which a row group ends, so that a writer holds little more.
const groupBytes = 16 << 20

// Write writes a file of trajectories, in order; besides them it holds about one row group in memory. Determinism: the
// bytes are a function of the trajectories.
//
// Errors: Corrupt (a trajectory that disagrees with itself), Numeric (a time that is not finite), those of w.
func Write(w io.Writer, ts iter.Seq[*Trajectory]) error {
	const op = "trajectory.Write"
	pw := parquet.NewGenericWriter[row](w, parquet.CreatedBy("steady", "1", "1"), parquet.MaxRowsPerRowGroup(256),
		parquet.Compression(&parquet.Snappy),
		// Bounds would repeat whole records, several times each, and page headers of that size are not read everywhere.
		parquet.DataPageStatistics(false), parquet.SkipPageBounds("head_ids"), parquet.SkipPageBounds("head_log_probs"))
	held, sum := 0, sha256.New()
	for t := range ts {
		r, err := t.row()
		if err != nil {
			return err
		}
		r.addTo(sum)
		if _, err := pw.Write([]row{r}); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		if held += len(r.HeadIDs) + len(r.HeadLogProbs); held < groupBytes {
			continue
		}
		held = 0
		if err := pw.Flush(); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	pw.SetKeyValueMetadata(digestKey, hex.EncodeToString(sum.Sum(nil)))
	if err := pw.Close(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// addTo adds everything of the row to h, each piece behind its length. The values count, not their place in the file.
func (r row) addTo(h hash.Hash) {
	var buf []byte
	number := func(v uint64) { buf = binary.LittleEndian.AppendUint64(buf, v) }
	piece := func(n int) {
		number(uint64(n)) //nolint:gosec // a length
		if len(buf) > 1<<16 {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	text := func(s string) { piece(len(s)); buf = append(buf, s...) }
	text(r.ProblemID)
	text(r.Split)
	text(r.End)
	text(r.Turns)
	for _, v := range []int32{r.Problem, r.Group, r.Sample, r.Tag, r.Submission, r.PromptTokens, r.SampledTokens, r.TopK} {
		number(uint64(v)) //nolint:gosec // same bits
	}
	number(math.Float64bits(r.Seconds))
	for _, list := range [][]int32{r.IDs, r.Versions, r.Turn} {
		piece(len(list))
		for _, v := range list {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(v)) //nolint:gosec // same bits
		}
	}
	for _, list := range [][]float32{r.LogProbs, r.Entropies} {
		piece(len(list))
		for _, v := range list {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
	}
	piece(len(r.Mask))
	for _, m := range r.Mask {
		buf = append(buf, map[bool]byte{true: 1}[m])
	}
	for _, list := range [][]byte{r.HeadIDs, r.HeadLogProbs} {
		piece(len(list))
		h.Write(buf)
		buf = buf[:0]
		h.Write(list)
	}
}

// Encode is Write into memory.
func Encode(ts []*Trajectory) ([]byte, error) {
	var buf bytes.Buffer
	if err := Write(&buf, slices.Values(ts)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func (t *Trajectory) row() (row, error) {
	if err := t.Check(); err != nil {
		return row{}, err
	}
	turns, err := json.Marshal(t.Turns)
	if err != nil {
		return row{}, fault.New(fault.Numeric, "trajectory.Write", "turns: %w", err)
	}
	r := row{
		headRow: headRow{
			ProblemID: t.ProblemID, Problem: int32(t.Problem), Split: t.Split, Group: int32(t.Group), Sample: int32(t.Sample), //nolint:gosec // small
			Tag: int32(t.Tag), Submission: int32(t.Submission), PromptTokens: int32(t.prompt), SampledTokens: int32(t.sampled), //nolint:gosec // small
			End: string(t.End), Turns: string(turns), Seconds: t.Seconds, TopK: int32(t.topK), //nolint:gosec // small
		},
		IDs: t.ids, Mask: t.mask, LogProbs: t.logProbs, Entropies: t.entropies, Versions: t.versions, Turn: t.turn,
		HeadIDs: make([]byte, 0, 4*len(t.headIDs)), HeadLogProbs: make([]byte, 0, 4*len(t.headLPs)),
	}
	for _, id := range t.headIDs {
		r.HeadIDs = binary.LittleEndian.AppendUint32(r.HeadIDs, uint32(id)) //nolint:gosec // same bits
	}
	for _, lp := range t.headLPs {
		r.HeadLogProbs = binary.LittleEndian.AppendUint32(r.HeadLogProbs, math.Float32bits(lp))
	}
	return r, nil
}

// Read yields the trajectories of a file of size bytes one after the other, checked. After an error it ends. The digest
// of the rows is compared after the last one, so that an error at the end is about all of them. A file without a digest, from
// before there was one, is read all the same; who keeps a reference to the file has the digest of its bytes. Errors: Corrupt.
func Read(r io.ReaderAt, size int64) iter.Seq2[*Trajectory, error] { return read(r, size, false) }

func read(r io.ReaderAt, size int64, sealed bool) iter.Seq2[*Trajectory, error] {
	return func(yield func(*Trajectory, error) bool) {
		rows, want, err := open(r, size)
		if err == nil && sealed && want == "" {
			err = fault.New(fault.Corrupt, "trajectory.Read", "the file has no digest of its rows")
		}
		if err != nil {
			yield(nil, err)
			return
		}
		defer rows.Close()
		sum := sha256.New()
		for {
			t, err := next(rows, sum)
			if t == nil && err == nil {
				break
			}
			if !yield(t, err) || err != nil {
				return
			}
		}
		if got := hex.EncodeToString(sum.Sum(nil)); want != "" && got != want {
			yield(nil, fault.New(fault.Corrupt, "trajectory.Read", "the rows have digest %.12s, the file says %.12s", got, want))
		}
	}
}

// Decode is Read from memory. Errors: Corrupt.
func Decode(data []byte) ([]*Trajectory, error) { return decode(data, false) }

// DecodeSealed is Decode of a file to which nobody has a reference, such as a flush: it must have the digest of its
// rows. Errors: Corrupt.
func DecodeSealed(data []byte) ([]*Trajectory, error) { return decode(data, true) }

func decode(data []byte, sealed bool) ([]*Trajectory, error) {
	var ts []*Trajectory
	for t, err := range read(bytes.NewReader(data), int64(len(data)), sealed) {
		if err != nil {
			return nil, err
		}
		ts = append(ts, t)
	}
	return ts, nil
}

// open and next turn panics into errors: the Parquet reader may panic on pages that are not what the footer says. The
// digest is empty for a file without one.
func open(r io.ReaderAt, size int64) (rows *parquet.GenericReader[row], digest string, err error) {
	defer corrupt(&err)
	f, err := parquet.OpenFile(r, size)
	if err != nil {
		return nil, "", fault.New(fault.Corrupt, "trajectory.Read", "%w", err)
	}
	digest, _ = f.Lookup(digestKey)
	return parquet.NewGenericReader[row](f), digest, nil
}

// next adds the row that it reads to sum. It returns nil and no error at the end.
func next(rows *parquet.GenericReader[row], sum hash.Hash) (t *Trajectory, err error) {
	defer corrupt(&err)
	buf := make([]row, 1)
	n, err := rows.Read(buf)
	switch {
	case n == 1:
		buf[0].addTo(sum)
		return buf[0].trajectory()
	case err == nil, errors.Is(err, io.EOF):
		return nil, nil //nolint:nilnil // the end
	}
	return nil, fault.New(fault.Corrupt, "trajectory.Read", "%w", err)
}

func corrupt(err *error) {
	if p := recover(); p != nil {
		*err = fault.New(fault.Corrupt, "trajectory.Read", "%v", p)
	}
}

func (r row) trajectory() (*Trajectory, error) {
	t := &Trajectory{
		Key: r.key(), End: End(r.End), Seconds: r.Seconds, topK: int(r.TopK), prompt: int(r.PromptTokens), sampled: int(r.SampledTokens),
		ids: r.IDs, mask: r.Mask, logProbs: r.LogProbs, entropies: r.Entropies, versions: r.Versions, turn: r.Turn,
		headIDs: make([]int32, len(r.HeadIDs)/4), headLPs: make([]float32, len(r.HeadLogProbs)/4),
	}
	if len(r.HeadIDs) != len(r.HeadLogProbs) || len(r.HeadIDs)%4 != 0 {
		return nil, fault.New(fault.Corrupt, "trajectory.Read", "records of %d and %d bytes", len(r.HeadIDs), len(r.HeadLogProbs))
	}
	for i := range t.headIDs {
		t.headIDs[i] = int32(binary.LittleEndian.Uint32(r.HeadIDs[4*i:])) //nolint:gosec // same bits
		t.headLPs[i] = math.Float32frombits(binary.LittleEndian.Uint32(r.HeadLogProbs[4*i:]))
	}
	if err := json.Unmarshal([]byte(r.Turns), &t.Turns); err != nil {
		return nil, fault.New(fault.Corrupt, "trajectory.Read", "turns: %w", err)
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	return t, nil
}
