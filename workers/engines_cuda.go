//go:build cuda

package workers

import (
	"context"
	"fmt"
	"os"

	"go.uber.org/zap"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cuda"
	"github.com/steadyrl/steady/internal/gpuwatch"
	"github.com/steadyrl/steady/internal/metrics"
	"github.com/steadyrl/steady/internal/model"
)

// HasCUDA says whether this program was built with the CUDA engine.
const HasCUDA = true

// cudaEngines are those of one GPU.
func cudaEngines(o Options) (factory, error) {
	device, err := cudart.Choose(o.GPU.Device, os.Getenv("STEADY_CUDA_DRIVER"))
	if err != nil {
		return factory{}, err
	}
	about := fmt.Sprintf("GPU %d", device)
	card, memory := about, 0
	uuid, err := cudart.UUID(device)
	if err != nil {
		return factory{}, err
	}
	if driver, gpus, err := cudart.ReadHealth(); err == nil {
		if g, found := cudart.HealthOf(gpus, uuid); found {
			about = fmt.Sprintf("%s, driver %s", g.Name, driver)
			card, memory = g.Name, int(g.MemoryTotal) //nolint:gosec // the memory of a card
		}
	}
	opts := cuda.Options{
		Device: device, NVRTC: os.Getenv("STEADY_NVRTC"), CUBLASLt: os.Getenv("STEADY_CUBLASLT"), CUDNN: os.Getenv("STEADY_CUDNN"),
		KernelDir: o.GPU.KernelDir, CacheTokens: o.GPU.CacheTokens, Sequences: o.MaxSequences,
	}
	m := &memoryPlan{card: card, memory: memory, sequences: o.MaxSequences, cacheTokens: o.GPU.CacheTokens}
	m.trainer, m.sampler = engineRoles(o.Roles)
	probe := opts
	probe.CacheTokens, probe.Sequences, probe.Rows = 256, 1, 128
	return factory{
		about: "cuda, " + about,
		sampler: func(c model.Config) (engine.Sampler, error) {
			planned := opts
			planned.CacheTokens = m.cache(c)
			return cuda.NewSampler(c, planned)
		},
		trainer: func(c model.Config, w *model.Weights) (engine.Trainer, error) { return cuda.NewTrainer(c, w, opts) },
		probe:   func(c model.Config) (engine.Sampler, error) { return cuda.NewSampler(c, probe) },
		most:    1, tolerance: engine.BF16Distance, watch: watchGPU(o, uuid), fits: m.fits,
	}, nil
}

// watchGPU looks for errors of the hardware; without NVML there is no watch, and that is said. A part of a GPU (MIG) reports no events.
func watchGPU(o Options, uuid string) func(context.Context) error {
	m, err := cudart.NewMonitor(uuid)
	if err != nil {
		o.Log.Warn("the GPU is not watched for errors of its hardware", zap.String("gpu", uuid), zap.Error(err))
		return nil // no watch
	}
	if !m.Events {
		o.Log.Warn("the GPU reports no events; only its count of memory errors is watched", zap.String("gpu", uuid))
	}
	return func(ctx context.Context) error {
		defer m.Close()
		return gpuwatch.Watch(ctx, m, uuid, func(message string) { o.Log.Warn(message) })
	}
}

// readGPUs asks the driver's management library about every GPU of the machine.
func readGPUs() ([]metrics.GPU, error) {
	_, gpus, err := cudart.ReadHealth()
	if err != nil {
		return nil, err
	}
	var out []metrics.GPU
	for i, g := range gpus {
		out = append(out, metrics.GPU{
			Index: i, Model: g.Name, MemoryUsed: g.MemoryUsed, MemorySize: g.MemoryTotal, Temperature: g.Temperature,
			Power: g.Power, Utilization: g.Utilization, UncorrectedErrors: g.Uncorrected,
		})
	}
	return out, nil
}
