package cpu

import (
	"slices"
	"time"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

// loop is the batch: admit, swap weights, step, deliver, until Close.
func (s *Sampler) loop() {
	defer close(s.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		runnable, waitFor, closed := s.admit()
		if closed {
			return
		}
		if waitFor > 0 && s.waitForReceivers(timer) {
			runnable, _, closed = s.admit()
			if closed {
				return
			}
		}
		if len(runnable) == 0 {
			<-s.wake
			continue
		}
		s.step(runnable)
	}
}

// waitForReceivers waits until no receiver is busy, something else wants the loop, or the grace is over.
func (s *Sampler) waitForReceivers(timer *time.Timer) bool {
	timer.Reset(sinkGrace)
	for {
		select {
		case <-s.wake:
			s.mu.Lock()
			stop := s.unacked == 0 || len(s.swaps) > 0 || s.closed
			s.mu.Unlock()
			if stop {
				return true
			}
		case <-timer.C:
			return true
		}
	}
}

// admit applies what callers changed since the last step and returns the sequences that can run, and how many
// wait for their receivers.
func (s *Sampler) admit() (runnable []*sequence, waiting int, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		for _, seq := range append(s.active, s.arrived...) {
			if !seq.dead {
				seq.out <- event{err: lost("cpu.Sampler"), last: true}
			}
		}
		s.active, s.arrived = nil, nil
		return nil, 0, true
	}
	for _, sw := range s.swaps {
		s.install(sw)
	}
	s.swaps = nil
	s.active = append(s.active, s.arrived...)
	s.arrived = nil
	s.active = slices.DeleteFunc(s.active, func(seq *sequence) bool {
		pin := seq.gen.req.PinVersion
		if pin != nil && *pin != s.version && !seq.dead {
			s.end(seq, event{err: fault.New(fault.Stale, "cpu.Generate", "version %d is pinned, %d is live", *pin, s.version)})
		}
		if seq.dead {
			s.cache.drop(seq)
		}
		return seq.dead
	})
	for _, seq := range s.active {
		if seq.wait {
			waiting++
		} else {
			runnable = append(runnable, seq)
		}
	}
	return runnable, waiting, false
}

// end sends the last event of a sequence and marks it for removal; the caller holds mu.
func (s *Sampler) end(seq *sequence, e event) {
	e.last = true
	seq.out <- e
	seq.dead = true
	if seq.wait {
		seq.wait = false
		s.unacked--
	}
}

// install makes a version live. Cached keys and values belong to the old one, so every prefix is computed again.
func (s *Sampler) install(sw swap) {
	s.core.w = sw.weights
	s.version = sw.version
	for _, seq := range s.active {
		s.cache.drop(seq)
		seq.scores = seq.scores[:0]
	}
	s.cache.flush()
	close(sw.live)
}

// step computes one chunk of every sequence that can run and delivers the results.
func (s *Sampler) step(runnable []*sequence) {
	chunks := s.plan(runnable)
	for _, w := range s.workers {
		w.version = s.version // only this goroutine writes it
	}
	s.pool.run(len(s.workers), func(_, unit int) { s.workers[unit].compute() })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chunks {
		seq := c.s
		reached := c.sampled()
		seq.done += c.n
		for _, p := range c.full {
			p.ready = true
		}
		switch {
		case seq.dead:
		case c.err != nil:
			s.end(seq, event{err: c.err})
		case !reached:
		case seq.gen.score:
			s.end(seq, event{scores: seq.scores})
		default:
			s.deliver(seq, c.tok)
		}
	}
}

// deliver hands a token to its receiver and decides whether the sequence goes on; the caller holds mu.
func (s *Sampler) deliver(seq *sequence, tok engine.Token) {
	seq.tokens = append(seq.tokens, tok.ID)
	e := event{tok: tok, hasTok: true}
	switch sampled := len(seq.tokens) - len(seq.gen.req.Tokens); {
	case slices.Contains(seq.gen.req.Stop, tok.ID):
		e.finish = engine.FinishStop
		s.end(seq, e)
	case sampled == seq.gen.req.MaxNew:
		e.finish = engine.FinishLength
		s.end(seq, e)
	default:
		seq.wait = true
		s.unacked++
		seq.out <- e
	}
}
