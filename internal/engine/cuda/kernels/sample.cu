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
    int target;    // an id to score, or -1 to draw, or IDLE
    int top;       // width of the record, at most the vocabulary
};

#define IDLE -2 // nobody asks

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

// The sampler reads the logits of a row in chunks of CHUNKED by many blocks: samplemax, samplebound, samplesum, then samplepick, one block a row. GROUP
// neighbouring logits have one maximum; the record's threshold is a lower bound from these. CANDIDATES bounds the ids that reach it; a row with more, which
// takes many equal logits, and a record wider than SORTED are searched as a whole.
#define CHUNKED 4096
#define GROUP 128
#define CANDIDATES 1024

// Row is what the kernels of a row of logits tell each other.
struct Row {
    float top;
    u32 bound; // upper half of the rank that ids of the record reach
    int bad, count;
};

// samplemax writes tops [rows,groups]: the largest logit of each group, after the temperature, INF when one is not finite. Grid: rows x chunks.
KERNEL samplemax(float *tops, const float *logits, const Ask *asks, int vocab, int groups) {
    const float *z = logits + (u64)blockIdx.x * vocab;
    await();
    float inverse = asks[blockIdx.x].inverse;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (int group = blockIdx.y * (CHUNKED / GROUP) + warp; group < min(groups, (int)(blockIdx.y + 1) * (CHUNKED / GROUP)); group += warps) {
        float top = -INF;
#pragma unroll
        for (int i = 0; i < GROUP / 32; i++) {
            int at = group * GROUP + 32 * i + lane;
            if (at >= vocab) break;
            float v = scaled(z, at, inverse);
            top = fabsf(v) < INF ? fmaxf(top, v) : INF;
        }
        top = warpMax(top);
        if (lane == 0) tops[(u64)blockIdx.x * groups + group] = top;
    }
}

// samplebound finds a row's largest logit and a bound that its ask.top largest logits reach: of as many groups the largest does, and 16 bits of a
// number are enough. One block a row.
KERNEL samplebound(Row *rows, const float *tops, const Ask *asks, int groups) {
    __shared__ float scratch[WARPS];
    await();
    tops += (u64)blockIdx.x * groups;
    int need = asks[blockIdx.x].top;
    float top = -INF;
    for (int i = threadIdx.x; i < groups; i += blockDim.x) top = fmaxf(top, tops[i]);
    top = blockMax(top, scratch);
    u32 bound = 0;
    if (need > 0 && need <= groups)
        for (u32 bit = 1u << 31; bit >= 1u << 16; bit >>= 1) {
            float count = 0;
            for (int i = threadIdx.x; i < groups; i += blockDim.x)
                if ((u32)(rank(tops[i], 0) >> 32) >= (bound | bit)) count += 1;
            if (blockSum(count, scratch) >= (float)need) bound |= bit;
        }
    if (threadIdx.x != 0) return;
    Row r = {top, bound, top == INF, 0};
    rows[blockIdx.x] = r;
}

// samplesum writes the sums [rows,2,segments] of spread, and the ranks [rows,CANDIDATES] of ids that reach the bound, in any order. Grid: rows x chunks.
KERNEL samplesum(double *sums, u64 *candidates, Row *rows, const float *logits, const Ask *asks, int vocab) {
    const float *z = logits + (u64)blockIdx.x * vocab;
    Row *row = rows + blockIdx.x;
    await();
    if (row->bad) return;
    float inverse = asks[blockIdx.x].inverse, top = row->top;
    u32 bound = row->bound;
    bool record = asks[blockIdx.x].top > 0;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, segments = (vocab + SEGMENT - 1) / SEGMENT;
    for (int s = blockIdx.y * (CHUNKED / SEGMENT) + warp; s < min(segments, (int)(blockIdx.y + 1) * (CHUNKED / SEGMENT)); s += warps) {
        double sum = 0, weight = 0;
#pragma unroll 8
        for (int i = s * SEGMENT + lane; i < min(vocab, (s + 1) * SEGMENT); i += 32) {
            float v = scaled(z, i, inverse), shifted = v - top, e = expf(shifted);
            sum += e;
            weight += (double)e * shifted;
            if (!record) continue;
            u64 key = rank(v, i);
            if ((u32)(key >> 32) < bound) continue;
            int at = atomicAdd(&row->count, 1);
            if (at < CANDIDATES) candidates[(u64)blockIdx.x * CANDIDATES + at] = key;
        }
        sum = warpSumDouble(sum);
        weight = warpSumDouble(weight);
        if (lane == 0) {
            sums[(u64)blockIdx.x * 2 * segments + s] = sum;
            sums[((u64)blockIdx.x * 2 + 1) * segments + s] = weight;
        }
    }
}

// samplepick draws from each row of logits [rows,vocab] by inverting the distribution in index order, or scores a target, and writes the record of
// the most probable ids: ids and values [rows,width], most probable first; keys [rows,width] are scratch and needed for records wider than SORTED, which
// come in any order. If tokens is not null, the row moves on by its new token. One block of 256 threads a row.
KERNEL samplepick(Answer *answers, int *ids, float *values, u64 *keys, const Row *rows, const double *rowSums, const u64 *candidates,
                  const float *logits, Ask *asks, int vocab, int width, int *tokens, int *positions) {
    __shared__ double sums[SEGMENTS], part[32];
    __shared__ int chosen, count, histogram[256], bin, remaining;
    __shared__ u64 sorted[SORTED];
    await();
    const float *z = logits + (u64)blockIdx.x * vocab;
    Ask ask = asks[blockIdx.x];
    Row row = rows[blockIdx.x];
    Answer *answer = answers + blockIdx.x;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, segments = (vocab + SEGMENT - 1) / SEGMENT;

    if (row.bad || ask.target == IDLE) {
        if (threadIdx.x == 0) answer->bad = 1;
        return;
    }
    const double *from = rowSums + (u64)blockIdx.x * 2 * segments;
    for (int s = threadIdx.x; s < segments; s += blockDim.x) sums[s] = from[s];
    __syncthreads();
    // All threads go the same way through the few sums, so that nothing has to be handed round; the order is that of spread.
    float top = row.top;
    double total = 0, weight = 0;
    for (int s = 0; s < segments; s++) {
        total += sums[s];
        weight += from[segments + s];
    }
    float logSum = (float)log(total);

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
        if (tokens) {
            tokens[blockIdx.x] = id;
            positions[blockIdx.x]++;
            asks[blockIdx.x].position++;
        }
    }
    if (ask.top == 0) return;
    int size = 1, have = ask.top;
    bool sort = ask.top <= SORTED;
    u64 *to = sort ? sorted : keys + (u64)blockIdx.x * width;
    if (sort && row.count <= CANDIDATES && row.count >= ask.top) {
        have = row.count;
        for (int i = threadIdx.x; i < have; i += blockDim.x) sorted[i] = candidates[(u64)blockIdx.x * CANDIDATES + i];
    } else {

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
        for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
            u64 key = rank(scaled(z, i, ask.inverse), i);
            if (key >= threshold) to[atomicAdd(&count, 1)] = key;
        }
    }
    if (sort) {
        while (size < have) size <<= 1;
        for (int i = have + threadIdx.x; i < size; i += blockDim.x) sorted[i] = 0;
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
        ids[(u64)blockIdx.x * width + i] = (int)~(u32)key;
        values[(u64)blockIdx.x * width + i] = scaled(z, (int)~(u32)key, ask.inverse) - top - logSum;
    }
}
