// Package sandbox runs one untrusted Python program under limits and says how it ended.
//
// How a program ended is data (Outcome in a Result). An error of kind fault.Infrastructure means that the program was never
// judged: the helper, a layer of isolation or the interpreter failed. The two cannot be confused by what
// a program prints or returns: errors before the interpreter arrive on a pipe that the program never holds, and
// the progress of the boot code on one that is closed before the program's first line.
//
// The chain of a run: a sandbox keeps one helper process (package confine), which forks for each program; the child gives up
// every right and becomes the interpreter, whose boot code reports that it is alive, compiles the program, closes the
// pipe and runs it. The helper is small and starts no Go runtime for a program, so a run costs little more than a bare start
// of the interpreter, and the memory that the kernel counts is the program's. If the worker dies, the helper dies, and with it the
// programs; if the helper dies, its programs were not judged and the next run starts another.
//
// Time is charged from the moment the boot code is alive: wall time less the time a thread was runnable
// and waited for a core. launcher is the seam behind which a pre-started interpreter could stand.
package sandbox
