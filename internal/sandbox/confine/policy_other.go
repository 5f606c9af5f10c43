//go:build !amd64

package confine

import "golang.org/x/sys/unix"

// Supported is false: the system-call numbers of this processor have no policy.
const Supported = false

// InterpreterFD is the descriptor from which the one allowed exec happens.
const InterpreterFD = 1000

// PolicyFor refuses everything; nothing can be run under it.
func PolicyFor(int) Policy { return Policy{Default: Errno(unix.EPERM)} }
