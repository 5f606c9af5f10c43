package external_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/external"
	"github.com/steadyrl/steady/internal/engine/external/externaltest"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rng"
)

var cfg = model.Config{
	Vocab: 37, Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 10, MaxPosition: 64, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
}

const width = 8

func weights(seed uint64) *model.Weights {
	w := model.NewWeights(cfg)
	w.Init(seed, 0.8)
	return w
}

var dialects = []string{external.VLLM, external.SGLang}

func options(s *externaltest.Server, dialect string) external.Options {
	return external.Options{
		URL: s.URL, Dialect: dialect, Model: externaltest.ModelName, Config: cfg, Version: 7, TopK: width, Tolerance: 1e-4, Idle: time.Minute,
	}
}

func connect(t *testing.T, o external.Options) *external.Sampler {
	t.Helper()
	s, err := external.New(t.Context(), o)
	if err != nil {
		t.Fatalf("New: %v (%s)", err, fault.HintOf(err))
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func request(n int, temperature float64, label any) engine.Request {
	st := rng.New(3, rng.Corpus, label)
	var prompt []int32
	for i := range 5 {
		prompt = append(prompt, int32(st.IntN(uint64(i), cfg.Vocab)))
	}
	return engine.Request{Tokens: prompt, MaxNew: n, Sampling: engine.Sampling{Temperature: temperature, TopK: width}, Random: rng.New(4, rng.Train, label)}
}

func collect(ctx context.Context, s engine.Sampler, q engine.Request) (toks []engine.Token, finish engine.Finish, err error) {
	finish, err = s.Generate(ctx, q, func(t engine.Token) error { toks = append(toks, t); return nil })
	return toks, finish, err
}

// direct is what the server's engine says without a server in between.
func direct(t *testing.T, q engine.Request) ([]engine.Token, engine.Finish) {
	t.Helper()
	s, err := ref.NewSampler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetWeights(t.Context(), 7, weights(1)); err != nil {
		t.Fatal(err)
	}
	q.Random = externaltest.Stream(q.Random.Uint64(uint64(len(q.Tokens))) >> 33)
	toks, finish, err := collect(t.Context(), s, q)
	if err != nil {
		t.Fatal(err)
	}
	return toks, finish
}

// same compares tokens; entropies may be lower, for those of a server are bounds.
func same(t *testing.T, want, got []engine.Token) {
	t.Helper()
	near := cmp.Comparer(func(a, b float32) bool { return math.Abs(float64(a)-float64(b)) < 1e-5 })
	for i := range min(len(want), len(got)) {
		w := want[i]
		if got[i].Entropy > w.Entropy+1e-5 || got[i].Entropy <= 0 {
			t.Errorf("token %d: entropy %v, want a bound below %v", i, got[i].Entropy, w.Entropy)
		}
		w.Entropy = got[i].Entropy
		if d := cmp.Diff(w, got[i], near); d != "" {
			t.Errorf("token %d (-direct +through the server):\n%s", i, d)
		}
	}
}

func TestSampler_saysWhatTheServersEngineSays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		dialect    string
		batch      int
		increments bool
	}{{external.VLLM, 1, false}, {external.VLLM, 3, false}, {external.SGLang, 1, false}, {external.SGLang, 3, false}, {external.SGLang, 2, true}} {
		server := externaltest.Start(t, tt.dialect, weights(1))
		server.Batch, server.Increments, server.Key = tt.batch, tt.increments, "secret"
		o := options(server, tt.dialect)
		o.Key, o.URL = "secret", server.URL+"/v1/"
		s := connect(t, o)
		if s.Version() != 7 {
			t.Errorf("version %d, want 7", s.Version())
		}
		for i, temperature := range []float64{1, 0.5, 1.3} {
			q := request(6+i, temperature, i)
			want, _ := direct(t, q)
			got, finish, err := collect(t.Context(), s, q)
			if err != nil || finish != engine.FinishLength || len(got) != len(want) {
				t.Fatalf("%+v: %d tokens, %q, %v; want %d", tt, len(got), finish, err, len(want))
			}
			same(t, want, got)
			q.Stop = []int32{want[3].ID}
			want, _ = direct(t, q)
			if got, finish, err = collect(t.Context(), s, q); err != nil || finish != engine.FinishStop || len(got) != len(want) {
				t.Fatalf("%+v with a stop token: %d tokens, %q, %v; want %d", tt, len(got), finish, err, len(want))
			}
			same(t, want, got)
			q.TopK = 0
			if got, _, err = collect(t.Context(), s, q); err != nil || len(got[0].TopIDs) != 0 || got[0].ID != want[0].ID || got[0].Entropy <= 0 {
				t.Errorf("%+v without a record: %+v, %v", tt, got, err)
			}
		}
		asked := server.Asked()
		if q := asked[len(asked)-1]; !slices.Equal(q.Prompt, request(1, 1, 2).Tokens) || q.Seed >= 1<<31 {
			t.Errorf("asked for %+v, want the prompt as it is and a seed of 31 bits", q)
		}
		oracle, err := ref.NewSampler(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := oracle.SetWeights(t.Context(), 0, weights(1)); err != nil {
			t.Fatal(err)
		}
		tokens := request(1, 1, "score").Tokens
		want, err := oracle.Score(t.Context(), tokens)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Score(t.Context(), tokens); err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v: Score says %v, %v; want %v", tt, got, err, want)
		}
	}
}

