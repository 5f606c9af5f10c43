//go:build cuda

package cudart

/*
#cgo LDFLAGS: -lcuda -ldl
#include <cuda.h>

int steady_cuda_load(const char *library, const char **error);

static CUresult steady_launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned shared, void *stream, uint64_t *words, int n) {
	void *params[24];
	for (int i = 0; i < n; i++) params[i] = &words[i];
	return cuLaunchKernel((CUfunction)f, gx, gy, gz, bx, 1, 1, shared, (CUstream)stream, params, NULL);
}

static CUresult steady_shared(void *f, int bytes) {
	return cuFuncSetAttribute((CUfunction)f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}
*/
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/steadyrl/steady/internal/fault"
)

// DriverName is the driver library's usual name.
const DriverName = "libcuda.so.1"

var (
	loadMu  sync.Mutex
	loaded  bool
	loadErr error
)

// Load opens the driver library, by its usual name if library is empty, and initialises it. Only the first success or failed initialisation counts;
// a library that cannot be opened may be tried again. Errors: NotFound (no driver), Infrastructure (the driver refuses, for example because there is no device).
func Load(library string) error {
	loadMu.Lock()
	defer loadMu.Unlock()
	if loaded {
		return loadErr
	}
	if library == "" {
		library = DriverName
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	var reason *C.char
	code := C.steady_cuda_load(name, &reason)
	if reason != nil {
		return fault.New(fault.NotFound, "cudart.Load", "no driver: %s", C.GoString(reason)).WithHint("install NVIDIA's driver, 525 or newer")
	}
	loaded, loadedFrom = true, library
	if code != 0 {
		loadErr = fault.New(fault.Infrastructure, "cudart.Load", "the driver does not start: %v", cuError(code)).
			WithHint("see whether nvidia-smi works, and whether this container was given a device")
	}
	return loadErr
}

func cuError(code C.int) error { return fmt.Errorf("CUDA error %d (%v)", int(code), cu.Version()) }

// Devices returns the number of GPUs. Load comes first.
func Devices() (int, error) {
	n, err := cu.NumDevices()
	if err != nil {
		return 0, driver("cudart.Devices", err)
	}
	return n, nil
}

// driver turns an error of gorgonia.org/cu into a fault. Device errors are Lost: the context cannot be used any more.
func driver(op string, err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Lost, op, "CUDA: %w", err).WithHint("see the kernel log for Xid messages; the worker has to start again")
}

// Context is the primary context of one GPU with one stream; cuBLASLt shares it.
type Context struct {
	dev    cu.Device
	ctx    cu.CUContext
	stream cu.Stream
	// Name, Major and Minor describe the GPU.
	Name         string
	Major, Minor int
	// Processors is the number of multiprocessors.
	Processors int
}

// NewContext takes the primary context of GPU number ordinal and makes it current on the calling thread, which must be locked.
// Errors: NotFound, Lost.
func NewContext(ordinal int) (*Context, error) {
	const op = "cudart.NewContext"
	n, err := Devices()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= n {
		return nil, fault.New(fault.NotFound, op, "GPU %d is asked for, there are %d", ordinal, n)
	}
	c := &Context{}
	if c.dev, err = cu.GetDevice(ordinal); err != nil {
		return nil, driver(op, err)
	}
	if c.Name, err = c.dev.Name(); err != nil {
		return nil, driver(op, err)
	}
	for attribute, into := range map[cu.DeviceAttribute]*int{
		cu.ComputeCapabilityMajor: &c.Major, cu.ComputeCapabilityMinor: &c.Minor, cu.MultiprocessorCount: &c.Processors,
	} {
		if *into, err = c.dev.Attribute(attribute); err != nil {
			return nil, driver(op, err)
		}
	}
	if c.ctx, err = c.dev.RetainPrimaryCtx(); err != nil {
		return nil, driver(op, err)
	}
	if err = cu.SetCurrentContext(c.ctx); err == nil {
		c.stream, err = cu.MakeStream(cu.NonBlocking)
	}
	if err != nil {
		_ = c.dev.ReleasePrimaryCtx()
		return nil, driver(op, err)
	}
	return c, nil
}

// Close destroys the stream and gives the context back. Memory that is still allocated stays with the process.
func (c *Context) Close() error {
	err := c.stream.Destroy()
	if e := c.dev.ReleasePrimaryCtx(); err == nil {
		err = e
	}
	return driver("cudart.Close", err)
}

// Arch is the name of the GPU's architecture for NVRTC, for example sm_90.
func (c *Context) Arch() string { return fmt.Sprintf("sm_%d%d", c.Major, c.Minor) }

// MemInfo returns free and total device memory in bytes.
func (c *Context) MemInfo() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, driver("cudart.MemInfo", err)
}

// Ptr is an address in device memory, 0 for none.
type Ptr uint64

// Add returns p moved by n bytes.
func (p Ptr) Add(n int) Ptr { return p + Ptr(n) } //nolint:gosec // offsets are >= 0

