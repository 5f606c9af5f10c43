package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"github.com/steadyrl/steady/activities"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/export"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/metrics"
	"github.com/steadyrl/steady/internal/obs"
	"github.com/steadyrl/steady/internal/policy"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/internal/span"
	"github.com/steadyrl/steady/workflows"
)

// Options say what a process serves.
type Options struct {
	Client    client.Client
	Namespace string
	Store     artifact.Store
	Roles     []Role
	// Host names this process in queues, fences and events; it must be stable over restarts and unique
	// among the processes with the role trainer.
	Host string
	// Backend is the engine: cpu, ref or cuda.
	Backend string
	// GPU is for cuda.
	GPU GPU
	// Threads of the engine, 0 for all cores; MaxSequences generated at once.
	Threads, MaxSequences int
	// Python is the interpreter, "" for the default rule; Helper the program that starts a sandbox; Slots the
	// programs that run at once, 0 for the number of cores.
	Python, Helper string
	Slots          int
	Version        string // of the binary
	// Runs that the process serves at once: it has as many trainers, each with a queue of its own, and an engine for each; 0 means 1.
	Runs int
	Log  *zap.Logger
	// Metrics and Tracer hear of what this process does; nil for none.
	Metrics *metrics.Set
	Tracer  span.Tracer
}

// GPU says which GPU the engines of a process use, and how.
type GPU struct {
	// Device is the number of the GPU, as the driver counts, or its UUID; "" for the first.
	Device string
	// CacheTokens bounds the tokens whose keys and values a sampler keeps; 0 for what memory allows.
	CacheTokens int
	// KernelDir keeps compiled kernels; "" to compile at every start.
	KernelDir string
}

// Set is a running set of workers.
type Set struct {
	workers []worker.Worker
	close   []func() error
	sandbox *sandbox.Sandbox
	lost    chan error // of size 1
	options Options
}

// Lost tells once, with an error of kind Lost, that the device of the engines can no longer be trusted. What was running has ended with
// that error, for another worker to do; the process should Stop and end.
func (s *Set) Lost() <-chan error { return s.lost }

// Start makes what the roles need and starts their workers. On an error nothing is left running.
//
// Errors: Invalid (roles, backend), Infrastructure (no sandbox on this machine), and what the server says.
func Start(ctx context.Context, o Options) (*Set, error) {
	s := &Set{lost: make(chan error, 1), options: o}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Set) start(ctx context.Context, o Options) error {
	restrict(&o)
	factory, err := engines(o)
	if err != nil {
		return err
	}
	runs := &activities.Runs{Store: o.Store, Self: record.Worker{Host: o.Host, Steady: o.Version, Engine: factory.about}}
	if slices.ContainsFunc(o.Roles, func(r Role) bool { return r == RoleRollout || r == RoleTrainer || r == RoleStandby }) {
		runs.Backend, runs.Fits = o.Backend, factory.fits // other roles serve runs of every engine
	}
	notes := &activities.Notes{
		Store: o.Store, Host: o.Host, Device: s.watch(factory, o.Log), Log: o.Log, Metrics: o.Metrics, Tracer: o.Tracer,
	}
	if slices.ContainsFunc(o.Roles, func(r Role) bool { return r == RoleData || r == RoleRollout || r == RoleJudge }) {
		if err := s.openSandbox(ctx, o); err != nil {
			return err
		}
		level := s.sandbox.Level()
		runs.Self.Python, runs.Self.Sandbox = level.Python.Version, level.String()
	}
	for _, role := range o.Roles {
		var err error
		switch role {
		case RoleControl:
			err = s.control(o, runs, notes)
		case RoleData:
			err = s.data(o, runs, notes)
		case RoleRollout:
			err = s.rollout(o, runs, notes, factory)
		case RoleJudge:
			err = s.judge(o, runs, notes)
		case RoleTrainer:
			err = s.trainers(ctx, o, runs, notes, factory)
		case RoleStandby:
			if !slices.Contains(o.Roles, RoleTrainer) { // else the trainer follows
				err = s.trainer(ctx, o, runs, notes, factory)
			}
		}
		if err != nil {
			return fmt.Errorf("role %s: %w", role, err)
		}
		o.Metrics.Serves(string(role), o.Backend)
	}
	collect(o)
	return nil
}

