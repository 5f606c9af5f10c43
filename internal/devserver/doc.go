// Package devserver gets the official temporal binary and runs its development server: server, SQLite file and
// Web UI in one process, started, watched, restarted and stopped.
//
// It is for `steady dev`, `steady demo` and tests. A production cluster needs nothing of it. The server is a
// process of its own, because a crash of either side must not take the other's memory with it, and because the
// temporal command line is wanted beside it anyway. On Linux the server dies with its parent, so that a start
// after kill -9 finds the port free; what it had acknowledged is in the SQLite file (write-ahead log, synced at
// every commit).
//
// The package imports internal/fault, a gRPC client for the health question, and no Temporal package:
// administration goes through the binary's own commands.
package devserver
