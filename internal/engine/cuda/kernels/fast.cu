// Fused kernels of the fast training step: values between products are BF16 whatever the precision of the build, the residual stream, its gradient and
// all sums are float32. Heads are 128 wide, other widths multiples of 8. Each output has one writer and one order of summation.

struct alignas(16) Half8 {
    u32 w[4];
};
struct alignas(8) Half4 {
    u32 w[2];
};
struct alignas(16) Float4 {
    float v[4];
};

#define FASTD 128      // width of a head
#define GROUP 16       // threads of a head, 8 elements each
#define GROUPS 32      // groups of a block
#define NORM_PARTS 2   // times blockDim.x * 4 elements is the widest row of a norm
#define GRAD_ROWS 16   // rows whose parts of a norm's gradient are summed by one block

// halves rounds two numbers to BF16, ties to even; the first is the lower half.
__device__ inline u32 halves(float lo, float hi) {
#ifdef __CUDACC_RTC__
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(hi), "f"(lo));
    return both;
#else
    u32 out[2], bits[2] = {__float_as_uint(lo), __float_as_uint(hi)};
    for (int i = 0; i < 2; i++)
        out[i] = (bits[i] & 0x7fffffffu) > 0x7f800000u ? (bits[i] >> 16) | 0x40u : (bits[i] + 0x7fffu + ((bits[i] >> 16) & 1u)) >> 16;
    return out[0] | out[1] << 16;
#endif
}

__device__ inline float lower(u32 w) { return __uint_as_float(w << 16); }
__device__ inline float upper(u32 w) { return __uint_as_float(w & 0xffff0000u); }
__device__ inline float fromHalf(u16 x) { return __uint_as_float((u32)x << 16); }
__device__ inline u16 toHalf(float x) { return (u16)halves(x, 0.0f); }

__device__ inline void spread8(float *to, Half8 e) {
#pragma unroll
    for (int i = 0; i < 4; i++) to[2 * i] = lower(e.w[i]), to[2 * i + 1] = upper(e.w[i]);
}

__device__ inline Half8 pack8(const float *x) {
    Half8 e;
#pragma unroll
    for (int i = 0; i < 4; i++) e.w[i] = halves(x[2 * i], x[2 * i + 1]);
    return e;
}

__device__ inline void spread4(float *to, Half4 e) {
    to[0] = lower(e.w[0]), to[1] = upper(e.w[0]), to[2] = lower(e.w[1]), to[3] = upper(e.w[1]);
}

__device__ inline Half4 pack4(const float *x) {
    Half4 e;
    e.w[0] = halves(x[0], x[1]), e.w[1] = halves(x[2], x[3]);
    return e;
}

// blockSum2 is blockSum for two numbers at once; scratch has 2 WARPS elements.
__device__ inline void blockSum2(float *a, float *b, float *scratch) {
    int warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    float x = warpSum(*a), y = warpSum(*b);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[warp] = x, scratch[WARPS + warp] = y;
    __syncthreads();
    x = y = 0;
    for (int i = 0; i < warps; i++) x += scratch[i], y += scratch[WARPS + i];
    *a = x, *b = y;
}

// fnorm writes xout = xin + delta (unless xout is null; delta may be null) and y = w xout / sqrt(mean(xout^2) + eps), unless y is null. Row i of y is row map[i] of
// the others, or row i. One block a row.
KERNEL fnorm(u16 *y, float *xout, const float *xin, const u16 *delta, const float *w, const int *map, int c, float eps) {
    __shared__ float scratch[WARPS];
    u64 row = map ? map[blockIdx.x] : blockIdx.x;
    const Float4 *in = (const Float4 *)(xin + row * c);
    int n = c / 4;
    Float4 x[NORM_PARTS];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < NORM_PARTS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        if (i >= n) break;
        x[k] = in[i];
        if (delta) {
            float d[4];
            spread4(d, ((const Half4 *)(delta + row * c))[i]);
#pragma unroll
            for (int e = 0; e < 4; e++) x[k].v[e] += d[e];
        }
        if (xout) ((Float4 *)(xout + row * c))[i] = x[k];
#pragma unroll
        for (int e = 0; e < 4; e++) sum = fmaf(x[k].v[e], x[k].v[e], sum);
    }
    if (!y) return;
    float r = 1.0f / sqrtf(blockSum(sum, scratch) / (float)c + eps);
