package sandbox_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/sandbox"
)

// What answers to programming tasks do must work unchanged.
func TestOrdinary(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ source, stdin, want string }{
		"big thread stack": {`
import sys, threading
sys.setrecursionlimit(1 << 25)
threading.stack_size(512 << 20)
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
def main(): print(depth(100000))
t = threading.Thread(target=main); t.start(); t.join()`, "", "100000\n"},
		"deep recursion":       {"import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return n if n == 0 else 1 + f(n - 1)\nprint(f(20000))", "", "20000\n"},
		"stack limit":          {"import resource\nresource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)) if resource.getrlimit(resource.RLIMIT_STACK)[1] == -1 else None\nprint('ok')", "", "ok\n"},
		"many threads":         {"import threading\nr = []\nts = [threading.Thread(target=r.append, args=(i,)) for i in range(40)]\n[t.start() for t in ts]; [t.join() for t in ts]\nprint(sum(r))", "", "780\n"},
		"thread pool":          {"from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as p: print(sum(p.map(int, '12345')))", "", "15\n"},
		"event loop":           {"import asyncio\nasync def f(x):\n    await asyncio.sleep(0.01)\n    return x\nasync def main(): print(sum(await asyncio.gather(f(1), f(2))))\nasyncio.run(main())", "", "3\n"},
		"open(0)":              {"print(sum(map(int, open(0).read().split())))", "1 2\n3\n", "6\n"},
		"os.read(0)":           {"import os\nprint(os.read(0, os.fstat(0).st_size).decode().split())", "a b", "['a', 'b']\n"},
		"mmap of the input":    {"import mmap\nm = mmap.mmap(0, 0, access=mmap.ACCESS_READ)\nprint(m.readline(), len(m))", "ab\ncd\n", "b'ab\\n' 6\n"},
		"buffered bytes":       {"import sys, io\nread = io.BytesIO(sys.stdin.buffer.read()).readline\nprint(read(), read())", "x\ny", "b'x\\n' b'y'\n"},
		"fileinput":            {"import fileinput\nprint([l.strip() for l in fileinput.input()])", "a\nb\n", "['a', 'b']\n"},
		"iteration and EOF":    {"import sys\nprint([l for l in sys.stdin])\ntry: input()\nexcept EOFError: print('end')", "a\nb", "['a\\n', 'b']\nend\n"},
		"no input":             {"import sys\nprint(repr(sys.stdin.read()))", "", "''\n"},
		"input is seekable":    {"import sys\na = sys.stdin.read(); sys.stdin.seek(0); print(a == sys.stdin.read())", "xyz", "True\n"},
		"stdin replaced":       {"import sys, io\nsys.stdin = io.StringIO('7'); print(input())", "1", "7\n"},
		"stdout replaced":      {"import sys, io, os, atexit\nsys.stdout = io.BytesIO()\natexit.register(lambda: os.write(1, sys.stdout.getvalue()))\nsys.stdout.write(b'late')", "", "late"},
		"alarm":                {"import signal\nsignal.signal(signal.SIGALRM, lambda *a: print('rang'))\nsignal.alarm(1)\nsignal.pause()", "", "rang\n"},
		"interval timer":       {"import signal, time\nclass T(Exception): pass\ndef h(*a): raise T\nsignal.signal(signal.SIGALRM, h)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ndef spin():\n    while True: pass\ntry: spin()\nexcept T: print('out of time')", "", "out of time\n"},
		"own signal":           {"import os, signal\nsignal.signal(signal.SIGUSR1, lambda *a: print('got'))\nos.kill(os.getpid(), signal.SIGUSR1)\nsignal.raise_signal(signal.SIGUSR1)", "", "got\ngot\n"},
		"long integers":        {"import math\nn = math.factorial(3000)\ns = str(n)\nprint(len(s), int(s) == n, len(str(10**9999)))", "", "9131 True 10000\n"},
		"unicode":              {"print(input()[::-1], 'ß€😀')", "äöü", "üöä ß€😀\n"},
		"exit in a thread":     {"import threading, sys\nt = threading.Thread(target=sys.exit); t.start(); t.join(); print('on')", "", "on\n"},
		"exit handlers":        {"import atexit\natexit.register(print, 'bye')\nprint('hi')\nexit()", "", "hi\nbye\n"},
		"pipe":                 {"import os\nr, w = os.pipe(); os.write(w, b'x'); print(os.read(r, 1))", "", "b'x'\n"},
		"probing goes on":      {"import os, socket, subprocess\nfor f in (lambda: socket.socket(), lambda: os.nice(0), lambda: subprocess.run(['ls']), lambda: os.sched_setaffinity(0, {0})):\n    try: f()\n    except OSError: pass\nprint('on')", "", "on\n"},
		"classes and pickle":   {"import pickle, copy\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nprint(pickle.loads(pickle.dumps(P(3))), copy.deepcopy(P(1)), __name__, P.__module__)", "", "P(x=3) P(x=1) __main__ __main__\n"},
		"globals":              {"import __main__\nx = 5\ndef f():\n    global x\n    x += 1\nf()\nprint(__main__.x, globals()['x'], 'boot' in globals(), __file__)", "", "6 6 False solution.py\n"},
		"future and encoding":  {"# -*- coding: latin-1 -*-\nfrom __future__ import annotations\ndef f(x: nothing): return x\nprint(f(1))", "", "1\n"},
		"random is repeatable": {"import random; random.seed(1); a = random.random(); random.seed(1); print(a == random.random())", "", "True\n"},
		"random is seeded":     {"import random, os, secrets, uuid; print(len(os.urandom(8)), 0 <= random.random() < 1, len(secrets.token_hex(4)), len(str(uuid.uuid4())))", "", "8 True 8 36\n"},
		"set order is fixed":   {"print(hash('steady') == hash('steady'), __import__('os').environ['PYTHONHASHSEED'])", "", "True 0\n"},
		"time zone":            {"import time, datetime; print(time.tzname[0], datetime.datetime.fromtimestamp(0).hour)", "", "UTC 0\n"},
		"caches": {
			"import functools, sys\nsys.setrecursionlimit(10000)\n@functools.lru_cache(None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)\nprint(f(200))", "",
			"280571172992510140037611932413038677189525\n",
		},
		"standard input by name":   {"print(open('/dev/stdin').read(), open('/proc/self/fd/0').read())", "7", "7 7\n"},
		"quit":                     {"print(1)\nquit()\nprint(2)", "", "1\n"},
		"exit with None":           {"import sys\nprint(1)\nsys.exit()", "", "1\n"},
		"exit with 0":              {"print(1)\nexit(0)", "", "1\n"},
		"digit limit, if there":    {"import sys\nif hasattr(sys, 'set_int_max_str_digits'): sys.set_int_max_str_digits(0)\nprint(len(str(7 ** 20000)))", "", "16902\n"},
		"decimal":                  {"from decimal import *\ngetcontext().prec = 40\nprint(Decimal(2).sqrt())", "", "1.414213562373095048801688724209698078570\n"},
		"fractions":                {"from fractions import Fraction as F\nprint(sum((F(1, n) for n in range(1, 11)), F(0)))", "", "7381/2520\n"},
		"heaps and bisection":      {"import heapq, bisect\nh = [5, 1, 4]\nheapq.heapify(h)\nprint(heapq.heappop(h), bisect.bisect([1, 3, 5], 3))", "", "1 2\n"},
		"regular expressions":      {"import re\nprint(re.sub(r'(\\d+)', lambda m: str(int(m[1]) * 2), input()))", "a1b22", "a2b44\n"},
		"sorting many":             {"import random\nrandom.seed(1)\nx = [random.random() for _ in range(200000)]\nx.sort()\nprint(x == sorted(x, key=lambda v: v))", "", "True\n"},
		"many lines":               {"import sys\nprint(sum(map(int, sys.stdin)))", strings.Repeat("1\n", 100000), "100000\n"},
		"a megabyte of output":     {"import sys\nsys.stdout.write('x' * 999999)", "", strings.Repeat("x", 999999)},
		"output without buffer":    {"import os, sys\nprint('a', flush=True)\nos.write(1, b'b\\n')\nsys.stdout.buffer.write(b'c\\n')", "", "a\nb\nc\n"},
		"stdout reopened":          {"import os, io\nout = open(1, 'w', closefd=False)\nout.write('x')\nout.close()\nprint('y')", "", "xy\n"},
		"stdout redirected":        {"import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b): print('in')\nprint(b.getvalue() * 2, end='')", "", "in\nin\n"},
		"binary input":             {"import sys, struct\nprint(struct.unpack('<2H', sys.stdin.buffer.read()))", "\x01\x00\x02\x00", "(1, 2)\n"},
		"carriage returns stay":    {"print(input(), input())", "a\r\nb\r\n", "a\r b\r\n"},
		"eval and exec":            {"exec('x = 3')\nprint(eval('x + 1'))", "", "4\n"},
		"assert":                   {"try:\n    assert False\nexcept AssertionError: print('on')", "", "on\n"},
		"doctest and unittest":     {"import doctest, unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertTrue(True)\nimport io\nr = unittest.TextTestRunner(stream=io.StringIO()).run(unittest.defaultTestLoader.loadTestsFromTestCase(T))\nprint(r.wasSuccessful(), doctest.testmod().failed)", "", "True 0\n"},
		"main guard and recursion": {"import sys\nsys.setrecursionlimit(300000)\ndef main():\n    def f(n): return 0 if n == 0 else 1 + f(n - 1)\n    print(f(100000))\nif __name__ == '__main__': main()", "", "100000\n"},
		"queue between threads":    {"import threading, queue\nq = queue.Queue()\nt = threading.Thread(target=lambda: [q.put(i) for i in range(5)])\nt.start(); t.join()\nprint(sum(q.get() for _ in range(5)))", "", "10\n"},
		"timer thread":             {"import threading\nt = threading.Timer(0.01, print, ['late'])\nt.start(); t.join()", "", "late\n"},
		"memory views and arrays":  {"import array\na = array.array('q', range(10))\nprint(memoryview(a)[3], a.tobytes()[8])", "", "3 1\n"},
		"ctypes callbacks":         {"import ctypes\nf = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: x * 2)\nprint(f(21))", "", "42\n"},
		"gc and weak references":   {"import gc, weakref\nclass X: pass\nx = X(); r = weakref.ref(x)\nx.me = x\ndel x\ngc.collect()\nprint(r())", "", "None\n"},
		"warnings are quiet":       {"import warnings\nwarnings.simplefilter('ignore')\nwarnings.warn('x')\nprint('on')", "", "on\n"},
		"closing descriptors":      {"import os\nos.closerange(3, 60)\nprint('on')", "", "on\n"},
		"resource limits read":     {"import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE)[0] <= 1, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0)", "", "True True\n"},
		"half a GiB":               {"x = bytearray(512 << 20); print(len(x) >> 20)", "", "512\n"},
		"the standard library": {`
import abc, argparse, array, ast, base64, bisect, bz2, calendar, cmath, collections, contextlib, copy, csv, ctypes, datetime, decimal
import difflib, enum, fractions, functools, gc, glob, hashlib, heapq, hmac, html, inspect, io, itertools, json, keyword, locale, logging
import lzma, math, numbers, operator, os, pathlib, pickle, platform, pprint, queue, random, re, sched, secrets, select, shlex, shutil, signal
import socket, sqlite3, ssl, statistics, string, struct, subprocess, sys, tempfile, textwrap, threading, time, timeit, traceback, types
import typing, unicodedata, unittest, urllib.parse, uuid, warnings, weakref, xml.etree.ElementTree, zipfile, zlib, zoneinfo, multiprocessing
print(hashlib.sha256(b"x").hexdigest()[:8], zlib.crc32(b"x"), decimal.Decimal(1) / 3, sqlite3.connect(":memory:").execute("select 1+1").fetchone())
`, "", "2d711642 2363233923 0.3333333333333333333333333333 (2,)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := mustRun(t, sandbox.Program{Source: []byte(tt.source), Stdin: []byte(tt.stdin)})
			// Some builds' line editor says that it has no terminal.
			stderr := regexp.MustCompile(`No entry for terminal type "dumb";\s+using dumb terminal settings\.\s+`).ReplaceAll(r.Stderr, nil)
			if r.Outcome != sandbox.OK || string(r.Stdout) != tt.want || len(stderr) != 0 {
				t.Errorf("%v, stdout %q, stderr %.1500s; want ok, %q\nprogram:\n%s", r, r.Stdout, r.Stderr, tt.want, tt.source)
			}
		})
	}
}

