// MAXD is the widest head. SPLIT keys, counted from the first of the sequence, make one partial result; partial results are joined in order. So a query
// has the same bits whichever blocks compute it: alone with its splits spread over blocks, or in a tile of a prompt.
#define MAXD 256
#define TILE 64
#define SPLIT 256
#define PAGES (SPLIT / PAGE)
#define ATTEND 128 // threads of a block

// Lanes is the number of threads that share a key, 8 elements each at a time; UNROLL keys are on the way at once.
#define LANES 16
#define UNROLL 4

struct alignas(16) Quad {
    u32 x, y, z, w;
};

// Eight is 8 elements as they lie in memory; wide reads one, whole when every head begins at a multiple of 8 elements, else what is left of it.
struct Eight {
    Quad part[sizeof(elem) / 2];
};

// piecewise is out of line: it serves odd widths and the end of a sequence.
__attribute__((noinline)) __device__ Eight piecewise(const elem *p, int left) {
    elem single[8];
    for (int i = 0; i < 8; i++) single[i] = i < left ? p[i] : put(0.0f);
    Eight e;
    for (int i = 0; i < (int)(sizeof(elem) / 2); i++) {
#if STEADY_BF16
        e.part[i].x = single[0] | (u32)single[1] << 16, e.part[i].y = single[2] | (u32)single[3] << 16;
        e.part[i].z = single[4] | (u32)single[5] << 16, e.part[i].w = single[6] | (u32)single[7] << 16;
#else
        e.part[i].x = __float_as_uint(single[4 * i]), e.part[i].y = __float_as_uint(single[4 * i + 1]);
        e.part[i].z = __float_as_uint(single[4 * i + 2]), e.part[i].w = __float_as_uint(single[4 * i + 3]);
#endif
    }
    return e;
}

// wide reads UNROLL times 8 elements, two keys apart: whole, if this is so for all threads, or what is left of them.
__device__ inline void wide(Eight *to, const elem *keys, int first, int n, int d, int at, bool whole) {
    if (whole) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
#pragma unroll
            for (int i = 0; i < (int)(sizeof(elem) / 2); i++) {
                Quad zero = {0, 0, 0, 0};
                to[u].part[i] = at < d ? ((const Quad *)(keys + (first + 2 * u) * d + at))[i] : zero;
            }
        return;
    }
    for (int u = 0; u < UNROLL; u++) to[u] = piecewise(keys + (first + 2 * u) * d + at, first + 2 * u < n ? d - at : 0);
}

__device__ inline void unpack(float *to, Eight e) {
#if STEADY_BF16
    Quad q = e.part[0];
    to[0] = __uint_as_float(q.x << 16), to[1] = __uint_as_float(q.x & 0xffff0000u);
    to[2] = __uint_as_float(q.y << 16), to[3] = __uint_as_float(q.y & 0xffff0000u);
    to[4] = __uint_as_float(q.z << 16), to[5] = __uint_as_float(q.z & 0xffff0000u);
    to[6] = __uint_as_float(q.w << 16), to[7] = __uint_as_float(q.w & 0xffff0000u);
#else
    for (int i = 0; i < 2; i++) {
        Quad q = e.part[i];
        to[4 * i] = __uint_as_float(q.x), to[4 * i + 1] = __uint_as_float(q.y);
        to[4 * i + 2] = __uint_as_float(q.z), to[4 * i + 3] = __uint_as_float(q.w);
    }
#endif
}

// Join is how a partial result (top, sum) with these weights enters a running one; the first has top -INF and sum 0.
struct Join {
    float top, sum, keep, enter;
};

__device__ inline Join join(float top, float sum, float partTop, float partSum) {
    Join j;
    j.top = fmaxf(top, partTop);
    j.keep = top == -INF ? 0.0f : expf(top - j.top);
    j.enter = partTop == -INF ? 0.0f : expf(partTop - j.top);
    j.sum = fmaf(sum, j.keep, __fmul_rn(partSum, j.enter));
    return j;
}

__device__ inline float joined(float acc, float part, Join j) { return fmaf(acc, j.keep, __fmul_rn(part, j.enter)); }

// An item is the work of a block: rows first..first+rows-1 of a step, neighbours in one sequence; one split, whose partial results go to parts, or all (-1).
struct Item {
    int first, rows, split;
};

