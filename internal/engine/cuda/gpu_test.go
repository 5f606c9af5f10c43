//go:build cuda

package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/rng"
)

// onGPU makes the device part alone, on a thread of its own.
func onGPU(t *testing.T, c model.Config, o Options, f func(g *gpu)) {
	t.Helper()
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g, err := newGPU(c, o)
	if err != nil {
		t.Fatal(err)
	}
	f(g)
	if err := g.close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// medium is a model whose widths are those of no kernel limit and no power of two everywhere.
var medium = model.Config{
	Vocab: 1500, Hidden: 136, Layers: 3, Heads: 6, KVHeads: 2, HeadDim: 40, Intermediate: 296, MaxPosition: 320, RMSEps: 1e-6, RopeTheta: 1e6, TieEmbedding: true,
}

func weightsOf(c model.Config, seed uint64, std float64) *model.Weights {
	w := model.NewWeights(c)
	w.Init(seed, std)
	return w
}

func sampler(t testing.TB, c model.Config, o Options, w *model.Weights) engine.Sampler {
	t.Helper()
	s, err := NewSampler(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if err := s.SetWeights(context.Background(), 0, w); err != nil {
		t.Fatal(err)
	}
	return s
}

func ids(n, vocab int, label any) []int32 {
	st := rng.New(5, rng.Corpus, label)
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(st.IntN(uint64(i), vocab))
	}
	return out
}

// gaps are the mean and largest difference of Score to the reference under the BF16 rounding of the weights.
func gaps(t *testing.T, s engine.Sampler, c model.Config, w *model.Weights, tokens []int32) (mean, most float64) {
	t.Helper()
	oracle, err := ref.NewSampler(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := oracle.SetWeights(t.Context(), 0, w); err != nil {
		t.Fatal(err)
	}
	want, err := oracle.Score(t.Context(), tokens)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Score(t.Context(), tokens)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d scores, want %d", len(got), len(want))
	}
	for i := range want {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(d) {
			t.Fatalf("score %d = %v", i, got[i])
		}
		mean += d / float64(len(want))
		most = max(most, d)
	}
	return mean, most
}

// Each product adds an error of about 2^-9 of its inputs, which average out over the inner dimension; over three layers the logits (of standard
// deviation about 1 here) are wrong by about 1e-2. A wrong formula anywhere is wrong by the size of the logits.
func TestBF16_isNearTheReference(t *testing.T) {
	o := options(t, BF16)
	w := weightsOf(medium, 3, 0.06)
	for i := range w.Data {
		for j, x := range w.Data[i] {
			w.Data[i][j] = math.Float32frombits(uint32(toBF16(x)) << 16)
		}
	}
	mean, most := gaps(t, sampler(t, medium, o, w), medium, w, ids(150, medium.Vocab, "near"))
	t.Logf("mean difference %.2g, largest %.2g", mean, most)
	if !(mean < 0.01) || !(most < 0.06) {
		t.Errorf("log-probabilities differ by %.2g in the mean and %.2g at most, want less than 0.01 and 0.06", mean, most)
	}
}

func TestFloat32_isNearTheReferenceOverManyPagesAndSplits(t *testing.T) {
	o := options(t, Float32)
	w := weightsOf(medium, 4, 0.06)
	mean, most := gaps(t, sampler(t, medium, o, w), medium, w, ids(300, medium.Vocab, "pages"))
	if !(most < 1e-4) {
		t.Errorf("log-probabilities differ by %.2g in the mean and %.2g at most, want less than 1e-4", mean, most)
	}
}

// A token that is sampled alone has its keys spread over blocks, a scored one shares a block with its neighbours: the bits are the same, on both sides of
// the first border of a split, for groups that fill a block's pairs and groups that do not.
func TestAttention_sameBitsAloneAndInATile(t *testing.T) {
	for _, p := range []Precision{BF16, Float32} {
		o := options(t, p)
		for _, heads := range []int{2, 6, 9} {
			if p == Float32 && heads != 6 {
				continue // the widths are the same code
			}
			c := model.Config{Vocab: 40, Hidden: 16, Layers: 1, Heads: heads, KVHeads: 2, HeadDim: 24, Intermediate: 16, MaxPosition: 320, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true}
			switch heads {
			case 2:
				c.HeadDim = 136 // the wide kernel
			case 6:
				c.HeadDim = 20 // not read 16 bytes at a time
			case 9:
				c.KVHeads = 1 // more query heads than pairs of a block
			}
			s := sampler(t, c, o, weightsOf(c, 6, 0.3))
			tokens := ids(250, c.Vocab, "alone")
			var sampled []float32
			_, err := s.Generate(t.Context(), engine.Request{
				Tokens: tokens, MaxNew: 12, Random: rng.New(3, rng.Train, heads), Sampling: engine.Sampling{Temperature: 1},
			}, func(tok engine.Token) error {
				tokens, sampled = append(tokens, tok.ID), append(sampled, tok.LogProb)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			scored, err := s.Score(t.Context(), tokens)
			if err != nil {
				t.Fatal(err)
			}
			if got := scored[len(scored)-len(sampled):]; !slices.Equal(got, sampled) {
				t.Errorf("%s, %d heads: scored %v, sampled %v", p, heads, got, sampled)
			}
		}
	}
}

// The sampler's kernel at the vocabulary of a real model, against float64 on the host: draws, log-probabilities, entropy, records with ties.
func TestSample_realVocabulary(t *testing.T) {
	o := options(t, BF16)
	c := model.Config{Vocab: 151936, Hidden: 16, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 16, Intermediate: 16, MaxPosition: 64, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true}
	o.Sequences = 2
	tops := []int{0, 1, 5, 128, 1024, 1500, 20}
	onGPU(t, c, o, func(g *gpu) {
		logits := make([]float32, len(tops)*c.Vocab)
		for r := range tops {
			st := rng.New(uint64(r), rng.Corpus, "logits")
			for i := range c.Vocab {
				// Quarters from -8 to 8: nearly every value occurs thousands of times, so every record ends inside a tie.
				x := float32(st.IntN(uint64(i), 65)-32) / 4
				if r == len(tops)-1 {
					x = float32(st.Uniform(uint64(i))*24 - 12)
				}
				logits[r*c.Vocab+i] = x
			}
		}
		if err := cudart.Upload(g.ctx, g.logits, logits); err != nil {
			t.Fatal(err)
		}
		for _, temperature := range []float64{1, 0.7} {
			var list []ask
			var streams []rng.Stream
			for r, k := range tops {
				st := rng.New(9, rng.Train, r, temperature)
				streams = append(streams, st)
				list = append(list, ask{
					stream: [4]uint32{st.Key[0], st.Key[1], st.Nonce[0], st.Nonce[1]}, position: uint32(1000 + r), inverse: float32(1 / temperature),
					target: -1, top: int32(k),
				})
			}
			answers, records, err := g.answer(list)
			if err != nil {
				t.Fatal(err)
			}
			for r, k := range tops {
				z := slices.Clone(logits[r*c.Vocab:][:c.Vocab])
				for i := range z {
					z[i] *= list[r].inverse
				}
				checkAnswer(t, fmt.Sprintf("temperature %v, top %d", temperature, k), z, answers[r], records[r], k, streams[r].Uniform(uint64(1000+r)))
			}
		}
		logits[7] = float32(math.Inf(1))
		if err := cudart.Upload(g.ctx, g.logits, logits); err != nil {
			t.Fatal(err)
		}
		answers, _, err := g.answer([]ask{{inverse: 1, target: 3}, {inverse: 1, target: 3}})
		if err != nil || answers[0].bad != 1 || answers[1].bad != 0 || answers[1].id != 3 {
			t.Errorf("an infinite logit: %+v, %v, want the first row marked", answers, err)
		}
	})
}

func checkAnswer(t *testing.T, what string, z []float32, a answer, rec record, k int, u float64) {
	t.Helper()
	top := slices.Max(z)
	var sum, weighted float64
	for _, x := range z {
		e := math.Exp(float64(x - top))
		sum += e
		weighted += e * float64(x-top)
	}
	logProb := func(id int32) float64 { return float64(z[id]-top) - math.Log(sum) }
	if a.bad != 0 || math.Abs(float64(a.logProb)-logProb(a.id)) > 1e-5 || math.Abs(float64(a.entropy)-(math.Log(sum)-weighted/sum)) > 1e-4 {
		t.Errorf("%s: %+v, want log-probability %v and entropy %v", what, a, logProb(a.id), math.Log(sum)-weighted/sum)
	}
	var below float64
	for _, x := range z[:a.id] {
		below += math.Exp(float64(x - top))
	}
	if above := below + math.Exp(float64(z[a.id]-top)); u*sum < below-1e-4*sum/1000 || u*sum > above+1e-4*sum/1000 {
		t.Errorf("%s: id %d covers [%v, %v) but was drawn by %v", what, a.id, below/sum, above/sum, u)
	}
	order := make([]int32, len(z))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case z[a] > z[b]:
			return -1
		case z[a] < z[b]:
			return 1
		}
		return 0
	})
	if !slices.Equal(rec.ids, order[:k]) && k > 0 {
		t.Errorf("%s: the record begins with %v, want %v", what, rec.ids[:min(k, 8)], order[:min(k, 8)])
		return
	}
	for i, id := range rec.ids {
		if math.Abs(float64(rec.values[i])-logProb(id)) > 1e-5 || id == a.id && rec.values[i] != a.logProb {
			t.Errorf("%s: id %d is recorded with %v, want %v", what, id, rec.values[i], logProb(id))
		}
	}
}

