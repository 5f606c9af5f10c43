package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// IndexFile and SingleFile are the names of a model directory's weights.
const (
	IndexFile  = "model.safetensors.index.json"
	SingleFile = "model.safetensors"
	ConfigFile = "config.json"
)

// rawConfig are the fields of config.json that decide whether this build can run the model.
type rawConfig struct {
	model.Config
	ModelType     string   `json:"model_type"`
	Architectures []string `json:"architectures"`
	Bias          bool     `json:"attention_bias"`
	Act           string   `json:"hidden_act"`
	RopeScaling   any      `json:"rope_scaling"`
	// RopeParameters is where newer releases of the Hugging Face library keep rope_theta.
	RopeParameters *struct {
		Theta float64 `json:"rope_theta"`
		Type  string  `json:"rope_type"`
	} `json:"rope_parameters"`
	SlidingWindow bool     `json:"use_sliding_window"`
	LayerTypes    []string `json:"layer_types"`
}

// ParseConfig reads a config.json. Errors: Invalid, naming every feature that this build does not have.
func ParseConfig(data []byte) (model.Config, error) {
	const op = "weights.ParseConfig"
	var r rawConfig
	if err := json.Unmarshal(data, &r); err != nil {
		return model.Config{}, fault.New(fault.Invalid, op, "config.json: %s", fault.Text(err)).WithHint("%s", fetchAgain)
	}
	var bad []string
	want := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	want(r.ModelType == "qwen3", "model_type is %q, want qwen3", r.ModelType)
	want(len(r.Architectures) == 0 || slices.Equal(r.Architectures, []string{"Qwen3ForCausalLM"}), "architectures is %v", r.Architectures)
	want(!r.Bias, "attention_bias is not supported")
	want(r.Act == "silu", "hidden_act is %q, want silu", r.Act)
	want(r.RopeScaling == nil, "rope_scaling is not supported")
	if p := r.RopeParameters; p != nil {
		want(p.Type == "" || p.Type == "default", "rope_type %q is not supported", p.Type)
		want(r.RopeTheta == 0 || p.Theta == 0 || r.RopeTheta == p.Theta, "rope_theta is both %v and %v", r.RopeTheta, p.Theta)
		if p.Theta != 0 {
			r.RopeTheta = p.Theta
		}
	}
	want(!r.SlidingWindow, "sliding window attention is not supported")
	for _, t := range r.LayerTypes {
		want(t == "full_attention", "layer type %q is not supported", t)
	}
	if len(bad) > 0 {
		return model.Config{}, fault.New(fault.Invalid, op, "config.json: %v", bad).WithHint("use a dense Qwen3 model")
	}
	return r.Config, r.Config.Check()
}

// LoadConfig reads the configuration of a model directory.
func LoadConfig(dir string) (model.Config, error) { return loadConfig(os.DirFS(dir), dir) }

func loadConfig(dir fs.FS, name string) (model.Config, error) {
	data, err := fs.ReadFile(dir, ConfigFile)
	if err != nil {
		return model.Config{}, notModel(name, err)
	}
	c, err := ParseConfig(data)
	if err != nil {
		return model.Config{}, fault.New(fault.Invalid, "weights.LoadConfig", "model %s: %w", name, err)
	}
	return c, nil
}

func notModel(dir string, err error) error {
	return fault.New(fault.Invalid, "weights.LoadDir", "%s is no model directory: %w", dir, err).
		WithHint("give a directory in Hugging Face layout: config.json, tokenizer.json, model.safetensors")
}

const fetchAgain = "fetch the model's files again, or give another model directory"

// WeightFiles lists the safetensors files of a model directory: the single file, or those of the index, sorted.
func WeightFiles(dir string) ([]string, error) { return weightFiles(os.DirFS(dir), dir) }

func weightFiles(dir fs.FS, name string) ([]string, error) {
	where, err := readIndex(dir, name)
	if err != nil {
		return nil, err
	}
	if where == nil {
		return []string{SingleFile}, nil
	}
	var names []string
	for _, f := range where {
		if path.Base(f) != f {
			return nil, fault.New(fault.Corrupt, "weights.WeightFiles", "%s names the file %q", path.Join(name, IndexFile), f).WithHint(fetchAgain)
		}
		if !slices.Contains(names, f) {
			names = append(names, f)
		}
	}
	slices.Sort(names)
	return names, nil
}

// readIndex returns the file of each tensor by the index of a model directory, nil for one with a single file.
func readIndex(dir fs.FS, name string) (map[string]string, error) {
	if _, err := fs.Stat(dir, SingleFile); err == nil {
		return nil, nil
	}
	data, err := fs.ReadFile(dir, IndexFile)
	if err != nil {
		return nil, notModel(name, err)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fault.New(fault.Corrupt, "weights.WeightFiles", "%s: %w", path.Join(name, IndexFile), err).WithHint(fetchAgain)
	}
	if index.WeightMap == nil {
		return map[string]string{}, nil
	}
	return index.WeightMap, nil
}

