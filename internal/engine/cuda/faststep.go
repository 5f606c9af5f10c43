//go:build cuda

package cuda

import (
	"errors"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
)

// full writes y = x m^T for all rows: BF16, or float32.
func (b *batch) full(y, x cudart.Ptr, m *matrix, rows int, half bool) {
	b.do(func() error {
		d := b.d
		p, err := d.plan(cudart.Shape{Rows: rows, Out: m.rows, In: m.colsP, Half: half})
		if err != nil {
			return err
		}
		if p != nil {
			return p.Run(y, x, m.at)
		}
		to, toHalf := y, cudart.Ptr(0)
		if half {
			to, toHalf = 0, y
		}
		return d.gemmGrad(to, toHalf, x, m.at, [3]int{rows, m.rows, m.colsP}, [2]int{m.colsP, 1}, [2]int{m.colsP, 1}, false)
	})
}

// fullInput writes dx = dy m in BF16 for all rows, fullWeights adds dy^T x to dw, or writes it when dw is fresh.
func (b *batch) fullInput(dx, dy cudart.Ptr, m *matrix, rows int) {
	b.do(func() error {
		p, err := b.d.plan(cudart.Shape{Product: cudart.InputGrad, Rows: rows, Out: m.rows, In: m.colsP, Half: true})
		if err != nil {
			return err
		}
		if p != nil {
			return p.Run(dx, dy, m.at)
		}
		return b.d.gemmGrad(0, dx, dy, m.at, [3]int{rows, m.colsP, m.rows}, [2]int{m.rows, 1}, [2]int{1, m.colsP}, false)
	})
}

func (b *batch) fullWeights(dw, dy, x cudart.Ptr, m *matrix, rows int, fresh bool) {
	b.do(func() error {
		p, err := b.d.plan(cudart.Shape{Product: cudart.WeightsGrad, Rows: rows, Out: m.rows, In: m.colsP})
		if err != nil {
			return err
		}
		if p != nil && fresh {
			return p.Write(dw, dy, x)
		}
		if p != nil {
			return p.Run(dw, dy, x)
		}
		return b.d.gemmGrad(dw, 0, dy, x, [3]int{m.rows, m.colsP, rows}, [2]int{1, m.rows}, [2]int{1, m.colsP}, !fresh)
	})
}

// normThreads is the size of a block that has a row of a norm: 8 elements a thread.
func (g *trainGPU) normThreads() int { return pad(pad(g.Hidden, 8)/8, 32) }

// headThreads is the size of a block that has the query and key heads of a row, 16 threads a head: as few rounds as fit, of the same size.
func (g *trainGPU) headThreads() int {
	const groups, each = 32, 16
	heads := g.Heads + g.KVHeads
	rounds := pad(heads, groups) / groups
	return pad(pad(heads, rounds)/rounds*each, 32)
}

// fastNorm adds delta to xin and writes the sum to xout and its norm to y; see the kernel for what may be 0.
func (g *trainGPU) fastNorm(b *batch, y, xout, xin, delta cudart.Ptr, w *matrix, index cudart.Ptr, n int) {
	b.launch(g.fast.k.norm, n, 1, g.normThreads(), y.Arg(), xout.Arg(), xin.Arg(), delta.Arg(), w.at.Arg(), index.Arg(), cudart.Int(g.Hidden),
		cudart.Float(float32(g.RMSEps)))
}

// fastNormGrad adds the gradient of a norm's input to dx, writes that as BF16 to dy unless it is 0, and adds the gradient of its weights.
func (g *trainGPU) fastNormGrad(b *batch, dy, dn, x cudart.Ptr, w *matrix, index cudart.Ptr, n int) {
	f, blocks := g.fast, pad(n, fastRows)/fastRows
	b.launch(f.k.normGrad, blocks, 1, g.normThreads(), f.dx.at.Arg(), dy.Arg(), dn.Arg(), x.Arg(), w.at.Arg(), index.Arg(), f.part.at.Arg(), cudart.Int(n),
		cudart.Int(g.Hidden), cudart.Float(float32(g.RMSEps)))
	g.colSum(b, g.grad(w), f.part.at, blocks, g.Hidden, g.Hidden)
}