// Products against float64, at widths of a model and odd ones; and rows do not depend on the rows around them.
func TestProduct_cuBLASLt(t *testing.T) {
	o := options(t, BF16)
	o.libraryProducts = true
	productIsNear(t, o)
}

func TestProduct_own(t *testing.T) { productIsNear(t, options(t, BF16)) }

func productIsNear(t *testing.T, o Options) {
	t.Helper()
	if o.PlainProducts {
		t.Skip("the emulated device has plain products")
	}
	for _, shape := range [][2]int{{768, 512}, {151936 / 8, 1024}, {40, 24}, {1000, 2560}, {2560, 9728}} {
		c := medium
		c.Vocab, c.Hidden = shape[0], shape[1]
		onGPU(t, c, o, func(g *gpu) {
			st := rng.New(1, rng.Corpus, shape)
			half := func(n, from int) (bits []uint16, values []float32) {
				bits, values = make([]uint16, n), make([]float32, n)
				for i := range bits {
					bits[i] = toBF16(float32(st.Uniform(uint64(from+i)) - 0.5))
					values[i] = math.Float32frombits(uint32(bits[i]) << 16)
				}
				return bits, values
			}
			const rows = 131
			out, in := shape[0], g.hiddenP
			wBits, w := half(out*in, 0)
			xBits, x := half(rows*in, out*in)
			if err := cudart.Upload(g.ctx, g.w.head.at, wBits); err != nil {
				t.Fatal(err)
			}
			run := func(x []uint16, n int) []float32 {
				y, err := g.ctx.Alloc(2 * tile * out * 4)
				if err != nil {
					t.Fatal(err)
				}
				got := make([]float32, n*out)
				for _, step := range []func() error{
					func() error { return cudart.Upload(g.ctx, g.n, x) },
					func() error { return g.product(y, g.n, g.w.head, n) },
					func() error { return cudart.Download(g.ctx, got, y) },
					func() error { return g.ctx.Free(y) },
				} {
					if err := step(); err != nil {
						t.Fatal(err)
					}
				}
				return got
			}
			got := run(xBits, rows)
			for _, r := range []int{0, 1, 63, 127, 128, 130} {
				for _, c := range []int{0, 1, out / 2, out - 1} {
					var want, size float64
					for i := range in {
						p := float64(x[r*in+i]) * float64(w[c*in+i])
						want += p
						size += math.Abs(p)
					}
					// float32 sums of products that are exact: an error of a few units of the sum of magnitudes.
					if d := math.Abs(float64(got[r*out+c]) - want); d > 1e-5*size {
						t.Errorf("%v: y[%d,%d] = %v, want %v", shape, r, c, got[r*out+c], want)
					}
				}
			}
			// The same row alone, at another place: the same bits.
			alone := run(xBits[100*in:101*in], 1)
			if !slices.Equal(alone, got[100*out:101*out]) {
				t.Errorf("%v: row 100 alone has other bits than among %d", shape, rows)
			}
		})
	}
}

