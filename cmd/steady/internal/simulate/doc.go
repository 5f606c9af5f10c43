// Package simulate plans runs: it drives the real workflows of this program (TrainRun, TrainLoop, RolloutGroup, Validate,
// ExportModel) against a Temporal server in virtual time, with a model of the machines in the place of the activities.
//
// The model is queues and rates: rollout workers with slots, response lengths from a distribution, a trainer that takes
// a constant time, judges, and failures. Everything between them (what is submitted, when a group is too old, what a lost
// trainer costs, how histories grow) is decided by the code that runs in earnest. The same options give the same result.
package simulate
