//go:build cuda

package cuda

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
)

// noisyTrainer is a trainer's device part with weights that look random, made on the device: a host takes minutes for 4 billion of them.
func noisyTrainer(tb testing.TB, c model.Config, o Options) *trainGPU {
	tb.Helper()
	o, err := o.withDefaults()
	if err != nil {
		tb.Fatal(err)
	}
	runtime.LockOSThread()
	g, err := newTrainGPU(c, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := g.close(); err != nil {
			tb.Errorf("close: %v", err)
		}
		runtime.UnlockOSThread()
	})
	b := &batch{d: &g.device}
	for i, m := range g.w.all {
		if m.rows == 0 {
			ones := slices.Repeat([]float32{1}, m.size())
			b.do(func() error { return cudart.Upload(g.ctx, g.master[i], ones) })
			continue
		}
		b.each(g.fast.k.noise, m.size(), g.master[i].Arg(), cudart.Ptr(0).Arg(), cudart.Uint64Arg(uint64(m.size())), cudart.Float(0.035), cudart.Int(i+1))
	}
	b.do(g.publish)
	if b.err != nil {
		tb.Fatal(b.err)
	}
	return g
}

// rollouts are sequences of the given lengths whose tokens, but for the first, are all trained, with a record of k.
func rollouts(c model.Config, k int, lengths ...int) engine.Batch {
	b := engine.Batch{Objective: rl.Default(k), Optim: rl.DefaultAdamW(), Plan: engine.Plan{MicroBatches: [][]int{nil}}}
	for i, n := range lengths {
		s := engine.Sequence{
			Tokens: ids(n, c.Vocab, i), Mask: make([]bool, n), LogProbs: make([]float32, n), TopK: k, TopIDs: make([]int32, n*k), TopLogProbs: make([]float32, n*k),
			Advantage: float32(i%5) - 1.75, Temperature: 1,
		}
		for j := range n {
			s.Mask[j], s.LogProbs[j] = j > 0, -12
			for v := range k {
				s.TopIDs[j*k+v], s.TopLogProbs[j*k+v] = int32((j+7*v)%c.Vocab), -12
			}
		}
		b.Sequences = append(b.Sequences, s)
		b.Plan.MicroBatches[0] = append(b.Plan.MicroBatches[0], i)
	}
	return b
}

func onCard(tb testing.TB) Options {
	tb.Helper()
	o := Options{
		NVRTC: os.Getenv("STEADY_NVRTC"), CUBLASLt: os.Getenv("STEADY_CUBLASLT"), CUDNN: os.Getenv("STEADY_CUDNN"), KernelDir: os.Getenv("STEADY_KERNELS"),
	}
	if err := cudart.Load(os.Getenv("STEADY_CUDA_DRIVER")); err != nil {
		tb.Skip(err)
	}
	if underTest.emulated {
		tb.Skip("the emulated device has no libraries")
	}
	return o
}