// shapes are those of two published models of the architecture.
var shapes = []struct {
	name string
	cfg  model.Config
}{
	{"0.6B", model.Config{
		Vocab: 151936, Hidden: 1024, Layers: 28, Heads: 16, KVHeads: 8, HeadDim: 128, Intermediate: 3072, MaxPosition: 4096, RMSEps: 1e-6, RopeTheta: 1e6,
		TieEmbedding: true,
	}},
	{"4B", model.Config{
		Vocab: 151936, Hidden: 2560, Layers: 36, Heads: 32, KVHeads: 8, HeadDim: 128, Intermediate: 9728, MaxPosition: 4096, RMSEps: 1e-6, RopeTheta: 1e6,
		TieEmbedding: true,
	}},
}

func benchOptions(b *testing.B) Options {
	if err := cudart.Load(os.Getenv("STEADY_CUDA_DRIVER")); err != nil {
		b.Skip(err)
	}
	return Options{NVRTC: os.Getenv("STEADY_NVRTC"), CUBLASLt: os.Getenv("STEADY_CUBLASLT"), KernelDir: filepath.Join(emulatorDir, "kernels")}
}

// BenchmarkGenerate measures the whole sampler with cheap random weights: 64 sequences, prompts of 256, 64 new tokens each, a record of 128.
func BenchmarkGenerate(b *testing.B) {
	o := benchOptions(b)
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			c := shape.cfg
			s, err := NewSampler(c, o)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			if err := s.(*Sampler).Swap(b.Context(), 0, randomWeights(1)); err != nil {
				b.Fatal(err)
			}
			const sequences, prompt, generated = 64, 256, 64
			for b.Loop() {
				begin, done := time.Now(), make(chan error)
				for i := range sequences {
					go func() {
						_, err := s.Generate(context.Background(), engine.Request{
							Tokens: ids(prompt, c.Vocab, i), MaxNew: generated, Random: rng.New(1, rng.Train, i), Sampling: engine.Sampling{Temperature: 1, TopK: 128},
						}, func(engine.Token) error { return nil })
						done <- err
					}()
				}
				for range sequences {
					if err := <-done; err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(sequences*generated/time.Since(begin).Seconds(), "tok/s")
			}
		})
	}
}

