// embed writes x [rows,c] from the table [vocab,ldt]; one block a row.
KERNEL embed(float *x, const elem *table, const int *tokens, int c, int ldt) {
    const elem *from = table + (u64)tokens[blockIdx.x] * ldt;
    float *to = x + (u64)blockIdx.x * c;
    for (int i = threadIdx.x; i < c; i += blockDim.x) to[i] = get(from[i]);
}

// PARTS is the largest number of parts of a result of a product.
#define PARTS 6

// whole adds the parts of a number, apart elements from each other, in order.
__device__ inline float whole(const float *at, int parts, u64 apart) {
    float part[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; p++)
        if (p < parts) part[p] = at[p * apart];
#pragma unroll
    for (int p = 1; p < PARTS; p++)
        if (p < parts) part[0] += part[p];
    return part[0];
}

// HOLD times four neighbouring elements of a row stay in a thread's registers; what a wider row has more, and rows that are no multiple of four, is read twice.
#define HOLD 3

struct alignas(16) Four {
    float v[4];
};
struct alignas(4 * sizeof(elem)) FourElems {
    elem v[4];
};

// addnorm adds delta to x in place (unless delta is null) and writes y = w x / sqrt(mean(x^2) + eps); one block a row. Row i of y [rows,ldy] is
// row map[i] of x and delta [.,c], or row i when map is null. delta comes in parts, apart elements from each other, which are added in order. Columns from c to
// ldy become 0. Source: Zhang and Sennrich 2019, eq. 4.
KERNEL addnorm(elem *y, float *x, const float *delta, const float *w, const int *map, int c, int ldy, float eps, int parts, u64 apart) {
    __shared__ float scratch[WARPS];
    int fours = c % 4 == 0 ? min(c / 4, (int)(HOLD * blockDim.x)) : 0, rest = 4 * fours + threadIdx.x;
    Four held[HOLD], scale[HOLD], part[PARTS];
#pragma unroll
    for (int j = 0; j < HOLD; j++) {
        int i = threadIdx.x + j * blockDim.x;
        if (i < fours) scale[j] = ((const Four *)w)[i];
    }
    await();
    u64 row = map ? map[blockIdx.x] : blockIdx.x;
    float *in = x + row * c, sum = 0;
    elem *out = y + (u64)blockIdx.x * ldy;
#pragma unroll
    for (int j = 0; j < HOLD; j++) {
        int i = threadIdx.x + j * blockDim.x;
        if (i >= fours) continue;
        held[j] = ((const Four *)in)[i];
        if (!delta) continue;
#pragma unroll
        for (int p = 0; p < PARTS; p++)
            if (p < parts) part[p] = ((const Four *)(delta + p * apart + row * c))[i];
#pragma unroll
        for (int p = 1; p < PARTS; p++)
            for (int e = 0; e < 4; e++)
                if (p < parts) part[0].v[e] += part[p].v[e];
        for (int e = 0; e < 4; e++) held[j].v[e] += part[0].v[e];
    }
#pragma unroll
    for (int j = 0; j < HOLD; j++) {
        int i = threadIdx.x + j * blockDim.x;
        if (i >= fours) continue;
        if (delta) ((Four *)in)[i] = held[j];
        for (int e = 0; e < 4; e++) sum = fmaf(held[j].v[e], held[j].v[e], sum);
    }
    for (int i = rest; i < c; i += blockDim.x) {
        float v = in[i];
        if (delta) in[i] = v += whole(delta + row * c + i, parts, apart);
        sum = fmaf(v, v, sum);
    }
    float r = 1.0f / sqrtf(blockTree(sum, scratch) / (float)c + eps);
#pragma unroll
    for (int j = 0; j < HOLD; j++) {
        int i = threadIdx.x + j * blockDim.x;
        if (i >= fours) continue;
        FourElems o;
        for (int e = 0; e < 4; e++) o.v[e] = put(held[j].v[e] * r * scale[j].v[e]);
        ((FourElems *)out)[i] = o;
    }
    for (int i = rest; i < ldy; i += blockDim.x) out[i] = put(i < c ? in[i] * r * w[i] : 0.0f);
}

