typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(128) kernel(const U n0, float* p1, const float c2, const float c3, float* p4, float* p5, const float c6, float* p7, float* p8, float* p9) {
    const U t = threadIdx.x % 128;
    float column0[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) column0[j] = Sum::first<float>();
    float column1[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) column1[j] = Sum::first<float>();
    float next_m0[6];
    float next_m10[6];
    float m11[6];
    {
    const U turn = blockIdx.x;
    const U row = turn;
    const I m0_row = (I)row * 768;
#pragma unroll
    for (int j = 0; j < 6; j += 2) load<float, 2>(p1 + (m0_row + (I)((j / 2 * 128 + t) * 2 + j % 2)), &next_m0[j]);
    const I m10_row = (I)row * 768;
#pragma unroll
    for (int j = 0; j < 6; j += 2) load<float, 2>(p4 + (m10_row + (I)((j / 2 * 128 + t) * 2 + j % 2)), &next_m10[j]);
    const I m11_row = 0;
#pragma unroll
    for (int j = 0; j < 6; j += 2) load<float, 2>(p5 + (m11_row + (I)((j / 2 * 128 + t) * 2 + j % 2)), &m11[j]);
    }
    for (U turn = blockIdx.x; turn < n0; turn += gridDim.x) {
    const U row = turn;
    float m0[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) m0[j] = next_m0[j];
    float m10[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) m10[j] = next_m10[j];
    if ((turn + gridDim.x) < n0) {
    const U after = turn + gridDim.x, turn = after;
    const U row = turn;
    const I m0_row = (I)row * 768;
#pragma unroll
    for (int j = 0; j < 6; j += 2) load<float, 2>(p1 + (m0_row + (I)((j / 2 * 128 + t) * 2 + j % 2)), &next_m0[j]);
    const I m10_row = (I)row * 768;
#pragma unroll
    for (int j = 0; j < 6; j += 2) load<float, 2>(p4 + (m10_row + (I)((j / 2 * 128 + t) * 2 + j % 2)), &next_m10[j]);
    }
    float v1 = Sum::first<float>();
#pragma unroll
    for (int j = 0; j < 6; ++j) v1 = Sum::join(v1, m0[j]);
    v1 = across<Sum, 128, 0>(v1);
    const float v2 = op_mul(v1, c2);
    float v3[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) v3[j] = op_sub(m0[j], v2);
    float v4[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) v4[j] = op_mul(v3[j], v3[j]);
    float v5 = Sum::first<float>();
#pragma unroll
    for (int j = 0; j < 6; ++j) v5 = Sum::join(v5, v4[j]);
    v5 = across<Sum, 128, 1>(v5);
    const float v6 = op_mul(v5, c2);
    const float v7 = op_add(v6, c3);
    const float v8 = op_sqrt(v7);
    const float v9 = op_recip(v8);
    float v12[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) v12[j] = op_mul(m10[j], m11[j]);
    float v13[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) v13[j] = op_mul(v3[j], v12[j]);
    float v14 = Sum::first<float>();
#pragma unroll
    for (int j = 0; j < 6; ++j) v14 = Sum::join(v14, v13[j]);
    v14 = across<Sum, 128, 2>(v14);
    const float v15 = op_mul(v9, v14);
    const float v16 = op_mul(v9, v15);
    const float v17 = op_mul(v16, float(-0.5));
    const float v18 = op_div(v17, v8);
    const float v19 = op_mul(v18, c2);
    float v20[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) v20[j] = op_mul(v3[j], v19);
    float v21[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) v21[j] = op_mul(v9, v12[j]);
    float v22[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) v22[j] = op_add(v21[j], v20[j]);
    float v23[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) v23[j] = op_add(v20[j], v22[j]);
    float v24 = Sum::first<float>();
#pragma unroll
    for (int j = 0; j < 6; ++j) v24 = Sum::join(v24, v23[j]);
    v24 = across<Sum, 128, 3>(v24);
    const float v25 = op_mul(v24, c6);
    float v26[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) v26[j] = op_add(v23[j], v25);
    float v27[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) v27[j] = op_mul(v3[j], v9);
    float v28[6];
#pragma unroll
    for (int j = 0; j < 6; ++j) v28[j] = op_mul(m10[j], v27[j]);
#pragma unroll
    for (int j = 0; j < 6; ++j) column0[j] = Sum::join(column0[j], m10[j]);
#pragma unroll
    for (int j = 0; j < 6; ++j) column1[j] = Sum::join(column1[j], v28[j]);
#pragma unroll
    for (int j = 0; j < 6; j += 2) store<float, 2>(p7 + row * 768 + ((j / 2 * 128 + t) * 2 + j % 2), &v26[j]);
    }
#pragma unroll
    for (int j = 0; j < 6; j += 2) store<float, 2>(p8 + blockIdx.x * 768 + ((j / 2 * 128 + t) * 2 + j % 2), &column0[j]);
#pragma unroll
    for (int j = 0; j < 6; j += 2) store<float, 2>(p9 + blockIdx.x * 768 + ((j / 2 * 128 + t) * 2 + j % 2), &column1[j]);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(1024) kernel(float* p0, float* p1, float* p2, float* p3, const U n4, const U n5) {
    float* const from = blockIdx.y == 0 ? p0 : p1;
    float* const to = blockIdx.y == 0 ? p2 : p3;
    float s = Sum::first<float>();
    const U k = (U)blockIdx.x * 32 + threadIdx.x % 32;
    if (k < n4) {
    #pragma unroll 4
    for (U p = threadIdx.x / 32; p < n5; p += 32) s = Sum::join(s, from[p * n4 + k]);
    }
    __shared__ float shared[32][33];
    shared[threadIdx.x / 32][threadIdx.x % 32] = s;
    __syncthreads();
    s = across<Sum, 32>(shared[threadIdx.x % 32][threadIdx.x / 32]);
    const U at = (U)blockIdx.x * 32 + threadIdx.x / 32;
    if (threadIdx.x % 32 == 0 && at < n4) to[at] = (float)s;
}
