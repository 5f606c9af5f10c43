package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/pretrain"
	"github.com/steadyrl/steady/internal/weights"
	"github.com/steadyrl/steady/workers"
)

type pretrainCmd struct {
	Out     string `help:"Directory of the model." default:"internal/demo/model" type:"path"`
	Short   int    `help:"Steps without the tool section; default: those of the bundled model."`
	Full    int    `help:"Steps with the prompt of a run; default: those of the bundled model."`
	Size    string `help:"default: the bundled model, 0.9 M parameters; larger: 22 M, for a GPU." default:"default" enum:"default,larger"`
	Engine  string `help:"Engine: cpu, or cuda (in steady-cuda)." default:"cpu" enum:"cpu,cuda"`
	Device  string `help:"GPU of the engine cuda: its number or UUID; default: the first." placeholder:"GPU"`
	Threads int    `help:"Threads; 0 for all cores. The result does not depend on it."`
}

// mostPretrain bounds the steps of each part: their sum must be a number, and no model takes more.
const mostPretrain = 1_000_000

// Run trains the model and writes it.
func (p *pretrainCmd) Run(ctx context.Context, s *streams) error {
	if err := errors.Join(checkEngine(p.Engine), checkWithin("--short", p.Short, 0, mostPretrain), checkWithin("--full", p.Full, 0, mostPretrain), checkWithin("--threads", p.Threads, 0, config.MostThreads), checkDir("--out", p.Out)); err != nil {
		return err
	}
	o := pretrain.Default()
	if p.Size == "larger" {
		o = pretrain.Larger()
	}
	if p.Short > 0 {
		o.ShortSteps = p.Short
	}
	if p.Full > 0 {
		o.FullSteps = p.Full
	}
	var err error
	if o.NewTrainer, err = workers.Trainers(workers.Options{Backend: p.Engine, Threads: p.Threads, GPU: workers.GPU{Device: p.Device, KernelDir: kernelDir()}}); err != nil {
		return err
	}
	one, mode := demo.Expected(o.Seed, o.Noise, 20)
	fmt.Fprintf(s.out, "corpus: a perfect imitator is right in %.1f %% of its samples, %.1f %% of its most frequent answers\n", 100*one, 100*mode)
	began := time.Now()
	o.Progress = func(step, steps int, loss float64) {
		if step%25 == 0 || step == steps {
			fmt.Fprintf(s.out, "step %d of %d, loss %.4f, %s\n", step, steps, loss, time.Since(began).Round(time.Second))
		}
	}
	w, tok, err := pretrain.Run(ctx, o)
	if err != nil {
		return err
	}
	if err := pretrain.Write(p.Out, w, tok); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "wrote %s, weights %s\n", p.Out, weights.Digest(w))
	return err
}
