//go:build cuda

package cuda

import (
	"context"
	"runtime"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/batched"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// Sampler implements engine.Sampler on one GPU. One goroutine runs all requests as one batch; sinks run in the goroutines of their callers.
type Sampler struct {
	*batched.Scheduler
	cfg  model.Config
	opts Options
}

var _ engine.Sampler = (*Sampler)(nil)

// NewSampler starts a sampler without weights on a GPU. Close stops it. Errors: Invalid, NotFound (no driver or library), Infrastructure (the driver refuses), Exhausted
// (memory), Lost.
func NewSampler(c model.Config, o Options) (engine.Sampler, error) {
	if err := checkModel(c); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Sampler{cfg: c, opts: o}
	started := make(chan error)
	go s.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return s, nil
}

// run owns the GPU: it has a thread of its own, to which the context belongs.
func (s *Sampler) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g, err := newGPU(s.cfg, s.opts)
	if err != nil {
		started <- err
		return
	}
	s.Scheduler = batched.New(batched.Options{
		Name: "cuda", Rows: s.opts.Rows, Sequences: s.opts.Sequences, Pages: g.pages, IdlePages: g.pages,
		// The room is that of the model and of the cache.
		Room: engine.Room{Vocab: s.cfg.Vocab, TopK: s.cfg.Vocab, Tokens: min(s.cfg.MaxPosition, g.pages*pageTokens)},
	})
	started <- nil
	if g.tensor() {
		s.Run(&aheadDevice{samplerDevice: samplerDevice{g}})
	} else {
		s.Run(&samplerDevice{g})
	}
}

// SetWeights implements engine.Sampler. In BF16 the weights are rounded.
func (s *Sampler) SetWeights(ctx context.Context, version int, w *model.Weights) error {
	if w == nil || w.Config != s.cfg || version < 0 {
		return fault.New(fault.Invalid, "cuda.SetWeights", "version %d, or weights of another model configuration", version)
	}
	return s.Swap(ctx, version, newWeights(sizesOf(s.cfg)).stage(s.opts.Precision, w))
}

// samplerDevice is the batch's side of a GPU.
type samplerDevice struct{ gpu *gpu }

// Install implements batched.Device.
func (d *samplerDevice) Install(weights any) error {
	if seed, ok := weights.(randomWeights); ok {
		return d.gpu.fillRandom(uint32(seed))
	}
	return d.gpu.w.upload(d.gpu.ctx, weights.(*staged)) //nolint:forcetypeassert // of SetWeights
}

// Close implements batched.Device.
func (d *samplerDevice) Close() error { return d.gpu.close() }

// work is a chunk in the rows of a step, and in its asks.
type work struct {
	*batched.Chunk
	row, firstAsk, asks int
}

// Step implements batched.Device. Chunks may have more rows together than fit at once.
func (d *samplerDevice) Step(chunks []*batched.Chunk, version int) error {
	for len(chunks) > 0 {
		rows, n := 0, 0
		for ; n < len(chunks) && n < d.gpu.opts.Sequences && rows+chunks[n].N <= d.gpu.opts.Rows; n++ {
			rows += chunks[n].N
		}
		if err := d.part(chunks[:n], version); err != nil {
			return err
		}
		chunks = chunks[n:]
	}
	return nil
}

func (d *samplerDevice) part(chunks []*batched.Chunk, version int) error {
	var rows []row
	var tables [][]int32
	works := make([]*work, 0, len(chunks))
	for _, c := range chunks {
		works = append(works, &work{Chunk: c, row: len(rows)})
		for i := range c.N {
			rows = append(rows, row{c.Seq.Tokens[c.First+i], int32(len(tables)), int32(c.First + i)}) //nolint:gosec // small
		}
		tables = append(tables, c.Seq.Pages)
	}
	index, wanted := asks(works)
	if err := d.gpu.forward(rows, tables); err != nil {
		return err
	}
	answers, records, err := d.gpu.sample(index, wanted)
	if err != nil {
		return err
	}
	for _, w := range works {
		got := answers[w.firstAsk:][:w.asks]
		for i, a := range got {
			switch {
			case a.bad != 0:
				w.Err = notFinite(w.First+i+1, version)
			case w.Seq.Score:
				w.Seq.Scores = append(w.Seq.Scores, a.logProb)
			default:
				w.Token = tokenOf(a, records[w.firstAsk+i])
			}
		}
	}
	return nil
}

