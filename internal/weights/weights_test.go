package weights

import (
	"bufio"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

func lines(t *testing.T, name string, each func([]byte)) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		each(sc.Bytes())
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestToBF16_goldenVectors(t *testing.T) {
	t.Parallel()
	n := 0
	lines(t, "bf16_round.jsonl", func(line []byte) {
		var v struct {
			ID   string  `json:"id"`
			F32  string  `json:"f32_bits"`
			BF16 *string `json:"bf16_bits"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		n++
		bits, err := strconv.ParseUint(v.F32, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		got := ToBF16(math.Float32frombits(uint32(bits)))
		if v.BF16 == nil {
			if f := FromBF16(got); f == f {
				t.Errorf("%s: NaN became %v", v.ID, f)
			}
			return
		}
		want, err := strconv.ParseUint(*v.BF16, 16, 16)
		if err != nil {
			t.Fatal(err)
		}
		if uint64(got) != want {
			t.Errorf("%s: %s rounds to %04x, want %04x", v.ID, v.F32, got, want)
		}
	})
	if n != 56 {
		t.Errorf("%d vectors, want 56", n)
	}
}

// The published model's tensors, by name and shape, follow from its config.json.
func TestConfig_publishedModel(t *testing.T) {
	t.Parallel()
	c, err := LoadConfig("testdata")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]int{}
	lines(t, "tensors.jsonl", func(line []byte) {
		var v struct {
			Name  string `json:"name"`
			Shape []int  `json:"shape"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		want[v.Name] = v.Shape
	})
	specs := c.Tensors()
	total := 0
	for _, s := range specs {
		if !slices.Equal(want[s.Name], s.Shape) {
			t.Errorf("%s has shape %v, published is %v", s.Name, s.Shape, want[s.Name])
		}
		total += s.Size()
	}
	if len(specs) != len(want) || total != 4_022_468_096 {
		t.Errorf("%d tensors with %d parameters, published are %d and 4,022,468,096", len(specs), total, len(want))
	}
}

func TestParseConfig_refusesOtherModels(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile("testdata/config.json")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ old, new, want string }{
		{`"model_type": "qwen3"`, `"model_type": "llama"`, "model_type"},
		{`"attention_bias": false`, `"attention_bias": true`, "attention_bias"},
		{`"rope_scaling": null`, `"rope_scaling": {"type": "yarn"}`, "rope_scaling"},
		{`"rope_scaling": null`, `"rope_parameters": {"rope_type": "yarn"}`, "yarn"},
		{`"rope_scaling": null`, `"rope_parameters": {"rope_theta": 5}`, "rope_theta"},
		{`"use_sliding_window": false`, `"use_sliding_window": true`, "sliding"},
		{`"hidden_size": 2560`, `"hidden_size": 0`, "hidden_size"},
		{`"num_key_value_heads": 8`, `"num_key_value_heads": 5`, "multiple"},
		{`{`, ``, "config.json"},
		{`"hidden_size": 2560`, `"hidden_size": 1e99`, `"hidden_size" is 1e99, want a whole number`},
		{`"hidden_size": 2560`, `"hidden_size": "wide"`, `"hidden_size" is a text, want a whole number`},
	}
	for _, tt := range tests {
		_, err := ParseConfig([]byte(strings.Replace(string(good), tt.old, tt.new, 1)))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want Invalid that says %q", tt.new, err, tt.want)
		}
		if fault.HintOf(err) == "" || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, hint %q; want what to do, and no words of the implementation", tt.new, err, fault.HintOf(err))
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ConfigFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(dir); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), dir) || fault.HintOf(err) == "" {
		t.Errorf("%v, want Invalid that names %s, with a hint", err, dir)
	}
}

func tiny(tied bool) *model.Weights {
	w := model.NewWeights(model.Config{
		Vocab: 12, Hidden: 8, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 6, Intermediate: 10,
		MaxPosition: 32, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: tied,
	})
	w.Init(1, 0.5)
	return w
}

