// Package activities are thin adapters between Temporal and the domain packages: each checks its request,
// calls one domain function, reports progress by heartbeat and maps the error.
//
// They hold no algorithm. Every activity is idempotent; its doc comment says by which key, and what a
// second execution does. Group (Control, Data, Rollout, Judge, Trainer) follows the roles of a worker. Only
// errors.go knows how a fault kind becomes a Temporal error.
package activities
