//go:build cuda

package cuda

import (
	"errors"
	"math"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// pageTokens is the number of tokens of a cache page, PAGE in the kernels; threads of a block, and the limits of the kernels.
const (
	pageTokens   = plan.PageTokens
	threads      = 128
	plainThreads = 256
	// addnorm gives a thread at least four elements up to this size of a block.
	mostNormThreads = 640
	wideThreads     = 512
	plainSide       = 64
	maxHeadDim      = 256
	maxVocab        = 512 * 1024
)

// device is what a sampler and a trainer have in common on a GPU. It belongs to the goroutine that made it, whose thread is locked.
type device struct {
	sizes
	opts  Options
	ctx   *cudart.Context
	k     *kernels
	blas  *cudart.BLAS // nil for plain products
	own   *ownProducts // of the forward pass, instead of the library's; nil where they do not run
	plans map[cudart.Shape]*cudart.Plan
	many  map[repeated]*cudart.Plan
	w     *weights

	owned    []cudart.Ptr
	taken    int        // bytes of owned
	cos, sin cudart.Ptr // [positions, d/2]
}

// gpu is everything of a sampler that lives on the device.
type gpu struct {
	device
	attend     attention
	cache      cudart.Ptr
	pages      int // of the cache
	seqPages   int // of the longest sequence
	x, delta   cudart.Ptr
	last       sum // what the last layer adds to x
	qkvRows    int // rows for which the results of products have room
	deltaRows  int
	n, att, h  cudart.Ptr
	qkv, q, gu cudart.Ptr
	logits     cudart.Ptr // [tile, vocab]
	ints       cudart.Ptr // tokens, sequences, positions, map: [4, rows]
	tables     cudart.Ptr // [sequences, seqPages]
	asks       cudart.Ptr // [tile]
	results    results
	decoder    decoder
	early      bool // kernels of a step begin while the one before ends
}

// checkModel refuses what the kernels cannot do.
func checkModel(c model.Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.HeadDim > maxHeadDim || c.Vocab > maxVocab {
		return fault.New(fault.Invalid, "cuda.NewSampler", "head_dim %d and vocabulary %d, the kernels take at most %d and %d",
			c.HeadDim, c.Vocab, maxHeadDim, maxVocab)
	}
	return nil
}

// start takes the GPU, loads the kernels and places weights and tables. After an error, close frees what there is.
func (d *device) start(c model.Config, o Options) (err error) {
	if err := cudart.Load(o.Driver); err != nil {
		return err
	}
	d.sizes, d.opts, d.w = sizesOf(c), o, newWeights(sizesOf(c))
	d.plans, d.many = map[cudart.Shape]*cudart.Plan{}, map[repeated]*cudart.Plan{}
	if d.ctx, err = cudart.NewContext(o.Device); err != nil {
		return err
	}
	compile := o.compile
	if compile == nil {
		compile = func(arch string, p Precision) ([]byte, error) { return build(o.NVRTC, arch, p, o.KernelDir) }
	}
	code, err := compile(d.ctx.Arch(), o.Precision)
	if err != nil {
		return err
	}
	if d.k, err = load(d.ctx, code, o.Precision); err != nil {
		return err
	}
	if o.Precision == BF16 && !o.PlainProducts {
		if d.blas, err = cudart.NewBLAS(d.ctx, o.CUBLASLt); err != nil {
			return err
		}
		if d.own, err = newOwnProducts(d.ctx, o); err != nil {
			return err
		}
	}
	for _, m := range d.w.all {
		if err := d.alloc(&m.at, m.bytes(o.Precision)); err != nil {
			return err
		}
	}
	cos, sin := ropeTables(c.RopeTheta, c.HeadDim, plan.RopePositions(c))
	return errors.Join(d.alloc(&d.cos, 4*len(cos)), d.alloc(&d.sin, 4*len(sin)), cudart.Upload(d.ctx, d.cos, cos), cudart.Upload(d.ctx, d.sin, sin))
}

func newGPU(c model.Config, o Options) (*gpu, error) {
	g := &gpu{early: true}
	err := g.start(c, o)
	if err == nil {
		err = g.allocate()
	}
	if err != nil {
		_ = g.close() // the first error counts
		return nil, err
	}
	return g, nil
}

// alloc allocates zeroed memory that close frees.
func (d *device) alloc(into *cudart.Ptr, bytes int) error {
	p, err := d.ctx.Alloc(bytes)
	if err != nil {
		return err
	}
	d.owned, d.taken = append(d.owned, p), d.taken+bytes
	*into = p
	return d.ctx.Zero(p, bytes)
}

// allocAll allocates planned parts; into says where each goes.
func (d *device) allocAll(into map[string]*cudart.Ptr, parts []plan.Part) error {
	for _, p := range parts {
		at := into[p.Name]
		if at == nil {
			return fault.New(fault.Internal, "cuda.alloc", "the memory plan has a part %q that the engine does not know", p.Name)
		}
		if err := d.alloc(at, p.Bytes); err != nil {
			return err
		}
	}
	return nil
}

func (g *gpu) allocate() error {
	g.seqPages = plan.SequencePages(g.planned())
	g.qkvRows, g.deltaRows = plan.SumRows(g.planned(), g.opts.Rows, g.opts.Sequences)
	into := map[string]*cudart.Ptr{
		"x": &g.x, "delta": &g.delta, "n": &g.n, "qkv": &g.qkv, "q": &g.q, "att": &g.att, "gu": &g.gu, "h": &g.h, "logits": &g.logits, "ints": &g.ints,
		"tables": &g.tables, "asks": &g.asks,
	}
	if err := g.allocAll(into, plan.SamplerParts(g.planned(), g.opts.Precision.elemBytes(), g.opts.Rows, g.opts.Sequences)); err != nil {
		return err
	}
	if err := g.decoder.setUp(g); err != nil {
		return err
	}
	return g.allocateCache()
}

// pageBytes is the size of a cache page.
func (g *gpu) pageBytes() int {
	return plan.PageBytes(g.planned(), g.opts.Precision.elemBytes())
}

// allocateCache takes memory for keys and values after everything else has its place.
func (g *gpu) allocateCache() error {
	free := 0
	if g.opts.CacheTokens == 0 {
		n, _, err := g.ctx.MemInfo()
		if err != nil {
			return err
		}
		free = int(n) //nolint:gosec // the memory of a card
	}
	s, elem := g.planned(), g.opts.Precision.elemBytes()
	g.pages = plan.CachePages(s, elem, g.opts.Sequences, g.opts.CacheTokens, free)
	if g.pages <= 0 {
		return fault.New(fault.Exhausted, "cuda.NewSampler", "no memory is left for a page of %d bytes of keys and values", g.pageBytes()).
			WithHint("use a smaller model or a larger GPU")
	}
	return g.alloc(&g.cache, plan.CacheBytes(s, elem, g.pages)) // the last page takes what belongs to no sequence
}

// ropeTables returns cosine and sine [positions, d/2] of position * theta^(-2i/d), computed in float64.
func ropeTables(theta float64, d, positions int) (cos, sin []float32) {
	half := d / 2
	cos, sin = make([]float32, positions*half), make([]float32, positions*half)
	for i := range half {
		f := math.Pow(theta, -float64(2*i)/float64(d))
		for p := range positions {
			s, c := math.Sincos(float64(p) * f)
			cos[p*half+i], sin[p*half+i] = float32(c), float32(s)
		}
	}
	return cos, sin
}

// close frees everything.
func (g *gpu) close() error {
	if g.ctx == nil {
		return nil
	}
	return errors.Join(g.ctx.Sync(), g.decoder.close(), g.device.close())
}

// close frees everything; the first error is returned.
func (d *device) close() error {
	var errs []error
	if d.ctx == nil {
		return nil
	}
	errs = append(errs, d.ctx.Sync())
	for _, p := range d.many {
		if p != nil {
			p.Close()
		}
	}
	for _, p := range d.plans {
		if p != nil {
			p.Close()
		}
	}
	if d.blas != nil {
		errs = append(errs, d.blas.Close())
	}
	for _, p := range d.owned {
		errs = append(errs, d.ctx.Free(p))
	}
	if d.k != nil {
		errs = append(errs, d.k.module.Unload())
	}
	if d.own != nil {
		errs = append(errs, d.own.module.Unload())
	}
	errs = append(errs, d.ctx.Close())
	return errors.Join(errs...)
}
