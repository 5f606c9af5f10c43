package checkpoint_test

import (
	"math"
	"os"
	"path/filepath"
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

func TestSaveLoad_everyBitComesBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "checkpoints", "000007")
	s := state(1, 7)
	for range 2 { // the second finds the first and changes nothing
		if _, err := checkpoint.SaveState(t.Context(), dir, s, 7); err != nil {
			t.Fatal(err)
		}
	}
	got, meta, err := checkpoint.Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if weights.StateDigest(got) != weights.StateDigest(s) || meta.Step != 7 || got.Steps != 7 {
		t.Errorf("state %v differs after a round trip", meta)
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

func TestLoad_everyDamageIsFound(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "c")
	if _, err := checkpoint.SaveState(t.Context(), dir, state(1, 3), 3); err != nil {
		t.Fatal(err)
	}
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
		for what, bad := range map[string][]byte{
			"a flipped bit": append(append([]byte{}, good[:len(good)/2]...), append([]byte{good[len(good)/2] ^ 1}, good[len(good)/2+1:]...)...),
			"a cut":         good[:len(good)-2],
			"nothing":       {},
		} {
			if err := os.WriteFile(name, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := checkpoint.Load(t.Context(), dir); !fault.Is(err, fault.Corrupt) {
				t.Errorf("%s with %s: %v, want Corrupt", e.Name(), what, err)
			}
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		want := fault.Corrupt
		if e.Name() == checkpoint.MetaFile {
			want = fault.NotFound
		}
		if _, _, err := checkpoint.Load(t.Context(), dir); !fault.Is(err, want) {
			t.Errorf("%s missing: %v, want %s", e.Name(), err, want)
		}
		if err := os.WriteFile(name, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := checkpoint.Load(t.Context(), dir); err != nil {
		t.Errorf("restored: %v", err)
	}
	// A save over a damaged checkpoint repairs it.
	if err := os.WriteFile(filepath.Join(dir, checkpoint.MasterFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.SaveState(t.Context(), dir, state(1, 3), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Verify(t.Context(), dir); err != nil {
		t.Errorf("repaired: %v", err)
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
