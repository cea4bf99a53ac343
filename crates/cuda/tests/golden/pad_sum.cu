typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) m0[j] = p1[(I)((e + j) % 30) + (I)((e + j) / 30) * 40];
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = op_exp(m0[j]);
    store<float, 4>(p2 + e, v1);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) m0[j] = p1[(I)((e + j) % 30) + (I)((e + j) / 30) * 40];
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = op_tanh(m0[j]);
    float v2[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v2[j] = op_mul(v1[j], v1[j]);
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = op_sub(float(1.0), v2[j]);
    store<float, 4>(p2 + e, v3);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) m0[j] = p1[(I)((e + j) % 30) + (I)((e + j) / 30) * 40];
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = op_cos(m0[j]);
    store<float, 4>(p2 + e, v1);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, float* p3, float* p4) {
    const U e = (U)blockIdx.x * 256 + threadIdx.x;
    if (e >= n0) return;
    const I i1 = (I)(e % 40);
    const I i0 = (I)(e / 40);
    float sum = float(0);
    if (i1 < 30) sum += p2[i0 * 30 + i1];
    if ((i1 - 10) >= 0) sum += p3[i0 * 30 + (i1 - 10)];
    if ((i1 - 4) >= 0 && (i1 - 4) < 30) sum += p4[i0 * 30 + (i1 - 4)];
    p1[e] = sum;
}