func notFinite(tokens, version int) error {
	return fault.New(fault.Numeric, "cuda.Sampler", "a logit after %d tokens is not finite", tokens).WithHint("the weights of version %d are damaged", version)
}

func tokenOf(a answer, r record) engine.Token {
	return engine.Token{ID: a.id, LogProb: a.logProb, Entropy: a.entropy, TopIDs: r.ids, TopLogProbs: r.values}
}

// asks lists the rows of the step from which a token is drawn or scored.
func asks(works []*work) (index []int32, out []ask) {
	for _, w := range works {
		w.firstAsk = len(out)
		for i := range w.N {
			pos := w.First + i + 1
			var a ask
			switch {
			case w.Seq.Score && pos < len(w.Seq.Tokens):
				a = ask{position: uint32(pos), inverse: 1, target: w.Seq.Tokens[pos]} //nolint:gosec // below the model's positions
			case !w.Seq.Score && pos == len(w.Seq.Tokens):
				a = draw(&w.Seq.Req, pos)
			default:
				continue
			}
			index, out = append(index, int32(w.row+i)), append(out, a) //nolint:gosec // small
		}
		w.asks = len(out) - w.firstAsk
	}
	return index, out
}

// draw asks for the token at a position.
func draw(r *engine.Request, position int) ask {
	return ask{
		stream:   [4]uint32{r.Random.Key[0], r.Random.Key[1], r.Random.Nonce[0], r.Random.Nonce[1]},
		position: uint32(position), inverse: float32(1 / r.Temperature), target: -1, top: int32(r.TopK), //nolint:gosec // at most the vocabulary
	}
}

// aheadDevice decodes by steps that wait for nothing on the host.
type aheadDevice struct {
	samplerDevice
	tops   []int32
	width  int
	last   int // largest position of the next step
	flying []step
}

var _ batched.Ahead = (*aheadDevice)(nil)

// Load implements batched.Ahead.
func (d *aheadDevice) Load(group []*batched.Sequence) error {
	d.tops, d.width, d.last = d.tops[:0], 0, 0
	lanes := make([]lane, len(group))
	for i, seq := range group {
		n := len(seq.Tokens)
		lanes[i] = lane{seq.Tokens[n-1], int32(n - 1), seq.Pages, draw(&seq.Req, n)} //nolint:gosec // a position
		d.tops = append(d.tops, int32(seq.Req.TopK))                                 //nolint:gosec // at most the vocabulary
		d.width, d.last = max(d.width, seq.Req.TopK), max(d.last, n-1)
	}
	return d.gpu.load(lanes)
}

// Begin implements batched.Ahead.
func (d *aheadDevice) Begin() error {
	s, err := d.gpu.begin(len(d.tops), d.last, d.width)
	d.last++
	d.flying = append(d.flying, s)
	return err
}

// Finish implements batched.Ahead.
func (d *aheadDevice) Finish(version int) ([]batched.Result, error) {
	answers, records, err := d.gpu.finish(d.flying[0], d.tops)
	if err != nil {
		return nil, err
	}
	position := d.last + 1 - len(d.flying) // of the token at the longest lane
	d.flying = append(d.flying[:0], d.flying[1:]...)
	results := make([]batched.Result, len(answers))
	for i, a := range answers {
		if a.bad != 0 {
			results[i].Err = notFinite(position, version)
			continue
		}
		results[i].Token = tokenOf(a, records[i])
	}
	return results, nil
}

// Drop implements batched.Ahead.
func (d *aheadDevice) Drop() error {
	d.flying = d.flying[:0]
	return d.gpu.ctx.Sync()
}
