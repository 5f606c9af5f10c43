package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/internal/sandbox/confine"
)

// prelude gives hostile programs their tools. A refused attempt prints "refused", one that succeeds "ESCAPED", and one
// that fails for another reason, which proves nothing, "unclear".
const prelude = `
import ctypes, errno, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def raw(n, *args):
    r = libc.syscall(ctypes.c_long(n), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if r < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return r
def attempt(f, *args, also=()):
    try:
        r = f(*args)
    except OSError as e:
        ok = e.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS) or e.errno in also
        print("refused" if ok else "unclear %r" % e)
    else:
        print("ESCAPED", repr(r)[:80])
def machine(code, result=ctypes.c_long, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
    global page
    page = mmap.mmap(-1, 8192, flags=flags, prot=7)
    page.write(code)
    return ctypes.CFUNCTYPE(result)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
`

// program is one hostile program in a table.
type program struct{ name, source string }

// refusedPrograms try and go on; every attempt must be refused. SECRET is a file of the judge that everybody may read and
// write, DIR its folder, PARENT the process id of the judge, HELPER the binary that started the program.
var refusedPrograms = []program{
	{"sockets of every family and kind", `
import _socket
for family in range(46):
    for kind in (1, 2, 3, 4, 5, 6, 10):
        attempt(_socket.socket, family, kind, 0)`},
	{"raw sockets: inet, inet6, unix, netlink, packet, vsock, alg, xdp", `
for family in (2, 10, 1, 16, 17, 40, 38, 44):
    for kind in (1, 2, 3, 5):
        attempt(raw, 41, family, kind, 0)
        attempt(raw, 41, family | 1 << 32, kind | 0o2000000, 0)`},
	{"datagram and packet pairs", `
import _socket
attempt(_socket.socketpair, 1, 2)
attempt(_socket.socketpair, 1, 5)
attempt(raw, 53, 2, 1, 0, (ctypes.c_int * 2)())`},
	{"connect, bind, listen and accept on a pair", `
import socket
a, b = socket.socketpair()
attempt(a.connect, "/tmp/x")
attempt(a.connect, "\0abstract")
attempt(a.bind, "/tmp/x")
attempt(a.bind, "\0abstract")
attempt(a.listen)
attempt(a.accept)
attempt(a.setsockopt, 1, 7, 1 << 20)`},
	{"passing descriptors over a pair", `
import socket, array
a, b = socket.socketpair()
attempt(a.sendmsg, [b"x"], [(1, 1, array.array("i", [0]))])
attempt(b.recvmsg, 1, 64)
attempt(raw, 44, a.fileno(), b"x", 1, 0, b"\2\0\0\1\x7f\0\0\1", 8)`},
	{"urgent bytes on a pair", `
import socket
a, b = socket.socketpair()
for flag in (1, 0x8000, 0x20000, 0x20000000): attempt(a.send, b"x", flag)
a.send(b"x")
for flag in (1, 0x2000, 0x20): attempt(b.recv, 1, flag)
attempt(raw, 44, a.fileno(), b"x", 1, 1 | 1 << 32, 0, 0)`},
	{"rare operations of futexes", `
word = (ctypes.c_int * 4)()
for op in (2, 6, 7, 8, 11, 12, 13):
    for options in (0, 128, 256, 384, 128 | 1 << 32): attempt(raw, 202, word, op | options, 0, 0, word, 0)`},
	{"address lookup", `
import socket
attempt(socket.create_connection, ("127.0.0.1", 80))
attempt(socket.getaddrinfo, "localhost", 80, also=(socket.EAI_AGAIN, socket.EAI_NONAME, socket.EAI_SYSTEM))
import http.client
attempt(http.client.HTTPConnection("127.0.0.1", 80).connect)`},

	{"fork, forkpty and vfork", "attempt(os.fork)\nattempt(os.forkpty)\nattempt(raw, 57)\nattempt(raw, 58)"},
	{"clone as a fork, with every flag that is not a thread's", `
for flags in (17, 0, 0x3d0f00 ^ 0x10000, 0x3d0f00 ^ 0x100, 0x3d0f00 | 17, 0x4111, 0x8000 | 17, 0x10000000 | 17, 0x20000000 | 17, 0x40000000 | 17, 0x3d0f00 | 1 << 32):
    attempt(raw, 56, flags, 0, 0, 0, 0)`},
	{"clone3", "b = (ctypes.c_ulong * 11)(); b[4] = 17\nattempt(raw, 435, b, 88)\nattempt(raw, 435, b, 64)"},
	{"posix_spawn", `
attempt(os.posix_spawn, "/bin/sh", ["sh"], {})
attempt(os.posix_spawnp, "sh", ["sh"], {"PATH": "/bin"})`},
	{"subprocess in every way", `
import subprocess
attempt(subprocess.run, ["/bin/true"])
attempt(lambda: subprocess.check_output("true", shell=True))
attempt(lambda: subprocess.Popen("true", shell=True))
attempt(lambda: subprocess.Popen(["/bin/true"], start_new_session=True, close_fds=False))
attempt(os.popen, "true")`},
	{"system", "r = os.system('echo ESCAPED')\nprint('refused' if r else 'ESCAPED')\nr = libc.system(b'echo ESCAPED')\nprint('refused' if r else 'ESCAPED')"},
	{"multiprocessing in every way", `
import multiprocessing
if __name__ == "__main__":
    for way in ("fork", "spawn", "forkserver"):
        attempt(multiprocessing.get_context(way).Process(target=print, args=("ESCAPED",)).start)
    attempt(multiprocessing.Pool, 1)
    attempt(lambda: multiprocessing.get_context("fork").Lock())`},
	{"process pool", `
from concurrent.futures import ProcessPoolExecutor
def go():
    with ProcessPoolExecutor(1) as p: return p.submit(print, "ESCAPED").result()
attempt(go)`},
	{"execve", `
attempt(os.execv, "/bin/sh", ["sh", "-c", "echo ESCAPED"])
attempt(os.execv, sys.executable, ["python", "-c", "print('ESCAPED')"])
attempt(os.execve, "/proc/self/exe", ["python", "-c", "print('ESCAPED')"], {})
attempt(os.execvp, "sh", ["sh"], also=(errno.ENOENT,))
attempt(raw, 59, b"/lib64/ld-linux-x86-64.so.2", 0, 0)`},
	{"execveat of any number and flag", `
for fd in (1000, 0, -100, 1000 | 1 << 32):
    for flags in (0x1000, 0, 0x1100, 0x1000 | 1 << 32):
        attempt(raw, 322, fd, b"", 0, 0, flags, also=(errno.EBADF,) if fd == 1000 and flags == 0x1000 else ())
fd = os.open(sys.executable, os.O_PATH)
attempt(raw, 322, fd, b"", 0, 0, 0x1000)
attempt(os.execve, fd, ["python"], {})`},
	{"owning descriptor 1000", `
import resource, fcntl
attempt(os.dup2, 0, 1000, also=(errno.EBADF,))
attempt(raw, 292, 0, 1000, 0, also=(errno.EBADF,))
attempt(fcntl.fcntl, 0, fcntl.F_DUPFD, 1000, also=(errno.EINVAL,))
def raise_limit(): resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
def go():
    try: raise_limit()
    except ValueError: raise PermissionError(errno.EPERM, "")
attempt(go)`},
	{"executing a file in memory", `
attempt(raw, 319, b"x", 0)
attempt(raw, 319, b"x", 1)
attempt(raw, 447, 0)
fd = os.open("/proc/self/fd/0", os.O_RDONLY)
attempt(raw, 322, fd, b"", 0, 0, 0x1000)
attempt(lambda: ctypes.CDLL("/proc/self/fd/%d" % fd), also=(None,))`},

	{"opening files for writing", `
for p in ("/tmp/made", "/dev/shm/made", "/var/tmp/made", "made", SECRET, DIR + "/made", "/dev/null", "/dev/tty", "/dev/urandom",
          "/proc/self/mem", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/oom_score_adj", HELPER, sys.executable, os.__file__):
    for mode in ("w", "a", "r+", "x"):
        attempt(open, p, mode)`},
	{"opening with every writing flag", `
for flags in (os.O_WRONLY, os.O_RDWR, 3, os.O_CREAT, os.O_TRUNC, os.O_APPEND, os.O_CREAT | os.O_EXCL, os.O_TMPFILE, os.O_TMPFILE | os.O_RDWR, 0x400000):
    attempt(os.open, SECRET, flags)
    attempt(os.open, DIR, flags)
    attempt(raw, 2, SECRET.encode(), flags, 0o666)
    attempt(raw, 257, -100, SECRET.encode(), flags | 1 << 32, 0o666)
attempt(raw, 85, (DIR + "/made").encode(), 0o666)
how = (ctypes.c_ulong * 3)()
attempt(raw, 437, -100, SECRET.encode(), how, 24)`},
	{"making files", `
for f in (os.mkdir, os.mkfifo, os.mknod): attempt(f, DIR + "/made")
attempt(os.symlink, "/", DIR + "/made")
attempt(os.link, SECRET, DIR + "/made")
attempt(raw, 258, -100, (DIR + "/made").encode(), 0o777)
attempt(raw, 259, -100, (DIR + "/made").encode(), 0o10666, 0)
attempt(raw, 265, -100, SECRET.encode(), -100, (DIR + "/made").encode(), 0)
attempt(raw, 266, b"/", -100, (DIR + "/made").encode())`},
	{"removing and renaming files", `
attempt(os.unlink, SECRET)
attempt(os.rmdir, DIR)
attempt(os.rename, SECRET, SECRET + "2")
attempt(os.replace, SECRET, SECRET + "2")
attempt(raw, 263, -100, SECRET.encode(), 0)
attempt(raw, 264, -100, SECRET.encode(), -100, (SECRET + "2").encode())
attempt(raw, 316, -100, SECRET.encode(), -100, (SECRET + "2").encode(), 0)`},
	{"changing files", `
attempt(os.truncate, SECRET, 0)
attempt(raw, 76, SECRET.encode(), 0)
attempt(os.chmod, SECRET, 0)
attempt(os.utime, SECRET)
attempt(os.chown, SECRET, 0, 0)
attempt(os.lchown, SECRET, 0, 0)
attempt(os.setxattr, SECRET, "user.x", b"")
attempt(os.removexattr, SECRET, "user.x")
attempt(raw, 452, -100, SECRET.encode(), 0o777, 0)
attempt(os.sync) if raw(39) < 0 else print("refused")
fd = os.open(SECRET, os.O_PATH)
for f in (lambda: os.fchmod(fd, 0), lambda: os.ftruncate(fd, 0), lambda: os.fchown(fd, 0, 0), lambda: os.write(fd, b"x"), lambda: os.read(fd, 1)):
    attempt(f, also=(errno.EBADF,))`},
	{"libraries that write files", `
import tempfile, sqlite3, shelve, shutil, logging
attempt(tempfile.TemporaryFile, also=(errno.ENOENT,))
attempt(tempfile.mkdtemp, also=(errno.ENOENT,))
attempt(shelve.open, DIR + "/made")
attempt(shutil.copy, os.__file__, DIR + "/made")
attempt(logging.FileHandler, DIR + "/made")
try: sqlite3.connect(DIR + "/made").execute("create table x(y)"); print("ESCAPED")
except sqlite3.OperationalError: print("refused")
print("refused" if not libc.fopen((DIR + "/made").encode(), b"w") else "ESCAPED")`},
	{"writing the input", `
attempt(os.write, 0, b"x", also=(errno.EBADF,))
attempt(os.ftruncate, 0, 0)
attempt(mmap.mmap, 0, 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
m = mmap.mmap(0, 4, mmap.MAP_SHARED, mmap.PROT_READ)
p = ctypes.c_void_p(0)
attempt(open, "/proc/self/fd/0", "r+")
attempt(raw, 72, 0, 1033, 0)
attempt(raw, 285, 0, 0, 0, 4096)
attempt(raw, 18, 0, b"x", 1, 0)`},
	{"shared memory, semaphores and queues", `
attempt(raw, 29, 1234, 4096, 0o1666)
attempt(raw, 64, 1, 1, 0o1666)
attempt(raw, 68, 1, 0o1666)
attempt(raw, 240, b"q", 0o102, 0o666, 0)
from multiprocessing import shared_memory
attempt(lambda: shared_memory.SharedMemory("made", create=True, size=1))`},

	{"reading files", `
for p in (SECRET, HELPER, "/etc/passwd", "/etc/group", "/etc/hostname", "/etc/os-release", "/bin/sh", "/dev/zero", "/dev/null",
          "/proc/self/environ", "/proc/self/maps", "/proc/self/status", "/proc/self/mem", "/proc/self/cmdline", "/proc/self/auxv", "/proc/self/mounts",
          "/proc/self/mountinfo", "/proc/cpuinfo", "/proc/meminfo", "/proc/net/tcp", "/proc/version", "/proc/sys/kernel/random/boot_id"):
    attempt(open, p, "rb")
    attempt(raw, 2, p.encode(), 0)
    attempt(raw, 257, os.open("/", os.O_PATH), p[1:].encode(), 0)
    attempt(lambda: ctypes.CDLL(p), also=(None,))`},
	{"reading through links and dots", `
for p in ("/proc/self/root" + SECRET, "/proc/self/cwd" + SECRET, "/proc/thread-self/root/etc/passwd", os.path.dirname(os.__file__) + "/../../../../../../etc/passwd"):
    attempt(open, p, "rb", also=(errno.ENOENT,) if ".." in p else ())
attempt(os.open, "/proc/self/root", os.O_RDONLY)
attempt(os.open, "/proc/self/cwd", os.O_RDONLY)`},
	{"listing folders", `
for p in ("/", "/tmp", "/root", "/home", "/etc", "/proc", "/proc/self", "/proc/self/fd", "/proc/self/task", "/proc/self/map_files", "/sys", "/dev", "/usr", "/bin", DIR):
    attempt(os.listdir, p)
    attempt(lambda: list(os.scandir(p)))`},
	{"home directories", `
for p in ("/root", "/home", os.path.expanduser("~"), os.path.expanduser("~root")):
    attempt(os.listdir, p, also=(errno.ENOENT,))
    for f in ("/.bashrc", "/.ssh/id_rsa", "/.netrc", "/.profile"):
        attempt(open, p + f, also=(errno.ENOENT,))`},
	{"user database", `
import pwd, grp, getpass
for f in (lambda: pwd.getpwuid(0), lambda: pwd.getpwnam("root"), lambda: grp.getgrgid(0)):
    try: f(); print("ESCAPED")
    except (KeyError, OSError): print("refused")
print("refused" if not pwd.getpwall() else "ESCAPED")`},
	{"other processes in /proc", `
for n in (1, PARENT, os.getppid()):
    for f in ("environ", "cmdline", "mem", "maps", "status", "stat", "fd/0", "fd/1", "root", "cwd", "exe", "ns/net", "task/%d/environ" % n):
        attempt(open, "/proc/%d/%s" % (n, f), "rb", also=(errno.ENOENT,) if "fd/" in f else ())
    for f in ("exe", "fd/1", "ns/net"):
        attempt(os.readlink, "/proc/%d/%s" % (n, f), also=(errno.ENOENT,) if "fd/" in f else ())`},
	{"environment of the judge", `
known = {"LC_ALL", "TZ", "HOME", "PATH", "MALLOC_ARENA_MAX", "PYTHONHASHSEED", "PYTHONSAFEPATH", "LC_CTYPE"}
print("refused" if set(os.environ) <= known else "ESCAPED")
libc.getenv.restype = ctypes.c_char_p
print("refused" if libc.getenv(b"STEADY_TEST_SECRET") is None else "ESCAPED")`},
	{"installed packages", `
import importlib, site
for n in ("pip", "setuptools", "wheel", "numpy", "torch"):
    try: importlib.import_module(n); print("ESCAPED")
    except ImportError: print("refused")
for p in site.getsitepackages():
    try: names = os.listdir(p)
    except OSError: continue
    for name in names:
        if os.path.isfile(p + "/" + name): attempt(open, p + "/" + name)`},

	{"signals to others", `
import signal
for n in (PARENT, 1, -1, 0, os.getppid(), -os.getpid(), -PARENT, os.getpid() | 1 << 32):
    for s in (0, signal.SIGTERM, signal.SIGCONT):
        attempt(raw, 62, n, s)
attempt(os.killpg, 0, 0)
attempt(raw, 200, PARENT, 0)
attempt(raw, 234, PARENT, PARENT, 0)
info = (ctypes.c_int * 32)(); info[2] = -1
attempt(raw, 129, PARENT, 10, info)
attempt(raw, 297, PARENT, PARENT, 10, info)`},
	{"signals from descriptors", `
import fcntl
r, w = os.pipe()
for fd in (1, r):
    for c in (8, 10, 15, 1024, 1026):
        attempt(fcntl.fcntl, fd, c, PARENT)
    attempt(fcntl.fcntl, fd, fcntl.F_SETFL, 0x2000)
    for c in (0x8901, 0x8902, 0x5452):
        attempt(fcntl.ioctl, fd, c, b"\0\0\0\0", also=(errno.ENOTTY,))`},
	{"timers that signal others", `
event = (ctypes.c_int * 16)(); event[2] = 10; event[3] = 4; event[4] = PARENT
attempt(raw, 222, 1, event, (ctypes.c_int * 1)())
attempt(raw, 283, 1, 0)
attempt(raw, 282, -1, b"\0" * 8, 8)
attempt(raw, 289, -1, b"\0" * 8, 8, 0)`},
	{"descriptors of processes", `
attempt(raw, 434, PARENT, 0)
attempt(raw, 434, os.getpid(), 0)
attempt(raw, 424, 0, 9, 0, 0)
attempt(raw, 438, 0, 0, 0)
attempt(raw, 440, 0, 0, 0, 0, 0)`},
	{"clearing the parent-death signal", "attempt(raw, 157, 1, 0)\nattempt(raw, 157, 1, 10)\nattempt(raw, 157, 1, 0, 0, 0, 0)"},
	{"process attributes", `
for op in (3, 4, 8, 22, 23, 24, 28, 35, 36, 38, 47, 53, 0x59616d61):
    for value in (0, 1, 2): attempt(raw, 157, op, value, 0, 0, 0)`},
	{"leaving the session", "attempt(os.setsid)\nattempt(os.setpgid, 0, 0)\nattempt(os.setpgrp)\nattempt(raw, 109, 0, 1)\nattempt(os.tcsetpgrp, 0, 1, also=(errno.ENOTTY,))"},
	{"another user", `
for f in (os.setuid, os.setgid, os.seteuid, os.setegid): attempt(f, 0)
attempt(os.setresuid, 0, 0, 0)
attempt(os.setresgid, 0, 0, 0)
attempt(os.setgroups, [0])
attempt(os.initgroups, "root", 0)
attempt(raw, 122, 0)
header = (ctypes.c_uint * 2)(0x20080522, 0)
attempt(raw, 126, header, (ctypes.c_uint * 6)(*[0xffffffff] * 6))
attempt(raw, 125, header, (ctypes.c_uint * 6)())`},
	{"priorities and processors", `
attempt(os.sched_setaffinity, 0, {0})
attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
attempt(os.nice, -1)
attempt(os.nice, 0)
attempt(raw, 141, 0, 0, -20)
attempt(raw, 251, 1, 0, 0)
attempt(raw, 314, 0, b"\0" * 56, 0)
attempt(raw, 256, 0, 0, 0, 0)
attempt(raw, 238, 1, 0, 0)`},
	{"limits", `
import resource
def limit(n):
    try: resource.setrlimit(n, (-1, -1))
    except ValueError: raise PermissionError(errno.EPERM, "")
for n in range(16):
    if n != resource.RLIMIT_STACK:
        attempt(limit, n)
        new = (ctypes.c_ulong * 2)(1 << 40, 1 << 40)
        attempt(raw, 302, 0, n, new, 0)
        attempt(raw, 160, n, new)
attempt(raw, 302, PARENT, 3, (ctypes.c_ulong * 2)(0, 0), 0)
attempt(raw, 302, PARENT, 7, 0, (ctypes.c_ulong * 2)())
attempt(raw, 302, PARENT, 3, 0, (ctypes.c_ulong * 2)())`},
	{"terminal input", `
import fcntl, pty, termios, tty
for c in (0x5412, 0x541c, 0x5401 | 1 << 16, 0x540e, 0x5422, 0x5414, 0x5406):
    for fd in (0, 1, 2): attempt(fcntl.ioctl, fd, c, b"x", also=(errno.ENOTTY,))
attempt(os.openpty, also=(errno.ENOENT,))`},
	{"watching files, timers, locks", `
import fcntl
attempt(raw, 294, 0)
attempt(raw, 253)
attempt(fcntl.flock, 0, fcntl.LOCK_EX)
attempt(fcntl.lockf, 0, fcntl.LOCK_SH)
attempt(fcntl.fcntl, 0, 1024, 0)`},
	{"Landlock again", "attempt(raw, 444, 0, 0, 1)\nattempt(raw, 446, 3, 0)\nattempt(raw, 445, 3, 1, 0, 0)"},
	{"another root or working directory", `
attempt(os.chdir, "/tmp")
attempt(os.fchdir, os.open("/", os.O_PATH))
attempt(raw, 428 + 2000)`},
	{"moving data between descriptors", `
r, w = os.pipe()
for n in (275, 276, 278, 326, 40):
    attempt(raw, n, 0, 0, w, 0, 1, 0)
attempt(lambda: os.sendfile(1, 0, 0, 1))`},
	{"own copies of the table of descriptors", `
for flags in (2, 6, 2 | 1 << 32, 1, 8):
    attempt(raw, 436, 50, 60, flags)`},
	{"pinned and special memory", `
attempt(raw, 149, id(page) if "page" in globals() else 0, 4096)
attempt(raw, 151, 3)
attempt(raw, 325, 0, 4096, 1)
attempt(raw, 440, -1, 0, 0, 0, 0)
attempt(raw, 216, 0, 0, 0, 0, 0)
attempt(raw, 329, 0, 4096, 0, 0)
attempt(mmap.mmap, -1, 4096, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x2000, also=(errno.EAGAIN,))`},
	{"the judge's pipes", `
for fd in range(3, 64):
    for b in (b"B", b"C", b"R", b"helper: seccomp: no"): attempt(os.write, fd, b, also=(errno.EBADF,))
for fd in list(range(3, 64)) + [255, 1000, 1001]: attempt(os.fstat, fd, also=(errno.EBADF,))`},
	{"reading the output pipes of others", `
attempt(open, "/proc/%d/fd/1" % PARENT, "rb", also=(errno.ENOENT,))
attempt(open, "/proc/%d/fd/1" % os.getppid(), "rb", also=(errno.ENOENT,))`},
}

