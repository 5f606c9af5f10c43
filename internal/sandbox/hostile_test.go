package sandbox_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/sandbox"
)

// prelude gives hostile programs their tools. A refused attempt prints one line; one that succeeds prints ESCAPED.
const prelude = `
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def raw(n, *args):
    r = libc.syscall(ctypes.c_long(n), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if r < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return r
def attempt(f, *args):
    try:
        r = f(*args)
    except OSError as e:
        print("refused")
        return
    print("ESCAPED", repr(r)[:80])
`

func TestHostile_refused(t *testing.T) {
	t.Parallel()
	secret := t.TempDir() + "/secret"
	if err := os.WriteFile(secret, []byte("answer"), 0o666); err != nil { //nolint:gosec // readable by all on purpose
		t.Fatal(err)
	}
	parent := os.Getpid()
	for name, source := range map[string]string{
		"sockets of every family": `
import _socket
for family in range(46):
    for kind in (1, 2, 3, 5):
        attempt(lambda: _socket.socket(family, kind, 0))`,
		"datagram pair":            "import _socket\nattempt(_socket.socketpair, 1, 2)",
		"address lookup":           "import socket\nattempt(socket.create_connection, ('127.0.0.1', 80))\nattempt(socket.getaddrinfo, 'localhost', 80)",
		"fork":                     "attempt(os.fork)",
		"forkpty":                  "attempt(os.forkpty)",
		"vfork":                    "attempt(raw, 58)",
		"clone as fork":            "attempt(raw, 56, 17, 0, 0, 0, 0)",
		"clone with high bits":     "attempt(raw, 56, 0x3d0f00 | 1 << 32, 0, 0, 0, 0)",
		"clone3":                   "b = (ctypes.c_ulong * 11)(); b[4] = 17\nattempt(raw, 435, b, 88)",
		"execve":                   "attempt(os.execv, '/bin/sh', ['sh', '-c', 'echo ESCAPED'])\nattempt(os.execv, sys.executable, ['python', '-c', 'print(\"ESCAPED\")'])",
		"execveat of any number":   "attempt(raw, 322, 1000, b'', 0, 0, 0x1000)\nattempt(raw, 322, 0, b'', 0, 0, 0x1000)\nattempt(raw, 322, 1000, b'', 0, 0, 0)",
		"own descriptor 1000":      "attempt(os.dup2, 0, 1000)\nimport resource\ntry:\n    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000)); print('ESCAPED')\nexcept (ValueError, OSError): print('refused')",
		"posix_spawn":              "attempt(os.posix_spawn, '/bin/sh', ['sh'], {})",
		"subprocess":               "import subprocess\nattempt(subprocess.run, ['/bin/true'])",
		"system":                   "r = os.system('echo ESCAPED')\nprint('refused' if r else 'ESCAPED')",
		"multiprocessing":          "import multiprocessing\nif __name__ == '__main__': attempt(multiprocessing.Process(target=print, args=('ESCAPED',)).start)",
		"file writes":              "for p in ('/tmp/x', '/dev/shm/x', '/var/tmp/x', 'x', '/dev/null', '/dev/tty', '/proc/self/mem', '/proc/self/fd/1'):\n    attempt(open, p, 'w')\n    attempt(open, p, 'a')\n    attempt(open, p, 'r+')",
		"file making":              "for f in (os.mkdir, os.rmdir, os.unlink, os.mkfifo, os.mknod): attempt(f, '/tmp/made')\nattempt(os.symlink, '/', '/tmp/made')\nattempt(os.link, SECRET, '/tmp/made')\nattempt(os.rename, SECRET, SECRET + '2')",
		"file changes":             "attempt(os.truncate, SECRET, 0)\nattempt(os.chmod, SECRET, 0)\nattempt(os.utime, SECRET)\nattempt(os.chown, SECRET, 0, 0)\nattempt(raw, 76, SECRET.encode(), 0)\nattempt(raw, 85, b'/tmp/made', 0o666)",
		"O_TMPFILE":                "attempt(os.open, '/tmp', os.O_TMPFILE | os.O_RDWR)\nattempt(os.open, '/tmp', os.O_TMPFILE)",
		"openat2":                  "how = (ctypes.c_ulong * 3)()\nattempt(raw, 437, -100, SECRET.encode(), how, 24)",
		"reading files":            "for p in (SECRET, '/etc/passwd', '/etc/shadow', '/proc/self/environ', '/proc/self/maps', '/proc/self/status', '/sys/kernel/mm', HELPER, '/bin/sh', '/dev/zero'):\n    attempt(open, p, 'rb')",
		"listing folders":          "for p in ('/', '/tmp', '/root', '/home', '/etc', '/proc', '/proc/self', '/proc/self/fd', '/sys', '/dev', os.path.dirname(SECRET)): attempt(os.listdir, p)",
		"home":                     "for p in ('/root', '/home', os.path.expanduser('~')):\n    attempt(os.listdir, p)\n    attempt(open, p + '/.bashrc')\n    attempt(open, p + '/.ssh/id_rsa')",
		"other processes in /proc": "for n in (1, PARENT, os.getppid()):\n    for f in ('environ', 'cmdline', 'mem', 'maps', 'fd/0'):\n        attempt(open, '/proc/%d/%s' % (n, f), 'rb')",
		"signals to others":        "import signal\nfor n in (PARENT, 1, -1, 0, os.getppid()):\n    for s in (0, signal.SIGTERM): attempt(os.kill, n, s)\nattempt(os.killpg, 0, 0)\nattempt(raw, 200, PARENT, 0)\nattempt(raw, 234, PARENT, PARENT, 0)\nattempt(raw, 129, PARENT, 10, 0)",
		"signal to a high number":  "attempt(raw, 62, os.getpid() | 1 << 32, 0)",
		"descriptor signals":       "import fcntl\nfor c in (8, 10, 15): attempt(fcntl.fcntl, 1, c, PARENT)",
		"memory file":              "attempt(raw, 319, b'x', 0)\nattempt(raw, 447, 0)",
		"shared memory and queues": "attempt(raw, 29, 1234, 4096, 0o1666)\nattempt(raw, 64, 1, 1, 0o1666)\nattempt(raw, 68, 1, 0o1666)\nattempt(raw, 240, b'q', 0o102, 0o666, 0)",
		"process control":          "attempt(raw, 157, 1, 0)\nattempt(raw, 157, 22, 2, 0)\nattempt(raw, 157, 4, 1)\nattempt(os.setsid)\nattempt(os.setuid, 0)\nattempt(os.setgid, 0)\nattempt(raw, 126, 0, 0)",
		"priorities":               "attempt(os.sched_setaffinity, 0, {0})\nattempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))\nattempt(raw, 141, 0, 0, -20)",
		"limits":                   "import resource\nfor n in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):\n    try: resource.setrlimit(n, (-1, -1)); print('ESCAPED')\n    except (ValueError, OSError): print('refused')\nattempt(raw, 302, PARENT, 3, 0, 0)",
		"pidfd":                    "attempt(raw, 434, PARENT, 0)\nattempt(raw, 424, 0, 9, 0, 0)\nattempt(raw, 438, 0, 0, 0)",
		"terminal input":           "import fcntl\nfor c in (0x5412, 0x541c, 0x5401 | 1 << 16): attempt(fcntl.ioctl, 0, c, b'x')",
		"inotify and timers":       "attempt(raw, 294, 0)\nattempt(raw, 253)\nattempt(raw, 283, 1, 0)",
		"landlock again":           "attempt(raw, 444, 0, 0, 1)",
		"chdir and chroot-like":    "attempt(os.fchdir, 0)\nattempt(os.chdir, '/tmp')",
		"installed packages":       "import importlib\nfor n in ('pip', 'setuptools', 'numpy', 'torch'):\n    try: importlib.import_module(n); print('ESCAPED')\n    except ImportError: print('refused')",
		"judge's pipes":            "for fd in range(3, 64): attempt(os.write, fd, b'R')\nfor fd in range(3, 64): attempt(os.fstat, fd)\nfor fd in (1000, 1001, 255): attempt(os.fstat, fd)",
		"writing the input":        "import mmap\nattempt(os.write, 0, b'x')\nattempt(os.ftruncate, 0, 0)\nattempt(mmap.mmap, 0, 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)\nattempt(open, '/proc/self/fd/0', 'r+')",
		"ambient environment":      "print('refused' if set(os.environ) <= {'LC_ALL', 'TZ', 'HOME', 'PATH', 'MALLOC_ARENA_MAX', 'PYTHONHASHSEED', 'PYTHONSAFEPATH', 'LC_CTYPE'} else 'ESCAPED')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			helper, _ := os.Executable()
			vars := fmt.Sprintf("SECRET = %q\nPARENT = %d\nHELPER = %q\n", secret, parent, helper)
			r := mustRun(t, sandbox.Program{Source: []byte(prelude + vars + source), Stdin: []byte("input")})
			if r.Outcome != sandbox.OK || len(r.Stdout) == 0 || strings.Contains(string(r.Stdout)+string(r.Stderr), "ESCAPED") {
				t.Errorf("%v; want every attempt refused\nprogram:%s\nstdout:\n%.1500s\nstderr:\n%.1500s", r, source, r.Stdout, r.Stderr)
			}
		})
	}
	t.Cleanup(func() {
		if text, err := os.ReadFile(secret); err != nil || string(text) != "answer" {
			t.Errorf("the file of the judge is now %q, %v", text, err)
		}
		if _, err := os.Lstat("/tmp/made"); err == nil {
			t.Error("a program made /tmp/made")
		}
	})
}

