package external

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
)

// Sampler implements engine.Sampler over a server, as far as the package says.
type Sampler struct {
	o       Options
	d       dialect
	closed  chan struct{}
	close   func()
	weights string // what the server called its weights when it was proved; empty if it does not say
}

var _ engine.Sampler = (*Sampler)(nil)

func newSampler(o Options) *Sampler {
	s := &Sampler{o: o, closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	if o.Dialect == SGLang {
		s.d = sglang{}
	} else {
		s.d = vllm{}
	}
	return s
}

// Version implements engine.Sampler: it is that of the options, from the beginning.
func (s *Sampler) Version() int { return s.o.Version }

// SetWeights implements engine.Sampler. It always refuses. Errors: Invalid.
func (s *Sampler) SetWeights(_ context.Context, version int, _ *model.Weights) error {
	return fault.New(fault.Invalid, "external.SetWeights", "weights cannot be published to an external server; it stays at version %d, asked for is %d",
		s.o.Version, version).WithHint("train with the engine cpu; an external server can only sample one fixed version")
}

// Close implements engine.Sampler. The server stays as it is.
func (s *Sampler) Close() error {
	s.close()
	return nil
}

// recordSlack is by how much, in nats, two values that a server gives for one token in one answer may differ: rounding of what it prints.
const recordSlack = 1e-3

// Generate implements engine.Sampler.
func (s *Sampler) Generate(ctx context.Context, req engine.Request, sink func(engine.Token) error) (engine.Finish, error) {
	if err := s.check(req); err != nil {
		return "", err
	}
	path, body := s.d.generate(s.o.Model, req, max(req.TopK, min(s.o.TopK, entropyWidth)))
	a := &answer{prompt: -1}
	n := 0
	err := s.stream(ctx, path, body, func(data []byte) error {
		toks, err := s.d.chunk(data, a)
		if err != nil {
			return err
		}
		if err := s.agrees(a, req); err != nil {
			return err
		}
		for _, t := range toks {
			if n == req.MaxNew {
				return broken("more than the %d tokens that were asked for", req.MaxNew)
			}
			if n++; n > 1 && a.stopped {
				return broken("a token behind a stop token")
			}
			a.stopped = slices.Contains(req.Stop, t.id)
			tok, err := s.token(t, req.TopK)
			if err != nil {
				return err
			}
			if err := ctx.Err(); err != nil { // what is left may lie in a buffer
				return err
			}
			if err := sink(tok); err != nil {
				return stopped{err}
			}
		}
		return nil
	})
	if own, ok := errors.AsType[stopped](err); ok {
		return "", own.error
	}
	if err != nil {
		return "", err
	}
	return s.finish(a, n, req)
}

// entropyWidth is the width of record that is asked for beyond what the request wants, for the bound on the entropy.
const entropyWidth = 20

// stopped carries an error of the sink through the transport.
type stopped struct{ error }

// broken is an answer that contradicts the request or itself.
func broken(format string, args ...any) *fault.Error {
	return fault.New(fault.Infrastructure, "external.Generate", "the server's answer: "+format, args...)
}

func (s *Sampler) check(req engine.Request) error {
	const op = "external.Generate"
	if req.PinVersion != nil && *req.PinVersion != s.o.Version {
		return fault.New(fault.Stale, op, "the server serves version %d, asked for is %d", s.o.Version, *req.PinVersion)
	}
	return req.Check(op, s.room())
}

// room is that of the server, as it was proved.
func (s *Sampler) room() engine.Room {
	return engine.Room{Vocab: s.o.Config.Vocab, TopK: s.o.TopK, Tokens: s.o.Context}
}

// agrees compares what an answer says about its request with the request.
func (s *Sampler) agrees(a *answer, req engine.Request) error {
	switch {
	case a.model != "" && a.model != s.o.Model:
		return broken("it is of the model %.80q, asked for was %q", a.model, s.o.Model).
			WithHint("the server behind this URL changed; its version must be fixed")
	case a.promptIDs != nil && !slices.Equal(a.promptIDs, req.Tokens):
		return broken("the prompt was not taken as it is: %d tokens became %d", len(req.Tokens), len(a.promptIDs)).
			WithHint("the server must take token ids and add none")
	case a.prompt >= 0 && a.prompt != len(req.Tokens):
		return broken("the prompt was not taken as it is: %d tokens became %d", len(req.Tokens), a.prompt).
			WithHint("the server must take token ids and add none")
	case s.weights != "" && a.weights != "" && a.weights != s.weights:
		return fault.New(fault.Stale, "external.Generate", "the server's weights are now %.80q, proved were %.80q", a.weights, s.weights).
			WithHint("the version of an external server must be fixed; connect anew for another one")
	}
	return nil
}

// finish judges the end of an answer of n tokens.
func (s *Sampler) finish(a *answer, n int, req engine.Request) (engine.Finish, error) {
	switch {
	case a.finish == "":
		return "", fault.New(fault.Lost, "external.Generate", "the server's answer broke off after %d tokens", n)
	case a.prompt < 0 && a.promptIDs == nil:
		return "", broken("it does not say how many tokens the prompt had")
	case a.finish == string(engine.FinishStop) && a.stopped:
		return engine.FinishStop, nil
	case a.finish == string(engine.FinishStop):
		return "", broken("it ended by a stop after %d tokens, but its last token is no stop token", n).
			WithHint("the server must leave stop tokens in its ids, and stop for no other reason")
	case a.finish == string(engine.FinishLength) && a.stopped:
		return engine.FinishStop, nil // both at once
	case a.finish == string(engine.FinishLength) && n == req.MaxNew:
		return engine.FinishLength, nil
	case a.finish == string(engine.FinishLength):
		return "", broken("it ended by its length after %d of %d tokens", n, req.MaxNew).WithHint("the server's context is shorter than the model's")
	}
	return "", fault.New(fault.Lost, "external.Generate", "the server ended the request: %.80q", a.finish)
}

// token checks a token of an answer and cuts its record to the width k.
func (s *Sampler) token(t token, k int) (engine.Token, error) {
	ids, lps, err := s.record(t)
	if err != nil {
		return engine.Token{}, err
	}
	if len(ids) < k {
		return engine.Token{}, broken("the record of a token has %d entries, asked for were %d", len(ids), k)
	}
	return engine.Token{
		ID: t.id, LogProb: float32(t.lp), Entropy: entropyBound(lps), Version: s.o.Version, TopIDs: ids[:k:k], TopLogProbs: lps[:k:k],
	}, nil
}

// record orders the record of a token, most probable first, and checks it.
func (s *Sampler) record(t token) (ids []int32, lps []float32, err error) {
	if err := s.room().Check("external.Generate", []int32{t.id}, 0); err != nil {
		return nil, nil, broken("%w", err)
	}
	if err := rl.CheckLogProb(float32(t.lp)); err != nil {
		return nil, nil, broken("%w", err)
	}
	slices.SortFunc(t.top, func(a, b entry) int {
		switch {
		case a.lp != b.lp && a.lp > b.lp:
			return -1
		case a.lp != b.lp:
			return 1
		}
		return int(a.id) - int(b.id)
	})
	recorded := false
	for _, e := range t.top {
		ids, lps = append(ids, e.id), append(lps, float32(e.lp))
		if e.id != t.id {
			continue
		}
		recorded = true
		if !(math.Abs(e.lp-t.lp) <= recordSlack) {
			return nil, nil, broken("the token has log-probability %v, in its record %v", t.lp, e.lp)
		}
	}
	if err := rl.CheckRecord(ids, lps, s.o.Config.Vocab); err != nil {
		return nil, nil, broken("%w", err)
	}
	if n := len(t.top); n > 0 && !recorded && t.lp > t.top[n-1].lp+recordSlack {
		return nil, nil, broken("the token has log-probability %v and is not in its record, which ends at %v", t.lp, t.top[n-1].lp)
	}
	return ids, lps, nil
}

// entropyBound is the entropy of a record whose rest is one more symbol.
func entropyBound(lps []float32) float32 {
	h, rest := 0.0, 1.0
	for _, lp := range lps {
		p := math.Exp(float64(lp))
		h -= p * float64(lp)
		rest -= p
	}
	if rest > 0 {
		h -= rest * math.Log(rest)
	}
	return float32(max(h, 0))
}

// Score implements engine.Sampler, by the server's arithmetic for prompts.
func (s *Sampler) Score(ctx context.Context, tokens []int32) ([]float32, error) {
	const op = "external.Score"
	if len(tokens) == 0 {
		return nil, fault.New(fault.Invalid, op, "no tokens")
	}
	if err := s.room().Check(op, tokens, 1); err != nil { // the server samples one more
		return nil, err
	}
	path, body := s.d.score(s.o.Model, tokens)
	data, err := s.whole(ctx, path, body)
	if err != nil {
		return nil, err
	}
	lps, err := s.d.scores(data, tokens)
	if err != nil {
		return nil, err
	}
	for _, lp := range lps {
		if err := rl.CheckLogProb(lp); err != nil {
			return nil, broken("%w", err)
		}
	}
	return lps, nil
}
