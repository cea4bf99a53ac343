typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(128) kernel(const U n0, float* p1, float* p2, float* p3, float* p4) {
    const U t = threadIdx.x % 32;
    const U given = (U)blockIdx.x * 4 + threadIdx.x / 32;
    const U row = given < n0 ? given : n0 - 1;
    __shared__ __align__(16) unsigned char held[320];
    float m0[1];
    const I m0_row = (I)row * 20;
#pragma unroll
    for (int j = 0; j < 1; ++j) m0[j] = p1[m0_row + (I)min(j * 32 + t, (U)19)];
    float v1 = Max::first<float>();
#pragma unroll
    for (int j = 0; j < 1; ++j) if (j * 32 + t < 20) v1 = Max::join(v1, m0[j]);
    v1 = across<Max, 32>(v1);
    float v2[1];
#pragma unroll
    for (int j = 0; j < 1; ++j) v2[j] = op_sub(m0[j], v1);
    float v3[1];
#pragma unroll
    for (int j = 0; j < 1; ++j) v3[j] = op_exp(v2[j]);
    float v4 = Sum::first<float>();
#pragma unroll
    for (int j = 0; j < 1; ++j) if (j * 32 + t < 20) v4 = Sum::join(v4, v3[j]);
    v4 = across<Sum, 32>(v4);
    float v5[1];
#pragma unroll
    for (int j = 0; j < 1; ++j) v5[j] = op_div(v3[j], v4);
    float v6[1];
#pragma unroll
    for (int j = 0; j < 1; ++j) v6[j] = op_sin(v5[j]);
    float* const x0 = (float*)held + threadIdx.x / 32 * 20;
#pragma unroll
    for (int j = 0; j < 1; ++j) if (j * 32 + t < 20) *(x0 + (j * 32 + t)) = v5[j];
    __syncthreads();
    {
    const u32 k = t / 4;
    float s = Sum::first<float>();
    if (k < 5) for (u32 r = t % 4; r < 4; r += 4) s = Sum::join(s, x0[(I)k + (I)r * 5]);
    s = across<Sum, 4>(s);
    if (given < n0 && k < 5 && t % 4 == 0) p2[row * 5 + k] = s;
    }
    {
    const u32 k = t / 8;
    float s = Sum::first<float>();
    if (k < 4) for (u32 r = t % 8; r < 5; r += 8) s = Sum::join(s, x0[(I)k * 5 + (I)r]);
    s = across<Sum, 8>(s);
    if (given < n0 && k < 4 && t % 8 == 0) p3[row * 4 + k] = s;
    }
    float* const x1 = (float*)held + threadIdx.x / 32 * 20;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 1; ++j) if (j * 32 + t < 20) *(x1 + (j * 32 + t)) = v6[j];
    __syncthreads();
    {
    const u32 k = t / 8;
    float s = Max::first<float>();
    if (k < 4) for (u32 r = t % 8; r < 5; r += 8) s = Max::join(s, x1[(I)k * 5 + (I)r]);
    s = across<Max, 8>(s);
    if (given < n0 && k < 4 && t % 8 == 0) p4[row * 4 + k] = s;
    }
}