// watch follows the device of the engines. The context that it returns ends when the device is lost.
func (s *Set) watch(f factory, log *zap.Logger) context.Context {
	device, lose := context.WithCancelCause(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	s.close = append(s.close, func() error { stop(); <-ended; return nil })
	go func() {
		defer close(ended)
		if f.watch == nil {
			return
		}
		if err := f.watch(ctx); err != nil {
			log.Error("the device is lost; running work ends", zap.Error(err))
			lose(err)
			s.lost <- err
		}
	}()
	return device
}

func (s *Set) openSandbox(ctx context.Context, o Options) error {
	py, err := sandbox.FindPython(ctx, o.Python)
	if err != nil {
		return err
	}
	if py.Warning != "" {
		o.Log.Warn(py.Warning, zap.String("python", py.Path), zap.String("version", py.Version))
	}
	s.sandbox, err = sandbox.New(ctx, sandbox.Options{Helper: o.Helper, Python: py, Slots: o.Slots})
	if err == nil {
		o.Metrics.Slots(s.sandbox.Slots())
	}
	return err
}

// judger makes a judge with the limits of a run.
func (s *Set) judger(r *activities.Run) activities.Judger {
	return judge.New(judge.Options{Runner: s.sandbox, Budget: r.Config.Sandbox.JudgeBudget.Std(), Limits: activities.Limits(r.Config)})
}

// place is the beginning of the chain of ids of a line about a lineage.
func place(l layout) []zap.Field { return obs.Chain(contract.Chain{RunKey: contract.RunKey(l)}) }

// add starts a worker on a queue. Roles other than control take no workflow tasks.
func (s *Set) add(o Options, queue string, activitiesAtOnce int, register func(worker.Worker)) error {
	w, err := listen(o, queue, activitiesAtOnce, register)
	if err == nil {
		s.workers = append(s.workers, w)
	}
	return err
}

func listen(o Options, queue string, activitiesAtOnce int, register func(worker.Worker)) (worker.Worker, error) {
	w := worker.New(o.Client, queue, worker.Options{
		MaxConcurrentActivityExecutionSize: activitiesAtOnce,
		DisableWorkflowWorker:              queue != contract.QueueControl,
		WorkerStopTimeout:                  5 * time.Second,
		MaxHeartbeatThrottleInterval:       5 * time.Second,
		Identity:                           identity(o.Host, queue),
		WorkflowPanicPolicy:                worker.BlockWorkflow,
	})
	register(w)
	if err := w.Start(); err != nil {
		return nil, cannotStart(o.Namespace, queue, err)
	}
	return w, nil
}

// cannotStart says why a worker gets no tasks.
func cannotStart(namespace, queue string, err error) error {
	const op = "workers.Start"
	if _, ok := errors.AsType[*serviceerror.NamespaceNotFound](err); ok {
		return fault.New(fault.Invalid, op, "the Temporal server has no namespace %q: %w", namespace, err).
			WithHint("set TEMPORAL_NAMESPACE, or make it: temporal operator namespace create -n %s", namespace)
	}
	if _, ok := errors.AsType[*serviceerror.PermissionDenied](err); ok {
		return fault.New(fault.Invalid, op, "the Temporal server refuses the namespace %q: %w", namespace, err).
			WithHint("check TEMPORAL_NAMESPACE and TEMPORAL_API_KEY, or the rights of the client certificate")
	}
	return fault.New(fault.Lost, op, "queue %s: %w", queue, err).WithHint("is the Temporal server reachable?")
}

func identity(host, queue string) string { return fmt.Sprintf("%s %s", host, queue) }

func (s *Set) control(o Options, runs *activities.Runs, notes *activities.Notes) error {
	c := &activities.Control{
		Runs: runs, Notes: notes, Assets: assets{}, Version: o.Version, Report: renderReport,
		SearchAttributes: func(ctx context.Context) (bool, error) { return hasSearchAttributes(ctx, o) },
		Inspect:          func(ctx context.Context, id string) (contract.Inspected, error) { return inspect(ctx, o, id) },
	}
	return s.add(o, contract.QueueControl, 32, func(w worker.Worker) {
		workflows.Register(w)
		c.Register(w)
	})
}

func (s *Set) data(o Options, runs *activities.Runs, notes *activities.Notes) error {
	d := &activities.Data{Runs: runs, Notes: notes, Assets: assets{}, Judge: s.judger, Slots: s.sandbox.Slots(), Python: s.sandbox.Level().Python.Version}
	return s.add(o, contract.QueueData, 2, func(w worker.Worker) { d.Register(w) })
}

func (s *Set) rollout(o Options, runs *activities.Runs, notes *activities.Notes, f factory) error {
	host := policy.NewHost(policy.Options{
		Store: o.Store, Source: source{store: o.Store, runs: runs, factory: f}, Max: engineCount(f.most, o.Runs), ProbeTolerance: f.tolerance,
		OnSwap: func(l layout, version int, took time.Duration) {
			o.Metrics.Swapped(l.Run, version, took)
			o.Log.Debug("policy version live", append(place(l), zap.Int("policy_version", version), zap.Duration("took", took))...)
		},
	})
	s.close = append(s.close, host.Close)
	r := &activities.Rollout{
		Runs: runs, Notes: notes, Policy: host, Tool: counted{s.sandbox, o.Metrics},
		Open: func(ctx context.Context, id string) (bool, error) { return isOpen(ctx, o.Client, id) },
	}
	return s.add(o, contract.QueueRollout, max(o.MaxSequences, 4), func(w worker.Worker) { r.Register(w) })
}

// engineCount is how many engines a rollout host keeps; 0 leaves it to the host. Each run needs one, and its export another for a moment.
func engineCount(most, runs int) int {
	if runs <= 1 {
		return most
	}
	return max(most, runs+1)
}

func (s *Set) judge(o Options, runs *activities.Runs, notes *activities.Notes) error {
	j := &activities.Judge{Runs: runs, Notes: notes, Judge: s.judger, Slots: s.sandbox.Slots(), Python: s.sandbox.Level().Python.Version}
	return s.add(o, contract.QueueJudge, 2*s.sandbox.Slots(), func(w worker.Worker) { j.Register(w) })
}

// trainers serves the role trainer, once for each run at once.
func (s *Set) trainers(ctx context.Context, o Options, runs *activities.Runs, notes *activities.Notes, f factory) error {
	host := o.Host
	for i := range max(o.Runs, 1) {
		if i > 0 {
			o.Host = fmt.Sprintf("%s-%d", host, i+1)
		}
		if err := s.trainer(ctx, o, runs, notes, f); err != nil {
			return err
		}
	}
	return nil
}

// trainer serves the roles trainer and standby, or one of them.
func (s *Set) trainer(ctx context.Context, o Options, runs *activities.Runs, notes *activities.Notes, f factory) error {
	host := learner.New(learner.Options{
		Store: o.Store, Name: o.Host, NewTrainer: f.trainer, NewSampler: f.prober,
		Initial: func(ctx context.Context, l layout) (int, *engine.State, error) {
			return activities.InitialState(ctx, runs, assets{}, l)
		},
		Note: func(ctx context.Context, l layout, e event) {
			if e.Kind == record.ReplayMismatch {
				o.Metrics.Mismatch()
			}
			notes.Write(ctx, contract.RunKey(l), e)
		},
	})
	s.close = append(s.close, host.Close)
	queue := contract.TrainerQueue(o.Host)
	t := &activities.Trainer{
		Runs: runs, Notes: notes, Host: host, Queue: queue, Name: o.Host,
		Open: func(ctx context.Context, id string) (bool, error) { return isOpen(ctx, o.Client, id) },
		Export: func(ctx context.Context, e export.Options) (export.Certificate, error) {
			e.NewSampler, e.Tolerance = f.prober, f.tolerance // 0 where engines have equal bits: the default is for another library's
			return export.Export(ctx, e)
		},
		Standby: func(ctx context.Context, run string) (bool, error) { return standbyListens(ctx, o, run) },
	}
	if slices.Contains(o.Roles, RoleTrainer) {
		if err := s.add(o, contract.QueueTrainer, 2, func(w worker.Worker) { t.Register(w) }); err != nil {
			return err
		}
	}
	if slices.Contains(o.Roles, RoleStandby) {
		s.close = append(s.close, follow(ctx, o, t))
	}
	return s.add(o, queue, 1, func(w worker.Worker) { t.RegisterOwn(w) })
}

// Stop drains the workers and closes what they used.
func (s *Set) Stop() error {
	for _, w := range slices.Backward(s.workers) {
		w.Stop()
	}
	s.workers = nil
	var errs []error
	for _, c := range slices.Backward(s.close) {
		errs = append(errs, c())
	}
	s.close = nil
	return errors.Join(errs...)
}

// isOpen reports whether the newest execution of a workflow id is open, paused or not. An unknown id is not.
func isOpen(ctx context.Context, c client.Client, id string) (bool, error) {
	d, err := c.DescribeWorkflow(ctx, id, "")
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return false, nil
	}
	if err != nil {
		return false, fault.New(fault.Busy, "workers.isOpen", "describe %s: %w", id, err)
	}
	return isOpenStatus(d.Status), nil
}

// isOpenStatus counts a workflow that the server has paused as open: it goes on.
func isOpenStatus(s enumspb.WorkflowExecutionStatus) bool {
	return s == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING || s == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED
}

// hasSearchAttributes reports whether the namespace has all of ours. A server that does not say has none.
func hasSearchAttributes(ctx context.Context, o Options) (bool, error) {
	res, err := o.Client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: o.Namespace})
	if err != nil {
		if _, ok := errors.AsType[*serviceerror.PermissionDenied](err); ok {
			return false, nil
		}
		return false, fault.New(fault.Busy, "workers.hasSearchAttributes", "%w", err)
	}
	for _, a := range contract.SearchAttributes() {
		if res.GetCustomAttributes()[a.Name] != a.Type {
			return false, nil
		}
	}
	return true, nil
}
