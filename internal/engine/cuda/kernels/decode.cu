#if STEADY_BF16
// Attention of BF16 on tensor cores, for heads of up to 128 elements in multiples of 8. KEYS neighbouring keys, counted from the first of the sequence,
// make one partial result, computed by one warp for up to 16 pairs of a row and a query head that read one key/value head; partial results are
// joined in order. The kernels for single rows and for tiles of a prompt share this arithmetic, so a row has the same bits in both. Queries and
// probabilities are rounded to BF16; scores, sums and outputs are float32.
//
// Keys and values go from memory to the registers of mma without a detour: which element of a head a lane holds is free as long as queries and keys agree
// (contraction), or outputs are written accordingly (values). Lane 4g+t holds elements 32c+8t..+7 of key 8j+g, and elements 64h+8g..+7 of values of
// keys 2t, 2t+1, 2t+8, 2t+9 of a step of 16.
#define KEYS 128
#define PAIRS 16
#define LOG2E 1.44269504088896341f


__device__ inline Quad load16(const elem *from, bool valid) {
    Quad zero = {0, 0, 0, 0};
    return valid ? *(const Quad *)from : zero;
}

// fragments loads queries of the pairs g and g+8 of a lane, rows of q at these places, as left operands.
__device__ inline void fragments(u32 (*a)[4], const float *low, const float *high, int d, int t) {
#pragma unroll
    for (int c = 0; c < 4; c++) {
        int at = 32 * c + 8 * t;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int e = at + 4 * half + 2 * r;
                a[2 * c + half][2 * r] = low && at < d ? packPair(low[e], low[e + 1]) : 0;
                a[2 * c + half][2 * r + 1] = high && at < d ? packPair(high[e], high[e + 1]) : 0;
            }
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

// unit computes a partial result over keys base..base+KEYS-1, of which pair g sees those up to see[0], pair g+8 those up to see[1]; none after last is read.
// o[8h+j] gets elements 64h+16t+j (low pair 0, high pair 2) and 64h+16t+8+j (1 and 3), top and sum those of the lane's pairs. BOTH false leaves the
// upper pairs out.
template <bool BOTH>
__device__ inline void unit(float (*o)[4], float *top, float *sum, const u32 (*q)[4], Lines l, int base, const int *see, int last, int d, float scale) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float s[KEYS / 8][4];
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[j][i] = 0;
#pragma unroll
    for (int p = 0; p < KEYS / PAGE; p++) {
        if (base + p * PAGE > last) break;
        const elem *keys = l.cache + l.table[base / PAGE + p] * l.page;
#pragma unroll
        for (int j0 = 0; j0 < PAGE / 8; j0 += 2) {
            Quad k[2][4];
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    int key = 8 * (j0 + j) + g, at = 32 * c + 8 * t;
                    k[j][c] = load16(keys + key * d + at, base + p * PAGE + key <= last && at < d);
                }
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    if (32 * c >= d) break;
                    mma16816(s[p * (PAGE / 8) + j0 + j], q[2 * c], k[j][c].x, k[j][c].y);
                    mma16816(s[p * (PAGE / 8) + j0 + j], q[2 * c + 1], k[j][c].z, k[j][c].w);
                }
        }
    }
    constexpr int SIDES = BOTH ? 2 : 1;
    u32 probs[KEYS / 8][SIDES];
