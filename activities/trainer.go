package activities

import (
	"context"
	"sync"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/export"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/record"
)

// Trainer is the role of the trainer's host.
type Trainer struct {
	Runs  *Runs
	Notes *Notes
	Host  *learner.Host
	Queue string // the host's own task queue
	Name  string // the host, for people
	// Open reports whether a workflow is open; a host that serves an open run refuses another one.
	Open func(ctx context.Context, workflowID string) (bool, error)
	// Export writes and verifies an export; the worker gives it the engine for the forward pass.
	Export func(ctx context.Context, o export.Options) (export.Certificate, error)

	serving serving
}

// Register binds the activities of the shared trainer queue.
func (t *Trainer) Register(r contract.Registry) {
	contract.InitPolicyActivity.Register(r, guard(t.Notes, t.initPolicy))
	contract.AcquireTrainerActivity.Register(r, guard(t.Notes, t.acquire))
	contract.ExportPolicyActivity.Register(r, guard(t.Notes, t.exportPolicy))
}

// RegisterOwn binds the activities of the host's own queue.
func (t *Trainer) RegisterOwn(r contract.Registry) {
	contract.UpdatePolicyActivity.Register(r, guard(t.Notes, t.update))
	contract.SaveCheckpointActivity.Register(r, guard(t.Notes, t.checkpoint))
}

// initPolicy writes the first checkpoint of the lineage and publishes its version. Idempotence: what is
// published already stays.
func (t *Trainer) initPolicy(ctx context.Context, q contract.InitPolicyRequest, _ *Beat) (contract.InitPolicyResult, error) {
	run, err := t.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.InitPolicyResult{}, err
	}
	info, err := t.Host.Init(ctx, run.Layout, q.Step)
	if err != nil {
		return contract.InitPolicyResult{}, err
	}
	live := record.Live{Version: info.Version, Digest: info.Digest}
	if ok, err := t.Runs.Store.Exists(ctx, run.Layout.Live()); err != nil {
		return contract.InitPolicyResult{}, err
	} else if !ok { // a retry must not take a live version back
		if _, err := artifact.ReplaceJSON(ctx, t.Runs.Store, run.Layout.Live(), live); err != nil {
			return contract.InitPolicyResult{}, err
		}
	}
	return contract.InitPolicyResult{Digest: info.Digest, Parameters: run.Parameters}, nil
}

// InitialState returns the step and the state that a lineage begins with: those of the parent's checkpoint if the run has
// one, else step 0 of the model directory.
func InitialState(ctx context.Context, runs *Runs, assets Assets, l record.Layout) (int, *engine.State, error) {
	run, err := runs.Of(ctx, contract.RunKey(l))
	if err != nil {
		return 0, nil, err
	}
	var r record.Run
	if _, err := artifact.GetJSON(ctx, runs.Store, l.RunFile(), &r); err != nil {
		return 0, nil, err
	}
	if r.Parent == nil {
		state, err := assets.InitialState(ctx, run.Config.Model.Path)
		return 0, state, err
	}
	pl := record.Layout{Run: r.Parent.Run, Lineage: r.Parent.Lineage}
	dir, err := runs.Store.Path(pl.Checkpoint(r.Parent.Step))
	if err != nil {
		return 0, nil, err
	}
	state, meta, err := checkpoint.Load(ctx, dir)
	return meta.Step, state, err
}

// acquire gives the host to a run and opens a new epoch. A host whose run is still open is Busy, so that the task
// goes to another host or waits.
func (t *Trainer) acquire(ctx context.Context, q contract.AcquireRequest, _ *Beat) (contract.Trainer, error) {
	if err := t.serving.take(ctx, q.Run, t.Open); err != nil {
		return contract.Trainer{}, err
	}
	epoch, err := t.Host.Acquire(ctx, q.Layout())
	if err != nil {
		return contract.Trainer{}, err
	}
	return contract.Trainer{Queue: t.Queue, Host: t.Name, Epoch: epoch}, nil
}