func (g *trainGPU) colSum(b *batch, out, part cudart.Ptr, n, columns, stride int) {
	b.launch(g.fast.k.colSum, pad(columns, 32)/32, 1, plainThreads, out.Arg(), part.Arg(), cudart.Int(n), cudart.Int(columns), cudart.Int(stride))
}

func (g *trainGPU) fastInput(i int) cudart.Ptr {
	return g.fast.x.at.Add(i * g.fast.m.rows * g.Hidden * 4)
}

// fastForward runs the layers.
func (g *trainGPU) fastForward(m *micro) error {
	f, n := g.fast, len(m.tokens)
	b := &batch{d: &g.device}
	b.launch(g.k.embed, n, 1, threads, g.fastInput(0).Arg(), g.w.embed.at.Arg(), f.m.tokens.Arg(), cudart.Int(g.Hidden), cudart.Int(g.hiddenP))
	var before fastSlot
	for i := range g.Layers {
		s, _ := g.activations(i)
		if i > 0 {
			g.fastNorm(b, s.n1, g.fastInput(i), before.mid, f.delta.at, g.w.layers[i].norm1, 0, n)
		} else {
			g.fastNorm(b, s.n1, 0, g.fastInput(0), 0, g.w.layers[0].norm1, 0, n)
		}
		g.fastLayer(b, i, s, n)
		b.launch(f.k.silu, n, 1, plainThreads, f.h.at.Arg(), s.gu.Arg(), cudart.Int(g.Intermediate))
		b.full(f.delta.at, f.h.at, g.w.layers[i].down, f.m.rows, true)
		before = s
	}
	g.fastNorm(b, 0, g.fastInput(g.Layers), before.mid, f.delta.at, g.w.final, 0, n)
	return b.err
}

// fastLayer computes layer i from its normalised input n on, up to the products before the activation.
func (g *trainGPU) fastLayer(b *batch, i int, s fastSlot, n int) {
	f, l, rows := g.fast, g.w.layers[i], g.fast.m.rows
	b.full(s.qkv, s.n1, l.qkv, rows, true)
	g.fastHeads(b, l, s, n)
	g.fastAttend(b, s, n)
	b.full(f.delta.at, s.att, l.out, rows, true)
	g.fastNorm(b, s.n2, s.mid, g.fastInput(i), f.delta.at, l.norm2, 0, n)
	b.full(s.gu, s.n2, l.gateUp, rows, true)
}

func (g *trainGPU) fastHeads(b *batch, l layerWeights, s fastSlot, n int) {
	f := g.fast
	b.launch(f.k.heads, n, 1, g.headThreads(), s.q.Arg(), s.keys.Arg(), s.qkv.Arg(), l.qNorm.at.Arg(), l.kNorm.at.Arg(), g.cos.Arg(), g.sin.Arg(),
		f.m.position.Arg(), cudart.Int(g.Heads), cudart.Int(g.KVHeads), cudart.Float(float32(g.RMSEps)))
}

// values is where the values begin in qkv.
func (g *trainGPU) values(qkv cudart.Ptr) cudart.Ptr {
	return qkv.Add(2 * (g.queries + g.KVHeads*g.HeadDim))
}

func (g *trainGPU) fastAttend(b *batch, s fastSlot, n int) {
	f := g.fast
	if f.m.calls == nil {
		b.launch(f.k.attend, n, g.Heads, threads, s.att.Arg(), s.stats.Arg(), s.q.Arg(), s.keys.Arg(), g.values(s.qkv).Arg(), f.m.position.Arg(),
			cudart.Int(g.Heads), cudart.Int(g.KVHeads), cudart.Int(g.sizes.qkv), g.scale())
		return
	}
	for _, c := range f.m.calls {
		b.do(func() error { return f.dnn.Attend(c.shape, g.callArgs(c, s), false) })
	}
}

// callArgs are the addresses of a call for a layer.
func (g *trainGPU) callArgs(c attendCall, s fastSlot) cudart.AttentionArgs {
	f, a := g.fast, c.args
	q, k := 2*c.head*g.Heads/g.KVHeads*g.HeadDim, 2*c.head*g.HeadDim
	keys := 2 * g.queries
	a.Q, a.K, a.V, a.O, a.Stats = s.q.Add(q), s.keys.Add(k), g.values(s.qkv).Add(k), s.att.Add(q), s.stats.Add(4*c.stats)
	a.DO, a.DQ, a.DK, a.DV, a.Sums = f.datt.at.Add(q), f.dqkv.at.Add(q), f.dqkv.at.Add(keys+k), g.values(f.dqkv.at).Add(k), f.sums.at.Add(4*c.stats)
	return a
}

