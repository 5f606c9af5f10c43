// Kernels of the training step. Each output has one writer and one order of summation, which depends on the shapes only; there are no atomic sums.

// COLUMN rows make one partial sum of a column; CHUNK elements one of the gradient's squares.
#define COLUMN 64
#define CHUNK 65536

// A grid of blocks along x covers n elements, one a thread.
#define EACH(i) u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x

// add writes out = a + b, or a where b is null; n elements.
KERNEL add(float *out, const float *a, const float *b, u64 n) {
    EACH(i);
    if (i < n) out[i] = b ? a[i] + b[i] : a[i];
}

// narrow writes y [rows,ldy] from x [rows,c] as elements; columns from c to ldy become 0. Grid: rows x blocks of columns.
KERNEL narrow(elem *y, const float *x, int c, int ldy) {
    int i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i < ldy) y[(u64)blockIdx.x * ldy + i] = put(i < c ? x[(u64)blockIdx.x * c + i] : 0.0f);
}

// gemmgrad writes y [m,n] = a b, or adds to it, in float32, or writes half [m,n] as elements where that is not null: a(i,k) is at i*ai + k*ak, b(k,j) at j*bj + k*bk; one chain of fused
// multiply-adds an output in the order of k. It serves where cuBLASLt is absent and for float32. Grid and threads as for gemm.
KERNEL gemmgrad(float *y, elem *half, const elem *a, const elem *b, int m, int n, int k, int ldy, int ai, int ak, int bj, int bk, int accumulate) {
    __shared__ float as[DEPTH][SIDE + 1], bs[DEPTH][SIDE + 1];
    int row = blockIdx.y * SIDE, col = blockIdx.x * SIDE, tr = threadIdx.x / 16, tc = threadIdx.x % 16;
    float acc[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) acc[i][j] = 0;
    for (int k0 = 0; k0 < k; k0 += DEPTH) {
        for (int i = threadIdx.x; i < SIDE * DEPTH; i += blockDim.x) {
            // Neighbouring threads read neighbouring elements, whichever way a matrix lies.
            int r = ak == 1 ? i / DEPTH : i % SIDE, c = ak == 1 ? i % DEPTH : i / SIDE;
            as[c][r] = k0 + c < k && row + r < m ? get(a[(u64)(row + r) * ai + (u64)(k0 + c) * ak]) : 0.0f;
            r = bk == 1 ? i / DEPTH : i % SIDE, c = bk == 1 ? i % DEPTH : i / SIDE;
            bs[c][r] = k0 + c < k && col + r < n ? get(b[(u64)(col + r) * bj + (u64)(k0 + c) * bk]) : 0.0f;
        }
        __syncthreads();
        for (int c = 0; c < DEPTH; c++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) acc[i][j] = fmaf(as[c][tr + 16 * i], bs[c][tc + 16 * j], acc[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            if (row + tr + 16 * i >= m || col + tc + 16 * j >= n) continue;
            u64 at = (u64)(row + tr + 16 * i) * ldy + col + tc + 16 * j;
            if (half) {
                half[at] = put(acc[i][j]);
                continue;
            }
            float *to = y + at;
            *to = accumulate ? *to + acc[i][j] : acc[i][j];
        }
}

// normgrad adds to dx [.,c] the gradient of the norm's input x [.,c] and replaces dn [rows,ldn], the gradient of its output, by each row's part of the
// gradient of w: with r = 1/rms, dx_i += r (w_i dn_i - x_i r^2 sum_j(w_j dn_j x_j) / c). Row i of dn is row map[i] of x and dx, or row i. One block a row.
KERNEL normgrad(float *dx, float *dn, const float *x, const float *w, const int *map, int c, int ldn, float eps) {
    __shared__ float scratch[WARPS];
    u64 row = map ? map[blockIdx.x] : blockIdx.x;
    const float *in = x + row * c;
    float *out = dx + row * c, *g = dn + (u64)blockIdx.x * ldn;
    float sum = 0, dot = 0;
    for (int i = threadIdx.x; i < c; i += blockDim.x) {
        sum = fmaf(in[i], in[i], sum);
        dot = fmaf(w[i] * g[i], in[i], dot);
    }
    float r = 1.0f / sqrtf(blockSum(sum, scratch) / (float)c + eps);
    float k = blockSum(dot, scratch) * r * r / (float)c;
    for (int i = threadIdx.x; i < c; i += blockDim.x) {
        out[i] += r * (w[i] * g[i] - in[i] * k);
        g[i] *= in[i] * r;
    }
}

// columnpart writes part [blocks,c]: sums of COLUMN rows of in [rows,ld] each. Grid: blocks of columns x blocks of rows.
KERNEL columnpart(float *part, const float *in, int rows, int c, int ld) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * COLUMN;
    if (i >= c) return;
    float sum = 0;
    for (int r = first; r < min(rows, first + COLUMN); r++) sum += in[(u64)r * ld + i];
    part[(u64)blockIdx.y * c + i] = sum;
}

// columnsum adds the n rows of part [n,c] to out [c], in order, or writes their sum.
KERNEL columnsum(float *out, const float *part, int n, int c, int accumulate) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= c) return;
    float sum = 0;
    for (int b = 0; b < n; b++) sum += part[(u64)b * c + i];
    out[i] = accumulate ? out[i] + sum : sum;
}