// Whatever a server lacks is refused at the start, with what it is and what to do.
func TestNew_refusesWhatTheServerLacks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault externaltest.Fault
		kind  fault.Kind
		text  string // of the error or its hint
		only  string // dialect
	}{
		{externaltest.TextOnly, fault.Invalid, "is text, not an id", external.VLLM},
		{externaltest.TextOnly, fault.Invalid, "output_ids", external.SGLang},
		{externaltest.Narrow, fault.Invalid, "--max-logprobs 8", ""},
		{externaltest.Refuses, fault.Invalid, "--max-logprobs 8", ""},
		{externaltest.NoLogProbs, fault.Invalid, "log-probabilities", ""},
		{externaltest.NullLogProb, fault.Invalid, "log-probability", ""},
		{externaltest.NoRecords, fault.Invalid, "records", ""},
		{externaltest.Raw, fault.Invalid, "processed_logprobs", ""},
		{externaltest.IgnoresT, fault.Invalid, "same at temperatures 1 and 0.5", ""},
		{externaltest.OtherT, fault.Invalid, "without a default temperature", ""},
		{externaltest.OtherTAlways1, fault.Invalid, "are those of about 0.85", ""},
		{externaltest.Truncates, fault.Invalid, "when it is scored", ""},
		{externaltest.Clamps, fault.Invalid, "the distribution is truncated", ""},
		{externaltest.AddsToken, fault.Invalid, "take token ids and add none", ""},
		{externaltest.NoPromptCount, fault.Invalid, "how many tokens the prompt had", ""},
		{externaltest.StripsStop, fault.Invalid, "leave stop tokens in its ids", ""},
		{externaltest.IgnoresStop, fault.Invalid, "stop", ""},
		{externaltest.GoesOnPastStop, fault.Invalid, "behind a stop token", ""},
		{externaltest.NoScore, fault.Invalid, "log-probabilities of the prompt", ""},
		{externaltest.OtherScore, fault.Invalid, "when it is scored", ""},
		{externaltest.EarlyLength, fault.Invalid, "ended by its length", ""},
		{externaltest.OneMore, fault.Invalid, "more than the 4 tokens", ""},
		{externaltest.Twice, fault.Invalid, "recorded twice", ""},
		{externaltest.Disagrees, fault.Invalid, "in its record", ""},
		{externaltest.OutsideHead, fault.Invalid, "not in its record", ""},
		{externaltest.OutsideVocab, fault.Invalid, "the vocabulary has 37", ""},
		{externaltest.OtherModel, fault.Invalid, `model "another"`, external.VLLM},
		{externaltest.OtherName, fault.Invalid, `no model is called "served"`, ""},
		{externaltest.ShortContext, fault.Invalid, "--max-model-len", ""},
		{externaltest.HTML, fault.Invalid, "no stream of events", ""},
		{externaltest.NotJSON, fault.Invalid, "not JSON", ""},
		{externaltest.LongLine, fault.Invalid, "a piece of more than", ""},
		{externaltest.Status400, fault.Invalid, "status 400", ""},
		{externaltest.Status401, fault.Invalid, "give the server's key", ""},
		{externaltest.Status404, fault.Invalid, "the dialect", ""},
		{externaltest.Redirects, fault.Invalid, "redirects are not followed", ""},
		{externaltest.Status429, fault.Busy, "status 429", ""},
		{externaltest.Status503, fault.Busy, "status 503", ""},
		{externaltest.Status500, fault.Lost, "status 500", ""},
		{externaltest.Breaks, fault.Lost, "broke off", ""},
		{externaltest.Aborts, fault.Lost, "broke off", ""},
		{externaltest.ErrorEvent, fault.Lost, "engine died", ""},
		{externaltest.Abort, fault.Lost, `"abort"`, ""},
		{externaltest.Hangs, fault.Lost, "sent nothing for", ""},
		{externaltest.HangsAtOnce, fault.Lost, "sent nothing for", ""},
	} {
		for _, dialect := range dialects {
			if tt.only != "" && tt.only != dialect {
				continue
			}
			t.Run(dialect+"/"+string(tt.fault), func(t *testing.T) {
				t.Parallel()
				server := externaltest.Start(t, dialect, weights(1))
				server.Set(tt.fault)
				o := options(server, dialect)
				if strings.HasPrefix(string(tt.fault), "hangs") {
					o.Idle = 20 * time.Millisecond
				}
				_, err := external.New(t.Context(), o)
				if !fault.Is(err, tt.kind) || !strings.Contains(err.Error()+fault.HintOf(err), tt.text) {
					t.Fatalf("%v (%s), want %s with %q", err, fault.HintOf(err), tt.kind, tt.text)
				}
				if tt.kind == fault.Invalid && fault.HintOf(err) == "" {
					t.Errorf("no hint with %v", err)
				}
				server.Wait() // no request is left behind
			})
		}
	}
}

