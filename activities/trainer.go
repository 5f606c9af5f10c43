package activities

import (
	"context"
	"sync"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/export"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/metrics"
	"github.com/steadyrl/steady/internal/modelcard"
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
	// Accepts refuses the runs of the shared queue that this host is not for (Busy); nil accepts all. A standby is only for the
	// run that it follows.
	Accepts func(run string) error
	// Standby reports whether a standby that holds the run's state listens; nil: none does.
	Standby func(ctx context.Context, run string) (bool, error)

	serving serving
}

// Register binds the activities of the shared trainer queue.
func (t *Trainer) Register(r contract.Registry) {
	contract.InitPolicyActivity.Register(r, guard(t.Notes, t.initPolicy))
	contract.AcquireTrainerActivity.Register(r, guard(t.Notes, t.acquire))
	contract.ExportPolicyActivity.Register(r, guard(t.Notes, t.exportPolicy))
}

// RegisterStandby binds the activity of a run's standby queue.
func (t *Trainer) RegisterStandby(r contract.Registry) {
	contract.AcquireTrainerActivity.Register(r, guard(t.Notes, t.acquire))
}

// Release ends the service of a run that has ended or went to another trainer.
func (t *Trainer) Release(l record.Layout) {
	t.Host.Release(l)
	t.serving.release(contract.RunKey(l))
}

func (t *Trainer) accepts(run string) error {
	if t.Accepts == nil {
		return nil
	}
	return t.Accepts(run)
}

// RegisterOwn binds the activities of the host's own queue.
func (t *Trainer) RegisterOwn(r contract.Registry) {
	contract.UpdatePolicyActivity.Register(r, guard(t.Notes, t.update))
	contract.SaveCheckpointActivity.Register(r, guard(t.Notes, t.checkpoint))
}

// initPolicy writes the first checkpoint of the lineage and publishes its version. Idempotence: what is
// published already stays.
func (t *Trainer) initPolicy(ctx context.Context, q contract.InitPolicyRequest, _ *Beat) (contract.InitPolicyResult, error) {
	if err := t.accepts(q.Run); err != nil {
		return contract.InitPolicyResult{}, err
	}
	run, err := t.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.InitPolicyResult{}, err
	}
	if err := t.mendParent(ctx, run.Layout); err != nil {
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
		crashpoint.Here("trainer.live.before")
		if _, err := artifact.ReplaceJSON(ctx, t.Runs.Store, run.Layout.Live(), live); err != nil {
			return contract.InitPolicyResult{}, err
		}
		crashpoint.Here("trainer.live.after")
	}
	return contract.InitPolicyResult{Digest: info.Digest, Parameters: run.Parameters}, nil
}

// mendParent makes sure that the parent of a lineage that a rollback opened has a checkpoint of the step that the lineage begins with. The
// parent's training has ended by then.
func (t *Trainer) mendParent(ctx context.Context, l record.Layout) error {
	var r record.Run
	if _, err := artifact.GetJSON(ctx, t.Runs.Store, l.LineageFile(), &r); err != nil {
		return err
	}
	p := r.Parent
	if r.Opened == "" || p == nil {
		return nil
	}
	if done, err := t.Runs.Store.Exists(ctx, l.WeightsInfo(p.Step)); err != nil || done {
		return err
	}
	crashpoint.Here("trainer.mend.before")
	if _, err := t.Host.Mend(ctx, record.Layout{Run: p.Run, Lineage: p.Lineage}, p.Step); err != nil {
		return err
	}
	crashpoint.Here("trainer.mend.after")
	return nil
}

// InitialState returns the step and the state that a lineage begins with: those of the parent's checkpoint if the run has
// one, else step 0 of the model directory.
func InitialState(ctx context.Context, runs *Runs, assets Assets, l record.Layout) (int, *engine.State, error) {
	run, err := runs.Of(ctx, contract.RunKey(l))
	if err != nil {
		return 0, nil, err
	}
	var r record.Run
	if _, err := artifact.GetJSON(ctx, runs.Store, l.LineageFile(), &r); err != nil {
		return 0, nil, err
	}
	if r.Parent == nil {
		state, err := assets.InitialState(ctx, run.Config.Model.Path)
		return 0, state, err
	}
	pl := record.Layout{Run: r.Parent.Run, Lineage: r.Parent.Lineage}
	dir, err := runs.Store.Pull(ctx, pl.Checkpoint(r.Parent.Step))
	if err != nil {
		return 0, nil, err
	}
	state, meta, err := checkpoint.Load(ctx, dir)
	return meta.Step, state, err
}

// acquire gives the host to a run and opens a new epoch. A host whose run is still open is Busy, so that the task
// goes to another host or waits.
func (t *Trainer) acquire(ctx context.Context, q contract.AcquireRequest, _ *Beat) (contract.Trainer, error) {
	if err := t.accepts(q.Run); err != nil {
		return contract.Trainer{}, err
	}
	if err := t.serving.take(ctx, q.RunKey, t.Open); err != nil {
		return contract.Trainer{}, err
	}
	held := t.Host.Leading() != q.Layout() && t.Host.Holds(q.Layout())
	epoch, err := t.Host.Acquire(ctx, q.Layout())
	if err != nil {
		return contract.Trainer{}, err
	}
	return contract.Trainer{Queue: t.Queue, Host: t.Name, Epoch: epoch, Standby: held}, nil
}

