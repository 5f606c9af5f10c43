//go:build cuda

package cuda

import (
	"slices"
	"time"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

// loop is the batch: admit, swap weights, step, deliver, until Close or a failure of the GPU.
func (s *Sampler) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		runnable, waiting, stop := s.admit()
		if !stop && waiting > 0 {
			s.waitForReceivers(timer)
			runnable, _, stop = s.admit()
		}
		if stop {
			return
		}
		if len(runnable) == 0 {
			<-s.wake
			continue
		}
		if err := s.step(runnable); err != nil {
			s.fail(err)
		}
	}
}

// fail records that the GPU is lost; the next admit tells all callers.
func (s *Sampler) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = err
	}
}

// waitForReceivers waits until no receiver is busy, something else wants the batch, or the grace is over.
func (s *Sampler) waitForReceivers(timer *time.Timer) {
	timer.Reset(sinkGrace)
	for {
		select {
		case <-s.wake:
			s.mu.Lock()
			stop := s.busy == 0 || len(s.swaps) > 0 || s.closed
			s.mu.Unlock()
			if stop {
				return
			}
		case <-timer.C:
			return
		}
	}
}

// admit applies what callers changed since the last step and returns the sequences that can run, and how many wait for their receivers.
func (s *Sampler) admit() (runnable []*sequence, waiting int, stop bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sw := range s.swaps {
		if s.broken == nil && !s.closed {
			s.install(sw)
		}
	}
	s.swaps = nil
	if err := s.stopped("cuda.Sampler"); err != nil {
		for _, seq := range slices.Concat(s.active, s.arrived) {
			if !seq.dead {
				seq.out <- event{err: err, last: true}
			}
		}
		s.active, s.arrived = nil, nil
		return nil, 0, true
	}
	s.active = slices.DeleteFunc(s.active, func(seq *sequence) bool {
		s.checkPin(seq)
		if seq.dead {
			s.free = append(s.free, seq.pages...)
		}
		return seq.dead
	})
	s.start()
	for _, seq := range s.active {
		if seq.wait {
			waiting++
		} else {
			runnable = append(runnable, seq)
		}
	}
	return runnable, waiting, false
}

// start moves arrived sequences to the batch, in order, as long as there is room for the whole length of the first.
func (s *Sampler) start() {
	s.arrived = slices.DeleteFunc(s.arrived, func(seq *sequence) bool {
		s.checkPin(seq)
		return seq.dead
	})
	for len(s.arrived) > 0 && len(s.active) < s.opts.Sequences && s.arrived[0].need <= len(s.free) {
		seq := s.arrived[0]
		keep := len(s.free) - seq.need
		seq.pages = slices.Clone(s.free[keep:])
		s.free = s.free[:keep]
		s.active = append(s.active, seq)
		s.arrived = s.arrived[1:]
	}
}

// checkPin ends a sequence that only another version may answer; the caller holds mu.
func (s *Sampler) checkPin(seq *sequence) {
	if pin := seq.req.PinVersion; pin != nil && *pin != s.version && !seq.dead {
		s.finish(seq, event{err: fault.New(fault.Stale, "cuda.Generate", "version %d is pinned, %d is live", *pin, s.version)})
	}
}

// finish sends the last event of a sequence and marks it for removal; the caller holds mu.
func (s *Sampler) finish(seq *sequence, e event) {
	e.last = true
	seq.out <- e
	seq.dead = true
	if seq.wait {
		seq.wait = false
		s.busy--
	}
}

// install makes a version live. Cached keys and values belong to the old one, so every prefix is computed again. The caller holds mu.
func (s *Sampler) install(sw *swap) {
	if err := s.gpu.w.upload(s.gpu.ctx, sw.weights); err != nil {
		s.broken = err
		return
	}
	s.version = sw.version
	for _, seq := range s.active {
		seq.done, seq.scores = 0, nil
	}
	close(sw.live)
}

// chunk is the work of one sequence in one step: tokens [first, first+n), rows [row, row+n) of the step.
type chunk struct {
	seq           *sequence
	first, n, row int
	firstAsk      int
	asks          int
}