#pragma unroll
    for (int k = 0; k < NORM_PARTS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        if (i >= n) break;
        Float4 g = ((const Float4 *)w)[i];
        float out[4];
#pragma unroll
        for (int e = 0; e < 4; e++) out[e] = x[k].v[e] * r * g.v[e];
        ((Half4 *)(y + (u64)blockIdx.x * c))[i] = pack4(out);
    }
}

// fnormgrad is normgrad for dn in BF16, and dy = dx as BF16 (unless dy is null); part [blocks,c] gets the sum of each block's rows' parts of w's gradient.
KERNEL fnormgrad(float *dx, u16 *dy, const u16 *dn, const float *x, const float *w, const int *map, float *part, int rows, int c, float eps) {
    __shared__ float scratch[2 * WARPS];
    int n = c / 4;
    Float4 wv[NORM_PARTS], acc[NORM_PARTS];
#pragma unroll
    for (int k = 0; k < NORM_PARTS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        for (int e = 0; e < 4; e++) acc[k].v[e] = 0;
        if (i < n) wv[k] = ((const Float4 *)w)[i];
    }
    int end = min(rows, ((int)blockIdx.x + 1) * GRAD_ROWS), first = blockIdx.x * GRAD_ROWS;
    // The next row is on its way while the sums of one are made.
    Float4 nextV[NORM_PARTS], nextD[NORM_PARTS];
    Half4 nextG[NORM_PARTS];
    u64 nextRow = map ? map[first] : first;
#pragma unroll
    for (int k = 0; k < NORM_PARTS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        if (i >= n) break;
        nextV[k] = ((const Float4 *)(x + nextRow * c))[i];
        nextG[k] = ((const Half4 *)(dn + (u64)first * c))[i];
        nextD[k] = ((const Float4 *)(dx + nextRow * c))[i];
    }
    for (int at = first; at < end; at++) {
        u64 row = nextRow;
        Float4 v[NORM_PARTS], d[NORM_PARTS];
        float g[NORM_PARTS][4], sum = 0, dot = 0;
#pragma unroll
        for (int k = 0; k < NORM_PARTS; k++) {
            int i = threadIdx.x + k * blockDim.x;
            if (i >= n) break;
            v[k] = nextV[k];
            d[k] = nextD[k];
            spread4(g[k], nextG[k]);
        }
        if (at + 1 < end) {
            nextRow = map ? map[at + 1] : at + 1;
#pragma unroll
            for (int k = 0; k < NORM_PARTS; k++) {
                int i = threadIdx.x + k * blockDim.x;
                if (i >= n) break;
                nextV[k] = ((const Float4 *)(x + nextRow * c))[i];
                nextG[k] = ((const Half4 *)(dn + (u64)(at + 1) * c))[i];
                nextD[k] = ((const Float4 *)(dx + nextRow * c))[i];
            }
        }
#pragma unroll
        for (int k = 0; k < NORM_PARTS; k++) {
            int i = threadIdx.x + k * blockDim.x;
            if (i >= n) break;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                sum = fmaf(v[k].v[e], v[k].v[e], sum);
                dot = fmaf(wv[k].v[e] * g[k][e], v[k].v[e], dot);
            }
        }
        blockSum2(&sum, &dot, scratch);
        float r = 1.0f / sqrtf(sum / (float)c + eps), q = dot * r * r / (float)c;
#pragma unroll
        for (int k = 0; k < NORM_PARTS; k++) {
            int i = threadIdx.x + k * blockDim.x;
            if (i >= n) break;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                d[k].v[e] += r * (wv[k].v[e] * g[k][e] - v[k].v[e] * q);
                acc[k].v[e] = fmaf(g[k][e], v[k].v[e] * r, acc[k].v[e]);
            }
            ((Float4 *)(dx + row * c))[i] = d[k];
            if (dy) ((Half4 *)(dy + row * c))[i] = pack4(d[k].v);
        }
    }