// silugrad writes dgu [rows, 2 f], the gradient of gu, from dh [rows,ldh]. Grid: rows x blocks of columns.
KERNEL silugrad(elem *dgu, const float *dh, const float *gu, int f, int ldh) {
    int i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= f) return;
    u64 at = (u64)blockIdx.x * 2 * f + i;
    float g = gu[at], s = 1.0f / (1.0f + expf(-g)), d = dh[(u64)blockIdx.x * ldh + i];
    dgu[at] = put(d * gu[at + f] * s * (1.0f + g * (1.0f - s)));
    dgu[at + f] = put(d * g * s);
}

// headsgrad is heads backwards: from dq [rows, heads d], dk and dv [rows, kv d] it writes the gradient dqkv of qkv, and each row's parts of the norm
// weights' gradients, parts [rows, (heads+kv) d]. Grid: rows x (heads + 2 kv).
KERNEL headsgrad(elem *dqkv, float *parts, const float *dq, const float *dk, const float *dv, const float *qkv, const float *qw, const float *kw,
                 const float *cosine, const float *sine, const int *position, int nheads, int kv, int d, float eps) {
    __shared__ float scratch[WARPS];
    int row = blockIdx.x, head = blockIdx.y, half = d / 2;
    u64 at = ((u64)row * (nheads + 2 * kv) + head) * d;
    elem *out = dqkv + at;
    if (head >= nheads + kv) {
        const float *from = dv + ((u64)row * kv + head - nheads - kv) * d;
        for (int i = threadIdx.x; i < d; i += blockDim.x) out[i] = put(from[i]);
        return;
    }
    const float *in = qkv + at, *w = head < nheads ? qw : kw;
    const float *dy = head < nheads ? dq + ((u64)row * nheads + head) * d : dk + ((u64)row * kv + head - nheads) * d;
    const float *co = cosine + (u64)position[row] * half, *si = sine + (u64)position[row] * half;
    float *part = parts + ((u64)row * (nheads + kv) + head) * d;
    float sum = 0, dot = 0;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        float a = dy[i] * co[i] + dy[i + half] * si[i], b = dy[i + half] * co[i] - dy[i] * si[i];
        sum = fmaf(in[i], in[i], sum);
        sum = fmaf(in[i + half], in[i + half], sum);
        dot = fmaf(w[i] * a, in[i], dot);
        dot = fmaf(w[i + half] * b, in[i + half], dot);
    }
    float r = 1.0f / sqrtf(blockSum(sum, scratch) / (float)d + eps);
    float k = blockSum(dot, scratch) * r * r / (float)d;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        float a = dy[i] * co[i] + dy[i + half] * si[i], b = dy[i + half] * co[i] - dy[i] * si[i];
        out[i] = put(r * (w[i] * a - in[i] * k));
        out[i + half] = put(r * (w[i + half] * b - in[i + half] * k));
        part[i] = a * in[i] * r;
        part[i + half] = b * in[i + half] * r;
    }
}

