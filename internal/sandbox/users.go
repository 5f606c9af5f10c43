package sandbox

import (
	"fmt"
	"os"
	"syscall"
)

// If this process is root, programs run as users from firstUser to below nobody, which Linux distributions leave unused, in the
// group nobody.
const (
	firstUser = 65000
	nobody    = 65534
)

// users are the users of the programs of one sandbox, one for each slot. The kernel counts threads, signals and pipes by user, so
// no two slots on a machine should share one: each is reserved by the name of a socket, which ends with this process.
type users struct {
	ids   []int64
	names []int // descriptors
}

// reserveUsers returns n users. More than there are, or those of another network namespace, are shared.
func reserveUsers(n int) users {
	var u users
	const count = nobody - firstUser
	for i := range count {
		id := firstUser + (os.Getpid()+i)%count
		if len(u.ids) == n {
			break
		}
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			break
		}
		if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: fmt.Sprintf("@steady-sandbox-user-%d", id)}); err != nil {
			_ = syscall.Close(fd)
			continue
		}
		u.ids, u.names = append(u.ids, int64(id)), append(u.names, fd)
	}
	for i := 0; len(u.ids) < n; i++ {
		u.ids = append(u.ids, int64(firstUser+(os.Getpid()+i)%count))
	}
	return u
}

func (u users) release() {
	for _, fd := range u.names {
		_ = syscall.Close(fd)
	}
}
