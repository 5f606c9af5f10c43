package policy

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
)

// Source loads weights and makes engines. Implementations are given by the worker.
type Source interface {
	// Published returns the manifest and the verified weights of a published version.
	Published(ctx context.Context, l record.Layout, version int) (record.Version, *model.Weights, error)
	// Exported returns the weights of the lineage's export, as another program would load them.
	Exported(ctx context.Context, l record.Layout) (*model.Weights, error)
	// NewSampler makes an engine for the model of a lineage, with the arithmetic that the lineage wants for that source of weights.
	NewSampler(ctx context.Context, l record.Layout, from string, c model.Config) (engine.Sampler, error)
}

// Options configure a Host.
type Options struct {
	Store  artifact.Store
	Source Source
	// Max is the number of engines kept; 0 means 2.
	Max int
	// Poll is how often the live pointer is read while requests run; 0 means 100 ms.
	Poll time.Duration
	// ProbeTolerance is the largest difference of a probe's log-probabilities, 0 for equal bits.
	ProbeTolerance float64
	// OnSwap, if set, hears of every version that went live here.
	OnSwap func(l record.Layout, version int, took time.Duration)
}

// Host hands out samplers. All methods may be called from any goroutine.
type Host struct {
	opts    Options
	mu      sync.Mutex
	engines map[key]*slot
	clock   int64 // counts uses, for eviction
	closed  bool
}

type key struct {
	layout record.Layout
	source string
	pin    int // -1: follows the live pointer
}

// slot is one engine. Its mutex serialises loading; the host's mutex guards the counters.
type slot struct {
	key     key
	loading sync.Mutex
	sampler engine.Sampler
	leases  int
	pinned  int // granted leases that need the version to stay
	used    int64
	stop    context.CancelFunc
}

// NewHost returns an empty host.
func NewHost(o Options) *Host {
	if o.Max == 0 {
		o.Max = 2
	}
	if o.Poll == 0 {
		o.Poll = 100 * time.Millisecond
	}
	return &Host{opts: o, engines: map[key]*slot{}}
}

// Want says which policy a caller needs.
type Want struct {
	Layout record.Layout
	Source string // "published" or "export"
	// MinVersion is the oldest version that may serve.
	MinVersion int
	// Pin, if set, is the only version that may serve.
	Pin *int
}

// Lease is the use of an engine. Release must be called once.
type Lease struct {
	Sampler engine.Sampler
	release func()
}

// Release ends the use.
func (l *Lease) Release() { l.release() }

// Acquire returns an engine at the wanted version, loading it if needed.
//
// Errors: Busy (all engines are in use, or the version is not live yet; try again), NotFound or Corrupt (the
// version's files), Stale (the pinned version can no longer be served beside newer ones here), and
// what the engine says.
func (h *Host) Acquire(ctx context.Context, w Want) (*Lease, error) {
	s, err := h.slot(w)
	if err != nil {
		return nil, err
	}
	if err := h.prepare(ctx, s, w); err != nil {
		h.put(s, false)
		return nil, err
	}
	return &Lease{Sampler: s.sampler, release: sync.OnceFunc(func() { h.put(s, w.Pin != nil) })}, nil
}

// slot finds or makes the slot for w and counts the lease.
func (h *Host) slot(w Want) (*slot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fault.New(fault.Lost, "policy.Acquire", "the worker is stopping")
	}
	h.clock++
	k := key{layout: w.Layout, source: w.Source, pin: -1}
	s := h.engines[k]
	// A pinned version older than the one served gets an engine of its own: tokens of others must not go back.
	if w.Pin != nil && s != nil && s.sampler != nil && s.sampler.Version() > *w.Pin {
		k.pin = *w.Pin
		s = h.engines[k]
	}
	if s == nil {
		if err := h.makeRoom(); err != nil {
			return nil, err
		}
		s = &slot{key: k}
		h.engines[k] = s
	}
	s.used = h.clock
	s.leases++
	if s.leases == 1 && k.source == "published" && k.pin < 0 {
		ctx, cancel := context.WithCancel(context.Background())
		s.stop = cancel
		go h.follow(ctx, s)
	}
	return s, nil
}

func (h *Host) put(s *slot, pinned bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.leases--
	if pinned {
		s.pinned--
	}
	if s.leases == 0 && s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// makeRoom closes the idle engine that was used longest ago if the host is full.
func (h *Host) makeRoom() error {
	if len(h.engines) < h.opts.Max {
		return nil
	}
	var oldest *slot
	for _, s := range h.engines {
		if s.leases == 0 && (oldest == nil || s.used < oldest.used) {
			oldest = s
		}
	}
	if oldest == nil {
		return fault.New(fault.Busy, "policy.Acquire", "all %d engines of this worker are in use", h.opts.Max).
			WithHint("start more rollout workers, or wait for other runs")
	}
	delete(h.engines, oldest.key)
	if oldest.sampler != nil {
		return oldest.sampler.Close()
	}
	return nil
}

// prepare brings s to a version that w accepts, and counts the pin.
func (h *Host) prepare(ctx context.Context, s *slot, w Want) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	if err := h.reach(ctx, s, w); err != nil {
		return err
	}
	if w.Pin != nil {
		h.mu.Lock()
		s.pinned++
		h.mu.Unlock()
	}
	return nil
}