// PAGE is the number of tokens of a cache page.
#define PAGE 32

// slot is the place of a token in the cache: pages [page][layer][key|value][kv head][PAGE][d].
__device__ inline u64 slot(const int *table, int pos, int layer, int layers, int value, int head, int kv, int d) {
    u64 page = table[pos / PAGE];
    return ((((page * layers + layer) * 2 + value) * kv + head) * PAGE + pos % PAGE) * d;
}

// heads turns the projections qkv [rows, (heads+2 kv) d] into queries q [rows, heads d] and the cache's keys and values: every query and key
// head is normalised (Qwen3) and rotated by its position, pairs (i, i+d/2) (Su et al. 2021, half-split form). A warp takes a head. Grid: rows x blocks of
// heads. qkv comes in parts, apart elements from each other, which are added in order. tables [sequences,pages] are the pages of a sequence; sequence, unless null for table i of row i, and position are per row; cosine and sine are
// [positions, d/2].
KERNEL heads(float *q, elem *cache, const float *qkv, const float *qw, const float *kw, const float *cosine, const float *sine, const int *tables,
             const int *sequence, const int *position, int pages, int layer, int layers, int nheads, int kv, int d, float eps, int parts, u64 apart) {
    int row = blockIdx.x, head = blockIdx.y * (blockDim.x >> 5) + (threadIdx.x >> 5), lane = threadIdx.x & 31, half = d / 2;
    await();
    if (head >= nheads + 2 * kv) return;
    int pos = position[row];
    const float *in = qkv + ((u64)row * (nheads + 2 * kv) + head) * d;
    const int *table = tables + (u64)(sequence ? sequence[row] : row) * pages;
    if (head >= nheads + kv) {
        elem *out = cache + slot(table, pos, layer, layers, 1, head - nheads - kv, kv, d);
        for (int i = lane; i < d; i += 32) out[i] = put(whole(in + i, parts, apart));
        return;
    }
    float sum = 0, low[4], high[4]; // heads have at most 256 elements
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int i = lane + 32 * j;
        low[j] = i < half ? whole(in + i, parts, apart) : 0.0f;
        high[j] = i < half ? whole(in + i + half, parts, apart) : 0.0f;
        sum = fmaf(low[j], low[j], sum);
        sum = fmaf(high[j], high[j], sum);
    }
    float r = 1.0f / sqrtf(warpSum(sum) / (float)d + eps);
    const float *w = head < nheads ? qw : kw;
    const float *co = cosine + (u64)pos * half, *si = sine + (u64)pos * half;
    float *queries = q + ((u64)row * nheads + head) * d;
    elem *keys = head < nheads ? 0 : cache + slot(table, pos, layer, layers, 0, head - nheads, kv, d);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int i = lane + 32 * j;
        if (i >= half) break;
        float a = low[j] * r * w[i], b = high[j] * r * w[i + half];
        float lo = a * co[i] - b * si[i], hi = b * co[i] + a * si[i];
        if (head < nheads) {
            queries[i] = lo;
            queries[i + half] = hi;
        } else {
            keys[i] = put(lo);
            keys[i + half] = put(hi);
        }
    }
}

// silumul writes h [rows,ldh] = silu(gate) up from gu [rows, 2 f], which comes in parts, apart elements from each other; columns from f to ldh become 0. A thread
// takes 4 columns, a block of threads apart. Grid: rows x blocks of columns.
KERNEL silumul(elem *h, const float *gu, int f, int ldh, int parts, u64 apart) {
    const float *gate = gu + (u64)blockIdx.x * 2 * f, *up = gate + f;
    elem *out = h + (u64)blockIdx.x * ldh;
    float a[4], b[4];
    await();
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int i = (blockIdx.y * 4 + j) * blockDim.x + threadIdx.x;
        a[j] = i < f ? whole(gate + i, parts, apart) : 0.0f;
        b[j] = i < f ? whole(up + i, parts, apart) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int i = (blockIdx.y * 4 + j) * blockDim.x + threadIdx.x;
        if (i < ldh) out[i] = put(a[j] / (1.0f + expf(-a[j])) * b[j]);
    }
}
