package cpu

import (
	"runtime"

	"github.com/steadyrl/steady/internal/engine/cpu/kernel"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// Options are settings of an engine. Only Precision changes results.
type Options struct {
	// Precision is that of a sampler; a trainer does not look at it. Empty means FP32.
	Precision Precision
	// Threads is the number of goroutines that compute; 0 means GOMAXPROCS.
	Threads int
	// Kernels names the instruction set: avx512, avx2, go; empty means the fastest of this machine.
	Kernels string
}

func (o Options) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return runtime.GOMAXPROCS(0)
}

func (o Options) level(op string) (kernel.Level, error) {
	if o.Kernels == "" {
		return kernel.Best(), nil
	}
	for _, l := range kernel.Supported() {
		if l.String() == o.Kernels {
			return l, nil
		}
	}
	return kernel.Go, fault.New(fault.Invalid, op, "kernels %q are not available, have %v", o.Kernels, kernel.Supported()).
		WithHint("leave the setting empty to take the fastest")
}

func newCore(cfg model.Config, opts Options, train bool, op string) (*core, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	level, err := opts.level(op)
	if err != nil {
		return nil, err
	}
	c := &core{layout: newLayout(cfg), k: level, bf16: !train && opts.Precision == BF16}
	c.w = newPacked(c.layout, train)
	c.cos, c.sin = kernel.RopeTables(cfg.RopeTheta, cfg.HeadDim, cfg.MaxPosition)
	return c, nil
}
