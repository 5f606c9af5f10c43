#if STEADY_BF16
// Attention of BF16 on tensor cores, for heads of up to 128 elements in multiples of 8. KEYS neighbouring keys, counted from the first of the sequence,
// make one partial result, computed by one warp for 8 or 16 pairs of a row and a query head that read one key/value head. The partial results of a span of
// SPAN keys are joined in order, and then the spans. The kernels for single rows and for tiles of a prompt share this arithmetic, so a row has the same bits
// in both. Queries and probabilities are rounded to BF16; scores, sums and outputs are float32.
//
// Keys and values are the left operands and go from memory to the registers of mma without a detour: which element of a head a lane holds is free as
// long as queries and keys agree (contraction), or outputs are written accordingly (values). In a step of 16 keys lane 4g+t holds elements 32c+8t..+7 of
// keys g and g+8, and elements 64h+8g..+7 of values of keys 2t, 2t+1, 2t+8, 2t+9. Scores are [16 keys, 8 pairs]: the lane has those of keys g and
// g+8 with pairs 2t and 2t+1.
#define KEYS 128
#define SPAN 512
#define PAIRS 16
#define LOG2E 1.44269504088896341f

__device__ inline Quad load16(const elem *from, bool valid) {
    Quad zero = {0, 0, 0, 0};
    return valid ? *(const Quad *)from : zero;
}

// fragments loads the query of pair g, a row of q or null, as right operands.
__device__ inline void fragments(u32 (*b)[2], const float *q, int d, int t) {
#pragma unroll
    for (int c = 0; c < 4; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int e = 32 * c + 8 * t + 2 * i;
            b[2 * c + i / 2][i % 2] = q && e < d ? packPair(q[e], q[e + 1]) : 0;
        }
}

// Lines are where the keys and values of a layer and head are: page p of a sequence begins at cache + table[p] * page; values lie value behind keys.
struct Lines {
    const elem *cache;
    const int *table;
    u64 page, value;
};

__device__ inline Lines lines(const elem *cache, const int *table, int layer, int layers, int head, int kv, int d) {
    Lines l;
    u64 block = (u64)PAGE * d;
    l.page = (u64)layers * 2 * kv * block;
    l.cache = cache + ((u64)layer * 2 * kv + head) * block;
    l.value = (u64)kv * block;
    l.table = table;
    return l;
}

// fetch asks for a lane's 256 bytes ahead of their use.
__device__ inline void fetch(const elem *from) {
#ifndef STEADY_HOST
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + 64));
#endif
}

// unit computes a partial result of T times 8 pairs over keys base..base+KEYS-1, of which the lane's pairs 8n+2t and 8n+2t+1 see those up to see[n][0] and
// see[n][1]; none after last is read. o[n][4h+j] gets elements 64h+8g+2j of these two pairs and then 64h+8g+2j+1, top and sum what belongs to them.
template <int T>
__device__ inline void unit(float (*o)[8][4], float (*top)[2], float (*sum)[2], const u32 (*q)[8][2], Lines l, int base, const int (*see)[2], int last,
                            int d, float scale) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float s[T][KEYS / 16][4];
#pragma unroll
    for (int n = 0; n < T; n++)
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[n][j][i] = 0;
#pragma unroll
    for (int p = 0; p < KEYS / PAGE; p++) {
        if (base + p * PAGE > last) break;
        const elem *keys = l.cache + l.table[base / PAGE + p] * l.page;
#pragma unroll
        for (int step = 0; step < PAGE / 16; step++) {
            Quad k[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    int key = 16 * step + g + 8 * i, at = 32 * c + 8 * t;
                    k[i][c] = load16(keys + key * d + at, base + p * PAGE + key <= last && at < d);
                }
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (32 * c >= d) break;
                u32 a0[4] = {k[0][c].x, k[1][c].x, k[0][c].y, k[1][c].y}, a1[4] = {k[0][c].z, k[1][c].z, k[0][c].w, k[1][c].w};
#pragma unroll
                for (int n = 0; n < T; n++) {
                    mma16816(s[n][p * (PAGE / 16) + step], a0, q[n][2 * c][0], q[n][2 * c][1]);
                    mma16816(s[n][p * (PAGE / 16) + step], a1, q[n][2 * c + 1][0], q[n][2 * c + 1][1]);
                }
            }
        }
    }
    u32 probs[T][KEYS / 16][2];
    float factor = scale * LOG2E;