func TestOrdinary_tracebackShowsTheProgramOnly(t *testing.T) {
	t.Parallel()
	r := mustRun(t, sandbox.Program{Source: []byte("def f():\n    return 1 // 0\nf()")})
	text := string(r.Stderr)
	if !strings.Contains(text, `File "solution.py", line 2, in f`) || !strings.Contains(text, "return 1 // 0") ||
		!strings.Contains(text, "\nZeroDivisionError: ") || strings.Contains(text, "boot") || strings.Contains(text, "<string>") {
		t.Errorf("stderr:\n%s\nwant the lines of the program and nothing of ours", text)
	}
	r = mustRun(t, sandbox.Program{Source: []byte("x = 1\nif x\n  pass")})
	if text := string(r.Stderr); !strings.Contains(text, `File "solution.py", line 2`) || !strings.Contains(text, "if x") {
		t.Errorf("stderr of a program that does not compile:\n%s", text)
	}
}

// Charged time does not grow while other programs have the cores: a program that needs less than its limit passes.
func TestRun_loadDoesNotCondemn(t *testing.T) {
	t.Parallel()
	if !box(t).Level().RunDelay {
		t.Skip("this kernel does not tell how long a process waited for a core")
	}
	py := box(t).Level().Python.Path
	for range 8 {
		load := exec.CommandContext(t.Context(), py, "-c", "while True: pass")
		if err := load.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = load.Process.Kill(); _ = load.Wait() })
	}
	r := mustRun(t, sandbox.Program{
		Source: []byte("import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\nprint('done')"),
	})
	if r.Outcome != sandbox.OK || r.ChargedSeconds > 1.0 {
		t.Errorf("%v: charged %.2f of wall %.2f s; want ok and about 0.4", r, r.ChargedSeconds, r.WallSeconds)
	}
}
