//go:build cuda

package cudart

/*
#include <stdint.h>
#include <string.h>

// The driver's launch with attributes, in the layout of its documentation.
struct steady_attribute { int id, pad; union { char bytes[64]; int number; } value; };
struct steady_config { unsigned grid[3], block[3], shared; void *stream; struct steady_attribute *attributes; unsigned count; };

static int steady_launch_early(uintptr_t launch, void *f, unsigned gx, unsigned gy, unsigned bx, void *stream, uint64_t *words, int n) {
	void *params[24];
	struct steady_attribute a;
	struct steady_config c = {{gx, gy, 1}, {bx, 1, 1}, 0, stream, &a, 1};
	memset(&a, 0, sizeof a);
	a.id = 6; // programmatic stream serialization
	a.value.number = 1;
	for (int i = 0; i < n; i++) params[i] = &words[i];
	return ((int (*)(struct steady_config *, void *, void **, void **))launch)(&c, f, params, NULL);
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/steadyrl/steady/internal/fault"
)

// driverCalls are functions of the driver that the binding lacks. Those of graphs are 0 where the driver has none, as an emulated one may.
type driverCalls struct {
	hostAlloc, hostFree, downloadAsync                              Proc
	eventCreate, eventRecord, eventSync, eventDestroy, eventElapsed Proc
	begin, end, instantiate, launch, execDestroy, graphDestroy      Proc
	launchEx                                                        Proc // 0 before CUDA 12
	copyAsync                                                       Proc // 0 on an emulated driver
	encodeTiled                                                     Proc // 0 before CUDA 12
}

// extra returns them; Load comes first.
func extra() (*driverCalls, error) {
	loadMu.Lock()
	defer loadMu.Unlock()
	if extraCalls != nil {
		return extraCalls, nil
	}
	l, err := Open(loadedFrom)
	if err != nil {
		return nil, err
	}
	c := &driverCalls{}
	err = l.procs(map[string]*Proc{
		"cuMemAllocHost_v2": &c.hostAlloc, "cuMemFreeHost": &c.hostFree, "cuMemcpyDtoHAsync_v2": &c.downloadAsync, "cuEventCreate": &c.eventCreate,
		"cuEventRecord": &c.eventRecord, "cuEventSynchronize": &c.eventSync, "cuEventDestroy_v2": &c.eventDestroy, "cuEventElapsedTime": &c.eventElapsed,
	})
	if err != nil {
		return nil, err
	}
	if l.procs(map[string]*Proc{
		"cuStreamBeginCapture_v2": &c.begin, "cuStreamEndCapture": &c.end, "cuGraphInstantiateWithFlags": &c.instantiate, "cuGraphLaunch": &c.launch,
		"cuGraphExecDestroy": &c.execDestroy, "cuGraphDestroy": &c.graphDestroy,
	}) != nil {
		c.begin = 0
	}
	if c.launchEx, err = l.Proc("cuLaunchKernelEx"); err != nil {
		c.launchEx = 0
	}
	if c.copyAsync, err = l.Proc("cuMemcpyDtoDAsync_v2"); err != nil {
		c.copyAsync = 0
	}
	if c.encodeTiled, err = l.Proc("cuTensorMapEncodeTiled"); err != nil {
		c.encodeTiled = 0
	}
	extraCalls = c
	return c, nil
}

var (
	extraCalls *driverCalls
	loadedFrom = DriverName
)

func driverCode(op string, code int) error {
	if code == 0 {
		return nil
	}
	return fault.New(fault.Lost, op, "CUDA error %d", code).WithHint("see the kernel log for Xid messages; the worker has to start again")
}

// Pinned is host memory that the GPU copies to while the host goes on.
type Pinned struct{ Memory }

// NewPinned allocates n bytes. Errors: Lost.
func (c *Context) NewPinned(n int) (Pinned, error) {
	e, err := extra()
	if err != nil {
		return Pinned{}, err
	}
	m := NewMemory(8)
	defer m.Free()
	if err := driverCode("cudart.NewPinned", e.hostAlloc.Call(m.Addr(), uintptr(max(n, 1)))); err != nil {
		return Pinned{}, err
	}
	return Pinned{Memory{*(*unsafe.Pointer)(m.p)}}, nil
}

// Release returns pinned memory.
func (p Pinned) Release() error {
	if p.p == nil {
		return nil
	}
	return driverCode("cudart.Release", extraCalls.hostFree.Call(p.Addr()))
}

// DownloadAsync copies n bytes from src on the stream; they are there after an event that is recorded later.
func (c *Context) DownloadAsync(dst Pinned, src Ptr, n int) error {
	if n == 0 {
		return nil
	}
	e, err := extra()
	if err != nil {
		return err
	}
	return driverCode("cudart.DownloadAsync", e.downloadAsync.Call(dst.Addr(), uintptr(src), uintptr(n), uintptr(c.streamPtr())))
}

// Copy copies n bytes of device memory on the stream. Errors: NotFound on an emulated device.
func (c *Context) Copy(dst, src Ptr, n int) error {
	e, err := extra()
	if err != nil {
		return err
	}
	if e.copyAsync == 0 {
		return fault.New(fault.NotFound, "cudart.Copy", "the driver copies nothing on the device")
	}
	return driverCode("cudart.Copy", e.copyAsync.Call(uintptr(dst), uintptr(src), uintptr(n), uintptr(c.streamPtr())))
}

// Event marks a place in the stream.
type Event struct{ handle uintptr }

// NewEvent makes one. Errors: Lost.
func (c *Context) NewEvent() (Event, error) {
	e, err := extra()
	if err != nil {
		return Event{}, err
	}
	m := NewMemory(8)
	defer m.Free()
	err = driverCode("cudart.NewEvent", e.eventCreate.Call(m.Addr(), 0))
	return Event{m.Word(0)}, err
}

// Record places the event behind everything on the stream so far.
func (c *Context) Record(v Event) error {
	return driverCode("cudart.Record", extraCalls.eventRecord.Call(v.handle, uintptr(c.streamPtr())))
}

// Wait returns when the stream has passed the event.
func (v Event) Wait() error { return driverCode("cudart.Wait", extraCalls.eventSync.Call(v.handle)) }

// Since returns the milliseconds of the GPU between two events that it has passed.
func (v Event) Since(before Event) (float32, error) {
	m := NewMemory(8)
	defer m.Free()
	err := driverCode("cudart.Since", extraCalls.eventElapsed.Call(m.Addr(), before.handle, v.handle))
	return *(*float32)(m.p), err
}

// Destroy frees the event.
func (v Event) Destroy() error {
	if v.handle == 0 {
		return nil
	}
	return driverCode("cudart.Destroy", extraCalls.eventDestroy.Call(v.handle))
}

// Graph is a sequence of launches that the driver starts as a whole.
type Graph struct{ exec uintptr }

// Capture records what f puts on the stream instead of running it. The result is nil when the driver has no graphs; then f has not run. f may not
// wait for the stream or allocate.
func (c *Context) Capture(f func() error) (*Graph, error) {
	e, err := extra()
	if err != nil || e.begin == 0 {
		return nil, err
	}
	const threadLocal = 1
	stream := uintptr(c.streamPtr())
	if err := driverCode("cudart.Capture", e.begin.Call(stream, threadLocal)); err != nil {
		return nil, err
	}
	m := NewMemory(16)
	defer m.Free()
	failed := f()
	code := e.end.Call(stream, m.Addr())
	if failed != nil {
		return nil, failed
	}
	if code != 0 {
		return nil, fmt.Errorf("the end of a capture: %w", driverCode("cudart.Capture", code))
	}
	defer e.graphDestroy.Call(m.Word(0))
	if err := driverCode("cudart.Capture", e.instantiate.Call(m.Addr()+8, m.Word(0), 0)); err != nil {
		return nil, err
	}
	return &Graph{m.Word(1)}, nil
}

// Run starts the graph on the stream and does not wait.
func (c *Context) Run(g *Graph) error {
	return driverCode("cudart.Run", extraCalls.launch.Call(g.exec, uintptr(c.streamPtr())))
}

// Destroy frees the graph.
func (g *Graph) Destroy() error {
	if g == nil {
		return nil
	}
	return driverCode("cudart.Destroy", extraCalls.execDestroy.Call(g.exec))
}

// LaunchEarly is Launch for a kernel that waits by itself (griddepcontrol) for the one before it: it may begin while that one ends. Devices before
// Hopper and old drivers start it in order.
func (c *Context) LaunchEarly(f *Function, gridX, gridY, threads int, args ...Arg) error {
	e, err := extra()
	if err != nil {
		return err
	}
	if e.launchEx == 0 || c.Major < 9 {
		return c.Launch(f, gridX, gridY, threads, 0, args...)
	}
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
	code := C.steady_launch_early(C.uintptr_t(e.launchEx), f.handle(), C.unsigned(gridX), C.unsigned(gridY), C.unsigned(threads), c.streamPtr(), &words[0], C.int(len(args)))
	if code != 0 {
		return fmt.Errorf("%s on %dx%d blocks of %d: %w", f.name, gridX, gridY, threads, driverCode("cudart.LaunchEarly", int(code)))
	}
	return nil
}
