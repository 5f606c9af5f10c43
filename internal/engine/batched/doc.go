// Package batched runs the requests of a sampler as one batch: it owns requests, their receivers, weight swaps, cancellation and the pages of the cache.
// An engine gives it a Device, which computes steps and knows nothing of requests. One goroutine calls the device; all others talk to it through the
// Scheduler.
//
// Pages of sequences with a common beginning are shared (pages.go). A device that can start steps before the results of earlier ones are read (Ahead)
// computes one token ahead of the receivers; what a swap, an end or a receiver's error makes useless is thrown away unseen.
package batched
