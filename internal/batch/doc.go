// Package batch turns units of rollouts into what trains and what is reported: the verdicts of a unit, the
// sealed batch of a step, the engine's batch, the numbers of a validation.
//
// A unit is a training group or a chunk of a validation: a file of trajectories and a file of verdicts. A sealed
// batch is an ordered manifest of both with everything else the update depends on; it is a pure function of the
// units and the options, and it never changes. The package knows no Temporal and computes no
// gradient; it may import artifact, engine, fault, judge, record, rl and trajectory.
package batch