#pragma unroll
    for (int n = 0; n < T; n++) {
        float shift[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float most = -INF;
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float *x = &s[n][j][2 * half + i];
                    if (base + 16 * j + 8 * half + g > see[n][i]) *x = -INF;
                    most = fmaxf(most, *x);
                }
#pragma unroll
            for (int m = 4; m < 32; m <<= 1) most = fmaxf(most, __shfl_xor_sync(FULL, most, m));
            shift[i] = most == -INF ? 0.0f : __fmul_rn(most, factor);
            top[n][i] = most == -INF ? -INF : __fmul_rn(most, scale);
        }
        float total[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float a = power2(fmaf(s[n][j][2 * half], factor, -shift[0])), b = power2(fmaf(s[n][j][2 * half + 1], factor, -shift[1]));
                total[0] += a;
                total[1] += b;
                probs[n][j][half] = transposed(packPair(a, b));
            }
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int m = 4; m < 32; m <<= 1) total[i] += __shfl_xor_sync(FULL, total[i], m);
            sum[n][i] = total[i];
        }
    }
#pragma unroll
    for (int n = 0; n < T; n++)
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) o[n][j][i] = 0;
#pragma unroll
    for (int p = 0; p < KEYS / PAGE; p++) {
        if (base + p * PAGE > last) break;
        const elem *values = l.cache + l.table[base / PAGE + p] * l.page + l.value;
#pragma unroll
        for (int step = 0; step < PAGE / 16; step++) {
            Quad v[2][4];
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int key = 16 * step + 2 * t + (i & 1) + 8 * (i >> 1), at = 64 * h + 8 * g;
                    v[h][i] = load16(values + key * d + at, base + p * PAGE + key <= last && at < d);
                }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (64 * h >= d) break;
                u32 a[4][4] = {
                    {lows(v[h][0].x, v[h][1].x), highs(v[h][0].x, v[h][1].x), lows(v[h][2].x, v[h][3].x), highs(v[h][2].x, v[h][3].x)},
                    {lows(v[h][0].y, v[h][1].y), highs(v[h][0].y, v[h][1].y), lows(v[h][2].y, v[h][3].y), highs(v[h][2].y, v[h][3].y)},
                    {lows(v[h][0].z, v[h][1].z), highs(v[h][0].z, v[h][1].z), lows(v[h][2].z, v[h][3].z), highs(v[h][2].z, v[h][3].z)},
                    {lows(v[h][0].w, v[h][1].w), highs(v[h][0].w, v[h][1].w), lows(v[h][2].w, v[h][3].w), highs(v[h][2].w, v[h][3].w)},
                };
#pragma unroll
                for (int n = 0; n < T; n++)
#pragma unroll
                    for (int j = 0; j < 4; j++) mma16816(o[n][4 * h + j], a[j], probs[n][p * (PAGE / 16) + step][0], probs[n][p * (PAGE / 16) + step][1]);
            }
        }
    }
}

// fresh reads what another multiprocessor wrote in this launch.
__device__ inline Quad fresh(const Quad *from) {
#ifdef STEADY_HOST
    return *from;
#else
    Quad q;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w) : "l"(from) : "memory");
    return q;
#endif
}
__device__ inline float fresh(const float *from) {
#ifdef STEADY_HOST
    return *from;
#else
    float x;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
    return x;
#endif
}

// joinFour joins four elements of a partial result to a running one.
__device__ inline void joinFour(float *acc, Join *j, Quad part, float top, float sum) {
    *j = join(j->top, j->sum, top, sum);
    acc[0] = joined(acc[0], __uint_as_float(part.x), *j);
    acc[1] = joined(acc[1], __uint_as_float(part.y), *j);
    acc[2] = joined(acc[2], __uint_as_float(part.z), *j);
    acc[3] = joined(acc[3], __uint_as_float(part.w), *j);
}