func (g *trainGPU) fastAttendGrad(b *batch, s fastSlot, n int) {
	f := g.fast
	if f.m.calls != nil {
		for _, c := range f.m.calls {
			b.do(func() error { return f.dnn.Attend(c.shape, g.callArgs(c, s), true) })
		}
		return
	}
	v, dv, dk := g.values(s.qkv), g.values(f.dqkv.at), f.dqkv.at.Add(2*g.queries)
	shape := []cudart.Arg{cudart.Int(g.Heads), cudart.Int(g.KVHeads), cudart.Int(g.sizes.qkv), cudart.Int(g.sizes.qkv), g.scale()}
	b.launch(f.k.attendGradQ, n, g.Heads, threads, append([]cudart.Arg{
		f.dqkv.at.Arg(), f.sums.at.Arg(), f.datt.at.Arg(), s.att.Arg(), s.q.Arg(), s.keys.Arg(), v.Arg(), f.m.position.Arg(), s.stats.Arg(),
	}, shape...)...)
	b.launch(f.k.attendGradKV, n, g.KVHeads, threads, append([]cudart.Arg{
		dk.Arg(), dv.Arg(), f.datt.at.Arg(), f.sums.at.Arg(), s.q.Arg(), s.keys.Arg(), v.Arg(), f.m.sequence.Arg(), f.m.last.Arg(), s.stats.Arg(),
	}, shape...)...)
}

// fastBackward adds the gradients of a micro-batch to the sums, from dx, the gradient of the last layer's output.
func (g *trainGPU) fastBackward(m *micro) error {
	f, n, rows := g.fast, len(m.tokens), g.fast.m.rows
	b := &batch{d: &g.device}
	b.launch(g.k.narrow, n, pad(g.Hidden, threads)/threads, threads, f.dy.at.Arg(), f.dx.at.Arg(), cudart.Int(g.Hidden), cudart.Int(g.Hidden))
	for i := g.Layers - 1; i >= 0; i-- {
		l := g.w.layers[i]
		s, kept := g.activations(i)
		again := !kept && i < g.Layers-1
		if again {
			g.fastNorm(b, s.n1, 0, g.fastInput(i), 0, l.norm1, 0, n)
			g.fastLayer(b, i, s, n)
		}
		b.fullInput(f.dh.at, f.dy.at, l.down, rows)
		b.launch(f.k.siluGrad, n, 1, plainThreads, f.dgu.at.Arg(), f.h.at.Arg(), f.dh.at.Arg(), s.gu.Arg(), cudart.Int(g.Intermediate))
		b.fullWeights(g.grad(l.down), f.dy.at, f.h.at, l.down, rows, f.m.fresh)
		if !again && !f.rich {
			g.fastNorm(b, s.n2, 0, s.mid, 0, l.norm2, 0, n)
		}
		b.fullWeights(g.grad(l.gateUp), f.dgu.at, s.n2, l.gateUp, rows, f.m.fresh)
		b.fullInput(f.dn.at, f.dgu.at, l.gateUp, rows)
		g.fastNormGrad(b, f.dy.at, f.dn.at, s.mid, l.norm2, 0, n)

		b.fullWeights(g.grad(l.out), f.dy.at, s.att, l.out, rows, f.m.fresh)
		b.fullInput(f.datt.at, f.dy.at, l.out, rows)
		if !again && !f.rich {
			g.fastHeads(b, l, s, n)
		}
		g.fastAttendGrad(b, s, n)
		g.fastHeadsGrad(b, l, s, n)
		if !f.rich {
			g.fastNorm(b, s.n1, 0, g.fastInput(i), 0, l.norm1, 0, n)
		}
		b.fullWeights(g.grad(l.qkv), f.dqkv.at, s.n1, l.qkv, rows, f.m.fresh)
		b.fullInput(f.dn.at, f.dqkv.at, l.qkv, rows)
		g.fastNormGrad(b, f.dy.at, f.dn.at, g.fastInput(i), l.norm1, 0, n)
	}
	ids, starts, rowsOf := byToken(m.tokens)
	p := &packer{}
	at := []int{p.add(ids...), p.add(starts...), p.add(rowsOf...)}
	b.do(func() error { return cudart.Upload(g.ctx, f.embed.at, p.ints) })
	b.launch(g.k.embedgrad, len(ids), 1, threads, g.grad(g.w.embed).Arg(), f.dx.at.Arg(), f.embed.at.Add(at[0]).Arg(), f.embed.at.Add(at[1]).Arg(),
		f.embed.at.Add(at[2]).Arg(), cudart.Int(g.Hidden), cudart.Int(g.hiddenP))
	return b.err
}

