package batched

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

const vocab = 1000

// next is the fake model: a token depends on the weights and on everything before it.
func next(weights int, tokens []int32) int32 {
	h := fnv.New32a()
	fmt.Fprint(h, weights, tokens)
	return int32(h.Sum32() % vocab) //nolint:gosec // below vocab
}

// fake is a device whose cache holds, for each page and place, the hash of the tokens up to there: what a step reads must be what earlier ones wrote under
// the live weights.
type fake struct {
	t       *testing.T
	weights int
	cache   map[[2]int32]int32 // page, place: next of the prefix that ends there
	rows    int                // computed
	fail    error
	closed  bool
}

func (f *fake) Install(w any) error { f.weights = w.(int); return nil } //nolint:forcetypeassert // the tests'
func (f *fake) Close() error        { f.closed = true; return nil }

func (f *fake) write(tokens []int32, pages []int32, at int) {
	for p := range at {
		if got, want := f.cache[[2]int32{pages[p/PageTokens], int32(p % PageTokens)}], next(f.weights, tokens[:p+1]); got != want {
			f.t.Errorf("position %d of a sequence reads %d from the cache, want %d", p, got, want)
		}
	}
	f.cache[[2]int32{pages[at/PageTokens], int32(at % PageTokens)}] = next(f.weights, tokens[:at+1])
	f.rows++
}

func (f *fake) Step(chunks []*Chunk, _ int) error {
	for _, c := range chunks {
		for i := c.First; i < c.First+c.N; i++ {
			f.write(c.Seq.Tokens, c.Seq.Pages, i)
			if c.Seq.Score && i+1 < len(c.Seq.Tokens) {
				c.Seq.Scores = append(c.Seq.Scores, float32(next(f.weights, c.Seq.Tokens[:i+1])))
			}
		}
		if !c.Seq.Score && c.Last() {
			c.Token.ID = next(f.weights, c.Seq.Tokens)
		}
	}
	return f.fail
}

// fakeAhead keeps the group's tokens itself, as a GPU does.
type fakeAhead struct {
	fake
	lanes  [][]int32
	pages  [][]int32
	flying [][]Result
}

func (f *fakeAhead) Load(group []*Sequence) error {
	f.lanes, f.pages = nil, nil
	for _, seq := range group {
		f.lanes, f.pages = append(f.lanes, slices.Clone(seq.Tokens)), append(f.pages, slices.Clone(seq.Pages))
	}
	return nil
}

func (f *fakeAhead) Begin() error {
	var results []Result
	for i, tokens := range f.lanes {
		id := int32(-1)
		if n := len(tokens) - 1; n/PageTokens < len(f.pages[i]) { // a lane may run one token past its end
			f.write(tokens, f.pages[i], n)
			id = next(f.weights, tokens)
		}
		f.lanes[i] = append(tokens, id)
		results = append(results, Result{Token: engine.Token{ID: id}})
	}
	f.flying = append(f.flying, results)
	if len(f.flying) > 2 {
		f.t.Error("more than two steps are under way")
	}
	return f.fail
}

func (f *fakeAhead) Finish(int) ([]Result, error) {
	r := f.flying[0]
	f.flying = f.flying[1:]
	return r, nil
}

func (f *fakeAhead) Drop() error { f.flying = nil; return nil }

// each runs a test with a device that waits and with one that computes ahead, in a cache without and with a bound.
func each(t *testing.T, run func(t *testing.T, s *Scheduler, f *fake)) {
	for _, ahead := range []bool{false, true} {
		for _, bound := range []int{0, 12} {
			if ahead && bound == 0 {
				continue
			}
			t.Run(fmt.Sprintf("ahead=%v,pages=%d", ahead, bound), func(t *testing.T) {
				s := New(Options{Name: "fake", Room: engine.Room{Vocab: vocab, TopK: vocab, Tokens: 300}, Rows: 20, Pages: bound, IdlePages: 12})
				a := &fakeAhead{fake: fake{t: t, cache: map[[2]int32]int32{}}}
				var dev Device = &a.fake
				if ahead {
					dev = a
				}
				go s.Run(dev)
				t.Cleanup(func() {
					if err := s.Close(); err != nil || !a.closed {
						t.Errorf("Close: %v, the device is closed: %v", err, a.closed)
					}
				})
				if err := s.Swap(t.Context(), 1, 1); err != nil {
					t.Fatal(err)
				}
				run(t, s, &a.fake)
			})
		}
	}
}

func prompt(n, seed int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = next(-seed, out[:i])
	}
	return out
}

func request(tokens []int32, n int) engine.Request {
	return engine.Request{Tokens: tokens, MaxNew: n, Sampling: engine.Sampling{Temperature: 1}}
}