// Calls without any honest use end the process with SIGSYS.
func TestHostile_policy(t *testing.T) {
	t.Parallel()
	sources := map[string]string{
		"ptrace":     "raw(101, 0, 0, 0, 0)",
		"other ABI":  "raw(0x40000000 + 39)",
		"raw 32-bit": "import mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(b'\\x53\\xb8\\x14\\0\\0\\0\\xcd\\x80\\x5b\\xc3')\nf = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\nprint('ESCAPED', f())",
	}
	for name, nr := range map[string]int{
		"io_uring": unix.SYS_IO_URING_SETUP, "bpf": unix.SYS_BPF, "keyctl": unix.SYS_KEYCTL, "unshare": unix.SYS_UNSHARE, "mount": unix.SYS_MOUNT,
		"userfaultfd": unix.SYS_USERFAULTFD, "process_vm_readv": unix.SYS_PROCESS_VM_READV, "seccomp": unix.SYS_SECCOMP, "perf": unix.SYS_PERF_EVENT_OPEN,
		"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "personality": unix.SYS_PERSONALITY, "modules": unix.SYS_FINIT_MODULE, "setns": unix.SYS_SETNS,
	} {
		sources[name] = fmt.Sprintf("raw(%d, 0, 0, 0, 0)", nr)
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := mustRun(t, sandbox.Program{Source: []byte(prelude + "try:\n    " + strings.ReplaceAll(source, "\n", "\n    ") + "\nexcept OSError: pass\nprint('ESCAPED')")})
			if r.Outcome != sandbox.Policy || r.Signal != int(unix.SIGSYS) || strings.Contains(string(r.Stdout), "ESCAPED") {
				t.Errorf("%v, stdout %q, stderr %.300q; want policy", r, r.Stdout, r.Stderr)
			}
		})
	}
}