// The same in the middle of a run: tokens that were handed on are true, the error is of a kind that is tried again or says that
// the version moved on.
func TestGenerate_faultsInTheMiddleOfARun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault externaltest.Fault
		kind  fault.Kind
		only  string
	}{
		{externaltest.TextOnly, fault.Infrastructure, ""},
		{externaltest.Narrow, fault.Infrastructure, ""},
		{externaltest.NoLogProbs, fault.Infrastructure, ""},
		{externaltest.AddsToken, fault.Infrastructure, ""},
		{externaltest.StripsStop, fault.Infrastructure, ""},
		{externaltest.GoesOnPastStop, fault.Infrastructure, ""},
		{externaltest.EarlyLength, fault.Infrastructure, ""},
		{externaltest.OneMore, fault.Infrastructure, ""},
		{externaltest.Twice, fault.Infrastructure, ""},
		{externaltest.Disagrees, fault.Infrastructure, ""},
		{externaltest.OutsideVocab, fault.Infrastructure, ""},
		{externaltest.OtherModel, fault.Infrastructure, external.VLLM},
		{externaltest.OtherWeights, fault.Stale, external.SGLang},
		{externaltest.HTML, fault.Infrastructure, ""},
		{externaltest.NotJSON, fault.Infrastructure, ""},
		{externaltest.Status429, fault.Busy, ""},
		{externaltest.Status500, fault.Lost, ""},
		{externaltest.Breaks, fault.Lost, ""},
		{externaltest.Aborts, fault.Lost, ""},
		{externaltest.ErrorEvent, fault.Lost, ""},
		{externaltest.Abort, fault.Lost, ""},
		{externaltest.Hangs, fault.Lost, ""},
		{externaltest.HangsAtOnce, fault.Lost, ""},
	} {
		for _, dialect := range dialects {
			if tt.only != "" && tt.only != dialect {
				continue
			}
			t.Run(dialect+"/"+string(tt.fault), func(t *testing.T) {
				t.Parallel()
				server := externaltest.Start(t, dialect, weights(1))
				s := connect(t, options(server, dialect))
				if strings.HasPrefix(string(tt.fault), "hangs") {
					s.SetIdle(20 * time.Millisecond)
				}
				q := request(6, 1, "fault")
				want, _ := direct(t, q)
				stop := q
				stop.Stop = []int32{want[3].ID}
				if tt.fault == externaltest.StripsStop || tt.fault == externaltest.GoesOnPastStop {
					q = stop
				}
				server.Set(tt.fault)
				got, finish, err := collect(t.Context(), s, q)
				if !fault.Is(err, tt.kind) || finish != "" {
					t.Fatalf("%q, %v, want %s", finish, err, tt.kind)
				}
				if tt.fault != externaltest.AddsToken {
					same(t, want, got)
				} else if len(got) > 0 && dialect == external.VLLM {
					t.Errorf("%d tokens behind another prompt were handed on", len(got))
				}
				server.Set(externaltest.None)
				s.SetIdle(time.Minute)
				if again, _, err := collect(t.Context(), s, request(6, 1, "fault")); err != nil || len(again) != 6 {
					t.Errorf("after the fault: %d tokens, %v", len(again), err)
				}
			})
		}
	}
}

