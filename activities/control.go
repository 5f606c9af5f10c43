package activities

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rl"
)

// Control is the role of small activities: opening a run, sealing, publishing, records.
type Control struct {
	Runs  *Runs
	Notes *Notes
	// Assets resolves "bundled" and reads the model's small files.
	Assets Assets
	// SearchAttributes reports whether the namespace has ours.
	SearchAttributes func(context.Context) (bool, error)
	Version          string // of the binary
	// Inspect asks the server about the newest execution of a workflow id.
	Inspect func(ctx context.Context, workflowID string) (contract.Inspected, error)
	// Report renders the report of a lineage.
	Report func(context.Context, artifact.Store, record.Layout) ([]byte, error)
}

// Register binds the activities of the role.
func (c *Control) Register(r contract.Registry) {
	contract.StartRunActivity.Register(r, guard(c.Notes, c.startRun))
	contract.OpenLineageActivity.Register(r, guard(c.Notes, c.openLineage))
	contract.SealBatchActivity.Register(r, guard(c.Notes, c.sealBatch))
	contract.CloseLedgerActivity.Register(r, guard(c.Notes, c.closeLedger))
	contract.PublishVersionActivity.Register(r, guard(c.Notes, c.publish))
	contract.SummarizeValidationActivity.Register(r, guard(c.Notes, c.summarize))
	contract.InspectActivity.Register(r, guard(c.Notes, c.inspect))
	contract.RecordEventActivity.Register(r, guard(c.Notes, c.recordEvent))
	contract.ApplyRetentionActivity.Register(r, guard(c.Notes, c.retain))
	contract.WriteReportActivity.Register(r, guard(c.Notes, c.writeReport))
	contract.OpenStudyActivity.Register(r, guard(c.Notes, c.openStudy))
	contract.PrepareStudyRunActivity.Register(r, guard(c.Notes, c.prepareStudyRun))
	contract.CollectStudyRunActivity.Register(r, guard(c.Notes, c.collectStudyRun))
	contract.SummarizeStudyActivity.Register(r, guard(c.Notes, c.summarizeStudy))
}

func (c *Control) store() artifact.Store { return c.Runs.Store }

// startRun checks the input, opens the run and returns its plan.
//
// Idempotence: by run and owner. A run id whose record belongs to another execution is Invalid: its files
// would mix with those of the old run.
func (c *Control) startRun(ctx context.Context, q contract.StartRunRequest, _ *Beat) (contract.RunSpec, error) {
	cfg, err := decodeInput(q)
	if err != nil {
		return contract.RunSpec{}, err
	}
	l := record.Layout{Run: q.Run, Lineage: "l0"}
	text, err := cfg.JSON()
	if err != nil {
		return contract.RunSpec{}, err
	}
	spec := contract.RunSpec{RunKey: contract.RunKey(l)}
	if err := c.plan(ctx, cfg, &spec); err != nil {
		return contract.RunSpec{}, err
	}
	parent, err := c.parent(ctx, cfg, &spec)
	if err != nil {
		return contract.RunSpec{}, err
	}
	if err := c.Runs.serves(q.Run, cfg); err != nil {
		return contract.RunSpec{}, err
	}
	if parent == nil { // before the id is taken: what is wrong can be put right and started again under it
		if err := c.Assets.CheckModel(ctx, cfg.Model.Path); err != nil {
			return contract.RunSpec{}, err
		}
	}
	run := record.Run{
		Run: q.Run, Owner: q.Owner, Lineage: l.Lineage, ConfigDigest: artifact.Digest(text), Recipe: cfg.Recipe,
		Steady: c.Version, Engine: cfg.Engine.Backend, BaseModel: cfg.Model.Path,
		Started: time.Now().UTC().Format(time.RFC3339), Parent: parent,
	}
	crashpoint.Here("control.run.before")
	if err := c.own(ctx, l, &run); err != nil {
		return contract.RunSpec{}, err
	}
	crashpoint.Here("control.run.after")
	if _, err := c.store().Put(ctx, l.ConfigFile(), text); err != nil {
		return contract.RunSpec{}, err
	}
	crashpoint.Here("control.config.after")
	if err := c.Assets.CopyModelFiles(ctx, c.store(), l, cfg.Model.Path); err != nil {
		return contract.RunSpec{}, err
	}
	crashpoint.Here("control.base.after")
	if err := c.noteBase(ctx, l); err != nil {
		return contract.RunSpec{}, err
	}
	crashpoint.Here("control.baseinfo.after")
	c.Notes.metrics().Planned(q.Run, spec.Steps)
	return spec, nil
}

