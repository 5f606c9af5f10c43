package cpu_test

import (
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/engine/enginetest"
	"github.com/steadyrl/steady/internal/model"
)

func TestCPU_conforms(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.Backend{
		NewSampler: func(c model.Config) (engine.Sampler, error) { return cpu.NewSampler(c, cpu.Options{Threads: 2}) },
		NewTrainer: func(c model.Config, w *model.Weights) (engine.Trainer, error) {
			return cpu.NewTrainer(c, w, cpu.Options{Threads: 2})
		},
		Unit:        enginetest.Float32,
		ExactDecode: true,
	})
}
