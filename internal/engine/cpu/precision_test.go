package cpu

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu/kernel"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/weights"
)

// plainINT8 rounds the matrices of the layers in the plainest way, in float64: of each row, 127 steps to the largest magnitude.
func plainINT8(w *model.Weights) *model.Weights {
	out := model.NewWeights(w.Config)
	for i, s := range w.Specs {
		copy(out.Data[i], w.Data[i])
		matrix := false
		for _, name := range []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"} {
			matrix = matrix || len(s.Name) > len(name)+7 && s.Name[len(s.Name)-len(name)-7:] == name+".weight"
		}
		if !matrix {
			continue
		}
		rows, columns := s.Shape[0], s.Shape[1]
		for r := range rows {
			largest := 0.0
			for c := range columns {
				largest = math.Max(largest, math.Abs(float64(w.Data[i][r*columns+c])))
			}
			for c := range columns {
				if largest > 0 {
					steps := math.RoundToEven(float64(w.Data[i][r*columns+c]) * 127 / largest)
					out.Data[i][r*columns+c] = float32(steps * largest / 127)
				}
			}
		}
	}
	return out
}

// published are weights as a trainer publishes them.
func published(cfg model.Config, seed uint64) *model.Weights {
	w := initial(cfg, seed)
	for _, d := range w.Data {
		for i := range d {
			d[i] = weights.RoundBF16(d[i])
		}
	}
	return w
}

func scores(t *testing.T, s engine.Sampler, tokens []int32) []float32 {
	t.Helper()
	lp, err := s.Score(context.Background(), tokens)
	if err != nil {
		t.Fatal(err)
	}
	return lp
}

// distance is the mean absolute difference.
func distance(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += math.Abs(float64(a[i]) - float64(b[i]))
	}
	return sum / float64(len(a))
}

// A sampler with INT8 matrices is the oracle with weights that were rounded by plain arithmetic.
func TestPrecision_int8IsThePlainRounding(t *testing.T) {
	t.Parallel()
	for _, cfg := range []model.Config{odd, even} {
		w := published(cfg, 7)
		tokens := prompt(cfg, 90, 0, 1)
		oracle, err := ref.NewSampler(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer oracle.Close()
		if err := oracle.SetWeights(t.Context(), 0, plainINT8(w)); err != nil {
			t.Fatal(err)
		}
		got := scores(t, startSampler(t, cfg, Options{Precision: INT8}, w), tokens)
		exact := scores(t, startSampler(t, cfg, Options{}, w), tokens)
		if d, all := distance(got, scores(t, oracle, tokens)), distance(got, exact); d > 1e-5 || all < 20*d || all == 0 {
			t.Errorf("distance to the oracle %.2g, to full precision %.2g", d, all)
		}
	}
}

func TestQuantizeRow_stepsOfTheLargest(t *testing.T) {
	t.Parallel()
	row := []float32{-127, 63.5, 64.5, 0.4, 0.6, 0, 126.49}
	quantizeRow(row)
	if d := cmp.Diff([]float32{-127, 64, 64, 0, 1, 0, 126}, row); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	zero := []float32{0, 0}
	quantizeRow(zero)
	if zero[0] != 0 || zero[1] != 0 {
		t.Errorf("zeros became %v", zero)
	}
	w := published(odd, 3)
	before := fmt.Sprint(w.Data[1][:8])
	if q := quantized(w); fmt.Sprint(w.Data[1][:8]) != before || fmt.Sprint(q.Data[1][:8]) == before {
		t.Error("the weights that were given have changed, or the copy has not")
	}
}

// plainBF16 is a forward pass in float64 by the formulas, with every result of a product, norm, head, attention and sum rounded to BF16; it returns the
// log-probability of each token after the first.
func plainBF16(w *model.Weights, tokens []int32) []float32 {
	c := w.Config
	bf := func(x []float64) []float64 {
		for i := range x {
			x[i] = float64(weights.RoundBF16(float32(x[i])))
		}
		return x
	}
	tensor := func(name string) []float32 {
		for i, s := range w.Specs {
			if s.Name == name {
				return w.Data[i]
			}
		}
		panic(name)
	}
	product := func(m []float32, x []float64) []float64 {
		y := make([]float64, len(m)/len(x))
		for i := range y {
			for j, v := range x {
				y[i] += float64(m[i*len(x)+j]) * v
			}
		}
		return bf(y)
	}
	norm := func(x []float64, g []float32) []float64 {
		ss := 0.0
		for _, v := range x {
			ss += v * v
		}
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = v / math.Sqrt(ss/float64(len(x))+c.RMSEps) * float64(g[i])
		}
		return y
	}
	embed := tensor("model.embed_tokens.weight")
	head := embed
	if !c.TieEmbedding {
		head = tensor("lm_head.weight")
	}
	xs := make([][]float64, len(tokens))
	for t, id := range tokens {
		for i := range c.Hidden {
			xs[t] = append(xs[t], float64(embed[int(id)*c.Hidden+i]))
		}
	}
	rotate := func(x []float64, pos int) {
		half := c.HeadDim / 2
		for i := range half {
			angle := float64(pos) * math.Pow(c.RopeTheta, -2*float64(i)/float64(c.HeadDim))
			a, b := x[i], x[half+i]
			x[i], x[half+i] = a*math.Cos(angle)-b*math.Sin(angle), b*math.Cos(angle)+a*math.Sin(angle)
		}
	}
	for l := range c.Layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		var qs, ks, vs [][]float64
		for t, x := range xs {
			n := bf(norm(x, tensor(p+"input_layernorm.weight")))
			q, k := product(tensor(p+"self_attn.q_proj.weight"), n), product(tensor(p+"self_attn.k_proj.weight"), n)
			for h := range c.Heads {
				y := norm(q[h*c.HeadDim:][:c.HeadDim], tensor(p+"self_attn.q_norm.weight"))
				rotate(y, t)
				for i := range y {
					y[i] /= math.Sqrt(float64(c.HeadDim))
				}
				copy(q[h*c.HeadDim:], bf(y))
			}
			for h := range c.KVHeads {
				y := norm(k[h*c.HeadDim:][:c.HeadDim], tensor(p+"self_attn.k_norm.weight"))
				rotate(y, t)
				copy(k[h*c.HeadDim:], bf(y))
			}
			qs, ks, vs = append(qs, q), append(ks, k), append(vs, product(tensor(p+"self_attn.v_proj.weight"), n))
		}
		for t := range xs {
			attn := make([]float64, c.Heads*c.HeadDim)
			for h := range c.Heads {
				kv := h / (c.Heads / c.KVHeads)
				var e []float64
				sum := 0.0
				for u := range t + 1 {
					s := 0.0
					for i := range c.HeadDim {
						s += qs[t][h*c.HeadDim+i] * ks[u][kv*c.HeadDim+i]
					}
					e = append(e, math.Exp(s))
					sum += e[u]
				}
				for u := range e {
					for i := range c.HeadDim {
						attn[h*c.HeadDim+i] += e[u] / sum * vs[u][kv*c.HeadDim+i]
					}
				}
			}
			add := func(y []float64) {
				for i := range y {
					xs[t][i] += y[i]
				}
				bf(xs[t])
			}
			add(product(tensor(p+"self_attn.o_proj.weight"), bf(attn)))
			n := bf(norm(xs[t], tensor(p+"post_attention_layernorm.weight")))
			gate, up := product(tensor(p+"mlp.gate_proj.weight"), n), product(tensor(p+"mlp.up_proj.weight"), n)
			for i := range gate {
				gate[i] *= up[i] / (1 + math.Exp(-gate[i]))
			}
			add(product(tensor(p+"mlp.down_proj.weight"), bf(gate)))
		}
	}
	var out []float32
	for t := range tokens[1:] {
		z := product(head, bf(norm(xs[t], tensor("model.norm.weight"))))
		sum := 0.0
		for _, v := range z {
			sum += math.Exp(v)
		}
		out = append(out, float32(z[tokens[t+1]]-math.Log(sum)))
	}
	return out
}

