// fill writes n numbers that look random, uniform around centre and at most width away from it: weights for measurements. They are elements in w, or
// float32 in v where w is null.
KERNEL fill(elem *w, float *v, u64 n, u32 seed, float centre, float width) {
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        u32 h = (u32)i * 0x9E3779B1u + (u32)(i >> 32) * 0x85EBCA77u + seed;
        h = (h ^ h >> 16) * 0x7FEB352Du;
        h = (h ^ h >> 15) * 0x846CA68Bu;
        h ^= h >> 16;
        float x = centre + ((float)(h >> 8) * (2.0f / 16777216.0f) - 1.0f) * width;
        if (w) w[i] = put(x);
        else v[i] = x;
    }
}
