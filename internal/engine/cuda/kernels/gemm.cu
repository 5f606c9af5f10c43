// Tile of the plain product: SIDE x SIDE outputs by (SIDE/4)^2 threads, DEPTH steps of the inner dimension at a time.
#define SIDE 64
#define DEPTH 16

// gemm writes y [m,n] = x [m,k] w^T for w [n,k] in float32, with row strides k, k and n; one chain of fused multiply-adds an output, in the
// order of k: exact for any m. It serves where cuBLASLt is absent and for float32. Grid: tiles of n x tiles of m, 256 threads.
KERNEL gemm(float *y, const elem *x, const elem *w, int m, int n, int k) {
    __shared__ float xs[DEPTH][SIDE + 1], ws[DEPTH][SIDE + 1];
    int row = blockIdx.y * SIDE, col = blockIdx.x * SIDE, tr = threadIdx.x / 16, tc = threadIdx.x % 16;
    float acc[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) acc[i][j] = 0;
    for (int k0 = 0; k0 < k; k0 += DEPTH) {
        for (int i = threadIdx.x; i < SIDE * DEPTH; i += blockDim.x) {
            int r = i / DEPTH, c = i % DEPTH;
            bool in = k0 + c < k;
            xs[c][r] = in && row + r < m ? get(x[(u64)(row + r) * k + k0 + c]) : 0.0f;
            ws[c][r] = in && col + r < n ? get(w[(u64)(col + r) * k + k0 + c]) : 0.0f;
        }
        __syncthreads();
        for (int c = 0; c < DEPTH; c++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) acc[i][j] = fmaf(xs[c][tr + 16 * i], ws[c][tc + 16 * j], acc[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (row + tr + 16 * i < m && col + tc + 16 * j < n) y[(u64)(row + tr + 16 * i) * n + col + tc + 16 * j] = acc[i][j];
}