#pragma unroll
    for (int k = 0; k < NORM_PARTS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        if (i < n) ((Float4 *)(part + (u64)blockIdx.x * c))[i] = acc[k];
    }
}

// fcolsum adds the sums of the c columns of part [n,ld] to out. Grid: blocks of 32 columns, 256 threads.
KERNEL fcolsum(float *out, const float *part, int n, int c, int ld) {
    __shared__ float sums[8][32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, col = blockIdx.x * 32 + lane;
    float sum = 0;
    if (col < c) {
#pragma unroll 8
        for (int i = warp; i < n; i += 8) sum += part[(u64)i * ld + col];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || col >= c) return;
    sum = 0;
    for (int i = 0; i < 8; i++) sum += sums[i][lane];
    out[col] += sum;
}

// fheads writes the normalised and rotated queries q [rows, heads 128] and keys k [rows, kv 128] from qkv [rows, (heads+2 kv) 128]; values stay where they
// are. One block of an even number of groups a row, 16 threads a head.
KERNEL fheads(u16 *q, u16 *k, const u16 *qkv, const float *qw, const float *kw, const float *cosine, const float *sine, const int *position, int nheads, int kv,
              float eps) {
    int row = blockIdx.x, group = threadIdx.x / GROUP, lane = threadIdx.x % GROUP, high = lane / 8, groups = blockDim.x / GROUP, all = nheads + kv;
    u64 at = (u64)row * (nheads + 2 * kv) * FASTD;
    const float *cs = cosine + (u64)position[row] * (FASTD / 2) + lane % 8 * 8, *ss = sine + (u64)position[row] * (FASTD / 2) + lane % 8 * 8;
    float co[8], si[8];
#pragma unroll
    for (int e = 0; e < 8; e++) co[e] = cs[e], si[e] = ss[e];
    for (int h0 = 0; h0 < all; h0 += groups) {
        int h = min(h0 + group, all - 1);
        const float *w = (h < nheads ? qw : kw) + lane * 8;
        float x[8], sum = 0;
        spread8(x, ((const Half8 *)(qkv + at + h * FASTD))[lane]);
#pragma unroll
        for (int e = 0; e < 8; e++) sum = fmaf(x[e], x[e], sum);
        for (int m = GROUP / 2; m > 0; m >>= 1) sum += __shfl_xor_sync(FULL, sum, m);
        float r = 1.0f / sqrtf(sum / (float)FASTD + eps);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float y = x[e] * r * w[e], other = __shfl_xor_sync(FULL, y, 8);
            x[e] = high ? y * co[e] + other * si[e] : y * co[e] - other * si[e];
        }
        if (h0 + group >= all) continue;
        u16 *to = h < nheads ? q + ((u64)row * nheads + h) * FASTD : k + ((u64)row * kv + h - nheads) * FASTD;
        ((Half8 *)to)[lane] = pack8(x);
    }
}

