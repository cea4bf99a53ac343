typedef u32 U; typedef int I;
__device__ __forceinline__ void part(const u32 blocks, const U n0, float* p1, int* p2, int* p3, const U n4, const float c5) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = op_cos(m0[j]);
    float v2[4];
#pragma unroll
    for (int j = 0; j < 4; j += 4) draw_block<Normal, float>((e + j), p2, p3, (u32)n4, &v2[j]);
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = op_mul(v2[j], c5);
    float v4[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v4[j] = op_add(v1[j], v3[j]);
    store<float, 4>(p1 + e, v4);
}
struct Own { u64 blocks; alignas(8) U n0; alignas(8) float* p1; alignas(8) int* p2; alignas(8) int* p3; alignas(8) U n4; alignas(8) float c5; };
struct All { Own own[3]; };
extern "C" __global__ void __launch_bounds__(256) kernel(const All all) {
    const Own& own = all.own[blockIdx.z];
    if (blockIdx.x < own.blocks) part((u32)own.blocks, own.n0, own.p1, own.p2, own.p3, own.n4, own.c5);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(1) kernel(int* p0) {
    p0[0] += 1;
}