// reach is prepare without the pin. The caller holds s.loading.
func (h *Host) reach(ctx context.Context, s *slot, w Want) error {
	h.mu.Lock()
	current, pinned := -1, s.pinned > 0
	if s.sampler != nil {
		current = s.sampler.Version()
	}
	h.mu.Unlock()
	switch {
	case w.Pin != nil && current == *w.Pin, w.Pin == nil && current >= max(w.MinVersion, 0):
		return nil
	case pinned:
		return fault.New(fault.Busy, "policy.Acquire", "version %d is pinned by requests in flight", current)
	case w.Pin != nil && current > *w.Pin && s.key.pin < 0:
		return fault.New(fault.Busy, "policy.Acquire", "version %d is pinned, this engine went on to %d", *w.Pin, current)
	case w.Pin != nil:
		return h.load(ctx, s, *w.Pin)
	}
	live, err := h.live(ctx, w.Layout)
	if err != nil {
		return err
	}
	if live < w.MinVersion {
		return fault.New(fault.Busy, "policy.Acquire", "version %d is not live yet, live is %d", w.MinVersion, live)
	}
	return h.load(ctx, s, live)
}

func (h *Host) live(ctx context.Context, l record.Layout) (int, error) {
	var live record.Live
	if _, err := artifact.GetJSON(ctx, h.opts.Store, l.Live(), &live); err != nil {
		return 0, err
	}
	return live.Version, nil
}

// load swaps s to a version and proves it. The caller holds s.loading.
func (h *Host) load(ctx context.Context, s *slot, version int) error {
	began := time.Now()
	var w *model.Weights
	var info record.Version
	var err error
	if s.key.source == "export" {
		w, err = h.opts.Source.Exported(ctx, s.key.layout)
	} else {
		info, w, err = h.opts.Source.Published(ctx, s.key.layout, version)
	}
	if err != nil {
		return err
	}
	sampler := s.sampler
	if sampler == nil {
		if sampler, err = h.opts.Source.NewSampler(ctx, s.key.layout, s.key.source, w.Config); err != nil {
			return err
		}
	}
	err = sampler.SetWeights(ctx, version, w)
	if err == nil && len(info.ProbeTokens) > 0 {
		err = h.probe(ctx, sampler, info)
	}
	if err != nil {
		if s.sampler == nil {
			_ = sampler.Close() // the first error is the one to report
		}
		return err
	}
	h.mu.Lock()
	s.sampler = sampler
	h.mu.Unlock()
	if h.opts.OnSwap != nil {
		h.opts.OnSwap(s.key.layout, version, time.Since(began))
	}
	return nil
}

// probe compares the engine's log-probabilities on the fixed prompt with the publisher's.
func (h *Host) probe(ctx context.Context, s engine.Sampler, info record.Version) error {
	got, err := s.Score(ctx, info.ProbeTokens)
	if err != nil {
		return err
	}
	if len(got) != len(info.ProbeLogProbs) {
		return fault.New(fault.Corrupt, "policy.probe", "version %d: %d log-probabilities, recorded were %d", info.Version, len(got), len(info.ProbeLogProbs))
	}
	for i := range got {
		if d := math.Abs(float64(got[i]) - float64(info.ProbeLogProbs[i])); !(d <= h.opts.ProbeTolerance) {
			return fault.New(fault.Corrupt, "policy.probe", "version %d: log-probability of probe token %d is %v here, the publisher had %v",
				info.Version, i+1, got[i], info.ProbeLogProbs[i]).WithHint("publisher and engine must be of the same build and backend")
		}
	}
	return nil
}

// follow swaps s to newer live versions while it has leases. Errors are met again, and reported, by the
// next Acquire; a running request goes on with the version it has.
func (h *Host) follow(ctx context.Context, s *slot) {
	tick := time.NewTicker(h.opts.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		live, err := h.live(ctx, s.key.layout)
		if err != nil {
			continue
		}
		h.advance(ctx, s, live)
	}
}

// advance swaps s to version live unless a lease needs the version to stay.
func (h *Host) advance(ctx context.Context, s *slot, live int) {
	s.loading.Lock() // prepare holds it too, so a pin is seen here or finds the new version
	defer s.loading.Unlock()
	h.mu.Lock()
	stay := s.sampler == nil || s.pinned > 0 || s.sampler.Version() >= live
	h.mu.Unlock()
	if !stay {
		_ = h.load(ctx, s, live) // see follow
	}
}

// Close stops every engine; running requests end as Lost.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	var first error
	for _, s := range h.engines {
		if s.stop != nil {
			s.stop()
			s.stop = nil
		}
		if s.sampler != nil {
			if err := s.sampler.Close(); first == nil {
				first = err
			}
		}
	}
	return first
}
