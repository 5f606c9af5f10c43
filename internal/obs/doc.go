// Package obs makes the program observable: a zap logger with one set of key names, and an adapter that gives the
// Temporal SDK the same logger.
//
// Keys are snake_case and the same words everywhere: run, step, policy_version, attempt, task_queue,
// workflow_id. An error is logged once, at the boundary that handles it (an activity, a command), with
// its kind and hint. The package opens the log files it is told to and nothing else; it imports zap, internal/fault and the SDK's
// log interface.
package obs