// Programs that want to stay, to fill the machine, or to look like something else.
func TestHostile_limits(t *testing.T) {
	t.Parallel()
	half := short(500 * time.Millisecond)
	for name, tt := range map[string]struct {
		source string
		limits *sandbox.Limits
		want   []sandbox.Outcome
	}{
		"ignores every signal":    {"import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass", half, []sandbox.Outcome{sandbox.TimeLimit}},
		"stops itself":            {"import os\nos.kill(os.getpid(), 19)", half, []sandbox.Outcome{sandbox.TimeLimit}},
		"stops on the terminal":   {"import os\nos.kill(os.getpid(), 20)\nwhile True: pass", half, []sandbox.Outcome{sandbox.TimeLimit}},
		"closes its streams":      {"import os\nos.closerange(0, 64)\nwhile True: pass", half, []sandbox.Outcome{sandbox.TimeLimit}},
		"busy threads":            {"import threading\ndef f():\n    while True: pass\nfor _ in range(20): threading.Thread(target=f).start()", half, []sandbox.Outcome{sandbox.TimeLimit}},
		"threads without the GIL": {"import threading, hashlib\nx = bytes(1 << 24)\ndef f():\n    while True: hashlib.sha256(x).digest()\nfor _ in range(8): threading.Thread(target=f).start()", half, []sandbox.Outcome{sandbox.TimeLimit}},
		"thread bomb":             {"import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()", half, []sandbox.Outcome{sandbox.TimeLimit, sandbox.RuntimeError, sandbox.MemoryLimit}},
		"timer that never ends":   {"import signal, time\nsignal.signal(signal.SIGALRM, lambda *a: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\nwhile True: time.sleep(1)", half, []sandbox.Outcome{sandbox.TimeLimit}},
		"exit that never ends":    {"import atexit, time\natexit.register(time.sleep, 60)", half, []sandbox.Outcome{sandbox.TimeLimit}},
		"one long C call":         {"x = 3 ** 10000000; y = str(x)", half, []sandbox.Outcome{sandbox.TimeLimit}},
		"backtracking":            {"import re; re.match('(a+)+$', 'a' * 64 + 'b')", half, []sandbox.Outcome{sandbox.TimeLimit}},
		"waits for input":         {"import sys, select\nselect.select([], [], [])", half, []sandbox.Outcome{sandbox.TimeLimit}},
		"output flood":            {"import os\nwhile True: os.write(1, b'x' * 65536)", nil, []sandbox.Outcome{sandbox.OutputLimit}},
		"error flood":             {"import os\nwhile True: os.write(2, b'x' * 65536)", nil, []sandbox.Outcome{sandbox.OutputLimit}},
		"memory by mmap":          {"import mmap\nx = [mmap.mmap(-1, 1 << 28) for _ in range(8)]", nil, []sandbox.Outcome{sandbox.MemoryLimit, sandbox.RuntimeError}},
		"memory by doubling":      {"x = 'x'\nwhile True: x += x", nil, []sandbox.Outcome{sandbox.MemoryLimit}},
		"recursion":               {"def f(): f()\nf()", nil, []sandbox.Outcome{sandbox.RuntimeError}},
		"nesting for the parser":  {"(" + strings.Repeat("[", 100000), nil, []sandbox.Outcome{sandbox.CompileError, sandbox.MemoryLimit}},
		"deep expression":         {"x = " + strings.Repeat("-", 200000) + "1", nil, []sandbox.Outcome{sandbox.CompileError, sandbox.MemoryLimit, sandbox.RuntimeError}},
		"fakes a helper's exit":   {"import os; os._exit(125)", nil, []sandbox.Outcome{sandbox.RuntimeError}},
		"fakes a missing library": {"import os; os.write(2, b'error while loading shared libraries: libpython3.so'); os._exit(127)", nil, []sandbox.Outcome{sandbox.RuntimeError}},
		"fakes a fatal error":     {"import os; os.write(2, b'Fatal Python error: init_fs_encoding'); os._exit(1)", nil, []sandbox.Outcome{sandbox.RuntimeError}},
		"fakes a compile error":   {"raise SyntaxError('invalid syntax')", nil, []sandbox.Outcome{sandbox.RuntimeError}},
		"kills itself":            {"import os; os.kill(os.getpid(), 9)", nil, []sandbox.Outcome{sandbox.RuntimeError}},
		"changes the builtins":    {"import builtins, sys\nbuiltins.exec = builtins.compile = builtins.print = None\nsys.modules.clear()\nraise ValueError", nil, []sandbox.Outcome{sandbox.RuntimeError}},
		"takes over the frames":   {"import sys\nf = sys._getframe()\nwhile f: f.f_globals.clear(); f = f.f_back\n1/0", nil, []sandbox.Outcome{sandbox.RuntimeError}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			r := mustRun(t, sandbox.Program{Source: []byte(tt.source), Limits: tt.limits})
			found := false
			for _, o := range tt.want {
				found = found || r.Outcome == o
			}
			if !found {
				t.Errorf("%v, stderr %.300q; want one of %v", r, r.Stderr, tt.want)
			}
			if r.WallSeconds > 31.5 {
				t.Errorf("ended after %.1f s on the clock (%v in all)", r.WallSeconds, time.Since(begin))
			}
		})
	}
}
