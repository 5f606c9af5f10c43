// Package crashpoint names the places where a process may die that tests want it to die at: before and after every durable
// effect. A call of Here costs one atomic load, unless the process was told to crash, or to count.
//
// cmd/steady tells it, from two variables of the environment. STEADY_CRASHPOINT=NAME[:COUNT][:stop] has the process kill itself with
// SIGKILL at its COUNTth visit of NAME (default 1), or with ":stop" send itself SIGSTOP, so that it looks cut off from the
// network until somebody sends SIGCONT. STEADY_CRASHPOINT_COUNTS=FILE has all visits counted in a file of fixed size that many processes
// may share; a count outlives a SIGKILL.
//
// A durable effect is what another process, or this one after a restart, may find: a file, a directory, a rename, a removal. The
// suffix .before means that nothing of the effect is there yet, .after that all of it is and nobody was told. All lists every
// name; test/arch checks that the list and the calls agree, test/durability that the suite crashes at each.
//
// The package imports nothing of this module.
package crashpoint
