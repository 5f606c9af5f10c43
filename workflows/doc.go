// Package workflows is the durable control flow of a run: TrainRun and the workflows below it.
//
// It holds no algorithm of reinforcement learning and no data: activities do the work and workflows decide
// what happens next, from their input, their state and activity results alone. The package may import
// internal/contract, internal/fault, internal/record, internal/rng and the SDK; a test of test/arch and workflowcheck
// hold it to that. What each workflow carries over, accepts and does on cancel stands at its function.
package workflows
