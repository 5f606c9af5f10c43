// Package externaltest is a server for tests of external samplers: the reference engine behind the HTTP of vLLM or SGLang, as far as they are
// used, and faults that such servers have.
package externaltest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rng"
)

// Fault is something that a server does wrong.
type Fault string

// Faults.
const (
	None           Fault = ""
	TextOnly       Fault = "tokens as text"
	Narrow         Fault = "records of two entries"
	Refuses        Fault = "refuses wide records"
	NoLogProbs     Fault = "no log-probabilities"
	NullLogProb    Fault = "null as a log-probability"
	NoRecords      Fault = "no records"
	Raw            Fault = "log-probabilities before the temperature"
	IgnoresT       Fault = "ignores the temperature"
	OtherT         Fault = "another temperature at all times"
	OtherTAlways1  Fault = "another temperature, but for 1"
	Truncates      Fault = "samples the three most probable"
	Clamps         Fault = "prints -9999 behind the three most probable"
	AddsToken      Fault = "adds a token to the prompt"
	NoPromptCount  Fault = "does not say what the prompt was"
	StripsStop     Fault = "strips stop tokens"
	IgnoresStop    Fault = "ignores stop tokens"
	NoScore        Fault = "does not score prompts"
	OtherScore     Fault = "scores with other weights"
	Breaks         Fault = "ends the stream after one token"
	Aborts         Fault = "cuts the connection after one token"
	Hangs          Fault = "hangs after one token"
	HangsAtOnce    Fault = "hangs before the first byte"
	ErrorEvent     Fault = "sends an error event after one token"
	Abort          Fault = "ends a request as aborted"
	EarlyLength    Fault = "ends by length too early"
	OneMore        Fault = "sends a token too many"
	Twice          Fault = "records an id twice"
	Disagrees      Fault = "says another log-probability than its record"
	OutsideHead    Fault = "says a log-probability above its record for a token outside"
	OutsideVocab   Fault = "samples an id outside of the vocabulary"
	OtherModel     Fault = "answers for another model"
	OtherWeights   Fault = "has other weights than before"
	HTML           Fault = "answers with a page"
	NotJSON        Fault = "sends an event that is not JSON"
	LongLine       Fault = "sends an event without end"
	Status400      Fault = "400"
	Status401      Fault = "401"
	Status404      Fault = "404"
	Status429      Fault = "429"
	Status500      Fault = "500"
	Status503      Fault = "503"
	Redirects      Fault = "redirects"
	ShortContext   Fault = "has a short context"
	OtherName      Fault = "serves another name"
	GoesOnPastStop Fault = "sends a token behind a stop token"
)

// ModelName is the name of the model that is served.
const ModelName = "served"

// Server is a running server. Its fields may be set before the first request.
type Server struct {
	URL string
	// Key, if set, must come as a bearer token.
	Key string
	// Increments makes SGLang's pieces hold only what is new.
	Increments bool
	// Batch is the number of tokens in a piece; 0 means 1.
	Batch int

	dialect string
	cfg     model.Config
	sampler engine.Sampler
	mu      sync.Mutex
	fault   Fault
	open    int
	idle    *sync.Cond
	asked   []Asked
}

// Asked is a request for tokens as it came.
type Asked struct {
	Prompt []int32
	Seed   uint64
}

// Start runs a server of a dialect ("vllm" or "sglang") with weights until the test ends.
func Start(t testing.TB, dialect string, w *model.Weights) *Server {
	t.Helper()
	s := &Server{dialect: dialect, cfg: w.Config}
	s.idle = sync.NewCond(&s.mu)
	var err error
	if s.sampler, err = ref.NewSampler(w.Config); err != nil {
		t.Fatal(err)
	}
	if err := s.sampler.SetWeights(t.Context(), 0, w); err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.URL = h.URL
	return s
}

// Set changes what the server does wrong.
func (s *Server) Set(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Asked returns the requests for tokens so far.
func (s *Server) Asked() []Asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// Wait returns when no request runs.
func (s *Server) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.open > 0 {
		s.idle.Wait()
	}
}

// Stream is the random stream that the server draws with for a seed.
func Stream(seed uint64) rng.Stream { return rng.New(seed, rng.Train, "server") }

// query is what is read of a request, in the words of both dialects.
type query struct {
	Model    string  `json:"model"`
	Prompt   []int32 `json:"prompt"`
	Max      int     `json:"max_tokens"`
	LogProbs *int    `json:"logprobs"`
	Score    *int    `json:"prompt_logprobs"`
	AsIDs    bool    `json:"return_tokens_as_token_ids"`
	WithIDs  bool    `json:"return_token_ids"`
	Seed     uint64  `json:"seed"`
	Stream   bool    `json:"stream"`
	params
	Input    []int32 `json:"input_ids"`
	Sampling params  `json:"sampling_params"`
	Width    int     `json:"top_logprobs_num"`
	Return   bool    `json:"return_logprob"`
	From     int     `json:"logprob_start_len"`
}