// Sums in another order can round to the neighbour, so a few values differ by a step of BF16; the distance to full precision is many
// times larger.
func TestPrecision_bf16IsThePlainRounding(t *testing.T) {
	t.Parallel()
	for _, cfg := range []model.Config{odd, even} {
		w := published(cfg, 7)
		for _, d := range w.Data { // larger logits, whose rounding is seen
			for i := range d {
				d[i] = weights.RoundBF16(2 * d[i])
			}
		}
		tokens := prompt(cfg, 90, 0, 1)
		got := scores(t, startSampler(t, cfg, Options{Precision: BF16}, w), tokens)
		exact := scores(t, startSampler(t, cfg, Options{}, w), tokens)
		if d, all := distance(got, plainBF16(w, tokens)), distance(got, exact); all < 3*d || all < 1e-4 {
			t.Errorf("distance to the plain computation %.3g, to full precision %.3g", d, all)
		}
	}
}

// The record of a token is that of the rounded model, has the same bits for any number of threads and instruction set, and differs from
// that of full precision.
func TestPrecision_sameBitsEverywhere(t *testing.T) {
	t.Parallel()
	w := published(odd, 7)
	seen := map[Precision]float32{}
	for _, p := range []Precision{FP32, BF16, INT8} {
		var first []engine.Token
		for _, level := range kernel.Supported() {
			for _, threads := range []int{1, 3} {
				s := startSampler(t, odd, Options{Precision: p, Threads: threads, Kernels: level.String()}, w)
				got := generate(t, s, request(1, 40, 20))
				if first == nil {
					first = got
				} else if d := cmp.Diff(first, got); d != "" {
					t.Fatalf("%s, %v, %d threads: -first +this:\n%s", p, level, threads, d)
				}
			}
		}
		seen[p] = first[0].LogProb
	}
	if seen[FP32] == seen[BF16] || seen[FP32] == seen[INT8] || seen[BF16] == seen[INT8] {
		t.Errorf("log-probabilities %v: precisions do not differ", seen)
	}
	if _, err := NewSampler(odd, Options{Precision: "fp8"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v, want Invalid", err)
	}
}

// A trainer does not look at the precision: it computes as ever.
func TestPrecision_isOfTheSamplerOnly(t *testing.T) {
	t.Parallel()
	w := initial(odd, 7)
	if startTrainer(t, odd, Options{Precision: BF16}, w).bf16 {
		t.Error("a trainer rounds")
	}
}