func TestEncodeDecode_roundTripAndRefusals(t *testing.T) {
	t.Parallel()
	w := tiny(true)
	file, err := Encode(w, F32)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(w.Config, file)
	if err != nil || !back.Equal(w) {
		t.Fatalf("FP32 round trip: %v", err)
	}
	bf, err := Encode(w, BF16)
	if err != nil {
		t.Fatal(err)
	}
	if back, err = Decode(w.Config, bf); err != nil || !back.Equal(Round(w)) {
		t.Fatalf("BF16 round trip: %v", err)
	}
	header := func(old, new string) []byte { //nolint:predeclared // reads well
		if len(old) != len(new) || !strings.Contains(string(file), old) {
			t.Fatalf("bad edit %q", old)
		}
		return []byte(strings.Replace(string(file), old, new, 1))
	}
	tests := []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "no safetensors"},
		{"cut", file[:len(file)-4], "lies at"},
		{"longer", append(slices.Clone(file), 0), "after the last"},
		{"header too long", append([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, file[8:]...), "claims"},
		{"type", header(`"dtype":"F32"`, `"dtype":"F99"`), "type"},
		{"name twice", header("layers.0.mlp.up_proj", "layers.1.mlp.up_proj"), "twice"},
		{"unknown name", header("model.norm.weight", "model.nurm.weight"), "does not belong"},
		{"shape", header(`"shape":[10,8]`, `"shape":[8,10]`), "config.json says"},
		{"offset", header(`"data_offsets":[0,`, `"data_offsets":[4,`), "bytes"},
		{"not JSON", header(`{"__metadata__"`, `x"__metadata__"`), "header"},
	}
	for _, tt := range tests {
		_, err := Decode(w.Config, tt.file)
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want Corrupt that says %q", tt.name, err, tt.want)
		}
	}
	if _, err := Decode(w.Config, file, file); !fault.Is(err, fault.Corrupt) {
		t.Errorf("the same tensors in two files: %v", err)
	}
}

func TestDecode_tiedHeadMustEqualTheEmbedding(t *testing.T) {
	t.Parallel()
	w := tiny(true)
	head := slices.Clone(w.Get("model.embed_tokens.weight"))
	with := func() []byte {
		f, err := WriteFile(append(Tensors(w), Named{Name: "lm_head.weight", Shape: []int{12, 8}, Data: head}), F32)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if back, err := Decode(w.Config, with()); err != nil || back.Get("lm_head.weight") != nil {
		t.Errorf("an equal copy is dropped: %v", err)
	}
	head[5]++
	if _, err := Decode(w.Config, with()); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a different copy: %v, want Corrupt", err)
	}
}

func TestWriteFile_refusesWhatIsNotFiniteAfterRounding(t *testing.T) {
	t.Parallel()
	big := []Named{{Name: "a", Shape: []int{1}, Data: []float32{math.Float32frombits(0x7f7fffff)}}}
	if _, err := WriteFile(big, BF16); !fault.Is(err, fault.Numeric) {
		t.Errorf("the largest float32 overflows BF16: %v, want Numeric", err)
	}
	if _, err := WriteFile(big, F32); err != nil {
		t.Errorf("it is finite in FP32: %v", err)
	}
	if _, err := WriteFile([]Named{{Name: "a", Shape: []int{1}, Data: []float32{float32(math.NaN())}}}, F32); !fault.Is(err, fault.Numeric) {
		t.Errorf("NaN: %v, want Numeric", err)
	}
}

