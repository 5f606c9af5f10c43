// Package artifact is the store of everything a run must not lose: sealed batches, results, weights,
// trajectories, checkpoints, reports.
//
// An object has a name, is written whole or not at all, and never changes once it exists; the two kinds of
// exception are explicit (Replace for pointers, Remove for retention). A Ref names an object with its
// digest and is the only form in which bulk data passes through Temporal. The file store writes to a
// temporary file, syncs it, links it to its name and syncs the directory, so a crash at any moment leaves
// either nothing or the whole object. A JSON document ends with a seal over its content, which every reader verifies (see
// Decode). The package may import internal/fault only.
package artifact
