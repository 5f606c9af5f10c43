package cpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu/kernel"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rng"
)

func request(i, promptLen, maxNew int) engine.Request {
	return engine.Request{
		Tokens: prompt(odd, promptLen, i%3, i), MaxNew: maxNew,
		Sampling: engine.Sampling{Temperature: 0.8, TopK: 5}, Random: rng.New(3, rng.Train, i),
	}
}

// TestGenerate_batchAndThreadsDoNotChangeTokens compares requests run alone with the same ones run together, with
// common beginnings, on every level and several thread counts.
func TestGenerate_batchAndThreadsDoNotChangeTokens(t *testing.T) {
	t.Parallel()
	const n = 12
	w := initial(odd, 7)
	alone := make([][]engine.Token, n)
	for i := range alone {
		s := startSampler(t, odd, Options{Threads: 1, Kernels: "go"}, w)
		alone[i] = generate(t, s, request(i, 35+9*(i%5), 3+7*i))
	}
	for _, level := range kernel.Supported() {
		for _, threads := range []int{1, 2, 3, 7} {
			s := startSampler(t, odd, Options{Threads: threads, Kernels: level.String()}, w)
			together := make([][]engine.Token, n)
			var wg sync.WaitGroup
			for i := range together {
				wg.Go(func() { together[i] = generate(t, s, request(i, 35+9*(i%5), 3+7*i)) })
			}
			wg.Wait()
			if d := cmp.Diff(alone, together); d != "" {
				t.Fatalf("%v, %d threads: tokens differ from those of single requests (-alone +together):\n%s", level, threads, d)
			}
		}
	}
}

func TestGenerate_recordIsTheDistribution(t *testing.T) {
	t.Parallel()
	s := startSampler(t, odd, Options{}, initial(odd, 7))
	req := request(1, 20, 30)
	req.TopK, req.Temperature = odd.Vocab, 1
	toks := generate(t, s, req)
	if len(toks) != 30 {
		t.Fatalf("%d tokens, want 30", len(toks))
	}
	full := append([]int32{}, req.Tokens...)
	for i, tok := range toks {
		full = append(full, tok.ID)
		var mass, entropy float64
		seen := map[int32]float32{}
		for j, id := range tok.TopIDs {
			lp := float64(tok.TopLogProbs[j])
			mass += math.Exp(lp)
			entropy -= math.Exp(lp) * lp
			seen[id] = tok.TopLogProbs[j]
			if j > 0 && (tok.TopLogProbs[j] > tok.TopLogProbs[j-1] || (tok.TopLogProbs[j] == tok.TopLogProbs[j-1] && id < tok.TopIDs[j-1])) {
				t.Errorf("token %d: record entry %d is out of order", i, j)
			}
		}
		if math.Abs(mass-1) > 1e-5 || math.Abs(entropy-float64(tok.Entropy)) > 1e-4 || len(seen) != odd.Vocab {
			t.Errorf("token %d: mass %v, entropy %v (record gives %v), %d ids", i, mass, tok.Entropy, entropy, len(seen))
		}
		if seen[tok.ID] != tok.LogProb {
			t.Errorf("token %d: log-probability %v, the record says %v", i, tok.LogProb, seen[tok.ID])
		}
	}
	scores, err := s.Score(t.Context(), full)
	if err != nil || len(scores) != len(full)-1 {
		t.Fatalf("Score = %d values, %v, want %d", len(scores), err, len(full)-1)
	}
	for i, tok := range toks {
		if got := scores[len(req.Tokens)-1+i]; got != tok.LogProb {
			t.Errorf("token %d: Score gives %v, Generate gave %v", i, got, tok.LogProb)
		}
	}
}

