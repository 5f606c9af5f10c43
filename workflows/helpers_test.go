package workflows_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
)

const mockAny = mock.Anything

func startOptions(id string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{ID: id, TaskQueue: "test"}
}

// progress asks the workflow how far it is.
func progress(t *testing.T, env *testsuite.TestWorkflowEnvironment) contract.Progress {
	t.Helper()
	var p contract.Progress
	v, err := env.QueryWorkflow(contract.QueryProgress)
	if err == nil {
		err = v.Get(&p)
	}
	if err != nil {
		t.Error(err)
	}
	return p
}

// books folds what the loop recorded, the end included.
func books(w *world) ledger.Ledger {
	var records []record.Ledger
	for _, q := range w.seals {
		records = append(records, q.Ledger)
	}
	var end *record.Ledger
	if w.closed != nil {
		end = &w.closed.Ledger
	}
	return ledger.Fold(ledger.Start{}, records, end)
}

// balance checks that every group that was sent out has one fate, and that every dropped problem came back once.
func balance(t testing.TB, w *world) {
	t.Helper()
	if err := books(w).Balance(); err != nil {
		t.Error(err)
	}
}

// cancelWatch notes which groups the loop asks to end.
type cancelWatch struct {
	interceptor.WorkerInterceptorBase
	w *world
}

func (c *cancelWatch) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &cancelInbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, c.w}
}

type cancelInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	w *world
}

func (c *cancelInbound) Init(out interceptor.WorkflowOutboundInterceptor) error {
	return c.Next.Init(&cancelOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: out}, c.w})
}

type cancelOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	w *world
}

func (c *cancelOutbound) RequestCancelExternalWorkflow(ctx workflow.Context, id, run string) workflow.Future {
	c.w.mu.Lock()
	if c.w.asks == nil {
		c.w.asks = map[string]bool{}
	}
	c.w.asks[id] = true
	c.w.mu.Unlock()
	var n int
	if _, err := fmt.Sscanf(id, "r/group/%d", &n); err == nil {
		c.w.noteCancel(n)
	}
	return c.Next.RequestCancelExternalWorkflow(ctx, id, run)
}

// SignalExternalWorkflow tells the workflow at once and answers, for commands to a loop, after world.slowControl.
func (c *cancelOutbound) SignalExternalWorkflow(ctx workflow.Context, id, run, name string, arg any) workflow.Future {
	told := c.Next.SignalExternalWorkflow(ctx, id, run, name, arg)
	if c.w.slowControl == 0 || name != contract.SignalControl {
		return told
	}
	f, set := workflow.NewFuture(ctx)
	dctx, _ := workflow.NewDisconnectedContext(ctx)
	workflow.Go(dctx, func(ctx workflow.Context) {
		_ = workflow.Sleep(ctx, c.w.slowControl) // nobody cancels it
		set.Set(nil, told.Get(ctx, nil))
	})
	return f
}
