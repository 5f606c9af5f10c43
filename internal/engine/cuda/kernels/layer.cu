// embed writes x [rows,c] from the table [vocab,ldt]; one block a row.
KERNEL embed(float *x, const elem *table, const int *tokens, int c, int ldt) {
    const elem *from = table + (u64)tokens[blockIdx.x] * ldt;
    float *to = x + (u64)blockIdx.x * c;
    for (int i = threadIdx.x; i < c; i += blockDim.x) to[i] = get(from[i]);
}

// addnorm adds delta to x in place (unless delta is null) and writes y = w x / sqrt(mean(x^2) + eps); one block a row. Row i of y [rows,ldy] is
// row map[i] of x and delta [.,c], or row i when map is null. Columns from c to ldy become 0. Source: Zhang and Sennrich 2019, eq. 4.
KERNEL addnorm(elem *y, float *x, const float *delta, const float *w, const int *map, int c, int ldy, float eps) {
    __shared__ float scratch[WARPS];
    u64 row = map ? map[blockIdx.x] : blockIdx.x;
    float *in = x + row * c;
    elem *out = y + (u64)blockIdx.x * ldy;
    float sum = 0;
    for (int i = threadIdx.x; i < c; i += blockDim.x) {
        float v = in[i];
        if (delta) in[i] = v += delta[row * c + i];
        sum = fmaf(v, v, sum);
    }
    float r = 1.0f / sqrtf(blockSum(sum, scratch) / (float)c + eps);
    for (int i = threadIdx.x; i < ldy; i += blockDim.x) out[i] = put(i < c ? in[i] * r * w[i] : 0.0f);
}

// PAGE is the number of tokens of a cache page.
#define PAGE 32

// slot is the place of a token in the cache: pages [page][layer][key|value][kv head][PAGE][d].
__device__ inline u64 slot(const int *table, int pos, int layer, int layers, int value, int head, int kv, int d) {
    u64 page = table[pos / PAGE];
    return ((((page * layers + layer) * 2 + value) * kv + head) * PAGE + pos % PAGE) * d;
}

// heads turns the projections qkv [rows, (heads+2 kv) d] into queries q [rows, heads d] and the cache's keys and values: every query and key
// head is normalised (Qwen3) and rotated by its position, pairs (i, i+d/2) (Su et al. 2021, half-split form). Grid: rows x (heads + 2 kv).
// tables [sequences,pages] are the pages of a sequence; sequence and position are per row; cosine and sine are [positions, d/2].
KERNEL heads(float *q, elem *cache, const float *qkv, const float *qw, const float *kw, const float *cosine, const float *sine, const int *tables,
             const int *sequence, const int *position, int pages, int layer, int layers, int nheads, int kv, int d, float eps) {
    __shared__ float scratch[WARPS];
    int row = blockIdx.x, head = blockIdx.y, pos = position[row], half = d / 2;
    const float *in = qkv + ((u64)row * (nheads + 2 * kv) + head) * d;
    const int *table = tables + (u64)sequence[row] * pages;
    if (head >= nheads + kv) {
        elem *out = cache + slot(table, pos, layer, layers, 1, head - nheads - kv, kv, d);
        for (int i = threadIdx.x; i < d; i += blockDim.x) out[i] = put(in[i]);
        return;
    }
    float sum = 0;
    for (int i = threadIdx.x; i < d; i += blockDim.x) sum = fmaf(in[i], in[i], sum);
    float r = 1.0f / sqrtf(blockSum(sum, scratch) / (float)d + eps);
    const float *w = head < nheads ? qw : kw;
    const float *co = cosine + (u64)pos * half, *si = sine + (u64)pos * half;
    float *queries = q + ((u64)row * nheads + head) * d;
    elem *keys = head < nheads ? 0 : cache + slot(table, pos, layer, layers, 0, head - nheads, kv, d);
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        float a = in[i] * r * w[i], b = in[i + half] * r * w[i + half];
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

// silumul writes h [rows,ldh] = silu(gate) up from gu [rows, 2 f]; columns from f to ldh become 0. Grid: rows x blocks of columns.
KERNEL silumul(elem *h, const float *gu, int f, int ldh) {
    int i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= ldh) return;
    const float *in = gu + (u64)blockIdx.x * 2 * f;
    float y = 0;
    if (i < f) y = in[i] / (1.0f + expf(-in[i])) * in[f + i];
    h[(u64)blockIdx.x * ldh + i] = put(y);
}
