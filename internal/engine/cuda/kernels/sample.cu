// SEGMENT logits are summed by one warp; SEGMENTS bounds the vocabulary. SORTED is the widest record that is sorted here.
#define SEGMENT 1024
#define SEGMENTS 512
#define SORTED 1024

// uniform is rng.Stream.Uniform: Philox 4x32-10 (Salmon et al. 2011) at a position, 53 bits.
__device__ inline double uniform(const u32 *stream, u32 pos) {
    u32 c0 = pos, c1 = 0, c2 = stream[2], c3 = stream[3], k0 = stream[0], k1 = stream[1];
    for (int i = 0; i < 10; i++) {
        u32 hi0 = __umulhi(0xD2511F53u, c0), lo0 = 0xD2511F53u * c0, hi1 = __umulhi(0xCD9E8D57u, c2), lo1 = 0xCD9E8D57u * c2;
        c0 = hi1 ^ c1 ^ k0;
        c1 = lo1;
        c2 = hi0 ^ c3 ^ k1;
        c3 = lo0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (double)((((u64)c1 << 32) | c0) >> 11) * (1.0 / 9007199254740992.0);
}

// rank orders by logit, then by descending id: the larger comes first. Zeros of both signs are equal.
__device__ inline u64 rank(float x, u32 id) {
    u32 b = x == 0.0f ? 0u : __float_as_uint(x);
    b = b >> 31 ? ~b : b | 0x80000000u;
    return (u64)b << 32 | (u32)~id;
}

// What a row asks for and gets; the layout is that of the Go structs ask and answer.
struct Ask {
    u32 stream[4];
    u32 position;
    float inverse; // 1/temperature
    int target;    // an id to score, or -1 to draw
    int top;       // width of the record, at most the vocabulary
};

struct Answer {
    int id;
    float logProb, entropy;
    int bad; // 1 when a logit is not finite
};

__device__ inline float scaled(const float *z, int i, float inverse) { return __fmul_rn(z[i], inverse); }

// Spread is what all threads of a block know of the distribution of a row of logits: their largest, the sum of exponentials of the distances to
// it, that of the exponentials times the distances, and the logarithm of the sum. bad is 1 when a logit is not finite.
struct Spread {
    float top, logSum;
    double total, weight;
    int bad;
};

// spread computes it; sums and weighted are left for the caller. Exponentials are float32, their sums float64 in a fixed order.
__device__ inline Spread spread(const float *z, int vocab, float inverse, float *scratch, double *sums, double *weighted) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, segments = (vocab + SEGMENT - 1) / SEGMENT;
    Spread out;
    float top = -INF, bad = 0;
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
        float v = scaled(z, i, inverse);
        if (!(fabsf(v) < INF)) bad = 1;
        top = fmaxf(top, v);
    }
    out.bad = blockSum(bad, scratch) > 0;
    out.top = top = blockMax(top, scratch);
    out.total = out.weight = out.logSum = 0;
    if (out.bad) return out;
    for (int s = warp; s < segments; s += warps) {
        double sum = 0, weight = 0;
        for (int i = s * SEGMENT + lane; i < min(vocab, (s + 1) * SEGMENT); i += 32) {
            float shifted = scaled(z, i, inverse) - top, e = expf(shifted);
            sum += e;
            weight += (double)e * shifted;
        }
        sum = warpSumDouble(sum);
        weight = warpSumDouble(weight);
        if (lane == 0) {
            sums[s] = sum;
            weighted[s] = weight;
        }
    }
    __syncthreads();
    // All threads go the same way through the few sums, so that nothing has to be handed round.
    for (int s = 0; s < segments; s++) {
        out.total += sums[s];
        out.weight += weighted[s];
    }
    out.logSum = (float)log(out.total);
    return out;
}

