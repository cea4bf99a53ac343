typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(128) kernel(const U n0, float* p1, float* p2, float* p3, float* p4) {
    const U t = threadIdx.x % 4;
    const U given = (U)blockIdx.x * 32 + threadIdx.x / 4;
    const U row = given < n0 ? given : n0 - 1;
    __shared__ __align__(4) unsigned char held[2560];
    float m0[5];
    const I m0_row = (I)row * 20;
#pragma unroll
    for (int j = 0; j < 5; ++j) m0[j] = p1[m0_row + (I)(j * 4 + t)];
    float v1 = Max::first<float>();
#pragma unroll
    for (int j = 0; j < 5; ++j) v1 = Max::join(v1, m0[j]);
    v1 = across<Max, 4>(v1);
    float v2[5];
#pragma unroll
    for (int j = 0; j < 5; ++j) v2[j] = op_sub(m0[j], v1);
    float v3[5];
#pragma unroll
    for (int j = 0; j < 5; ++j) v3[j] = op_exp(v2[j]);
    float v4 = Sum::first<float>();
#pragma unroll
    for (int j = 0; j < 5; ++j) v4 = Sum::join(v4, v3[j]);
    v4 = across<Sum, 4>(v4);
    float v5[5];
#pragma unroll
    for (int j = 0; j < 5; ++j) v5[j] = op_div(v3[j], v4);
    float v6[5];
#pragma unroll
    for (int j = 0; j < 5; ++j) v6[j] = op_sin(v5[j]);
    float* const x0 = (float*)held + threadIdx.x / 4 * 20;
#pragma unroll
    for (int j = 0; j < 5; ++j) x0[j * 4 + t] = v5[j];
    __syncthreads();
    for (u32 k = t; k < 5; k += 4) {
    float s = Sum::first<float>();
    for (u32 r = 0; r < 4; r += 1) s = Sum::join(s, x0[(I)k + (I)r * 5]);
    if (given < n0) p2[row * 5 + k] = s;
    }
    for (u32 k = t; k < 4; k += 4) {
    float s = Sum::first<float>();
    for (u32 r = 0; r < 5; r += 1) s = Sum::join(s, x0[(I)k * 5 + (I)r]);
    if (given < n0) p3[row * 4 + k] = s;
    }
    float* const x1 = (float*)held + threadIdx.x / 4 * 20;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 5; ++j) x1[j * 4 + t] = v6[j];
    __syncthreads();
    for (u32 k = t; k < 4; k += 4) {
    float s = Max::first<float>();
    for (u32 r = 0; r < 5; r += 1) s = Max::join(s, x1[(I)k * 5 + (I)r]);
    if (given < n0) p4[row * 4 + k] = s;
    }
}
