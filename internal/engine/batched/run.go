package batched

import (
	"slices"
	"time"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

// Run is the batch: admit, swap weights, step, deliver, until Close or a failure of the device, which it closes. It is called once.
func (s *Scheduler) Run(dev Device) {
	defer close(s.done)
	s.dev = dev
	s.ahead, _ = dev.(Ahead)
	s.timer = time.NewTimer(time.Hour)
	defer s.timer.Stop()
	for {
		runnable, waiting, stop := s.admit()
		if !stop && waiting {
			s.waitForReceivers()
			runnable, _, stop = s.admit()
		}
		if stop {
			break
		}
		if len(runnable) == 0 && s.flights == 0 {
			<-s.wake
			continue
		}
		if err := s.step(runnable); err != nil {
			s.fail(err)
		}
	}
	s.end = dev.Close()
}

// fail records that the device is lost; the next admit tells all callers.
func (s *Scheduler) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = err
	}
}

// waitForReceivers waits until no receiver is busy, something else wants the batch, or the grace is over.
func (s *Scheduler) waitForReceivers() {
	s.timer.Reset(sinkGrace)
	for {
		select {
		case <-s.wake:
			s.mu.Lock()
			stop := s.busy == 0 || len(s.swaps) > 0 || s.closed
			s.mu.Unlock()
			if stop {
				return
			}
		case <-s.timer.C:
			return
		}
	}
}

// admit applies what callers changed since the last step and returns the sequences that can run, and whether others wait for their receivers.
func (s *Scheduler) admit() (runnable []*Sequence, waiting, stop bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sw := range s.swaps {
		if s.broken == nil && !s.closed {
			s.install(sw)
		}
	}
	s.swaps = nil
	if err := s.stopped(s.opts.Name + ".Sampler"); err != nil {
		for _, seq := range slices.Concat(s.active, s.arrived) {
			if !seq.dead {
				seq.out <- event{err: err, last: true}
			}
		}
		s.active, s.arrived = nil, nil
		return nil, false, true
	}
	s.active = slices.DeleteFunc(s.active, func(seq *Sequence) bool {
		s.checkPin(seq)
		if seq.dead {
			s.pages.drop(seq)
		}
		return seq.dead
	})
	s.enter()
	for _, seq := range s.active {
		seq.lags = seq.lags && seq.busy
		if !seq.busy || s.ahead != nil && !seq.lags && seq.single() {
			runnable = append(runnable, seq)
		} else {
			waiting = waiting || s.ahead == nil // one that computes ahead waits where it hands tokens on
		}
	}
	s.asleep = len(runnable) == 0
	return runnable, waiting, false
}

// enter moves arrived sequences to the batch, in order, as long as there is room for the whole length of the first.
func (s *Scheduler) enter() {
	s.arrived = slices.DeleteFunc(s.arrived, func(seq *Sequence) bool {
		s.checkPin(seq)
		return seq.dead
	})
	for len(s.arrived) > 0 && (s.opts.Sequences == 0 || len(s.active) < s.opts.Sequences) {
		seq := s.arrived[0]
		if s.opts.Pages > 0 {
			length := len(seq.Tokens)
			if !seq.Score {
				length = len(seq.Req.Tokens) + seq.Req.MaxNew
			}
			need := (length + PageTokens - 1) / PageTokens
			if need > s.pages.available() {
				return
			}
			s.pages.fill(seq, need)
		}
		s.active, s.arrived = append(s.active, seq), s.arrived[1:]
	}
}

// checkPin ends a sequence that only another version may answer; the caller holds mu.
func (s *Scheduler) checkPin(seq *Sequence) {
	if pin := seq.Req.PinVersion; pin != nil && *pin != s.version && !seq.dead {
		s.finish(seq, event{err: fault.New(fault.Stale, s.opts.Name+".Generate", "version %d is pinned, %d is live", *pin, s.version)})
	}
}

// finish sends the last event of a sequence and marks it for removal; the caller holds mu.
func (s *Scheduler) finish(seq *Sequence, e event) {
	e.last = true
	seq.out <- e
	seq.dead = true
	s.rest(seq)
}

// single says whether the next token needs one row only.
func (seq *Sequence) single() bool { return !seq.Score && len(seq.Tokens)-seq.Done == 1 }

