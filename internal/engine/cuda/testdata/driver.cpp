// An emulated CUDA driver for tests: one device whose memory is the host's and whose modules are shared libraries made with emulator.h. The image of
// a module is the path of its library.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#if !defined(__x86_64__)
#error "the fibers are written for x86-64"
#endif

struct Dim { unsigned x, y, z; };
extern "C" {
Dim threadIdx, blockIdx, blockDim, gridDim;
}

namespace {

// A fiber is a thread of a block. Switching saves the registers that a call must keep.
struct Fiber {
    void *sp = nullptr;
    bool ended = false;
    unsigned long long value[2] = {0, 0};
    unsigned turn = 0;
    char *stack = nullptr;
};

constexpr size_t stackBytes = 64 << 10;
std::vector<Fiber> fibers;
void *mainSP;
unsigned current;
void (*body)(void *);
void *bodyParams;

extern "C" void emulated_switch(void **save, void *to);
__asm__(
    ".globl emulated_switch\nemulated_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

void yield() {
    unsigned me = current;
    emulated_switch(&fibers[me].sp, mainSP);
}

// A meeting lets nobody on before all of its fibers that still run are there.
struct Meeting {
    unsigned alive, arrived, generation;

    void release() {
        if (arrived == 0 || arrived < alive) return;
        arrived = 0;
        generation++;
    }
    void wait() {
        unsigned mine = generation;
        arrived++;
        release();
        while (generation == mine) yield();
    }
    void leave() {
        alive--;
        release();
    }
};

Meeting blockMeeting, warpMeeting[32];
std::mutex device;  // one grid at a time: the variables above belong to it

void enter() {
    body(bodyParams);
    fibers[current].ended = true;
    blockMeeting.leave();
    warpMeeting[current / 32].leave();
    void *unused;
    emulated_switch(&unused, mainSP);
    abort();
}

void runBlock() {
    unsigned n = blockDim.x;
    if (fibers.size() < n) fibers.resize(n);
    for (unsigned i = 0; i < n; i++) {
        Fiber &f = fibers[i];
        if (!f.stack) f.stack = (char *)malloc(stackBytes);
        void **sp = (void **)(f.stack + stackBytes);
        *--sp = nullptr; // keeps the alignment that a call gives
        *--sp = (void *)enter;
        sp -= 6;
        memset(sp, 0, 6 * sizeof *sp);
        f.sp = sp;
        f.ended = false;
        f.turn = 0;
    }
    blockMeeting = {n, 0, 0};
    for (unsigned i = 0; i < n / 32; i++) warpMeeting[i] = {32, 0, 0};
    for (bool alive = true; alive;) {
        alive = false;
        for (current = 0; current < n; current++) {
            if (fibers[current].ended) continue;
            threadIdx.x = current;
            emulated_switch(&mainSP, fibers[current].sp);
            alive = alive || !fibers[current].ended;
        }
    }
}

int handle;

}  // namespace

// What is allocated. Where EMULATED_MEMORY is set, so many bytes are the device's memory; else there is no limit, and 256 MiB seem free.
std::mutex memory;
std::map<unsigned long long, size_t> sizes;
size_t taken;

size_t memoryLimit() {
    const char *s = getenv("EMULATED_MEMORY");
    return s && *s ? strtoull(s, nullptr, 10) : 0;
}

extern "C" {

void emulated_barrier() { blockMeeting.wait(); }

// A shuffle is one meeting, after which all values are there; the next one uses the other place, so that nobody overwrites what is still to be read.
unsigned long long emulated_exchange(unsigned long long value, int lane) {
    unsigned me = current, turn = fibers[me].turn ^= 1;
    fibers[me].value[turn] = value;
    warpMeeting[me / 32].wait();
    return fibers[(me & ~31u) | (unsigned)lane].value[turn];
}

void emulated_grid(void (*f)(void *), void *params) {
    body = f;
    bodyParams = params;
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) runBlock();
}

typedef unsigned long long ptr;

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int *v) { return *v = 12000, 0; }
int cuDeviceGetCount(int *n) { return *n = 1, 0; }
int cuDeviceGet(int *d, int) { return *d = 0, 0; }
int cuDeviceGetName(char *name, int len, int) { return snprintf(name, (size_t)len, "emulated"), 0; }
int cuDeviceGetAttribute(int *v, int a, int) { return *v = a == 75 ? 8 : a == 76 ? 0 : 1, 0; }
int cuDevicePrimaryCtxRetain(void **c, int) { return *c = (void *)&handle, 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void *) { return 0; }
int cuStreamCreate(void **s, unsigned) { return *s = (void *)&handle, 0; }
int cuStreamDestroy_v2(void *) { return 0; }
int cuStreamSynchronize(void *) { return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) {
    std::lock_guard<std::mutex> hold(memory);
    size_t limit = memoryLimit();
    *t = limit ? limit : 1 << 28;
    *f = !limit ? *t : limit > taken ? limit - taken : 0;
    return 0;
}
int cuMemFree_v2(ptr p) {
    std::lock_guard<std::mutex> hold(memory);
    auto it = sizes.find(p);
    if (it == sizes.end()) return 1;
    taken -= it->second;
    sizes.erase(it);
    return free((void *)p), 0;
}
int cuMemcpyHtoDAsync_v2(ptr d, const void *s, size_t n, void *) { return memcpy((void *)d, s, n), 0; }
int cuMemcpyDtoH_v2(void *d, ptr s, size_t n) { return memcpy(d, (void *)s, n), 0; }
int cuMemcpyDtoHAsync_v2(void *d, ptr s, size_t n, void *) { return memcpy(d, (void *)s, n), 0; }
int cuMemAllocHost_v2(void **p, size_t n) { return *p = malloc(n), *p ? 0 : 2; }
int cuMemFreeHost(void *p) { return free(p), 0; }
int cuEventCreate(void **e, unsigned) { return *e = (void *)&handle, 0; }
int cuEventRecord(void *, void *) { return 0; }
int cuEventSynchronize(void *) { return 0; }
int cuEventDestroy_v2(void *) { return 0; }
int cuEventElapsedTime(float *ms, void *, void *) { return *ms = 1, 0; }
int cuMemsetD8Async(ptr d, unsigned char v, size_t n, void *) { return memset((void *)d, v, n), 0; }

int cuMemAlloc_v2(ptr *p, size_t n) {
    void *m = nullptr;
    std::lock_guard<std::mutex> hold(memory);
    size_t limit = memoryLimit();
    if ((limit && (n > limit || taken > limit - n)) || posix_memalign(&m, 256, n)) return 2;
    sizes[(ptr)m] = n;
    taken += n;
    memset(m, 0xff, n);  // NaN: reading what nobody wrote shows
    *p = (ptr)m;
    return 0;
}

int cuModuleLoadData(void **m, const void *image) {
    *m = dlopen((const char *)image, RTLD_NOW | RTLD_LOCAL);
    if (!*m) return fprintf(stderr, "emulated driver: %s\n", dlerror()), 200;
    return 0;
}
int cuModuleUnload(void *) { return 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) {
    *f = dlsym(m, ("emulate_" + std::string(name)).c_str());
    return *f ? 0 : 500;
}
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, void *, void **params, void **) {
    if (gz != 1 || by != 1 || bz != 1 || bx == 0 || bx > 1024 || bx % 32 || gx == 0 || gy == 0 || gy > 65535) return 1;
    std::lock_guard<std::mutex> lock(device);
    gridDim = {gx, gy, 1};
    blockDim = {bx, 1, 1};
    ((void (*)(void **))f)(params);
    return 0;
}
}
