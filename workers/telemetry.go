package workers

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/metrics"
	"github.com/steadyrl/steady/internal/rollout"
	"github.com/steadyrl/steady/internal/sandbox"
)

// collect registers what is read when somebody asks for the metrics.
func collect(o Options) {
	src := metrics.Sources{
		Store: func() (free, size uint64, err error) { return room(o.Store) }, GPUs: readGPUs,
		Closed: func(ctx context.Context, run string) (bool, error) {
			open, err := isOpen(ctx, o.Client, run)
			return !open, err
		},
	}
	if slices.Contains(o.Roles, RoleControl) { // one process asks for all
		src.Queues = func(ctx context.Context) ([]metrics.Queue, error) { return queues(ctx, o.Client, o.Namespace) }
	}
	o.Metrics.Collect(src)
}

// room returns free and all bytes of the file system of a store. Errors: those of a store that is away.
func room(s artifact.Store) (free, size uint64, err error) {
	runs, err := s.Path("runs")
	if err != nil {
		return 0, 0, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(runs), &st); err != nil {
		return 0, 0, fault.New(fault.Busy, "workers.room", "%w", err)
	}
	block := uint64(st.Bsize) //nolint:gosec // a size
	return st.Bavail * block, st.Blocks * block, nil
}

// queues asks the server about the shared queues.
func queues(ctx context.Context, c client.Client, namespace string) ([]metrics.Queue, error) {
	var out []metrics.Queue
	for _, q := range []struct {
		name, kind string
		of         enumspb.TaskQueueType
	}{
		{contract.QueueControl, "workflow", enumspb.TASK_QUEUE_TYPE_WORKFLOW},
		{contract.QueueControl, "activity", enumspb.TASK_QUEUE_TYPE_ACTIVITY},
		{contract.QueueData, "activity", enumspb.TASK_QUEUE_TYPE_ACTIVITY},
		{contract.QueueRollout, "activity", enumspb.TASK_QUEUE_TYPE_ACTIVITY},
		{contract.QueueJudge, "activity", enumspb.TASK_QUEUE_TYPE_ACTIVITY},
		{contract.QueueTrainer, "activity", enumspb.TASK_QUEUE_TYPE_ACTIVITY},
	} {
		d, err := c.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: q.name, Kind: enumspb.TASK_QUEUE_KIND_NORMAL}, TaskQueueType: q.of, ReportStats: true,
		})
		if err != nil {
			return nil, fault.New(fault.Busy, "workers.queues", "describe %s: %w", q.name, err)
		}
		out = append(out, metrics.Queue{
			Name: q.name, Type: q.kind, Backlog: d.GetStats().GetApproximateBacklogCount(),
			Age: d.GetStats().GetApproximateBacklogAge().AsDuration(), Pollers: len(d.GetPollers()),
		})
	}
	return out, nil
}

// Ready returns nil if this process can work: its workers have started, the server answers and the store is there.
func (s *Set) Ready(ctx context.Context) error {
	_, err := s.options.Client.CheckHealth(ctx, &client.CheckHealthRequest{})
	if err != nil {
		err = fault.New(fault.Busy, "workers.Ready", "the Temporal server does not answer: %w", err)
	}
	_, _, away := room(s.options.Store)
	return errors.Join(err, away)
}

// counted counts the programs that models run.
type counted struct {
	rollout.Programs
	set *metrics.Set
}

// Run implements rollout.Programs.
func (c counted) Run(ctx context.Context, p sandbox.Program) (sandbox.Result, error) {
	r, err := c.Programs.Run(ctx, p)
	if err == nil {
		c.set.Program(string(r.Outcome))
	}
	return r, err
}
