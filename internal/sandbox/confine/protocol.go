package confine

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of a request.
const (
	opStart = 1 + iota
	opReap
)

// request is a message to the helper, with the files of the program for opStart.
type request struct {
	op, pid int64
	params  Params
}

// reply is the answer, with the descriptor of the process for opStart.
type reply struct{ errno, pid, status, maxRSS int64 }

// link is one end of the socket between the worker and its helper. Messages are whole, and nothing is allocated for one:
// the helper lives long and has no garbage collection.
type link struct {
	sock    int
	hdr     unix.Msghdr
	iov     unix.Iovec
	control struct {
		unix.Cmsghdr
		fds [FileCount]int32
	}
}

const rightsHeader = unsafe.Sizeof(unix.Cmsghdr{})

// errHelperGone means that the other end is closed: the helper has ended.
var errHelperGone = errors.New("the helper has ended")

func (l *link) prepare(data unsafe.Pointer, size uintptr) {
	l.iov = unix.Iovec{Base: (*byte)(data), Len: uint64(size)}
	l.hdr = unix.Msghdr{Iov: &l.iov, Iovlen: 1}
}

// send passes size bytes at data, and fds.
func (l *link) send(data unsafe.Pointer, size uintptr, fds []int32) unix.Errno {
	l.prepare(data, size)
	if n := copy(l.control.fds[:], fds); n > 0 {
		l.control.Level, l.control.Type = unix.SOL_SOCKET, unix.SCM_RIGHTS
		l.control.Len = uint64(rightsHeader) + 4*uint64(n)
		l.hdr.Control, l.hdr.Controllen = (*byte)(unsafe.Pointer(&l.control)), l.control.Len
	}
	for {
		_, _, e := unix.Syscall(unix.SYS_SENDMSG, uintptr(l.sock), uintptr(unsafe.Pointer(&l.hdr)), unix.MSG_NOSIGNAL)
		if e != unix.EINTR {
			return e
		}
	}
}

// receive fills size bytes at data and returns the descriptors that came along, which the next call overwrites. EPIPE means that
// the other end is closed, EBADMSG that the message or its descriptors are cut.
func (l *link) receive(data unsafe.Pointer, size uintptr) ([]int32, unix.Errno) {
	for {
		l.prepare(data, size)
		l.hdr.Control, l.hdr.Controllen = (*byte)(unsafe.Pointer(&l.control)), uint64(unsafe.Sizeof(l.control))
		n, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(l.sock), uintptr(unsafe.Pointer(&l.hdr)), unix.MSG_CMSG_CLOEXEC)
		switch {
		case e == unix.EINTR:
			continue
		case e != 0:
			return nil, e
		case n == 0:
			return nil, unix.EPIPE
		}
		var fds []int32
		if l.hdr.Controllen > uint64(rightsHeader) && l.control.Type == unix.SCM_RIGHTS {
			fds = l.control.fds[:(l.control.Len-uint64(rightsHeader))/4]
		}
		if n != size || l.hdr.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			for _, fd := range fds {
				_ = unix.Close(int(fd))
			}
			return nil, unix.EBADMSG
		}
		return fds, 0
	}
}

// Client asks a helper to start programs and to say how they ended. It is not safe for concurrent use.
type Client struct{ l link }

// NewClient speaks through sock, which stays the caller's.
func NewClient(sock int) *Client { return &Client{link{sock: sock}} }

func (c *Client) ask(q *request, fds []int32) (reply, []int32, error) {
	var r reply
	if e := c.l.send(unsafe.Pointer(q), unsafe.Sizeof(*q), fds); e != 0 {
		return r, nil, fmt.Errorf("%w: %w", errHelperGone, e)
	}
	got, e := c.l.receive(unsafe.Pointer(&r), unsafe.Sizeof(r))
	if e != 0 {
		return r, nil, fmt.Errorf("%w: %w", errHelperGone, e)
	}
	return r, got, nil
}

// Gone reports whether err means that the helper cannot be asked any more.
func Gone(err error) bool { return errors.Is(err, errHelperGone) }

// Start starts the interpreter with files as its descriptors: standard input, output and error, status, ready, program.
// Result: the process id, and a descriptor of the process that is the caller's to close. What goes wrong later is written
// to the status file.
func (c *Client) Start(p Params, files [FileCount]int32) (pid, pidfd int, err error) {
	r, fds, err := c.ask(&request{op: opStart, params: p}, files[:])
	if err != nil {
		return 0, -1, err
	}
	if r.errno != 0 || len(fds) != 1 {
		return 0, -1, fmt.Errorf("fork: %w", unix.Errno(r.errno))
	}
	return int(r.pid), int(fds[0]), nil
}

// Reap returns the wait status of the ended process pid and its largest resident memory in bytes. It fails if the process
// has not ended.
func (c *Client) Reap(pid int) (unix.WaitStatus, int64, error) {
	r, _, err := c.ask(&request{op: opReap, pid: int64(pid)}, nil)
	if err != nil {
		return 0, 0, err
	}
	if r.errno != 0 {
		return 0, 0, fmt.Errorf("wait for the program: %w", unix.Errno(r.errno))
	}
	return unix.WaitStatus(r.status), r.maxRSS << 10, nil
}
