package trajectory_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/trajectory"
)

// draw builds a trajectory by random appends.
func draw(rt *rapid.T) *trajectory.Trajectory {
	k := rapid.IntRange(0, 3).Draw(rt, "k")
	t := trajectory.New(trajectory.Key{
		ProblemID: rapid.String().Draw(rt, "id"), Problem: 3, Split: "train", Group: 7, Sample: 1, Tag: 5, Submission: 2,
	}, rapid.SliceOfN(rapid.Int32Range(0, 99), 1, 9).Draw(rt, "prompt"), k)
	for range rapid.IntRange(0, 4).Draw(rt, "turns") {
		t.BeginTurn()
		for range rapid.IntRange(0, 9).Draw(rt, "tokens") {
			tok := engine.Token{
				ID: rapid.Int32().Draw(rt, "tok"), LogProb: rapid.Float32Range(-50, 0).Draw(rt, "lp"), Entropy: 1,
				Version: rapid.IntRange(0, 9).Draw(rt, "version"), TopIDs: make([]int32, k), TopLogProbs: make([]float32, k),
			}
			for i := range k {
				tok.TopIDs[i], tok.TopLogProbs[i] = int32(i), rapid.Float32Range(-50, 0).Draw(rt, "head")
			}
			if err := t.AppendSampled(tok); err != nil {
				rt.Fatal(err)
			}
		}
		t.AppendInserted(rapid.SliceOfN(rapid.Int32Range(0, 99), 0, 5).Draw(rt, "inserted"))
		t.Turns[len(t.Turns)-1].Call = &trajectory.Call{Status: "ran", Started: true, Seconds: 0.25}
	}
	t.End = trajectory.EndStop
	return t
}

func TestEncodeDecode_everyBitComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var ts []*trajectory.Trajectory
		for range rapid.IntRange(0, 3).Draw(rt, "n") {
			ts = append(ts, draw(rt))
		}
		data, err := trajectory.Encode(ts)
		if err != nil {
			rt.Fatal(err)
		}
		again, err := trajectory.Encode(ts)
		if err != nil || !bytes.Equal(data, again) {
			rt.Fatalf("two encodings differ (%v)", err)
		}
		got, err := trajectory.Decode(data)
		if err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(ts, got, cmp.AllowUnexported(trajectory.Trajectory{}), cmpopts.EquateEmpty()); d != "" {
			rt.Fatalf("(-want +got):\n%s", d)
		}
	})
}

func TestTrajectory_masksVersionsAndSequenceAgree(t *testing.T) {
	t.Parallel()
	tr := trajectory.New(trajectory.Key{}, []int32{1, 2}, 1)
	if _, _, ok := tr.VersionRange(); ok {
		t.Error("a prompt has no version")
	}
	tok := func(id int32, version int) engine.Token {
		return engine.Token{ID: id, LogProb: -1, Version: version, TopIDs: []int32{id}, TopLogProbs: []float32{-1}}
	}
	for turn, ids := range [][]int32{{5, 6}, {7}} {
		tr.BeginTurn()
		for _, id := range ids {
			if err := tr.AppendSampled(tok(id, 3-turn)); err != nil {
				t.Fatal(err)
			}
		}
		tr.AppendInserted([]int32{9})
	}
	if err := tr.AppendSampled(engine.Token{ID: 1}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a token without a record: %v, want Invalid", err)
	}
	s := tr.Sequence(0.5, 1)
	want := []bool{false, false, true, true, false, true, false}
	if d := cmp.Diff(want, s.Mask); d != "" || len(s.Tokens) != 7 || len(s.TopIDs) != 7 || s.TopIDs[3] != 6 {
		t.Errorf("sequence %+v (-mask +got)\n%s", s, d)
	}
	if lo, hi, _ := tr.VersionRange(); lo != 2 || hi != 3 || tr.Sampled() != 3 || tr.Response() != 5 {
		t.Errorf("versions %d to %d, sampled %d, response %d", lo, hi, tr.Sampled(), tr.Response())
	}
	if d := cmp.Diff([]int32{-1, -1, 0, 0, 0, 1, 1}, tr.TurnIndex()); d != "" {
		t.Errorf("turn index:\n%s", d)
	}
}

