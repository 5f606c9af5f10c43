// Products on the tensor cores of Hopper: y = x W^T with W [out,in] and x [rows,in], row by row. A module of its own, for sm_90a alone; see product.go. Rows of W
// are the M of the instruction and rows of x its N, so that few rows of x cost little. The copy engine brings blocks of STEP columns of both to shared memory, in the
// order that the tensor cores read; two warps ask for them, the others multiply. What a kernel reads of W does not wait for the kernel before.
//
// The inner dimension is summed in parts: one is a chain of instructions over 16 columns each, in order, and parts are added in order, here or by who reads
// them. An element of y depends on its row of x, its row of W and the number of parts. Neither the size of a tile nor who adds the parts changes a bit.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define STEP 64                            // columns of a copy: 128 bytes of a row
#define KEEP_LAST 0x14F0000000000000ull    // the policy of the L2 cache for x, which every block reads

// TensorMap describes a matrix to the copy engine; the driver fills it.
struct alignas(64) TensorMap {
    u64 words[16];
};

__device__ inline u32 sharedOf(const void *p) {
    u32 a;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
    return a;
}

// Barriers in shared memory. A round of one ends when all have arrived and all bytes that were expected have come; its parity tells rounds apart.
__device__ inline void barrierSet(u32 b, u32 count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(b), "r"(count) : "memory"); }
__device__ inline void barrierArrive(u32 b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(b) : "memory"); }
__device__ inline void barrierExpect(u32 b, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
__device__ inline void barrierWait(u32 b, u32 parity) {
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra again;\n}" ::"r"(b), "r"(parity) : "memory");
}

// copyTile copies a box of the map, from this column and row on, and counts its bytes at the barrier. What is outside the matrix is 0.
__device__ inline void copyTile(u32 to, const TensorMap *map, int column, int row, u32 barrier, u64 policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
                 : "memory");
}

// copyPairs is the same for a matrix of two halves, of which it takes eight rows in turn; group counts such eights.
__device__ inline void copyPairs(u32 to, const TensorMap *map, int column, int group, u32 barrier, u64 policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %3, %4}], [%5], %6;" ::"r"(to),
                 "l"(map), "r"(column), "r"(0), "r"(group), "r"(barrier), "l"(policy)
                 : "memory");
}

