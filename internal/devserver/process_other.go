//go:build !linux

package devserver

import "syscall"

// processAttributes puts the server into a process group of its own, so that Ctrl-C in a terminal reaches only its
// parent, which then stops it in order.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// bound reports whether the kernel is ending a process that is still there, which cannot be asked here.
func bound(int) bool { return false }
