package devserver

import "syscall"

// processAttributes puts the server into a process group of its own, so that Ctrl-C in a terminal reaches only its
// parent, which then stops it in order, and lets it die when its parent does.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
