package live

import (
	"io/fs"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
	"github.com/steadyrl/steady/internal/transcript"
	"github.com/steadyrl/steady/internal/weights"
)

// Whatever the tokens and wherever colours change, the pieces joined are the whole text, no character is cut, and the legend counts
// every token that has a bin.
func TestPieces_joinedAreTheText(t *testing.T) {
	t.Parallel()
	data, err := loadTokenizer()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	decode := func(ids []int32) []byte { return tok.DecodeBytes(ids, false) }
	rapid.Check(t, func(rt *rapid.T) {
		ids := tok.Encode(rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("aß終😀\x1b\u202e \n<&")))).Draw(rt, "text"))
		values := rapid.SliceOfN(rapid.SampledFrom([]float64{math.NaN(), -1, -0.3, -0.1, 0, 0.1, 0.3, 1}), len(ids), len(ids)).Draw(rt, "values")
		s := signed("x", "", "%g", [3]float64{0.01, 0.2, 0.5}, func(i int) float64 { return values[i] })
		begin := rapid.IntRange(0, len(ids)).Draw(rt, "begin")
		var b strings.Builder
		for _, p := range s.pieces(decode, ids, begin, len(ids)) {
			if p.Text == "" {
				rt.Fatal("an empty piece")
			}
			b.WriteString(p.Text)
		}
		if want := transcript.Visible(strings.ToValidUTF8(tok.Decode(ids[begin:], false), "\uFFFD")); begin == 0 && b.String() != want {
			rt.Fatalf("pieces give %q, want %q", b.String(), want)
		}
		counted, want := 0, 0
		for _, n := range s.bins {
			counted += n.Count
		}
		for _, v := range values[begin:] {
			want += b2i(!math.IsNaN(v))
		}
		if counted != want {
			rt.Fatalf("the legend counts %d tokens of %d", counted, want)
		}
	})
}

func TestScale_binsHaveTheirBounds(t *testing.T) {
	t.Parallel()
	v := 0.0
	s := signed("x", "", "%g", [3]float64{0.01, 0.2, 0.5}, func(int) float64 { return v })
	p := steps("y", "", []float64{0.9, 0.5, 0.1}, func(int) float64 { return v })
	for value, want := range map[float64][2]string{
		-0.7: {"n3", "s3"}, -0.5: {"n2", "s3"}, -0.05: {"n1", "s3"}, -0.01: {"z", "s3"}, 0: {"z", "s3"}, 0.01: {"z", "s3"}, 0.02: {"p1", "s3"},
		0.1: {"p1", "s2"}, 0.3: {"p2", "s2"}, 0.5: {"p2", "s1"}, 0.9: {"p3", "s0"}, 1: {"p3", "s0"},
	} {
		v = value
		if got := [2]string{s.bins[s.of(0)].Class, p.bins[p.of(0)].Class}; got != want {
			t.Errorf("%v is in %v, want %v", value, got, want)
		}
	}
	if v = math.NaN(); s.of(0) != -1 || p.of(0) != -1 {
		t.Error("what is not known has a colour")
	}
}

