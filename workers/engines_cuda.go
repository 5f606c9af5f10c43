//go:build cuda

package workers

import (
	"fmt"
	"os"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cuda"
	"github.com/steadyrl/steady/internal/model"
)

// probeTolerance is how far a probed log-probability may be from the publisher's. On one kind of GPU and one set of libraries both have the same bits;
// rounding to BF16 on another moves one by about a hundredth.
const probeTolerance = 0.05

// HasCUDA says whether this program was built with the CUDA engine.
const HasCUDA = true

// cudaEngines are those of one GPU.
func cudaEngines(o Options) (factory, error) {
	device, err := cudart.Choose(o.GPU.Device, os.Getenv("STEADY_CUDA_DRIVER"))
	if err != nil {
		return factory{}, err
	}
	about := fmt.Sprintf("GPU %d", device)
	if driver, gpus, err := cudart.ReadHealth(); err == nil && device < len(gpus) {
		about = fmt.Sprintf("%s, driver %s", gpus[device].Name, driver)
	}
	opts := cuda.Options{
		Device: device, NVRTC: os.Getenv("STEADY_NVRTC"), CUBLASLt: os.Getenv("STEADY_CUBLASLT"), CUDNN: os.Getenv("STEADY_CUDNN"),
		KernelDir: o.GPU.KernelDir, CacheTokens: o.GPU.CacheTokens, Sequences: o.MaxSequences,
	}
	probe := opts
	probe.CacheTokens, probe.Sequences, probe.Rows = 256, 1, 128
	return factory{
		about:   "cuda, " + about,
		sampler: func(c model.Config) (engine.Sampler, error) { return cuda.NewSampler(c, opts) },
		trainer: func(c model.Config, w *model.Weights) (engine.Trainer, error) { return cuda.NewTrainer(c, w, opts) },
		probe:   func(c model.Config) (engine.Sampler, error) { return cuda.NewSampler(c, probe) },
		most:    1, tolerance: probeTolerance,
	}, nil
}
