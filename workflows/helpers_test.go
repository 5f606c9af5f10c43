package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

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