// noteBase records the digests of the copied model files; Runs.Of compares with them.
func (c *Control) noteBase(ctx context.Context, l record.Layout) error {
	names, err := c.store().List(ctx, l.Base()+"/")
	if err != nil {
		return err
	}
	var b record.Base
	for _, name := range names {
		_, ref, err := c.store().Get(ctx, name)
		if err != nil {
			return err
		}
		b.Files = append(b.Files, ref)
	}
	_, err = artifact.PutJSON(ctx, c.store(), l.BaseInfo(), b)
	return err
}

func decodeInput(q contract.StartRunRequest) (*config.Config, error) {
	if !config.ValidRunName(q.Run) {
		return nil, fault.New(fault.Invalid, "StartRun", "the workflow id %q is not a run name", q.Run).
			WithHint("use letters, digits, '.', '_' and '-', beginning with a letter or digit")
	}
	if len(q.Input) == 0 || string(q.Input) == "null" {
		return nil, fault.New(fault.Invalid, "StartRun", "the workflow has no input").
			WithHint("`steady config print --recipe demo --json > run.json`, then start with --input-file run.json")
	}
	cfg, sources, err := config.DecodeJSON(q.Input)
	if err != nil {
		return nil, err
	}
	return cfg, cfg.Validate(sources)
}

// own writes the run's record, or checks that it is the same execution's.
func (c *Control) own(ctx context.Context, l record.Layout, run *record.Run) error {
	_, err := artifact.PutJSON(ctx, c.store(), l.RunFile(), run)
	if !fault.Is(err, fault.Stale) {
		return err
	}
	var old record.Run
	if _, err := artifact.GetJSON(ctx, c.store(), l.RunFile(), &old); err != nil {
		return err
	}
	if old.Owner == run.Owner {
		*run = old
		return nil
	}
	return fault.New(fault.Invalid, "StartRun", "run %q exists in the artifact store, started %s by another execution", run.Run, old.Started).
		WithHint("choose a new workflow id; to go on from its last checkpoint set run.init_run to %q", run.Run)
}

// plan copies what workflows need of the configuration.
func (c *Control) plan(ctx context.Context, cfg *config.Config, s *contract.RunSpec) error {
	attrs, err := c.SearchAttributes(ctx)
	if err != nil {
		return err
	}
	PlanOf(cfg, s)
	s.SearchAttributes = attrs
	return nil
}

// PlanOf copies what workflows need of a configuration alone. A simulation plans with it too.
func PlanOf(cfg *config.Config, s *contract.RunSpec) {
	t := cfg.Timeouts
	s.Recipe, s.Mode = cfg.Recipe, cfg.Mode
	s.Steps, s.ValidateEvery, s.CheckpointEvery = cfg.Run.Steps, cfg.Run.ValidateEvery, cfg.Run.CheckpointEvery
	s.Seed, s.GroupSize, s.BatchProblems = cfg.Run.Seed, cfg.Rollout.GroupSize, cfg.Rollout.BatchProblems
	s.Threshold, s.EvalChunk, s.ContinueEvery = cfg.Rollout.StalenessThreshold, cfg.Validation.Chunk, cfg.Run.ContinueEvery
	s.Policy = cfg.Rollout.StalenessPolicy
	r := cfg.Rollout
	s.FaultWindow, s.FaultAction = r.FaultWindow, r.FaultAction
	s.FaultLimit = max(1, int(min(r.FaultShare*float64(r.FaultWindow*r.BatchProblems), math.MaxInt32)))
	switch cfg.Mode {
	case "async":
		s.Prefill = cfg.Rollout.Prefill
	case "sync":
		s.Prefill, s.Lag = cfg.Rollout.Lag, cfg.Rollout.Lag
	}
	s.Timeouts = contract.Timeouts{
		Control: t.Control.Std(), Shard: t.Shard.Std(), Rollout: t.Rollout.Std(), Judge: t.Judge.Std(),
		Update: t.Update.Std(), Export: t.Export.Std(), Heartbeat: t.Heartbeat.Std(),
		TrainerLost: t.TrainerLost.Std(), Stall: t.Stall.Std(), ClosedCheck: t.ClosedCheck.Std(),
	}
}