// fheadsgrad turns the gradients of queries and keys in dqkv [rows, (heads+2 kv) 128] into those of the projections qkv, in place; part [blocks,256] gets
// each block's sum of the gradients of the two norms' weights. One block of at most GROUPS groups has GRAD_ROWS rows.
KERNEL fheadsgrad(u16 *dqkv, const u16 *qkv, const float *qw, const float *kw, const float *cosine, const float *sine, const int *position, float *part, int rows,
                  int nheads, int kv, float eps) {
    __shared__ float sums[GROUPS][2 * FASTD];
    int group = threadIdx.x / GROUP, lane = threadIdx.x % GROUP, high = lane / 8, groups = blockDim.x / GROUP, all = nheads + kv;
    float forQ[8], forK[8];
    for (int e = 0; e < 8; e++) forQ[e] = forK[e] = 0;
    int end = min(rows, ((int)blockIdx.x + 1) * GRAD_ROWS);
    for (int row = blockIdx.x * GRAD_ROWS; row < end; row++) {
        u64 at = (u64)row * (nheads + 2 * kv) * FASTD;
        const float *cs = cosine + (u64)position[row] * (FASTD / 2) + lane % 8 * 8, *ss = sine + (u64)position[row] * (FASTD / 2) + lane % 8 * 8;
        float co[8], si[8];
#pragma unroll
        for (int e = 0; e < 8; e++) co[e] = cs[e], si[e] = ss[e];
        for (int h0 = 0; h0 < all; h0 += groups) {
            int h = min(h0 + group, all - 1);
            const float *w = (h < nheads ? qw : kw) + lane * 8;
            float x[8], g[8], sum = 0, dot = 0;
            spread8(x, ((const Half8 *)(qkv + at + h * FASTD))[lane]);
            spread8(g, ((const Half8 *)(dqkv + at + h * FASTD))[lane]);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                float other = __shfl_xor_sync(FULL, g[e], 8);
                g[e] = high ? g[e] * co[e] - other * si[e] : g[e] * co[e] + other * si[e];
                sum = fmaf(x[e], x[e], sum);
                dot = fmaf(w[e] * g[e], x[e], dot);
            }
            for (int m = GROUP / 2; m > 0; m >>= 1) sum += __shfl_xor_sync(FULL, sum, m), dot += __shfl_xor_sync(FULL, dot, m);
            float r = 1.0f / sqrtf(sum / (float)FASTD + eps), k = dot * r * r / (float)FASTD, out[8];
#pragma unroll
            for (int e = 0; e < 8; e++) out[e] = r * (w[e] * g[e] - x[e] * k);
            if (h0 + group >= all) continue;
            ((Half8 *)(dqkv + at + h * FASTD))[lane] = pack8(out);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                if (h < nheads) forQ[e] = fmaf(g[e], x[e] * r, forQ[e]);
                else forK[e] = fmaf(g[e], x[e] * r, forK[e]);
            }
        }
    }
#pragma unroll
    for (int e = 0; e < 8; e++) sums[group][lane * 8 + e] = forQ[e], sums[group][FASTD + lane * 8 + e] = forK[e];
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * FASTD; i += blockDim.x) {
        float sum = 0;
        for (int j = 0; j < groups; j++) sum += sums[j][i];
        part[(u64)blockIdx.x * 2 * FASTD + i] = sum;
    }
}

// fsilu writes h [rows,f] = silu(gate) up from gu [rows, 2 f]. One block a row.
KERNEL fsilu(u16 *h, const u16 *gu, int f) {
    const Half8 *gate = (const Half8 *)(gu + (u64)blockIdx.x * 2 * f), *up = (const Half8 *)(gu + (u64)blockIdx.x * 2 * f + f);
    Half8 *to = (Half8 *)(h + (u64)blockIdx.x * f);
    for (int i = threadIdx.x; i < f / 8; i += blockDim.x) {
        float g[8], u[8];
        spread8(g, gate[i]);
        spread8(u, up[i]);
#pragma unroll
        for (int e = 0; e < 8; e++) g[e] = g[e] / (1.0f + expf(-g[e])) * u[e];
        to[i] = pack8(g);
    }
}

