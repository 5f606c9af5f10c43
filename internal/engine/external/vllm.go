package external

import (
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/engine"
)

// vllm speaks OpenAI's completions with vLLM's additions: return_token_ids, return_tokens_as_token_ids, stop_token_ids, prompt_logprobs.
type vllm struct{}

func (vllm) models() string { return "/v1/models" }

func (vllm) named(data []byte, model string) (ok bool, context int, weights string, err error) {
	var list struct {
		Data []struct {
			ID     string `json:"id"`
			MaxLen int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := decode(data, &list); err != nil {
		return false, 0, "", err
	}
	for _, m := range list.Data {
		if m.ID == model {
			return true, m.MaxLen, "", nil
		}
	}
	return false, 0, "", nil
}

// plain are the fields that switch off everything between the model's distribution and the draw; a server may have other defaults, also
// from the model's generation_config.json.
func plain(temperature float64) map[string]any {
	return map[string]any{
		"temperature": temperature, "top_p": 1, "top_k": -1, "min_p": 0,
		"presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1, "ignore_eos": true, "skip_special_tokens": false,
	}
}

func (vllm) generate(model string, r engine.Request, width int) (string, any) {
	b := plain(r.Temperature)
	b["model"], b["prompt"], b["max_tokens"], b["n"], b["logprobs"], b["stream"] = model, r.Tokens, r.MaxNew, 1, width, true
	b["stop_token_ids"], b["seed"], b["echo"] = append([]int32{}, r.Stop...), seed(r), false
	b["return_token_ids"], b["return_tokens_as_token_ids"] = true, true
	b["stream_options"] = map[string]any{"include_usage": true}
	return "/v1/completions", b
}

// seed is the draw of the first new position in 31 bits, which every server takes.
func seed(r engine.Request) int64 {
	return int64(r.Random.Uint64(uint64(len(r.Tokens))) >> 33) //nolint:gosec // 31 bits
}

// vllmPiece is a piece of a completion, or a whole one.
type vllmPiece struct {
	Model   string `json:"model"`
	Choices []struct {
		TokenIDs  []int32 `json:"token_ids"`
		PromptIDs []int32 `json:"prompt_token_ids"`
		Finish    *string `json:"finish_reason"`
		LogProbs  *struct {
			Tokens   []string             `json:"tokens"`
			LogProbs []*float64           `json:"token_logprobs"`
			Top      []map[string]float64 `json:"top_logprobs"`
		} `json:"logprobs"`
		PromptLogProbs []map[string]struct {
			LogProb *float64 `json:"logprob"`
		} `json:"prompt_logprobs"`
	} `json:"choices"`
	Usage *struct {
		Prompt int `json:"prompt_tokens"`
	} `json:"usage"`
}

func (vllm) chunk(data []byte, a *answer) ([]token, error) {
	var p vllmPiece
	if err := decode(data, &p); err != nil {
		return nil, err
	}
	a.model = p.Model
	if p.Usage != nil {
		a.prompt = p.Usage.Prompt
	}
	if len(p.Choices) == 0 {
		return nil, nil
	}
	if len(p.Choices) > 1 {
		return nil, broken("%d choices, asked for was one", len(p.Choices))
	}
	c := p.Choices[0]
	if c.PromptIDs != nil {
		a.promptIDs = c.PromptIDs
	}
	if c.Finish != nil {
		a.finish = *c.Finish
	}
	if c.LogProbs == nil {
		if len(c.TokenIDs) > 0 {
			return nil, broken("tokens without log-probabilities")
		}
		return nil, nil
	}
	l := c.LogProbs
	if len(l.LogProbs) != len(l.Tokens) || len(l.Top) != len(l.Tokens) || c.TokenIDs != nil && len(c.TokenIDs) != len(l.Tokens) {
		return nil, broken("%d tokens with %d ids, %d log-probabilities and %d records", len(l.Tokens), len(c.TokenIDs), len(l.LogProbs), len(l.Top))
	}
	var toks []token
	for i, text := range l.Tokens {
		id, ok := tokenID(text)
		if !ok {
			return nil, broken("the token %.40q is text, not an id", text).WithHint(textHint)
		}
		if c.TokenIDs != nil && c.TokenIDs[i] != id {
			return nil, broken("a token has the ids %d and %d", c.TokenIDs[i], id)
		}
		if l.LogProbs[i] == nil {
			return nil, broken("token %d has no log-probability", id)
		}
		t := token{id: id, lp: *l.LogProbs[i]}
		for text, lp := range l.Top[i] {
			id, ok := tokenID(text)
			if !ok {
				return nil, broken("the entry %.40q of a record is text, not an id", text).WithHint(textHint)
			}
			t.top = append(t.top, entry{id, lp})
		}
		toks = append(toks, t)
	}
	a.seen += len(toks)
	return toks, nil
}

const textHint = "the server must know return_tokens_as_token_ids; vLLM does"

func tokenID(text string) (int32, bool) {
	digits, ok := strings.CutPrefix(text, "token_id:")
	n, err := strconv.ParseInt(digits, 10, 32)
	return int32(n), ok && err == nil
}

func (vllm) score(model string, tokens []int32) (string, any) {
	b := plain(1)
	b["model"], b["prompt"], b["max_tokens"], b["n"], b["prompt_logprobs"], b["stream"] = model, tokens, 1, 1, 0, false
	b["return_token_ids"] = true
	return "/v1/completions", b
}

func (vllm) scores(data []byte, tokens []int32) ([]float32, error) {
	var p vllmPiece
	if err := decode(data, &p); err != nil {
		return nil, err
	}
	if len(p.Choices) != 1 || len(p.Choices[0].PromptLogProbs) != len(tokens) {
		return nil, broken("no log-probabilities of the prompt, or not one for each token").WithHint("the server must know prompt_logprobs; vLLM does")
	}
	out := make([]float32, 0, len(tokens)-1)
	for i, id := range tokens[1:] {
		e, ok := p.Choices[0].PromptLogProbs[i+1][strconv.Itoa(int(id))]
		if !ok || e.LogProb == nil {
			return nil, broken("no log-probability of token %d of the prompt, id %d", i+1, id)
		}
		out = append(out, float32(*e.LogProb))
	}
	return out, nil
}
