package sandbox_test

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
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
		"half a GiB": {"x = bytearray(512 << 20); print(len(x) >> 20)", "", "512\n"},
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
			if r.Outcome != sandbox.OK || string(r.Stdout) != tt.want || len(r.Stderr) != 0 {
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

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Not parallel: it counts what the whole process has open.
func TestRun_leavesNothing(t *testing.T) {
	s := box(t)
	source := []byte("import threading, os\nthreading.Thread(target=print).start()")
	mustRun(t, sandbox.Program{Source: source})
	before := openDescriptors(t)
	for range 20 {
		if _, err := s.Run(t.Context(), sandbox.Program{Source: source}); err != nil {
			t.Fatal(err)
		}
	}
	if after := openDescriptors(t); after > before {
		t.Errorf("%d descriptors after 20 runs, %d before", after, before)
	}
	children, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children")
	if err == nil && len(bytes.TrimSpace(children)) > 0 {
		t.Errorf("children are left: %s", children)
	}
}