func TestNew_refusesBadOptions(t *testing.T) {
	t.Parallel()
	server := externaltest.Start(t, external.VLLM, weights(1))
	for name, change := range map[string]func(*external.Options){
		"no URL":              func(o *external.Options) { o.URL = "" },
		"no scheme":           func(o *external.Options) { o.URL = "localhost:1" },
		"another scheme":      func(o *external.Options) { o.URL = "file:///x" },
		"a key in the URL":    func(o *external.Options) { o.URL = strings.Replace(o.URL, "http://", "http://u:p@", 1) },
		"a query":             func(o *external.Options) { o.URL += "?x=1" },
		"unknown dialect":     func(o *external.Options) { o.Dialect = "openai" },
		"no model":            func(o *external.Options) { o.Model = "" },
		"no configuration":    func(o *external.Options) { o.Config = model.Config{} },
		"negative version":    func(o *external.Options) { o.Version = -1 },
		"record too wide":     func(o *external.Options) { o.TopK = cfg.Vocab + 1 },
		"negative record":     func(o *external.Options) { o.TopK = -1 },
		"context too long":    func(o *external.Options) { o.Context = cfg.MaxPosition + 1 },
		"context too short":   func(o *external.Options) { o.Context = 5 },
		"negative tolerance":  func(o *external.Options) { o.Tolerance = -1 },
		"tolerance no number": func(o *external.Options) { o.Tolerance = math.NaN() },
		"negative idle time":  func(o *external.Options) { o.Idle = -1 },
		"the other dialect":   func(o *external.Options) { o.Dialect = external.SGLang },
	} {
		o := options(server, external.VLLM)
		change(&o)
		if _, err := external.New(t.Context(), o); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
	server.Key = "secret"
	o := options(server, external.VLLM)
	o.Key = "wrong-key"
	if _, err := external.New(t.Context(), o); !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), o.Key) || !strings.Contains(fault.HintOf(err), "key") {
		t.Errorf("a wrong key: %v", err)
	}
	gone := options(server, external.VLLM)
	gone.URL = "http://127.0.0.1:1"
	if _, err := external.New(t.Context(), gone); !fault.Is(err, fault.Lost) {
		t.Errorf("nobody there: %v, want Lost", err)
	}
}

// A server is told everything by name, so that its defaults do not matter, and small defaults of the options work.
func TestNew_defaults(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects {
		server := externaltest.Start(t, dialect, weights(1))
		s := connect(t, external.Options{URL: server.URL, Dialect: dialect, Model: externaltest.ModelName, Config: cfg})
		q := request(3, 1, "defaults")
		q.TopK = 1
		if toks, _, err := collect(t.Context(), s, q); err != nil || len(toks) != 3 || s.Version() != 0 {
			t.Errorf("%s: %d tokens of version %d, %v", dialect, len(toks), s.Version(), err)
		}
	}
}