type params struct {
	Temperature float64 `json:"temperature"`
	TopP        float64 `json:"top_p"`
	TopK        int     `json:"top_k"`
	Stop        []int32 `json:"stop_token_ids"`
	IgnoreEOS   bool    `json:"ignore_eos"`
	MaxNew      int     `json:"max_new_tokens"`
	Seed        uint64  `json:"sampling_seed"`
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	f := s.fault
	s.open++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		s.idle.Broadcast()
	}()
	if s.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.Key {
		http.Error(w, `{"error": "no key"}`, http.StatusUnauthorized)
		return
	}
	switch r.URL.Path {
	case map[string]string{"vllm": "/v1/models", "sglang": "/get_model_info"}[s.dialect]:
		s.models(w, f)
	case map[string]string{"vllm": "/v1/completions", "sglang": "/generate"}[s.dialect]:
		if !s.outage(w, r, f) {
			s.answer(w, r, f)
		}
	default:
		http.NotFound(w, r)
	}
}

// outage answers with what has nothing to do with the request.
func (s *Server) outage(w http.ResponseWriter, r *http.Request, f Fault) bool {
	status := map[Fault]int{Status400: 400, Status401: 401, Status404: 404, Status429: 429, Status500: 500, Status503: 503}[f]
	switch {
	case status > 0:
		http.Error(w, "status "+string(f), status)
	case f == Redirects:
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	case f == HTML:
		fmt.Fprint(w, "<html>welcome</html>\n")
	case f == NotJSON:
		fmt.Fprint(w, "data: {\n\n")
	case f == HangsAtOnce:
		_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not seen
		<-r.Context().Done()
	case f == LongLine:
		fmt.Fprint(w, "data: ")
		for range 9 << 10 {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				break
			}
		}
	default:
		return false
	}
	return true
}

func (s *Server) models(w http.ResponseWriter, f Fault) {
	name, length, weights := ModelName, s.cfg.MaxPosition, "w1"
	switch f {
	case OtherName:
		name = "another"
	case ShortContext:
		length--
	default:
	}
	if s.dialect == "sglang" {
		write(w, map[string]any{"model_path": name, "is_generation": true, "weight_version": weights, "context_length": length})
		return
	}
	write(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": "x", "max_model_len": 1}, map[string]any{"id": name, "max_model_len": length}}})
}

func write(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) } // the client may be gone

// said is a token as the server has it.
type said struct {
	id  int32
	lp  float64
	top []pair
}