// attendgradq writes dq [rows, heads d] and, per row and head, delta = dout out: the gradient of attention's queries. Probabilities are computed
// again from stats [rows,heads] (largest score, sum of exponentials). Grid: rows x heads.
KERNEL attendgradq(float *dq, float *delta, const float *dout, int ldd, const elem *out, int ldo, const float *q, const elem *cache, const int *tables,
                   const int *sequence, const int *position, const float *stats, int pages, int nheads, int kv, int d, float scale) {
    __shared__ float query[MAXD], grad[MAXD], ds[TILE], scratch[WARPS];
    int row = blockIdx.x, head = blockIdx.y, kvHead = head / (nheads / kv), pos = position[row];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const int *table = tables + (u64)sequence[row] * pages;
    u64 at = (u64)row * nheads + head;
    float dot = 0, acc[MAXD / 32];
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        query[i] = q[at * d + i] * scale;
        grad[i] = dout[(u64)row * ldd + head * d + i];
        dot = fmaf(grad[i], get(out[(u64)row * ldo + head * d + i]), dot);
    }
    for (int j = 0; j < MAXD / 32; j++) acc[j] = 0;
    dot = blockSum(dot, scratch);
    if (threadIdx.x == 0) delta[at] = dot;
    float top = stats[2 * at], sum = stats[2 * at + 1];
    for (int first = 0; first <= pos; first += TILE) {
        int n = min(TILE, pos + 1 - first);
        __syncthreads();
        for (int j = warp; j < n; j += warps) {
            const elem *key = cache + slot(table, first + j, 0, 1, 0, kvHead, kv, d), *value = cache + slot(table, first + j, 0, 1, 1, kvHead, kv, d);
            float s = 0, dp = 0;
            for (int i = lane; i < d; i += 32) {
                s = fmaf(query[i], get(key[i]), s);
                dp = fmaf(grad[i], get(value[i]), dp);
            }
            s = warpSum(s);
            dp = warpSum(dp);
            if (lane == 0) ds[j] = expf(s - top) / sum * (dp - dot);
        }
        __syncthreads();
        int c = 0;
        for (int i = threadIdx.x; i < d; i += blockDim.x, c++)
            for (int j = 0; j < n; j++) acc[c] = fmaf(ds[j], get(cache[slot(table, first + j, 0, 1, 0, kvHead, kv, d) + i]), acc[c]);
    }
    int c = 0;
    for (int i = threadIdx.x; i < d; i += blockDim.x, c++) dq[at * d + i] = acc[c] * scale;
}

// attendgradkv writes dk and dv [rows, kv d]: for a key, the sum over the later rows of its sequence in order and over the query heads that read it. last
// is the row of the sequence's last token. delta is that of attendgradq. Grid: rows x kv.
KERNEL attendgradkv(float *dk, float *dv, const float *dout, int ldd, const float *delta, const float *q, const elem *cache, const int *tables,
                    const int *sequence, const int *position, const int *last, const float *stats, int pages, int nheads, int kv, int d, float scale) {
    __shared__ float key[MAXD], value[MAXD], prob[TILE], ds[TILE];
    int row = blockIdx.x, kvHead = blockIdx.y, group = nheads / kv, pos = position[row];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const int *table = tables + (u64)sequence[row] * pages;
    const elem *k0 = cache + slot(table, pos, 0, 1, 0, kvHead, kv, d), *v0 = cache + slot(table, pos, 0, 1, 1, kvHead, kv, d);
    float accK[MAXD / 32], accV[MAXD / 32];
    for (int j = 0; j < MAXD / 32; j++) accK[j] = accV[j] = 0;
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        key[i] = get(k0[i]);
        value[i] = get(v0[i]);
    }
    int pairs = (last[sequence[row]] - row + 1) * group;
    for (int first = 0; first < pairs; first += TILE) {
        int n = min(TILE, pairs - first);
        __syncthreads();
        for (int j = warp; j < n; j += warps) {
            u64 r = row + (first + j) / group, head = kvHead * group + (first + j) % group, at = r * nheads + head;
            float s = 0, dp = 0;
            for (int i = lane; i < d; i += 32) {
                s = fmaf(q[at * d + i] * scale, key[i], s);
                dp = fmaf(dout[r * ldd + head * d + i], value[i], dp);
            }
            s = warpSum(s);
            dp = warpSum(dp);
            if (lane == 0) {
                prob[j] = expf(s - stats[2 * at]) / stats[2 * at + 1];
                ds[j] = prob[j] * (dp - delta[at]);
            }
        }
        __syncthreads();
        int c = 0;
        for (int i = threadIdx.x; i < d; i += blockDim.x, c++)
            for (int j = 0; j < n; j++) {
                u64 r = row + (first + j) / group, head = kvHead * group + (first + j) % group;
                accK[c] = fmaf(ds[j], q[(r * nheads + head) * d + i], accK[c]);
                accV[c] = fmaf(prob[j], dout[r * ldd + head * d + i], accV[c]);
            }
    }
    int c = 0;
    for (int i = threadIdx.x; i < d; i += blockDim.x, c++) {
        dk[((u64)row * kv + kvHead) * d + i] = accK[c] * scale;
        dv[((u64)row * kv + kvHead) * d + i] = accV[c];
    }
}