#pragma unroll
    for (int side = 0; side < SIDES; side++) {
        float most = -INF;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float *x = &s[j][2 * side + i];
                if (base + 8 * j + 2 * t + i > see[side]) *x = -INF;
                most = fmaxf(most, *x);
            }
        most = fmaxf(most, __shfl_xor_sync(FULL, most, 1));
        most = fmaxf(most, __shfl_xor_sync(FULL, most, 2));
        float factor = scale * LOG2E, shift = most == -INF ? 0.0f : __fmul_rn(most, factor), total = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
            float a = power2(fmaf(s[j][2 * side], factor, -shift)), b = power2(fmaf(s[j][2 * side + 1], factor, -shift));
            total += a;
            total += b;
            probs[j][side] = packPair(a, b);
        }
        total += __shfl_xor_sync(FULL, total, 1);
        total += __shfl_xor_sync(FULL, total, 2);
        top[side] = most == -INF ? -INF : __fmul_rn(most, scale);
        sum[side] = total;
    }
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) o[j][i] = 0;
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
            int j = p * (PAGE / 8) + 2 * step;
            u32 a[4] = {probs[j][0], BOTH ? probs[j][SIDES - 1] : 0, probs[j + 1][0], BOTH ? probs[j + 1][SIDES - 1] : 0};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (64 * h >= d) break;
                float(*to)[4] = o + 8 * h;
                mma16816(to[0], a, lows(v[h][0].x, v[h][1].x), lows(v[h][2].x, v[h][3].x));
                mma16816(to[1], a, highs(v[h][0].x, v[h][1].x), highs(v[h][2].x, v[h][3].x));
                mma16816(to[2], a, lows(v[h][0].y, v[h][1].y), lows(v[h][2].y, v[h][3].y));
                mma16816(to[3], a, highs(v[h][0].y, v[h][1].y), highs(v[h][2].y, v[h][3].y));
                mma16816(to[4], a, lows(v[h][0].z, v[h][1].z), lows(v[h][2].z, v[h][3].z));
                mma16816(to[5], a, highs(v[h][0].z, v[h][1].z), highs(v[h][2].z, v[h][3].z));
                mma16816(to[6], a, lows(v[h][0].w, v[h][1].w), lows(v[h][2].w, v[h][3].w));
                mma16816(to[7], a, highs(v[h][0].w, v[h][1].w), highs(v[h][2].w, v[h][3].w));
            }
        }
    }
}

// attendsplit computes the partial results of single rows: parts [rows,splits,heads,d] and partStats [rows,splits,heads,2]; those of keys behind the row's
// position stay as they are. A warp takes one split of one row and of up to 8 (BOTH: 16) query heads. Grid: 4 warps a block over rows * blocks of heads * splits.
template <bool BOTH>
__device__ inline void attendOne(float *parts, float *partStats, const float *q, const elem *cache, const int *tables, const int *position, int rows,
                                 int splits, int pages, int layer, int layers, int nheads, int kv, int d, float scale) {
    constexpr int MOST = BOTH ? 16 : 8;
    int group = nheads / kv, per = min(group, MOST), blocks = (group + per - 1) / per;
    int item = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), split = item % splits;
    item /= splits;
    int kvHead = item / blocks % kv, head0 = kvHead * group + item % blocks * per, row = item / blocks / kv;
    if (row >= rows) return;
    int pos = position[row], base = split * KEYS;
    if (base > pos) return;
    per = min(per, (kvHead + 1) * group - head0);
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    u32 a[8][4];
    const float *first = q + ((u64)row * nheads + head0) * d;
    fragments(a, g < per ? first + g * d : 0, BOTH && g + 8 < per ? first + (g + 8) * d : 0, d, t);
    float o[16][4], top[2], sum[2];
    int see[2] = {pos, pos};
    unit<BOTH>(o, top, sum, a, lines(cache, tables + (u64)row * pages, layer, layers, kvHead, kv, d), base, see, pos, d, scale);
#pragma unroll
    for (int side = 0; side < (BOTH ? 2 : 1); side++) {
        if (g + 8 * side >= per) break;
        u64 at = ((u64)row * splits + split) * nheads + head0 + g + 8 * side;
        if (t == 0) {
            partStats[2 * at] = top[side];
            partStats[2 * at + 1] = sum[side];
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int e = 64 * h + 16 * t + 8 * i;
                if (e >= d) break;
                float4x2 x;
#pragma unroll
                for (int j = 0; j < 8; j++) x.v[j] = o[8 * h + j][2 * side + i];
                *(float4x2 *)(parts + at * d + e) = x;
            }
    }
}

KERNEL attendsplit(float *parts, float *partStats, const float *q, const elem *cache, const int *tables, const int *position, int rows, int splits,
                   int pages, int layer, int layers, int nheads, int kv, int d, float scale) {
    attendOne<false>(parts, partStats, q, cache, tables, position, rows, splits, pages, layer, layers, nheads, kv, d, scale);
}
KERNEL attendsplit16(float *parts, float *partStats, const float *q, const elem *cache, const int *tables, const int *position, int rows, int splits,
                     int pages, int layer, int layers, int nheads, int kv, int d, float scale) {
    attendOne<true>(parts, partStats, q, cache, tables, position, rows, splits, pages, layer, layers, nheads, kv, d, scale);
}

