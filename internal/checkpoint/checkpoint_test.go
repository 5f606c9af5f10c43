package checkpoint_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/weights"
)

func state(seed uint64, steps int) *engine.State {
	c := model.Config{
		Vocab: 12, Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 10,
		MaxPosition: 32, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
	}
	s := &engine.State{Master: model.NewWeights(c), M: model.NewWeights(c), V: model.NewWeights(c), Steps: steps}
	s.Master.Init(seed, 1)
	s.M.Init(seed+1, 1)
	s.V.Init(seed+2, 1)
	return s
}

// large has a tensor of two blocks, the second not full, and moments with zeros.
func large(steps int) *engine.State {
	c := model.Config{
		Vocab: 1 << 19, Hidden: 9, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 10,
		MaxPosition: 32, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
	}
	s := &engine.State{Master: model.NewWeights(c), M: model.NewWeights(c), V: model.NewWeights(c), Steps: steps}
	s.Master.Init(3, 1)
	for i, data := range s.V.Data {
		for j := range data {
			data[j] = float32(i+j%97) + 0.5
		}
	}
	s.M.Data[0][1<<22-1] = -2 // the last element of a block; the next one is zero
	return s
}

// saveAs1 writes a checkpoint as earlier builds did: files with the SHA-256 of their bytes.
func saveAs1(t *testing.T, dir string, s *engine.State, step int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	meta := checkpoint.Meta{Format: 1, Step: step, Updates: s.Steps, Config: s.Master.Config, State: weights.StateDigest(s)}
	for i, w := range []*model.Weights{s.Master, s.M, s.V} {
		data, err := weights.Encode(w, weights.F32)
		if err != nil {
			t.Fatal(err)
		}
		name := []string{"master.safetensors", "adam_m.safetensors", "adam_v.safetensors"}[i]
		meta.Files = append(meta.Files, checkpoint.FileDigest{Name: name, Size: int64(len(data)), SHA256: fmt.Sprintf("%x", sha256.Sum256(data))})
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(meta)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, checkpoint.MetaFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSaveLoad_everyBitComesBack(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*engine.State{"small": state(1, 7), "two blocks": large(7), "no moments yet": {Master: state(1, 7).Master, Steps: 7}} {
		dir := filepath.Join(t.TempDir(), "checkpoints", "000007")
		for range 2 { // the second finds the first and changes nothing
			if _, err := checkpoint.SaveState(t.Context(), dir, s, 7); err != nil {
				t.Fatal(err)
			}
		}
		got, meta, err := checkpoint.Load(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if weights.StateDigest(got) != weights.StateDigest(s) || meta.State != weights.StateDigest(s) || meta.Step != 7 || got.Steps != 7 {
			t.Errorf("%s: state %v differs after a round trip", name, meta)
		}
		if from, err := checkpoint.VerifyFrom(t.Context(), dir, opener(dir)); err != nil || from.State != meta.State {
			t.Errorf("%s: read through: %v, %v", name, from.State, err)
		}
		// Each file is what any reader of safetensors knows, to the byte, holes or not.
		m, v := s.Moments()
		for i, w := range []*model.Weights{s.Master, m, v} {
			want, err := weights.Encode(w, weights.F32)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, meta.Files[i].Name)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s has other bytes than the encoded tensors; %v", name, meta.Files[i].Name, err)
			}
		}
	}
}

func opener(dir string) func(string) (checkpoint.File, error) {
	return func(file string) (checkpoint.File, error) {
		data, err := os.ReadFile(filepath.Join(dir, file))
		return inMemory{bytes.NewReader(data)}, err
	}
}

type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// Blocks of zeros take no space.
func TestSave_zerosAreHoles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "c")
	if _, err := checkpoint.SaveState(t.Context(), dir, large(1), 1); err != nil {
		t.Fatal(err)
	}
	var space []int64
	for _, name := range []string{"adam_v.safetensors", "adam_m.safetensors"} {
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		space = append(space, st.Blocks)
	}
	if space[0] > 0 && space[1] >= space[0] {
		t.Errorf("full moments take %d blocks, moments with zeros %d", space[0], space[1])
	}
}

func TestSave_replacesAnotherState(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "checkpoints", "000007")
	if _, err := checkpoint.SaveState(t.Context(), dir, state(1, 7), 7); err != nil {
		t.Fatal(err)
	}
	// What a killed save leaves goes with the next one.
	if err := os.Mkdir(filepath.Join(filepath.Dir(dir), ".tmp-dead"), 0o750); err != nil {
		t.Fatal(err)
	}
	other := state(9, 7)
	if _, err := checkpoint.SaveState(t.Context(), dir, other, 7); err != nil {
		t.Fatal(err)
	}
	if meta, err := checkpoint.Verify(t.Context(), dir); err != nil || meta.State != weights.StateDigest(other) {
		t.Errorf("another state must replace the first: %v %v", meta.State, err)
	}
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(entries) != 1 {
		t.Errorf("left beside the checkpoint: %v %v", entries, err)
	}
}

