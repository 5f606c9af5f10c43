package trajectory_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
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

func BenchmarkEncodeDecode_fullBatch(b *testing.B) {
	var ts []*trajectory.Trajectory
	ids, lps := make([]int32, 128), make([]float32, 128)
	for i := range ids {
		ids[i], lps[i] = int32(i), float32(-i)
	}
	for range 64 {
		t := trajectory.New(trajectory.Key{}, []int32{1}, 128)
		t.BeginTurn()
		for i := range 8192 {
			if err := t.AppendSampled(engine.Token{ID: int32(i), TopIDs: ids, TopLogProbs: lps}); err != nil {
				b.Fatal(err)
			}
		}
		ts = append(ts, t)
	}
	for b.Loop() {
		for _, t := range ts {
			data, err := trajectory.Encode([]*trajectory.Trajectory{t})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := trajectory.Decode(data); err != nil {
				b.Fatal(err)
			}
		}
	}
}
