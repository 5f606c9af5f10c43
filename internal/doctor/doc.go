// Package doctor finds out what this machine can do for a run: processor, Python, sandbox layers, memory, disk,
// Temporal binary, ports, GPU libraries. Every finding says what to do about what is missing.
//
// It changes nothing: it reads, asks the kernel, runs "--version" commands, opens ports for an instant and lets the sandbox
// test itself. GPU libraries are looked for as files, not loaded.
package doctor
