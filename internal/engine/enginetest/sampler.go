package enginetest

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

func scoreEqualsReference(t *testing.T, h harness) {
	w := h.weights(1)
	s := h.sampler(t, 0, w)
	tokens := h.prompt(70, "score") // longer than two blocks of 32
	got, err := s.Score(t.Context(), tokens)
	if err != nil {
		t.Fatalf("Score: %v", err)
	}
	if len(got) != len(tokens)-1 {
		t.Fatalf("Score returned %d values for %d tokens", len(got), len(tokens))
	}
	for i, lp := range got {
		if i%9 > 0 && i < len(got)-2 { // the oracle computes every prefix again
			continue
		}
		want := h.distribution(t, w, tokens[:i+1], 1)[tokens[i+1]]
		if d := math.Abs(float64(lp) - want); !(d <= h.backend.logProbTolerance()) {
			t.Errorf("log-probability of token %d = %v, want %v (difference %g)", i+1, lp, want, d)
		}
	}
}

func recordEqualsReference(t *testing.T, h harness) {
	w := h.weights(2)
	s := h.sampler(t, 3, w)
	tol := h.backend.logProbTolerance()
	for _, temperature := range []float64{1, 0.6} {
		for _, k := range []int{0, 5, h.cfg.Vocab} {
			req := h.request(9, 6, k, temperature, "record")
			toks, _ := collect(t, s, req)
			prefix := slices.Clone(req.Tokens)
			for i, tok := range toks {
				lp := h.distribution(t, w, prefix, temperature)
				checkRecord(t, tok, lp, k, tol/temperature)
				checkDraw(t, tok.ID, lp, req.Random.Uniform(uint64(len(prefix))), tol*float64(h.cfg.Vocab))
				if tok.Version != 3 {
					t.Errorf("token %d has version %d, want 3", i, tok.Version)
				}
				prefix = append(prefix, tok.ID)
			}
		}
	}
}

// checkRecord compares the record of a token with the distribution lp.
func checkRecord(t *testing.T, tok engine.Token, lp []float64, k int, tol float64) {
	t.Helper()
	if d := math.Abs(float64(tok.LogProb) - lp[tok.ID]); !(d <= tol) {
		t.Errorf("log-probability of id %d = %v, want %v", tok.ID, tok.LogProb, lp[tok.ID])
	}
	var entropy float64
	for _, l := range lp {
		entropy -= math.Exp(l) * l
	}
	if d := math.Abs(float64(tok.Entropy) - entropy); !(d <= 8*tol) { // a sum of p log p: the error of log p is weighted by p (1 + |log p|)
		t.Errorf("entropy = %v, want %v", tok.Entropy, entropy)
	}
	if len(tok.TopIDs) != k || len(tok.TopLogProbs) != k {
		t.Fatalf("record has %d ids and %d values, want %d", len(tok.TopIDs), len(tok.TopLogProbs), k)
	}
	sorted := slices.Clone(lp)
	slices.Sort(sorted)
	slices.Reverse(sorted)
	seen := map[int32]bool{}
	for i, id := range tok.TopIDs {
		if seen[id] {
			t.Errorf("id %d is recorded twice", id)
		}
		seen[id] = true
		if d := math.Abs(float64(tok.TopLogProbs[i]) - lp[id]); !(d <= tol) {
			t.Errorf("record[%d] of id %d = %v, want %v", i, id, tok.TopLogProbs[i], lp[id])
		}
		if d := math.Abs(float64(tok.TopLogProbs[i]) - sorted[i]); !(d <= tol) {
			t.Errorf("record[%d] = %v, but the %d-th most probable token has %v", i, tok.TopLogProbs[i], i, sorted[i])
		}
		if i > 0 && tok.TopLogProbs[i] > tok.TopLogProbs[i-1] {
			t.Errorf("record[%d] = %v is above record[%d] = %v", i, tok.TopLogProbs[i], i-1, tok.TopLogProbs[i-1])
		}
		if id == tok.ID && bits(tok.TopLogProbs[i]) != bits(tok.LogProb) {
			t.Errorf("the sampled token has %v in the record and %v by itself", tok.TopLogProbs[i], tok.LogProb)
		}
	}
}