// install makes a version live. Cached keys and values belong to the old one, so every prefix is computed again; with a bounded cache the sequences enter
// again, because what they shared they may not share at once. The caller holds mu.
func (s *Scheduler) install(sw swap) {
	err := s.drop()
	if err == nil {
		err = s.dev.Install(sw.weights)
	}
	if err != nil {
		s.broken = err
		return
	}
	s.version = sw.version
	for _, seq := range s.active {
		s.pages.drop(seq)
		seq.Scores = seq.Scores[:0]
	}
	s.pages.flush()
	if s.opts.Pages > 0 {
		s.arrived, s.active = append(s.active, s.arrived...), nil
	}
	close(sw.live)
}

// drop throws away what is under way.
func (s *Scheduler) drop() error {
	s.group = nil
	if s.flights == 0 {
		return nil
	}
	s.flights = 0
	return s.ahead.Drop()
}

// plan chooses each sequence's chunk of this step.
func (s *Scheduler) plan(runnable []*Sequence) (chunks []*Chunk) {
	budget := s.opts.Rows
	for _, seq := range runnable {
		if !s.pages.adopt(seq) {
			continue
		}
		n := len(seq.Tokens) - seq.Done
		if n > 1 {
			n = min(n, budget)
			budget -= n
		}
		if n > 0 {
			chunks = append(chunks, &Chunk{Seq: seq, First: seq.Done, N: n, full: s.pages.extend(seq, n)})
		}
	}
	return chunks
}

// step computes one chunk of every sequence that can run and delivers the results.
func (s *Scheduler) step(runnable []*Sequence) error {
	var single []*Sequence
	if s.ahead != nil {
		prompts := make([]*Sequence, 0, len(runnable))
		for _, seq := range runnable {
			if seq.single() {
				single = append(single, seq)
			} else {
				prompts = append(prompts, seq)
			}
		}
		runnable = prompts
	}
	if chunks := s.plan(runnable); len(chunks) > 0 {
		if err := s.dev.Step(chunks, s.version); err != nil { // only this goroutine writes the version
			return err
		}
		s.deliverAll(chunks)
	}
	if len(single) == 0 && s.flights == 0 {
		return nil
	}
	return s.stepAhead(single)
}

// deliverAll hands the results of a step on.
func (s *Scheduler) deliverAll(chunks []*Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chunks {
		seq, last := c.Seq, c.Last()
		s.pages.advance(seq, c.N, c.full)
		switch {
		case seq.dead:
		case c.Err != nil:
			s.finish(seq, event{err: c.Err})
		case !last:
		case seq.Score:
			s.finish(seq, event{scores: seq.Scores})
		default:
			s.deliver(seq, c.Token)
		}
	}
}

// stepAhead keeps two steps of the same group under way. When the group changes, those under way are read first: the host has to know their tokens.
func (s *Scheduler) stepAhead(single []*Sequence) error {
	if s.flights > 0 && !slices.Equal(single, s.group) {
		for s.flights > 0 {
			if err := s.land(); err != nil {
				return err
			}
		}
		s.group = nil
		return nil
	}
	if s.flights == 0 {
		if err := s.ahead.Load(single); err != nil {
			return err
		}
		s.group = slices.Clone(single)
	}
	if err := s.ahead.Begin(); err != nil {
		return err
	}
	s.flights++
	if s.flights < 2 {
		return nil
	}
	return s.land()
}

// land reads the oldest step under way and hands its tokens on. A token whose receiver is busy with the one before is thrown away, and computed again when
// the receiver is ready: what it does with that one, a swap for example, counts for the next.
func (s *Scheduler) land() error {
	results, err := s.ahead.Finish(s.version)
	if err != nil {
		return err
	}
	s.flights--
	s.mu.Lock()
	if s.busy > 0 {
		s.mu.Unlock()
		s.waitForReceivers()
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	for i, seq := range s.group {
		seq.lags = seq.lags || seq.busy
		if seq.dead || seq.lags {
			continue
		}
		if err := results[i].Err; err != nil {
			s.finish(seq, event{err: err})
			continue
		}
		s.pages.advance(seq, 1, s.pages.extend(seq, 1))
		s.deliver(seq, results[i].Token)
	}
	return nil
}

// deliver hands a token to its receiver and decides whether the sequence goes on; the caller holds mu.
func (s *Scheduler) deliver(seq *Sequence, tok engine.Token) {
	tok.Version = s.version
	seq.Tokens = append(seq.Tokens, tok.ID)
	e := event{tok: tok, hasTok: true}
	switch sampled := len(seq.Tokens) - len(seq.Req.Tokens); {
	case slices.Contains(seq.Req.Stop, tok.ID):
		e.finish = engine.FinishStop
		s.finish(seq, e)
	case sampled == seq.Req.MaxNew:
		e.finish = engine.FinishLength
		s.finish(seq, e)
	default:
		seq.busy = true
		s.busy++
		seq.out <- e
	}
}