// yield refuses work as Stale if this process was restarted and holds nothing of the run while a standby does: the loop takes
// the standby then, and nothing is replayed. If the standby is gone, the loop may acquire this host again, which keeps it.
func (t *Trainer) yield(ctx context.Context, k contract.RunKey) error {
	if t.Standby == nil || t.Host.Holds(k.Layout()) {
		return nil
	}
	if warm, err := t.Standby(ctx, k.Run); err != nil || !warm { // it is only about time: without an answer the work is done here
		return nil //nolint:nilerr // see above
	}
	return fault.New(fault.Stale, "UpdatePolicy", "trainer %s was restarted and holds no state of run %s, a standby does", t.Name, k.Run)
}

// update trains a sealed batch, exactly once; see learner.Host.Update.
func (t *Trainer) update(ctx context.Context, q contract.UpdateRequest, b *Beat) (contract.UpdateResult, error) {
	b.Say("step %d", q.Step)
	if err := t.yield(ctx, q.RunKey); err != nil {
		return contract.UpdateResult{}, err
	}
	began := time.Now()
	out, err := t.Host.Update(ctx, q.Layout(), q.Step, q.Batch, q.Epoch)
	if err != nil {
		return contract.UpdateResult{}, err
	}
	m := out.Metrics
	t.Notes.metrics().Updated(q.Run, metrics.Update{
		Took: time.Since(began), Tokens: out.Tokens, Restored: out.Restored, Replayed: out.Replayed,
	}, m)
	return contract.UpdateResult{
		StateDigest: out.StateDigest, WeightsDigest: out.WeightsDigest, GradNorm: m.GradNorm, Correction: m.Correction,
		Entropy: m.Entropy, LogProbGap: m.LogProbGap, Seconds: m.Seconds, Replayed: out.Replayed, Restored: out.Restored,
	}, nil
}

// checkpoint saves and verifies the state after a step. Idempotence: by step and digest.
func (t *Trainer) checkpoint(ctx context.Context, q contract.CheckpointRequest, b *Beat) (contract.CheckpointResult, error) {
	b.Say("checkpoint of step %d", q.Step)
	if err := t.yield(ctx, q.RunKey); err != nil {
		return contract.CheckpointResult{}, err
	}
	began := time.Now()
	digest, replayed, err := t.Host.Save(ctx, q.Layout(), q.Step, q.Epoch)
	if err == nil {
		t.Notes.metrics().Saved(time.Since(began))
	}
	return contract.CheckpointResult{StateDigest: digest, Replayed: replayed}, err
}

// exportPolicy writes the BF16 export of a checkpoint and verifies it. Idempotence: an export that verifies stays.
func (t *Trainer) exportPolicy(ctx context.Context, q contract.ExportRequest, b *Beat) (contract.ExportResult, error) {
	if err := t.accepts(q.Run); err != nil {
		return contract.ExportResult{}, err
	}
	run, err := t.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.ExportResult{}, err
	}
	l := run.Layout
	b.Say("export of step %d", q.Step)
	cert, err := t.export(ctx, run, q)
	if k := fault.KindOf(err); k == fault.Corrupt || k == fault.NotFound {
		mended, merr := t.Host.Mend(ctx, l, q.Step)
		if merr != nil {
			return contract.ExportResult{}, merr
		}
		if mended {
			cert, err = t.export(ctx, run, q)
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

// export makes the export of a step, from a local copy of its checkpoint.
func (t *Trainer) export(ctx context.Context, run *Run, q contract.ExportRequest) (cert export.Certificate, err error) {
	checkpoint, err := t.Runs.Store.Pull(ctx, run.Layout.Checkpoint(q.Step))
	if err != nil {
		return cert, err
	}
	base, err := t.Runs.Store.Pull(ctx, run.Layout.Base())
	if err != nil {
		return cert, err
	}
	card, err := modelcard.Make(ctx, t.Runs.Store, run.Layout, q.Step, base)
	if err != nil {
		return cert, err
	}
	err = t.Runs.Store.Build(ctx, run.Layout.Export(), func(dir string) error {
		cert, err = t.Export(ctx, export.Options{
			Checkpoint: checkpoint, BaseModel: base, Out: dir, ShardBytes: int64(run.Config.Export.ShardSize), Run: q.Run, Step: q.Step,
			Extra: map[string][]byte{modelcard.File: card},
		})
		return err
	})
	return cert, err
}

// serving remembers which lineage a host serves.
type serving struct {
	mu  sync.Mutex
	key contract.RunKey
}

// take gives the host to a lineage. Another lineage of the same run needs no question: it begins when the one before has ended.
func (s *serving) take(ctx context.Context, k contract.RunKey, open func(context.Context, string) (bool, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key.Run != "" && s.key.Run != k.Run {
		busy, err := open(ctx, contract.LoopID(s.key.Scope()))
		if err != nil {
			return err
		}
		if busy {
			return fault.New(fault.Busy, "AcquireTrainer", "this trainer serves run %s", s.key.Run).WithHint("start another trainer, or wait for that run")
		}
	}
	s.key = k
	return nil
}

func (s *serving) release(k contract.RunKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key == k {
		s.key = contract.RunKey{}
	}
}
