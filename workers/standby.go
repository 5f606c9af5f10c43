package workers

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"github.com/steadyrl/steady/activities"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/obs"
	"github.com/steadyrl/steady/internal/record"
)

const (
	// lookPause is the time between two looks at the store for a new result.
	lookPause = time.Second
	// askPause is the time between two questions to the Temporal server: is the loop open, which loops are.
	askPause = 5 * time.Second
	// pollFresh is the age up to which a poller's last poll shows that it is alive; a poll lasts a minute.
	pollFresh = 70 * time.Second
)

// standby follows one open run at a time, and listens for it to lose its trainer once it holds the run's state.
//
// Its run is one whose step loop is open, that is in this store and of this engine; with several, hosts spread over them by
// name. It listens to the run's standby queue. To the shared trainer queue it listens only if it is not a trainer anyway, and
// only while it is the trainer of a run, for its export, or when an acquisition of its run has been waiting there for
// askPause. So it takes no first acquisition that a trainer would take. All calls but accepts are of one goroutine.
type standby struct {
	host    follower
	release func(record.Layout)
	trainer bool // the process has the role trainer too
	server  server
	// find returns the layout of a run that this process can serve.
	find   func(ctx context.Context, run string) (record.Layout, error)
	listen func(queue string) (stop func(), err error)
	name   string
	now    func() time.Time
	log    *zap.Logger

	asked   time.Time
	waited  bool            // an acquisition waited at the last question
	avoid   map[string]bool // runs that cannot be followed
	stops   map[string]func()
	mu      sync.Mutex
	layout  record.Layout // of the run that is followed; zero: none
	warm    bool          // its state was level once
	refused string        // the last error, which is logged once
}

// follower is a learner.Host.
type follower interface {
	Follow(ctx context.Context, l record.Layout) (learner.Following, error)
	Leading() record.Layout
}

// server answers what a standby asks of Temporal.
type server interface {
	// Open reports whether a workflow is open; Loops lists the runs whose step loop is.
	Open(ctx context.Context, id string) (bool, error)
	Loops(ctx context.Context) ([]string, error)
	// Acquiring reports whether the loop of a run waits for a trainer.
	Acquiring(ctx context.Context, run string) (bool, error)
}

// follow starts the standby of a trainer host and returns what stops it.
func follow(ctx context.Context, o Options, t *activities.Trainer) (stop func() error) {
	s := &standby{
		host: t.Host, release: t.Release, trainer: slices.Contains(o.Roles, RoleTrainer), server: asker{o},
		find: func(ctx context.Context, run string) (record.Layout, error) { return findRun(ctx, t.Runs, run) },
		listen: func(queue string) (func(), error) {
			register := t.RegisterStandby
			if queue == contract.QueueTrainer {
				register = t.Register
			}
			w, err := listen(o, queue, 2, func(w worker.Worker) { register(w) })
			if err != nil {
				return nil, err
			}
			return w.Stop, nil
		},
		name: o.Host, now: time.Now, log: o.Log,
	}
	if !s.trainer {
		t.Accepts = s.accepts
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serve(ctx)
	}()
	return func() error {
		cancel()
		<-done
		return nil
	}
}