func TestHostile_refused(t *testing.T) {
	t.Setenv("STEADY_TEST_SECRET", "answer")
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("answer"), 0o666); err != nil { //nolint:gosec // readable by all on purpose
		t.Fatal(err)
	}
	for path := dir; path != filepath.Dir(path) && path != os.TempDir(); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o777); err != nil { //nolint:gosec // only the sandbox may refuse
			t.Fatal(err)
		}
	}
	helper, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	vars := fmt.Sprintf("SECRET = %q\nDIR = %q\nPARENT = %d\nHELPER = %q\n", secret, dir, os.Getpid(), helper)
	t.Run("all", func(t *testing.T) {
		for _, tt := range refusedPrograms {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				r := mustRun(t, sandbox.Program{Source: []byte(prelude + vars + tt.source), Stdin: []byte("input")})
				lines := strings.Fields(strings.ReplaceAll(string(r.Stdout), "refused\n", ""))
				if r.Outcome != sandbox.OK || len(r.Stdout) == 0 || len(lines) > 0 || strings.Contains(string(r.Stderr), "ESCAPED") {
					t.Errorf("%v; want every attempt refused\nprogram:%s\nstdout:\n%.1500s\nstderr:\n%.1500s", r, tt.source, r.Stdout, r.Stderr)
				}
			})
		}
	})
	if text, err := os.ReadFile(secret); err != nil || string(text) != "answer" {
		t.Errorf("the file of the judge is now %q, %v", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder of the judge holds %v, %v; want the one file", entries, err)
	}
	for _, path := range []string{"/tmp/made", "/dev/shm/made", "/var/tmp/made", "/made"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("a program made %s", path)
		}
	}
}