// LoadDir reads a model directory in Hugging Face layout. Errors: Invalid (no model, or one that this build cannot
// run), Corrupt (files that disagree).
func LoadDir(dir string) (*model.Weights, error) { return load(os.DirFS(dir), dir) }

// LoadFS is LoadDir for any file system, for example an embedded one.
func LoadFS(dir fs.FS) (*model.Weights, error) { return load(dir, "the directory") }

func load(dir fs.FS, name string) (*model.Weights, error) {
	c, err := loadConfig(dir, name)
	if err != nil {
		return nil, err
	}
	names, err := weightFiles(dir, name)
	if err != nil {
		return nil, err
	}
	var files []source
	in := map[string]string{}
	for _, n := range names {
		f, err := openSource(dir, n)
		if err != nil {
			return nil, fault.New(fault.Corrupt, "weights.LoadDir", "%w", err).WithHint(fetchAgain)
		}
		defer f.Close() //nolint:errcheck // was only read
		tensors, err := f.header()
		if err != nil {
			return nil, fault.New(fault.KindOf(err), "weights.LoadDir", "%s: %w", path.Join(name, n), err).WithHint(fetchAgain)
		}
		for _, t := range tensors {
			in[t.Name] = n
		}
		files = append(files, f.source)
	}
	if err := checkIndex(dir, name, in); err != nil {
		return nil, err
	}
	w, _, err := decodeAll(c, files)
	if err != nil && fault.KindOf(err) == fault.Internal { // a file that cannot be read
		err = fault.New(fault.Corrupt, "weights.LoadDir", "%s: %w", name, err)
	}
	return w, err
}

// checkIndex compares the index of a model directory with the file that each tensor is in.
func checkIndex(dir fs.FS, name string, in map[string]string) error {
	where, err := readIndex(dir, name)
	if err != nil {
		return err
	}
	for _, tensor := range slices.Sorted(maps.Keys(where)) {
		if file := in[tensor]; file != "" && file != where[tensor] {
			return fault.New(fault.Corrupt, "weights.LoadDir", "%s: tensor %s is in %s, %s says %s", name, tensor, file, IndexFile, where[tensor]).
				WithHint(fetchAgain)
		}
	}
	return nil
}

// openSource opens a file; one that cannot be read in parts is read as a whole.
func openSource(dir fs.FS, name string) (*openedSource, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if r, ok := f.(io.ReaderAt); ok && err == nil {
		return &openedSource{source{r, int(st.Size())}, f}, nil
	}
	data, rerr := io.ReadAll(f)
	if err := errors.Join(err, rerr); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &openedSource{source{bytes.NewReader(data), len(data)}, f}, nil
}

type openedSource struct {
	source
	io.Closer
}

// File is a file of a model directory to be written.
type File struct {
	Name    string
	Data    []byte
	Tensors []string
}

// Shards returns the weight files of w in Hugging Face layout: one file if all fits into limit bytes, else
// numbered shards filled greedily in module order, and the index. limit counts tensor bytes.
func Shards(w *model.Weights, dtype DType, limit int64) ([]File, error) {
	groups, total := split(w.Specs, dtype, limit)
	tensors := Tensors(w)
	var out []File
	for i, g := range groups {
		f := File{Name: shardName(i, len(groups))}
		for _, s := range g {
			f.Tensors = append(f.Tensors, s.Name)
		}
		var err error
		if f.Data, err = WriteFile(tensors[:len(g)], dtype); err != nil {
			return nil, err
		}
		tensors = tensors[len(g):]
		out = append(out, f)
	}
	if len(groups) > 1 {
		index, err := encodeIndex(groups, total)
		if err != nil {
			return nil, err
		}
		out = append(out, File{Name: IndexFile, Data: index})
	}
	return out, nil
}

// split fills shards greedily in module order and returns them with the bytes of all tensors.
func split(specs []model.Spec, dtype DType, limit int64) (groups [][]model.Spec, total int64) {
	var size int64
	for _, s := range specs {
		n := int64(s.Size() * dtype.size())
		if len(groups) == 0 || size+n > limit && size > 0 {
			groups, size = append(groups, nil), 0
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], s)
		size += n
		total += n
	}
	return groups, total
}

func shardName(i, n int) string {
	if n == 1 {
		return SingleFile
	}
	return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n)
}

func encodeIndex(groups [][]model.Spec, total int64) ([]byte, error) {
	weightMap := map[string]string{}
	for i, g := range groups {
		for _, s := range g {
			weightMap[s.Name] = shardName(i, len(groups))
		}
	}
	index, err := json.MarshalIndent(struct {
		Metadata  map[string]int64  `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}{map[string]int64{"total_size": total}, weightMap}, "", "  ")
	if err != nil {
		return nil, fault.New(fault.Internal, "weights.Shards", "%w", err)
	}
	return append(index, '\n'), nil
}
