//go:build !cuda

package workers

import (
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/metrics"
)

// HasCUDA says whether this program was built with the CUDA engine.
const HasCUDA = false

// cudaEngines refuses: this program was built without the tag cuda.
func cudaEngines(Options) (factory, error) {
	return factory{}, fault.New(fault.Invalid, "workers.engines", "this program was built without the CUDA engine").
		WithHint("build bin/steady-cuda with `make build-cuda`, and start that")
}

// readGPUs is nil: there is none to ask about.
var readGPUs func() ([]metrics.GPU, error)