// What the policy says holds in a real program: every call that it does not name is refused with EPERM.
func TestHostile_everyCallThatIsNotListed(t *testing.T) {
	t.Parallel()
	var unlisted []string
	rules := confine.PolicyFor(os.Getpid()).Rules
	// The kernel shows no filter the calls behind its own probes (uretprobe, uprobe); a program that makes one gets SIGILL.
	unfiltered := []uint32{335, 336}
	for nr := range uint32(600) {
		if !slices.Contains(unfiltered, nr) && !slices.ContainsFunc(rules, func(r confine.Rule) bool { return r.Nr == nr }) {
			unlisted = append(unlisted, fmt.Sprint(nr))
		}
	}
	r := mustRun(t, sandbox.Program{Source: []byte(prelude + "for n in (" + strings.Join(unlisted, ", ") + `):
    try: raw(n, 0, 0, 0, 0, 0, 0)
    except OSError as e:
        if e.errno == errno.EPERM: continue
    print("ESCAPED", n)
print("done")`)})
	if r.Outcome != sandbox.OK || string(r.Stdout) != "done\n" {
		t.Errorf("%v: %s%s", r, r.Stdout, r.Stderr)
	}
}

// Calls without any honest use end the process with SIGSYS: all that the policy names, and all of other ABIs.
func TestHostile_policy(t *testing.T) {
	t.Parallel()
	programs := []program{
		{"x32 getpid", "raw(0x40000000 + 39)"},
		{"x32 open", "raw(0x40000000 + 2, b'/etc/passwd', 0)"},
		{"x32 socket", "raw(0x40000000 + 41, 2, 1, 0)"},
		{"x32 execve", "raw(0x40000000 + 520, b'/bin/sh', 0, 0)"},
		{"x32 ptrace", "raw(0x40000000 + 521, 0, 0, 0, 0)"},
		{"numbers below zero", "raw(-1 & 0xffffffff)"},
	}
	for name, nr := range map[string]int{"fork": 2, "open": 5, "execve": 11, "getpid": 20, "kill": 37, "socketcall": 102, "clone": 120, "socket": 359} {
		// push rbx; mov eax, nr; xor ebx, ebx; int 0x80; pop rbx; ret
		programs = append(programs, program{
			"32-bit " + name,
			fmt.Sprintf(`machine(b"\x53\xb8" + (%d).to_bytes(4, "little") + b"\x31\xdb\xcd\x80\x5b\xc3")()`, nr),
		})
	}
	programs = append(programs, program{"32-bit code segment", `
import struct
page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, prot=7)
base = ctypes.addressof(ctypes.c_char.from_buffer(page))
# push 0x23; push base+32; retf to 32-bit code: mov eax, 20; int 0x80
page.write(b"\x6a\x23\x68" + struct.pack("<I", base + 32) + b"\x48\xcb")
page.seek(32); page.write(b"\xb8\x14\0\0\0\xcd\x80\xcd\x80")
ctypes.CFUNCTYPE(ctypes.c_long)(base)()`})
	for _, rule := range confine.PolicyFor(os.Getpid()).Rules {
		if rule.Do == confine.Kill && len(rule.When) == 0 {
			programs = append(programs, program{rule.Name, fmt.Sprintf("raw(%d, 0, 0, 0, 0)", rule.Nr)})
		}
	}
	for _, tt := range programs {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			source := prelude + "try:\n    " + strings.ReplaceAll(tt.source, "\n", "\n    ") + "\nexcept OSError: pass\nprint('ESCAPED')"
			r := mustRun(t, sandbox.Program{Source: []byte(source)})
			if r.Outcome != sandbox.Policy || r.Signal != int(unix.SIGSYS) || strings.Contains(string(r.Stdout), "ESCAPED") {
				t.Errorf("%v, stdout %q, stderr %.300q; want policy", r, r.Stdout, r.Stderr)
			}
		})
	}
}

