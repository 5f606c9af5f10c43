package policy_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/policy"
	"github.com/steadyrl/steady/internal/record"
)

// fake is an engine whose log-probabilities are its version, and a source of such weights.
type fake struct {
	mu      sync.Mutex
	version int
	closed  bool
	changed chan struct{}
}

func newFake() *fake { return &fake{version: -1, changed: make(chan struct{}, 100)} }

func (f *fake) Generate(context.Context, engine.Request, func(engine.Token) error) (engine.Finish, error) {
	return engine.FinishStop, nil
}

func (f *fake) Score(context.Context, []int32) ([]float32, error) {
	return []float32{float32(-f.Version())}, nil
}

func (f *fake) SetWeights(_ context.Context, v int, _ *model.Weights) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version = v
	f.changed <- struct{}{}
	return nil
}

func (f *fake) Version() int { f.mu.Lock(); defer f.mu.Unlock(); return f.version }
func (f *fake) Close() error { f.mu.Lock(); defer f.mu.Unlock(); f.closed = true; return nil }

type source struct {
	mu       sync.Mutex
	made     []*fake
	badProbe bool
}

func (s *source) Published(_ context.Context, _ record.Layout, v int) (record.Version, *model.Weights, error) {
	p := float32(-v)
	if s.badProbe {
		p += 0.5
	}
	return record.Version{Version: v, ProbeTokens: []int32{1, 2}, ProbeLogProbs: []float32{p}}, &model.Weights{}, nil
}

func (s *source) Exported(context.Context, record.Layout) (*model.Weights, error) {
	return &model.Weights{}, nil
}

func (s *source) NewSampler(context.Context, record.Layout, string, model.Config) (engine.Sampler, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := newFake()
	s.made = append(s.made, f)
	return f, nil
}

var layout = record.Layout{Run: "r", Lineage: "l0"}

func setLive(t *testing.T, st artifact.Store, l record.Layout, v int) {
	t.Helper()
	if _, err := artifact.ReplaceJSON(t.Context(), st, l.Live(), record.Live{Version: v}); err != nil {
		t.Fatal(err)
	}
}

func newHost(t *testing.T, src *source) (*policy.Host, artifact.Store) {
	t.Helper()
	st, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := policy.NewHost(policy.Options{Store: st, Source: src, Poll: time.Millisecond})
	t.Cleanup(func() { _ = h.Close() })
	return h, st
}

func TestHost_followsTheLivePointerWhileLeasedAndStaysWhilePinned(t *testing.T) {
	t.Parallel()
	src := &source{}
	h, st := newHost(t, src)
	setLive(t, st, layout, 3)
	lease, err := h.Acquire(t.Context(), policy.Want{Layout: layout, Source: "published", MinVersion: 2})
	if err != nil {
		t.Fatal(err)
	}
	f := src.made[0]
	<-f.changed
	if v := lease.Sampler.Version(); v != 3 {
		t.Errorf("version %d, want the live one, 3", v)
	}
	setLive(t, st, layout, 4)
	<-f.changed
	four := 4
	pinned, err := h.Acquire(t.Context(), policy.Want{Layout: layout, Source: "published", MinVersion: 4, Pin: &four})
	if err != nil {
		t.Fatal(err)
	}
	if len(src.made) != 1 {
		t.Error("a pin to the version that is served needs no second engine")
	}
	setLive(t, st, layout, 5)
	// A lease of version 5 cannot start here before the pin is gone, but an older one stays exact.
	if _, err := h.Acquire(t.Context(), policy.Want{Layout: layout, Source: "published", MinVersion: 6}); !fault.Is(err, fault.Busy) {
		t.Errorf("version 6 is not live: %v, want Busy", err)
	}
	if _, err := h.Acquire(t.Context(), policy.Want{Layout: layout, Source: "published", MinVersion: 5}); !fault.Is(err, fault.Busy) {
		t.Errorf("version 5 while 4 is pinned: %v, want Busy", err)
	}
	if v := pinned.Sampler.Version(); v != 4 {
		t.Errorf("version %d while 4 is pinned", v)
	}
	pinned.Release()
	<-f.changed
	if v := f.Version(); v != 5 {
		t.Errorf("version %d after the pin was released, want 5", v)
	}
	// A retry of a validation at 4 meets an engine at 5 and gets its own.
	again, err := h.Acquire(t.Context(), policy.Want{Layout: layout, Source: "published", MinVersion: 4, Pin: &four})
	if err != nil {
		t.Fatal(err)
	}
	if again.Sampler.Version() != 4 || lease.Sampler.Version() != 5 {
		t.Errorf("versions %d and %d, want 4 and 5 side by side", again.Sampler.Version(), lease.Sampler.Version())
	}
	other := record.Layout{Run: "other", Lineage: "l0"}
	setLive(t, st, other, 0)
	if _, err := h.Acquire(t.Context(), policy.Want{Layout: other, Source: "published"}); !fault.Is(err, fault.Busy) {
		t.Errorf("both engines are in use: %v, want Busy", err)
	}
	again.Release()
	if _, err := h.Acquire(t.Context(), policy.Want{Layout: other, Source: "published"}); err != nil {
		t.Errorf("an idle engine makes room: %v", err)
	}
	if !src.made[1].closed {
		t.Error("the engine that made room must be closed")
	}
	lease.Release()
}

func TestHost_aVersionThatDoesNotReproduceItsProbeIsRefused(t *testing.T) {
	t.Parallel()
	src := &source{badProbe: true}
	h, st := newHost(t, src)
	setLive(t, st, layout, 1)
	_, err := h.Acquire(t.Context(), policy.Want{Layout: layout, Source: "published", MinVersion: 1})
	if !fault.Is(err, fault.Corrupt) {
		t.Fatalf("error %v, want Corrupt", err)
	}
	if !src.made[0].closed {
		t.Error("the engine must not leak")
	}
}

func TestHost_nothingLiveIsNotFound(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, &source{})
	if _, err := h.Acquire(t.Context(), policy.Want{Layout: layout, Source: "published"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("error %v, want NotFound", err)
	}
}

// Sixteen groups of a step arrive at once, all pinned to the version that is new to this engine.
func TestHost_manyPinsOfANewVersionArriveTogether(t *testing.T) {
	t.Parallel()
	src := &source{}
	h, st := newHost(t, src)
	for v := range 3 {
		setLive(t, st, layout, v)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				l, err := h.Acquire(context.Background(), policy.Want{Layout: layout, Source: "published", MinVersion: v, Pin: &v})
				if err != nil {
					t.Errorf("version %d: %v", v, err)
					return
				}
				if got := l.Sampler.Version(); got != v {
					t.Errorf("version %d, want %d", got, v)
				}
				l.Release()
			})
		}
		wg.Wait()
	}
	if len(src.made) != 1 {
		t.Errorf("%d engines were made, want 1", len(src.made))
	}
}