// attendfold joins the partial results of attendsplit in order and writes out [rows,ldo]; columns from heads*d to ldo become 0. Grid: rows x heads.
KERNEL attendfold(elem *out, const float *parts, const float *partStats, const int *position, int splits, int nheads, int d, int ldo) {
    int row = blockIdx.x, head = blockIdx.y, count = position[row] / KEYS + 1;
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        Join j = {-INF, 0, 0, 0};
        float acc = 0;
#pragma unroll 4
        for (int s = 0; s < count; s++) {
            u64 at = ((u64)row * splits + s) * nheads + head;
            j = join(j.top, j.sum, partStats[2 * at], partStats[2 * at + 1]);
            acc = joined(acc, parts[at * d + i], j);
        }
        out[(u64)row * ldo + head * d + i] = put(acc / j.sum);
    }
    if (head == nheads - 1)
        for (int i = nheads * d + threadIdx.x; i < ldo; i += blockDim.x) out[(u64)row * ldo + i] = put(0.0f);
}

// Tile is the work of a warp of attendtile: rows first..first+rows-1 of a step, neighbours in one sequence.
struct Tile {
    int first, rows;
};

// attendtile writes out [rows,ldo] for rows of prompts; a warp goes through the splits of a tile of up to 16 pairs in order, a block takes four tiles. stats
// [rows,heads,2], unless null, gets the largest score and the sum of exponentials. Grid: tiles/4 x (kv heads * blocks of heads).
KERNEL attendtile(elem *out, float *stats, const float *q, const elem *cache, const int *tables, const int *sequence, const int *position,
                  const Tile *tiles, int count, int pages, int layer, int layers, int nheads, int kv, int d, int ldo, float scale) {
    __shared__ float totals[4][64][32]; // by warp, register and lane: nobody reads what another lane wrote
    int group = nheads / kv, per = min(group, PAIRS), blocks = (group + per - 1) / per;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    int item = blockIdx.x * 4 + warp, kvHead = blockIdx.y / blocks, head0 = kvHead * group + blockIdx.y % blocks * per;
    if (item >= count) return;
    per = min(per, (kvHead + 1) * group - head0);
    Tile tile = tiles[item];
    int pos0 = position[tile.first], last = pos0 + tile.rows - 1, see[2];
    float *total = &totals[warp][0][lane];
    const float *from[2];
    u64 place[2];
#pragma unroll
    for (int side = 0; side < 2; side++) {
        int pair = g + 8 * side;
        bool used = pair < tile.rows * per;
        see[side] = used ? pos0 + pair / per : -1;
        place[side] = (u64)(tile.first + pair / per) * nheads + head0 + pair % per;
        from[side] = used ? q + place[side] * d : 0;
    }
    u32 a[8][4];
    fragments(a, from[0], from[1], d, t);
    Lines l = lines(cache, tables + (u64)sequence[tile.first] * pages, layer, layers, kvHead, kv, d);
    Join j[2];
    j[0].top = j[1].top = -INF;
    j[0].sum = j[1].sum = 0;
    for (int i = 0; i < 64; i++) total[32 * i] = 0;
    for (int base = 0; base <= last; base += KEYS) {
        float o[16][4], top[2], sum[2];
        unit<true>(o, top, sum, a, l, base, see, last, d, scale);
        for (int side = 0; side < 2; side++)
            if (top[side] != -INF) j[side] = join(j[side].top, j[side].sum, top[side], sum[side]);
            else j[side].keep = 1, j[side].enter = 0;
#pragma unroll
        for (int i = 0; i < 64; i++) {
            int side = i % 4 / 2;
            total[32 * i] = joined(total[32 * i], o[i / 4][i % 4], j[side]);
        }
    }
#pragma unroll
    for (int side = 0; side < 2; side++) {
        if (see[side] < 0) break;
        elem *row = out + (u64)(tile.first + (g + 8 * side) / per) * ldo + (head0 + (g + 8 * side) % per) * d;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            int e = 64 * (i / 16) + 16 * t + i % 16; // o[8h+j][i]: element 64h+16t+8i+j
            if (e < d) row[e] = put(total[32 * ((8 * (i / 16) + i % 8) * 4 + 2 * side + i % 16 / 8)] / j[side].sum);
        }
        if (stats && t == 0) {
            stats[2 * place[side]] = j[side].top;
            stats[2 * place[side] + 1] = j[side].sum;
        }
    }
    if (head0 + per == nheads)
        for (int r = 0; r < tile.rows; r++)
            for (int i = nheads * d + lane; i < ldo; i += 32) out[(u64)(tile.first + r) * ldo + i] = put(0.0f);
}
#endif
