package main

import (
	"os"
	"runtime/debug"

	"github.com/steadyrl/steady/internal/dataset"
)

// limitMemory sets dataset.MemoryLimit for this process, unless its environment has a limit (GOMEMLIMIT) or another one was set. The function
// that it returns puts back what was there before.
func limitMemory() (restore func()) {
	if _, ok := os.LookupEnv("GOMEMLIMIT"); ok {
		return func() {}
	}
	before := debug.SetMemoryLimit(dataset.MemoryLimit)
	if before < dataset.MemoryLimit {
		debug.SetMemoryLimit(before)
	}
	return func() { debug.SetMemoryLimit(before) }
}
