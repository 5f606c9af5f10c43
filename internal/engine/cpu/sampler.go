package cpu

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// sinkGrace is how long the batch waits for receivers that are still busy with their last token before it goes
// on without them. It only groups work; results do not depend on it.
const sinkGrace = 2 * time.Millisecond

// Sampler implements engine.Sampler: one goroutine runs the batch step by step on a pool of workers.
// Sinks run in the goroutine of their Generate call, so a slow one delays the batch by at most sinkGrace.
type Sampler struct {
	core    *core
	pool    pool
	workers []*worker
	cache   *pageCache  // loop only
	active  []*sequence // loop only

	mu      sync.Mutex
	arrived []*sequence
	swaps   []swap
	unacked int // active sequences whose receiver is busy
	version int
	closed  bool

	wake chan struct{} // capacity 1: something changed for the loop
	done chan struct{} // closed when the loop has ended
}

var _ engine.Sampler = (*Sampler)(nil)

// generation is what a caller asked for.
type generation struct {
	req   engine.Request
	score bool
}

// event is one message of the loop to a caller: a token, or the end.
type event struct {
	tok    engine.Token
	hasTok bool
	finish engine.Finish
	scores []float32
	err    error
	last   bool
}

type swap struct {
	version int
	weights *packed
	live    chan struct{}
}

// NewSampler starts a sampler without weights. Close stops it. Errors: Invalid.
func NewSampler(cfg model.Config, opts Options) (engine.Sampler, error) {
	c, err := newCore(cfg, opts, false, "cpu.NewSampler")
	if err != nil {
		return nil, err
	}
	s := &Sampler{
		core: c, pool: pool{opts.threads()}, cache: newPageCache(c.layout), version: -1,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	for range s.pool.threads {
		s.workers = append(s.workers, newWorker(c))
	}
	go s.loop()
	return s, nil
}

// Version implements engine.Sampler.
func (s *Sampler) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// SetWeights implements engine.Sampler.
func (s *Sampler) SetWeights(ctx context.Context, version int, w *model.Weights) error {
	const op = "cpu.SetWeights"
	if version < 0 {
		return fault.New(fault.Invalid, op, "version %d is negative", version)
	}
	if err := checkWeights(s.core.cfg, w, op); err != nil {
		return err
	}
	next := swap{version: version, weights: newPacked(s.core.layout, false), live: make(chan struct{})}
	next.weights.load(s.core.layout, w)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return lost(op)
	}
	s.swaps = append(s.swaps, next)
	s.mu.Unlock()
	s.poke()
	select {
	case <-next.live:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", op, ctx.Err())
	case <-s.done:
		return lost(op)
	}
}

// Close implements engine.Sampler.
func (s *Sampler) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.poke()
	<-s.done
	return nil
}

func lost(op string) error { return fault.New(fault.Lost, op, "the sampler is closed") }

func (s *Sampler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Generate implements engine.Sampler.
func (s *Sampler) Generate(ctx context.Context, req engine.Request, sink func(engine.Token) error) (engine.Finish, error) {
	if err := req.Check("cpu.Generate", s.room()); err != nil {
		return "", err
	}
	req.Stop = slices.Clone(req.Stop)
	seq := &sequence{gen: generation{req: req}, tokens: slices.Clone(req.Tokens), out: make(chan event, 2)}
	if err := s.submit(ctx, seq, "cpu.Generate"); err != nil {
		return "", err
	}
	for {
		e, err := s.receive(ctx, seq, "cpu.Generate")
		if err != nil {
			return "", err
		}
		if e.hasTok {
			if err := sink(e.tok); err != nil {
				s.abandon(seq)
				return "", err
			}
		}
		if e.last {
			return e.finish, e.err
		}
		if e.hasTok {
			s.acknowledge(seq, false)
		}
	}
}

// Score implements engine.Sampler.
func (s *Sampler) Score(ctx context.Context, tokens []int32) ([]float32, error) {
	const op = "cpu.Score"
	if len(tokens) == 0 {
		return nil, fault.New(fault.Invalid, op, "no tokens")
	}
	if err := s.room().Check(op, tokens, 0); err != nil {
		return nil, err
	}
	if len(tokens) == 1 {
		return []float32{}, nil
	}
	seq := &sequence{gen: generation{score: true}, tokens: slices.Clone(tokens), out: make(chan event, 2)}
	if err := s.submit(ctx, seq, op); err != nil {
		return nil, err
	}
	e, err := s.receive(ctx, seq, op)
	if err != nil {
		return nil, err
	}
	return e.scores, e.err
}

func (s *Sampler) room() engine.Room {
	c := s.core.cfg
	return engine.Room{Vocab: c.Vocab, TopK: c.Vocab, Tokens: c.MaxPosition}
}

func (s *Sampler) submit(ctx context.Context, seq *sequence, op string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return lost(op)
	}
	if s.version < 0 && len(s.swaps) == 0 {
		return fault.New(fault.Stale, op, "no policy version is loaded").WithHint("call SetWeights first")
	}
	s.arrived = append(s.arrived, seq)
	s.poke()
	return nil
}

func (s *Sampler) receive(ctx context.Context, seq *sequence, op string) (event, error) {
	select {
	case e := <-seq.out:
		return e, nil
	case <-ctx.Done():
		s.abandon(seq)
		return event{}, fmt.Errorf("%s: %w", op, ctx.Err())
	}
}

func (s *Sampler) abandon(seq *sequence) { s.acknowledge(seq, true) }

// acknowledge tells the loop that the receiver is ready for the next token, or gone.
func (s *Sampler) acknowledge(seq *sequence, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq.dead = seq.dead || gone
	if seq.wait {
		seq.wait = false
		s.unacked--
	}
	if s.unacked == 0 || gone {
		s.poke()
	}
}
