//go:build cuda

package cudart

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef uint64_t w;
typedef w (*fn16)(w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w);

// Calls a function of up to 16 integer or pointer arguments; more words than it takes do no harm in this calling convention.
static w steady_call(uintptr_t f, w *a) {
	return ((fn16)f)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
}

static const char *steady_string(uintptr_t f, w a) { return ((const char *(*)(w))f)(a); }

static uintptr_t steady_dlsym(void *h, const char *name) { return (uintptr_t)dlsym(h, name); }
*/
import "C"

import (
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/steadyrl/steady/internal/fault"
)

// Library is an opened shared library. It stays open until the process ends.
type Library struct {
	Path   string
	handle unsafe.Pointer
}

// Open opens the library at path, or with that name in the loader's folders. Errors: NotFound with the loader's reason.
func Open(path string) (*Library, error) {
	runtime.LockOSThread() // dlerror belongs to the thread
	defer runtime.UnlockOSThread()
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	h := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if h == nil {
		return nil, fault.New(fault.NotFound, "cudart.Open", "%s", C.GoString(C.dlerror()))
	}
	return &Library{Path: path, handle: h}, nil
}

// maxWords is the number of arguments of a call: cublasLtMatmul takes 16.
const maxWords = 16

// Proc is the address of a C function.
type Proc uintptr

// Proc looks a function up. Errors: NotFound.
func (l *Library) Proc(name string) (Proc, error) {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	p := Proc(C.steady_dlsym(l.handle, s))
	if p == 0 {
		return 0, fault.New(fault.NotFound, "cudart.Proc", "%s has no function %s", l.Path, name)
	}
	return p, nil
}

// procs looks several functions up and stores each at its place.
func (l *Library) procs(into map[string]*Proc) error {
	for name, p := range into {
		var err error
		if *p, err = l.Proc(name); err != nil {
			return err
		}
	}
	return nil
}

// Call calls p with at most 16 words and returns the low 32 bits of its result. Pointers among the words must point to C memory
// (see NewMemory) or to nothing. It panics on more words (caller bug).
func (p Proc) Call(words ...uintptr) int {
	var a [maxWords]C.w
	if len(words) > maxWords {
		panic("cudart: too many arguments")
	}
	for i, x := range words {
		a[i] = C.w(x)
	}
	return int(int32(C.steady_call(C.uintptr_t(p), &a[0])))
}

// callString calls a function without an error that returns a C string.
func (p Proc) callString(word uintptr) string {
	return C.GoString(C.steady_string(C.uintptr_t(p), C.w(word)))
}

// Memory is zeroed C memory, whose address may be given to Call and kept by C.
type Memory struct{ p unsafe.Pointer }

// NewMemory allocates n bytes. Free returns them.
func NewMemory(n int) Memory { return Memory{C.calloc(1, C.size_t(max(n, 1)))} }

// cString copies s with a final zero.
func cString(s string) Memory { return Memory{unsafe.Pointer(C.CString(s))} }

// Addr is the address as a word for Call; at adds an offset in bytes.
func (m Memory) Addr() uintptr { return uintptr(m.p) }

// Word returns the i-th 8-byte word.
func (m Memory) Word(i int) uintptr { return *(*uintptr)(unsafe.Add(m.p, 8*i)) }

// SetWord sets the i-th 8-byte word.
func (m Memory) SetWord(i int, x uintptr) { *(*uintptr)(unsafe.Add(m.p, 8*i)) = x }

// Int32 returns the i-th 4-byte integer; SetInt32 sets it.
func (m Memory) Int32(i int) int32 { return *(*int32)(unsafe.Add(m.p, 4*i)) }

// SetInt32 sets the i-th 4-byte integer.
func (m Memory) SetInt32(i int, x int32) { *(*int32)(unsafe.Add(m.p, 4*i)) = x }

// Bytes is the first n bytes of the memory itself.
func (m Memory) Bytes(n int) []byte { return unsafe.Slice((*byte)(m.p), n) }

// Free returns the memory.
func (m Memory) Free() { C.free(m.p) }

// Kind of a library that Find knows.
type kind struct {
	name    string
	sonames []string // newest first
}

// The libraries of NVIDIA that are opened at run time.
var (
	NVRTC    = kind{"NVRTC", []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"}}
	CUBLASLt = kind{"cuBLASLt", []string{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}}
	CUDNN    = kind{"cuDNN", []string{"libcudnn.so.9"}}
)

// String is the name that people know.
func (k kind) String() string { return k.name }

// folders are globs of where the toolkit and Python's packages of NVIDIA put libraries, in the order of trust.
var folders = []string{
	"/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/local/cuda-1[0-9]*/lib64",
	"/usr/lib/python3*/*-packages/nvidia/*/lib", "/usr/local/lib/python3*/*-packages/nvidia/*/lib", "/opt/*/lib/python3*/*-packages/nvidia/*/lib",
}

// Find opens the library of kind k: the file explicit if it is not empty and nothing else, or the first of the toolkit's folders, Python's
// packages and the loader's own folders. Errors: NotFound, with the loader's reason.
func Find(k kind, explicit string) (*Library, error) {
	if explicit != "" {
		return Open(explicit)
	}
	var candidates []string
	for _, soname := range k.sonames {
		for _, folder := range folders {
			found, _ := filepath.Glob(filepath.Join(folder, soname)) // the patterns are constants
			slices.Reverse(found)                                    // newest Python or toolkit first
			candidates = append(candidates, found...)
		}
	}
	candidates = append(candidates, k.sonames...)
	reason := errors.New("no file of that name is in the usual folders or in the loader's")
	for _, c := range candidates {
		l, err := Open(c)
		if err == nil {
			return l, nil
		}
		if filepath.IsAbs(c) { // it exists, but does not open
			reason = err
		}
	}
	return nil, fault.New(fault.NotFound, "cudart.Find", "%s (%s): %w", k.name, strings.Join(k.sonames, ", "), reason).
		WithHint("install the CUDA toolkit's run-time libraries, or name the file")
}
