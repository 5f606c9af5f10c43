package trajectory_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/trajectory"
)

func headOf(t *trajectory.Trajectory) trajectory.Head {
	return trajectory.Head{
		Key: t.Key, Turns: t.Turns, End: t.End, Seconds: t.Seconds, Prompt: t.Prompt(), Sampled: t.Sampled(), TopK: t.TopK(),
	}
}

// The bytes of a file are those that earlier builds wrote: digests in batches and results hang on them. A change, also one by a newer Parquet library, is
// a change of the format.
func TestEncode_bytesAreThoseOfEarlierBuilds(t *testing.T) {
	t.Parallel()
	ts := []*trajectory.Trajectory{long(t, 0, 300, 8), long(t, 1, 5, 8)}
	ts[0].Key = trajectory.Key{ProblemID: "demo/7", Problem: 7, Split: "train", Group: 3, Sample: 2, Tag: 4, Submission: 1}
	ts[0].End, ts[0].Seconds, ts[1].End = trajectory.EndStop, 1.25, trajectory.EndStop
	data, err := trajectory.Encode(ts)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := artifact.Digest(data), "d8f22d61fa14056c9ce2e3dcaa6f6193b4b180f69cdb3d86600294241c196566"; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// The heads of a file say what its trajectories say.
func TestReadHeads_agreesWithRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var ts []*trajectory.Trajectory
		var want []trajectory.Head
		for range rapid.IntRange(0, 90).Draw(rt, "n") { // more than one read
			one := draw(rt)
			ts, want = append(ts, one), append(want, headOf(one))
		}
		data, err := trajectory.Encode(ts)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := trajectory.ReadHeads(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			rt.Fatalf("(-want +got):\n%s", d)
		}
	})
}

// counting counts the bytes that are read.
type counting struct {
	io.ReaderAt
	n int
}

func (c *counting) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, at)
	c.n += n
	return n, err
}

// A file of megabytes costs kilobytes: tokens and records are not read.
func TestReadHeads_readsTheSmallColumnsOnly(t *testing.T) {
	t.Parallel()
	const k, tokens = 128, 400
	var ts []*trajectory.Trajectory
	for n := range 4 {
		one := trajectory.New(trajectory.Key{ProblemID: "p", Sample: n}, make([]int32, 400), k)
		one.BeginTurn()
		for i := range tokens {
			tok := engine.Token{ID: int32(i), TopIDs: make([]int32, k), TopLogProbs: make([]float32, k)}
			for j := range k {
				tok.TopIDs[j], tok.TopLogProbs[j] = int32(7919*i*(j+1)%151000), -float32(i*j)*0.37
			}
			if err := one.AppendSampled(tok); err != nil {
				t.Fatal(err)
			}
		}
		ts = append(ts, one)
	}
	data, err := trajectory.Encode(ts)
	if err != nil {
		t.Fatal(err)
	}
	r := &counting{ReaderAt: bytes.NewReader(data)}
	heads, err := trajectory.ReadHeads(r, int64(len(data)))
	if err != nil || len(heads) != 4 {
		t.Fatalf("%d heads, %v", len(heads), err)
	}
	if len(data) < 1<<20 || r.n > 128<<10 {
		t.Errorf("%d of %d bytes were read", r.n, len(data))
	}
}

// A file that is cut, or no file of trajectories, is an error, never a panic or an empty answer.
func TestReadHeads_refusesWhatIsDamaged(t *testing.T) {
	t.Parallel()
	one := trajectory.New(trajectory.Key{ProblemID: "p"}, []int32{1, 2, 3}, 0)
	one.End = trajectory.EndStop
	data, err := trajectory.Encode([]*trajectory.Trajectory{one})
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(data) {
		if _, err := trajectory.ReadHeads(bytes.NewReader(data[:n]), int64(n)); !fault.Is(err, fault.Corrupt) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(data), err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		spoilt := bytes.Clone(data)
		spoilt[rapid.IntRange(0, len(spoilt)-1).Draw(rt, "at")] ^= byte(rapid.IntRange(1, 255).Draw(rt, "bits"))
		_, err := trajectory.ReadHeads(bytes.NewReader(spoilt), int64(len(spoilt)))
		if err != nil && !fault.Is(err, fault.Corrupt) {
			rt.Fatalf("%v", err)
		}
	})
}
