package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
)

// use is a GPU of the published run with both engines.
func use(t *testing.T, size string) plan.Use {
	t.Helper()
	s, err := plan.SizeNamed(size)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Use{Model: s.Model, Trainer: true, Sampler: true, Micro: 16384, Longest: 12288, Record: 128, Sequences: 64}
}

// The numbers of weights are those of the published files: the sums of the elements in their safetensors headers.
func TestQwen3_hasThePublishedNumberOfWeights(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{
		"0.6B": 596_049_920, "1.7B": 1_720_574_976, "4B": 4_022_468_096, "8B": 8_190_735_360, "14B": 14_768_307_200,
	} {
		u := use(t, name)
		if got := plan.Parameters(u.Model); got != want {
			t.Errorf("%s has %d weights, want %d", name, got, want)
		}
		// Widths of these models need no padding: vectors are float32, all else BF16.
		vectors := 0
		for _, s := range u.Model.Tensors() {
			if len(s.Shape) == 1 {
				vectors += s.Size()
			}
		}
		n := plan.Least(u)
		for class, want := range map[plan.Class]int{
			plan.Weights: 2*want + 2*vectors, plan.Master: 4 * want, plan.Moments: 8 * want, plan.Gradients: 4 * want,
		} {
			if got := n.ByClass(plan.TrainerSide, class); got != want {
				t.Errorf("%s: %s take %d bytes, want %d", name, class, got, want)
			}
		}
	}
}

// By hand for the 4B shape and 16,384 tokens: a token's kept inputs are 37 x 2,560 x 4 bytes; a page of 32 tokens has 2 x 36 x 8 x 128 x 2 bytes a token.
func TestLeast_agreesWithArithmeticByHand(t *testing.T) {
	t.Parallel()
	u := use(t, "4B")
	s := plan.SizesOf(u.Model)
	if got, want := plan.PageBytes(s, 2), 32*147_456; got != want {
		t.Errorf("a page takes %d bytes, want %d", got, want)
	}
	m, workspace := plan.Worst(s, 16384, 12288, 128)
	named := map[string]int{}
	for _, p := range plan.FastParts(s, m) {
		named[p.Name] = p.Bytes
	}
	for name, want := range map[string]int{"x": 16384 * 37 * 2560 * 4, "logits": 2048 * 151936 * 4, "dgu": 16384 * 2 * 9728 * 2, "logQ": 16384 * 128 * 4} {
		if named[name] != want {
			t.Errorf("%s takes %d bytes, want %d", name, named[name], want)
		}
	}
	// 16 query heads of a bucket of 16,384 tokens: 4 key heads fit in 9 GiB.
	if want := 2 * 16 * 16384 * 16384; workspace != want {
		t.Errorf("the workspace is %d bytes, want %d", workspace, want)
	}
}

// Whatever the model, the card and the sizes are: what is planned fits where it is said to, and not one step beyond what is named as the largest.
func TestFill_staysWithinTheMemory(t *testing.T) {
	t.Parallel()
	cases, fitting := 0, 0
	for _, size := range plan.Qwen3() {
		for _, card := range plan.Cards() {
			for kind := range 3 {
				for _, longest := range []int{736, 4096, 12288} {
					u := plan.Use{Model: size.Model, Trainer: kind != 1, Sampler: kind != 0, Micro: 16384, Longest: longest, Record: 128, Sequences: 64}
					name := fmt.Sprintf("%s on %s, %+v", size.Name, card.Name, u)
					memory := card.Bytes()
					cases++
					if n := plan.LongestThatFits(u, memory); n > 0 {
						v := u
						v.Longest, v.Micro = n, min(n, u.Micro)
						if !plan.Fits(v, memory) || n > longest {
							t.Errorf("%s: a longest of %d is named and does not fit", name, n)
						}
					}
					if n := plan.MicroThatFits(u, memory); n > 0 {
						v := u
						v.Micro = n
						if !plan.Fits(v, memory) {
							t.Errorf("%s: a budget of %d is named and does not fit", name, n)
						}
						if v.Micro = n + 256; v.Micro <= u.Micro && plan.Fits(v, memory) {
							t.Errorf("%s: %d is named as the largest budget, %d fits too", name, n, v.Micro)
						}
					}
					if !plan.Fits(u, memory) {
						continue
					}
					fitting++
					f := plan.Fill(u, memory)
					if f.Free < 0 || u.Trainer && f.Layers < 1 || u.Sampler && f.Together < 1 {
						t.Errorf("%s: filled with %+v", name, f)
					}
				}
			}
		}
	}
	if fitting < 20 || cases-fitting < 20 {
		t.Errorf("%d of %d cases fit: the cards and models do not try both sides", fitting, cases)
	}
}