// checkDraw verifies that id is where the distribution function in index order passes u, to tol.
func checkDraw(t *testing.T, id int32, lp []float64, u, tol float64) {
	t.Helper()
	var below float64
	for _, l := range lp[:id] {
		below += math.Exp(l)
	}
	if above := below + math.Exp(lp[id]); u < below-tol || u > above+tol {
		t.Errorf("id %d covers [%v, %v), but was drawn by %v", id, below, above, u)
	}
}

func scoreEqualsGenerate(t *testing.T, h harness) {
	s := h.sampler(t, 0, h.weights(3))
	req := h.request(33, 40, 0, 1, "score") // begins and ends inside blocks of 32
	toks, _ := collect(t, s, req)
	scores, err := s.Score(t.Context(), append(slices.Clone(req.Tokens), ids(toks)...))
	if err != nil {
		t.Fatalf("Score: %v", err)
	}
	for i, tok := range toks {
		if got := scores[len(req.Tokens)-1+i]; bits(got) != bits(tok.LogProb) {
			t.Errorf("token %d: Score says %v, Generate said %v; the bits must be equal", i, got, tok.LogProb)
		}
	}
}

func stopAndLength(t *testing.T, h harness) {
	s := h.sampler(t, 0, h.weights(4))
	req := h.request(5, 12, 2, 1, "stop")
	toks, finish := collect(t, s, req)
	if finish != engine.FinishLength || len(toks) != 12 {
		t.Fatalf("%d tokens, finish %q, want 12 and length", len(toks), finish)
	}
	at := slices.IndexFunc(toks, func(x engine.Token) bool { return x.ID == toks[7].ID })
	req.Stop = []int32{toks[7].ID}
	cut, finish := collect(t, s, req)
	if finish != engine.FinishStop || !equalTokens(cut, toks[:at+1]) {
		t.Errorf("with a stop token: %d tokens, finish %q, want the first %d of the same, the stop token included", len(cut), finish, at+1)
	}
	// Going on from a prefix is the same as never having stopped: draws belong to positions.
	rest := req
	rest.Stop, rest.Tokens, rest.MaxNew = nil, append(slices.Clone(req.Tokens), ids(toks[:4])...), 8
	if more, _ := collect(t, s, rest); !equalTokens(more, toks[4:]) {
		t.Errorf("continued after 4 tokens: %v, want %v", ids(more), ids(toks[4:]))
	}
	full := h.request(h.cfg.MaxPosition-2, 2, 0, 1, "full") // the last position is usable
	if toks, finish := collect(t, s, full); finish != engine.FinishLength || len(toks) != 2 {
		t.Errorf("to the last position: %d tokens, finish %q", len(toks), finish)
	}
}