// A run that an earlier build began goes on: its checkpoints are read, and one that holds the state already stays as it is.
func TestLoad_format1(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*engine.State{"small": state(1, 7), "two blocks": large(7)} {
		dir := filepath.Join(t.TempDir(), "000007")
		saveAs1(t, dir, s, 7)
		got, meta, err := checkpoint.Load(t.Context(), dir)
		if err != nil || weights.StateDigest(got) != weights.StateDigest(s) || meta.Format != 1 {
			t.Errorf("%s: %v, %v", name, meta, err)
		}
		if meta, err = checkpoint.SaveState(t.Context(), dir, s, 7); err != nil || meta.Format != 1 {
			t.Errorf("%s: saved again: format %d, %v", name, meta.Format, err)
		}
	}
}

func TestLoad_everyDamageIsFound(t *testing.T) {
	t.Parallel()
	for format, save := range map[string]func(dir string){
		"1": func(dir string) { saveAs1(t, dir, state(1, 3), 3) },
		"2": func(dir string) {
			if _, err := checkpoint.SaveState(t.Context(), dir, state(1, 3), 3); err != nil {
				t.Fatal(err)
			}
		},
	} {
		dir := filepath.Join(t.TempDir(), "c")
		save(dir)
		for what, find := range map[string]func() error{
			"Load":       func() error { _, _, err := checkpoint.Load(t.Context(), dir); return err },
			"LoadMaster": func() error { _, _, err := checkpoint.LoadMaster(t.Context(), dir); return err },
			"Verify":     func() error { _, err := checkpoint.Verify(t.Context(), dir); return err },
			"VerifyFrom": func() error { _, err := checkpoint.VerifyFrom(t.Context(), dir, opener(dir)); return err },
		} {
			everyDamage(t, dir, format+" "+what, find)
		}
	}
	for what, find := range map[string]func(dir string) error{
		"Load":     func(dir string) error { _, _, err := checkpoint.Load(t.Context(), dir); return err },
		"Verify":   func(dir string) error { _, err := checkpoint.Verify(t.Context(), dir); return err },
		"Describe": func(dir string) error { _, err := checkpoint.Describe(dir); return err },
	} {
		otherThings(t, what, find)
		otherNumbers(t, what, find)
	}
	// A save over a damaged checkpoint repairs it.
	dir := filepath.Join(t.TempDir(), "c")
	for range 2 {
		if _, err := checkpoint.SaveState(t.Context(), dir, state(1, 3), 3); err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.Verify(t.Context(), dir); err != nil {
			t.Errorf("repaired: %v", err)
		}
		if err := os.WriteFile(filepath.Join(dir, checkpoint.MasterFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func everyDamage(t *testing.T, dir, what string, find func() error) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		flip := func(at int) []byte {
			bad := bytes.Clone(good)
			bad[at] ^= 1
			return bad
		}
		damages := map[string][]byte{
			"a flipped bit": flip(len(good) / 2), "a cut": good[:len(good)-2], "nothing": {},
		}
		if e.Name() != checkpoint.MetaFile {
			damages["a bit of the header"], damages["the last bit"], damages["more"] = flip(3), flip(len(good)-1), append(bytes.Clone(good), 0)
			damages["the tensors' place"] = bytes.Replace(good, []byte(`"data_offsets":[0,`), []byte(`"data_offsets":[1,`), 1)
		}
		for damage, bad := range damages {
			if err := os.WriteFile(name, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := find(); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), e.Name()) && !strings.Contains(err.Error(), "state") {
				t.Errorf("%s: %s with %s: %v, want Corrupt and the file's name", what, e.Name(), damage, err)
			}
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		want := fault.Corrupt
		if e.Name() == checkpoint.MetaFile {
			want = fault.NotFound
		}
		if err := find(); !fault.Is(err, want) {
			t.Errorf("%s: %s missing: %v, want %s", what, e.Name(), err, want)
		}
		if err := os.WriteFile(name, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := find(); err != nil {
		t.Errorf("%s: restored: %v", what, err)
	}
}

// What is no file is damage, whatever it is: nobody waits for somebody to write into a pipe.
func otherThings(t *testing.T, what string, find func(dir string) error) {
	t.Helper()
	for _, file := range []string{checkpoint.MetaFile, checkpoint.MasterFile, "adam_m.safetensors", "adam_v.safetensors"} {
		for thing, put := range map[string]func(name string) error{
			"a directory": func(name string) error { return os.Mkdir(name, 0o750) },
			"a pipe":      func(name string) error { return syscall.Mkfifo(name, 0o600) },
			"a link to a pipe": func(name string) error {
				return errors.Join(syscall.Mkfifo(name+"2", 0o600), os.Symlink(name+"2", name))
			},
			"a link to a device":   func(name string) error { return os.Symlink("/dev/zero", name) },
			"a link to nothing":    func(name string) error { return os.Symlink(name+"3", name) },
			"a link to itself":     func(name string) error { return os.Symlink(filepath.Base(name), name) },
			"another file's bytes": func(name string) error { return os.Link(filepath.Join(filepath.Dir(name), "other"), name) },
		} {
			dir := filepath.Join(t.TempDir(), "c")
			if _, err := checkpoint.SaveState(t.Context(), dir, state(1, 3), 3); err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(dir, file)
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "other"), []byte("{}"), 0o600), os.Remove(name), put(name)); err != nil {
				t.Fatal(err)
			}
			err := find(dir)
			if k := fault.KindOf(err); err == nil || k != fault.Corrupt && (k != fault.NotFound || file != checkpoint.MetaFile) {
				t.Errorf("%s: %s in place of %s: %v, want Corrupt", what, thing, file, err)
			}
		}
	}
}

// Numbers of meta.json that are not those of the files are damage before anything is made in their size.
func otherNumbers(t *testing.T, what string, find func(dir string) error) {
	t.Helper()
	for _, format := range []int{1, 2} {
		dir := filepath.Join(t.TempDir(), "c")
		if format == 1 {
			saveAs1(t, dir, state(1, 3), 3)
		} else if _, err := checkpoint.SaveState(t.Context(), dir, state(1, 3), 3); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, checkpoint.MetaFile)
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for field, values := range map[string][]any{
			"format": {0, 3, -1, "2", nil}, "files": {nil, []any{}, "x"}, "config": {nil, 1},
			"config.hidden_size": {0, -8, 16, 1 << 17, 1 << 40, "8"}, "config.vocab_size": {13, 1 << 24, 1 << 62}, "config.num_hidden_layers": {2, 1 << 11, 1 << 40},
			"config.num_attention_heads": {4, 1 << 12, 1 << 40}, "config.head_dim": {2, 1 << 12, 1 << 40}, "config.intermediate_size": {11, 1 << 20, 1 << 40},
			"files.size": {0, -1, 1 << 40, "9"}, "files.name": {"", "x", "../c/master.safetensors", 7},
		} {
			for _, v := range values {
				var meta map[string]any
				if err := json.Unmarshal(good, &meta); err != nil {
					t.Fatal(err)
				}
				at, key := meta, field
				if parent, child, ok := strings.Cut(field, "."); ok && parent == "config" {
					at, key = meta["config"].(map[string]any), child //nolint:forcetypeassert,errcheck // it is an object
				} else if ok {
					at, key = meta["files"].([]any)[1].(map[string]any), child //nolint:forcetypeassert,errcheck // a list of objects
				}
				at[key] = v
				data, err := json.Marshal(meta)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, data, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := find(dir); !fault.Is(err, fault.Corrupt) {
					t.Errorf("%s of format %d with %s %v: %v, want Corrupt", what, format, field, v, err)
				}
			}
		}
	}
}

// Two files of one checkpoint that are exchanged are both damaged, though each block is one of the state's.
func TestVerify_exchangedFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "c")
	if _, err := checkpoint.SaveState(t.Context(), dir, state(1, 3), 3); err != nil {
		t.Fatal(err)
	}
	m, v, other := filepath.Join(dir, "adam_m.safetensors"), filepath.Join(dir, "adam_v.safetensors"), filepath.Join(dir, "other")
	if err := errors.Join(os.Rename(m, other), os.Rename(v, m), os.Rename(other, v)); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Verify(t.Context(), dir); !fault.Is(err, fault.Corrupt) {
		t.Errorf("%v, want Corrupt", err)
	}
}

func TestSave_refusesAStateThatIsNotFinite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "c")
	s := state(1, 1)
	s.V.Data[0][0] = float32(math.Inf(1))
	if _, err := checkpoint.SaveState(t.Context(), dir, s, 1); !fault.Is(err, fault.Numeric) {
		t.Errorf("%v, want Numeric", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error("nothing may be visible")
	}
}
