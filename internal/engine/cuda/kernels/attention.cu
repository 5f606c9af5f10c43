// MAXD is the widest head, TILE the number of keys between two corrections of the running maximum.
#define MAXD 256
#define TILE 64

// attention writes out [rows,ldo] = softmax(q k / sqrt(d)) v over the keys 0..position of the row's sequence; grid rows x heads. Prompts and single
// tokens take the same path, so a token has the same bits in both. The softmax runs online over tiles of keys in order (Milakov and
// Gimelshein 2018). Columns from heads*d to ldo are cleared by the last head's block. stats [rows,heads], unless null, gets the largest score and the
// sum of exponentials.
KERNEL attention(elem *out, const float *q, const elem *cache, const int *tables, const int *sequence, const int *position, int pages, int layer,
                 int layers, int nheads, int kv, int d, int ldo, float scale, float *stats) {
    __shared__ float query[MAXD], score[TILE], scratch[WARPS];
    int row = blockIdx.x, head = blockIdx.y, group = nheads / kv, pos = position[row];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const int *table = tables + (u64)sequence[row] * pages;
    for (int i = threadIdx.x; i < d; i += blockDim.x) query[i] = q[((u64)row * nheads + head) * d + i] * scale;
    float sum = 0, top = -INF, acc[MAXD / 32];
    for (int j = 0; j < MAXD / 32; j++) acc[j] = 0;
    for (int first = 0; first <= pos; first += TILE) {
        int n = min(TILE, pos + 1 - first);
        __syncthreads();
        for (int j = warp; j < n; j += warps) {
            const elem *key = cache + slot(table, first + j, layer, layers, 0, head / group, kv, d);
            float s = 0;
            for (int i = lane; i < d; i += 32) s = fmaf(query[i], get(key[i]), s);
            s = warpSum(s);
            if (lane == 0) score[j] = s;
        }
        __syncthreads();
        float m = top;
        for (int j = 0; j < n; j++) m = fmaxf(m, score[j]);
        float correct = expf(top - m), part = 0;
        __syncthreads();
        for (int j = threadIdx.x; j < n; j += blockDim.x) {
            float e = expf(score[j] - m);
            score[j] = e;
            part += e;
        }
        sum = sum * correct + blockSum(part, scratch);
        top = m;
        int c = 0;
        for (int i = threadIdx.x; i < d; i += blockDim.x, c++) {
            float a = acc[c] * correct;
            for (int j = 0; j < n; j++) a = fmaf(score[j], get(cache[slot(table, first + j, layer, layers, 1, head / group, kv, d) + i]), a);
            acc[c] = a;
        }
    }
    elem *to = out + (u64)row * ldo + head * d;
    int c = 0;
    for (int i = threadIdx.x; i < d; i += blockDim.x, c++) to[i] = put(acc[c] / sum);
    if (stats && threadIdx.x == 0) {
        stats[2 * ((u64)row * nheads + head)] = top;
        stats[2 * ((u64)row * nheads + head) + 1] = sum;
    }
    if (head == nheads - 1)
        for (int i = nheads * d + threadIdx.x; i < ldo; i += blockDim.x) out[(u64)row * ldo + i] = put(0.0f);
}