// fsilugrad writes dgu [rows, 2 f], the gradient of gu, from dh [rows,f], and h as fsilu does. One block a row.
KERNEL fsilugrad(u16 *dgu, u16 *h, const u16 *dh, const u16 *gu, int f) {
    u64 at = (u64)blockIdx.x * 2 * f;
    for (int i = threadIdx.x; i < f / 8; i += blockDim.x) {
        float g[8], u[8], d[8], y[8];
        spread8(g, ((const Half8 *)(gu + at))[i]);
        spread8(u, ((const Half8 *)(gu + at + f))[i]);
        spread8(d, ((const Half8 *)(dh + (u64)blockIdx.x * f))[i]);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float s = 1.0f / (1.0f + expf(-g[e])), z = g[e] * s;
            y[e] = g[e] / (1.0f + expf(-g[e])) * u[e];
            u[e] = d[e] * u[e] * s * (1.0f + g[e] * (1.0f - s));
            d[e] *= z;
        }
        ((Half8 *)(dgu + at))[i] = pack8(u);
        ((Half8 *)(dgu + at + f))[i] = pack8(d);
        ((Half8 *)(h + (u64)blockIdx.x * f))[i] = pack8(y);
    }
}

// Tail is a running sum of exponentials below a largest value, and of exponentials times the distance to it.
struct Tail {
    float top;
    double sum, weight;
};

__device__ inline void raise(Tail *t, float top) {
    if (!(top > t->top)) return;
    if (t->top > -INF) {
        double down = exp((double)(t->top - top));
        t->weight = (t->weight + t->sum * (double)(t->top - top)) * down;
        t->sum *= down;
    }
    t->top = top;
}

// gather adds exponentials of n numbers; those of -INF are 0. They are at most the largest.
template <int N> __device__ inline void gather(Tail *t, const float *v) {
    float sum = 0, weight = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        bool in = v[i] > -INF;
        float d = in ? v[i] - t->top : 0.0f, e = in ? expf(d) : 0.0f;
        sum += e;
        weight = fmaf(e, d, weight);
    }
    t->sum += sum;
    t->weight += weight;
}

// WIDE numbers of a row of logits are read by a thread at a time, 4 and 4.
#define WIDE 16