func TestGenerate_refusesBadRequests(t *testing.T) {
	t.Parallel()
	server := externaltest.Start(t, external.VLLM, weights(1))
	s := connect(t, options(server, external.VLLM))
	other, same := 6, 7
	before := len(server.Asked())
	for _, tt := range []struct {
		name string
		edit func(*engine.Request)
		want fault.Kind
	}{
		{"no tokens", func(q *engine.Request) { q.Tokens = nil }, fault.Invalid},
		{"id outside", func(q *engine.Request) { q.Tokens[0] = 37 }, fault.Invalid},
		{"negative id", func(q *engine.Request) { q.Tokens[0] = -1 }, fault.Invalid},
		{"nothing to sample", func(q *engine.Request) { q.MaxNew = 0 }, fault.Invalid},
		{"temperature 0", func(q *engine.Request) { q.Temperature = 0 }, fault.Invalid},
		{"temperature infinite", func(q *engine.Request) { q.Temperature = math.Inf(1) }, fault.Invalid},
		{"a wider record than was proved", func(q *engine.Request) { q.TopK = width + 1 }, fault.Invalid},
		{"too long", func(q *engine.Request) { q.MaxNew = 60 }, fault.Exhausted},
		{"another version", func(q *engine.Request) { q.PinVersion = &other }, fault.Stale},
	} {
		q := request(3, 1, "bad")
		tt.edit(&q)
		if _, _, err := collect(t.Context(), s, q); !fault.Is(err, tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	for name, tokens := range map[string][]int32{"nothing": nil, "id outside": {1, 37}} {
		if _, err := s.Score(t.Context(), tokens); !fault.Is(err, fault.Invalid) {
			t.Errorf("Score of %s: %v, want Invalid", name, err)
		}
	}
	if _, err := s.Score(t.Context(), make([]int32, 64)); !fault.Is(err, fault.Exhausted) {
		t.Errorf("Score of too much: %v, want Exhausted", err)
	}
	if n := len(server.Asked()); n != before {
		t.Errorf("the server was asked %d times", n-before)
	}
	q := request(2, 1, "good")
	q.PinVersion = &same
	if _, _, err := collect(t.Context(), s, q); err != nil {
		t.Errorf("pinned to the server's version: %v", err)
	}
	// Training of any mode needs new weights after a step: there is no way to give them to the server.
	for _, version := range []int{7, 8} {
		if err := s.SetWeights(t.Context(), version, weights(2)); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" || s.Version() != 7 {
			t.Errorf("SetWeights(%d): %v, version %d; want Invalid with a hint, and 7", version, err, s.Version())
		}
	}
}

func TestGenerate_endings(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects {
		server := externaltest.Start(t, dialect, weights(1))
		s := connect(t, options(server, dialect))
		q := request(20, 1, "end")
		full, n := errors.New("disk full"), 0
		if _, err := s.Generate(t.Context(), q, func(engine.Token) error { n++; return full }); !errors.Is(err, full) || n != 1 {
			t.Errorf("%s: error of the sink: %v after %d tokens, want it after 1", dialect, err, n)
		}
		server.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		n = 0
		_, err := s.Generate(ctx, q, func(engine.Token) error {
			if n++; n == 2 {
				cancel()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: cancelled: %v after %d tokens", dialect, err, n)
		}
		server.Wait() // the server stopped too
		server.Set(externaltest.Hangs)
		first, end := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := s.Generate(context.WithoutCancel(t.Context()), q, func(engine.Token) error { close(first); return nil })
			end <- err
		}()
		<-first
		for range 2 {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if err := <-end; !fault.Is(err, fault.Lost) {
			t.Errorf("%s: running at Close: %v, want Lost", dialect, err)
		}
		server.Wait()
		server.Set(externaltest.None)
		if _, _, err := collect(t.Context(), s, q); !fault.Is(err, fault.Lost) {
			t.Errorf("%s: after Close: %v, want Lost", dialect, err)
		}
	}
}

// stream is a server that answers everything with the same events, and then with what ends them.
type stream struct {
	body func(ctx context.Context) io.Reader
}

func (s stream) RoundTrip(q *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(s.body(q.Context())), Request: q}, nil
}

// silence is a reader that gives nothing until its context ends.
type silence struct{ ctx context.Context } //nolint:containedctx // of the one request

func (s silence) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// The idle time is that of the server: a slow receiver does not use it up, a silent server does, at whatever place of the answer. Clocks here
// are not real.
func TestGenerate_idleTime(t *testing.T) {
	t.Parallel()
	const (
		event = `data: {"model": "served", "choices": [{"token_ids": [3], "prompt_token_ids": [1, 2], "finish_reason": %s,
 "logprobs": {"tokens": ["token_id:3"], "token_logprobs": [-0.5], "top_logprobs": [{"token_id:3": -0.5}]}}]}`
		idle = time.Minute
	)
	one := strings.ReplaceAll(strings.ReplaceAll(event, "\n", ""), "%s", "null") + "\n\n"
	last := strings.ReplaceAll(strings.ReplaceAll(event, "\n", ""), "%s", `"length"`) + "\n\n" + "data: [DONE]\n\n"
	for _, tt := range []struct {
		name   string
		before string
		hangs  bool
		sink   time.Duration
		tokens int
		want   fault.Kind
		took   time.Duration
	}{
		{"a slow receiver", one + last, false, 5 * idle, 2, "", 10 * idle},
		{"silence at once", "", true, 0, 0, fault.Lost, idle},
		{"silence in a line", one + last[:40], true, 0, 1, fault.Lost, idle},
		{"silence after a token", one, true, 0, 1, fault.Lost, idle},
		{"silence after a token, and a slow receiver", one, true, 3 * idle, 1, fault.Lost, 4 * idle},
		{"silence behind the last token is no matter", one + last, true, 0, 2, "", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, err := external.Unproved(external.Options{
				URL: "http://server", Dialect: external.VLLM, Model: "served", Config: cfg, Idle: idle,
				Client: &http.Client{Transport: stream{func(ctx context.Context) io.Reader {
					if tt.hangs {
						return io.MultiReader(strings.NewReader(tt.before), silence{ctx})
					}
					return strings.NewReader(tt.before)
				}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			began, n := time.Now(), 0
			_, err = s.Generate(t.Context(), engine.Request{Tokens: []int32{1, 2}, MaxNew: 2, Sampling: engine.Sampling{Temperature: 1, TopK: 1}}, func(engine.Token) error {
				n++
				if tt.sink > 0 {
					<-time.After(tt.sink)
				}
				return nil
			})
			if fault.KindOf(err) != tt.want || n != tt.tokens || time.Since(began) != tt.took {
				t.Errorf("%s: %d tokens after %v, %v; want %d after %v and %q", tt.name, n, time.Since(began), err, tt.tokens, tt.took, tt.want)
			}
		})
	}
}

func TestGenerate_sideBySide(t *testing.T) {
	t.Parallel()
	server := externaltest.Start(t, external.SGLang, weights(1))
	o := options(server, external.SGLang)
	o.Client = &http.Client{Transport: &http.Transport{MaxConnsPerHost: 3}}
	s := connect(t, o)
	var wg sync.WaitGroup
	got := make([][]engine.Token, 8)
	errs := make([]error, len(got))
	for i := range got {
		wg.Go(func() { got[i], _, errs[i] = collect(t.Context(), s, request(5, 1, i)) })
	}
	wg.Wait()
	for i := range got {
		want, _ := direct(t, request(5, 1, i))
		if errs[i] != nil || len(got[i]) != 5 {
			t.Fatalf("request %d: %d tokens, %v", i, len(got[i]), errs[i])
		}
		same(t, want, got[i])
	}
}