// embedgrad adds rows of dx [.,c] to rows of dw [vocab,ldw]: id ids[b] gets the rows order[starts[b]] to order[starts[b+1]-1], in that order. One block an id.
KERNEL embedgrad(float *dw, const float *dx, const int *ids, const int *starts, const int *order, int c, int ldw) {
    float *to = dw + (u64)ids[blockIdx.x] * ldw;
    for (int i = threadIdx.x; i < c; i += blockDim.x) {
        float sum = to[i];
        for (int j = starts[blockIdx.x]; j < starts[blockIdx.x + 1]; j++) sum += dx[(u64)order[j] * c + i];
        to[i] = sum;
    }
}

// What the loss sees of a trained token, and what it says of it; the layout is that of the Go side.
struct Target {
    double factor; // 1 / (temperature * trained tokens of the batch)
    int token;
    float advantage, logQ;
    float inverse; // 1/temperature
};

struct TokenStats {
    double loss, correction, logP, tail, entropy, samplerQ, alpha;
    int floored, outside, bad, unused;
};

// The objective: rule 0 none, 1 tis, 2 band; centering 0 off, 1 proportional, 2 full.
struct Rule {
    int rule;
    double cap, lo, hi;
};

__device__ inline double headMass(Rule o, double q, double p) {
    if (o.rule == 1) return p < o.cap * q ? p : o.cap * q;
    if (o.rule == 2) return p < o.lo * q || p > o.hi * q ? 0 : p;
    return q;
}

// loss replaces nothing but z itself: from logits z [rows,vocab], which it overwrites, it writes their gradient dz [rows,vocab] and the token's figures. It is
// package rl's Row: dz = Off p, then the record's ids get their own, then the token gets At. ids and logQ [rows,k] are the record; head [rows,k] is
// scratch. The trainer's mass outside the record is summed from the tail itself. One block of 512 threads a row; sums over the vocabulary as in sample.
KERNEL loss(elem *dz, TokenStats *stats, double *head, float *z0, const Target *targets, const int *ids, const float *logQ, int vocab, int k,
            int supervised, int centering, int rule, double cap, double lo, double hi) {
    __shared__ float scratch[WARPS];
    __shared__ double sums[SEGMENTS], weighted[SEGMENTS], wide[WARPS];
    float *z = z0 + (u64)blockIdx.x * vocab;
    elem *out = dz + (u64)blockIdx.x * vocab;
    Target t = targets[blockIdx.x];
    TokenStats *st = stats + blockIdx.x;
    Rule o = {rule, cap, lo, hi};
    ids += (u64)blockIdx.x * k;
    logQ += (u64)blockIdx.x * k;
    double *h = head + (u64)blockIdx.x * k;
    Spread s = spread(z, vocab, t.inverse, scratch, sums, weighted);
    if (s.bad) {
        for (int i = threadIdx.x; i < vocab; i += blockDim.x) out[i] = put(0.0f);
        if (threadIdx.x == 0) st->bad = 1;
        return;
    }
    float logP = scaled(z, t.token, t.inverse) - s.top - s.logSum, outside = 1, eToken = expf(scaled(z, t.token, t.inverse) - s.top);
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        h[i] = scaled(z, ids[i], t.inverse) - s.top - s.logSum; // float32, as the sampler records it
        if (ids[i] == t.token) outside = 0;
    }
    outside = blockMin(outside, scratch);
    __syncthreads();
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) z[i] = expf(scaled(z, i, t.inverse) - s.top);
    __syncthreads();
    for (int i = threadIdx.x; i < k; i += blockDim.x) z[ids[i]] = 0;
    __syncthreads();
    double off, at, lossOf, correction = 0, samplerQ = 0, alpha = 0, tail = 1;
    int floored = 0;
    if (supervised) {
        off = t.advantage;
        at = -(double)t.advantage;
        lossOf = at * logP;
    } else {
        double ratio = exp(fmin(20.0, fmax(-20.0, (double)logP - (double)t.logQ))), weight = 1;
        if (o.rule == 1) weight = ratio < o.cap ? ratio : o.cap;
        if (o.rule == 2) weight = ratio < o.lo || ratio > o.hi ? 0 : ratio;
        if (!centering) {
            off = t.advantage * weight;
            at = -off;
            lossOf = at * logP;
        } else {
            double sum = 0, m = 0;
            for (int i = threadIdx.x; i < vocab; i += blockDim.x) sum += z[i];
            tail = blockSumDouble(sum, wide) / s.total;
            sum = 0;
            for (int i = threadIdx.x; i < k; i += blockDim.x) {
                double q = exp((double)logQ[i]);
                sum += q;
                m += headMass(o, q, exp(h[i]));
            }
            samplerQ = blockSumDouble(sum, wide);
            m = blockSumDouble(m, wide);
            if (centering == 1) {
                double rest = 1 - samplerQ, rho = fmax(rest, 1e-6) / fmax(tail, 1e-6);
                floored = rest < 1e-6 || tail < 1e-6;
                alpha = rho;
                if (o.rule == 1) alpha = 1 < o.cap * rho ? 1 : o.cap * rho;
                if (o.rule == 2) alpha = 1 < o.lo * rho || 1 > o.hi * rho ? 0 : 1;
                m += alpha * tail;
            }
            double c = 0;
            for (int i = threadIdx.x; i < k; i += blockDim.x) {
                double p = exp(h[i]), mass = headMass(o, exp((double)logQ[i]), p);
                c += (mass - alpha * p) * h[i];
                h[i] = t.advantage * (mass - (m - weight) * p);
            }
            correction = blockSumDouble(c, wide);
            off = -t.advantage * (m - weight - alpha);
            at = -t.advantage * weight;
            lossOf = -t.advantage * (weight * logP - correction);
        }
    }
    float factor = (float)(off * t.factor / s.total);
    __syncthreads();
    // The token's own gradient is written last, from its parts: adding to a rounded one would round twice.
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) out[i] = put(z[i] * factor);
    __syncthreads();
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        out[ids[i]] = put((float)((h[i] + (ids[i] == t.token ? at : 0.0)) * t.factor));
    }
    if (threadIdx.x != 0) return;
    if (outside > 0) out[t.token] = put(eToken * factor + (float)(at * t.factor));
    st->loss = lossOf;
    st->correction = correction;
    st->logP = logP;
    st->tail = tail;
    st->entropy = log(s.total) - s.weight / s.total;
    st->samplerQ = samplerQ;
    st->alpha = alpha;
    st->floored = floored;
    st->outside = outside > 0;
    st->bad = 0;
}

