package ref

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// Sampler implements engine.Sampler without any cache: every token computes its whole prefix again, so
// a swap of weights needs nothing else, and requests share nothing but the weights.
type Sampler struct {
	cfg    model.Config
	mu     sync.Mutex // protects what follows
	p      *params    // nil before the first SetWeights; never written after it is set
	ver    int
	closed bool
}

// NewSampler returns a sampler without weights. Errors: Invalid.
func NewSampler(c model.Config) (engine.Sampler, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return &Sampler{cfg: c, ver: -1}, nil
}

// SetWeights implements engine.Sampler. The weights are taken as they are.
func (s *Sampler) SetWeights(ctx context.Context, version int, w *model.Weights) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w == nil || w.Config != s.cfg || version < 0 {
		return fault.New(fault.Invalid, "ref.SetWeights", "version %d, or weights of another model configuration", version)
	}
	p := load(w)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fault.New(fault.Lost, "ref.SetWeights", "the engine is closed")
	}
	s.p, s.ver = p, version
	return nil
}

// Version implements engine.Sampler.
func (s *Sampler) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ver
}

// Close implements engine.Sampler.
func (s *Sampler) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.p = true, nil
	return nil
}

// live returns the weights and their version.
func (s *Sampler) live(op string) (*params, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, 0, fault.New(fault.Lost, op, "the engine is closed")
	case s.p == nil:
		return nil, 0, fault.New(fault.Stale, op, "no policy version is loaded")
	}
	return s.p, s.ver, nil
}

// Generate implements engine.Sampler.
func (s *Sampler) Generate(ctx context.Context, req engine.Request, sink func(engine.Token) error) (engine.Finish, error) {
	if err := req.Check("ref.Generate", s.room()); err != nil {
		return "", err
	}
	tokens := slices.Clone(req.Tokens)
	for range req.MaxNew {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		p, version, err := s.live("ref.Generate")
		if err != nil {
			return "", err
		}
		if req.PinVersion != nil && *req.PinVersion != version {
			return "", fault.New(fault.Stale, "ref.Generate", "version %d is live, asked for is %d", version, *req.PinVersion)
		}
		z := scaled(p.logits(p.forward(tokens), len(tokens)-1), req.Temperature)
		if !finite(z) {
			return "", fault.New(fault.Numeric, "ref.Generate", "a logit at position %d is not finite", len(tokens))
		}
		tok := draw(logSoftmax(z), req.Random.Uniform(uint64(len(tokens))), req.TopK)
		tok.Version = version
		if err := sink(tok); err != nil {
			return "", err
		}
		tokens = append(tokens, tok.ID)
		if slices.Contains(req.Stop, tok.ID) {
			return engine.FinishStop, nil
		}
	}
	return engine.FinishLength, nil
}

func (s *Sampler) room() engine.Room {
	return engine.Room{Vocab: s.cfg.Vocab, TopK: s.cfg.Vocab, Tokens: s.cfg.MaxPosition}
}

// draw samples by inverting the distribution in index order at u and records the k most probable tokens.
func draw(lp []float64, u float64, k int) engine.Token {
	id, cumulative := -1, 0.0
	for v, l := range lp {
		p := math.Exp(l)
		if p == 0 {
			continue
		}
		id = v
		if cumulative += p; cumulative > u {
			break
		}
	}
	tok := engine.Token{ID: int32(id), LogProb: float32(lp[id]), Entropy: float32(entropy(lp))} //nolint:gosec // an index of the vocabulary
	order := make([]int32, len(lp))
	for v := range order {
		order[v] = int32(v) //nolint:gosec // an index of the vocabulary
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(lp[b], lp[a]), cmp.Compare(a, b)) })
	for _, v := range order[:k] {
		tok.TopIDs = append(tok.TopIDs, v)
		tok.TopLogProbs = append(tok.TopLogProbs, float32(lp[v]))
	}
	return tok
}

// Score implements engine.Sampler.
func (s *Sampler) Score(ctx context.Context, tokens []int32) ([]float32, error) {
	const op = "ref.Score"
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, _, err := s.live(op)
	if err != nil {
		return nil, err
	}
	if len(tokens) == 0 {
		return nil, fault.New(fault.Invalid, op, "no tokens")
	}
	if err := s.room().Check(op, tokens, 0); err != nil {
		return nil, err
	}
	tr := p.forward(tokens)
	out := make([]float32, 0, len(tokens)-1)
	for t, id := range tokens[1:] {
		z := p.logits(tr, t)
		if !finite(z) {
			return nil, fault.New(fault.Numeric, op, "a logit at position %d is not finite", t+1)
		}
		out = append(out, float32(logSoftmax(z)[id]))
	}
	return out, nil
}

func finite(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}