// Alloc allocates n bytes, not initialised. Errors: Exhausted, Lost.
func (c *Context) Alloc(n int) (Ptr, error) {
	p, err := cu.MemAlloc(int64(max(n, 1)))
	if err == cu.OutOfMemory {
		have := ""
		if free, total, err := cu.MemInfo(); err == nil {
			const gib = 1 << 30
			have = fmt.Sprintf(" (%.2f GiB of %.1f are)", float64(free)/gib, float64(total)/gib)
		}
		return 0, fault.New(fault.Exhausted, "cudart.Alloc", "%d bytes of GPU memory are not free%s", n, have).
			WithHint("lower the batch or the size of the cache, or end what else holds memory on this GPU (nvidia-smi names it)")
	}
	return Ptr(p), driver("cudart.Alloc", err)
}

// Free returns memory of Alloc; 0 is ignored.
func (c *Context) Free(p Ptr) error {
	if p == 0 {
		return nil
	}
	return driver("cudart.Free", cu.MemFree(cu.DevicePtr(p)))
}

// Zero clears n bytes on the stream.
func (c *Context) Zero(p Ptr, n int) error {
	if n == 0 {
		return nil
	}
	return driver("cudart.Zero", cu.MemsetD8Async(cu.DevicePtr(p), 0, int64(n), c.stream))
}

// Element is what can be copied.
type Element interface {
	~uint8 | ~uint16 | ~int32 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Upload copies src to dst on the stream; src may be reused when it returns, because pageable memory is staged first.
func Upload[T Element](c *Context, dst Ptr, src []T) error {
	if len(src) == 0 {
		return nil
	}
	n := int64(len(src)) * int64(unsafe.Sizeof(src[0]))
	return driver("cudart.Upload", cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(&src[0]), n, c.stream))
}

// Download waits for the stream and copies from src.
func Download[T Element](c *Context, dst []T, src Ptr) error {
	if err := c.Sync(); err != nil || len(dst) == 0 {
		return err
	}
	n := int64(len(dst)) * int64(unsafe.Sizeof(dst[0]))
	return driver("cudart.Download", cu.MemcpyDtoH(unsafe.Pointer(&dst[0]), cu.DevicePtr(src), n))
}

// Sync waits until everything on the stream is done; errors of kernels appear here.
func (c *Context) Sync() error { return driver("cudart.Sync", c.stream.Synchronize()) }

// Module is loaded code.
type Module struct{ m cu.Module }

// LoadModule loads a cubin or PTX.
func (c *Context) LoadModule(image []byte) (*Module, error) {
	m, err := cu.LoadData(string(image))
	if err != nil {
		return nil, driver("cudart.LoadModule", err)
	}
	return &Module{m}, nil
}

// Unload frees the code.
func (m *Module) Unload() error { return driver("cudart.Unload", m.m.Unload()) }

// Function is one kernel.
type Function struct {
	f    cu.Function
	name string
}

// Function looks a kernel up. shared, if above 48 KB, is the dynamic shared memory that launches will ask for, in bytes.
func (m *Module) Function(name string, shared int) (*Function, error) {
	f, err := m.m.Function(name)
	if err != nil {
		return nil, driver("cudart.Function", fmt.Errorf("%s: %w", name, err))
	}
	k := &Function{f, name}
	if shared > 48<<10 {
		if code := C.steady_shared(k.handle(), C.int(shared)); code != 0 {
			return nil, driver("cudart.Function", fmt.Errorf("%s with %d bytes of shared memory: %w", name, shared, cuError(C.int(code))))
		}
	}
	return k, nil
}

// handle is the driver's pointer: the binding keeps it as the only word of a struct.
func (f *Function) handle() unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&f.f)) }

// Arg is one argument of a kernel in an 8-byte word, of which the kernel reads as many bytes as its parameter has.
type Arg uint64

// Arguments of kernels.
func (p Ptr) Arg() Arg       { return Arg(p) }
func Int(x int) Arg          { return Arg(uint32(int32(x))) } //nolint:gosec // kernels take 32-bit integers
func Float(x float32) Arg    { return Arg(math.Float32bits(x)) }
func Double(x float64) Arg   { return Arg(math.Float64bits(x)) }
func Uint64Arg(x uint64) Arg { return Arg(x) }
func (c *Context) streamPtr() unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&c.stream))
}

// maxArgs bounds the arguments of a kernel.
const maxArgs = 24

// Launch starts f on a grid of blocks of the given number of threads, with shared bytes of dynamic shared memory. It does not wait.
// It panics when there are more than 24 arguments (caller bug). An empty grid does nothing.
func (c *Context) Launch(f *Function, gridX, gridY, threads, shared int, args ...Arg) error {
	if gridX == 0 || gridY == 0 {
		return nil
	}
	var words [maxArgs]C.uint64_t
	if len(args) > maxArgs {
		panic("cudart: too many kernel arguments")
	}
	for i, a := range args {
		words[i] = C.uint64_t(a)
	}
	code := C.steady_launch(f.handle(), C.unsigned(gridX), C.unsigned(gridY), 1, C.unsigned(threads), C.unsigned(shared), c.streamPtr(), &words[0], C.int(len(args)))
	if code != 0 {
		return driver("cudart.Launch", fmt.Errorf("%s on %dx%d blocks of %d: %w", f.name, gridX, gridY, threads, cuError(C.int(code))))
	}
	return nil
}