// TestSetWeights_inFlight swaps from inside a sink, which is the worst moment: later tokens must be those of a
// request that starts at the new version with the tokens so far.
func TestSetWeights_inFlight(t *testing.T) {
	t.Parallel()
	first, second := initial(odd, 7), initial(odd, 8)
	s := startSampler(t, odd, Options{Threads: 2}, first)
	pin := 0
	pinned := request(3, 50, 100)
	pinned.PinVersion = &pin
	pinnedErr := make(chan error, 1)
	pinnedStarted := make(chan struct{})
	go func() {
		var once sync.Once
		_, err := s.Generate(t.Context(), pinned, func(engine.Token) error { once.Do(func() { close(pinnedStarted) }); <-pinnedRelease(s); return nil })
		pinnedErr <- err
	}()
	<-pinnedStarted
	req := request(1, 45, 40)
	var toks []engine.Token
	_, err := s.Generate(t.Context(), req, func(tok engine.Token) error {
		toks = append(toks, tok)
		if len(toks) == 10 {
			return s.SetWeights(t.Context(), 1, second)
		}
		return nil
	})
	if err != nil || len(toks) != 40 {
		t.Fatalf("Generate = %d tokens, %v", len(toks), err)
	}
	if err := <-pinnedErr; fault.KindOf(err) != fault.Stale {
		t.Errorf("pinned request: %v, want kind Stale", err)
	}
	for i, tok := range toks {
		if want := min(i/10, 1); tok.Version != want {
			t.Errorf("token %d has version %d, want %d", i, tok.Version, want)
		}
	}
	fresh := startSampler(t, odd, Options{Threads: 1}, second)
	rest := req
	rest.MaxNew = 30
	for _, tok := range toks[:10] {
		rest.Tokens = append(rest.Tokens[:len(rest.Tokens):len(rest.Tokens)], tok.ID)
	}
	want := generate(t, fresh, rest)
	for i := range want {
		want[i].Version = 1
	}
	if d := cmp.Diff(want, toks[10:]); d != "" {
		t.Errorf("tokens after the swap differ from a fresh request (-fresh +swapped):\n%s", d)
	}
	if s.Version() != 1 {
		t.Errorf("Version = %d, want 1", s.Version())
	}
}

// pinnedRelease returns a channel that is closed once the sampler has left version 0.
func pinnedRelease(s engine.Sampler) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		defer close(c)
		for s.Version() == 0 {
			// Score passes through the batch loop, so this waits for a step instead of spinning.
			if _, err := s.Score(context.Background(), []int32{1, 2}); err != nil {
				return
			}
		}
	}()
	return c
}

func TestGenerate_errors(t *testing.T) {
	t.Parallel()
	broken := initial(odd, 7)
	broken.Get("model.layers.1.self_attn.q_norm.weight")[1] = float32(math.NaN())
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	other := 5
	tests := []struct {
		name   string
		broken bool
		ctx    context.Context
		change func(r *engine.Request)
		want   fault.Kind
	}{
		{"no prefix", false, nil, func(r *engine.Request) { r.Tokens = nil }, fault.Invalid},
		{"id outside the vocabulary", false, nil, func(r *engine.Request) { r.Tokens = []int32{75} }, fault.Invalid},
		{"negative id", false, nil, func(r *engine.Request) { r.Tokens = []int32{-1} }, fault.Invalid},
		{"nothing to sample", false, nil, func(r *engine.Request) { r.MaxNew = 0 }, fault.Invalid},
		{"temperature 0", false, nil, func(r *engine.Request) { r.Temperature = 0 }, fault.Invalid},
		{"record wider than the vocabulary", false, nil, func(r *engine.Request) { r.TopK = 76 }, fault.Invalid},
		{"context too long", false, nil, func(r *engine.Request) { r.MaxNew = 141 }, fault.Exhausted},
		{"pinned elsewhere", false, nil, func(r *engine.Request) { r.PinVersion = &other }, fault.Stale},
		{"weights not finite", true, nil, func(*engine.Request) {}, fault.Numeric},
		{"cancelled", false, cancelled, func(*engine.Request) {}, fault.Internal},
	}
	for _, tt := range tests {
		w := initial(odd, 7)
		if tt.broken {
			w = broken
		}
		s := startSampler(t, odd, Options{}, w)
		req := request(1, 20, 4)
		tt.change(&req)
		ctx := tt.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		_, err := s.Generate(ctx, req, func(engine.Token) error { return nil })
		if got := fault.KindOf(err); got != tt.want {
			t.Errorf("%s: Generate = %v of kind %q, want kind %q", tt.name, err, got, tt.want)
		}
		if tt.ctx != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Generate = %v, want the context's error", tt.name, err)
		}
	}
	empty, err := NewSampler(odd, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := empty.Generate(t.Context(), request(1, 20, 4), nil); fault.KindOf(err) != fault.Stale || empty.Version() != -1 {
		t.Errorf("without weights: %v, version %d, want kind Stale and -1", err, empty.Version())
	}
	_ = empty.Close()
}

