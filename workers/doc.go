// Package workers is the wiring: it makes engines, sandboxes and stores from options, and registers the
// roles of a process on their task queues. It is the only place that makes long-lived things.
package workers