// FindParent returns the checkpoint that a configuration starts from, nil for a run of its own. Errors: NotFound (no
// such run, lineage or checkpoint in s; the message says what there is), Invalid (nothing is left to train), and those of the store.
func FindParent(ctx context.Context, s artifact.Store, cfg *config.Config) (*record.Parent, error) {
	if cfg.Run.InitRun == "" {
		return nil, nil //nolint:nilnil // no parent is an answer, not an error
	}
	p := record.Parent{Run: cfg.Run.InitRun, Lineage: cfg.Run.InitLineage, Step: cfg.Run.InitStep}
	if p.Lineage == "" {
		p.Lineage = "l0"
	}
	l := record.Layout{Run: p.Run, Lineage: p.Lineage}
	for _, place := range []struct{ name, what string }{
		{l.RunFile(), fmt.Sprintf("run.init_run: there is no run %q in the artifact store", p.Run)},
		{l.ConfigFile(), fmt.Sprintf("run.init_lineage: run %q has no lineage %q", p.Run, p.Lineage)},
	} {
		ok, err := s.Exists(ctx, place.name)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fault.New(fault.NotFound, "StartRun", "%s", place.what).WithHint("name a run of the same artifact store, and one of its lineages; the first is l0")
		}
	}
	steps, err := learner.Checkpoints(ctx, s, l)
	if err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		return nil, fault.New(fault.NotFound, "StartRun", "run.init_run: run %q has no checkpoint yet", p.Run).
			WithHint("start from model.path instead, or from a run that has a checkpoint")
	}
	if p.Step == 0 {
		p.Step = steps[len(steps)-1]
	}
	if !slices.Contains(steps, p.Step) {
		return nil, fault.New(fault.NotFound, "StartRun", "run.init_step: run %q has no checkpoint of step %d; there are %v", p.Run, p.Step, steps).
			WithHint("set run.init_step to one of these, or 0 for the newest")
	}
	if p.Step >= cfg.Run.Steps {
		return nil, fault.New(fault.Invalid, "StartRun", "run.steps is %d, but the checkpoint is of step %d already", cfg.Run.Steps, p.Step).
			WithHint("set run.steps above %d", p.Step)
	}
	return &p, nil
}

// parent finds the checkpoint that the configuration starts from, and continues its data.
func (c *Control) parent(ctx context.Context, cfg *config.Config, s *contract.RunSpec) (*record.Parent, error) {
	p, err := FindParent(ctx, c.store(), cfg)
	if p == nil || err != nil {
		return nil, err
	}
	s.FirstStep = p.Step
	if p.Step > 0 {
		start, err := startOf(ctx, c.store(), *p)
		if err != nil {
			return nil, err
		}
		s.Cursor, s.NextGroup = start.Cursor, start.NextGroup
	}
	return p, nil
}

// sealBatch writes the sealed batch and the ledger record of a step.
//
// Idempotence: the first execution decides. The ledger record is written first, so that a sealed batch
// always has one; a second execution finds the batch and returns it.
func (c *Control) sealBatch(ctx context.Context, q contract.SealBatchRequest, _ *Beat) (contract.SealBatchResult, error) {
	run, err := c.Runs.Of(ctx, q.RunKey)
	if err != nil {
		return contract.SealBatchResult{}, err
	}
	var sealed record.Sealed
	ref, err := artifact.GetJSON(ctx, c.store(), run.Layout.Batch(q.Step), &sealed)
	if fault.Is(err, fault.NotFound) {
		if sealed, err = c.seal(ctx, run, q); err != nil {
			return contract.SealBatchResult{}, err
		}
		if ref, err = c.putLedgerAndBatch(ctx, run, q, sealed); err != nil {
			return contract.SealBatchResult{}, err
		}
		c.Notes.metrics().Sealed(q.Run, run.Config.Run.Steps, q.Ledger, sealed.Rollout)
		c.Notes.link(ctx, q.RunKey, q.Step, sealed.Groups)
	} else if err != nil {
		return contract.SealBatchResult{}, err
	}
	m := sealed.Rollout
	res := contract.SealBatchResult{
		Batch: ref, RewardMean: m.RewardMean, ZeroSpread: m.ZeroSpreadShare, LagMean: m.LagMean, LagMax: m.LagMax, LengthCut: m.LengthCutShare,
	}
	for _, g := range sealed.Groups {
		res.Groups = append(res.Groups, g.N)
	}
	return res, nil
}