// trained makes a run of one step: the sampler's weights differ from the trainer's, as in a run that is not in step. It returns what the
// trainer says of the update.
func trained(t *testing.T) (*fixture, engine.StepMetrics) {
	t.Helper()
	const k = 8
	f := newFixture(t, t.TempDir(), "alpha")
	f.start(2)
	w, err := weights.LoadFS(demo.Model())
	if err != nil {
		t.Fatal(err)
	}
	other := model.NewWeights(w.Config)
	other.Init(7, 0.01)
	sampling := w.Clone()
	for i := range sampling.Data {
		for j := range sampling.Data[i] {
			sampling.Data[i][j] += other.Data[i][j] * 0.3
		}
	}
	sampler, err := cpu.NewSampler(w.Config, cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer sampler.Close()
	if err := sampler.SetWeights(t.Context(), 0, sampling); err != nil {
		t.Fatal(err)
	}
	tok := f.tokenizer()
	var ts []*trajectory.Trajectory
	b := record.Sealed{Step: 1, Objective: rl.Default(k), Optim: rl.DefaultAdamW(), Temperature: 0.8}
	batch := engine.Batch{Objective: b.Objective, Optim: b.Optim, Plan: engine.Plan{MicroBatches: [][]int{{0, 1}}}}
	for n, advantage := range []float64{0.5, -0.5} {
		tr := trajectory.New(trajectory.Key{ProblemID: "demo/0", Sample: n, Tag: 1}, tok.Encode("Read a number and print it.\n"), k)
		for range 2 { // two turns, with inserted text between them
			tr.BeginTurn()
			req := engine.Request{
				Tokens: tr.IDs(), MaxNew: 6, Sampling: engine.Sampling{Temperature: b.Temperature, TopK: k}, Random: rng.New(uint64(n), rng.Train, "x"),
			}
			if _, err := sampler.Generate(t.Context(), req, tr.AppendSampled); err != nil {
				t.Fatal(err)
			}
			tr.AppendInserted(tok.Encode("\nok\n"))
		}
		tr.End = trajectory.EndStop
		ts = append(ts, tr)
		b.Samples = append(b.Samples, record.Sample{Group: 0, Index: n, Advantage: advantage, Tokens: tr.Len(), Sampled: tr.Sampled()})
		batch.Sequences = append(batch.Sequences, tr.Sequence(float32(advantage), b.Temperature))
	}
	g := record.Group{N: 0, ProblemID: "demo/0", Tag: 1}
	g.File, g.Verdicts = f.unit(record.GroupUnit(0, 1, 0, 0), ts)
	b.Groups = []record.Group{g}
	f.json(f.l.Batch(1), b)
	f.json(f.l.Ledger(1), record.Ledger{Step: 1, Submitted: []record.Submitted{{Tag: 1}}, Trained: []int{0}, NextGroup: 1, Cursor: record.Cursor{Next: 1}})
	data, err := weights.Encode(w, weights.BF16)
	if err != nil {
		t.Fatal(err)
	}
	f.json(f.l.WeightsInfo(0), record.Version{File: f.put(f.l.Weights(0), data)})
	config, err := fs.ReadFile(demo.Model(), weights.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	f.put(f.l.Base()+"/"+weights.ConfigFile, config)
	trainer, err := cpu.NewTrainer(w.Config, w, cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	m, err := trainer.Update(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	return f, m
}

// The corrections of the tokens, computed again from the files, have the mean that the trainer recorded.
func TestCorrections_haveTheMeansOfTheUpdate(t *testing.T) {
	t.Parallel()
	f, m := trained(t)
	c := NewCache(f.store())
	sum, abs, n := 0.0, 0.0, 0
	for sample := range 2 {
		it, err := groupItem(t.Context(), c, f.l, 0, sample)
		if err != nil {
			t.Fatal(err)
		}
		all, err := corrections(t.Context(), c, f.l, it)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range all {
			if math.IsNaN(v) == it.t.Mask()[i] {
				t.Fatalf("token %d, sampled %v, has the correction %v", i, it.t.Mask()[i], v)
			}
			if it.t.Mask()[i] {
				sum, abs, n = sum+v, abs+math.Abs(v)*math.Abs(it.sample.Advantage), n+1
			}
		}
	}
	near := func(name string, got, want float64) {
		if !(math.Abs(got-want) <= 1e-5*math.Abs(want)+1e-9) || want == 0 {
			t.Errorf("%s is %v, the trainer recorded %v", name, got, want)
		}
	}
	if n != m.Tokens {
		t.Errorf("%d tokens, the trainer had %d", n, m.Tokens)
	}
	near("the mean correction", sum/float64(n), m.Correction)
	near("the mean of its size times the advantage", abs/float64(n), m.CorrectionA)
	body := want(t, f.serve(), "/runs/alpha/groups/0/0?colour=correction", "Score-Centering term C")
	if strings.Contains(body, "No colours by correction") {
		t.Error("the page does not show what can be computed")
	}
}

// Where the files do not suffice, no correction is made up.
func TestCorrections_sayWhyThereAreNone(t *testing.T) {
	t.Parallel()
	f, _ := trained(t)
	c := NewCache(f.store())
	it, err := groupItem(t.Context(), c, f.l, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	untrained, off, large := *it, *it, *it
	untrained.sample = nil
	sealed := *it.sealed
	sealed.Objective.Centering = rl.CenteringOff
	off.sealed = &sealed
	long := trajectory.New(trajectory.Key{}, make([]int32, 1<<20), 0)
	large.t = long
	gone := *it.sealed
	gone.Step = 9
	removed := *it
	removed.sealed = &gone
	for _, x := range []struct {
		it   *item
		kind fault.Kind
		says string
	}{
		{&untrained, fault.NotFound, "was not trained"},
		{&off, fault.Invalid, "without Score Centering"},
		{&large, fault.Exhausted, "million parameters"},
		{&removed, fault.NotFound, "version 8 are no longer kept"},
	} {
		if _, err := corrections(t.Context(), c, f.l, x.it); !fault.Is(err, x.kind) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%v, want %s that says %q", err, x.kind, x.says)
		}
	}
	// Damaged weights are no weights.
	f.put(f.l.Weights(0), []byte("no weights"))
	if _, err := corrections(t.Context(), NewCache(f.store()), f.l, it); !fault.Is(err, fault.Corrupt) {
		t.Errorf("with damaged weights: %v", err)
	}
}