// A larger demand never takes less.
func TestLeast_growsWithEveryDemand(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]func(*plan.Use){
		"micro-batch": func(u *plan.Use) { u.Micro += 4096 },
		"longest":     func(u *plan.Use) { u.Longest += 4096 },
		"record":      func(u *plan.Use) { u.Record *= 2 },
		"sequences":   func(u *plan.Use) { u.Sequences *= 2 },
		"rows":        func(u *plan.Use) { u.Rows = 4096 },
		"cache":       func(u *plan.Use) { u.CacheTokens = 100_000 },
		"model":       func(u *plan.Use) { u.Model = plan.Qwen3()[3].Model },
	} {
		u := use(t, "4B")
		least := plan.Least(u).Bytes()
		if more(&u); plan.Least(u).Bytes() <= least {
			t.Errorf("with a larger %s the least is %d bytes, before %d", name, plan.Least(u).Bytes(), least)
		}
	}
}

func TestCardNamed_findsUsualSpellings(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"H200": "H200", "NVIDIA H200": "H200", "h100": "H100-80GB", "H100 SXM": "H100-80GB", "rtx4090": "RTX-4090", "NVIDIA GeForce RTX 4090": "RTX-4090",
		"a100-40gb": "A100-40GB", "A100": "A100-80GB", "RTX PRO 6000": "RTX-PRO-6000", "l4": "L4",
	} {
		if got, err := plan.CardNamed(name); err != nil || got.Name != want {
			t.Errorf("%q is %q (%v), want %q", name, got.Name, err, want)
		}
	}
	for _, name := range []string{"", "H300", "80GB"} {
		if got, err := plan.CardNamed(name); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "--memory") {
			t.Errorf("%q is %v: %v", name, got, err)
		}
	}
	for name, want := range map[string]string{"4B": "4B", "qwen3-4b": "4B", "Qwen/Qwen3-0.6B": "0.6B"} {
		if got, err := plan.SizeNamed(name); err != nil || got.Name != want {
			t.Errorf("%q is %q (%v), want %q", name, got.Name, err, want)
		}
	}
	if _, err := plan.SizeNamed("5B"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a size that does not exist: %v", err)
	}
}

func TestUse_refusesWhatNoPlanFits(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*plan.Use){
		"no engine":       func(u *plan.Use) { u.Trainer, u.Sampler = false, false },
		"no budget":       func(u *plan.Use) { u.Micro = 0 },
		"no sequence":     func(u *plan.Use) { u.Sequences = 0 },
		"beyond model":    func(u *plan.Use) { u.Longest = 50_000 },
		"no model":        func(u *plan.Use) { u.Model.Layers = 0 },
		"negative cache":  func(u *plan.Use) { u.CacheTokens = -1 },
		"negative record": func(u *plan.Use) { u.Record = -1 },
	} {
		u := use(t, "0.6B")
		if err := u.Check(); err != nil {
			t.Fatal(err)
		}
		if edit(&u); !fault.Is(u.Check(), fault.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, u.Check())
		}
	}
}

func ExampleLeast() {
	size, _ := plan.SizeNamed("4B")
	u := plan.Use{Model: size.Model, Trainer: true, Micro: 16384, Longest: 12288, Record: 128, Sequences: 64}
	n := plan.Least(u)
	for _, c := range plan.Classes() {
		if b := n.ByClass("", c); b > 0 {
			fmt.Printf("%-20s %6.1f GiB\n", c, float64(b)/(1<<30))
		}
	}
	// Output:
	// weights                15.0 GiB
	// master weights         15.0 GiB
	// moments                30.0 GiB
	// gradients              15.0 GiB
	// activations             9.0 GiB
	// attention workspace     8.0 GiB
	// logits                  1.8 GiB
	// record                  0.0 GiB
	// keys and values         0.0 GiB
	// tables, workspace       0.2 GiB
	// driver and libraries    1.0 GiB
}

// The parts of a product are what the tables of docs/benchmarks/cuda.md were measured with, and always few enough for the kernels, each of at least four blocks of 64
// columns unless there is one part.
func TestProductParts_areFewAndNotSmall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		out, in, parts int
		tall           bool
	}{{6144, 2560, 4, true}, {2560, 4096, 6, false}, {19456, 2560, 1, true}, {2560, 9728, 6, false}, {151936, 2560, 1, false}, {24, 24, 1, false}} {
		if parts, tall := plan.ProductParts(tt.out, tt.in); parts != tt.parts || tall != tt.tall {
			t.Errorf("[%d,%d]: %d parts, tall %v, want %d, %v", tt.out, tt.in, parts, tall, tt.parts, tt.tall)
		}
	}
	for out := 8; out < 40_000; out += 56 {
		for _, in := range []int{8, 64, 256, 504, 1024, 4096, 12_288} {
			parts, _ := plan.ProductParts(out, in)
			if parts < 1 || parts > plan.MostParts || parts > 1 && plan.Pad(in, 64)/64/parts < 4 {
				t.Fatalf("[%d,%d]: %d parts", out, in, parts)
			}
		}
	}
	// Few rows have room for all parts, many rows for one.
	s := plan.SizesOf(use(t, "4B").Model)
	if qkv, delta := plan.SumRows(s, 1024, 256); qkv != 1024 || delta != 6*256 {
		t.Errorf("room for %d and %d rows, want 1024 and 1536", qkv, delta)
	}
	if qkv, delta := plan.SumRows(s, 8192, 64); qkv != 8192 || delta != 8192 {
		t.Errorf("room for %d and %d rows, want 8192", qkv, delta)
	}
}
