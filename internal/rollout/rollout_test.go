package rollout

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/trajectory"
)

func TestCheckRecord_whatNoSamplerGives(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	tests := []struct {
		name string
		lp   float32
		ids  []int32
		lps  []float32
		good bool
	}{
		{"good", -1, []int32{3, 4}, []float32{-1, -2}, true},
		{"no record", -1, nil, nil, true},
		{"log-probability NaN", nan, nil, nil, false},
		{"log-probability above 0", 0.5, nil, nil, false},
		{"id outside the vocabulary", -1, []int32{3, 12}, []float32{-1, -2}, false},
		{"id twice", -1, []int32{3, 3}, []float32{-1, -2}, false},
		{"record NaN", -1, []int32{3, 4}, []float32{-1, nan}, false},
		{"mass above 1", -1, []int32{3, 4}, []float32{-0.1, -0.2}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := CheckRecord(sampled(t, engine.Token{ID: 2, LogProb: tt.lp, TopIDs: tt.ids, TopLogProbs: tt.lps}), 12)
			if tt.good && err != nil || !tt.good && !fault.Is(err, fault.Infrastructure) {
				t.Errorf("got %v, want good %v, else Infrastructure", err, tt.good)
			}
		})
	}
	// Tokens that were not sampled carry no record.
	tr := trajectory.New(trajectory.Key{}, []int32{99}, 1)
	if err := CheckRecord(tr, 12); err != nil {
		t.Errorf("a prompt: got %v, want nil", err)
	}
}

// sampled is a trajectory of one turn.
func sampled(t *testing.T, toks ...engine.Token) *trajectory.Trajectory {
	t.Helper()
	tr := trajectory.New(trajectory.Key{ProblemID: "p", Split: "train"}, []int32{1}, len(toks[0].TopIDs))
	tr.BeginTurn()
	for _, tok := range toks {
		if err := tr.AppendSampled(tok); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// An attempt that ends by itself does not shorten what another one flushed meanwhile, and flushes nothing of a closed run.
func TestFlusher_lastWritesOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	short := sampled(t, engine.Token{ID: 2, LogProb: -1}, engine.Token{ID: 3, LogProb: -1})
	long := sampled(t, engine.Token{ID: 2, LogProb: -1}, engine.Token{ID: 3, LogProb: -1}, engine.Token{ID: 4, LogProb: -1})
	for _, tt := range []struct {
		name   string
		old    []byte
		cause  error
		tokens int // of the trajectory that was flushed before
		writes bool
	}{
		{"nothing there", nil, context.Canceled, 0, true},
		{"damage", []byte("x"), context.Canceled, 0, true},
		{"an engine that failed", nil, fault.New(fault.Lost, "op", "x"), 0, true},
		{"a longer flush", encoded(t, long), context.Canceled, 0, false},
		{"a closed run", nil, fault.New(fault.Stale, "op", "x"), 0, false},
		{"nothing new", nil, context.Canceled, short.Len(), false},
	} {
		store, err := artifact.NewFiles(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		j := Job{Store: store, Partial: "partial"}
		if tt.old != nil {
			if _, err := store.Put(t.Context(), j.Partial, tt.old); err != nil {
				t.Fatal(err)
			}
		}
		f := j.flusher(trajectory.New(short.Key, short.IDs()[:short.Prompt()], 0))
		if tt.tokens > 0 {
			f.tokens = tt.tokens
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f.last(ctx, short, tt.cause)
		got, _, err := store.Get(t.Context(), j.Partial)
		if err != nil && !fault.Is(err, fault.NotFound) {
			t.Fatal(err)
		}
		if wrote := bytes.Equal(got, encoded(t, short)); wrote != tt.writes {
			t.Errorf("%s: written %v, want %v", tt.name, wrote, tt.writes)
		}
	}
}

func encoded(t *testing.T, tr *trajectory.Trajectory) []byte {
	t.Helper()
	data, err := trajectory.Encode([]*trajectory.Trajectory{tr})
	if err != nil {
		t.Fatal(err)
	}
	return data
}
