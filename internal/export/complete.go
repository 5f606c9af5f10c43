package export

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/weights"
)

// complete checks that the Hugging Face library can load a directory by name alone (from_pretrained). What the export itself writes must be right. What it
// takes over from the base model may be lacking there: each such thing is a line of lacks, sorted.
//
// Errors: Corrupt (weights, index or configuration that the library would refuse or misread).
func complete(dir string, c model.Config) (lacks []string, err error) {
	if err := loadableWeights(dir, c); err != nil {
		return nil, err
	}
	has := func(name string) bool {
		st, err := os.Stat(filepath.Join(dir, name))
		return err == nil && st.Mode().IsRegular()
	}
	lack := func(ok bool, format string, args ...any) {
		if !ok {
			lacks = append(lacks, fmt.Sprintf(format, args...))
		}
	}
	config, err := object(dir, weights.ConfigFile)
	if err != nil {
		return nil, err
	}
	var architectures []string
	_ = json.Unmarshal(config["architectures"], &architectures) // of another form: it is lacking
	lack(slices.Contains(architectures, "Qwen3ForCausalLM"), "config.json names no architecture")
	lack(config["torch_dtype"] != nil || config["dtype"] != nil, "config.json names no dtype")
	lack(config["eos_token_id"] != nil, "config.json names no eos_token_id")

	generation, err := object(dir, "generation_config.json")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		lack(false, "generation_config.json: the base model has none")
	case err != nil:
		return nil, err
	default:
		ids, ok := tokenIDs(generation["eos_token_id"])
		lack(ok && len(ids) > 0, "generation_config.json names no eos_token_id")
		lack(!slices.ContainsFunc(ids, func(id int) bool { return id < 0 || id >= c.Vocab }), "generation_config.json: an eos_token_id is outside the vocabulary")
	}
	tokenizer, err := object(dir, "tokenizer_config.json")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		lack(false, "tokenizer_config.json: the base model has none")
	case err != nil:
		return nil, err
	default:
		lack(tokenizer["tokenizer_class"] != nil, "tokenizer_config.json names no tokenizer_class")
	}
	lack(tokenizer["chat_template"] != nil || has("chat_template.jinja") || has("chat_template.json"), "no chat template: neither chat_template.jinja nor a key of tokenizer_config.json")
	slices.Sort(lacks)
	return lacks, nil
}

// tokenIDs reads one id or a list of them.
func tokenIDs(data json.RawMessage) ([]int, bool) {
	var one int
	if json.Unmarshal(data, &one) == nil && len(data) > 0 && string(data) != "null" {
		return []int{one}, true
	}
	var many []int
	return many, len(data) > 0 && json.Unmarshal(data, &many) == nil
}

// object reads a file with one JSON object. A file that is not there is fs.ErrNotExist.
func object(dir, name string) (map[string]json.RawMessage, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err //nolint:wrapcheck // the caller asks for it
	}
	if err != nil {
		return nil, classify("export.complete", err)
	}
	var out map[string]json.RawMessage
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fault.New(fault.Corrupt, "export.complete", "%s is no JSON object: %w", name, err).WithHint("complete the base model's files and export again")
	}
	return out, nil
}

// loadableWeights checks the metadata of each weights file and, where there are several, their index.
func loadableWeights(dir string, c model.Config) error {
	const op = "export.complete"
	names, err := weights.WeightFiles(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		meta, err := metadata(filepath.Join(dir, name))
		if err != nil {
			return fault.New(fault.Corrupt, op, "%s: %w", name, err)
		}
		if meta["format"] != "pt" {
			return fault.New(fault.Corrupt, op, "%s has no metadata {\"format\": \"pt\"}, which the Hugging Face library wants", name)
		}
	}
	if _, err := weights.CheckHeaders(dir, c); err != nil {
		return err
	}
	if slices.Equal(names, []string{weights.SingleFile}) {
		return nil
	}
	index, err := object(dir, weights.IndexFile)
	if err != nil {
		return fault.New(fault.Corrupt, op, "%s: %w", weights.IndexFile, err)
	}
	var total struct {
		Size int64 `json:"total_size"`
	}
	if err := json.Unmarshal(index["metadata"], &total); err != nil {
		return fault.New(fault.Corrupt, op, "%s: metadata: %w", weights.IndexFile, err)
	}
	var want int64
	for _, t := range c.Tensors() {
		want += int64(2 * t.Size())
	}
	if total.Size != want {
		return fault.New(fault.Corrupt, op, "%s says %d bytes, the tensors have %d", weights.IndexFile, total.Size, want)
	}
	for i, name := range names {
		if numbered := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(names)); name != numbered {
			return fault.New(fault.Corrupt, op, "the weights file %s should be named %s", name, numbered)
		}
	}
	return nil
}

// metadata reads the metadata in the header of a safetensors file.
func metadata(name string) (map[string]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	var length [8]byte
	if _, err := io.ReadFull(f, length[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > 100<<20 {
		return nil, fmt.Errorf("a header of %d bytes", n)
	}
	var header struct {
		Metadata map[string]string `json:"__metadata__"`
	}
	if err := json.NewDecoder(io.LimitReader(f, int64(n))).Decode(&header); err != nil { //nolint:gosec // bounded above
		return nil, err
	}
	return header.Metadata, nil
}