// plan chooses each sequence's chunk: those that decode first, prompts as far as rows are left.
func (s *Sampler) plan(runnable []*sequence) (chunks []*chunk, rows []row, tables [][]int32) {
	left := s.opts.Rows
	for _, decoding := range []bool{true, false} {
		for _, seq := range runnable {
			n := len(seq.tokens) - seq.done
			if (n == 1) != decoding || left == 0 {
				continue
			}
			n = min(n, left)
			left -= n
			c := &chunk{seq: seq, first: seq.done, n: n, row: len(rows)}
			for i := range n {
				rows = append(rows, row{seq.tokens[c.first+i], int32(len(tables)), int32(c.first + i)}) //nolint:gosec // small
			}
			chunks, tables = append(chunks, c), append(tables, seq.pages)
		}
	}
	return chunks, rows, tables
}

// asks lists the rows of the step from which a token is drawn or scored.
func asks(chunks []*chunk) (index []int32, out []ask) {
	for _, c := range chunks {
		c.firstAsk = len(out)
		for i := range c.n {
			pos := c.first + i + 1
			a := ask{position: uint32(pos), inverse: 1, target: -1} //nolint:gosec // below the model's positions
			switch {
			case c.seq.score && pos < len(c.seq.tokens):
				a.target = c.seq.tokens[pos]
			case !c.seq.score && pos == len(c.seq.tokens):
				r := c.seq.req
				a.stream = [4]uint32{r.Random.Key[0], r.Random.Key[1], r.Random.Nonce[0], r.Random.Nonce[1]}
				a.inverse, a.top = float32(1/r.Temperature), int32(r.TopK) //nolint:gosec // at most the vocabulary
			default:
				continue
			}
			index, out = append(index, int32(c.row+i)), append(out, a) //nolint:gosec // small
		}
		c.asks = len(out) - c.firstAsk
	}
	return index, out
}

// step computes one chunk of every sequence that can run and delivers the results. An error means that the GPU is lost.
func (s *Sampler) step(runnable []*sequence) error {
	chunks, rows, tables := s.plan(runnable)
	index, wanted := asks(chunks)
	if err := s.gpu.forward(rows, tables); err != nil {
		return err
	}
	answers, records, err := s.gpu.sample(index, wanted)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chunks {
		c.seq.done += c.n
		if c.seq.dead {
			continue
		}
		got := answers[c.firstAsk:][:c.asks]
		if slices.ContainsFunc(got, func(a answer) bool { return a.bad != 0 }) {
			s.finish(c.seq, event{err: fault.New(fault.Numeric, "cuda.Sampler", "a logit after %d tokens is not finite", c.first+c.n).
				WithHint("the weights of version %d are damaged", s.version)})
			continue
		}
		switch {
		case c.seq.score:
			for _, a := range got {
				c.seq.scores = append(c.seq.scores, a.logProb)
			}
			if c.first+c.n == len(c.seq.tokens) {
				s.finish(c.seq, event{scores: c.seq.scores})
			}
		case len(got) > 0:
			r := records[c.firstAsk]
			s.deliver(c.seq, engine.Token{
				ID: got[0].id, LogProb: got[0].logProb, Entropy: got[0].entropy, Version: s.version, TopIDs: r.ids, TopLogProbs: r.values,
			})
		}
	}
	return nil
}

// deliver hands a token to its receiver and decides whether the sequence goes on; the caller holds mu.
func (s *Sampler) deliver(seq *sequence, tok engine.Token) {
	seq.tokens = append(seq.tokens, tok.ID)
	e := event{tok: tok, hasTok: true}
	switch sampled := len(seq.tokens) - len(seq.req.Tokens); {
	case slices.Contains(seq.req.Stop, tok.ID):
		e.finish = engine.FinishStop
		s.finish(seq, e)
	case sampled == seq.req.MaxNew:
		e.finish = engine.FinishLength
		s.finish(seq, e)
	default:
		seq.wait = true
		s.busy++
		seq.out <- e
	}
}
