// Package checkpoint writes and reads a trainer's full state: FP32 master weights, both Adam moments and the step.
//
// A checkpoint is a directory: three safetensors files and meta.json with the model's shape and the digest of each file and of the
// state. It is built under another name, flushed, and appears by one rename, so that a reader finds a whole checkpoint or
// none. Loading believes nothing that a digest does not confirm. It may import engine, fault, model and weights.
package checkpoint
