package pretrain

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/weights"
)

// Write writes a Hugging Face model directory: BF16 weights, configuration, tokenizer, chat template.
func Write(dir string, w *model.Weights, tokJSON []byte) error {
	tok, err := tokenizer.Parse(tokJSON)
	if err != nil {
		return err
	}
	shards, err := weights.Shards(weights.Round(w), weights.BF16, 1<<40)
	if err != nil {
		return err
	}
	files := map[string][]byte{tokenizer.FileName: tokJSON, "chat_template.jinja": []byte(chat.Template)}
	for _, f := range shards {
		files[f.Name] = f.Data
	}
	for name, v := range documents(w.Config, tok) {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(v); err != nil {
			return fault.New(fault.Internal, "pretrain.Write", "%s: %w", name, err)
		}
		files[name] = []byte(b.String())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a model is for everybody
		return fault.New(fault.Invalid, "pretrain.Write", "%w", err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil { //nolint:gosec // a model is for everybody
			return fault.New(fault.Invalid, "pretrain.Write", "%w", err)
		}
	}
	return nil
}

// documents are the JSON files of the directory.
func documents(c model.Config, tok *tokenizer.Tokenizer) map[string]any {
	end, _ := tok.ID(chat.TurnEnd)
	text, _ := tok.ID(chat.EndOfText)
	added := map[string]any{}
	for _, a := range AddedTokens() {
		id, _ := tok.ID(a.Text)
		added[jsonInt(id)] = map[string]any{
			"content": a.Text, "lstrip": false, "normalized": false, "rstrip": false, "single_word": false, "special": a.Special,
		}
	}
	return map[string]any{
		weights.ConfigFile: map[string]any{
			"architectures": []string{"Qwen3ForCausalLM"}, "attention_bias": false, "attention_dropout": 0.0,
			"bos_token_id": text, "eos_token_id": end, "head_dim": c.HeadDim, "hidden_act": "silu", "hidden_size": c.Hidden,
			"initializer_range": 0.02, "intermediate_size": c.Intermediate, "max_position_embeddings": c.MaxPosition,
			"max_window_layers": c.Layers, "model_type": "qwen3", "num_attention_heads": c.Heads, "num_hidden_layers": c.Layers,
			"num_key_value_heads": c.KVHeads, "rms_norm_eps": c.RMSEps, "rope_scaling": nil, "rope_theta": c.RopeTheta,
			"sliding_window": nil, "tie_word_embeddings": c.TieEmbedding, "torch_dtype": "bfloat16",
			"transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": c.Vocab,
		},
		"generation_config.json": map[string]any{
			"bos_token_id": text, "do_sample": true, "eos_token_id": []int32{end, text}, "pad_token_id": text,
			"temperature": 0.6, "transformers_version": "4.51.0",
		},
		"tokenizer_config.json": map[string]any{
			"add_bos_token": false, "add_prefix_space": false, "added_tokens_decoder": added,
			"additional_special_tokens": []string{chat.TurnStart, chat.TurnEnd}, "bos_token": nil, "chat_template": chat.Template,
			"clean_up_tokenization_spaces": false, "eos_token": chat.TurnEnd, "errors": "replace",
			"model_max_length": c.MaxPosition, "pad_token": chat.EndOfText, "split_special_tokens": false,
			"tokenizer_class": "Qwen2Tokenizer", "unk_token": nil,
		},
	}
}

func jsonInt(id int32) string {
	b, _ := json.Marshal(id) //nolint:errchkjson // a number
	return string(b)
}
