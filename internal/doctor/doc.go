// Package doctor finds out what this machine can do for a run: processor, Python, sandbox layers, memory, disk,
// Temporal binary, ports, GPU libraries. Every finding says what to do about what is missing.
//
// It changes nothing: it reads, asks the kernel, runs "--version" commands and opens ports for an instant. GPU libraries
// are looked for as files, not loaded. The checks that need other packages (the interpreter and the
// sandbox itself) come as functions from the command that wires them.
package doctor
