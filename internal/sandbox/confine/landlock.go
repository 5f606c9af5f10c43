package confine

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights on files and folders that a rule can give back.
const (
	ReadFile = unix.LANDLOCK_ACCESS_FS_READ_FILE
	ReadDir  = unix.LANDLOCK_ACCESS_FS_READ_DIR
	Execute  = unix.LANDLOCK_ACCESS_FS_EXECUTE
)

// Grant gives rights on one file, or on one folder and all below it.
type Grant struct {
	Path   string
	Rights uint64
}

// LandlockABI returns the version of Landlock that runs here, or the error of the kernel that has none.
func LandlockABI() (int, error) { return landlockQuery(unix.LANDLOCK_CREATE_RULESET_VERSION) }

// LandlockErrata returns the mask of corrected kernel faults, 0 where the kernel does not tell.
func LandlockErrata() int {
	n, err := landlockQuery(unix.LANDLOCK_CREATE_RULESET_ERRATA)
	if err != nil {
		return 0
	}
	return n
}

func landlockQuery(flag uintptr) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, flag)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil //nolint:gosec // a small number
}

// handled returns every right that ABI abi knows: what is handled and not granted is refused.
func handled(abi int) unix.LandlockRulesetAttr {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: 1<<13 - 1} // ABI 1: execute to make_sym
	for _, s := range []struct {
		abi        int
		fs, net, s uint64
	}{
		{2, unix.LANDLOCK_ACCESS_FS_REFER, 0, 0},
		{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE, 0, 0},
		{4, 0, unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, 0},
		{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV, 0, 0},
		{6, 0, 0, unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL},
		{9, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX, 0, 0},
		{10, 0, unix.LANDLOCK_ACCESS_NET_BIND_UDP | unix.LANDLOCK_ACCESS_NET_CONNECT_SEND_UDP, 0},
	} {
		if abi >= s.abi {
			attr.Handled_access_fs |= s.fs
			attr.Handled_access_net |= s.net
			attr.Scoped |= s.s
		}
	}
	return attr
}

// NewRuleset makes a ruleset that refuses all that ABI abi can refuse but for the grants. The caller owns the
// descriptor, which any number of helpers may apply to themselves.
func NewRuleset(abi int, grants []Grant) (int, error) {
	attr := handled(abi)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return -1, fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	for _, g := range grants {
		if err := addGrant(fd, g); err != nil {
			_ = unix.Close(int(fd)) //nolint:gosec // a descriptor
			return -1, fmt.Errorf("landlock rule for %s: %w", g.Path, err)
		}
	}
	return int(fd), nil //nolint:gosec // a descriptor
}

func addGrant(ruleset uintptr, g Grant) error {
	fd, err := unix.Open(g.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)                                                                 //nolint:errcheck // nothing was written
	attr := unix.LandlockPathBeneathAttr{Allowed_access: g.Rights, Parent_fd: int32(fd)} //nolint:gosec // a descriptor
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