func (c *Control) putLedgerAndBatch(ctx context.Context, run *Run, q contract.SealBatchRequest, sealed record.Sealed) (artifact.Ref, error) {
	// A crash between the two writes leaves a ledger record that the next execution writes again from the same request.
	crashpoint.Here("control.ledger.before")
	if _, err := artifact.ReplaceJSON(ctx, c.store(), run.Layout.Ledger(q.Step), q.Ledger); err != nil {
		return artifact.Ref{}, err
	}
	crashpoint.Here("control.ledger.after")
	ref, err := artifact.PutJSON(ctx, c.store(), run.Layout.Batch(q.Step), sealed)
	if err != nil {
		return artifact.Ref{}, err
	}
	crashpoint.Here("control.batch.after")
	return ref, nil
}

func (c *Control) seal(ctx context.Context, run *Run, q contract.SealBatchRequest) (record.Sealed, error) {
	t := run.Config.Train
	opts := batch.Options{
		Layout: run.Layout, Step: q.Step, WaitSeconds: q.WaitSeconds, Drops: len(q.Ledger.Dropped),
		MicroBatchTokens: t.MicroBatchTokens, Temperature: run.Config.Rollout.Temperature,
		Objective: Objective(run.Config),
		Optim:     Optimizer(run.Config),
	}
	if q.LearningRate > 0 {
		opts.Optim.LearningRate = q.LearningRate
	}
	for _, g := range q.Groups {
		opts.Groups = append(opts.Groups, batch.GroupUnit{
			Group: record.Group{N: g.N, Problem: g.Problem, Tag: g.Tag, Submission: g.Submission}, Unit: g.Unit(),
		})
	}
	return batch.Seal(ctx, c.store(), opts)
}

// Objective is the loss that a configuration asks for.
func Objective(c *config.Config) rl.Objective {
	o := c.Train.Objective
	return rl.Objective{
		Centering: rl.Centering(o.Centering), Rule: rl.Rule(o.Rule), Cap: o.Cap, Lo: o.Lo, Hi: o.Hi, TopK: c.Rollout.TopKRecord,
	}
}

// Optimizer is the optimiser setting that a configuration asks for.
func Optimizer(c *config.Config) rl.AdamW {
	t := c.Train
	return rl.AdamW{
		LearningRate: t.LearningRate, Beta1: t.Beta1, Beta2: t.Beta2, Epsilon: t.Epsilon, WeightDecay: t.WeightDecay, ClipNorm: t.ClipNorm,
	}
}

// inspect asks the server about workflows. Idempotence: it changes nothing.
func (c *Control) inspect(ctx context.Context, q contract.InspectRequest, _ *Beat) (contract.InspectResult, error) {
	if len(q.Workflows) > contract.MaxInspect {
		return contract.InspectResult{}, fault.New(fault.Invalid, "Inspect", "%d workflows, at most %d", len(q.Workflows), contract.MaxInspect)
	}
	var res contract.InspectResult
	for _, id := range q.Workflows {
		w, err := c.Inspect(ctx, id)
		if err != nil {
			return contract.InspectResult{}, err
		}
		res.Found = append(res.Found, w)
	}
	return res, nil
}

// closeLedger records the groups that were left at the end of the loop. Idempotence: the first stays.
func (c *Control) closeLedger(ctx context.Context, q contract.CloseLedgerRequest, _ *Beat) (contract.Done, error) {
	crashpoint.Here("control.end.before")
	if _, err := artifact.PutJSON(ctx, c.store(), q.Layout().LedgerEnd(), q.Ledger); err == nil {
		c.Notes.metrics().Ledger(q.Ledger)
	} else if !fault.Is(err, fault.Stale) {
		return contract.Done{}, err
	}
	crashpoint.Here("control.end.after")
	return contract.Done{}, c.tidyData(ctx, q.Layout())
}

// tidyData removes what late attempts to prepare the data of a run left. Idempotence: it removes what is there.
func (c *Control) tidyData(ctx context.Context, l record.Layout) error {
	var d record.Dataset
	_, err := artifact.GetJSON(ctx, c.store(), l.Dataset(), &d)
	if fault.Is(err, fault.NotFound) { // it ended before
		return nil
	}
	if err == nil {
		_, err = tidyDataset(ctx, c.store(), d.Key)
	}
	return err
}