// cloneLoop starts N threads in machine code, all on one stack, without any memory for them; it needs prelude.
const cloneLoop = `
def threads(n):
    code = b"\x53\xbb" + n.to_bytes(4, "little")                              # push rbx; mov ebx, n
    code += b"\xb8\x38\0\0\0\xbf\0\x0f\x3d\0\x48\x89\xe6"                     # mov eax, clone; mov edi, flags; mov rsi, rsp
    code += b"\x48\x8d\x15\xe8\x0f\0\0\x49\x89\xd2\x49\x89\xd0\x0f\x05"       # lea rdx, behind; mov r10, rdx; mov r8, rdx; syscall
    code += b"\x85\xc0\x74\x0a\x78\x04\xff\xcb\x75\xda"                       # jz child; js end; dec ebx; jnz loop
    code += b"\x89\xd8\x5b\xc3"                                               # end: mov eax, ebx; pop rbx; ret
    code += b"\xb8\x22\0\0\0\x0f\x05\xeb\xf7"                                 # child: pause, for ever
    return n - machine(code, ctypes.c_int)()
`

type outcomes = []sandbox.Outcome

// Programs that want to stay, to fill the machine, or to look like something else.
var limitPrograms = []struct {
	program
	limits *sandbox.Limits
	want   outcomes
}{
	{program{"ignores every signal", `
import signal
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass`}, half, outcomes{sandbox.TimeLimit}},
	{program{"catches the signal of the processor limit", `
import signal
signal.signal(signal.SIGXCPU, lambda *a: None)
while True: pass`}, half, outcomes{sandbox.TimeLimit}},
	{program{"stops itself", "import os\nos.kill(os.getpid(), 19)"}, half, outcomes{sandbox.TimeLimit}},
	{program{"stops on the terminal", "import os\nos.kill(os.getpid(), 20)\nwhile True: pass"}, half, outcomes{sandbox.TimeLimit}},
	{program{"closes its streams", "import os\nos.closerange(0, 64)\nwhile True: pass"}, half, outcomes{sandbox.TimeLimit}},
	{program{"closes its streams and ends", "import os\nos.closerange(0, 64)\nos._exit(0)"}, nil, outcomes{sandbox.OK}},
	{program{"sleeps", "import time\ntime.sleep(3600)"}, half, outcomes{sandbox.TimeLimit}},
	{program{"waits for nothing", "import select\nselect.select([], [], [])"}, half, outcomes{sandbox.TimeLimit}},
	{program{"waits for itself", "import threading\nl = threading.Lock(); l.acquire(); l.acquire()"}, half, outcomes{sandbox.TimeLimit}},
	{program{"waits on its own pipe", "import os\nr, w = os.pipe(); os.read(r, 1)"}, half, outcomes{sandbox.TimeLimit}},
	{program{"infinite loop", "while True: pass"}, half, outcomes{sandbox.TimeLimit}},
	{program{"one long C call", "x = 3 ** 10000000; y = str(x)"}, half, outcomes{sandbox.TimeLimit}},
	{program{"huge integers", "x = 7\nwhile True: x = x * x"}, half, outcomes{sandbox.TimeLimit, sandbox.MemoryLimit}},
	{program{"backtracking", "import re; re.match('(a+)+$', 'a' * 64 + 'b')"}, half, outcomes{sandbox.TimeLimit}},
	{program{"busy in the kernel", "import os\nwhile True: os.listdir(os.path.dirname(os.__file__))"}, half, outcomes{sandbox.TimeLimit}},
	{program{"exit that never ends", "import atexit, time\natexit.register(time.sleep, 60)"}, half, outcomes{sandbox.TimeLimit}},
	{program{"destructor that never ends", "class X:\n    def __del__(self):\n        while True: pass\nx = X()"}, half, outcomes{sandbox.TimeLimit}},
	{program{"thread that outlives the program", "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()"}, half, outcomes{sandbox.TimeLimit}},
	{program{"daemon thread at the end", `
import threading
def f():
    while True: pass
threading.Thread(target=f, daemon=True).start()`}, nil, outcomes{sandbox.OK}},
	{program{"first thread leaves, another goes on", prelude + `
import threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
raw(60, 0)`}, half, outcomes{sandbox.TimeLimit}},
	{program{"timer that never ends", `
import signal, time
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while True: time.sleep(1)`}, half, outcomes{sandbox.TimeLimit}},
	{program{"alarm that starts over", `
import signal
def again(*a): signal.alarm(1)
signal.signal(signal.SIGALRM, again)
again()
while True: signal.pause()`}, half, outcomes{sandbox.TimeLimit}},
	{program{"busy threads", `
import threading
def f():
    while True: pass
for _ in range(20): threading.Thread(target=f).start()`}, half, outcomes{sandbox.TimeLimit}},
	{program{"threads without the GIL", `
import threading, hashlib
x = bytes(1 << 24)
def f():
    while True: hashlib.sha256(x).digest()
for _ in range(8): threading.Thread(target=f).start()`}, half, outcomes{sandbox.TimeLimit}},
	{program{"threads that hide time in waiting", `
import threading, time
def f():
    while True: time.sleep(0)
for _ in range(60): threading.Thread(target=f, daemon=True).start()
time.sleep(60)`}, half, outcomes{sandbox.TimeLimit}},
	{
		program{"thread bomb", "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()"},
		half,
		outcomes{sandbox.TimeLimit, sandbox.RuntimeError, sandbox.MemoryLimit},
	},
	{program{"thread bomb with small stacks", `
import threading, time
threading.stack_size(32768)
while True: threading.Thread(target=time.sleep, args=(60,)).start()`}, half, outcomes{sandbox.TimeLimit, sandbox.RuntimeError, sandbox.Policy}},
	{program{"descriptor bomb", `
import os
try:
    while True: os.dup(0)
except OSError: pass
try:
    while True: os.pipe()
except OSError: pass
print(len(os.urandom(8)))
import random`}, nil, outcomes{sandbox.RuntimeError}},
	{program{"pipes full of bytes", `
import os
try:
    while True:
        r, w = os.pipe(); os.set_blocking(w, False)
        try:
            while True: os.write(w, b"x" * 65536)
        except BlockingIOError: pass
except OSError: os._exit(3)`}, nil, outcomes{sandbox.RuntimeError}},

	{program{"output flood", "import os\nwhile True: os.write(1, b'x' * 65536)"}, nil, outcomes{sandbox.OutputLimit}},
	{program{"error flood", "import os\nwhile True: os.write(2, b'x' * 65536)"}, nil, outcomes{sandbox.OutputLimit}},
	{program{"flood of both", "import os\nwhile True: os.write(1, b'x' * 4096); os.write(2, b'x' * 4096)"}, nil, outcomes{sandbox.OutputLimit}},
	{program{"flood that ignores SIGPIPE and its end", `
import os, signal, threading
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
def f():
    while True: os.write(2, b"x" * 65536)
threading.Thread(target=f).start()
f()`}, nil, outcomes{sandbox.OutputLimit}},
	{program{"exactly the limit on both", "import os\nfor fd in (1, 2):\n    for _ in range(16): os.write(fd, b'x' * 65536)"}, nil, outcomes{sandbox.OK}},
	{program{"one byte too many at the very end", `
import os
for _ in range(16): os.write(1, b"x" * 65536)
os.write(1, b"x")
os._exit(0)`}, nil, outcomes{sandbox.OutputLimit}},
	{program{"one byte too many of errors, by SIGKILL", `
import os
for _ in range(16): os.write(2, b"x" * 65536)
os.write(2, b"x")
os.kill(os.getpid(), 9)`}, nil, outcomes{sandbox.OutputLimit}},
	{program{"output through copies of the descriptor", `
import os
copies = [os.dup(1) for _ in range(17)]
for fd in copies: os.write(fd, b"x" * 65536)`}, nil, outcomes{sandbox.OutputLimit}},
	{program{"takes its output back", `
import os
try: r = os.open("/proc/self/fd/1", os.O_RDONLY)
except PermissionError:
    while True: pass # the pipe belongs to another user
os.write(1, b"x" * 60000)
while True: os.write(1, b"x" * 4096); os.read(r, 4096)`}, half, outcomes{sandbox.OutputLimit, sandbox.TimeLimit}},

	{program{"memory at once", "x = bytearray(3 << 30)"}, nil, outcomes{sandbox.MemoryLimit}},
	{program{"memory by doubling text", "x = 'x'\nwhile True: x += x"}, nil, outcomes{sandbox.MemoryLimit}},
	{program{"memory by doubling a list", "x = [0]\nwhile True: x += x"}, nil, outcomes{sandbox.MemoryLimit, sandbox.TimeLimit}},
	{program{"memory in pieces that are touched", "x = []\nwhile True: x.append(b'x' * (1 << 24))"}, nil, outcomes{sandbox.MemoryLimit, sandbox.TimeLimit}},
	{program{"memory by mmap", "import mmap\nx = [mmap.mmap(-1, 1 << 28) for _ in range(8)]"}, nil, outcomes{sandbox.MemoryLimit, sandbox.RuntimeError}},
	{program{"shared memory by mmap", `
import mmap
x = [mmap.mmap(-1, 1 << 26, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS) for _ in range(32)]`}, nil, outcomes{sandbox.MemoryLimit, sandbox.RuntimeError}},
	{program{"huge pages", `
import mmap
x = [mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000) for _ in range(8)]`}, nil, outcomes{sandbox.MemoryLimit, sandbox.RuntimeError}},
	{program{"recursion", "def f(): f()\nf()"}, nil, outcomes{sandbox.RuntimeError}},
	{
		program{"recursion without end", "import sys\nsys.setrecursionlimit(1 << 30)\ndef f(): return f() + 1\nf()"},
		short(2 * time.Second),
		outcomes{sandbox.RuntimeError, sandbox.MemoryLimit, sandbox.TimeLimit},
	},
	{program{"stack overflow in C", `
import sys
sys.setrecursionlimit(1 << 30)
class X:
    def __getattr__(self, n): return getattr(self, n)
X().x`}, short(2 * time.Second), outcomes{sandbox.RuntimeError, sandbox.MemoryLimit, sandbox.TimeLimit}},
	{program{"nesting for the parser", "(" + strings.Repeat("[", 100000)}, nil, outcomes{sandbox.CompileError, sandbox.MemoryLimit}},
	{
		program{"deep expression", "x = " + strings.Repeat("-", 200000) + "1"},
		nil,
		outcomes{sandbox.CompileError, sandbox.MemoryLimit, sandbox.RuntimeError},
	},
	{program{"constant that the compiler computes", "x = (((((2 ** 64) ** 1) ** 1) << 100) * 'a')"}, nil, outcomes{sandbox.RuntimeError, sandbox.MemoryLimit, sandbox.CompileError}},

	{program{"fakes a helper's exit", "import os; os._exit(125)"}, nil, outcomes{sandbox.RuntimeError}},
	{program{"fakes a shell's exit", "import os; os._exit(126)"}, nil, outcomes{sandbox.RuntimeError}},
	{
		program{"fakes a missing library", "import os; os.write(2, b'error while loading shared libraries: libpython3.so'); os._exit(127)"},
		nil,
		outcomes{sandbox.RuntimeError},
	},
	{program{"fakes a fatal error", "import os; os.write(2, b'Fatal Python error: init_fs_encoding'); os._exit(1)"}, nil, outcomes{sandbox.RuntimeError}},
	{
		program{"a real fatal error", "import os, faulthandler; faulthandler._fatal_error_c_thread() if hasattr(faulthandler, '_fatal_error_c_thread') else os.abort()"},
		nil,
		outcomes{sandbox.RuntimeError},
	},
	{program{"fakes the helper's report", `
import os
for fd in range(64):
    try: os.write(fd, b"helper: seccomp: operation not permitted")
    except OSError: pass
os._exit(125)`}, nil, outcomes{sandbox.RuntimeError}},
	{program{"puts its output on every descriptor", `
import os
for fd in range(3, 64): os.dup2(1, fd)
for fd in range(3, 64): os.write(fd, b"BCR")
os._exit(125)`}, nil, outcomes{sandbox.RuntimeError}},
	{program{"fakes a compile error", "raise SyntaxError('invalid syntax')"}, nil, outcomes{sandbox.RuntimeError}},
	{program{"fakes a time limit", "import os; os.kill(os.getpid(), 24)"}, nil, outcomes{sandbox.RuntimeError}},
	{program{"kills itself", "import os; os.kill(os.getpid(), 9)"}, nil, outcomes{sandbox.RuntimeError}},
	{program{"reads address 0", "import ctypes; ctypes.string_at(0)"}, nil, outcomes{sandbox.RuntimeError}},
	{program{"jumps to address 0", "import ctypes; ctypes.CFUNCTYPE(None)(8)()"}, nil, outcomes{sandbox.RuntimeError}},
	{
		program{"unmaps the interpreter", prelude + "raw(11, id(type) & ~4095, 1 << 24)\nraw(11, ctypes.cast(libc.syscall, ctypes.c_void_p).value & ~4095, 1 << 21)"},
		nil,
		outcomes{sandbox.RuntimeError},
	},
	{program{"changes the builtins", `
import builtins, sys
builtins.exec = builtins.compile = builtins.print = None
sys.modules.clear()
raise ValueError`}, nil, outcomes{sandbox.RuntimeError}},
	{program{"takes over the frames", "import sys\nf = sys._getframe()\nwhile f: f.f_globals.clear(); f = f.f_back\n1/0"}, nil, outcomes{sandbox.RuntimeError}},
	{program{"hooks that swallow the failure", "import sys\nsys.excepthook = lambda *a: None\n1/0"}, nil, outcomes{sandbox.RuntimeError}},
	{program{"exit with a strange code", "raise SystemExit(1 << 40 | 3)"}, nil, outcomes{sandbox.RuntimeError, sandbox.OK}},
	{program{"fails after flushing the right text", "print(42, flush=True)\nraise ValueError"}, nil, outcomes{sandbox.RuntimeError}},
	{program{"closes stdout before the end", "import sys\nprint(42)\nsys.stdout.close()"}, nil, outcomes{sandbox.OK}},
	{program{"breaks stdout before the end", "import os\nprint(42)\nos.close(1)"}, nil, outcomes{sandbox.RuntimeError, sandbox.OK}},
}

