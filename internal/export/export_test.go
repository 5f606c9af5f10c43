package export_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/export"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/weights"
)

var config = model.Config{
	Vocab: 264, Hidden: 8, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 6, Intermediate: 10,
	MaxPosition: 64, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
}

// fixture is a base model without weights and a checkpoint of step 3; every export goes to its own directory.
type fixture struct {
	options export.Options
	state   *engine.State
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	root := t.TempDir()
	base := filepath.Join(root, "base")
	if err := os.Mkdir(base, 0o750); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Train(slices.Values([]string{"read two integers", "print the sum"}), 262, []tokenizer.Added{{Text: "<|im_end|>", Special: true}})
	if err != nil {
		t.Fatal(err)
	}
	fields, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"config.json":            `{"model_type":"qwen3","hidden_act":"silu",` + string(fields[1:]),
		"tokenizer.json":         string(tok),
		"generation_config.json": "{\"eos_token_id\": [261]}\n",
		"chat_template.jinja":    "{{ messages }}",
		"unrelated.txt":          "not copied",
	} {
		if err := os.WriteFile(filepath.Join(base, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &engine.State{Master: model.NewWeights(config), M: model.NewWeights(config), V: model.NewWeights(config), Steps: 3}
	s.Master.Init(5, 0.3)
	ckpt := filepath.Join(root, "checkpoint")
	if _, err := checkpoint.SaveState(t.Context(), ckpt, s, 3); err != nil {
		t.Fatal(err)
	}
	return fixture{state: s, options: export.Options{
		Checkpoint: ckpt, BaseModel: base, Out: filepath.Join(root, "export"), ShardBytes: 2000, Run: "r1", Step: 3,
		Extra: map[string][]byte{"README.md": []byte("# model\n")}, NewSampler: ref.NewSampler,
	}}
}

func (f fixture) export(t *testing.T) export.Certificate {
	t.Helper()
	cert, err := export.Export(t.Context(), f.options)
	if err != nil {
		t.Fatalf("Export: %v", err)
	}
	return cert
}

func TestExport_filesAreTheRoundedCheckpointAndTheBaseModelsBytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dead := filepath.Join(filepath.Dir(f.options.Out), ".tmp-dead") // what a killed export leaves
	if err := os.Mkdir(dead, 0o750); err != nil {
		t.Fatal(err)
	}
	cert := f.export(t)
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("what a killed export left is still there: %v", err)
	}
	got, err := weights.LoadDir(f.options.Out)
	if err != nil {
		t.Fatal(err)
	}
	if want := weights.Round(f.state.Master); !got.Equal(want) || cert.WeightsDigest != weights.Digest(want) {
		t.Error("the exported weights are not the BF16 rounding of the master weights")
	}
	for _, name := range []string{"config.json", "tokenizer.json", "generation_config.json", "chat_template.jinja"} {
		a, errA := os.ReadFile(filepath.Join(f.options.BaseModel, name))
		b, errB := os.ReadFile(filepath.Join(f.options.Out, name))
		if errA != nil || errB != nil || string(a) != string(b) {
			t.Errorf("%s is not the base model's (%v, %v)", name, errA, errB)
		}
	}
	for _, name := range []string{"unrelated.txt", "adam_m.safetensors", "meta.json"} {
		if _, err := os.Stat(filepath.Join(f.options.Out, name)); err == nil {
			t.Errorf("%s does not belong into an export", name)
		}
	}
	if len(cert.Tensors) != len(config.Tensors()) || cert.SourceState != weights.StateDigest(f.state) || cert.Parameters*2 != cert.TotalBytes {
		t.Errorf("certificate: %d tensors, source %.12s, %d parameters, %d bytes", len(cert.Tensors), cert.SourceState, cert.Parameters, cert.TotalBytes)
	}
	if len(cert.Forward.Tokens) < 2 || len(cert.Forward.LogProbs) != len(cert.Forward.Tokens)-1 {
		t.Errorf("the forward pass is recorded as %+v", cert.Forward)
	}
	again, err := export.Verify(t.Context(), f.options.Out, ref.NewSampler)
	if err != nil {
		t.Fatalf("Verify: %v", err)
	}
	if d := cmp.Diff(cert, again); d != "" {
		t.Errorf("Export returned another certificate than it wrote:\n%s", d)
	}
	before, err := os.Stat(f.options.Out)
	if err != nil {
		t.Fatal(err)
	}
	f.export(t)
	if after, err := os.Stat(f.options.Out); err != nil || !os.SameFile(before, after) {
		t.Errorf("a second export of the same state must leave the first one alone: %v", err)
	}
}

