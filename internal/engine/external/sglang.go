package external

import (
	"encoding/json"

	"github.com/steadyrl/steady/internal/engine"
)

// sglang speaks SGLang's own /generate; its OpenAI paths have tokens as text only.
type sglang struct{}

func (sglang) models() string { return "/get_model_info" }

func (sglang) named(data []byte, model string) (ok bool, context int, weights string, err error) {
	var info struct {
		Path    string `json:"model_path"`
		Served  string `json:"served_model_name"`
		Weights string `json:"weight_version"`
		Context int    `json:"context_length"`
	}
	err = decode(data, &info)
	return err == nil && (info.Path == model || info.Served == model), info.Context, info.Weights, err
}

func (sglang) generate(_ string, r engine.Request, width int) (string, any) {
	p := plain(r.Temperature)
	p["max_new_tokens"], p["n"], p["stop_token_ids"], p["sampling_seed"] = r.MaxNew, 1, append([]int32{}, r.Stop...), seed(r)
	return "/generate", map[string]any{
		"input_ids": r.Tokens, "sampling_params": p, "return_logprob": true, "top_logprobs_num": width, "logprob_start_len": -1, "stream": true,
	}
}

// triple is [log-probability, id, text or null].
type triple struct {
	lp *float64
	id int32
}

func (t *triple) UnmarshalJSON(data []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) < 2 {
		return broken("a log-probability of %d parts", len(parts))
	}
	if err := json.Unmarshal(parts[0], &t.lp); err != nil {
		return err
	}
	return json.Unmarshal(parts[1], &t.id)
}

// sglangPiece is a piece of a stream, or a whole answer.
type sglangPiece struct {
	IDs  []int32 `json:"output_ids"`
	Meta *struct {
		Prompt    *int   `json:"prompt_tokens"`
		Completed *int   `json:"completion_tokens"`
		Weights   string `json:"weight_version"`
		Finish    *struct {
			Type string `json:"type"`
		} `json:"finish_reason"`
		Tokens []triple   `json:"output_token_logprobs"`
		Top    [][]triple `json:"output_top_logprobs"`
		Input  []triple   `json:"input_token_logprobs"`
	} `json:"meta_info"`
}

// newest returns the part of a list behind the first seen of total elements; pieces hold all so far, or what is new.
func newest[T any](list []T, seen, total int) ([]T, bool) {
	switch len(list) {
	case total:
		return list[seen:], true
	case total - seen:
		return list, true
	}
	return nil, false
}

func (sglang) chunk(data []byte, a *answer) ([]token, error) {
	var p sglangPiece
	if err := decode(data, &p); err != nil {
		return nil, err
	}
	m := p.Meta
	if m == nil || m.Completed == nil || *m.Completed < a.seen {
		return nil, broken("no meta_info, or no count of tokens that grows").WithHint("the server must be SGLang")
	}
	if m.Prompt != nil {
		a.prompt = *m.Prompt
	}
	if a.weights = m.Weights; m.Finish != nil {
		a.finish = m.Finish.Type
	}
	total := *m.Completed
	if total == a.seen {
		return nil, nil
	}
	ids, ok1 := newest(p.IDs, a.seen, total)
	lps, ok2 := newest(m.Tokens, a.seen, total)
	tops, ok3 := newest(m.Top, a.seen, total)
	if !ok1 || !ok2 || !ok3 {
		return nil, broken("%d tokens with %d ids, %d log-probabilities and %d records; %d were there before", total, len(p.IDs), len(m.Tokens), len(m.Top), a.seen).
			WithHint("the server must send output_ids, output_token_logprobs and output_top_logprobs")
	}
	toks := make([]token, len(ids))
	for i, id := range ids {
		if lps[i].id != id || lps[i].lp == nil {
			return nil, broken("token %d has the log-probability of token %d, or none", id, lps[i].id)
		}
		toks[i] = token{id: id, lp: *lps[i].lp}
		for _, e := range tops[i] {
			if e.lp == nil {
				return nil, broken("an entry of a record has no log-probability")
			}
			toks[i].top = append(toks[i].top, entry{e.id, *e.lp})
		}
	}
	a.seen = total
	return toks, nil
}

func (sglang) score(_ string, tokens []int32) (string, any) {
	p := plain(1)
	p["max_new_tokens"], p["n"] = 1, 1
	return "/generate", map[string]any{
		"input_ids": tokens, "sampling_params": p, "return_logprob": true, "top_logprobs_num": 0, "logprob_start_len": 0, "stream": false,
	}
}

func (sglang) scores(data []byte, tokens []int32) ([]float32, error) {
	var p sglangPiece
	if err := decode(data, &p); err != nil {
		return nil, err
	}
	if p.Meta == nil || len(p.Meta.Input) != len(tokens) {
		return nil, broken("no log-probabilities of the prompt, or not one for each token").WithHint("the server must know logprob_start_len; SGLang does")
	}
	out := make([]float32, 0, len(tokens)-1)
	for i, id := range tokens {
		e := p.Meta.Input[i]
		if e.id != id {
			return nil, broken("token %d of the prompt was %d and became %d", i, id, e.id).WithHint("the server must take token ids and add none")
		}
		if i == 0 {
			continue // it has no prefix
		}
		if e.lp == nil {
			return nil, broken("no log-probability of token %d of the prompt", i)
		}
		out = append(out, float32(*e.lp))
	}
	return out, nil
}