// Requests of many lengths at once, some with a common beginning, some ended by a stop token: every token is the model's, whatever the batch.
func TestScheduler_tokensAreTheModels(t *testing.T) {
	each(t, func(t *testing.T, s *Scheduler, _ *fake) {
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				req := request(prompt(1+i*7%90, i%5), 1+i*11%60)
				want := slices.Clone(req.Tokens)
				for range req.MaxNew {
					want = append(want, next(1, want))
				}
				if i%6 == 5 {
					req.Stop = want[len(want)-1:]
				}
				got := slices.Clone(req.Tokens)
				finish, err := s.Generate(t.Context(), req, func(tok engine.Token) error {
					got = append(got, tok.ID)
					return nil
				})
				if err != nil || !slices.Equal(got, want[:len(got)]) || len(got) < len(want) && (finish != engine.FinishStop || got[len(got)-1] != req.Stop[0]) {
					t.Errorf("request %d: %v, %v, tokens %v, want %v", i, finish, err, got, want)
				}
			})
		}
		wg.Wait()
	})
}

// A swap from within a sink counts for the very next token, for every sequence; each token is that of its version.
func TestScheduler_swapCountsForTheNextToken(t *testing.T) {
	each(t, func(t *testing.T, s *Scheduler, _ *fake) {
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				tokens := prompt(30+i, i)
				_, err := s.Generate(t.Context(), request(tokens, 40), func(tok engine.Token) error {
					if want := next(tok.Version, tokens); tok.ID != want {
						t.Errorf("sequence %d, token %d of version %d: %d, want %d", i, len(tokens), tok.Version, tok.ID, want)
					}
					live := s.Version()
					if i == 0 && len(tokens)%7 == 0 {
						if err := s.Swap(t.Context(), live+1, live+1); err != nil {
							return err
						}
						if tok.Version > live {
							t.Errorf("version %d before %d was live", tok.Version, live+1)
						}
					}
					tokens = append(tokens, tok.ID)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// A receiver that waits for another one's progress holds nobody up.
func TestScheduler_slowReceiverHoldsNobodyUp(t *testing.T) {
	each(t, func(t *testing.T, s *Scheduler, _ *fake) {
		fast := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			tokens := prompt(5, 1)
			_, err := s.Generate(t.Context(), request(tokens, 5), func(tok engine.Token) error {
				if want := next(1, tokens); tok.ID != want {
					t.Errorf("token %d is %d, want %d", len(tokens), tok.ID, want)
				}
				tokens = append(tokens, tok.ID)
				<-fast
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		if _, err := s.Generate(t.Context(), request(prompt(7, 2), 20), func(engine.Token) error { return nil }); err != nil {
			t.Error(err)
		}
		close(fast)
		wg.Wait()
	})
}

// Four answers to one prompt compute its full pages once.
func TestScheduler_sharedPromptIsComputedOnce(t *testing.T) {
	each(t, func(t *testing.T, s *Scheduler, f *fake) {
		const length, answers = 3*PageTokens + 6, 3
		var wg sync.WaitGroup
		for range answers {
			wg.Go(func() {
				if _, err := s.Generate(t.Context(), request(prompt(length, 1), 1), func(engine.Token) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := s.Swap(t.Context(), 1, 1); err != nil { // after this the device's counter is ours
			t.Fatal(err)
		}
		if want := 3*PageTokens + 6*answers; f.rows != want {
			t.Errorf("%d rows are computed, want %d", f.rows, want)
		}
	})
}

func TestScheduler_endsWithTheReason(t *testing.T) {
	each(t, func(t *testing.T, s *Scheduler, f *fake) {
		full := errors.New("disk full")
		n := 0
		if _, err := s.Generate(t.Context(), request(prompt(3, 1), 9), func(engine.Token) error { n++; return full }); !errors.Is(err, full) || n != 1 {
			t.Errorf("error of the sink: %v after %d tokens", err, n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := s.Generate(ctx, request(prompt(3, 1), 9), func(engine.Token) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		two := 2
		pinned := request(prompt(3, 1), 9)
		pinned.PinVersion = &two
		if _, err := s.Generate(t.Context(), pinned, nil); !fault.Is(err, fault.Stale) {
			t.Errorf("pinned to another version: %v, want Stale", err)
		}
		tokens := prompt(50, 3)
		scores, err := s.Score(t.Context(), tokens)
		for i, got := range scores {
			if want := float32(next(1, tokens[:i+1])); got != want {
				t.Errorf("score %d = %v, want %v", i, got, want)
			}
		}
		if err != nil || len(scores) != len(tokens)-1 {
			t.Errorf("Score: %d values, %v", len(scores), err)
		}
		if err := s.Swap(t.Context(), 1, 1); err != nil {
			t.Fatal(err)
		}
		f.fail = fault.New(fault.Lost, "fake", "gone")
		if _, err := s.Generate(t.Context(), request(prompt(3, 1), 9), func(engine.Token) error { return nil }); !fault.Is(err, fault.Lost) {
			t.Errorf("after a failure of the device: %v, want Lost", err)
		}
		if err := s.Swap(t.Context(), 2, 2); !fault.Is(err, fault.Lost) {
			t.Errorf("a swap after a failure: %v, want Lost", err)
		}
	})
}