// flip changes one bit of a file.
func flip(t *testing.T, name string, at int) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestVerify_namesTheTensorOfAChangedByte(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cert := f.export(t)
	shards := 0
	for _, file := range cert.Files {
		if file.Role != export.RoleWeights || !strings.HasSuffix(file.Name, ".safetensors") {
			continue
		}
		shards++
		path := filepath.Join(f.options.Out, file.Name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tensors, err := weights.ReadHeader(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range tensors {
			for _, at := range []int{x.Offset, x.Offset + x.Size - 1} {
				flip(t, path, at)
				_, err := export.Verify(t.Context(), f.options.Out, nil)
				if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), x.Name) || fault.HintOf(err) == "" {
					t.Errorf("byte %d of %s is of %s: %v", at, file.Name, x.Name, err)
				}
				for _, other := range cert.Tensors {
					if err != nil && other.Name != x.Name && strings.Contains(err.Error(), other.Name) {
						t.Errorf("byte %d is of %s, blamed is %s", at, x.Name, other.Name)
					}
				}
				flip(t, path, at)
			}
		}
		for _, at := range []int{0, 8, 40} { // the header's length and text
			flip(t, path, at)
			if _, err := export.Verify(t.Context(), f.options.Out, nil); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), file.Name) {
				t.Errorf("byte %d of %s: %v", at, file.Name, err)
			}
			flip(t, path, at)
		}
	}
	if shards < 2 {
		t.Errorf("%d shards, want several", shards)
	}
	if _, err := export.Verify(t.Context(), f.options.Out, ref.NewSampler); err != nil {
		t.Errorf("with every byte back: %v", err)
	}
}

func TestVerify_findsEveryOtherDamage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cert := f.export(t)
	at := func(name string) string { return filepath.Join(f.options.Out, name) }
	for _, file := range cert.Files {
		if file.Role == export.RoleWeights {
			continue
		}
		flip(t, at(file.Name), int(file.Size/2))
		if _, err := export.Verify(t.Context(), f.options.Out, nil); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), file.Name) {
			t.Errorf("a changed %s: %v", file.Name, err)
		}
		flip(t, at(file.Name), int(file.Size/2))
	}
	flip(t, at(export.CertificateFile), 60)
	if _, err := export.Verify(t.Context(), f.options.Out, nil); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a changed certificate: %v", err)
	}
	flip(t, at(export.CertificateFile), 60)
	if err := os.WriteFile(at("model.safetensors"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := export.Verify(t.Context(), f.options.Out, nil); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "not part") {
		t.Errorf("weights that another program would load first: %v", err)
	}
	if err := os.Remove(at("model.safetensors")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(at("tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := export.Verify(t.Context(), f.options.Out, nil); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "tokenizer.json is missing") {
		t.Errorf("a missing tokenizer: %v", err)
	}
	if cert, err := export.Export(t.Context(), f.options); err != nil || cert.Step != 3 {
		t.Errorf("exporting again over a damaged export: %v", err)
	}
	if _, err := export.Verify(t.Context(), f.options.Out, ref.NewSampler); err != nil {
		t.Errorf("the repaired export: %v", err)
	}
	if _, err := export.Verify(t.Context(), t.TempDir(), nil); !fault.Is(err, fault.NotFound) {
		t.Errorf("an empty directory: %v, want NotFound", err)
	}
}

func TestVerify_filesThatTheCertificateDoesNotName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cert := f.export(t)
	for name, fails := range map[string]bool{
		"NOTES.md": false, "LICENSE": false, "NOTICE": false, ".gitattributes": false, ".git/": false,
		"model.safetensors": true, "pytorch_model.bin": true, "model.gguf": true, "adapter_config.json": true, "modeling_qwen3.py": true,
		"vocab.txt": true, "chat_template.jinja2": true, "onnx/": true, "notes": true, "docs.md/": true,
	} {
		path := filepath.Join(f.options.Out, name)
		var err error
		if strings.HasSuffix(name, "/") {
			err = os.Mkdir(path, 0o750)
		} else {
			err = os.WriteFile(path, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = export.Verify(t.Context(), f.options.Out, nil)
		extras, xerr := export.Extras(f.options.Out, cert)
		if xerr != nil {
			t.Fatal(xerr)
		}
		if fails && (!fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), name) || !strings.Contains(fault.HintOf(err), "move") || len(extras) != 0) {
			t.Errorf("%s: %v, extras %q; want Corrupt, which names it", name, err, extras)
		}
		if !fails && (err != nil || !slices.Equal(extras, []string{name})) {
			t.Errorf("%s: %v, extras %q; want it listed", name, err, extras)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// However a certificate is cut or changed, the error says in words that it is damaged.
func TestReadCertificate_anyDamageIsNamed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.export(t)
	name := filepath.Join(f.options.Out, export.CertificateFile)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{"empty": nil, "binary": {0, 1, 2, 0xff}, "a list": []byte("[]"), "null": []byte("null"), "another document": []byte("{}"), "doubled": append(slices.Clone(good), good...)}
	for at := 0; at < len(good); at += 97 {
		flipped := slices.Clone(good)
		flipped[at] ^= 1
		damaged["flipped at "+strconv.Itoa(at)], damaged["cut at "+strconv.Itoa(at)] = flipped, good[:at]
	}
	for what, data := range damaged {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := export.ReadCertificate(f.options.Out)
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), export.CertificateFile) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, want Corrupt with the file and a hint", what, err)
			continue
		}
		for _, raw := range []string{"json:", "invalid character", "Go "} {
			if strings.Contains(err.Error(), raw) {
				t.Errorf("%s: %q holds the words of the JSON reader", what, err)
			}
		}
	}
	if err := errors.Join(os.Remove(name), os.Mkdir(name, 0o750)); err != nil {
		t.Fatal(err)
	}
	if _, err := export.ReadCertificate(f.options.Out); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a directory: %v, want Corrupt", err)
	}
}

