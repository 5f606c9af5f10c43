// Lets a C++ compiler of the host build the kernels: a block runs as fibers on one thread, which change places at barriers and
// shuffles. It knows what the kernels use and no more. It is a check of the kernels' logic, not of a GPU.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

struct Dim { unsigned x, y, z; };
extern "C" Dim threadIdx, blockIdx, blockDim, gridDim;
// The fiber library is in the emulated driver.
extern "C" void emulated_barrier();
extern "C" unsigned long long emulated_exchange(unsigned long long value, int from);
extern "C" void emulated_grid(void (*body)(void *), void *params);

#define __global__
#define __device__
#define __shared__ static
#define __syncthreads emulated_barrier

using std::max;
using std::min;

static inline unsigned __float_as_uint(float x) { unsigned u; memcpy(&u, &x, 4); return u; }
static inline float __uint_as_float(unsigned u) { float x; memcpy(&x, &u, 4); return x; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline int atomicAdd(int *p, int v) { int old = *p; *p += v; return old; }

template <class T> static inline T __shfl_xor_sync(unsigned, T v, int mask) {
    unsigned long long bits = 0;
    memcpy(&bits, &v, sizeof v);
    bits = emulated_exchange(bits, (threadIdx.x & 31) ^ mask);
    memcpy(&v, &bits, sizeof v);
    return v;
}

template <class... A, size_t... I> static void call(void (*f)(A...), void **p, std::index_sequence<I...>) { f(*(A *)p[I]...); }
template <class... A> static void launch(void (*f)(A...), void **p) { call(f, p, std::index_sequence_for<A...>()); }

// EMULATE(name) exports a kernel for the emulated driver.
#define EMULATE(name) extern "C" void emulate_##name(void **p) { emulated_grid([](void *q) { launch(name, (void **)q); }, p); }
