// Types and sums that all kernels share. The sources are header-free: NVRTC 11.2 and later compile them without an include path, joined in the
// order of kernels.go. STEADY_BF16 chooses the type of weights, cache and the inputs of matrix products; sums are float32 or wider.
//
// Every kernel computes a row of its output from that row of its input alone, in an order that depends on the model only: results do not
// depend on the batch. Blocks have a multiple of 32 threads. There are no atomic sums of floating-point numbers.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void

#if STEADY_BF16
typedef u16 elem;
__device__ inline float get(elem x) { return __uint_as_float((u32)x << 16); }
// Rounds to nearest, ties to even; NaN stays NaN.
__device__ inline elem put(float x) {
#ifdef STEADY_HOST
    u32 b = __float_as_uint(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (elem)((b >> 16) | 0x40u);
    return (elem)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
#else
    u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
#endif
}
#else
typedef float elem;
__device__ inline float get(elem x) { return x; }
__device__ inline elem put(float x) { return x; }
#endif

// A kernel that may be launched while the one before it ends calls await before it reads or writes what that one touches; it lets the next one begin as soon
// as its own blocks run. Elsewhere both do nothing.
__device__ inline void await() {
#if !defined(STEADY_HOST) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#define FULL 0xffffffffu
#define INF __uint_as_float(0x7f800000u)
#define WARPS 32 // the largest number of warps of a block

__device__ inline float warpSum(float v) {
    for (int i = 16; i > 0; i >>= 1) v += __shfl_xor_sync(FULL, v, i);
    return v;
}

__device__ inline double warpSumDouble(double v) {
    for (int i = 16; i > 0; i >>= 1) v += __shfl_xor_sync(FULL, v, i);
    return v;
}

__device__ inline float warpMax(float v) {
    for (int i = 16; i > 0; i >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL, v, i));
    return v;
}

// blockSum gives every thread the sum of v over the block. scratch has WARPS elements and may be used again at once.
__device__ inline float blockSum(float v, float *scratch) {
    int warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    v = warpSum(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[warp] = v;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < warps; i++) sum += scratch[i];
    return sum;
}

// blockTree is blockSum with a tree over the warps, for large blocks.
__device__ inline float blockTree(float v, float *scratch) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    v = warpSum(v);
    __syncthreads();
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    return warpSum(lane < warps ? scratch[lane] : 0.0f);
}

__device__ inline float blockMax(float v, float *scratch) {
    int warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    v = warpMax(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[warp] = v;
    __syncthreads();
    float top = scratch[0];
    for (int i = 1; i < warps; i++) top = fmaxf(top, scratch[i]);
    return top;
}

__device__ inline float blockMin(float v, float *scratch) { return -blockMax(-v, scratch); }

__device__ inline double blockSumDouble(double v, double *scratch) {
    int warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    v = warpSumDouble(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[warp] = v;
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < warps; i++) sum += scratch[i];
    return sum;
}

#if STEADY_BF16
// Tensor cores, in terms that the host knows too (testdata/emulator.h defines STEADY_HOST and these functions).
#ifndef STEADY_HOST
// packPair rounds two numbers to BF16, the first in the lower half.
__device__ inline u32 packPair(float lo, float hi) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
__device__ inline float power2(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
// lows and highs join the lower or the upper halves of two words, the first below.
__device__ inline u32 lows(u32 a, u32 b) { return __byte_perm(a, b, 0x5410); }
__device__ inline u32 highs(u32 a, u32 b) { return __byte_perm(a, b, 0x7632); }
// transposed exchanges two numbers of a lane each, lane 4g+t holding columns 2t and 2t+1 of row g of 8 x 8, so that it holds them of the transposed matrix.
__device__ inline u32 transposed(u32 x) {
    u32 r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
    return r;
}
// mma16816 adds a [16,16] b [16,8] to c; the lanes hold them as the instruction of that shape says.
__device__ inline void mma16816(float *c, const u32 *a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
#endif
