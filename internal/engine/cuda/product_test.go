//go:build cuda

package cuda

import (
	"slices"
	"testing"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/model"
)

// The engine's own products give a row the same bits in every tile, whether the parts of a sum are added in the kernel or by who reads them, and whether the
// activation follows in the same kernel. The matrices are those of a real layer and of a narrow one whose widths are no multiples of a tile.
func TestProduct_sameBitsInEveryTile(t *testing.T) {
	o := onCard(t)
	published, narrow := shapes[1].cfg, shapes[0].cfg
	published.Layers, published.Vocab = 1, 5000
	narrow.Layers, narrow.Vocab, narrow.Hidden, narrow.Intermediate, narrow.Heads, narrow.KVHeads, narrow.HeadDim = 1, 777, 328, 1000, 5, 1, 72
	o.Rows = 4096
	for _, c := range []struct {
		name string
		cfg  model.Config
	}{{"published", published}, {"narrow", narrow}} {
		onGPU(t, c.cfg, o, func(g *gpu) {
			if g.own == nil {
				t.Skip("the products are the library's here")
			}
			if err := g.fillRandom(3); err != nil {
				t.Fatal(err)
			}
			l := g.w.layers[0]
			for name, m := range map[string]*matrix{"qkv": l.qkv, "out": l.out, "gate and up": l.gateUp, "down": l.down, "head": g.w.head} {
				sameBitsInEveryTile(t, g, c.name+" "+name, m, m == l.gateUp && g.own.pairs(m))
			}
		})
	}
}

func sameBitsInEveryTile(t *testing.T, g *gpu, name string, m *matrix, paired bool) {
	t.Helper()
	const most = 700
	x, y := allocate(t, g, 2*768*m.colsP), allocate(t, g, 4*plan.MostParts*most*m.rows)
	bits, state := make([]uint16, most*m.colsP), uint32(m.rows)
	for i := range bits {
		state = state*1664525 + 1013904223
		bits[i] = toBF16(float32(state>>8)/(1<<24) - 0.5)
	}
	if err := cudart.Upload(g.ctx, x, bits); err != nil {
		t.Fatal(err)
	}
	product := func(rows, room int) []float32 {
		if err := g.ctx.Zero(y, 4*plan.MostParts*most*m.rows); err != nil {
			t.Fatal(err)
		}
		s, err := g.own.run(g.ctx, ownJob{y: y, x: x, w: m, rows: rows, room: room})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, (s.parts-1)*s.apart+rows*m.rows)
		if err := cudart.Download(g.ctx, got, s.at); err != nil {
			t.Fatal(err)
		}
		for p := 1; p < s.parts; p++ {
			for i := range rows * m.rows {
				got[i] += got[p*s.apart+i]
			}
		}
		return got[:rows*m.rows]
	}
	activations := func(rows int, f func(b *batch)) []uint16 {
		got, b := make([]uint16, rows*g.interP), &batch{d: &g.device}
		b.do(func() error { return g.ctx.Zero(g.h, 2*rows*g.interP) })
		f(b)
		b.do(func() error { return cudart.Download(g.ctx, got, g.h) })
		if b.err != nil {
			t.Fatal(b.err)
		}
		return got
	}
	want := product(most, 0)
	for _, rows := range []int{1, 5, 64, 65, 128, 129, 200, 256, 257, most} {
		for _, room := range []int{0, plan.MostParts * most} {
			if got := product(rows, room); !slices.Equal(got, want[:rows*m.rows]) {
				t.Errorf("%s: %d rows with room for %d have other bits than %d rows", name, rows, room, most)
			}
		}
		if !paired {
			continue
		}
		apart := activations(rows, func(b *batch) { b.siluMul(g.h, b.productIn(y, x, m, rows, 0), rows) })
		together := activations(rows, func(b *batch) { b.activate(g.h, 0, x, m, rows, 0) })
		if !slices.Equal(together, apart) {
			t.Errorf("%s: activations of %d rows have other bits in the kernel of the product", name, rows)
		}
	}
	for _, p := range []cudart.Ptr{x, y} {
		if err := g.ctx.Free(p); err != nil {
			t.Fatal(err)
		}
	}
}

func allocate(t *testing.T, g *gpu, bytes int) cudart.Ptr {
	t.Helper()
	p, err := g.ctx.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
