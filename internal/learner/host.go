package learner

import (
	"context"
	"sync"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/span"
)

// Options configure a Host.
type Options struct {
	Store artifact.Store
	// Name identifies the host in fences, results and queues; it must be stable over restarts.
	Name string
	// NewTrainer makes a trainer from FP32 master weights, or from nil for one whose state follows; NewSampler an engine for the probe of a version.
	NewTrainer func(model.Config, *model.Weights) (engine.Trainer, error)
	NewSampler func(model.Config) (engine.Sampler, error)
	// Initial returns the step and the state that a lineage begins with. Init asks for it, and a restore that finds no good
	// checkpoint.
	Initial func(context.Context, record.Layout) (step int, state *engine.State, err error)
	// Note hears of restores, replays and alarms; it may be nil.
	Note func(ctx context.Context, l record.Layout, e record.Event)
}

// Host is a trainer process. Its calls serialise.
type Host struct {
	opts    Options
	mu      sync.Mutex
	layout  record.Layout
	trainer engine.Trainer // nil: nothing is loaded
	config  model.Config   // of its model
	step    int            // updates applied in the lineage; valid while trainer is not nil
	last    last           // the update that made the state; zero after a restore
	probe   engine.Sampler // of models of the configuration probes
	probes  model.Config

	doubted record.Layout // the lineage whose recorded digest a followed step did not have
	told    map[int]bool  // checkpoints of layout that did not verify while following
	budget  int           // tokens of a micro-batch that memory allows; 0: no limit was met

	activeMu sync.Mutex
	active   record.Layout // the lineage that this process works on as its trainer; zero: none
	held     record.Layout // the lineage of the state held; zero: none
}

// last is what is not part of the state, but of the result of the step that made it.
type last struct {
	batch    string // digest; empty: unknown
	metrics  record.UpdateMetrics
	tokens   int // of the sequences, prompts included
	replayed int
	plan     *engine.Plan // nil: the sealed one
}

// New returns an empty host.
func New(o Options) *Host {
	if o.Note == nil {
		o.Note = func(context.Context, record.Layout, record.Event) {}
	}
	return &Host{opts: o}
}

// Outcome is what an update did besides its result.
type Outcome struct {
	record.Result
	Restored bool // a checkpoint was loaded
	Replayed int  // sealed batches that were replayed
	Recorded bool // the result was there already
	Tokens   int  // of the sequences that this call trained for the step, prompts included; 0 if it was trained before
}

// Update applies the sealed batch of a step and publishes the version of the same number, exactly once.
//
// With the trainer at version v: v < step-1 restores and replays first; v = step-1 trains; then a result that is recorded already is
// compared and returned, else the weights are written and then the result. v = step without a result
// (a crash or a full disk between training and writing) writes it from the state held. v >= step with a result
// returns it. Errors: Invalid (the batch is not the sealed one), Stale (another trainer holds the
// lineage), NotFound or Corrupt (no good checkpoint), Numeric, and the store's. After an error other than a failed write the
// state is dropped, and the next call restores.
func (h *Host) Update(ctx context.Context, l record.Layout, step int, ref artifact.Ref, epoch int) (Outcome, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkFence(ctx, l, epoch); err != nil {
		return Outcome{}, err
	}
	h.lead(l)
	recorded, err := h.recorded(ctx, step)
	if err != nil {
		return Outcome{}, err
	}
	if recorded != nil && recorded.BatchDigest != ref.Digest {
		return Outcome{}, fault.New(fault.Invalid, "learner.Update", "step %d was trained from batch %.12s, asked for is %.12s", step, recorded.BatchDigest, ref.Digest)
	}
	if h.trainer != nil && h.step >= step {
		return h.behind(ctx, step, ref, epoch, recorded)
	}
	var out Outcome
	if out.Restored, out.Replayed, err = h.reach(ctx, step-1); err != nil {
		return Outcome{}, err
	}
	if err := h.train(ctx, step, ref, recorded); err != nil {
		return Outcome{}, err
	}
	crashpoint.Here("trainer.update.after")
	h.last.replayed, out.Tokens = out.Replayed, h.last.tokens
	if recorded != nil {
		out.Result, out.Recorded = *recorded, true
		_, err := h.compare(ctx, *recorded)
		return out, err
	}
	out.Result, err = h.publish(ctx, step, ref, epoch)
	return out, err
}

// behind answers a request for a step that the state already holds.
func (h *Host) behind(ctx context.Context, step int, ref artifact.Ref, epoch int, recorded *record.Result) (Outcome, error) {
	switch {
	case recorded != nil:
		return Outcome{Result: *recorded, Recorded: true}, nil
	case h.step == step && h.last.batch != "" && h.last.batch != ref.Digest:
		return Outcome{}, fault.New(fault.Invalid, "learner.Update", "step %d was trained from batch %.12s, asked for is %.12s", step, h.last.batch, ref.Digest)
	case h.step == step:
		res, err := h.publish(ctx, step, ref, epoch)
		return Outcome{Result: res}, err
	}
	return Outcome{}, fault.New(fault.Internal, "learner.Update", "the trainer is at step %d, but step %d has no result", h.step, step)
}