func badRequests(t *testing.T, h harness) {
	s := h.sampler(t, 0, h.weights(5))
	good := func() engine.Request { return h.request(4, 2, 2, 1, "bad") }
	for _, tt := range []struct {
		name string
		edit func(*engine.Request)
		want fault.Kind
	}{
		{"no tokens", func(r *engine.Request) { r.Tokens = nil }, fault.Invalid},
		{"id above the vocabulary", func(r *engine.Request) { r.Tokens[1] = int32(h.cfg.Vocab) }, fault.Invalid}, //nolint:gosec // small
		{"negative id", func(r *engine.Request) { r.Tokens[1] = -1 }, fault.Invalid},
		{"nothing to sample", func(r *engine.Request) { r.MaxNew = 0 }, fault.Invalid},
		{"temperature 0", func(r *engine.Request) { r.Temperature = 0 }, fault.Invalid},
		{"temperature not a number", func(r *engine.Request) { r.Temperature = math.NaN() }, fault.Invalid},
		{"record wider than the vocabulary", func(r *engine.Request) { r.TopK = h.cfg.Vocab + 1 }, fault.Invalid},
		{"prefix too long", func(r *engine.Request) { r.Tokens = h.prompt(h.cfg.MaxPosition+1, "long") }, fault.Exhausted},
	} {
		req := good()
		tt.edit(&req)
		if _, _, err := generate(t.Context(), s, req); !fault.Is(err, tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	if _, err := s.Score(t.Context(), nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("Score of nothing: %v, want Invalid", err)
	}
	collect(t, s, good()) // the engine still works
}

// Two ids with the same row of the head always tie exactly; the smaller must come first.
func tiesBySmallerID(t *testing.T, h harness) {
	w := h.weights(6)
	head := w.Get("lm_head.weight")
	if h.cfg.TieEmbedding {
		head = w.Get("model.embed_tokens.weight")
	}
	for _, id := range []int{7, 19} {
		copy(head[id*h.cfg.Hidden:(id+1)*h.cfg.Hidden], head[3*h.cfg.Hidden:4*h.cfg.Hidden])
	}
	s := h.sampler(t, 0, w)
	toks, _ := collect(t, s, h.request(6, 8, h.cfg.Vocab, 1, "ties"))
	for i, tok := range toks {
		at := slices.Index(tok.TopIDs, 3)
		if at+2 >= len(tok.TopIDs) || tok.TopIDs[at+1] != 7 || tok.TopIDs[at+2] != 19 {
			t.Errorf("token %d: equal logits of ids 3, 7 and 19 are recorded as %v", i, tok.TopIDs)
		}
	}
	// At a width that cuts through the tie, the smaller ids stay.
	cut := slices.Index(toks[0].TopIDs, 7) + 1
	narrow, _ := collect(t, s, h.request(6, 1, cut, 1, "ties"))
	if !slices.Equal(narrow[0].TopIDs, toks[0].TopIDs[:cut]) {
		t.Errorf("width %d keeps %v, want %v", cut, narrow[0].TopIDs, toks[0].TopIDs[:cut])
	}
}

func versions(t *testing.T, h harness) {
	old, next := h.weights(7), h.weights(8)
	s := h.sampler(t, 4, old)
	five, four := 5, 4
	req := h.request(5, 3, 0, 1, "version")
	req.PinVersion = &five
	if _, _, err := generate(t.Context(), s, req); !fault.Is(err, fault.Stale) {
		t.Errorf("pinned to 5 at version 4: %v, want Stale", err)
	}
	if err := s.SetWeights(t.Context(), 5, next); err != nil || s.Version() != 5 {
		t.Fatalf("SetWeights(5): %v, version %d", err, s.Version())
	}
	pinned, _ := collect(t, s, req)
	req.PinVersion = &four
	if _, _, err := generate(t.Context(), s, req); !fault.Is(err, fault.Stale) {
		t.Errorf("pinned to 4 at version 5: %v, want Stale", err)
	}
	req.PinVersion = nil
	want, _ := collect(t, h.sampler(t, 5, next), req)
	if !equalTokens(pinned, want) || pinned[0].Version != 5 {
		t.Errorf("after a swap: tokens %v of version %d, a fresh engine gives %v", ids(pinned), pinned[0].Version, ids(want))
	}
	next.Data[0][0]++ // the weights were copied
	if again, _ := collect(t, s, req); !equalTokens(again, want) {
		t.Error("changing the caller's weights after SetWeights changed the tokens")
	}
	other := h.cfg
	other.Vocab++
	if err := s.SetWeights(t.Context(), 6, model.NewWeights(other)); !fault.Is(err, fault.Invalid) || s.Version() != 5 {
		t.Errorf("weights of another model: %v, version %d, want Invalid and 5", err, s.Version())
	}
}

// A swap between two tokens: what was sampled stays, the prefix is computed again under the new weights.
func swapInFlight(t *testing.T, h harness) {
	first, second := h.weights(9), h.weights(10)
	s := h.sampler(t, 1, first)
	req := h.request(35, 9, 3, 1, "swap")
	plain, _ := collect(t, h.sampler(t, 1, first), req)
	var toks []engine.Token
	_, err := s.Generate(t.Context(), req, func(tok engine.Token) error {
		toks = append(toks, tok)
		if len(toks) == 4 { // before the next token of this sequence is sampled
			return s.SetWeights(t.Context(), 2, second)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("Generate over a swap: %v", err)
	}
	if !equalTokens(toks[:4], plain[:4]) || toks[3].Version != 1 || toks[4].Version != 2 {
		t.Errorf("versions %d and %d around the swap, tokens before %v, want 1, 2 and %v", toks[3].Version, toks[4].Version, ids(toks[:4]), ids(plain[:4]))
	}
	rest := req
	rest.Tokens, rest.MaxNew = append(slices.Clone(req.Tokens), ids(toks[:4])...), 5
	if want, _ := collect(t, h.sampler(t, 2, second), rest); !equalTokens(toks[4:], want) {
		t.Errorf("after the swap %v, a fresh engine goes on with %v", ids(toks[4:]), ids(want))
	}
	one := 2
	req.PinVersion = &one
	n := 0
	_, err = s.Generate(t.Context(), req, func(engine.Token) error {
		if n++; n == 2 {
			return s.SetWeights(t.Context(), 3, first)
		}
		return nil
	})
	if !fault.Is(err, fault.Stale) || n != 2 {
		t.Errorf("a pinned request over a swap: %v after %d tokens, want Stale after 2", err, n)
	}
}

// The same request gives the same bits alone and among others that come and go.
func batchIndependence(t *testing.T, h harness) {
	s := h.sampler(t, 0, h.weights(11))
	var reqs []engine.Request
	for i := range 7 {
		reqs = append(reqs, h.request(3+9*i%40, 4+5*i%17, 4, []float64{1, 0.7}[i%2], i%5)) // some share a prefix
	}
	var alone [][]engine.Token
	for _, r := range reqs {
		toks, _ := collect(t, s, r)
		alone = append(alone, toks)
	}
	together := make([][]engine.Token, len(reqs))
	errs := make([]error, len(reqs))
	var wg sync.WaitGroup
	for i, r := range reqs {
		wg.Go(func() { together[i], _, errs[i] = generate(t.Context(), s, r) })
	}
	wg.Wait()
	for i := range reqs {
		if errs[i] != nil {
			t.Errorf("request %d in a batch: %v", i, errs[i])
		}
		if !equalTokens(alone[i], together[i]) {
			t.Errorf("request %d: %v alone, %v in a batch", i, ids(alone[i]), ids(together[i]))
		}
	}
}

// A sink's error, a cancelled context and Close end a request with that reason, and others go on.
func endings(t *testing.T, h harness) {
	s := h.sampler(t, 0, h.weights(12))
	req := h.request(5, 20, 0, 1, "end")
	full := errors.New("disk full")
	n := 0
	if _, err := s.Generate(t.Context(), req, func(engine.Token) error { n++; return full }); !errors.Is(err, full) || n != 1 {
		t.Errorf("error of the sink: %v after %d tokens, want it after 1", err, n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n = 0
	_, err := s.Generate(ctx, req, func(engine.Token) error {
		if n++; n == 2 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n > 3 {
		t.Errorf("cancelled at the second token: %v after %d tokens", err, n)
	}
	collect(t, s, req)
	closing, err := h.backend.NewSampler(h.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := generate(t.Context(), closing, req); !fault.Is(err, fault.Stale) {
		t.Errorf("before SetWeights: %v, want Stale", err)
	}
	if err := closing.SetWeights(t.Context(), 0, h.weights(12)); err != nil {
		t.Fatal(err)
	}
	sampling, end := make(chan struct{}), make(chan error, 1)
	release := make(chan struct{})
	go func() {
		first := true
		_, err := closing.Generate(context.WithoutCancel(t.Context()), req, func(engine.Token) error {
			if first {
				first = false
				close(sampling)
				<-release
			}
			return nil
		})
		end <- err
	}()
	<-sampling
	if err := closing.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	close(release)
	if err := <-end; !fault.Is(err, fault.Lost) {
		t.Errorf("a request running at Close: %v, want Lost", err)
	}
	if err := closing.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, _, err := generate(t.Context(), closing, req); !fault.Is(err, fault.Lost) {
		t.Errorf("after Close: %v, want Lost", err)
	}
}

func damagedWeights(t *testing.T, h harness) {
	w := h.weights(13)
	w.Get("model.norm.weight")[2] = float32(math.NaN())
	s := h.sampler(t, 0, w)
	if toks, _, err := generate(t.Context(), s, h.request(5, 3, 2, 1, "nan")); !fault.Is(err, fault.Numeric) || len(toks) != 0 {
		t.Errorf("NaN in the weights: %d tokens, %v, want Numeric and none", len(toks), err)
	}
	if _, err := s.Score(t.Context(), h.prompt(5, "nan")); !fault.Is(err, fault.Numeric) {
		t.Errorf("Score with NaN in the weights: %v, want Numeric", err)
	}
	if err := s.SetWeights(t.Context(), 1, h.weights(13)); err != nil {
		t.Fatal(err)
	}
	collect(t, s, h.request(5, 3, 2, 1, "nan"))
}
