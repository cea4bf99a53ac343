typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, const U n3, const U n4, u64* error5, const U n6, float* p7) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = op_mul(m0[j], float(9.0));
    int v2[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v2[j] = To<int>::of(v1[j]);
    alignas(16) float f3[4][4];
#pragma unroll
    for (int j = 0; j < 4; ++j) gather_row<float, 4, 4>(p2 + ((I)((e + j) / 200) * 40), v2[j], (u64)n3, 4, f3[j]);
    float v4[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v4[j] = f3[j][0];
#pragma unroll
    for (int j = 0; j < 4; ++j) if ((v2[j] < 0 || (U)v2[j] >= n4)) report(error5, n6, (e + j), v2[j]);
    float v5[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v5[j] = f3[j][3];
    float v6[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v6[j] = op_mul(m0[j], v5[j]);
    float v7[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v7[j] = op_add(v4[j], v6[j]);
    store<float, 4>(p7 + e, v7);
}