// Attention of cuDNN, forwards and backwards, against the plain kernels on the same packed inputs: both round their results to BF16 and cuDNN its
// probabilities too, so a row of a result is off by a few 2^-9 of its size. Every length is on another side of a border of tiles.
func TestDNN_attentionIsThatOfThePlainKernels(t *testing.T) {
	o := onCard(t)
	for _, heads := range [][2]int{{4, 2}, {3, 1}, {16, 8}, {32, 8}} {
		c := wideHeads
		c.Heads, c.KVHeads, c.Layers = heads[0], heads[1], 1
		g := noisyTrainer(t, c, o)
		if g.fast.dnn == nil {
			t.Skip("no cuDNN here")
		}
		b := rollouts(c, 1, 300, 257, 129, 128, 100, 64, 7, 1)
		m := layOut(&b, order(&b, b.Plan.MicroBatches[0]))
		if err := g.fastPlace(&b, m, 1); err != nil {
			t.Fatal(err)
		}
		if g.fast.m.calls == nil {
			start := 0
			var lengths []int
			for _, last := range m.last {
				lengths = append(lengths, int(last)+1-start)
				start = int(last) + 1
			}
			calls, _ := planCalls(g.sizes, lengths)
			_, forward := g.fast.dnn.AttentionPlan(calls[0].shape, false)
			_, backward := g.fast.dnn.AttentionPlan(calls[0].shape, true)
			t.Fatalf("cuDNN %d (%s) is not used: %v; %v", g.fast.dnn.Version, g.fast.dnn.Path, forward, backward)
		}
		f, n := g.fast, len(m.tokens)
		s, _ := g.activations(0)
		launches := &batch{d: &g.device}
		fill := func(at cudart.Ptr, size, seed int) {
			launches.each(f.k.noise, size, cudart.Ptr(0).Arg(), at.Arg(), cudart.Uint64Arg(uint64(size)), cudart.Float(2), cudart.Int(seed))
		}
		fill(s.q, n*g.queries, 1)
		fill(s.keys, n*g.KVHeads*g.HeadDim, 2)
		fill(s.qkv, n*g.sizes.qkv, 3)
		fill(f.datt.at, n*g.queries, 4)
		run := func() (att, grad []float32) {
			g.fastAttend(launches, s, n)
			g.fastAttendGrad(launches, s, n)
			for _, part := range []struct {
				to   *[]float32
				at   cudart.Ptr
				size int
			}{{&att, s.att, n * g.queries}, {&grad, f.dqkv.at, n * g.sizes.qkv}} {
				half := make([]uint16, part.size)
				launches.do(func() error { return cudart.Download(g.ctx, half, part.at) })
				for _, x := range half {
					*part.to = append(*part.to, math.Float32frombits(uint32(x)<<16))
				}
			}
			if launches.err != nil {
				t.Fatal(launches.err)
			}
			return att, grad
		}
		att, grad := run()
		if again, twice := run(); !slices.Equal(att, again) || !slices.Equal(grad, twice) {
			t.Errorf("%v heads: a second run has other bits", heads)
		}
		f.m.calls = nil
		wantAtt, wantGrad := run()
		off := func(what string, got, want []float32) {
			var d2, n2 float64
			for i := range want {
				d := float64(got[i]) - float64(want[i])
				d2, n2 = d2+d*d, n2+float64(want[i])*float64(want[i])
			}
			e := math.Sqrt(d2 / n2)
			t.Logf("%v heads: %s is off by %.2g of its norm", heads, what, e)
			if !(e < 0.01) {
				t.Errorf("%v heads: %s is off by %.2g of its norm, want less than 0.01", heads, what, e)
			}
		}
		off("output", att, wantAtt)
		off("gradient", grad, wantGrad)
	}
}

// Two trainers that start from the same state have the same state after two updates, at the widths of the 4B model, with lengths that share no bucket.
func TestFast_twoTrainersHaveTheSameDigest(t *testing.T) {
	o := onCard(t)
	c := shapes[1].cfg
	c.Layers, c.Vocab = 2, 8000
	b := rollouts(c, 128, 2048, 2048, 2000, 900, 1500, 700, 300, 90, 5)
	b.Plan.MicroBatches = [][]int{{0, 1, 2, 3, 4}, {5, 6, 7, 8}}
	digest := func(slots int) (sum [32]byte) {
		o := o
		o.slots = slots
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			g := noisyTrainer(t, c, o)
			tokens, err := b.Check(c)
			if err != nil {
				t.Fatal(err)
			}
			for step := range 2 {
				m, err := g.gradient(t.Context(), &b, tokens)
				if err == nil {
					err = g.apply(b.Optim, step+1, m.ClipFactor)
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("step %d: loss %v, norm %v, cuDNN %v", step, m.Loss, m.GradNorm, g.fast.m.calls != nil)
			}
			h := sha256.New()
			// The moments too: the first steps of AdamW have the size of the rate, whatever that of the gradient.
			for i, m := range g.w.all {
				for _, slab := range [][]cudart.Ptr{g.master, g.m1, g.m2} {
					data := make([]float32, m.size())
					if err := cudart.Download(g.ctx, data, slab[i]); err != nil {
						t.Fatal(err)
					}
					if err := binary.Write(h, binary.LittleEndian, data); err != nil {
						t.Fatal(err)
					}
				}
			}
			sum = [32]byte(h.Sum(nil))
		})
		return sum
	}
	first := digest(0)
	for _, slots := range []int{0, 1} {
		if again := digest(slots); again != first {
			t.Errorf("slots %d: digest %x, want %x", slots, again[:8], first[:8])
		}
	}
	t.Logf("digest %x", first[:8])
}