// Reach brings the trainer to the state after step (see Checkpoint) and returns a copy with its digest.
func (h *Host) Reach(ctx context.Context, l record.Layout, step, epoch int) (*engine.State, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkFence(ctx, l, epoch); err != nil {
		return nil, 0, err
	}
	h.lead(l)
	_, replayed, err := h.reach(ctx, step)
	if err != nil {
		return nil, 0, err
	}
	return h.trainer.State(), replayed, nil
}

// adopt forgets the state of another lineage.
func (h *Host) adopt(l record.Layout) {
	if h.layout != l {
		h.forget()
		h.layout, h.told, h.budget = l, nil, 0
	}
}

// lead is adopt for the holder of the fence.
func (h *Host) lead(l record.Layout) {
	h.adopt(l)
	h.setActive(l)
}

func (h *Host) setActive(l record.Layout) {
	h.activeMu.Lock()
	defer h.activeMu.Unlock()
	h.active = l
}

func (h *Host) forget() {
	if h.trainer != nil {
		_ = h.trainer.Close() // nothing can be done about memory that does not go
	}
	h.trainer, h.last = nil, last{}
	h.setHeld(record.Layout{})
}

func (h *Host) setHeld(l record.Layout) {
	h.activeMu.Lock()
	defer h.activeMu.Unlock()
	h.held = l
}

// Close frees the engines.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
	if h.probe != nil {
		return h.probe.Close()
	}
	return nil
}

func (h *Host) recorded(ctx context.Context, step int) (*record.Result, error) {
	var r record.Result
	_, err := artifact.GetJSON(ctx, h.opts.Store, h.layout.Result(step), &r)
	if fault.Is(err, fault.NotFound) {
		return nil, nil //nolint:nilnil // absence is an answer here, not an error
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// train applies the sealed batch of step to the state after step-1, as its result was made if there is one.
func (h *Host) train(ctx context.Context, step int, ref artifact.Ref, recorded *record.Result) error {
	var sealed record.Sealed
	if err := artifact.FetchJSON(ctx, h.opts.Store, ref, &sealed); err != nil {
		return err
	}
	if sealed.Step != step {
		return fault.New(fault.Invalid, "learner.Update", "batch %s is of step %d, asked for is %d", ref.Name, sealed.Step, step)
	}
	_, loaded := span.Start(ctx, "load_batch")
	b, err := batch.Load(ctx, h.opts.Store, sealed)
	loaded(err)
	if err != nil {
		return err
	}
	began := time.Now()
	tctx, updated := span.Start(ctx, "forward_backward", span.Attr{Key: "step", Value: step}, span.Attr{Key: "tokens", Value: tokensOf(b)})
	m, plan, err := h.update(tctx, step, b, recorded)
	updated(err)
	if err != nil {
		h.forget()
		return err
	}
	h.step, h.last = step, last{batch: ref.Digest, metrics: UpdateMetrics(b, m, time.Since(began)), tokens: tokensOf(b), plan: plan}
	return nil
}

// compare raises the alarm when a replayed step gives other weights than were recorded, and reports whether they are equal.
// Its error is that of reading the state.
func (h *Host) compare(ctx context.Context, want record.Result) (equal bool, err error) {
	got, err := h.stateDigest()
	if err != nil {
		h.forget()
		return false, err
	}
	if got != want.StateDigest {
		h.opts.Note(ctx, h.layout, record.Event{
			Kind: record.ReplayMismatch, Where: h.opts.Name, Step: want.Step,
			Message: "the replayed state has digest " + got + ", recorded was " + want.StateDigest + ": the run is no longer bit-exact",
		})
	}
	return got == want.StateDigest, nil
}

// tokensOf counts the tokens of a batch's sequences.
func tokensOf(b engine.Batch) int {
	n := 0
	for _, s := range b.Sequences {
		n += len(s.Tokens)
	}
	return n
}

// UpdateMetrics are what a run records of an update of b that took so long.
func UpdateMetrics(b engine.Batch, m engine.StepMetrics, took time.Duration) record.UpdateMetrics {
	num := record.Num
	return record.UpdateMetrics{
		Loss: num(m.Loss), GradNorm: num(m.GradNorm), ClipFactor: num(m.ClipFactor),
		Correction: num(m.Correction), CorrectionA: num(m.CorrectionA), Uncovered: num(m.Uncovered),
		TrainerTail: num(m.TrainerTail), Entropy: num(m.Entropy), LogProbGap: num(m.LogProbGap), KL: num(m.KL),
		OutsideShare: num(m.OutsideShare), FloorShare: num(m.FloorShare), MaxAlpha: num(m.MaxAlpha),
		TrainRate: num(float64(tokensOf(b)) / took.Seconds()), Seconds: num(took.Seconds()),
	}
}
