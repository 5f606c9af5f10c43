// Package confine is the part of the sandbox that runs inside the process to be restricted: the
// system-call policy as data, its assembler, the Landlock calls, and the helper that gives up every
// right and then becomes the interpreter.
//
// The helper is the steady binary executed again with HelperArg. Go initialises packages in the order of their
// import paths as soon as their own imports are ready, and this package imports next to nothing, so its
// init runs before the descriptors of the large libraries are built: the helper costs
// milliseconds, whatever else is linked into the binary.
package confine