func TestDecode_damageIsCorruptOrHarmless(t *testing.T) {
	t.Parallel()
	tr := trajectory.New(trajectory.Key{ProblemID: "p"}, []int32{1, 2, 3}, 2)
	tr.BeginTurn()
	for i := range 40 {
		if err := tr.AppendSampled(engine.Token{ID: int32(i), LogProb: float32(-math.Ln2), TopIDs: []int32{1, 2}, TopLogProbs: []float32{-1, -2}}); err != nil {
			t.Fatal(err)
		}
	}
	data, err := trajectory.Encode([]*trajectory.Trajectory{tr})
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut < len(data); cut += 97 {
		if _, err := trajectory.Decode(data[:cut]); !fault.Is(err, fault.Corrupt) {
			t.Errorf("cut at %d: %v, want Corrupt", cut, err)
		}
	}
	found := 0
	for at := 0; at < len(data); at += 7 {
		bad := bytes.Clone(data)
		bad[at] ^= 0x55
		if _, err := trajectory.Decode(bad); err != nil {
			found++
			if !fault.Is(err, fault.Corrupt) {
				t.Errorf("flip at %d: %v, want Corrupt", at, err)
			}
		}
	}
	if found == 0 {
		t.Error("no flip was found; references carry digests for the rest")
	}
}

func TestAppendSampled_needsAnOpenTurn(t *testing.T) {
	t.Parallel()
	tr := trajectory.New(trajectory.Key{}, []int32{1}, 0)
	if err := tr.AppendSampled(engine.Token{ID: 5}); !fault.Is(err, fault.Invalid) {
		t.Errorf("before a turn: %v, want Invalid", err)
	}
	tr.BeginTurn()
	if err := tr.AppendSampled(engine.Token{ID: 5}); err != nil {
		t.Fatal(err)
	}
	tr.AppendInserted([]int32{9})
	if err := tr.AppendSampled(engine.Token{ID: 5}); !fault.Is(err, fault.Invalid) {
		t.Errorf("after an answer: %v, want Invalid", err)
	}
	if tr.Len() != 3 || tr.Sampled() != 1 || tr.Check() != nil {
		t.Errorf("%d tokens, %d sampled, %v", tr.Len(), tr.Sampled(), tr.Check())
	}
}

// Turns are open to the caller; a file never gets ones that disagree with the tokens.
func TestEncode_refusesTurnsThatDisagreeWithTheTokens(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*trajectory.Trajectory){
		"turn longer than sampled": func(tr *trajectory.Trajectory) { tr.Turns[0].End++ },
		"turn shorter":             func(tr *trajectory.Trajectory) { tr.Turns[0].End-- },
		"turn in the prompt":       func(tr *trajectory.Trajectory) { tr.Turns[0].Begin = 0 },
		"turn beyond the end":      func(tr *trajectory.Trajectory) { tr.Turns[1].End = 99 },
		"turn missing":             func(tr *trajectory.Trajectory) { tr.Turns = tr.Turns[:1] },
		"turn too many":            func(tr *trajectory.Trajectory) { tr.Turns = append(tr.Turns, trajectory.Turn{}) },
	} {
		tr := trajectory.New(trajectory.Key{}, []int32{1, 2}, 0)
		for range 2 {
			tr.BeginTurn()
			for range 3 {
				if err := tr.AppendSampled(engine.Token{ID: 5}); err != nil {
					t.Fatal(err)
				}
			}
			tr.AppendInserted([]int32{9, 9})
		}
		if err := tr.Check(); err != nil {
			t.Fatal(err)
		}
		spoil(tr)
		if _, err := trajectory.Encode([]*trajectory.Trajectory{tr}); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v, want Corrupt", name, err)
		}
	}
}

