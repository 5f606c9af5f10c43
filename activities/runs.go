package activities

import (
	"context"
	"sync"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/weights"
)

// Runs reads the configuration and the record of runs from the store and remembers the last few. All roles
// share one.
type Runs struct {
	Store artifact.Store
	// Backend is the engine of this worker; a run that asks for another one is Invalid here. Empty for a worker without an engine.
	Backend string
	// Fits refuses a run for which this worker's device has too little memory, before anything of it is loaded (Invalid); nil accepts all.
	Fits func(*config.Config, model.Config) error
	// Self is the record of this process, which every run that it serves gets. Without a host none is written.
	Self record.Worker

	mu    sync.Mutex
	known map[contract.RunKey]*Run
}

// Run is what activities need to know of a lineage.
type Run struct {
	Config *config.Config
	Layout record.Layout
	Vocab  int // of the model
	// Parameters is the number of weights of the model.
	Parameters int

	base string // local directory of its base model

	mu      sync.Mutex
	tok     *tokenizer.Tokenizer
	dataset *dataset.Set
}

const maxKnownRuns = 16

// Of returns the run of a key. Errors: NotFound (no such run in this store), Corrupt (its configuration or a file of its
// base model is not what it was when the run started), Invalid (this worker cannot serve it).
func (r *Runs) Of(ctx context.Context, k contract.RunKey) (*Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run := r.known[k]; run != nil {
		return run, nil
	}
	l := k.Layout()
	data, _, err := r.Store.Get(ctx, l.ConfigFile())
	if err != nil {
		return nil, err
	}
	if err := r.unchanged(ctx, l, data); err != nil {
		return nil, err
	}
	c, _, err := config.DecodeJSON(data)
	if err != nil {
		return nil, err
	}
	if err := r.serves(k.Run, c); err != nil {
		return nil, err
	}
	if r.known == nil || len(r.known) >= maxKnownRuns {
		r.known = map[contract.RunKey]*Run{}
	}
	run := &Run{Config: c, Layout: l}
	if run.base, err = r.Store.Pull(ctx, l.Base()); err != nil {
		return nil, err
	}
	mc, err := weights.LoadConfig(run.base)
	if err != nil {
		return nil, err
	}
	if r.Fits != nil {
		if err := r.Fits(c, mc); err != nil {
			return nil, err
		}
	}
	run.Vocab = mc.Vocab
	for _, t := range mc.Tensors() {
		run.Parameters += t.Size()
	}
	if err := r.sign(ctx, l); err != nil {
		return nil, err
	}
	r.known[k] = run
	return run, nil
}

// serves refuses a run of another engine than this worker's.
func (r *Runs) serves(run string, c *config.Config) error {
	need := c.Engine.Backend
	if r.Backend == "" || need == r.Backend {
		return nil
	}
	program := ""
	if need == "cuda" {
		program = " of steady-cuda, which `make build-cuda` builds"
	}
	return fault.New(fault.Invalid, "activities.Runs", "run %s needs the engine %q (engine.backend), this worker has %q", run, need, r.Backend).
		WithHint("start workers with --engine %s%s", need, program)
}

// unchanged compares the configuration and the files of the base model with the digests that the run recorded when it
// started. A record that is not there decides nothing: the run goes on without it.
func (r *Runs) unchanged(ctx context.Context, l record.Layout, text []byte) error {
	var run record.Run
	_, err := artifact.GetJSON(ctx, r.Store, l.LineageFile(), &run)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if got := artifact.Digest(text); err == nil && run.ConfigDigest != got {
		return fault.New(fault.Corrupt, "activities.Runs", "%s has digest %.12s, %s recorded %.12s", l.ConfigFile(), got, l.LineageFile(), run.ConfigDigest).
			WithHint("restore the file from a copy of the store, or start another run")
	}
	var base record.Base
	if _, err := artifact.GetJSON(ctx, r.Store, l.BaseInfo(), &base); err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	}
	for _, ref := range base.Files {
		if _, err := artifact.Fetch(ctx, r.Store, ref); err != nil {
			return err
		}
	}
	return nil
}

// sign leaves the record of this process with a run. Idempotence: an equal record stays.
func (r *Runs) sign(ctx context.Context, l record.Layout) error {
	if r.Self.Host == "" {
		return nil
	}
	var old record.Worker
	name := l.Worker(r.Self.Host)
	_, err := artifact.GetJSON(ctx, r.Store, name, &old)
	if err == nil && old == r.Self {
		return nil
	}
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Corrupt) {
		return err
	}
	_, err = artifact.ReplaceJSON(ctx, r.Store, name, r.Self)
	return err
}

// Tokenizer returns the tokenizer of a run, loaded once.
func (r *Runs) Tokenizer(run *Run) (*tokenizer.Tokenizer, error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.tok != nil {
		return run.tok, nil
	}
	var err error
	run.tok, err = tokenizer.Load(run.base)
	return run.tok, err
}

// Dataset returns the prepared data of a run, opened once. Errors: NotFound (not prepared yet), Corrupt.
func (r *Runs) Dataset(ctx context.Context, run *Run) (*dataset.Set, error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.dataset != nil {
		return run.dataset, nil
	}
	var d record.Dataset
	if _, err := artifact.GetJSON(ctx, r.Store, run.Layout.Dataset(), &d); err != nil {
		return nil, err
	}
	dir, err := r.Store.Pull(ctx, d.Dir)
	if err != nil {
		return nil, err
	}
	run.dataset, err = dataset.Open(dir)
	return run.dataset, err
}
