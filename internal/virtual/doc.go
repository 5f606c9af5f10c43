// Package virtual is a Temporal server in virtual time, inside one process: real workflow code, run by the SDK's own
// worker, against a clock that jumps from event to event.
//
// It holds histories as the real server does (the same events with the same attributes, so their numbers and sizes count),
// starts children, carries signals and cancel requests, retries and times out activities, and continues executions as
// new. Activities are not code here: a World says when an attempt is taken, and when and how it ends. One event is
// handled after the other, and a workflow task is answered before the clock goes on, so a run is a function of its input.
//
// What it leaves out: queries, updates, schedules, search, replication, and every cost of a real server but one constant
// delay for each message (Options.Hop). It imports the API of Temporal, not its SDK.
package virtual