// The choice of algorithms is made once: the next trainer reads it and has the same bits, and a file that says nothing useful is written again.
func TestTune_choosesOnce(t *testing.T) {
	o := onCard(t)
	o.KernelDir = t.TempDir()
	c := shapes[0].cfg
	c.Layers, c.Vocab = 1, 4000
	b := rollouts(c, 16, 700, 300)
	tokens, err := b.Check(c)
	if err != nil {
		t.Fatal(err)
	}
	run := func() (norm float64, file string, data []byte) {
		t.Run("", func(t *testing.T) {
			g := noisyTrainer(t, c, o)
			m, err := g.gradient(t.Context(), &b, tokens)
			if err != nil {
				t.Fatal(err)
			}
			norm, file = m.GradNorm, g.fast.tuned.file
			if data, err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		})
		return norm, file, data
	}
	norm, file, data := run()
	if len(data) < 15*2*96 { // four layers' products and the head's, three directions each
		t.Errorf("only %d bytes are kept of 15 products:\n%s", len(data), data)
	}
	if again, _, kept := run(); again != norm || string(kept) != string(data) {
		t.Errorf("the second trainer has norm %v, want %v; the file is the same: %v", again, norm, string(kept) == string(data))
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, kept := run(); len(kept) != len(data) {
		t.Errorf("a damaged file became %d bytes, want %d", len(kept), len(data))
	}
}

// What the card lacks after an update, by the driver's own count, is what the memory plan says of a trainer: process and cuDNN's workspace are estimates in it,
// a few hundred megabytes of tens of gigabytes.
func TestCard_memoryIsWhatIsPlanned(t *testing.T) {
	o := onCard(t)
	c := shapes[1].cfg
	c.Layers, c.MaxPosition = 6, 2048
	uuid, err := cudart.UUID(o.Device)
	if err != nil {
		t.Fatal(err)
	}
	// Other processes may use the card too. NVML's process numbers are the host's, which a container does not know: ours is the one that was not there before.
	used := func() map[uint32]int64 {
		all, err := cudart.ProcessMemory(uuid)
		if fault.Is(err, fault.NotFound) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	mine := func(before, after map[uint32]int64) (bytes int, known bool) {
		if n, listed := after[uint32(os.Getpid())]; listed { //nolint:gosec // a process number
			return int(n), true
		}
		for pid, n := range after {
			if _, old := before[pid]; !old {
				bytes, known = int(n), !known && bytes == 0
			}
		}
		return bytes, known
	}
	before := used()
	g := noisyTrainer(t, c, o)
	b := rollouts(c, 128, slices.Repeat([]int{2048}, 8)...)
	tokens, err := b.Check(c)
	if err != nil {
		t.Fatal(err)
	}
	m, err := g.gradient(t.Context(), &b, tokens)
	if err == nil {
		err = g.apply(b.Optim, 1, m.ClipFactor)
	}
	if err != nil {
		t.Fatal(err)
	}
	took, known := mine(before, used())
	if !known {
		t.Skip("which of the card's processes is this one cannot be told: run this test while no other process begins or ends")
	}
	use := plan.Use{Model: c, Trainer: true, Micro: 16384, Longest: 2048, Record: 128, Sequences: 1}
	planned, s := 0, g.planned()
	for _, side := range plan.Least(use).Sides {
		if side.Name != plan.CheckSide { // no version is published here
			planned += plan.Sum(side.Parts)
		}
	}
	worst, _ := plan.Worst(s, use.Micro, use.Longest, use.Record)
	planned += g.fast.count*plan.Sum(plan.SlotParts(s, worst.Rows, worst.Stats, g.fast.rich)) - plan.Sum(plan.SlotParts(s, worst.Rows, worst.Stats, false))
	off := 100 * (float64(planned)/float64(took) - 1)
	t.Logf("the card lacks %d MiB, own arrays are %d MiB, planned are %d MiB: %+.2f %%; activations of %d layers kept, inputs of products %v",
		took>>20, g.taken>>20, planned>>20, off, g.fast.count, g.fast.rich)
	if !(off > -2 && off < 10) {
		t.Errorf("the plan is off by %+.2f %%, want from -2 to 10", off)
	}
}

// repeat is a sub-benchmark whose work runs in the goroutine of the caller, which owns the GPU; report may add figures.
func repeat(b *testing.B, name string, work func() error, report func(*testing.B)) {
	b.Helper()
	calls, results, done := make(chan struct{}), make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				calls <- struct{}{}
				if err := <-results; err != nil {
					b.Fatal(err)
				}
			}
			report(b)
		})
	}()
	for {
		select {
		case <-calls:
			results <- work()
		case <-done:
			return
		}
	}
}

