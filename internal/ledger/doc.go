// Package ledger answers what became of every group of trajectories of a run: submitted, trained in step N,
// dropped and why, or still open.
//
// It folds the small records that each step leaves (record.Ledger) and checks that the books balance: a group is
// submitted once, has at most one fate, and a problem whose group was dropped comes back exactly once. The package
// reads; it never writes.
package ledger
