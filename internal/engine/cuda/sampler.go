//go:build cuda

package cuda

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// sinkGrace is how long the batch waits for receivers that are still busy with their last token before it goes on without them.
// Results do not depend on it.
const sinkGrace = 2 * time.Millisecond

// Sampler implements engine.Sampler on one GPU. One goroutine runs all requests as one batch; sinks run in the goroutines of their callers.
type Sampler struct {
	cfg  model.Config
	opts Options

	mu      sync.Mutex
	arrived []*sequence
	swaps   []*swap
	busy    int // running sequences whose receiver handles a token
	version int
	closed  bool
	broken  error // the GPU failed: nothing works any more

	wake chan struct{} // capacity 1: something changed for the batch
	done chan struct{} // closed when the batch has ended
	end  error         // of freeing the GPU; set before done is closed

	// The batch's own.
	gpu    *gpu
	active []*sequence
	free   []int32 // cache pages
}

var _ engine.Sampler = (*Sampler)(nil)

// sequence is one running request.
type sequence struct {
	req    engine.Request
	score  bool
	tokens []int32
	need   int // cache pages for the whole length
	out    chan event

	// The batch's own.
	pages  []int32
	done   int // tokens whose keys and values are in the cache
	scores []float32
	// wait is true while the receiver handles the last token, dead after the end or when it gave up; guarded by Sampler.mu.
	wait, dead bool
}

// event is one message of the batch to a caller: a token, or the end, or both.
type event struct {
	tok    engine.Token
	hasTok bool
	last   bool
	finish engine.Finish
	scores []float32
	err    error
}

type swap struct {
	version int
	weights *staged
	live    chan struct{}
}

// NewSampler starts a sampler without weights on a GPU. Close stops it. Errors: Invalid, NotFound (no driver or library), Infrastructure (the driver refuses), Exhausted
// (memory), Lost.
func NewSampler(c model.Config, o Options) (engine.Sampler, error) {
	if err := checkModel(c); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Sampler{cfg: c, opts: o, version: -1, wake: make(chan struct{}, 1), done: make(chan struct{})}
	started := make(chan error)
	go s.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return s, nil
}

// run owns the GPU: it has a thread of its own, to which the context belongs.
func (s *Sampler) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.done)
	var err error
	if s.gpu, err = newGPU(s.cfg, s.opts); err != nil {
		started <- err
		return
	}
	for i := range s.gpu.pages {
		s.free = append(s.free, int32(i)) //nolint:gosec // a count of pages
	}
	started <- nil
	s.loop()
	s.end = s.gpu.close()
}

// Version implements engine.Sampler.
func (s *Sampler) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// SetWeights implements engine.Sampler. In BF16 the weights are rounded.
func (s *Sampler) SetWeights(ctx context.Context, version int, w *model.Weights) error {
	const op = "cuda.SetWeights"
	if w == nil || w.Config != s.cfg || version < 0 {
		return fault.New(fault.Invalid, op, "version %d, or weights of another model configuration", version)
	}
	next := &swap{version: version, weights: newWeights(sizesOf(s.cfg)).stage(s.opts.Precision, w), live: make(chan struct{})}
	s.mu.Lock()
	if err := s.stopped(op); err != nil {
		s.mu.Unlock()
		return err
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
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.stopped(op)
	}
}

// stopped is the reason why nothing works any more, or nil; the caller holds mu.
func (s *Sampler) stopped(op string) error {
	switch {
	case s.broken != nil:
		return s.broken
	case s.closed:
		return fault.New(fault.Lost, op, "the sampler is closed")
	}
	return nil
}

// Close implements engine.Sampler.
func (s *Sampler) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.poke()
	<-s.done
	return s.end
}

func (s *Sampler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Generate implements engine.Sampler.
func (s *Sampler) Generate(ctx context.Context, req engine.Request, sink func(engine.Token) error) (engine.Finish, error) {
	const op = "cuda.Generate"
	if err := req.Check(op, s.room()); err != nil {
		return "", err
	}
	req.Stop = slices.Clone(req.Stop)
	seq := s.newSequence(req, req.Tokens, len(req.Tokens)+req.MaxNew)
	if err := s.submit(ctx, seq, op); err != nil {
		return "", err
	}
	for {
		e, err := s.receive(ctx, seq, op)
		if err != nil {
			return "", err
		}
		if e.hasTok {
			if err := sink(e.tok); err != nil {
				s.acknowledge(seq, true)
				return "", err
			}
		}
		if e.last {
			return e.finish, e.err
		}
		s.acknowledge(seq, false)
	}
}

// Score implements engine.Sampler.
func (s *Sampler) Score(ctx context.Context, tokens []int32) ([]float32, error) {
	const op = "cuda.Score"
	if len(tokens) == 0 {
		return nil, fault.New(fault.Invalid, op, "no tokens")
	}
	if err := s.room().Check(op, tokens, 0); err != nil {
		return nil, err
	}
	if len(tokens) == 1 {
		return []float32{}, nil
	}
	seq := s.newSequence(engine.Request{}, tokens, len(tokens))
	seq.score = true
	if err := s.submit(ctx, seq, op); err != nil {
		return nil, err
	}
	e, err := s.receive(ctx, seq, op)
	if err != nil {
		return nil, err
	}
	return e.scores, e.err
}

func (s *Sampler) newSequence(req engine.Request, tokens []int32, length int) *sequence {
	return &sequence{req: req, tokens: slices.Clone(tokens), need: pad(length, pageTokens) / pageTokens, out: make(chan event, 2)}
}

// room is that of the model and of the cache.
func (s *Sampler) room() engine.Room {
	return engine.Room{Vocab: s.cfg.Vocab, TopK: s.cfg.Vocab, Tokens: min(s.cfg.MaxPosition, s.gpu.pages*pageTokens)}
}

func (s *Sampler) submit(ctx context.Context, seq *sequence, op string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stopped(op); err != nil {
		return err
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
		s.acknowledge(seq, true)
		return event{}, fmt.Errorf("%s: %w", op, ctx.Err())
	}
}

// acknowledge tells the batch that the receiver is ready for the next token, or gone.
func (s *Sampler) acknowledge(seq *sequence, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq.dead = seq.dead || gone
	if seq.wait {
		seq.wait = false
		s.busy--
	}
	if s.busy == 0 || gone {
		s.poke()
	}
}