// Slots of all sandboxes on a machine have different users, so that a program that starts all the threads it may
// cannot keep another from its own.
func TestHostile_threadsOfOneAreNotAnothers(t *testing.T) {
	t.Parallel()
	if !strings.HasPrefix(box(t).Level().User, "a user") {
		t.Skip("needs a sandbox with users of its own, as root has: programs here keep the user of this process")
	}
	other, err := sandbox.New(t.Context(), sandbox.Options{Python: box(t).Level().Python, Slots: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // nothing runs any more
	seen := map[int64]bool{}
	for _, s := range []*sandbox.Sandbox{box(t), other} {
		for _, user := range s.Users() {
			if seen[user] || user < 65000 || user >= 65534 {
				t.Errorf("user %d has two slots, or is none of ours", user)
			}
			seen[user] = true
		}
	}
	if len(seen) != box(t).Slots()+3 {
		t.Errorf("%d users, want one for each slot", len(seen))
	}
	ctx, cancel := context.WithCancel(t.Context())
	bomb := make(chan struct{})
	go func() {
		defer close(bomb)
		source := prelude + cloneLoop + "threads(5000)\nr, w = os.pipe()\nos.read(r, 1)"
		_, _ = other.Run(ctx, sandbox.Program{Source: []byte(source), Limits: short(time.Hour)})
	}()
	waitForChildren(other.HelperPID(), 1)
	for range 5 {
		const source = "import threading\nt = threading.Thread(target=print, args=('ok',)); t.start(); t.join()"
		for _, s := range []*sandbox.Sandbox{box(t), other} {
			if r, err := s.Run(t.Context(), sandbox.Program{Source: []byte(source)}); err != nil || r.Outcome != sandbox.OK {
				t.Errorf("beside it: %v, %v, %s", r, err, r.Stderr)
			}
		}
	}
	cancel()
	<-bomb
}

// A program has a bounded number of threads, however it makes them: the kernel refuses more where the program has a user of
// its own, else the program is ended.
func TestHostile_threadsAreBounded(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"machine code": "print(threads(15000), flush=True)",
		"small stacks": `
import threading
threading.stack_size(32768)
lock = threading.Lock(); lock.acquire()
n = 0
try:
    for n in range(5000): threading.Thread(target=lock.acquire).start()
except RuntimeError: pass
print(n, flush=True)`,
	} {
		r := mustRun(t, sandbox.Program{Source: []byte(prelude + cloneLoop + source + "\nimport time\ntime.sleep(2)\nos._exit(3)"), Limits: short(5 * time.Second)})
		var made int
		n, _ := fmt.Sscan(string(r.Stdout), &made)
		if bounded := n == 1 && made <= 1024; r.Outcome != sandbox.Policy && !bounded || r.Outcome == sandbox.OK {
			t.Errorf("%s: %v, %d threads, %s", name, r, made, r.Stderr)
		}
	}
	many := "import threading\nthreading.stack_size(65536)\ne = threading.Event()\n" +
		"ts = [threading.Thread(target=e.wait) for _ in range(900)]\n[t.start() for t in ts]; e.set(); [t.join() for t in ts]\nprint('ok')"
	if r := mustRun(t, sandbox.Program{Source: []byte(many), Limits: short(10 * time.Second)}); r.Outcome != sandbox.OK {
		t.Errorf("900 threads: %v, %s", r, r.Stderr)
	}
}

var half = short(500 * time.Millisecond)

func TestHostile_limits(t *testing.T) {
	t.Parallel()
	for _, tt := range limitPrograms {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			r := mustRun(t, sandbox.Program{Source: []byte(tt.source), Limits: tt.limits})
			if !slices.Contains(tt.want, r.Outcome) {
				t.Errorf("%v, stderr %.300q; want one of %v", r, r.Stderr, tt.want)
			}
			if r.WallSeconds > 31.5 {
				t.Errorf("ended after %.1f s on the clock (%v in all)", r.WallSeconds, time.Since(begin))
			}
		})
	}
}