type pair struct {
	id int32
	lp float64
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, f Fault) {
	var q query
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.dialect == "sglang" {
		q.Prompt, q.Max, q.params, q.Seed = q.Input, q.Sampling.MaxNew, q.Sampling, q.Sampling.Seed
		q.LogProbs = &q.Width
	}
	if !q.IgnoreEOS || q.TopP != 1 || q.TopK != -1 || s.dialect == "vllm" && (!q.WithIDs || q.Model != ModelName) || s.dialect == "sglang" && !q.Return {
		http.Error(w, "the request relies on a default", http.StatusBadRequest)
		return
	}
	if !q.Stream {
		s.score(w, r, q, f)
		return
	}
	if f == Refuses && *q.LogProbs > 2 {
		http.Error(w, fmt.Sprintf("Requested sample logprobs of %d, which is greater than max allowed: 2", *q.LogProbs), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, Asked{q.Prompt, q.Seed})
	s.mu.Unlock()
	s.generate(w, r, q, f)
}

func (s *Server) score(w http.ResponseWriter, r *http.Request, q query, f Fault) {
	lps, err := s.sampler.Score(r.Context(), q.Prompt)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	byToken, triples := []any{nil}, []any{[]any{nil, q.Prompt[0], nil}}
	for i, id := range q.Prompt[1:] {
		lp := lps[i]
		if f == OtherScore {
			lp *= 2
		}
		byToken = append(byToken, map[string]any{fmt.Sprint(id): map[string]any{"logprob": lp, "rank": 1, "decoded_token": "x"}})
		triples = append(triples, []any{lp, id, nil})
	}
	if f == NoScore {
		byToken, triples = nil, nil
	}
	if s.dialect == "sglang" {
		write(w, map[string]any{"text": "x", "output_ids": []int{0}, "meta_info": map[string]any{
			"prompt_tokens": len(q.Prompt), "completion_tokens": 1, "input_token_logprobs": triples, "finish_reason": map[string]any{"type": "length"},
		}})
		return
	}
	write(w, map[string]any{"model": ModelName, "choices": []any{map[string]any{"index": 0, "text": "x", "prompt_logprobs": byToken, "finish_reason": "length"}}})
}

// distribution is the next token behind tokens and the whole distribution, most probable first.
func (s *Server) distribution(ctx context.Context, tokens []int32, t float64, random rng.Stream) (said, error) {
	var out said
	_, err := s.sampler.Generate(ctx, engine.Request{
		Tokens: tokens, MaxNew: 1, Sampling: engine.Sampling{Temperature: t, TopK: s.cfg.Vocab}, Random: random,
	}, func(tok engine.Token) error {
		out.id, out.lp = tok.ID, float64(tok.LogProb)
		for i, id := range tok.TopIDs {
			out.top = append(out.top, pair{id, float64(tok.TopLogProbs[i])})
		}
		return nil
	})
	return out, err
}

// next is the next token as a server with the fault f says it.
func (s *Server) next(ctx context.Context, tokens []int32, q query, f Fault) (said, error) {
	t, random := q.Temperature, Stream(q.Seed)
	switch {
	case f == IgnoresT:
		t = 1
	case f == OtherT, f == OtherTAlways1 && t != 1:
		t *= 1.7
	default:
	}
	tok, err := s.distribution(ctx, tokens, t, random)
	if err != nil {
		return tok, err
	}
	if f == Raw {
		raw, err := s.distribution(ctx, tokens, 1, random)
		if err != nil {
			return tok, err
		}
		tok.top = raw.top
		tok.lp = raw.top[slices.IndexFunc(raw.top, func(p pair) bool { return p.id == tok.id })].lp
	}
	const kept = 3
	if f == Truncates || f == Clamps {
		tok.top = truncate(tok.top, kept)
		if i := slices.IndexFunc(tok.top[:kept], func(p pair) bool { return p.id == tok.id }); i >= 0 {
			tok.lp = tok.top[i].lp
		} else {
			tok.id, tok.lp = tok.top[0].id, tok.top[0].lp
		}
		if f == Truncates {
			tok.top = append(tok.top[:kept:kept], fill(tok.top[kept:])...)
		}
	}
	return tok, nil
}

// truncate makes a distribution of the n first.
func truncate(top []pair, n int) []pair {
	mass := 0.0
	for _, p := range top[:n] {
		mass += math.Exp(p.lp)
	}
	out := slices.Clone(top)
	for i := range out {
		if out[i].lp -= math.Log(mass); i >= n {
			out[i].lp = -9999
		}
	}
	return out
}

// fill gives tiny probabilities in place of none, as a server that hides its truncation.
func fill(top []pair) []pair {
	for i := range top {
		top[i].lp = -40 - float64(i)
	}
	return top
}

// piece is what a piece of a stream says.
type piece struct {
	toks   []said
	finish string
	total  int
	all    []said
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request, q query, f Fault) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := w.(http.Flusher).Flush //nolint:forcetypeassert // of httptest
	tokens := slices.Clone(q.Prompt)
	if f == AddsToken {
		tokens = append([]int32{0}, tokens...)
	}
	prompt := slices.Clone(tokens)
	limit, p := q.Max, piece{}
	switch f {
	case OneMore:
		limit++
	case EarlyLength:
		limit = 1
	default:
	}
	fmt.Fprint(w, ": hello\n\n")
	for p.finish == "" {
		tok, err := s.next(r.Context(), tokens, q, f)
		if err != nil {
			fmt.Fprintf(w, "data: {\"error\": {\"message\": %q}}\n\n", err)
			return
		}
		tokens = append(tokens, tok.id)
		stop := slices.Contains(q.Stop, tok.id) && f != IgnoresStop
		p.all = append(p.all, spoil(tok, f, s.cfg.Vocab))
		p.toks = append(p.toks, p.all[len(p.all)-1])
		switch {
		case stop && f == StripsStop:
			p.toks, p.all, p.finish = p.toks[:len(p.toks)-1], p.all[:len(p.all)-1], "stop"
		case stop && f == GoesOnPastStop:
			p.toks, p.all, p.finish = append(p.toks, tok), append(p.all, tok), "stop"
		case stop:
			p.finish = "stop"
		case len(p.all) >= limit:
			p.finish = "length"
		}
		if f == Abort && p.finish != "" {
			p.finish = "abort"
		}
		if len(p.toks) < max(s.Batch, 1) && p.finish == "" {
			continue
		}
		p.total = len(p.all)
		data, _ := json.Marshal(s.piece(p, prompt, q, f)) //nolint:errchkjson // maps of numbers and strings
		fmt.Fprintf(w, "data: %s\n\n", data)
		flush()
		p.toks = nil
		switch f {
		case Breaks:
			return
		case Aborts:
			panic(http.ErrAbortHandler)
		case Hangs:
			<-r.Context().Done()
			return
		case ErrorEvent:
			fmt.Fprint(w, "data: {\"error\": {\"message\": \"engine died\", \"code\": 500}}\n\n")
			return
		default:
		}
	}
	if s.dialect == "vllm" && f != NoPromptCount {
		fmt.Fprintf(w, "data: {\"model\": %q, \"choices\": [], \"usage\": {\"prompt_tokens\": %d}}\n\n", ModelName, len(prompt))
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// spoil changes a token after it was sampled.
func spoil(tok said, f Fault, vocab int) said {
	switch f {
	case OutsideVocab:
		tok.id = int32(vocab) //nolint:gosec // small
	case Disagrees:
		tok.lp -= 0.5
	case Twice:
		tok.top = slices.Clone(tok.top)
		tok.top[1].id = tok.top[0].id
	case OutsideHead:
		tok.top = slices.DeleteFunc(slices.Clone(tok.top), func(p pair) bool { return p.id == tok.id })
		tok.lp = 0
	default:
	}
	return tok
}

// record is the record of a token at a width; the sampled token is part of vLLM's in any case.
func (s *Server) record(tok said, width int, f Fault) []pair {
	if f == Narrow {
		width = min(width, 2)
	}
	out := slices.Clone(tok.top[:min(width, len(tok.top))])
	in := func(p pair) bool { return p.id == tok.id }
	if s.dialect == "vllm" && f != OutsideHead && f != Narrow && !slices.ContainsFunc(out, in) {
		out = append(out, pair{tok.id, tok.lp})
	}
	return out
}

func (s *Server) piece(p piece, prompt []int32, q query, f Fault) any {
	if s.dialect == "sglang" {
		return s.sglangPiece(p, prompt, q, f)
	}
	name := func(id int32) string {
		if f == TextOnly || !q.AsIDs {
			return fmt.Sprintf("<%d>", id)
		}
		return fmt.Sprintf("token_id:%d", id)
	}
	ids, tokens, lps, tops := []int32{}, []string{}, []any{}, []any{}
	for _, tok := range p.toks {
		ids, tokens = append(ids, tok.id), append(tokens, name(tok.id))
		if lps = append(lps, tok.lp); f == NullLogProb {
			lps[len(lps)-1] = nil
		}
		top := map[string]float64{}
		for i, e := range s.record(tok, *q.LogProbs, f) {
			key := name(e.id)
			if f == Twice && i == 1 {
				key = "token_id:0" + key[len("token_id:"):] // the same id, written otherwise
			}
			top[key] = e.lp
		}
		tops = append(tops, top)
	}
	c := map[string]any{"index": 0, "text": "x", "finish_reason": nil, "token_ids": ids}
	if p.finish != "" {
		c["finish_reason"] = p.finish
	}
	if f == TextOnly {
		delete(c, "token_ids")
	} else if p.total == len(p.toks) && f != NoPromptCount {
		c["prompt_token_ids"] = prompt
	}
	if f != NoLogProbs {
		c["logprobs"] = map[string]any{"tokens": tokens, "token_logprobs": lps, "top_logprobs": tops, "text_offset": []int{}}
	}
	if f == NoRecords {
		delete(c["logprobs"].(map[string]any), "top_logprobs") //nolint:forcetypeassert // see above
	}
	m := ModelName
	if f == OtherModel {
		m = "another"
	}
	return map[string]any{"id": "c", "object": "text_completion", "model": m, "choices": []any{c}, "usage": nil}
}

func (s *Server) sglangPiece(p piece, prompt []int32, q query, f Fault) any {
	shown := p.all
	if s.Increments {
		shown = p.toks
	}
	ids, lps, tops := []int32{}, []any{}, []any{}
	for _, tok := range shown {
		ids = append(ids, tok.id)
		var lp any = tok.lp
		if f == NullLogProb {
			lp = nil
		}
		lps = append(lps, []any{lp, tok.id, nil})
		var top []any
		for _, e := range s.record(tok, q.Width, f) {
			top = append(top, []any{e.lp, e.id, nil})
		}
		tops = append(tops, top)
	}
	meta := map[string]any{
		"id": "c", "prompt_tokens": len(prompt), "completion_tokens": p.total, "finish_reason": nil, "weight_version": "w1",
		"output_token_logprobs": lps, "output_top_logprobs": tops,
	}
	out := map[string]any{"text": "x", "output_ids": ids, "meta_info": meta}
	if p.finish != "" {
		meta["finish_reason"] = map[string]any{"type": p.finish}
	}
	switch f {
	case TextOnly:
		delete(out, "output_ids")
	case NoLogProbs:
		delete(meta, "output_token_logprobs")
		delete(meta, "output_top_logprobs")
	case NoRecords:
		delete(meta, "output_top_logprobs")
	case NoPromptCount:
		delete(meta, "prompt_tokens")
	case OtherWeights:
		meta["weight_version"] = "w2"
	default:
	}
	return out
}