// floss is loss in two passes over the logits z [rows,vocab] instead of six: the first finds the largest and both sums at once, the second writes the gradient dz
// (BF16). The record's logits are taken aside first, and -INF stands at their places in z. vocab is a multiple of 4.
KERNEL floss(u16 *dz, TokenStats *stats, double *head, float *z0, const Target *targets, const int *ids, const float *logQ, int vocab, int k, int supervised,
             int centering, int rule, double cap, double lo, double hi) {
    __shared__ float scratch[WARPS];
    __shared__ double wide[WARPS];
    float *z = z0 + (u64)blockIdx.x * vocab;
    u16 *out = dz + (u64)blockIdx.x * vocab;
    Target t = targets[blockIdx.x];
    TokenStats *st = stats + blockIdx.x;
    Rule o = {rule, cap, lo, hi};
    ids += (u64)blockIdx.x * k;
    logQ += (u64)blockIdx.x * k;
    double *h = head + (u64)blockIdx.x * k;
    float outside = 1, odd = 0, zt = z[t.token] * t.inverse, top = zt;
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        float v = z[ids[i]] * t.inverse;
        h[i] = v;
        if (!(fabsf(v) < INF)) odd = 1;
        top = fmaxf(top, v);
        if (ids[i] == t.token) outside = 0;
    }
    if (!(fabsf(zt) < INF)) odd = 1;
    odd = blockMax(odd, scratch);
    outside = blockMin(outside, scratch);
    __syncthreads();
    for (int i = threadIdx.x; i < k; i += blockDim.x) z[ids[i]] = -INF;
    __syncthreads();
    Tail part = {-INF, 0, 0};
    float gone = 0;
    for (int i0 = threadIdx.x; i0 < vocab / 4; i0 += WIDE / 4 * blockDim.x) {
        float v[WIDE], most = -INF;
#pragma unroll
        for (int j = 0; j < WIDE / 4; j++) {
            int i = i0 + j * blockDim.x;
            Float4 four = {{-INF, -INF, -INF, -INF}};
            if (i < vocab / 4) four = ((const Float4 *)z)[i];
            else gone -= 4;
#pragma unroll
            for (int e = 0; e < 4; e++) v[4 * j + e] = four.v[e] * t.inverse;
        }
#pragma unroll
        for (int e = 0; e < WIDE; e++) {
            if (!(fabsf(v[e]) < INF)) gone += 1;
            most = fmaxf(most, v[e]);
        }
        raise(&part, most);
        gather<WIDE>(&part, v);
    }
    if (odd > 0 || blockSum(gone, scratch) != (float)k) {
        for (int i = threadIdx.x; i < vocab; i += blockDim.x) out[i] = 0;
        if (threadIdx.x == 0) st->bad = 1;
        return;
    }
    top = blockMax(fmaxf(top, part.top), scratch);
    raise(&part, top);
    double total = blockSumDouble(part.sum, wide), weight = blockSumDouble(part.weight, wide), rest = total;
    Tail own = {top, 0, 0};
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        float v = (float)h[i];
        gather<1>(&own, &v);
    }
    total += blockSumDouble(own.sum, wide);
    weight += blockSumDouble(own.weight, wide);
    float logSum = (float)log(total), logP = zt - top - logSum, eToken = expf(zt - top);
    for (int i = threadIdx.x; i < k; i += blockDim.x) h[i] = (float)h[i] - top - logSum;
    double off, at, lossOf, correction = 0, samplerQ = 0, alpha = 0, tail = 1;
    int floored = 0;
    if (supervised) {
        off = t.advantage;
        at = -(double)t.advantage;
        lossOf = at * logP;
    } else {
        double ratio = exp(fmin(20.0, fmax(-20.0, (double)logP - (double)t.logQ))), scale = 1;
        if (o.rule == 1) scale = ratio < o.cap ? ratio : o.cap;
        if (o.rule == 2) scale = ratio < o.lo || ratio > o.hi ? 0 : ratio;
        if (!centering) {
            off = t.advantage * scale;
            at = -off;
            lossOf = at * logP;
        } else {
            double sum = 0, m = 0;
            tail = rest / total;
            for (int i = threadIdx.x; i < k; i += blockDim.x) {
                double q = exp((double)logQ[i]);
                sum += q;
                m += headMass(o, q, exp(h[i]));
            }
            samplerQ = blockSumDouble(sum, wide);
            m = blockSumDouble(m, wide);
            if (centering == 1) {
                double left = 1 - samplerQ, rho = fmax(left, 1e-6) / fmax(tail, 1e-6);
                floored = left < 1e-6 || tail < 1e-6;
                alpha = rho;
                if (o.rule == 1) alpha = 1 < o.cap * rho ? 1 : o.cap * rho;
                if (o.rule == 2) alpha = 1 < o.lo * rho || 1 > o.hi * rho ? 0 : 1;
                m += alpha * tail;
            }
            double c = 0;
            for (int i = threadIdx.x; i < k; i += blockDim.x) {
                double p = exp(h[i]), mass = headMass(o, exp((double)logQ[i]), p);
                c += (mass - alpha * p) * h[i];
                h[i] = t.advantage * (mass - (m - scale) * p);
            }
            correction = blockSumDouble(c, wide);
            off = -t.advantage * (m - scale - alpha);
            at = -t.advantage * scale;
            lossOf = -t.advantage * (scale * logP - correction);
        }
    }
    float factor = (float)(off * t.factor / total);
    for (int i0 = threadIdx.x; i0 < vocab / 4; i0 += WIDE / 4 * blockDim.x) {
        Float4 v[WIDE / 4];
#pragma unroll
        for (int j = 0; j < WIDE / 4; j++)
            if (i0 + j * blockDim.x < vocab / 4) v[j] = ((const Float4 *)z)[i0 + j * blockDim.x];
#pragma unroll
        for (int j = 0; j < WIDE / 4; j++) {
            if (i0 + j * blockDim.x >= vocab / 4) break;
#pragma unroll
            for (int e = 0; e < 4; e++) v[j].v[e] = expf(v[j].v[e] * t.inverse - top) * factor;
            ((Half4 *)out)[i0 + j * blockDim.x] = pack4(v[j].v);
        }
    }
    __syncthreads();
    // The token's own gradient is written last, from its parts: adding to a rounded one would round twice.
    for (int i = threadIdx.x; i < k; i += blockDim.x) out[ids[i]] = toHalf((float)((h[i] + (ids[i] == t.token ? at : 0.0)) * t.factor));
    if (threadIdx.x != 0) return;
    if (outside > 0) out[t.token] = toHalf(eToken * factor + (float)(at * t.factor));
    st->loss = lossOf;
    st->correction = correction;
    st->logP = logP;
    st->tail = tail;
    st->entropy = log(total) - weight / total;
    st->samplerQ = samplerQ;
    st->alpha = alpha;
    st->floored = floored;
    st->outside = outside > 0;
    st->bad = 0;
}

