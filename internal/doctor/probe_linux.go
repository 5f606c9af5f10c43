package doctor

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockABI asks the kernel for its Landlock version.
func landlockABI() (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(abi), nil
}

// seccompFilters asks the kernel whether a filter may kill the process.
func seccompFilters() error {
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return errno
	}
	return nil
}

// memoryBytes returns total and available memory, the smaller of the machine's and the container's.
func memoryBytes() (total, available int64, err error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	total, err1 := meminfo(string(data), "MemTotal")
	available, err2 := meminfo(string(data), "MemAvailable")
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, err
	}
	if limit, err := cgroupLimit(); err == nil && limit < total {
		total, available = limit, min(available, limit)
	}
	return total, available, nil
}

func meminfo(text, key string) (int64, error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == key+":" && f[2] == "kB" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", key)
}

// cgroupLimit returns the memory limit of a container, version 2 or 1.
func cgroupLimit() (int64, error) {
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64) // "max" is an error: no limit
	}
	return 0, os.ErrNotExist
}
