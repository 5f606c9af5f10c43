// Package arch holds tests of the tree itself: which package may reach which, where printing and the environment
// are allowed, links and paths in files. It has no code of its own.
package arch
