//go:build cuda

package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/steadyrl/steady/internal/engine/cuda"
	"github.com/steadyrl/steady/internal/engine/measure"
	"github.com/steadyrl/steady/internal/model"
)

// benchGPU measures the GPU engine on the first GPU.
func benchGPU(ctx context.Context, c model.Config, report func(measure.Figure)) error {
	o := cuda.Options{Driver: os.Getenv("STEADY_CUDA_DRIVER"), NVRTC: os.Getenv("STEADY_NVRTC"), CUBLASLt: os.Getenv("STEADY_CUBLASLT")}
	if dir, err := os.UserCacheDir(); err == nil {
		o.KernelDir = filepath.Join(dir, "steady", "kernels")
	}
	return cuda.Measure(ctx, c, o, report)
}
