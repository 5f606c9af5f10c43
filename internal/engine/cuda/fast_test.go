//go:build cuda

package cuda

import (
	"math"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
)

// wideHeads is a model for the fast kernels: two query heads to a key head, widths that are no multiples of a tile.
var wideHeads = model.Config{
	Vocab: 100, Hidden: 40, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: fastHead, Intermediate: 72, MaxPosition: 600, RMSEps: 1e-6, RopeTheta: 1e6,
	TieEmbedding: true,
}

// The tolerance is that of TestGradient_packedIsNearTheReference and for its reasons; values between products are rounded too, which adds as many
// roundings again.
func TestFast_gradientIsNearTheReference(t *testing.T) {
	o := options(t, BF16)
	for name, edit := range map[string]func(*rl.Objective){
		"proportional": func(*rl.Objective) {},
		"full record":  func(o *rl.Objective) { o.Centering = rl.CenteringFull },
		"off":          func(o *rl.Objective) { o.Centering = rl.CenteringOff },
		"supervised":   func(o *rl.Objective) { *o = rl.Objective{Supervised: true} },
		"tis":          func(o *rl.Objective) { o.Rule, o.Cap = rl.RuleTIS, 1.05 },
		"band":         func(o *rl.Objective) { o.Rule = rl.RuleBand },
	} {
		c := wideHeads
		if name == "off" {
			c.TieEmbedding = false
		}
		width, lengths := 5, []int{2, 7}
		switch name {
		case "proportional":
			lengths = []int{3, 70, 1, 20} // more than a tile of keys
		case "full record":
			width = c.Vocab
		}
		b := packed(c, width, lengths...)
		edit(&b.Objective)
		errors, got, want := gradientErrors(t, o, c, b)
		for tensor, e := range errors {
			if !(e < 0.04) {
				t.Errorf("%s: the gradient of %s is off by %.2g of its norm, want less than 0.04", name, tensor, e)
			}
		}
		for figure, pair := range map[string][2]float64{
			"loss": {got.Loss, want.Loss}, "norm": {got.GradNorm, want.GradNorm}, "correction": {got.Correction, want.Correction},
			"correction times advantage": {got.CorrectionA, want.CorrectionA}, "uncovered": {got.Uncovered, want.Uncovered},
			"tail":    {got.TrainerTail, want.TrainerTail},
			"entropy": {got.Entropy, want.Entropy}, "gap": {got.LogProbGap, want.LogProbGap}, "KL": {got.KL, want.KL}, "alpha": {got.MaxAlpha, want.MaxAlpha},
			"share outside": {got.OutsideShare, want.OutsideShare}, "share floored": {got.FloorShare, want.FloorShare},
		} {
			if math.IsNaN(pair[0]) != math.IsNaN(pair[1]) || math.Abs(pair[0]-pair[1]) > 0.02*(1+math.Abs(pair[1])) {
				t.Errorf("%s: %s = %v, want %v", name, figure, pair[0], pair[1])
			}
		}
	}
}

// What memory allows to keep does not change a bit: activations that are computed again are the same. Nor does a second run.
func TestFast_sameBitsHoweverMuchIsKept(t *testing.T) {
	o := options(t, BF16)
	c := wideHeads
	c.Layers = 3
	b := packed(c, 5, 7, 12, 5)
	b.Plan.MicroBatches = [][]int{{0, 1}, {2}}
	update := func(slots int) *engine.State {
		o := o
		o.slots = slots
		tr, err := NewTrainer(c, weightsOf(c, 9, 0.1), o)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		if _, err := tr.Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		return tr.State()
	}
	want := update(0)
	for _, slots := range []int{0, 1, 2} {
		if got := update(slots); !got.Master.Equal(want.Master) || !got.M.Equal(want.M) || !got.V.Equal(want.V) {
			t.Errorf("with activations of %d layers the state differs from one with all kept", slots)
		}
	}
}

// Every row is in one call of attention for each of its heads, whatever the lengths, and no call asks for more workspace than there is room for.
func TestPlanCalls_coverEveryHeadOfEverySequence(t *testing.T) {
	t.Parallel()
	s := sizesOf(shapes[1].cfg)
	for _, lengths := range [][]int{
		{1},
		{128, 129},
		{2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048},
		{8192, 8191},
		{40000, 900, 3, 2, 1},
		{8192, 8192, 8192, 600, 100, 100, 100},
	} {
		ordered := append([]int{}, lengths...)
		for i := 1; i < len(ordered); i++ { // by bucket, as order does
			for j := i; j > 0 && bucket(ordered[j]) > bucket(ordered[j-1]); j-- {
				ordered[j], ordered[j-1] = ordered[j-1], ordered[j]
			}
		}
		f := &fastTrain{}
		var stats int
		f.m.calls, stats = planCalls(s, ordered)
		p := &packer{}
		f.packCalls(p, ordered)
		covered, end := map[[2]int]int{}, 0
		for _, call := range f.m.calls {
			a := call.shape
			if a.Batch*a.Heads*a.Length*a.Length*2 > attendRoom && a.KVHeads > 1 {
				t.Errorf("%v: %+v needs more than the room", lengths, a)
			}
			if call.stats != end {
				t.Errorf("%v: statistics at %d, want %d", lengths, call.stats, end)
			}
			end += a.Batch * a.Heads * a.Length
			at := int(call.args.OffsetsQ) / 4
			n := int(call.args.Lengths) / 4
			for i := range a.Batch {
				first, length := int(p.ints[at+i])/a.StrideQ, int(p.ints[n+i])
				if length > a.Length || int(p.ints[at+i+1])/a.StrideQ != first+length {
					t.Errorf("%v: sequence at row %d of %d tokens in a call for %d", lengths, first, length, a.Length)
				}
				for h := range a.KVHeads {
					covered[[2]int{first, call.head + h}] += length
				}
			}
		}
		first := 0
		for _, n := range ordered {
			for h := range s.KVHeads {
				if got := covered[[2]int{first, h}]; got != n {
					t.Errorf("%v: head %d of the %d tokens from row %d on is in calls for %d", lengths, h, n, first, got)
				}
			}
			first += n
		}
		if end != stats || len(covered) != len(lengths)*s.KVHeads {
			t.Errorf("%v: %d of %d sequences and heads, %d of %d statistics", lengths, len(covered), len(lengths)*s.KVHeads, end, stats)
		}
	}
}

// Where the sampler's bits are asked for, and where the fast kernels cannot do a width, the sampler's kernels serve.
func TestSuits_isTheFastStepsWidths(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit func(*model.Config, *Options)
		want bool
	}{
		"BF16":           {func(*model.Config, *Options) {}, true},
		"exact":          {func(_ *model.Config, o *Options) { o.Exact = true }, false},
		"float32":        {func(_ *model.Config, o *Options) { o.Precision = Float32 }, false},
		"narrow heads":   {func(c *model.Config, _ *Options) { c.HeadDim = 64 }, false},
		"odd width":      {func(c *model.Config, _ *Options) { c.Hidden = 36 }, false},
		"wide":           {func(c *model.Config, _ *Options) { c.Hidden = 2 * fastHidden }, false},
		"odd middle":     {func(c *model.Config, _ *Options) { c.Intermediate = 70 }, false},
		"odd vocabulary": {func(c *model.Config, _ *Options) { c.Vocab = 101 }, false},
	} {
		c, o := wideHeads, Options{Precision: BF16}
		tt.edit(&c, &o)
		if got := suits(sizesOf(c), o); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