func (s *standby) serve(ctx context.Context) {
	defer s.hear()
	for {
		pause := s.pass(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// pass does one piece of work and returns the time to wait before the next.
func (s *standby) pass(ctx context.Context) time.Duration {
	ask := s.now().Sub(s.asked) >= askPause
	if ask {
		s.asked = s.now()
	}
	if lead := s.host.Leading(); lead != (record.Layout{}) {
		if done, pause := s.lead(ctx, lead, ask); done {
			return pause
		}
	}
	l := s.following()
	if l != (record.Layout{}) && ask {
		if open, err := s.server.Open(ctx, contract.LoopID(contract.RunKey(l).Scope())); err == nil && !open {
			s.set(record.Layout{}, false)
			l = record.Layout{}
			s.hear()
		} else if err != nil {
			s.failed(err)
		}
	}
	if l == (record.Layout{}) {
		if !ask {
			return lookPause
		}
		var err error
		if l, err = s.choose(ctx); err != nil {
			s.failed(err)
		}
		if l == (record.Layout{}) {
			return lookPause
		}
		s.set(l, false)
	}
	return s.step(ctx, l, ask)
}

// lead is a pass of a process that is the trainer of a run. Done is false when it is no more.
func (s *standby) lead(ctx context.Context, l record.Layout, ask bool) (done bool, pause time.Duration) {
	if ask {
		open, err := s.server.Open(ctx, l.Run) // the run, not the loop: its export comes after the loop
		if err != nil {
			s.failed(err)
		} else if !open {
			s.release(l)
			s.set(record.Layout{}, false)
			s.hear()
			return false, 0
		}
	}
	f, err := s.host.Follow(ctx, l)
	if err != nil {
		s.failed(err)
		return true, askPause
	}
	if !f.Leading { // another host was acquired, which this one follows now
		s.log.Info("another trainer took the run over", place(l)...)
		s.release(l)
		s.set(l, false)
		s.hear()
		return false, 0
	}
	s.set(l, true)
	s.hear(contract.QueueTrainer)
	return true, lookPause
}

// step follows the run, and listens for it from the time on that the state was level.
func (s *standby) step(ctx context.Context, l record.Layout, ask bool) time.Duration {
	f, err := s.host.Follow(ctx, l)
	if err != nil {
		if ctx.Err() == nil {
			s.failed(err)
		}
		s.set(l, false)
		s.hear()
		if final(err) {
			s.shun(contract.RunKey(l).Scope())
			s.set(record.Layout{}, false)
		}
		return askPause
	}
	s.refused = ""
	if !f.Held || f.Leading {
		return lookPause
	}
	if !f.Level {
		return 0
	}
	if !s.isWarm() {
		s.log.Info("standing by", append(place(l), zap.Int("step", f.Step))...)
		s.set(l, true)
		s.waited = false
	}
	queues := []string{contract.StandbyQueue(l.Run)}
	waits := s.waited
	if ask {
		waiting, err := s.server.Acquiring(ctx, contract.RunKey(l).Scope())
		if err != nil {
			s.failed(err)
		}
		waits, s.waited = waiting && s.waited, waiting
	} else {
		waits = waits && s.stops[contract.QueueTrainer] != nil
	}
	if waits {
		queues = append(queues, contract.QueueTrainer)
	}
	s.hear(queues...)
	return lookPause
}

// choose returns an open run that this process can follow, or zero.
func (s *standby) choose(ctx context.Context) (record.Layout, error) {
	runs, err := s.server.Loops(ctx)
	if err != nil || len(runs) == 0 {
		return record.Layout{}, err
	}
	slices.Sort(runs)
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.name)) // never fails
	first := int(h.Sum32()) % len(runs)
	for i := range runs {
		run := runs[(first+i)%len(runs)]
		if s.avoid[run] {
			continue
		}
		l, err := s.find(ctx, run)
		if err == nil {
			return l, nil
		}
		if final(err) { // of another engine, or damaged
			s.log.Info("a run is not followed", append(obs.Chain(contract.Chain{RunKey: contract.ParseScope(run)}), obs.Err(err))...)
			s.shun(run)
		}
	}
	return record.Layout{}, nil
}

// final reports whether a run cannot be followed by this process at all. What is missing may still come, or be of another store.
func final(err error) bool {
	k := fault.KindOf(err)
	return !k.Retryable() && k != fault.NotFound
}

func (s *standby) shun(run string) {
	if s.avoid == nil {
		s.avoid = map[string]bool{}
	}
	s.avoid[run] = true
}

// failed logs an error once as long as it stays the same.
func (s *standby) failed(err error) {
	if text := err.Error(); text != s.refused {
		s.refused = text
		s.log.Warn("a run cannot be followed now", obs.Err(err))
	}
}

// hear makes the standby listen to these queues and no other. A trainer's process listens to the shared one anyway.
func (s *standby) hear(queues ...string) {
	for q, stop := range s.stops {
		if !slices.Contains(queues, q) {
			stop()
			delete(s.stops, q)
		}
	}
	for _, q := range queues {
		if s.stops[q] != nil || q == contract.QueueTrainer && s.trainer {
			continue
		}
		stop, err := s.listen(q)
		if err != nil {
			s.failed(err)
			continue
		}
		if s.stops == nil {
			s.stops = map[string]func(){}
		}
		s.stops[q] = stop
	}
}

// accepts refuses runs of the shared queue that this process neither follows nor trains.
func (s *standby) accepts(run string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.warm && s.layout.Run == run || s.host.Leading().Run == run {
		return nil
	}
	return fault.New(fault.Busy, "workers.standby", "this process is a standby, not for run %s", run).WithHint("start a worker with the role trainer")
}

func (s *standby) set(l record.Layout, warm bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layout, s.warm = l, warm
}

func (s *standby) following() record.Layout {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout
}

func (s *standby) isWarm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.warm
}

// findRun returns the layout of a lineage (a RunKey.Scope) of this store that this process can serve; see activities.Runs.
func findRun(ctx context.Context, runs *activities.Runs, scope string) (record.Layout, error) {
	k := contract.ParseScope(scope)
	if ok, err := runs.Store.Exists(ctx, k.Layout().LineageFile()); err != nil {
		return record.Layout{}, err
	} else if !ok {
		return record.Layout{}, fault.New(fault.NotFound, "workers.findRun", "no run %s in this store", scope)
	}
	_, err := runs.Of(ctx, k)
	return k.Layout(), err
}

// asker asks the Temporal server.
type asker struct{ o Options }

func (a asker) Open(ctx context.Context, id string) (bool, error) { return isOpen(ctx, a.o.Client, id) }

func (a asker) Loops(ctx context.Context) ([]string, error) {
	res, err := a.o.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: a.o.Namespace, PageSize: 100,
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", contract.TrainLoop),
	})
	if err != nil {
		return nil, fault.New(fault.Busy, "workers.standby", "list the open step loops: %w", err)
	}
	var scopes []string
	for _, e := range res.GetExecutions() {
		if scope, ok := strings.CutSuffix(e.GetExecution().GetWorkflowId(), contract.LoopID("")); ok {
			scopes = append(scopes, scope)
		}
	}
	return scopes, nil
}

func (a asker) Acquiring(ctx context.Context, scope string) (bool, error) {
	res, err := a.o.Client.DescribeWorkflow(ctx, contract.LoopID(scope), "")
	if err != nil {
		return false, fault.New(fault.Busy, "workers.standby", "describe %s: %w", contract.LoopID(scope), err)
	}
	for _, p := range res.RawResponse.GetPendingActivities() {
		if p.GetActivityType().GetName() == contract.AcquireTrainerActivity.Name {
			return true, nil
		}
	}
	return false, nil
}

// standbyListens reports whether a standby of another host polled for a run in the last minute or so.
func standbyListens(ctx context.Context, o Options, run string) (bool, error) {
	queue := contract.StandbyQueue(run)
	res, err := o.Client.DescribeTaskQueue(ctx, queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return false, fault.New(fault.Busy, "workers.standbyListens", "describe %s: %w", queue, err)
	}
	for _, p := range res.GetPollers() {
		if p.GetIdentity() != identity(o.Host, queue) && time.Since(p.GetLastAccessTime().AsTime()) < pollFresh {
			return true, nil
		}
	}
	return false, nil
}
