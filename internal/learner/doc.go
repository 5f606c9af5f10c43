// Package learner is the trainer's side of exactly-once training.
//
// A Host holds the trainer of one lineage and brings it to the step that is asked for: by restoring the newest
// good checkpoint and replaying sealed batches, which costs no token, or by going on from where it stands. An
// update is done once: its result is written with the weights it published, and a second request for the
// step returns the recorded result. Weights and results are written only by the holder of the newest epoch
// (fence.json). The package knows no Temporal; it may import artifact, batch, checkpoint, engine, fault,
// model, record and weights.
package learner
