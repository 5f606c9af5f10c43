//go:build cuda

package cuda

import (
	"fmt"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine/plan"
)

// The engine's own products (kernels/product.cu) need the instructions of one architecture, which NVRTC knows from version 12 on. Where they run they serve every
// product of the forward passes whose bits have to be equal: those of the sampler and of the exact step. Elsewhere cuBLASLt does, with other roundings.
const (
	ownArch     = "sm_90a"
	ownCompiler = 12
	ownStep     = 64 // columns of a copy, STEP of the kernels
)

// tiling is a kernel's tile: n rows of x by so many groups of 64 rows of the matrix. Blocks of columns of the matrix are copied to shared memory so many ahead, of x so
// many near their use; so many copies of the matrix are under way at once.
type tiling struct {
	name                           string
	n, groups, ahead, near, flying int
}

// The tilings of the kernels, and what is behind their names.
var (
	tall64, low64   = tiling{"product64tall", 64, 3, 6, 6, 3}, tiling{"product64", 64, 2, 8, 8, 4}
	tall128, low128 = tiling{"product128tall", 128, 3, 5, 5, 4}, tiling{"product128", 128, 2, 6, 6, 5}
	low256          = tiling{"product256", 256, 2, 4, 4, 3}
)

func tilings() []tiling { return []tiling{tall64, low64, tall128, low128, low256} }

const paired, joins = "silu", "join"

// shared is the size of dynamic shared memory: the blocks begin at a multiple of 1,024.
func (t tiling) shared() int { return (t.ahead*64*t.groups+t.near*t.n)*2*ownStep + 1024 }

func (t tiling) threads() int { return 128*t.groups + 64 }

// ownProducts are the loaded kernels.
type ownProducts struct {
	module  *cudart.Module
	kernels map[string]*cudart.Function
}

// newOwnProducts loads them, or returns nil where they do not run.
func newOwnProducts(ctx *cudart.Context, o Options) (*ownProducts, error) {
	if o.libraryProducts || o.compile != nil || ctx.Arch()+"a" != ownArch || !ctx.MapsTiles() {
		return nil, nil
	}
	c, err := cudart.NewCompiler(o.NVRTC)
	if err != nil || c.Major < ownCompiler {
		return nil, err
	}
	code, err := compiled(c, productSource(), ownArch, BF16, o.KernelDir)
	if err != nil {
		return nil, err
	}
	p := &ownProducts{kernels: map[string]*cudart.Function{}}
	if p.module, err = ctx.LoadModule(code); err != nil {
		return nil, err
	}
	for _, t := range tilings() {
		for _, kind := range []string{"", paired, joins} {
			if kind == joins && t != tall128 {
				continue
			}
			if p.kernels[t.name+kind], err = p.module.Function(t.name+kind, t.shared()); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// productSource is the text of their module.
func productSource() string { return joined([]string{"prelude.cu", "product.cu"}) }

// pairs reports whether the activation of m's two halves can follow in the same kernel.
func (p *ownProducts) pairs(m *matrix) bool {
	parts, _ := plan.ProductParts(m.rows, m.colsP)
	return parts == 1 && m.rows%16 == 0
}

// ownJob is a product of rows of x with w.
type ownJob struct {
	y, x cudart.Ptr
	w    *matrix
	rows int
	// room is the number of rows for which y has room: parts are left apart if they fit. 0 adds them.
	room int
	// paired makes y the elements silu(first half) second half; see pairs.
	paired bool
	early  bool
}

// tile chooses a tiling. Only times depend on it.
func (j ownJob) tile(parts int, tall, join bool) tiling {
	switch {
	case join:
		return tall128
	case j.rows <= 64 && tall:
		return tall64
	case j.rows <= 64:
		return low64
	case tall && (j.rows <= 256 || parts > 1):
		return tall128
	case j.rows <= 128:
		return low128
	}
	return low256
}

// Policies of the L2 cache for the matrix: what is read once should not displace anything, except that the largest are read faster without that.
const (
	readOnce   = 0x12F0000000000000
	readAgain  = 0x1000000000000000
	largeBytes = 256 << 20
)

// run starts a product and returns where its result is.
func (p *ownProducts) run(ctx *cudart.Context, j ownJob) (sum, error) {
	out, in := j.w.rows, j.w.colsP
	parts, tall := plan.ProductParts(out, in)
	apart := parts > 1 && parts*j.rows <= j.room
	join := parts > 1 && !apart
	t := j.tile(parts, tall, join)
	xTiles, wTiles, steps := pad(j.rows, t.n)/t.n, pad(out, 64*t.groups)/(64*t.groups), pad(in, ownStep)/ownStep
	items, result, all := xTiles*wTiles, whole(j.y), 1
	if apart {
		items, result, all = items*parts, sum{j.y, parts, j.rows * out}, 0
	}
	policy := uint64(readAgain)
	if xTiles == 1 && 2*out*in < largeBytes {
		policy = readOnce
	}
	name, rowBytes := t.name, 2*in
	w := cudart.TileShape{At: j.w.at, Dims: []int{in, out}, Strides: []int{rowBytes}, Box: []int{ownStep, 64 * t.groups}}
	switch {
	case j.paired: // eight rows of each half in turn
		name += paired
		w.Dims, w.Strides, w.Box = []int{in, 8, 2, out / 16}, []int{rowBytes, out / 2 * rowBytes, 8 * rowBytes}, []int{ownStep, 8, 2, 4 * t.groups}
	case join:
		name += joins
	}
	// Buffers have whole tiles of the library's products; rows behind the last are computed and not stored.
	x := cudart.TileShape{At: j.x, Dims: []int{in, pad(j.rows, tile)}, Strides: []int{rowBytes}, Box: []int{ownStep, t.n}}
	err := ctx.LaunchTiles(p.kernels[name], min(items, ctx.Processors), t.threads(), t.shared(), j.early, [2]cudart.TileShape{w, x},
		j.y.Arg(), cudart.Int(items), cudart.Int(xTiles), cudart.Int(wTiles), cudart.Int(steps), cudart.Int(parts), cudart.Int(all), cudart.Int(j.rows), cudart.Int(out),
		cudart.Uint64Arg(uint64(result.apart)), cudart.Uint64Arg(policy)) //nolint:gosec // a size
	if err != nil {
		return sum{}, fmt.Errorf("a product of %d rows with a [%d,%d] matrix: %w", j.rows, out, in, err)
	}
	return result, nil
}