// attend computes softmax(q k / sqrt(d)) v over the keys 0..position of each row's sequence, for up to Q pairs of a row and a query head that read one
// key/value head, of width D at most: every key is read once for all of them. Grid: items x (kv heads * blocks of query heads).
template <int Q, int D>
__device__ inline void attend(elem *out, const float *q, const elem *cache, const int *tables, const int *sequence, const int *position, int pages,
                              int layer, int layers, int nheads, int kv, int d, int ldo, float scale, float *stats, const Item *items, float *parts) {
    constexpr int WIDTH = D / LANES, OWN = Q * D / ATTEND; // elements of a lane; outputs of a thread
    __shared__ float score[Q][SPLIT], sums[ATTEND / 32][Q * D];
    __shared__ float tops[Q], totals[Q];
    __shared__ Join joins[Q];
    Item item = items[blockIdx.x];
    int group = nheads / kv, blocks = (group + Q - 1) / Q, per = min(group, Q);
    int kvHead = blockIdx.y / blocks, head0 = kvHead * group + blockIdx.y % blocks * per;
    per = min(per, (kvHead + 1) * group - head0);
    int count = item.rows * per, pos0 = position[item.first], most = pos0 + item.rows - 1;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, part = lane % LANES, side = lane / LANES;
    const int *table = tables + (u64)sequence[item.first] * pages;
    float mine[Q][WIDTH], own[OWN];
#pragma unroll
    for (int i = 0; i < Q; i++)
#pragma unroll
        for (int e = 0; e < WIDTH; e++) {
            int at = e / 8 * 8 * LANES + part * 8 + e % 8;
            mine[i][e] = i < count && at < d ? q[((u64)(item.first + i / per) * nheads + head0 + i % per) * d + at] * scale : 0.0f;
        }
#pragma unroll
    for (int e = 0; e < OWN; e++) own[e] = 0;
    if (threadIdx.x < Q) {
        joins[threadIdx.x].top = -INF;
        joins[threadIdx.x].sum = 0;
    }
    int from = item.split < 0 ? 0 : item.split, to = item.split < 0 ? most / SPLIT : item.split;
    for (int split = from; split <= to; split++) {
        int base = split * SPLIT, n = min(SPLIT, most + 1 - base);
        __syncthreads();
        for (int page = warp; page * PAGE < n; page += ATTEND / 32) {
            const elem *keys = cache + slot(table, base + page * PAGE, layer, layers, 0, kvHead, kv, d);
            int left = min(PAGE, n - page * PAGE);
            for (int k0 = 0; k0 < left; k0 += 2 * UNROLL) {
                float dots[UNROLL][Q];
#pragma unroll
                for (int u = 0; u < UNROLL; u++)
#pragma unroll
                    for (int i = 0; i < Q; i++) dots[u][i] = 0;
#pragma unroll
                for (int c = 0; c < WIDTH / 8; c++) {
                    int at = c * 8 * LANES + part * 8;
                    if (c * 8 * LANES >= d) break;
                    Eight raw[UNROLL];
                    wide(raw, keys, k0 + side, left, d, at, d % 8 == 0 && k0 + 2 * UNROLL <= left);
#pragma unroll
                    for (int u = 0; u < UNROLL; u++) {
                        float k[8];
                        unpack(k, raw[u]);
#pragma unroll
                        for (int i = 0; i < Q; i++)
#pragma unroll
                            for (int e = 0; e < 8; e++) dots[u][i] = fmaf(mine[i][8 * c + e], k[e], dots[u][i]);
                    }
                }
#pragma unroll
                for (int u = 0; u < UNROLL; u++)
#pragma unroll
                    for (int i = 0; i < Q; i++) {
                        if (i >= count) break;
                        float s = dots[u][i];
                        for (int m = LANES / 2; m > 0; m >>= 1) s += __shfl_xor_sync(FULL, s, m);
                        if (part == 0) score[i][page * PAGE + k0 + 2 * u + side] = s;
                    }
            }
        }
        __syncthreads();
        for (int i = warp; i < count; i += ATTEND / 32) {
            int seen = pos0 + i / per - base; // keys 0..seen of the split
            float top = -INF, sum = 0;
            for (int j = lane; j < SPLIT; j += 32) top = j <= seen ? fmaxf(top, score[i][j]) : top;
            top = warpMax(top);
            for (int j = lane; j < SPLIT; j += 32) {
                float e = j <= seen ? expf(score[i][j] - top) : 0.0f;
                score[i][j] = e;
                sum += e;
            }
            sum = warpSum(sum);
            if (lane == 0) {
                joins[i] = join(joins[i].top, joins[i].sum, top, sum);
                tops[i] = top;
                totals[i] = sum;
            }
        }
        __syncthreads();
        // The columns that this lane reads of keys were those of mine; of values they are those of acc.
#pragma unroll
        for (int c = 0; c < WIDTH / 8; c++) {
            int at = c * 8 * LANES + part * 8;
            if (c * 8 * LANES >= d) break;
            float acc[Q][8];
#pragma unroll
            for (int i = 0; i < Q; i++)
#pragma unroll
                for (int e = 0; e < 8; e++) acc[i][e] = 0;
            for (int page = warp; page * PAGE < n; page += ATTEND / 32) {
                const elem *values = cache + slot(table, base + page * PAGE, layer, layers, 1, kvHead, kv, d);
                int left = min(PAGE, n - page * PAGE);
                for (int k0 = 0; k0 < left; k0 += 2 * UNROLL) {
                    Eight raw[UNROLL];
                    wide(raw, values, k0 + side, left, d, at, d % 8 == 0 && k0 + 2 * UNROLL <= left);
#pragma unroll
                    for (int u = 0; u < UNROLL; u++) {
                        float v[8];
                        unpack(v, raw[u]);
#pragma unroll
                        for (int i = 0; i < Q; i++) {
                            if (i >= count) break;
                            float p = score[i][page * PAGE + k0 + 2 * u + side];
#pragma unroll
                            for (int e = 0; e < 8; e++) acc[i][e] = fmaf(p, v[e], acc[i][e]);
                        }
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < Q; i++) {
                if (i >= count) break;
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    float both = acc[i][e] + __shfl_xor_sync(FULL, acc[i][e], LANES);
                    if (side == 0 && at + e < d) sums[warp][i * d + at + e] = both;
                }
            }
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < OWN; r++) {
            int at = threadIdx.x + r * ATTEND;
            if (at >= count * d) break;
            float sum = 0;
            for (int w = 0; w < ATTEND / 32; w++) sum += sums[w][at];
            if (item.split < 0) own[r] = joined(own[r], sum, joins[at / d]);
            else parts[((u64)blockIdx.x * nheads + head0 + at / d) * (d + 2) + 2 + at % d] = sum;
        }
    }
    __syncthreads();
    if (item.split >= 0) { // one row
        for (int i = threadIdx.x; i < count; i += ATTEND) {
            float *to = parts + ((u64)blockIdx.x * nheads + head0 + i) * (d + 2);
            to[0] = tops[i];
            to[1] = totals[i];
        }
        return;
    }
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        int at = threadIdx.x + r * ATTEND;
        if (at >= count * d) break;
        int i = at / d;
        out[(u64)(item.first + i / per) * ldo + (head0 + i % per) * d + at % d] = put(own[r] / joins[i].sum);
    }
    for (int i = threadIdx.x; stats && i < count; i += ATTEND) {
        float *to = stats + 2 * ((u64)(item.first + i / per) * nheads + head0 + i % per);
        to[0] = joins[i].top;
        to[1] = joins[i].sum;
    }
    if (head0 + per == nheads)
        for (int row = item.first; row < item.first + item.rows; row++)
            for (int i = nheads * d + threadIdx.x; i < ldo; i += ATTEND) out[(u64)row * ldo + i] = put(0.0f);
}

