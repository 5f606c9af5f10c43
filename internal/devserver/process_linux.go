package devserver

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// processAttributes puts the server into a process group of its own, so that Ctrl-C in a terminal reaches only its
// parent, which then stops it in order, and lets it die when its parent does.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// bound reports whether the kernel is ending a process: it is a zombie, exits, or has a SIGKILL that waits.
func bound(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return os.IsNotExist(err)
	}
	// The name, in brackets, may hold anything; behind it are the state and, as the seventh field, the flags.
	const exiting = 0x4 // PF_EXITING of the kernel
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 7 {
		return false
	}
	flags, _ := strconv.ParseUint(fields[6], 10, 64) // 0 says nothing
	return fields[0] == "Z" || fields[0] == "X" || flags&exiting != 0 || killed(pid)
}

// killed reports whether a SIGKILL waits for a process, as for one that is deep in the kernel.
func killed(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return os.IsNotExist(err)
	}
	for line := range strings.Lines(string(status)) {
		name, mask, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		if bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64); err == nil && bits>>(uint(syscall.SIGKILL)-1)&1 == 1 {
			return true
		}
	}
	return false
}