func (g *trainGPU) fastHeadsGrad(b *batch, l layerWeights, s fastSlot, n int) {
	f, blocks := g.fast, pad(n, fastRows)/fastRows
	b.launch(f.k.headsGrad, blocks, 1, g.headThreads(), f.dqkv.at.Arg(), s.qkv.Arg(), l.qNorm.at.Arg(), l.kNorm.at.Arg(), g.cos.Arg(), g.sin.Arg(),
		f.m.position.Arg(), f.part.at.Arg(), cudart.Int(n), cudart.Int(g.Heads), cudart.Int(g.KVHeads), cudart.Float(float32(g.RMSEps)))
	g.colSum(b, g.grad(l.qNorm), f.part.at, blocks, fastHead, 2*fastHead)
	g.colSum(b, g.grad(l.kNorm), f.part.at.Add(4*fastHead), blocks, fastHead, 2*fastHead)
}

// fastLoss is headLoss without copies from the GPU: the tokens' figures stay there until fastStats.
func (g *trainGPU) fastLoss(b *engine.Batch, m *micro) error {
	f, elem := g.fast, 2
	if err := g.ctx.Zero(f.dx.at, f.m.rows*g.Hidden*4); err != nil {
		return err
	}
	last, k := g.fastInput(g.Layers), f.m.k
	// The GPU is busy with the forward pass meanwhile.
	words, ids, logQ := lossWords(b, m.targets, k, f.m.scale)
	if err := errors.Join(cudart.Upload(g.ctx, f.words.at, words), cudart.Upload(g.ctx, f.recordIDs.at, ids), cudart.Upload(g.ctx, f.logQ.at, logQ)); err != nil {
		return err
	}
	w := &batch{d: &g.device}
	for first := 0; first < len(m.targets) && w.err == nil; first += fastHeadRows {
		n := min(fastHeadRows, len(m.targets)-first)
		rows := g.padRows(n)
		w.do(func() error {
			tail := (rows - n) * elem
			return errors.Join(g.ctx.Zero(f.hx.at.Add(n*g.Hidden*elem), tail*g.Hidden), g.ctx.Zero(f.dlogits.at.Add(n*g.Vocab*elem), tail*g.Vocab))
		})
		index := f.m.index.Add(4 * first)
		g.fastNorm(w, f.hx.at, 0, last, 0, g.w.final, index, n)
		w.full(f.logits.at, f.hx.at, g.w.head, rows, false)
		w.launch(f.k.loss, n, 1, wideThreads, append([]cudart.Arg{
			f.dlogits.at.Arg(), f.stats.at.Add(first * statsBytes).Arg(), f.head.at.Arg(), f.logits.at.Arg(), f.words.at.Add(first * targetBytes).Arg(),
			f.recordIDs.at.Add(4 * first * k).Arg(), f.logQ.at.Add(4 * first * k).Arg(), cudart.Int(g.Vocab), cudart.Int(k),
		}, objective(b.Objective)...)...)
		w.fullWeights(g.grad(g.w.head), f.dlogits.at, f.hx.at, g.w.head, rows, f.m.fresh && first == 0)
		w.fullInput(f.dhn.at, f.dlogits.at, g.w.head, rows)
		g.fastNormGrad(w, 0, f.dhn.at, last, g.w.final, index, n)
	}
	return w.err
}

// fastStats copies the tokens' figures when everything before is done.
func (g *trainGPU) fastStats(b *engine.Batch, m *micro) ([]tokenStats, error) {
	raw := make([]uint64, len(m.targets)*statsBytes/8)
	if err := cudart.Download(g.ctx, raw, g.fast.stats.at); err != nil {
		return nil, err
	}
	return statsList(b, m.targets, raw), nil
}