// The kernels write out [rows,ldo] for up to so many pairs a block, the number in their name, of heads up to 128 wide or, attendwide, up to MAXD; columns from
// heads*d to ldo become 0. stats [rows,heads], unless null, gets the largest score and the sum of exponentials.
#define ATTEND_KERNEL(name, pairs, width)                                                                                                              \
    KERNEL name(elem *out, const float *q, const elem *cache, const int *tables, const int *sequence, const int *position, int pages, int layer,      \
                int layers, int nheads, int kv, int d, int ldo, float scale, float *stats, const Item *items, float *parts) {                         \
        attend<pairs, width>(out, q, cache, tables, sequence, position, pages, layer, layers, nheads, kv, d, ldo, scale, stats, items, parts);        \
    }
ATTEND_KERNEL(attend2, 2, 128)
ATTEND_KERNEL(attend4, 4, 128)
ATTEND_KERNEL(attend8, 8, 128)
ATTEND_KERNEL(attendwide, 8, MAXD)

// Merge says that the partial results of a row are those of count items from first on.
struct Merge {
    int row, first, count;
};

// attendjoin joins partial results [items,heads,2+d] in order. Grid: rows x heads.
KERNEL attendjoin(elem *out, float *stats, const float *parts, const Merge *merges, int nheads, int d, int ldo) {
    Merge m = merges[blockIdx.x];
    int head = blockIdx.y;
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        Join j = {-INF, 0, 0, 0};
        float acc = 0;
        for (int s = 0; s < m.count; s++) {
            const float *part = parts + ((u64)(m.first + s) * nheads + head) * (d + 2);
            j = join(j.top, j.sum, part[0], part[1]);
            acc = joined(acc, part[2 + i], j);
        }
        out[(u64)m.row * ldo + head * d + i] = put(acc / j.sum);
        if (stats && i == 0) {
            stats[2 * ((u64)m.row * nheads + head)] = j.top;
            stats[2 * ((u64)m.row * nheads + head) + 1] = j.sum;
        }
    }
    if (head == nheads - 1)
        for (int i = nheads * d + threadIdx.x; i < ldo; i += blockDim.x) out[(u64)m.row * ldo + i] = put(0.0f);
}