// BenchmarkParts measures one step's layers and its sampling apart: 64 single tokens after 1024, or a prompt of 1024.
func BenchmarkParts(b *testing.B) {
	o, err := benchOptions(b).withDefaults()
	if err != nil {
		b.Fatal(err)
	}
	for _, shape := range shapes {
		runtime.LockOSThread()
		g, err := newGPU(shape.cfg, o)
		if err != nil {
			b.Fatal(err)
		}
		if err := g.w.upload(g.ctx, g.w.stage(o.Precision, cheapWeights(shape.cfg))); err != nil {
			b.Fatal(err)
		}
		step := func(name string, f func() error) {
			b.Run(shape.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
					if err := g.ctx.Sync(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		const sequences, context = 64, 1024
		var single, prompt []row
		var tables [][]int32
		for i := range int32(sequences) {
			var pages []int32
			for p := range int32(context/pageTokens + 1) {
				pages = append(pages, (i*(context/pageTokens+1)+p)%int32(g.pages))
			}
			tables = append(tables, pages)
			single = append(single, row{i, i, context})
		}
		for i := range int32(context) {
			prompt = append(prompt, row{i, 0, i})
		}
		var index []int32
		var plain, recorded []ask
		for i := range int32(sequences) {
			index = append(index, i)
			plain = append(plain, ask{position: uint32(i), inverse: 1, target: -1})
			recorded = append(recorded, ask{position: uint32(i), inverse: 1, target: -1, top: 128})
		}
		step("decode_64x1024", func() error { return g.forward(single, tables) })
		step("prefill_1024", func() error { return g.forward(prompt, tables) })
		step("head_and_sample_64", func() error { _, _, err := g.sample(index, plain); return err })
		step("head_sample_record_64", func() error { _, _, err := g.sample(index, recorded); return err })
		if err := g.close(); err != nil {
			b.Fatal(err)
		}
		runtime.UnlockOSThread()
	}
}

// BenchmarkUpdate measures one update: 8 sequences of 1024 tokens in micro-batches of 4, half of the tokens trained, with a record of 128; and its parts for
// one micro-batch.
func BenchmarkUpdate(b *testing.B) {
	o := benchOptions(b)
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			c := shape.cfg
			const sequences, length, k = 8, 1024, 128
			batch := engine.Batch{Objective: rl.Default(k), Optim: rl.DefaultAdamW(), Plan: engine.Plan{MicroBatches: [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}}}
			for i := range sequences {
				s := engine.Sequence{
					Tokens: ids(length, c.Vocab, i), Mask: make([]bool, length), LogProbs: make([]float32, length), TopK: k, TopIDs: make([]int32, length*k),
					TopLogProbs: make([]float32, length*k), Advantage: float32(i) - 3.5, Temperature: 1,
				}
				for j := range length {
					s.Mask[j], s.LogProbs[j] = j >= length/2, -12
					for v := range k {
						s.TopIDs[j*k+v], s.TopLogProbs[j*k+v] = int32(v), -12
					}
				}
				batch.Sequences = append(batch.Sequences, s)
			}
			tr, err := NewTrainer(c, cheapWeights(c), o)
			if err != nil {
				b.Fatal(err)
			}
			t := tr.(*Trainer)
			b.Run("update", func(b *testing.B) {
				for b.Loop() {
					if _, err := t.Update(b.Context(), batch); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(sequences*length*b.N)/b.Elapsed().Seconds(), "tok/s")
			})
			m := layOut(&batch, batch.Plan.MicroBatches[0])
			for _, part := range []struct {
				name string
				run  func(g *trainGPU) error
			}{
				{"forward_4x1024", func(g *trainGPU) error { return g.forward(m) }},
				{"head_loss_2048", func(g *trainGPU) error { _, err := g.headLoss(&batch, m, 1); return err }},
				{"backward_4x1024", func(g *trainGPU) error { return g.backward(m) }},
				{"norm", func(g *trainGPU) error { _, err := g.norm(); return err }},
				{"adamw", func(g *trainGPU) error { return g.apply(batch.Optim, 1, 1) }},
			} {
				b.Run(part.name, func(b *testing.B) {
					for b.Loop() {
						if err := t.do("bench", func(g *trainGPU) error { return errors.Join(part.run(g), g.ctx.Sync()) }); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			if err := t.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// cheapWeights are uniform numbers of standard deviation 0.02 from a multiplicative generator.
func cheapWeights(c model.Config) *model.Weights {
	w := model.NewWeights(c)
	state := uint64(88172645463325252)
	for i, s := range w.Specs {
		for j := range w.Data[i] {
			if s.OnesInit {
				w.Data[i][j] = 1
				continue
			}
			state = state*6364136223846793005 + 1442695040888963407
			w.Data[i][j] = (float32(state>>40)/(1<<24) - 0.5) * 0.07
		}
	}
	return w
}