func TestGenerate_sinkErrorEndsOnlyItsRequest(t *testing.T) {
	t.Parallel()
	s := startSampler(t, odd, Options{Threads: 2}, initial(odd, 7))
	want := generate(t, s, request(2, 40, 30))
	boom := errors.New("boom")
	var wg sync.WaitGroup
	wg.Go(func() {
		n := 0
		_, err := s.Generate(t.Context(), request(1, 40, 30), func(engine.Token) error {
			if n++; n == 5 {
				return boom
			}
			return nil
		})
		if !errors.Is(err, boom) || n != 5 {
			t.Errorf("Generate = %v after %d tokens, want the sink's error after 5", err, n)
		}
	})
	if d := cmp.Diff(want, generate(t, s, request(2, 40, 30))); d != "" {
		t.Errorf("the other request changed:\n%s", d)
	}
	wg.Wait()
}

func TestClose_endsRunningRequests(t *testing.T) {
	t.Parallel()
	s := startSampler(t, odd, Options{}, initial(odd, 7))
	started := make(chan struct{})
	done := make(chan error, 1)
	release := make(chan struct{})
	go func() {
		_, err := s.Generate(context.Background(), request(1, 20, 100), func(engine.Token) error {
			select {
			case <-started:
			default:
				close(started)
				<-release
			}
			return nil
		})
		done <- err
	}()
	<-started
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	close(release)
	if err := <-done; fault.KindOf(err) != fault.Lost {
		t.Errorf("running request: %v, want kind Lost", err)
	}
	if _, err := s.Score(t.Context(), []int32{1, 2}); fault.KindOf(err) != fault.Lost {
		t.Errorf("Score after Close: %v, want kind Lost", err)
	}
	if err := s.SetWeights(t.Context(), 1, initial(odd, 1)); fault.KindOf(err) != fault.Lost {
		t.Errorf("SetWeights after Close: %v, want kind Lost", err)
	}
}

func TestGenerate_stopAndFinish(t *testing.T) {
	t.Parallel()
	s := startSampler(t, odd, Options{}, initial(odd, 7))
	all := generate(t, s, request(4, 30, 20))
	req := request(4, 30, 20)
	req.Stop = []int32{all[7].ID}
	first := 0
	for all[first].ID != all[7].ID {
		first++
	}
	var n int
	finish, err := s.Generate(t.Context(), req, func(engine.Token) error { n++; return nil })
	if err != nil || finish != engine.FinishStop || n != first+1 {
		t.Errorf("Generate = %q, %v after %d tokens, want stop after %d", finish, err, n, first+1)
	}
	finish, err = s.Generate(t.Context(), request(4, 30, 20), func(engine.Token) error { return nil })
	if err != nil || finish != engine.FinishLength {
		t.Errorf("Generate = %q, %v, want length", finish, err)
	}
}

func BenchmarkGenerate_demo(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			s := startSampler(b, demo, Options{Threads: threads}, initial(demo, 1))
			const batch, prompts, length, fresh = 64, 16, 250, 120
			n := 0
			for b.Loop() {
				n++
				var wg sync.WaitGroup
				for i := range batch {
					tokens := make([]int32, length)
					for j := range tokens {
						label := 0
						if j >= 200 {
							label = 1 + i%prompts + 1000*n
						}
						tokens[j] = int32(rng.New(1, rng.Corpus, label).IntN(uint64(j), demo.Vocab))
					}
					wg.Go(func() {
						generate(b, s, engine.Request{
							Tokens: tokens, MaxNew: fresh, Sampling: engine.Sampling{Temperature: 1, TopK: 64}, Random: rng.New(2, rng.Train, n, i),
						})
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64(batch*fresh*n)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