// The plain kernels of attention over packed sequences, where cuDNN is absent: slow. Row r's sequence begins at row r - position[r].

// fattend writes out [rows, heads 128] and stats [rows,heads], the log of the sum of exponentials. Values have row stride ldv. Grid: rows x heads, 128 threads.
KERNEL fattend(u16 *out, float *stats, const u16 *q, const u16 *k, const u16 *v, const int *position, int nheads, int kv, int ldv, float scale) {
    __shared__ float query[FASTD], p[TILE];
    int row = blockIdx.x, head = blockIdx.y, kvHead = head / (nheads / kv), pos = position[row], first = row - pos, i = threadIdx.x;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    u64 at = ((u64)row * nheads + head) * FASTD;
    query[i] = fromHalf(q[at + i]) * scale;
    float top = -INF, sum = 0, acc = 0;
    for (int t = 0; t <= pos; t += TILE) {
        int n = min(TILE, pos + 1 - t);
        __syncthreads();
        for (int j = warp; j < n; j += warps) {
            const u16 *key = k + ((u64)(first + t + j) * kv + kvHead) * FASTD;
            float s = 0;
            for (int e = lane; e < FASTD; e += 32) s = fmaf(query[e], fromHalf(key[e]), s);
            s = warpSum(s);
            if (lane == 0) p[j] = s;
        }
        __syncthreads();
        float most = top;
        for (int j = 0; j < n; j++) most = fmaxf(most, p[j]);
        float keep = top == -INF ? 0.0f : expf(top - most);
        top = most;
        sum *= keep;
        acc *= keep;
        for (int j = 0; j < n; j++) {
            float e = expf(p[j] - top);
            sum += e;
            acc = fmaf(e, fromHalf(v[(u64)(first + t + j) * ldv + kvHead * FASTD + i]), acc);
        }
    }
    out[at + i] = toHalf(acc / sum);
    if (i == 0) stats[(u64)row * nheads + head] = top + logf(sum);
}

// fattendgradq writes dq, with row stride ldd, and delta [rows,heads], dout out. Grid and threads as for fattend.
KERNEL fattendgradq(u16 *dq, float *delta, const u16 *dout, const u16 *out, const u16 *q, const u16 *k, const u16 *v, const int *position, const float *stats,
                    int nheads, int kv, int ldv, int ldd, float scale) {
    __shared__ float query[FASTD], grad[FASTD], ds[TILE], scratch[WARPS];
    int row = blockIdx.x, head = blockIdx.y, kvHead = head / (nheads / kv), pos = position[row], first = row - pos, i = threadIdx.x;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    u64 at = (u64)row * nheads + head;
    query[i] = fromHalf(q[at * FASTD + i]) * scale;
    grad[i] = fromHalf(dout[at * FASTD + i]);
    float dot = blockSum(grad[i] * fromHalf(out[at * FASTD + i]), scratch), acc = 0;
    if (i == 0) delta[at] = dot;
    for (int t = 0; t <= pos; t += TILE) {
        int n = min(TILE, pos + 1 - t);
        __syncthreads();
        for (int j = warp; j < n; j += warps) {
            const u16 *key = k + ((u64)(first + t + j) * kv + kvHead) * FASTD, *value = v + (u64)(first + t + j) * ldv + kvHead * FASTD;
            float s = 0, dp = 0;
            for (int e = lane; e < FASTD; e += 32) {
                s = fmaf(query[e], fromHalf(key[e]), s);
                dp = fmaf(grad[e], fromHalf(value[e]), dp);
            }
            s = warpSum(s);
            dp = warpSum(dp);
            if (lane == 0) ds[j] = expf(s - stats[at]) * (dp - dot);
        }
        __syncthreads();
        for (int j = 0; j < n; j++) acc = fmaf(ds[j], fromHalf(k[((u64)(first + t + j) * kv + kvHead) * FASTD + i]), acc);
    }
    dq[(u64)row * ldd + head * FASTD + i] = toHalf(acc * scale);
}

