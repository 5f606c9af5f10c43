package workflows_test

import (
	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/client"
)

const mockAny = mock.Anything

func startOptions(id string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{ID: id, TaskQueue: "test"}
}
