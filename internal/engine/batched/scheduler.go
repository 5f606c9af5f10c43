package batched

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

// sinkGrace is how long the batch waits for receivers that are still busy with an earlier token before it goes on without them. It only groups work;
// results do not depend on it.
const sinkGrace = 2 * time.Millisecond

// Device computes the steps of a batch. All calls come from one goroutine. An error means that the device is lost and ends the batch.
type Device interface {
	// Install makes weights live that the engine has staged.
	Install(weights any) error
	// Step computes chunks, stores each one's result in it and returns when that is done. A chunk's own failure is its Err. version is for messages.
	Step(chunks []*Chunk, version int) error
	// Close frees the device after the last step.
	Close() error
}

// Ahead is a Device that computes single tokens of a fixed group of sequences by steps that may be started before the one before is read. It needs a
// bounded cache: only then a sequence has all its pages from the start. A step may run one token past the end of a sequence.
type Ahead interface {
	Device
	// Load makes sequences, each with one token to compute, the group of the next steps.
	Load(group []*Sequence) error
	// Begin starts a step of the group. No more than two steps are under way.
	Begin() error
	// Finish waits for the oldest step and returns a result for each sequence.
	Finish(version int) ([]Result, error)
	// Drop waits for all steps and throws their results away.
	Drop() error
}

// Result is a sampled token, or the failure of its sequence.
type Result struct {
	Token engine.Token
	Err   error
}

// Sequence is one running request as the device sees it.
type Sequence struct {
	Req   engine.Request
	Score bool
	// Tokens are those known so far, Done how many have their keys and values in Pages.
	Tokens []int32
	Done   int
	Pages  []int32
	// Scores are collected by the device if Score is true.
	Scores []float32

	out chan event
	// busy is true while the receiver handles a token, dead after the end or when the receiver gave up. Both are guarded by Scheduler.mu.
	busy, dead bool
	lags       bool // Run's own: a token computed ahead was thrown away because the receiver was busy
}

// Chunk is the work of one sequence in one step: tokens [First, First+N).
type Chunk struct {
	Seq      *Sequence
	First, N int
	Result   // if the chunk is Last and nothing is scored
	full     []int32
}

// Last reports whether the chunk ends at the last known token, so that the next one is drawn.
func (c *Chunk) Last() bool { return c.First+c.N == len(c.Seq.Tokens) }

// event is one message to a caller: a token, or the end, or both.
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
	weights any
	live    chan struct{}
}

// Options of a scheduler.
type Options struct {
	// Name of the engine begins the operation in errors.
	Name string
	// Room bounds requests.
	Room engine.Room
	// Rows bounds the prompt tokens of a step. It never changes results.
	Rows int
	// Sequences bounds the running requests; 0 for no bound.
	Sequences int
	// Pages bounds the cache; 0 for no bound. With a bound, a request waits until its whole length fits.
	Pages int
	// IdlePages bounds the pages that no sequence uses but that are kept for prompts with the same beginning.
	IdlePages int
}

// Scheduler is the part of a sampler that does not depend on the device. Its methods but Run may be called from any goroutine.
type Scheduler struct {
	opts Options

	mu      sync.Mutex
	arrived []*Sequence
	swaps   []swap
	busy    int  // sequences whose receiver handles a token
	asleep  bool // nothing could run
	version int
	closed  bool
	broken  error // the device failed: nothing works any more

	wake chan struct{} // capacity 1: something changed for the batch
	done chan struct{} // closed when Run has ended
	end  error         // of Device.Close; set before done is closed

	// Run's own.
	dev     Device
	ahead   Ahead // dev, if it is one
	timer   *time.Timer
	pages   *pages
	active  []*Sequence
	group   []*Sequence // loaded
	flights int         // steps of group under way
}

// New makes a scheduler; requests wait until Run.
func New(o Options) *Scheduler {
	return &Scheduler{opts: o, version: -1, pages: newPages(o.Pages, o.IdlePages), wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// Version is the live version, -1 before the first.
func (s *Scheduler) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Swap makes weights live between two tokens and returns when they are.
func (s *Scheduler) Swap(ctx context.Context, version int, weights any) error {
	op := s.opts.Name + ".SetWeights"
	next := swap{version: version, weights: weights, live: make(chan struct{})}
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
func (s *Scheduler) stopped(op string) error {
	switch {
	case s.broken != nil:
		return s.broken
	case s.closed:
		return fault.New(fault.Lost, op, "the sampler is closed")
	}
	return nil
}

// Close ends all requests and waits for the end of Run. It may be called twice.
func (s *Scheduler) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.poke()
	<-s.done
	return s.end
}

func (s *Scheduler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Generate implements engine.Sampler.
func (s *Scheduler) Generate(ctx context.Context, req engine.Request, sink func(engine.Token) error) (engine.Finish, error) {
	op := s.opts.Name + ".Generate"
	if err := req.Check(op, s.opts.Room); err != nil {
		return "", err
	}
	req.Stop = slices.Clone(req.Stop)
	seq := &Sequence{Req: req, Tokens: slices.Clone(req.Tokens), out: make(chan event, 4)}
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
func (s *Scheduler) Score(ctx context.Context, tokens []int32) ([]float32, error) {
	op := s.opts.Name + ".Score"
	if len(tokens) == 0 {
		return nil, fault.New(fault.Invalid, op, "no tokens")
	}
	if err := s.opts.Room.Check(op, tokens, 0); err != nil {
		return nil, err
	}
	if len(tokens) == 1 {
		return []float32{}, nil
	}
	seq := &Sequence{Score: true, Tokens: slices.Clone(tokens), out: make(chan event, 1)}
	if err := s.submit(ctx, seq, op); err != nil {
		return nil, err
	}
	e, err := s.receive(ctx, seq, op)
	if err != nil {
		return nil, err
	}
	return e.scores, e.err
}

func (s *Scheduler) submit(ctx context.Context, seq *Sequence, op string) error {
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

func (s *Scheduler) receive(ctx context.Context, seq *Sequence, op string) (event, error) {
	select {
	case e := <-seq.out:
		return e, nil
	case <-ctx.Done():
		s.acknowledge(seq, true)
		return event{}, fmt.Errorf("%s: %w", op, ctx.Err())
	}
}

// acknowledge tells the batch that the receiver is done with a token, or gone.
func (s *Scheduler) acknowledge(seq *Sequence, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq.dead = seq.dead || gone
	s.rest(seq)
	if s.busy == 0 || gone || s.asleep {
		s.poke()
	}
}

// rest says that the receiver is not busy any more; the caller holds mu.
func (s *Scheduler) rest(seq *Sequence) {
	if seq.busy {
		seq.busy = false
		s.busy--
	}
}
