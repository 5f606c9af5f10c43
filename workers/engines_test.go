package workers

import (
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/steadyrl/steady/activities"
	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/weights"
)

var small = model.Config{
	Vocab: 40, Hidden: 32, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 16, Intermediate: 48,
	MaxPosition: 64, RMSEps: 1e-6, RopeTheta: 10000, TieEmbedding: true,
}

// lineageWith is a store with version 0 of a run whose sampler has a precision.
func lineageWith(t *testing.T, backend, precision string) (source, layout) {
	t.Helper()
	store, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := record.Layout{Run: "r", Lineage: "l0"}
	c := config.Default()
	c.Rollout.Precision = precision
	text, err := c.JSON()
	if err != nil {
		t.Fatal(err)
	}
	shape, err := json.Marshal(map[string]any{
		"model_type": "qwen3", "vocab_size": small.Vocab, "hidden_size": small.Hidden, "num_hidden_layers": small.Layers, "num_attention_heads": small.Heads,
		"num_key_value_heads": small.KVHeads, "head_dim": small.HeadDim, "intermediate_size": small.Intermediate, "max_position_embeddings": small.MaxPosition,
		"rms_norm_eps": small.RMSEps, "rope_theta": small.RopeTheta, "tie_word_embeddings": true, "hidden_act": "silu", "architectures": []string{"Qwen3ForCausalLM"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{l.ConfigFile(): text, path.Join(l.Base(), "config.json"): shape} {
		if _, err := store.Put(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
	}
	f, err := engines(Options{Backend: backend, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	return source{store: store, runs: &activities.Runs{Store: store}, factory: f}, l
}

// The configured precision is that of the samplers of published versions; an export is sampled at full precision.
func TestSource_precisionIsOfPublishedVersions(t *testing.T) {
	t.Parallel()
	w := model.NewWeights(small)
	w.Init(5, 0.3)
	for _, d := range w.Data {
		for i := range d {
			d[i] = weights.RoundBF16(d[i])
		}
	}
	score := func(precision, from string) float32 {
		src, l := lineageWith(t, "cpu", precision)
		s, err := src.NewSampler(t.Context(), l, from, small)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.SetWeights(t.Context(), 0, w); err != nil {
			t.Fatal(err)
		}
		got, err := s.Score(t.Context(), []int32{1, 2, 3, 4, 5})
		if err != nil {
			t.Fatal(err)
		}
		return got[3]
	}
	exact := score("fp32", "published")
	for _, p := range []string{"bf16", "int8"} {
		if score(p, "published") == exact {
			t.Errorf("%s samples as fp32 does", p)
		}
		if score(p, "export") != exact {
			t.Errorf("%s: the export is not sampled at full precision", p)
		}
	}
}

func TestSource_anEngineWithoutThePrecisionRefuses(t *testing.T) {
	t.Parallel()
	src, l := lineageWith(t, "ref", "int8")
	if s, err := src.NewSampler(t.Context(), l, "published", small); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "int8") {
		t.Errorf("got %v, %v, want Invalid", s, err)
	}
	s, err := src.NewSampler(t.Context(), l, "export", small)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

// The publisher's log-probabilities are of full precision: they prove nothing to a rounded sampler, whose weights their digest has proved.
func TestSource_probesAreForFullPrecision(t *testing.T) {
	t.Parallel()
	w := model.NewWeights(small)
	data, err := weights.Encode(w, weights.BF16)
	if err != nil {
		t.Fatal(err)
	}
	for precision, probes := range map[string]int{"fp32": 2, "bf16": 0, "int8": 0} {
		src, l := lineageWith(t, "cpu", precision)
		ref, err := src.store.Put(t.Context(), l.Weights(0), data)
		if err != nil {
			t.Fatal(err)
		}
		for digest, kind := range map[string]fault.Kind{weights.Digest(w): "", "other": fault.Corrupt} {
			v := record.Version{Digest: digest, File: ref, ProbeTokens: []int32{1, 2}, ProbeLogProbs: []float32{-1}}
			if _, err := artifact.ReplaceJSON(t.Context(), src.store, l.WeightsInfo(0), v); err != nil {
				t.Fatal(err)
			}
			got, _, err := src.Published(t.Context(), l, 0)
			if fault.KindOf(err) != kind || kind == "" && len(got.ProbeTokens) != probes {
				t.Errorf("%s, digest %.5s: %d probes, %v; want %d, %q", precision, digest, len(got.ProbeTokens), err, probes, kind)
			}
		}
	}
}