func TestShards_greedyInModuleOrderWithIndex(t *testing.T) {
	t.Parallel()
	w := tiny(false)
	one, err := Shards(w, BF16, 1<<30)
	if err != nil || len(one) != 1 || one[0].Name != SingleFile {
		t.Fatalf("one file: %v %v", len(one), err)
	}
	files, err := Shards(w, BF16, 600)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := `{"model_type":"qwen3","hidden_act":"silu","vocab_size":12,"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":6,"intermediate_size":10,"max_position_embeddings":32,"rms_norm_eps":1e-6,"rope_theta":10000,"tie_word_embeddings":false}`
	if err := os.WriteFile(filepath.Join(dir, ConfigFile), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if len(files) < 4 || files[len(files)-1].Name != IndexFile {
		t.Fatalf("%d files, want several shards and the index", len(files))
	}
	back, err := LoadDir(dir)
	if err != nil || !back.Equal(Round(w)) {
		t.Fatalf("loaded from shards: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, files[1].Name)); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDir(dir); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a missing shard: %v, want Corrupt", err)
	}
}

// The cut of the published model at a limit of 5 GB, from shapes alone.
func TestShards_publishedCut(t *testing.T) {
	t.Parallel()
	c, err := LoadConfig("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var counts []int
	var sizes []int64
	for _, s := range c.Tensors() {
		n := int64(2 * s.Size())
		if last := len(sizes) - 1; last < 0 || sizes[last]+n > 5_000_000_000 {
			counts, sizes = append(counts, 0), append(sizes, 0)
		}
		counts[len(counts)-1]++
		sizes[len(sizes)-1] += n
	}
	if !slices.Equal(counts, []int{229, 169}) || !slices.Equal(sizes, []int64{4_967_188_992, 3_077_747_200}) {
		t.Errorf("cut into %v tensors and %v bytes", counts, sizes)
	}
}

func TestDigests_seeEveryBit(t *testing.T) {
	t.Parallel()
	w := tiny(true)
	state := func() *engine.State {
		return &engine.State{Master: w.Clone(), M: model.NewWeights(w.Config), V: model.NewWeights(w.Config), Steps: 3}
	}
	base := StateDigest(state())
	for name, change := range map[string]func(*engine.State){
		"master": func(s *engine.State) { s.Master.Data[3][1] = math.Nextafter32(s.Master.Data[3][1], 9) },
		"m":      func(s *engine.State) { s.M.Data[0][0] = 1e-30 },
		"v":      func(s *engine.State) { s.V.Data[5][0] = 1e-30 },
		"steps":  func(s *engine.State) { s.Steps++ },
		"swap":   func(s *engine.State) { s.M.Data[0][1] = 1; s.M, s.V = s.V, s.M },
	} {
		s := state()
		change(s)
		if StateDigest(s) == base {
			t.Errorf("%s: the digest did not change", name)
		}
	}
	o := w.Clone()
	o.Data[0][0] = math.Nextafter32(o.Data[0][0], 9)
	if Digest(o) != Digest(w) {
		t.Error("a change below BF16 must not change the published digest")
	}
	o.Data[0][0] += 1
	if Digest(o) == Digest(w) {
		t.Error("a change of BF16 must change the published digest")
	}
}

// CheckDir and LoadDir agree about every kind of damage, and CheckDir names the file.
func TestCheckDir_findsWhatLoadingWouldFind(t *testing.T) {
	t.Parallel()
	w := tiny(true)
	shards, err := Shards(w, F32, 1500)
	if err != nil || len(shards) < 4 {
		t.Fatalf("%d shards, %v; want several", len(shards), err)
	}
	withHead := func(d DType, change float32) []byte {
		head := slices.Clone(w.Get(embedding))
		for i := range head {
			head[i] = RoundBF16(head[i])
		}
		head[7] += change
		named := Tensors(Round(w))
		f, err := WriteFile(append(named, Named{Name: tiedHead, Shape: []int{12, 8}, Data: head}), d)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	nan := func(t *testing.T, file []byte, at int, with ...byte) []byte {
		t.Helper()
		tensors, err := ReadHeader(file)
		if err != nil {
			t.Fatal(err)
		}
		out := slices.Clone(file)
		copy(out[tensors[len(tensors)-1].Offset+at:], with)
		return out
	}
	bf, err := Encode(w, BF16)
	if err != nil {
		t.Fatal(err)
	}
	first, second := shards[0].Name, shards[1].Name
	var index map[string]map[string]any
	if err := json.Unmarshal(shards[len(shards)-1].Data, &index); err != nil {
		t.Fatal(err)
	}
	index["weight_map"][shards[0].Tensors[0]] = second
	exchanged, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		files map[string][]byte // over the shards; nil removes
		kind  fault.Kind
		want  string
	}{
		{"whole", nil, "", ""},
		{"one BF16 file", map[string][]byte{SingleFile: bf}, "", ""},
		{"an equal head", map[string][]byte{SingleFile: withHead(F32, 0)}, "", ""},
		{"another head", map[string][]byte{SingleFile: withHead(F32, 1)}, fault.Corrupt, "differs from the embedding"},
		{"cut", map[string][]byte{second: shards[1].Data[:len(shards[1].Data)-3]}, fault.Corrupt, second},
		{"cut in the header", map[string][]byte{second: shards[1].Data[:20]}, fault.Corrupt, second},
		{"empty", map[string][]byte{first: {}}, fault.Corrupt, first},
		{"missing", map[string][]byte{second: nil}, fault.Corrupt, second},
		{"twice", map[string][]byte{second: shards[0].Data}, fault.Corrupt, "is in " + first},
		{"NaN", map[string][]byte{second: nan(t, shards[1].Data, 8, 0, 0, 0xc0, 0x7f)}, fault.Numeric, "NaN at element 2"},
		{"infinite", map[string][]byte{SingleFile: nan(t, bf, 6, 0x80, 0xff)}, fault.Numeric, "-Inf at element 3"},
		{"no weights", map[string][]byte{IndexFile: nil}, fault.Invalid, IndexFile},
		{"an index that names another shard", map[string][]byte{IndexFile: exchanged}, fault.Corrupt, "says " + second},
		{"a shape that no file has", map[string][]byte{ConfigFile: []byte(strings.NewReplacer(`"vocab_size":12`, `"vocab_size":16777216`, `"hidden_size":8`, `"hidden_size":131072`).Replace(tinyConfig))}, fault.Corrupt, "config.json says"},
		{"a size that no model has", map[string][]byte{ConfigFile: []byte(strings.Replace(tinyConfig, `"num_hidden_layers":2`, `"num_hidden_layers":1099511627776`, 1))}, fault.Invalid, "num_hidden_layers must be"},
		{"damaged index", map[string][]byte{IndexFile: []byte("{")}, fault.Corrupt, IndexFile},
		{"no configuration", map[string][]byte{ConfigFile: nil}, fault.Invalid, ConfigFile},
	} {
		dir := t.TempDir()
		files := map[string][]byte{ConfigFile: []byte(tinyConfig)}
		for _, s := range shards {
			files[s.Name] = s.Data
		}
		maps.Copy(files, tt.files)
		for name, data := range files {
			if data == nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := CheckDir(t.Context(), os.DirFS(dir), dir)
		if fault.KindOf(err) != tt.kind || err != nil && (!strings.Contains(err.Error(), tt.want) || fault.HintOf(err) == "") {
			t.Errorf("%s: %v, want %q with %q and a hint", tt.name, err, tt.kind, tt.want)
		}
		if _, err := LoadDir(dir); (err != nil) != (tt.kind != "" && tt.kind != fault.Numeric) {
			t.Errorf("%s: LoadDir: %v", tt.name, err)
		}
	}
}

const tinyConfig = `{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","vocab_size":12,"hidden_size":8,"num_hidden_layers":2,
"num_attention_heads":2,"num_key_value_heads":1,"head_dim":6,"intermediate_size":10,"max_position_embeddings":32,"rms_norm_eps":1e-6,
"rope_theta":10000,"tie_word_embeddings":true,"hidden_act":"silu"}`