// update trains a sealed batch, exactly once; see learner.Host.Update.
func (t *Trainer) update(ctx context.Context, q contract.UpdateRequest, b *Beat) (contract.UpdateResult, error) {
	b.Say("step %d", q.Step)
	out, err := t.Host.Update(ctx, q.Layout(), q.Step, q.Batch, q.Epoch)
	if err != nil {
		return contract.UpdateResult{}, err
	}
	m := out.Metrics
	return contract.UpdateResult{
		StateDigest: out.StateDigest, WeightsDigest: out.WeightsDigest, GradNorm: m.GradNorm, Correction: m.Correction,
		Entropy: m.Entropy, LogProbGap: m.LogProbGap, Seconds: m.Seconds, Replayed: out.Replayed, Restored: out.Restored,
	}, nil
}

// checkpoint saves and verifies the state after a step. Idempotence: by step and digest.
func (t *Trainer) checkpoint(ctx context.Context, q contract.CheckpointRequest, b *Beat) (contract.CheckpointResult, error) {
	b.Say("checkpoint of step %d", q.Step)
	digest, replayed, err := t.Host.Save(ctx, q.Layout(), q.Step, q.Epoch)
	return contract.CheckpointResult{StateDigest: digest, Replayed: replayed}, err
}

// exportPolicy writes the BF16 export of a checkpoint and verifies it. Idempotence: an export that verifies stays.
func (t *Trainer) exportPolicy(ctx context.Context, q contract.ExportRequest, b *Beat) (contract.ExportResult, error) {
	run, err := t.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.ExportResult{}, err
	}
	l := run.Layout
	var paths [3]string
	for i, name := range []string{l.Checkpoint(q.Step), l.Base(), l.Export()} {
		if paths[i], err = t.Runs.Store.Path(name); err != nil {
			return contract.ExportResult{}, err
		}
	}
	b.Say("export of step %d", q.Step)
	opts := export.Options{
		Checkpoint: paths[0], BaseModel: paths[1], Out: paths[2], ShardBytes: int64(run.Config.Export.ShardSize),
		Run: q.Run, Step: q.Step,
	}
	cert, err := t.Export(ctx, opts)
	if k := fault.KindOf(err); k == fault.Corrupt || k == fault.NotFound {
		mended, merr := t.Host.Mend(ctx, l, q.Step)
		if merr != nil {
			return contract.ExportResult{}, merr
		}
		if mended {
			cert, err = t.Export(ctx, opts)
		}
	}
	if err != nil {
		return contract.ExportResult{}, err
	}
	var res record.Result
	if q.Step > 0 {
		if _, err := artifact.GetJSON(ctx, t.Runs.Store, l.Result(q.Step), &res); err == nil && res.WeightsDigest != cert.WeightsDigest {
			return contract.ExportResult{}, fault.New(fault.Corrupt, "ExportPolicy", "the export has weights %.12s, step %d published %.12s", cert.WeightsDigest, q.Step, res.WeightsDigest)
		} else if err != nil && !fault.Is(err, fault.NotFound) {
			return contract.ExportResult{}, err
		}
	}
	return contract.ExportResult{Dir: l.Export(), WeightsDigest: cert.WeightsDigest, Tensors: len(cert.Tensors), Bytes: cert.TotalBytes}, nil
}

// serving remembers which run a host serves.
type serving struct {
	mu  sync.Mutex
	run string
}

func (s *serving) take(ctx context.Context, run string, open func(context.Context, string) (bool, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != "" && s.run != run {
		busy, err := open(ctx, contract.LoopID(s.run))
		if err != nil {
			return err
		}
		if busy {
			return fault.New(fault.Busy, "AcquireTrainer", "this trainer serves run %s", s.run).WithHint("start another trainer, or wait for that run")
		}
	}
	s.run = run
	return nil
}