func TestReadWrite_streamsRowGroupsAndStopsWhenTold(t *testing.T) {
	t.Parallel()
	var ts []*trajectory.Trajectory
	for i := range 3 {
		ts = append(ts, long(t, i, 18_000, 128)) // more than one row group's worth each
	}
	var file bytes.Buffer
	if err := trajectory.Write(&file, slices.Values(ts)); err != nil {
		t.Fatal(err)
	}
	n := 0
	for got, err := range trajectory.Read(bytes.NewReader(file.Bytes()), int64(file.Len())) {
		if err != nil {
			t.Fatal(err)
		}
		if got.Sample != n || !slices.Equal(got.IDs(), ts[n].IDs()) {
			t.Errorf("trajectory %d is sample %d of %d tokens", n, got.Sample, got.Len())
		}
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d trajectories read, want 2", n)
	}
	if records := 3 * 18_000 * 128 * 8; file.Len() > records*11/10 {
		t.Errorf("the file has %d bytes for %d bytes of records: they are repeated somewhere", file.Len(), records)
	}
	want := errors.New("disk full")
	if err := trajectory.Write(failing{want}, slices.Values(ts)); !errors.Is(err, want) {
		t.Errorf("a writer that fails: %v, want %v", err, want)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// long returns a trajectory of one turn whose records look like real ones: ids of a large vocabulary, falling values.
func long(tb testing.TB, sample, tokens, width int) *trajectory.Trajectory {
	tb.Helper()
	t := trajectory.New(trajectory.Key{ProblemID: "p", Sample: sample}, []int32{1}, width)
	t.BeginTurn()
	s := rng.New(1, rng.Corpus, sample)
	ids, lps := make([]int32, width), make([]float32, width)
	for i := range tokens {
		for k := range ids {
			b := s.Block(uint64(i*width + k))
			ids[k], lps[k] = int32(b[0]%151_936), -float32(k)-float32(b[1])/(1<<32)
		}
		if err := t.AppendSampled(engine.Token{ID: ids[0], LogProb: lps[0], Entropy: 1, Version: i / 5000, TopIDs: ids, TopLogProbs: lps}); err != nil {
			tb.Fatal(err)
		}
	}
	return t
}

// 64 trajectories of 8,192 tokens with records of width 128, streamed: four of them, each sixteen times.
func BenchmarkWriteRead_fullBatch(b *testing.B) {
	var ts []*trajectory.Trajectory
	for i := range 64 {
		if i < 4 {
			ts = append(ts, long(b, i, 8192, 128))
		} else {
			ts = append(ts, ts[i%4])
		}
	}
	path := filepath.Join(b.TempDir(), "batch.parquet")
	for b.Loop() {
		f, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := trajectory.Write(f, slices.Values(ts)); err != nil {
			b.Fatal(err)
		}
		size, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for got, err := range trajectory.Read(f, size) {
			if err != nil || got.Len() != 8193 {
				b.Fatal(err)
			}
			n++
		}
		if n != 64 {
			b.Fatalf("%d trajectories", n)
		}
		b.ReportMetric(float64(size)/(1<<20), "MiB")
		f.Close()
	}
}

// flushed is an unfinished trajectory with every array in use, and its file.
func flushed(t *testing.T) (*trajectory.Trajectory, []byte) {
	t.Helper()
	tr := trajectory.New(trajectory.Key{ProblemID: "p", Problem: 4, Split: "train", Group: 5, Sample: 1, Tag: 2, Submission: 1}, []int32{1, 2, 3}, 2)
	for turn := range 2 {
		tr.BeginTurn()
		for i := range 5 {
			tok := engine.Token{
				ID: int32(10 + i), LogProb: -0.5 - float32(i), Entropy: 1.5, Version: 3 + turn, TopIDs: []int32{int32(i), 9}, TopLogProbs: []float32{-1, -2 - float32(i)},
			}
			if err := tr.AppendSampled(tok); err != nil {
				t.Fatal(err)
			}
		}
		if turn == 0 {
			tr.AppendInserted([]int32{7, 8})
			tr.Turns[0].Call = &trajectory.Call{Status: "ran", Started: true, Outcome: "ok", Seconds: 0.25}
		}
	}
	data, err := trajectory.Encode([]*trajectory.Trajectory{tr})
	if err != nil {
		t.Fatal(err)
	}
	return tr, data
}

// No damage of a flush is believed: cut anywhere, or with any byte changed, it is Corrupt or says exactly what was flushed.
func TestDecodeSealed_believesNoDamage(t *testing.T) {
	t.Parallel()
	want, data := flushed(t)
	whole, err := trajectory.DecodeSealed(data)
	if err != nil || len(whole) != 1 {
		t.Fatalf("%d trajectories, %v", len(whole), err)
	}
	for cut := 0; cut < len(data); cut += 1 + 6*min(1, (len(data)-cut)/300) { // every byte of the end, where the footer is
		if _, err := trajectory.DecodeSealed(data[:cut]); !fault.Is(err, fault.Corrupt) {
			t.Errorf("cut at %d of %d: %v, want Corrupt", cut, len(data), err)
		}
		torn := make([]byte, len(data)) // the file system had its length, but not the rest of its bytes
		copy(torn, data[:cut])
		if _, err := trajectory.DecodeSealed(torn); cut < len(data)-1 && !fault.Is(err, fault.Corrupt) {
			t.Errorf("zeros from %d of %d: %v, want Corrupt", cut, len(data), err)
		}
	}
	found := 0
	for at := range data {
		bad := bytes.Clone(data)
		bad[at] ^= []byte{0x01, 0x80, 0xff}[at%3]
		got, err := trajectory.DecodeSealed(bad)
		switch {
		case err != nil && !fault.Is(err, fault.Corrupt):
			t.Errorf("byte %d changed: %v, want Corrupt", at, err)
		case err != nil:
			found++
		default:
			if d := cmp.Diff([]*trajectory.Trajectory{want}, got, cmp.AllowUnexported(trajectory.Trajectory{}), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("byte %d changed was believed (-want +got):\n%s", at, d)
			}
		}
	}
	if found < len(data)/2 {
		t.Errorf("only %d of %d changes were found", found, len(data))
	}
}

// A file of two trajectories from which one was cut out, and one without a digest, are not what was written.
func TestDecode_theDigestCoversAllRows(t *testing.T) {
	t.Parallel()
	tr, one := flushed(t)
	two, err := trajectory.Encode([]*trajectory.Trajectory{tr, tr})
	if err != nil {
		t.Fatal(err)
	}
	digest := func(data []byte) []byte {
		at := bytes.Index(data, []byte("steady.rows_sha256"))
		if at < 0 {
			t.Fatal("no digest in the file")
		}
		return data[at : at+18+2+64+1]
	}
	if bytes.Equal(digest(one), digest(two)) {
		t.Error("one row and two rows have the same digest")
	}
	for name, decode := range map[string]func([]byte) ([]*trajectory.Trajectory, error){"Decode": trajectory.Decode, "DecodeSealed": trajectory.DecodeSealed} {
		if _, err := decode(bytes.ReplaceAll(one, digest(one), digest(two))); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s with the digest of other rows: %v, want Corrupt", name, err)
		}
	}
	old := bytes.ReplaceAll(one, []byte("steady.rows_sha256"), []byte("another.entry_0000"))
	if got, err := trajectory.Decode(old); err != nil || len(got) != 1 {
		t.Errorf("a file from before there were digests: %d trajectories, %v", len(got), err)
	}
	if _, err := trajectory.DecodeSealed(old); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a flush without a digest: %v, want Corrupt", err)
	}
}