// publish makes a version live: engines swap to it. Idempotence: by version; an older one changes nothing.
func (c *Control) publish(ctx context.Context, q contract.PublishRequest, _ *Beat) (contract.Done, error) {
	l := q.Layout()
	var info record.Version
	if _, err := artifact.GetJSON(ctx, c.store(), l.WeightsInfo(q.Version), &info); err != nil {
		return contract.Done{}, err
	}
	if info.Digest != q.Digest {
		return contract.Done{}, fault.New(fault.Corrupt, "PublishVersion", "version %d has digest %.12s, its step recorded %.12s", q.Version, info.Digest, q.Digest)
	}
	var live record.Live
	if _, err := artifact.GetJSON(ctx, c.store(), l.Live(), &live); err != nil && !fault.Is(err, fault.NotFound) {
		return contract.Done{}, err
	} else if err == nil && live.Version >= q.Version {
		return contract.Done{}, nil
	}
	crashpoint.Here("control.live.before")
	if _, err := artifact.ReplaceJSON(ctx, c.store(), l.Live(), record.Live{Version: q.Version, Digest: q.Digest}); err != nil {
		return contract.Done{}, err
	}
	crashpoint.Here("control.live.after")
	c.Notes.published(q)
	return contract.Done{}, nil
}

// summarize adds up the chunks of a validation. Idempotence: the record is a function of the chunks, except for its seconds; the first stays.
func (c *Control) summarize(ctx context.Context, q contract.SummarizeRequest, _ *Beat) (contract.SummarizeResult, error) {
	l := q.Layout()
	var v record.Validation
	if _, err := artifact.GetJSON(ctx, c.store(), l.Validation(q.Name), &v); err == nil {
		return contract.SummarizeResult{Metrics: v.Metrics, Problems: v.Problems}, nil
	} else if !fault.Is(err, fault.NotFound) {
		return contract.SummarizeResult{}, err
	}
	var units []string
	for u := range q.Units {
		units = append(units, record.EvalUnit(q.Name, u))
	}
	v, err := batch.Summarize(ctx, c.store(), l, units)
	if err != nil {
		return contract.SummarizeResult{}, err
	}
	v.Name, v.Version, v.Source, v.Seconds = q.Name, q.Version, q.Source, q.Seconds
	// An export is certified to hold the published weights of its step, so that both have one digest.
	var info record.Version
	if _, err := artifact.GetJSON(ctx, c.store(), l.WeightsInfo(q.Version), &info); err != nil {
		return contract.SummarizeResult{}, err
	}
	v.Weights = info.Digest
	if err := record.CheckFinite(v); err != nil {
		return contract.SummarizeResult{}, err
	}
	crashpoint.Here("control.validation.before")
	if _, err := artifact.PutJSON(ctx, c.store(), l.Validation(q.Name), v); err != nil {
		return contract.SummarizeResult{}, err
	}
	crashpoint.Here("control.validation.after")
	c.Notes.metrics().Validated(q.Run, v)
	return contract.SummarizeResult{Metrics: v.Metrics, Problems: v.Problems}, nil
}

// recordEvent stores an event. Idempotence: by id.
func (c *Control) recordEvent(ctx context.Context, q contract.EventRequest, _ *Beat) (contract.Done, error) {
	crashpoint.Here("control.event.before")
	if _, err := artifact.PutJSON(ctx, c.store(), q.Layout().Event(q.ID), q.Event); err != nil {
		return contract.Done{}, err
	}
	crashpoint.Here("control.event.after")
	return contract.Done{}, nil
}

// writeReport renders the report from the store. Idempotence: a function of the records; replaced each time.
func (c *Control) writeReport(ctx context.Context, q contract.ReportRequest, _ *Beat) (contract.ReportResult, error) {
	page, err := c.Report(ctx, c.store(), q.Layout())
	if err != nil {
		return contract.ReportResult{}, err
	}
	crashpoint.Here("control.report.before")
	ref, err := c.store().Replace(ctx, q.Layout().Report(), page)
	if err != nil {
		return contract.ReportResult{}, err
	}
	crashpoint.Here("control.report.after")
	if q.Final {
		c.Notes.metrics().Ended(q.Run)
	}
	return contract.ReportResult{Report: ref}, nil
}

// Assets are the files that runs begin with. "bundled" stands for those of the program.
type Assets interface {
	// CheckModel reads a whole model directory and reports what keeps it from being trained.
	CheckModel(ctx context.Context, path string) error
	// CopyModelFiles puts config.json, tokenizer and templates of a model directory into the lineage's
	// base folder, after checking that this build understands them.
	CopyModelFiles(ctx context.Context, s artifact.Store, l record.Layout, path string) error
	// InitialState returns the trainer state of a model directory: its weights, zero moments.
	InitialState(ctx context.Context, path string) (*engine.State, error)
	// OpenShard opens a data shard; it can be read at any place.
	OpenShard(name string) (fs.File, error)
	// Excluded reads a list of identities that must not appear in the data.
	Excluded(name string) (map[string]bool, error)
}
