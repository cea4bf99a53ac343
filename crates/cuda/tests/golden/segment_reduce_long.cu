typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(128) kernel(const U n0, float* p1, float* p2, float* p3, float* p4) {
    const U t = threadIdx.x % 128;
    const U row = blockIdx.x;
    __shared__ __align__(16) unsigned char held[3136];
    float m0[8];
    const I m0_row = (I)row * 784;
#pragma unroll
    for (int j = 0; j < 8; j += 4) load<float, 4>(p1 + (m0_row + (I)(min(j / 4 * 128 + t, (U)195) * 4 + j % 4)), &m0[j]);
    float v1 = Max::first<float>();
#pragma unroll
    for (int j = 0; j < 8; ++j) if (j / 4 * 128 + t < 196) v1 = Max::join(v1, m0[j]);
    v1 = across<Max, 128, 0>(v1);
    float v2[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v2[j] = op_sub(m0[j], v1);
    float v3[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v3[j] = op_exp(v2[j]);
    float v4 = Sum::first<float>();
#pragma unroll
    for (int j = 0; j < 8; ++j) if (j / 4 * 128 + t < 196) v4 = Sum::join(v4, v3[j]);
    v4 = across<Sum, 128, 1>(v4);
    float v5[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v5[j] = op_div(v3[j], v4);
    float v6[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v6[j] = op_sin(v5[j]);
    float* const x0 = (float*)held;
#pragma unroll
    for (int j = 0; j < 8; j += 4) if (j / 4 * 128 + t < 196) store<float, 4>(x0 + ((j / 4 * 128 + t) * 4 + j % 4), &v5[j]);
    __syncthreads();
    {
    const u32 k = t / 4;
    float s = Sum::first<float>();
    if (k < 28) for (u32 r = t % 4; r < 28; r += 4) s = Sum::join(s, x0[(I)k + (I)r * 28]);
    s = across<Sum, 4>(s);
    if (k < 28 && t % 4 == 0) p2[row * 28 + k] = s;
    }
    {
    const u32 k = t / 4;
    float s = Sum::first<float>();
    if (k < 28) for (u32 r = t % 4; r < 28; r += 4) s = Sum::join(s, x0[(I)k * 28 + (I)r]);
    s = across<Sum, 4>(s);
    if (k < 28 && t % 4 == 0) p3[row * 28 + k] = s;
    }
    float* const x1 = (float*)held;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 8; j += 4) if (j / 4 * 128 + t < 196) store<float, 4>(x1 + ((j / 4 * 128 + t) * 4 + j % 4), &v6[j]);
    __syncthreads();
    {
    const u32 k = t / 4;
    float s = Max::first<float>();
    if (k < 28) for (u32 r = t % 4; r < 28; r += 4) s = Max::join(s, x1[(I)k * 28 + (I)r]);
    s = across<Max, 4>(s);
    if (k < 28 && t % 4 == 0) p4[row * 28 + k] = s;
    }
}