// BenchmarkTrain measures updates of the 4B model with all tokens trained and a record of 128, and their parts. MFU is the share of 790 TFLOP/s, the products'
// rate on an H200, for 6 operations a weight and token and attention's; what is computed again does not count. STEADY_BENCH_TORCH, a script, runs before.
func BenchmarkTrain(b *testing.B) {
	o := onCard(b)
	if script := os.Getenv("STEADY_BENCH_TORCH"); script != "" {
		if err := exec.Command("python3", "-c", "import torch").Run(); err != nil {
			b.Logf("no PyTorch here: %v", err)
		} else if out, err := exec.Command("python3", script).CombinedOutput(); err != nil {
			b.Errorf("%s: %v\n%s", script, err, out)
		} else {
			b.Logf("%s\n%s", script, out)
		}
	}
	c := shapes[1].cfg
	c.MaxPosition = 8192
	g := noisyTrainer(b, c, o)
	for _, shape := range []struct {
		name    string
		lengths []int
	}{
		{"8x2048", slices.Repeat([]int{2048}, 8)},
		{"2x8192", slices.Repeat([]int{8192}, 2)},
		{"mixed", []int{8192, 512, 1024, 3000, 700, 1500, 956, 500}},
	} {
		name, work := shape.name, rollouts(c, 128, shape.lengths...)
		tokens, err := work.Check(c)
		if err != nil {
			b.Fatal(err)
		}
		perLayer := 2*c.Hidden*c.Heads*c.HeadDim + 2*c.Hidden*c.KVHeads*c.HeadDim + 3*c.Hidden*c.Intermediate
		rows, operations := 0, 0.0
		for _, length := range shape.lengths {
			rows += length
			operations += float64(length) * (6*float64(c.Layers*perLayer+c.Hidden*c.Vocab) + 6*float64(c.Layers*c.Heads*c.HeadDim*length))
		}
		step := 0
		update := func(apply bool) func() error {
			return func() error {
				m, err := g.gradient(b.Context(), &work, tokens)
				if err == nil && apply {
					step++
					err = g.apply(work.Optim, step, m.ClipFactor)
				}
				return err
			}
		}
		for _, part := range []struct {
			name string
			run  func() error
		}{{"gradient", update(false)}, {"update", update(true)}} {
			if err := part.run(); err != nil { // plans, memory and code are there afterwards
				b.Fatal(err)
			}
			repeat(b, name+"/"+part.name, part.run, func(b *testing.B) {
				runs := float64(b.N) / b.Elapsed().Seconds()
				b.ReportMetric(runs*float64(rows), "tok/s")
				b.ReportMetric(100*runs*operations/790e12, "%MFU")
			})
		}
		// As where memory is short: no layer's activations are kept, but for the last.
		g.opts.slots = 1
		if err := errors.Join(g.drop(&g.fast.slots), update(true)()); err != nil {
			b.Fatal(err)
		}
		repeat(b, name+"/update_recomputing", update(true), func(b *testing.B) {
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "tok/s")
		})
		g.opts.slots = 0
		m := layOut(&work, order(&work, work.Plan.MicroBatches[0]))
		scale := 1 / float64(tokens)
		f := g.fast
		if err := g.fastPlace(&work, m, scale); err != nil {
			b.Fatal(err)
		}
		b.Logf("%s: cuDNN %v in %d calls, activations of %d layers kept, inputs of products %v", name,
			f.dnn != nil && f.m.calls != nil, len(f.m.calls), f.count, f.rich)
		s, _ := g.activations(0)
		for _, part := range []struct {
			name string
			run  func() error
		}{
			{"place", func() error { return g.fastPlace(&work, m, scale) }},
			{"zero", func() error {
				f.m.fresh = true
				return g.clearGrads()
			}},
			{"forward", func() error { return g.fastForward(m) }},
			{"loss", func() error { return g.fastLoss(&work, m) }},
			{"backward", func() error { return g.fastBackward(m) }},
			{"norm", func() error { _, err := g.norm(); return err }},
			{"adamw", func() error { return g.apply(work.Optim, 1, 1) }},
		} {
			repeat(b, name+"/"+part.name, func() error { return errors.Join(part.run(), g.ctx.Sync()) }, func(*testing.B) {})
		}
		// The pieces of one layer, each often enough that waiting does not count.
		l, n, rows := g.w.layers[0], rows, f.m.rows
		for _, part := range []struct {
			name string
			run  func(b *batch)
		}{
			{"attend", func(b *batch) { g.fastAttend(b, s, n) }},
			{"attendgrad", func(b *batch) { g.fastAttendGrad(b, s, n) }},
			{"norms", func(b *batch) { g.fastNorm(b, f.n.at, s.mid, g.fastInput(0), f.delta.at, l.norm2, 0, n) }},
			{"normgrad", func(b *batch) { g.fastNormGrad(b, f.dy.at, f.dn.at, s.mid, l.norm2, 0, n) }},
			{"heads", func(b *batch) { g.fastHeads(b, l, s, n) }},
			{"headsgrad", func(b *batch) { g.fastHeadsGrad(b, l, s, n) }},
			{"silu", func(b *batch) {
				b.launch(f.k.silu, n, 1, plainThreads, f.h.at.Arg(), s.gu.Arg(), cudart.Int(g.Intermediate))
			}},
			{"silugrad", func(b *batch) {
				b.launch(f.k.siluGrad, n, 1, plainThreads, f.dgu.at.Arg(), f.h.at.Arg(), f.dh.at.Arg(), s.gu.Arg(), cudart.Int(g.Intermediate))
			}},
			{"gateup", func(b *batch) { b.full(s.gu, f.n.at, l.gateUp, rows, true) }},
			{"gateup_dx", func(b *batch) { b.fullInput(f.dn.at, f.dgu.at, l.gateUp, rows) }},
			{"gateup_dw", func(b *batch) { b.fullWeights(g.grad(l.gateUp), f.dgu.at, f.n.at, l.gateUp, rows, false) }},
			{"down", func(b *batch) { b.full(f.delta.at, f.h.at, l.down, rows, true) }},
			{"down_dx", func(b *batch) { b.fullInput(f.dh.at, f.dy.at, l.down, rows) }},
			{"down_dw", func(b *batch) { b.fullWeights(g.grad(l.down), f.dy.at, f.h.at, l.down, rows, false) }},
			{"qkv", func(b *batch) { b.full(s.qkv, f.n.at, l.qkv, rows, true) }},
			{"out", func(b *batch) { b.full(f.delta.at, s.att, l.out, rows, true) }},
			{"head", func(b *batch) { b.full(f.logits.at, f.hx.at, g.w.head, fastHeadRows, false) }},
			{"head_dx", func(b *batch) { b.fullInput(f.dhn.at, f.dlogits.at, g.w.head, fastHeadRows) }},
			{"head_dw", func(b *batch) { b.fullWeights(g.grad(g.w.head), f.dlogits.at, f.hx.at, g.w.head, fastHeadRows, false) }},
			{"lossrows", func(b *batch) {
				b.launch(f.k.loss, fastHeadRows, 1, wideThreads, append([]cudart.Arg{
					f.dlogits.at.Arg(), f.stats.at.Arg(), f.head.at.Arg(), f.logits.at.Arg(), f.words.at.Arg(), f.recordIDs.at.Arg(), f.logQ.at.Arg(),
					cudart.Int(g.Vocab), cudart.Int(0),
				}, objective(rl.Objective{Supervised: true})...)...) // the record's places stay as they are
			}},
		} {
			const runs = 20
			all := &batch{d: &g.device}
			part.run(all)
			all.do(g.ctx.Sync)
			begin := time.Now()
			for range runs {
				part.run(all)
			}
			all.do(g.ctx.Sync)
			if all.err != nil {
				b.Fatal(all.err)
			}
			b.Logf("%s %-10s %8.3f ms", name, part.name, 1e3*time.Since(begin).Seconds()/runs)
		}
	}
}
