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
static inline void __threadfence() {}
static inline int atomicAdd(int *p, int v) { int old = *p; *p += v; return old; }

template <class T> static inline T __shfl_xor_sync(unsigned, T v, int mask) {
    unsigned long long bits = 0;
    memcpy(&bits, &v, sizeof v);
    bits = emulated_exchange(bits, (threadIdx.x & 31) ^ mask);
    memcpy(&v, &bits, sizeof v);
    return v;
}

template <class T> static inline T __shfl_sync(unsigned, T v, int lane) {
    unsigned long long bits = 0;
    memcpy(&bits, &v, sizeof v);
    bits = emulated_exchange(bits, lane & 31);
    memcpy(&v, &bits, sizeof v);
    return v;
}

// Tensor cores: what prelude.cu writes in assembly for a GPU.
#define STEADY_HOST 1
static inline float emulated_half(unsigned x) { return __uint_as_float(x << 16); }
static inline unsigned emulated_round(float x) {
    unsigned b = __float_as_uint(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return b >> 16 | 0x40u;
    return (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
}
static inline unsigned packPair(float lo, float hi) { return emulated_round(lo) | emulated_round(hi) << 16; }
static inline float power2(float x) { return exp2f(x); }
static inline unsigned lows(unsigned a, unsigned b) { return (a & 0xffffu) | b << 16; }
static inline unsigned highs(unsigned a, unsigned b) { return a >> 16 | (b & 0xffff0000u); }
static inline unsigned transposed(unsigned x) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    unsigned a = __shfl_sync(~0u, x, 4 * (2 * t) + g / 2), b = __shfl_sync(~0u, x, 4 * (2 * t + 1) + g / 2);
    return g % 2 ? highs(a, b) : lows(a, b);
}
static inline void mma16816(float *c, const unsigned *a, unsigned b0, unsigned b1) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float rows[2][16], columns[2][16];
    for (int s = 0; s < 4; s++)
        for (int r = 0; r < 4; r++) { // a[r]: row g + 8 (r & 1), k = 2t + 8 (r >> 1)
            unsigned x = __shfl_sync(~0u, a[r], 4 * g + s);
            rows[r & 1][2 * s + 8 * (r >> 1)] = emulated_half(x & 0xffffu);
            rows[r & 1][2 * s + 8 * (r >> 1) + 1] = emulated_half(x >> 16);
        }
    for (int n = 0; n < 2; n++)
        for (int s = 0; s < 4; s++)
            for (int r = 0; r < 2; r++) {
                unsigned x = __shfl_sync(~0u, r ? b1 : b0, 4 * (2 * t + n) + s);
                columns[n][2 * s + 8 * r] = emulated_half(x & 0xffffu);
                columns[n][2 * s + 8 * r + 1] = emulated_half(x >> 16);
            }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++) c[i] += rows[i >> 1][k] * columns[i & 1][k];
}

template <class... A, size_t... I> static void call(void (*f)(A...), void **p, std::index_sequence<I...>) { f(*(A *)p[I]...); }
template <class... A> static void launch(void (*f)(A...), void **p) { call(f, p, std::index_sequence_for<A...>()); }

// EMULATE(name) exports a kernel for the emulated driver.
#define EMULATE(name) extern "C" void emulate_##name(void **p) { emulated_grid([](void *q) { launch(name, (void **)q); }, p); }