// attendsplit writes out [rows,ldo] for single rows; columns from heads*d to ldo become 0. A block takes SPAN keys of one row for up to 8 query heads, a warp
// KEYS of them. What its warps have is joined in order; the block that comes last, of those of a row and these heads, joins the spans in order, which the others
// left in parts [rows,splits,heads,d] and partStats [rows,splits,heads,2]. arrivals [rows,kv heads * blocks of heads] counts them and is 0 before and after.
// Grid: rows * kv heads * blocks of heads * splits, a warp for each KEYS of SPAN.
KERNEL attendsplit(elem *out, float *parts, float *partStats, int *arrivals, const float *q, const elem *cache, const int *tables, const int *position,
                   int rows, int splits, int pages, int layer, int layers, int nheads, int kv, int d, int ldo, float scale) {
    __shared__ Quad mine[SPAN / KEYS][8][33]; // a row has 128 elements, and 16 bytes for the banks' sake
    __shared__ float tops[SPAN / KEYS][8], sums[SPAN / KEYS][8];
    __shared__ int last;
    int group = nheads / kv, per = min(group, 8), blocks = (group + per - 1) / per;
    // Splits are the slowest: the short last ones of all rows fill the end.
    int item = blockIdx.x, split = item / (rows * kv * blocks);
    item %= rows * kv * blocks;
    int kvHead = item / blocks % kv, head0 = kvHead * group + item % blocks * per, row = item / blocks / kv;
    // Positions, tables and the keys of earlier tokens are not the work of the kernel before.
    int pos = position[row], warp = threadIdx.x >> 5, base = split * SPAN + warp * KEYS;
    if (split * SPAN > pos) return;
    per = min(per, (kvHead + 1) * group - head0);
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, spans = pos / SPAN + 1, own = min(SPAN / KEYS, (pos - split * SPAN) / KEYS + 1);
    Lines l = lines(cache, tables + (u64)row * pages, layer, layers, kvHead, kv, d);
    if (base <= pos) fetch(l.cache + l.table[base / PAGE] * l.page + lane * d);
    await();
    if (base <= pos) {
        u32 a[1][8][2];
        fragments(a[0], g < per ? q + ((u64)row * nheads + head0 + g) * d : 0, d, t);
        float o[1][8][4], top[1][2], sum[1][2];
        int see[1][2] = {{pos, pos}};
        unit<1>(o, top, sum, a, l, base, see, pos, d, scale);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (2 * t + i >= per) break;
            if (g == 0) {
                tops[warp][2 * t + i] = top[0][i];
                sums[warp][2 * t + i] = sum[0][i];
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int e = 64 * h + 8 * g;
                if (e >= d) break;
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float(*x)[4] = o[0] + 4 * h + 2 * j;
                    mine[warp][2 * t + i][e / 4 + j] = {__float_as_uint(x[0][i]), __float_as_uint(x[0][2 + i]), __float_as_uint(x[1][i]), __float_as_uint(x[1][2 + i])};
                }
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < per * d / 4; i += blockDim.x) {
        int pair = i / (d / 4), e = i % (d / 4) * 4;
        Join j = {-INF, 0, 0, 0};
        float acc[4] = {0, 0, 0, 0};
        for (int w = 0; w < own; w++) joinFour(acc, &j, mine[w][pair][e / 4], tops[w][pair], sums[w][pair]);
        Quad x = {__float_as_uint(acc[0]), __float_as_uint(acc[1]), __float_as_uint(acc[2]), __float_as_uint(acc[3])};
        if (spans == 1) {
            Join whole = {-INF, 0, 0, 0};
            float result[4] = {0, 0, 0, 0};
            joinFour(result, &whole, x, j.top, j.sum);
            for (int c = 0; c < 4; c++) out[(u64)row * ldo + (head0 + pair) * d + e + c] = put(result[c] / whole.sum);
            continue;
        }
        u64 at = ((u64)row * splits + split) * nheads + head0 + pair;
        *(Quad *)(parts + at * d + e) = x;
        if (e == 0) {
            partStats[2 * at] = j.top;
            partStats[2 * at + 1] = j.sum;
        }
    }
    if (spans > 1) {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            int *counter = arrivals + item;
            last = atomicAdd(counter, 1) == spans - 1;
            if (last) *counter = 0;
        }
        __syncthreads();
        if (!last) return;
        __threadfence();
        for (int i = threadIdx.x; i < per * d / 4; i += blockDim.x) {
            int pair = i / (d / 4), e = i % (d / 4) * 4;
            u64 first = (u64)row * splits * nheads + head0 + pair;
            Join j = {-INF, 0, 0, 0};
            float acc[4] = {0, 0, 0, 0};
#pragma unroll 8
            for (int s = 0; s < spans; s++) {
                u64 at = first + (u64)s * nheads;
                joinFour(acc, &j, fresh((const Quad *)(parts + at * d + e)), fresh(partStats + 2 * at), fresh(partStats + 2 * at + 1));
            }
            for (int c = 0; c < 4; c++) out[(u64)row * ldo + (head0 + pair) * d + e + c] = put(acc[c] / j.sum);
        }
    }
    if (head0 + per == nheads)
        for (int i = nheads * d + threadIdx.x; i < ldo; i += blockDim.x) out[(u64)row * ldo + i] = put(0.0f);
}