// operandOf describes rows of 128 bytes from this address in shared memory on, in groups of eight rows, swizzled.
__device__ inline u64 operandOf(u32 at) { return (u64)((at & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62; }

// multiply adds W [64,16] x^T [16,N] to d, or writes it when add is 0. Four warps do it together.
__device__ inline void multiply(float (&d)[32], u64 w, u64 x, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "%32, %33, p, 1, 1, 0, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(w), "l"(x), "r"(add));
}
__device__ inline void multiply(float (&d)[64], u64 w, u64 x, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "%64, %65, p, 1, 1, 0, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(w), "l"(x), "r"(add));
}
__device__ inline void multiply(float (&d)[128], u64 w, u64 x, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, "
        "%128, %129, p, 1, 1, 0, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
          "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
          "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
          "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
          "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
          "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
          "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
          "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "l"(w), "l"(x), "r"(add));
}

__device__ inline void multiplyBegin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void multiplyCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// multiplyWait waits for all but the last LEFT groups of instructions.
template <int LEFT> __device__ inline void multiplyWait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

// Walk is a place in the blocks of columns of a block's items.
struct Walk {
    int item, wTile, xTile, part, step, end;
};

// Work is what a launch has to do. An item is a tile of W, a tile of x, and one part of the columns or, if whole, all; tiles of x are numbered first, then tiles of
// W, then parts. A block takes every gridDim.x-th.
struct Work {
    int items, xTiles, wTiles, steps, parts, whole;

    __device__ bool open(Walk *w) const {
        if (w->item >= items) return false;
        int rest = w->item / xTiles;
        w->xTile = w->item % xTiles;
        w->wTile = rest % wTiles;
        w->part = rest / wTiles;
        w->step = first(w->part);
        w->end = whole ? steps : first(w->part + 1);
        return true;
    }

    // first is where a part begins.
    __device__ int first(int part) const { return steps * part / parts; }

    // next moves to the next block of columns; false behind the last.
    __device__ bool next(Walk *w) const {
        if (++w->step < w->end) return true;
        w->item += gridDim.x;
        return open(w);
    }
};

// product is the work of a block: GROUPS of four warps with 64 rows of W each, N rows of x, and two warps that copy: one W, at most AHEAD blocks of columns before they are
// used and FLYING at once (more would only wait in line, and so would what other kernels ask for), one x, at most NEAR.
// PAIRED: rows of W come from its two halves in turn, and silu(first half) second half is written to the elements to [rows,out/2]. Else y is written to the numbers
// to [rows,out], part p at p times apart. JOIN adds the parts of whole items.
template <int N, int GROUPS, int AHEAD, int NEAR, int FLYING, bool PAIRED, bool JOIN>
__device__ inline void product(const TensorMap *wMap, const TensorMap *xMap, void *to, Work work, int rows, int out, u64 apart, u64 policy) {
    extern __shared__ char memory[];
    __shared__ alignas(8) u64 barriers[2 * (AHEAD + NEAR)];
    const u32 bytesW = GROUPS * 64 * 2 * STEP, bytesX = N * 2 * STEP;
    u32 placeW = (sharedOf(memory) + 1023) & ~1023u, placeX = placeW + AHEAD * bytesW;
    u32 fullW = sharedOf(barriers), emptyW = fullW + 8 * AHEAD, fullX = emptyW + 8 * AHEAD, emptyX = fullX + 8 * NEAR;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (threadIdx.x == 0) {
        for (int i = 0; i < AHEAD; i++) barrierSet(fullW + 8 * i, 1), barrierSet(emptyW + 8 * i, 4 * GROUPS);
        for (int i = 0; i < NEAR; i++) barrierSet(fullX + 8 * i, 1), barrierSet(emptyX + 8 * i, 4 * GROUPS);
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    asm volatile("griddepcontrol.launch_dependents;");
    Walk w;
    w.item = blockIdx.x;
    if (warp >= 4 * GROUPS && lane > 0) return;
    if (warp == 4 * GROUPS) { // copies W
        if (!work.open(&w)) return;
        int asked = 0;
        do {
            u32 stage = asked % AHEAD, barrier = fullW + 8 * stage;
            if (asked >= AHEAD) barrierWait(emptyW + 8 * stage, (asked / AHEAD - 1) & 1);
            if (asked >= FLYING) barrierWait(fullW + 8 * ((asked - FLYING) % AHEAD), (asked - FLYING) / AHEAD & 1);
            barrierExpect(barrier, bytesW);
            if (PAIRED) copyPairs(placeW + stage * bytesW, wMap, w.step * STEP, w.wTile * GROUPS * 4, barrier, policy);
            else copyTile(placeW + stage * bytesW, wMap, w.step * STEP, w.wTile * GROUPS * 64, barrier, policy);
            asked++;
        } while (work.next(&w));
        return;
    }
    if (warp > 4 * GROUPS) { // copies x, the work of the kernel before
        asm volatile("griddepcontrol.wait;\nfence.proxy.async;" ::: "memory");
        if (!work.open(&w)) return;
        int asked = 0;
        do {
            u32 stage = asked % NEAR, barrier = fullX + 8 * stage;
            if (asked >= NEAR) barrierWait(emptyX + 8 * stage, (asked / NEAR - 1) & 1);
            barrierExpect(barrier, bytesX);
            copyTile(placeX + stage * bytesX, xMap, w.step * STEP, w.xTile * N, barrier, KEEP_LAST);
            asked++;
        } while (work.next(&w));
        return;
    }
    int group = warp >> 2, g = lane >> 2, t = lane & 3, used = 0;
    for (; work.open(&w); w.item += gridDim.x) {
        float acc[N / 2], total[JOIN ? N / 2 : 1];
        for (int part = w.part;; part++) {
            int begin = w.step, end = work.first(part + 1);
            for (; w.step < end; w.step++, used++) {
                u32 stageW = used % AHEAD, stageX = used % NEAR;
                barrierWait(fullW + 8 * stageW, used / AHEAD & 1);
                barrierWait(fullX + 8 * stageX, used / NEAR & 1);
                u64 a = operandOf(placeW + stageW * bytesW + group * 64 * 2 * STEP), b = operandOf(placeX + stageX * bytesX);
                multiplyBegin();
#pragma unroll
                for (int k = 0; k < STEP / 16; k++) multiply(acc, a + 2 * k, b + 2 * k, w.step > begin || k > 0);
                multiplyCommit();
                if (w.step == begin) continue;
                multiplyWait<1>();
                if (lane == 0) barrierArrive(emptyW + 8 * ((used - 1) % AHEAD)), barrierArrive(emptyX + 8 * ((used - 1) % NEAR));
            }
            multiplyWait<0>();
            if (lane == 0) barrierArrive(emptyW + 8 * ((used - 1) % AHEAD)), barrierArrive(emptyX + 8 * ((used - 1) % NEAR));
            if (!JOIN) break;
#pragma unroll
            for (int i = 0; i < (JOIN ? N / 2 : 1); i++) total[i] = part > 0 ? total[i] + acc[i] : acc[i];
            if (end == work.steps) break;
        }
        // A lane has two rows of W, eight apart, and of every eight rows of x two neighbours.
        int row0 = w.xTile * N + 2 * t, m = (w.wTile * GROUPS + group) * 64 + 16 * (warp & 3);
#pragma unroll
        for (int i = 0; i < N / 2; i += 4)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int row = row0 + 2 * i + e;
                float a = JOIN ? total[JOIN ? i + e : 0] : acc[i + e], b = JOIN ? total[JOIN ? i + 2 + e : 0] : acc[i + 2 + e];
                if (row >= rows) continue;
                if (PAIRED) {
                    int f = m / 2 + g;
                    if (f < out / 2) ((elem *)to)[(u64)row * (out / 2) + f] = put(a / (1.0f + expf(-a)) * b);
                    continue;
                }
                float *y = (float *)to + w.part * apart + (u64)row * out + m + g;
                if (m + g < out) *y = a;
                if (m + g + 8 < out) y[8] = b;
            }
    }
}

// The kernels' names say N, and tall for three groups instead of two. Grid: at most one block an item; threads: 128 a group and 64.
#define PRODUCT(NAME, N, GROUPS, AHEAD, NEAR, FLYING, PAIRED, JOIN)                                                                                                       \
    KERNEL __launch_bounds__(GROUPS * 128 + 64, 1)                                                                                                             \
        NAME(const __grid_constant__ TensorMap wMap, const __grid_constant__ TensorMap xMap, void *to, int items, int xTiles, int wTiles, int steps, int parts, \
             int whole, int rows, int out, u64 apart, u64 policy) {                                                                                            \
        Work work = {items, xTiles, wTiles, steps, parts, whole};                                                                                              \
        product<N, GROUPS, AHEAD, NEAR, FLYING, PAIRED, JOIN>(&wMap, &xMap, to, work, rows, out, apart, policy);                                                       \
    }
PRODUCT(product64tall, 64, 3, 6, 6, 3, false, false)
PRODUCT(product64tallsilu, 64, 3, 6, 6, 3, true, false)
PRODUCT(product64, 64, 2, 8, 8, 4, false, false)
PRODUCT(product64silu, 64, 2, 8, 8, 4, true, false)
PRODUCT(product128tall, 128, 3, 5, 5, 4, false, false)
PRODUCT(product128tallsilu, 128, 3, 5, 5, 4, true, false)
PRODUCT(product128talljoin, 128, 3, 5, 5, 4, false, true)
PRODUCT(product128, 128, 2, 6, 6, 5, false, false)
PRODUCT(product128silu, 128, 2, 6, 6, 5, true, false)
PRODUCT(product256, 256, 2, 4, 4, 3, false, false)
PRODUCT(product256silu, 256, 2, 4, 4, 3, true, false)
#endif
