package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/engine/measure"
	"github.com/steadyrl/steady/internal/model"
)

type benchCmd struct {
	Engine benchEngineCmd `cmd:"" help:"Measure an engine with random weights: tokens per second, beside what the hardware allows."`
	Step   benchStepCmd   `cmd:"" help:"Compute log-probabilities and one optimizer step of a given batch and write all of it, to be compared with another implementation."`
}

type benchEngineCmd struct {
	Engine string `enum:"cpu,cuda" default:"cpu" help:"Engine: ${enum}; cuda needs the binary with the GPU engine."`
	Model  string `enum:"small,0.6B,4B" default:"small" help:"Shapes of the model: ${enum}; the last two are those of Qwen3, which the CPU engine takes minutes for."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// benchModels are the shapes by name.
var benchModels = map[string]model.Config{
	"small": {
		Vocab: 4096, Hidden: 256, Layers: 6, Heads: 4, KVHeads: 2, HeadDim: 64, Intermediate: 768, MaxPosition: 512, RMSEps: 1e-6, RopeTheta: 1e6, TieEmbedding: true,
	},
	"0.6B": {
		Vocab: 151936, Hidden: 1024, Layers: 28, Heads: 16, KVHeads: 8, HeadDim: 128, Intermediate: 3072, MaxPosition: 4096, RMSEps: 1e-6, RopeTheta: 1e6,
		TieEmbedding: true,
	},
	"4B": {
		Vocab: 151936, Hidden: 2560, Layers: 36, Heads: 32, KVHeads: 8, HeadDim: 128, Intermediate: 9728, MaxPosition: 4096, RMSEps: 1e-6, RopeTheta: 1e6,
		TieEmbedding: true,
	},
}

// Run measures and prints: a table when all is done, or JSON.
func (c *benchEngineCmd) Run(ctx context.Context, s *streams) error {
	var figures []measure.Figure
	keep := func(f measure.Figure) { figures = append(figures, f) }
	measured := benchGPU
	if c.Engine == "cpu" {
		measured = benchCPU
	}
	if err := measured(ctx, benchModels[c.Model], keep); err != nil {
		return err
	}
	if c.JSON {
		e := json.NewEncoder(s.out)
		e.SetIndent("", "  ")
		return e.Encode(figures)
	}
	return measure.Print(s.out, figures)
}

// benchCPU measures the CPU engine on all of its threads.
func benchCPU(ctx context.Context, c model.Config, report func(measure.Figure)) error {
	sampler, err := cpu.NewSampler(c, cpu.Options{})
	if err != nil {
		return err
	}
	defer sampler.Close()
	w := model.NewWeights(c)
	w.Init(1, 0.02)
	if err := sampler.SetWeights(ctx, 0, w); err != nil {
		return err
	}
	bandwidth := measure.CopyBandwidth(runtime.GOMAXPROCS(0))
	report(measure.Figure{Name: "copy", Value: bandwidth / 1e9, Unit: "GB/s"})
	for _, n := range []int{1, 8, 32} {
		const prompt, tokens = 128, 32
		var plain float64
		for _, top := range []int{0, 128} {
			decode, whole, err := measure.Sampler(ctx, sampler, c, measure.Load{Sequences: n, Context: prompt, New: tokens, TopK: top})
			if err != nil {
				return err
			}
			if top == 0 {
				plain = decode
				continue
			}
			floor := measure.Traffic(c, n, prompt, 4) / bandwidth
			report(measure.Figure{
				Name: fmt.Sprintf("decode %dx%d, record %d", n, prompt, top), Value: decode, Unit: "tok/s", Roofline: float64(n) / floor,
				Bound: "memory at the speed of a copy",
			})
			if decode > 0 {
				report(measure.Figure{Name: "  of it, the record", Value: 100 * (plain/decode - 1), Unit: "%"})
			}
			report(measure.Figure{Name: fmt.Sprintf("generate %dx(%d+%d)", n, prompt, tokens), Value: whole, Unit: "tok/s"})
		}
	}
	return nil
}