// enter joins a partial result, unless it is of no key.
__device__ inline void enter(Join *j, float top, float sum) {
    if (top != -INF) *j = join(j->top, j->sum, top, sum);
    else j->keep = 1, j->enter = 0;
}

// Tile is the work of a warp of attendtile: rows first..first+rows-1 of a step, neighbours in one sequence.
struct Tile {
    int first, rows;
};

// attendtile writes out [rows,ldo] for rows of prompts; a warp goes through the spans of a tile of up to 16 pairs in order, a block takes two tiles. stats
// [rows,heads,2], unless null, gets the largest score and the sum of exponentials. Grid: tiles/2 x (kv heads * blocks of heads).
KERNEL attendtile(elem *out, float *stats, const float *q, const elem *cache, const int *tables, const int *sequence, const int *position,
                  const Tile *tiles, int count, int pages, int layer, int layers, int nheads, int kv, int d, int ldo, float scale) {
    __shared__ float totals[2][2][64][32]; // by warp, of all spans and of one, register and lane: nobody reads what another lane wrote
    int group = nheads / kv, per = min(group, PAIRS), blocks = (group + per - 1) / per;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    int item = blockIdx.x * 2 + warp, kvHead = blockIdx.y / blocks, head0 = kvHead * group + blockIdx.y % blocks * per;
    if (item >= count) return;
    per = min(per, (kvHead + 1) * group - head0);
    Tile tile = tiles[item];
    int pos0 = position[tile.first], last = pos0 + tile.rows - 1, used = tile.rows * per, see[2][2];
    float *total = &totals[warp][0][0][lane], *inner = &totals[warp][1][0][lane];
    u32 a[2][8][2];
    Join j[2][2];
#pragma unroll
    for (int n = 0; n < 2; n++) {
        int pair = 8 * n + g;
        fragments(a[n], pair < used ? q + ((u64)(tile.first + pair / per) * nheads + head0 + pair % per) * d : 0, d, t);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            pair = 8 * n + 2 * t + i;
            see[n][i] = pair < used ? pos0 + pair / per : -1;
            j[n][i].top = -INF;
            j[n][i].sum = 0;
        }
    }
    Lines l = lines(cache, tables + (u64)sequence[tile.first] * pages, layer, layers, kvHead, kv, d);
    for (int i = 0; i < 64; i++) total[32 * i] = 0;
    for (int span = 0; span <= last; span += SPAN) {
        Join within[2][2];
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) within[n][i].top = -INF, within[n][i].sum = 0;
        for (int i = 0; i < 64; i++) inner[32 * i] = 0;
        for (int base = span; base <= min(last, span + SPAN - 1); base += KEYS) {
            float o[2][8][4], top[2][2], sum[2][2];
            unit<2>(o, top, sum, a, l, base, see, last, d, scale);
#pragma unroll
            for (int n = 0; n < 2; n++) {
#pragma unroll
                for (int i = 0; i < 2; i++) enter(&within[n][i], top[n][i], sum[n][i]);
#pragma unroll
                for (int i = 0; i < 32; i++) inner[32 * (32 * n + i)] = joined(inner[32 * (32 * n + i)], o[n][i / 4][i % 4], within[n][i % 2]);
            }
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) enter(&j[n][i], within[n][i].top, within[n][i].sum);
#pragma unroll
            for (int i = 0; i < 32; i++) total[32 * (32 * n + i)] = joined(total[32 * (32 * n + i)], inner[32 * (32 * n + i)], j[n][i % 2]);
        }
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (see[n][i] < 0) continue;
            int pair = 8 * n + 2 * t + i;
            u64 place = (u64)(tile.first + pair / per) * nheads + head0 + pair % per;
            elem *to = out + (u64)(tile.first + pair / per) * ldo + (head0 + pair % per) * d;
#pragma unroll
            for (int x = 0; x < 16; x++) {
                int e = 64 * (x / 8) + 8 * g + x % 8;
                if (e < d) to[e] = put(total[32 * (32 * n + 4 * (4 * (x / 8) + x % 8 / 2) + 2 * (x % 2) + i)] / j[n][i].sum);
            }
            if (stats && g == 0) {
                stats[2 * place] = j[n][i].top;
                stats[2 * place + 1] = j[n][i].sum;
            }
        }
    if (head0 + per == nheads)
        for (int r = 0; r < tile.rows; r++)
            for (int i = nheads * d + lane; i < ldo; i += 32) out[(u64)(tile.first + r) * ldo + i] = put(0.0f);
}
#endif