// sample draws from each row of logits [rows,vocab] by inverting the distribution in index order, or scores a target, and writes the record of
// the most probable ids: keys and values [rows,width], most probable first when top <= SORTED, else in any order. One block a row.
KERNEL sample(Answer *answers, u64 *keys, float *values, const float *logits, const Ask *asks, int vocab, int width) {
    __shared__ float scratch[WARPS];
    __shared__ double sums[SEGMENTS], weighted[SEGMENTS], part[32];
    __shared__ int chosen, count, histogram[256], bin, remaining;
    __shared__ u64 sorted[SORTED];
    const float *z = logits + (u64)blockIdx.x * vocab;
    Ask ask = asks[blockIdx.x];
    Answer *answer = answers + blockIdx.x;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, segments = (vocab + SEGMENT - 1) / SEGMENT;

    Spread all = spread(z, vocab, ask.inverse, scratch, sums, weighted);
    if (all.bad) {
        if (threadIdx.x == 0) answer->bad = 1;
        return;
    }
    float top = all.top, logSum = all.logSum;
    double total = all.total, weight = all.weight;

    int id = ask.target;
    if (id < 0) {
        double goal = uniform(ask.stream, ask.position) * total, below = 0;
        int s = 0, last = 0;
        double before = 0, beforeLast = 0;
        for (s = 0; s < segments; s++) {
            if (sums[s] > 0) {
                last = s;
                beforeLast = before;
                if (before + sums[s] > goal) break;
            }
            before += sums[s];
        }
        below = beforeLast;
        int begin = last * SEGMENT, end = min(vocab, begin + SEGMENT);
        if (warp == 0) {
            double sum = 0;
            for (int i = begin + lane * 32; i < min(end, begin + lane * 32 + 32); i++) sum += expf(scaled(z, i, ask.inverse) - top);
            part[lane] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int l = 0, at = 0;
            double beforeAt = below;
            for (l = 0; l < 32; l++) {
                if (part[l] > 0) {
                    at = l;
                    beforeAt = below;
                    if (below + part[l] > goal) break;
                }
                below += part[l];
            }
            int found = begin + at * 32;
            for (int i = found; i < min(end, begin + at * 32 + 32); i++) {
                float e = expf(scaled(z, i, ask.inverse) - top);
                if (e == 0.0f) continue;
                found = i;
                beforeAt += e;
                if (beforeAt > goal) break;
            }
            chosen = found;
        }
        __syncthreads();
        id = chosen;
    }
    if (threadIdx.x == 0) {
        answer->id = id;
        answer->logProb = scaled(z, id, ask.inverse) - top - logSum;
        answer->entropy = (float)(log(total) - weight / total);
        answer->bad = 0;
    }
    if (ask.top == 0) return;

    // The key of the top-th largest: 8 bits at a time from above, until a bin is taken whole.
    u64 prefix = 0;
    int shift = 56, need = ask.top;
    for (;; shift -= 8) {
        __syncthreads();
        for (int i = threadIdx.x; i < 256; i += blockDim.x) histogram[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
            u64 key = rank(scaled(z, i, ask.inverse), i);
            if (shift == 56 || key >> (shift + 8) == prefix) atomicAdd(&histogram[(key >> shift) & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int b = 255, left = need;
            while (histogram[b] < left) left -= histogram[b--];
            bin = b;
            remaining = left;
            count = 0;
        }
        __syncthreads();
        prefix = prefix << 8 | (u64)bin;
        need = remaining;
        if (histogram[bin] == need || shift == 0) break;
    }
    u64 threshold = prefix << shift;
    int size = 1;
    while (size < ask.top) size <<= 1;
    bool sort = ask.top <= SORTED;
    u64 *to = sort ? sorted : keys + (u64)blockIdx.x * width;
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
        u64 key = rank(scaled(z, i, ask.inverse), i);
        if (key >= threshold) to[atomicAdd(&count, 1)] = key;
    }
    if (sort) {
        for (int i = ask.top + threadIdx.x; i < size; i += blockDim.x) sorted[i] = 0;
        // Bitonic, descending; keys are distinct, so the order in which they came does not matter.
        for (int span = 2; span <= size; span <<= 1)
            for (int step = span >> 1; step > 0; step >>= 1) {
                __syncthreads();
                for (int i = threadIdx.x; i < size; i += blockDim.x) {
                    int j = i ^ step;
                    if (j <= i) continue;
                    u64 a = sorted[i], b = sorted[j];
                    if ((a < b) == ((i & span) == 0)) {
                        sorted[i] = b;
                        sorted[j] = a;
                    }
                }
            }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < ask.top; i += blockDim.x) {
        u64 key = to[i];
        keys[(u64)blockIdx.x * width + i] = key;
        values[(u64)blockIdx.x * width + i] = scaled(z, (int)~(u32)key, ask.inverse) - top - logSum;
    }
}