// fattendgradkv writes dk and dv, with row stride ldd: for a key, the sum over the later rows of its sequence in order and over the query heads that read it.
// last is the row of the sequence's last token. Grid: rows x kv, 128 threads.
KERNEL fattendgradkv(u16 *dk, u16 *dv, const u16 *dout, const float *delta, const u16 *q, const u16 *k, const u16 *v, const int *sequence, const int *last,
                     const float *stats, int nheads, int kv, int ldv, int ldd, float scale) {
    __shared__ float key[FASTD], value[FASTD], prob[TILE], ds[TILE];
    int row = blockIdx.x, kvHead = blockIdx.y, group = nheads / kv, i = threadIdx.x;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    key[i] = fromHalf(k[((u64)row * kv + kvHead) * FASTD + i]);
    value[i] = fromHalf(v[(u64)row * ldv + kvHead * FASTD + i]);
    float accK = 0, accV = 0;
    int pairs = (last[sequence[row]] - row + 1) * group;
    for (int first = 0; first < pairs; first += TILE) {
        int n = min(TILE, pairs - first);
        __syncthreads();
        for (int j = warp; j < n; j += warps) {
            u64 at = (u64)(row + (first + j) / group) * nheads + kvHead * group + (first + j) % group;
            float s = 0, dp = 0;
            for (int e = lane; e < FASTD; e += 32) {
                s = fmaf(fromHalf(q[at * FASTD + e]) * scale, key[e], s);
                dp = fmaf(fromHalf(dout[at * FASTD + e]), value[e], dp);
            }
            s = warpSum(s);
            dp = warpSum(dp);
            if (lane == 0) {
                prob[j] = expf(s - stats[at]);
                ds[j] = prob[j] * (dp - delta[at]);
            }
        }
        __syncthreads();
        for (int j = 0; j < n; j++) {
            u64 at = ((u64)(row + (first + j) / group) * nheads + kvHead * group + (first + j) % group) * FASTD + i;
            accK = fmaf(ds[j], fromHalf(q[at]), accK);
            accV = fmaf(prob[j], fromHalf(dout[at]), accV);
        }
    }
    dk[(u64)row * ldd + kvHead * FASTD + i] = toHalf(accK * scale);
    dv[(u64)row * ldd + kvHead * FASTD + i] = toHalf(accV);
}

// fnoise writes n numbers in [-scale,scale) that look random, as float32 to x or as BF16 to half: products run faster on zeros, so speed is measured on these.
KERNEL fnoise(float *x, u16 *half, u64 n, float scale, u32 seed) {
    EACH(i);
    if (i >= n) return;
    u32 a = (u32)i * 2654435761u + seed, b = (u32)(i >> 32) + 0x9e3779b9u;
    a ^= b + (a << 6) + (a >> 2);
    a = (a ^ (a >> 16)) * 0x7feb352du;
    a = (a ^ (a >> 15)) * 0x846ca68bu;
    a ^= a >> 16;
    float v = ((float)(a >> 8) / 8388608.0f - 1.0f) * scale;
    if (half) half[i] = toHalf(v);
    else x[i] = v;
}