// squares writes part [blocks]: the sum of squares of CHUNK elements of g [n] each, in float64. Two neighbouring elements are one sum in float32.
KERNEL squares(double *part, const float *g, u64 n) {
    __shared__ double wide[WARPS];
    u64 first = (u64)blockIdx.x * CHUNK, end = first + CHUNK < n ? first + CHUNK : n, whole = first + (end - first) / 4 * 4;
    double sum = 0;
#pragma unroll 8
    for (u64 i = first + 4 * threadIdx.x; i < whole; i += 4 * blockDim.x) {
        Quad q = *(const Quad *)(g + i);
        float a = __uint_as_float(q.x), b = __uint_as_float(q.y), c = __uint_as_float(q.z), d = __uint_as_float(q.w);
        sum += (double)fmaf(a, a, b * b) + (double)fmaf(c, c, d * d);
    }
    if (whole + threadIdx.x < end) sum += (double)g[whole + threadIdx.x] * (double)g[whole + threadIdx.x];
    sum = blockSumDouble(sum, wide);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

// Rounds to BF16, ties to even, and back.
__device__ inline float roundHalf(float x) {
    u32 b = __float_as_uint(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return x;
    return __uint_as_float((b + 0x7fffu + ((b >> 16) & 1u)) & 0xffff0000u);
}

// publish writes the BF16 rounding of master [n] as elements to w, or as float32 to v where w is null.
KERNEL publish(elem *w, float *v, const float *master, u64 n) {
    EACH(i);
    if (i >= n) return;
    if (w) w[i] = put(roundHalf(master[i]));
    else v[i] = roundHalf(master[i]);
}

// adamw takes one step for n parameters and publishes them like publish (Loshchilov and Hutter 2019, algorithm 2; the decay times the rate, as
// PyTorch has it). rate is the learning rate over 1-beta1^t, inverse2 is 1/sqrt(1-beta2^t), decay 1 - rate*weight decay, clip the factor of the gradient.
KERNEL adamw(elem *w, float *v, float *master, float *m1, float *m2, const float *g, u64 n, float beta1, float rest1, float beta2, float rest2,
             float rate, float inverse2, float epsilon, float decay, float clip) {
    EACH(i);
    if (i >= n) return;
    float grad = g[i] * clip, m = beta1 * m1[i] + rest1 * grad, s = beta2 * m2[i] + rest2 * grad * grad;
    float x = master[i] * decay - rate * m / (sqrtf(s) * inverse2 + epsilon);
    m1[i] = m;
    m2[i] = s;
    master[i] = x;
    if (w) w[i] = put(roundHalf(x));
    else v[i] = roundHalf(x);
}
