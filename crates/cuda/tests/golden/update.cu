typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, const float c3, int* p4, int* p5, const U n6, const float c7) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float m1[4];
    load<float, 4>(p2 + ((I)e), m1);
    float v2[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v2[j] = op_mul(m1[j], c3);
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = op_sub(m0[j], v2[j]);
    float v4[4];
#pragma unroll
    for (int j = 0; j < 4; j += 4) draw_block<Normal, float>((e + j), p4, p5, (u32)n6, &v4[j]);
    float v5[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v5[j] = op_mul(v4[j], c7);
    float v6[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v6[j] = op_add(v3[j], v5[j]);
    store<float, 4>(p1 + e, v6);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(1) kernel(int* p0) {
    p0[0] += 1;
}