// Nothing may appear at Out after an error.
func TestExport_errorsLeaveNothing(t *testing.T) {
	t.Parallel()
	broken := errors.New("no device")
	for _, tt := range []struct {
		name string
		edit func(*testing.T, *fixture)
		want fault.Kind
	}{
		{"no checkpoint", func(_ *testing.T, f *fixture) { f.options.Checkpoint += "x" }, fault.NotFound},
		{"damaged checkpoint", func(t *testing.T, f *fixture) {
			t.Helper()
			flip(t, filepath.Join(f.options.Checkpoint, checkpoint.MasterFile), 999)
		}, fault.Corrupt},
		{"another step", func(_ *testing.T, f *fixture) { f.options.Step = 4 }, fault.Invalid},
		{"no base model", func(_ *testing.T, f *fixture) { f.options.BaseModel += "x" }, fault.Invalid},
		{"base model without a tokenizer", func(t *testing.T, f *fixture) {
			t.Helper()
			if err := os.Remove(filepath.Join(f.options.BaseModel, "tokenizer.json")); err != nil {
				t.Fatal(err)
			}
		}, fault.Invalid},
		{"extra file that hides weights", func(_ *testing.T, f *fixture) { f.options.Extra = map[string][]byte{"x.safetensors": nil} }, fault.Invalid},
		{"extra file outside", func(_ *testing.T, f *fixture) { f.options.Extra = map[string][]byte{"../x": nil} }, fault.Invalid},
		{"not finite in BF16", func(t *testing.T, f *fixture) {
			t.Helper()
			f.state.Master.Data[0][3] = 3.4e38
			if _, err := checkpoint.SaveState(t.Context(), f.options.Checkpoint, f.state, 3); err != nil {
				t.Fatal(err)
			}
		}, fault.Numeric},
		{"no engine", func(_ *testing.T, f *fixture) {
			f.options.NewSampler = func(model.Config) (engine.Sampler, error) { return nil, broken }
		}, fault.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			tt.edit(t, &f)
			if _, err := export.Export(t.Context(), f.options); !fault.Is(err, tt.want) {
				t.Errorf("Export: %v, want %s", err, tt.want)
			}
			left, err := filepath.Glob(filepath.Join(filepath.Dir(f.options.Out), "*export*"))
			if err != nil || len(left) != 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
			hidden, err := filepath.Glob(filepath.Join(filepath.Dir(f.options.Out), ".tmp-*"))
			if err != nil || len(hidden) != 0 {
				t.Errorf("left behind: %v %v", hidden, err)
			}
		})
	}
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := export.Export(ctx, f.options); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// shifted is an engine whose log-probabilities are all off by the same distance.
type shifted struct {
	engine.Sampler
	by float32
}

func (s shifted) Score(ctx context.Context, tokens []int32) ([]float32, error) {
	lp, err := s.Sampler.Score(ctx, tokens)
	for i := range lp {
		lp[i] += s.by
	}
	return lp, err
}

// Another engine may be as far away as the arithmetic of the certifying one says, and no farther, whatever the certificate says.
func TestVerify_toleranceOfTheArithmetic(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ certified, near, far float64 }{
		{0, 0.9 * engine.FP32Distance, 1.1 * engine.FP32Distance},
		{engine.FP32Distance, 0.9 * engine.FP32Distance, 1.1 * engine.FP32Distance},
		{engine.BF16Distance, 0.9 * engine.BF16Distance, 1.1 * engine.BF16Distance},
		{100, 0.9 * engine.BF16Distance, 1.1 * engine.BF16Distance},
	} {
		f := newFixture(t)
		f.options.Tolerance = tt.certified
		f.export(t)
		for _, sign := range []float64{1, -1} {
			verify := func(by float64) error {
				_, err := export.Verify(t.Context(), f.options.Out, func(c model.Config) (engine.Sampler, error) {
					s, err := ref.NewSampler(c)
					return shifted{s, float32(sign * by)}, err
				})
				return err
			}
			if err := verify(tt.near); err != nil {
				t.Errorf("certified with %v, an engine that is %v away: %v", tt.certified, sign*tt.near, err)
			}
			if err := verify(tt.far); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "nats are allowed") {
				t.Errorf("certified with %v, an engine that is %v away: %v, want Corrupt", tt.certified, sign*tt.far, err)
			}
		}
	}
}
