//go:build !cuda

package main

import "github.com/steadyrl/steady/internal/doctor"

// gpuChecks finds nothing to ask: this binary has no GPU engine, and package doctor looks for the libraries as files.
func gpuChecks() []doctor.Check { return nil }
