// Package confine is the part of the sandbox between a worker and an untrusted program: the system-call policy as data,
// its assembler, the Landlock calls, and the helper, which forks for each program. The child makes a list of
// system calls that give up every right, and the last one makes it the interpreter.
//
// The helper is the steady binary executed again with HelperArg. Go initialises packages in the order of their
// import paths as soon as their own imports are ready, and this package imports next to nothing, so its
// init runs before the descriptors of the large libraries are built: the helper stays small, whatever else is
// linked into the binary. It gets its requests, with the descriptors of a program, from a socket; programs and inputs
// are files in memory that it never reads.
//
// A forked child of a Go program may do next to nothing: see helper.fork, which makes raw calls only. All that these
// point to is made before.
package confine
