//go:build !cuda

package main

import (
	"context"

	"github.com/steadyrl/steady/internal/engine/measure"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// benchGPU says that this binary has no GPU engine.
func benchGPU(context.Context, model.Config, func(measure.Figure)) error {
	return fault.New(fault.Invalid, "steady bench", "this binary has no GPU engine").WithHint("build it with make build-cuda")
}
