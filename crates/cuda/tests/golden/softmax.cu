typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(128) kernel(const U n0, float* p1, float* p2) {
    const U t = threadIdx.x % 32;
    const U given = (U)blockIdx.x * 4 + threadIdx.x / 32;
    const U row = given < n0 ? given : n0 - 1;
    float m0[7];
    const I m0_row = (I)row * 197;
#pragma unroll
    for (int j = 0; j < 7; ++j) m0[j] = p1[m0_row + (I)min(j * 32 + t, (U)196)];
    float v1 = Max::first<float>();
#pragma unroll
    for (int j = 0; j < 7; ++j) if (j * 32 + t < 197) v1 = Max::join(v1, m0[j]);
    v1 = across<Max, 32>(v1);
    float v2[7];
#pragma unroll
    for (int j = 0; j < 7; ++j) v2[j] = op_sub(m0[j], v1);
    float v3[7];
#pragma unroll
    for (int j = 0; j < 7; ++j) v3[j] = op_exp(v2[j]);
    float v4 = Sum::first<float>();
#pragma unroll
    for (int j = 0; j < 7; ++j) if (j * 32 + t < 197) v4 = Sum::join(v4, v3[j]);
    v4 = across<Sum, 32>(v4);
    float v5[7];
#pragma unroll
    for (int j = 0; j < 7; ++j) v5[j] = op_div(v3[j], v4);
#pragma unroll
    for (int j = 0; j < 7; ++j) if (given < n0 && j * 32 + t < 197) *(p2 + row * 197 + (j * 32 + t)) = v5[j];
}
