package external

import (
	"context"
	"math"
	"slices"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rng"
)

// The probe: tokens of the prompt, and tokens sampled behind it.
const (
	probePrompt = 8
	probeNew    = 4
	probeTries  = 3 // prompts, where one may tell nothing
)

// prove asks the server for everything that the sampler relies on. See the package.
func (s *Sampler) prove(ctx context.Context) error {
	if s.o.Context < probePrompt+probeNew+1 {
		return fault.New(fault.Invalid, "external.New", "a context of %d tokens is too short to prove anything", s.o.Context)
	}
	for _, step := range []func(context.Context) error{s.proveModel, s.proveRecord, s.proveTemperature, s.proveStop} {
		if err := step(ctx); err != nil {
			return lacking(err)
		}
	}
	return nil
}

// lacking turns an answer that would be tried again in the middle of a run into a refusal.
func lacking(err error) error {
	if !fault.Is(err, fault.Infrastructure) {
		return err
	}
	e := fault.New(fault.Invalid, "external.New", "this server cannot be used: %w", err)
	e.Hint = fault.HintOf(err)
	if e.Hint == "" {
		e.Hint = "use vLLM or SGLang, and the dialect of the one that it is"
	}
	return e
}

func (s *Sampler) proveModel(ctx context.Context) error {
	data, err := s.whole(ctx, s.d.models(), nil)
	if err != nil {
		return err
	}
	ok, length, weights, err := s.d.named(data, s.o.Model)
	if err != nil {
		return err
	}
	if !ok {
		return broken("no model is called %q there", s.o.Model).WithHint("%s of the server lists the names", s.d.models())
	}
	if length > 0 && length < s.o.Context {
		return broken("its context has %d tokens, needed are %d", length, s.o.Context).WithHint("start it with --max-model-len (vLLM) or --context-length (SGLang) %d", s.o.Context)
	}
	s.weights = weights
	return nil
}

// probe returns the tokens that the server samples behind the prompt of a try.
func (s *Sampler) probe(ctx context.Context, try, n int, temperature float64, stop []int32) (prompt []int32, toks []engine.Token, finish engine.Finish, err error) {
	random := rng.New(uint64(try), rng.Corpus, "external probe") //nolint:gosec // small
	for i := range probePrompt {
		prompt = append(prompt, int32(random.IntN(uint64(i), s.o.Config.Vocab))) //nolint:gosec // below the vocabulary
	}
	finish, err = s.Generate(ctx, engine.Request{
		Tokens: prompt, MaxNew: n, Stop: stop, Sampling: engine.Sampling{Temperature: temperature, TopK: s.o.TopK}, Random: random,
	}, func(tok engine.Token) error {
		toks = append(toks, tok)
		return nil
	})
	return prompt, toks, finish, err
}

const widthHint = "start it with --max-logprobs %d (vLLM), and without a default top_k or top_p"

// proveRecord: records have the width that is needed, cover the whole vocabulary, and say of sampled tokens what scoring says.
func (s *Sampler) proveRecord(ctx context.Context) error {
	prompt, toks, _, err := s.probe(ctx, 0, probeNew, 1, nil)
	if err != nil {
		if (fault.Is(err, fault.Invalid) || fault.Is(err, fault.Infrastructure)) && fault.HintOf(err) == "" {
			e := fault.New(fault.Invalid, "external.New", "the server does not give records of width %d: %w", s.o.TopK, err)
			return e.WithHint(widthHint, s.o.TopK)
		}
		return err
	}
	for _, tok := range toks {
		if lp := slices.Min(tok.TopLogProbs); lp < truncated {
			return broken("a record has the log-probability %v: the distribution is truncated", lp).WithHint(widthHint, s.o.TopK)
		}
		prompt = append(prompt, tok.ID)
	}
	scores, err := s.Score(ctx, prompt)
	if err != nil {
		return err
	}
	for i, tok := range toks {
		score := scores[probePrompt-1+i]
		if d := math.Abs(float64(tok.LogProb) - float64(score)); !(d <= s.o.Tolerance) {
			return broken("token %d has log-probability %v when it is sampled at temperature 1, and %v when it is scored", tok.ID, tok.LogProb, score).
				WithHint("start it without a default temperature, top_k, top_p, penalty or logit processor; the tolerance is %v", s.o.Tolerance)
		}
	}
	return nil
}

// truncated is below every log-probability of a token that can be drawn; servers print -9999 or less for those that cannot.
const truncated = -5000

// proveTemperature: at temperature T the difference of two log-probabilities is that at 1, divided by T.
func (s *Sampler) proveTemperature(ctx context.Context) error {
	if s.o.TopK < 2 && s.o.Config.Vocab > 1 {
		wide := *s // proving needs two entries, also where requests want no record
		wide.o.TopK = 2
		return wide.proveTemperature(ctx)
	}
	const t = 0.5
	noise := 3 * s.o.Tolerance
	for try := range probeTries {
		_, plain, _, err := s.probe(ctx, try, 1, 1, nil)
		if err != nil {
			return err
		}
		_, sharp, _, err := s.probe(ctx, try, 1, t, nil)
		if err != nil {
			return err
		}
		a, b := plain[0].TopIDs[0], int32(-1)
		for _, id := range plain[0].TopIDs[1:] {
			if slices.Contains(sharp[0].TopIDs, id) {
				b = id // the least probable one of both records
			}
		}
		if b < 0 || !slices.Contains(sharp[0].TopIDs, a) {
			continue
		}
		d1, dt := gap(plain[0], a, b), gap(sharp[0], a, b)
		if d1/t-d1 < 2*noise {
			continue // two equally probable tokens tell nothing
		}
		switch {
		case math.Abs(dt-d1/t) <= noise:
			return nil
		case math.Abs(dt-d1) <= noise:
			return broken("log-probabilities are the same at temperatures 1 and %v: they are not those of the distribution that is sampled", t).
				WithHint("start it with --logprobs-mode processed_logprobs (vLLM), or without SGLANG_RETURN_ORIGINAL_LOGPROB (SGLang)")
		}
		return broken("asked for temperature %v, its log-probabilities are those of about %.3g", t, d1/dt).WithHint("start it without a temperature of its own")
	}
	return broken("in %d prompts no two log-probabilities differ enough to see the temperature", probeTries).
		WithHint("allow wider records, or a smaller tolerance than %v", s.o.Tolerance)
}

func gap(t engine.Token, a, b int32) float64 {
	return float64(t.TopLogProbs[slices.Index(t.TopIDs, a)]) - float64(t.TopLogProbs[slices.Index(t.TopIDs, b)])
}

// proveStop: a stop token ends the answer and is its last token. Every token that may well come first is a stop token.
func (s *Sampler) proveStop(ctx context.Context) error {
	for try := range probeTries {
		_, toks, _, err := s.probe(ctx, try, probeNew, 1, nil)
		if err != nil {
			return err
		}
		stop := append([]int32{toks[0].ID}, toks[0].TopIDs...)
		_, toks, finish, err := s.probe(ctx, try, probeNew, 1, stop)
		if err != nil {
			return err
		}
		if finish == engine.FinishStop {
			return nil
		}
		if slices.ContainsFunc(toks, func(t engine.Token) bool { return slices.Contains(stop, t.ID) }) {
			return broken("it went on behind a stop token").WithHint("the server must know stop_token_ids")
		}
	}
	return broken("in %d tries no stop token was sampled, so that it is not seen whether it stops", probeTries).WithHint("connect again, or allow wider records")
}
