typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, bf16* p2) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = rounded<16>(m0[j]);
    store_bf16<4>(p2 + e, v1);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, bf16* p2) {
    const U e = (U)blockIdx.x * 256 + threadIdx.x;
    if (e >= n0) return;
    const U i = e * 4;
    float v[4]; bf16 w[4];
    load<float, 4>(p1 + ((I)i), v);
#pragma unroll
    for (int j = 0; j < 4; ++j) w[j] = round_to_bf16(v[j]);
    store<bf16, 4>(p2 + i, w);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, bf16* p1, bf16* p2) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 8;
    float m0[8];
    load_bf16<8>(p1 + ((I)e), m0);
    float v1[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v1[j] = op_tanh(m0[j]);
    store_bf16<8>(p2 + e, v1);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, bf16* p2, const float c3, bf16* p4) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float m1[4];
    load_bf16<4>(p2 + ((I)e), m1);
    float v2[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v2[j] = op_mul(m1[j], c3);
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = op_sub(m0[j], v2[j]);
    store<float, 4>(p1 + e, v3);
    store_bf16<4>(p4 + e, v3);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, bf16* p1, float* p2) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load_bf16<4>(p1 + ((I)e), m0);
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = rounded<16>(m0[j]);
    store<float, 4>(p2 + e, v1);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, bf16* p1, bf16* p2) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 8;
    float m0[8];
    load_bf16<8>(p1 + ((I)e), m0);
    float v1[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v1[j] = op_tanh(m0[j]);
    store_bf16<8>(p2 + e, v1);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, bf16* p2, const float c3, bf16* p4) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float m1[4];
    load_bf16<4>(p2 + ((I)e), m1);
    float v2[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v2[j] = op_mul(m1[j], c3);
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = op_sub(m0[j], v2[j]);
    store<float, 4>(p1 + e, v3);
    store_bf16<4>(p4 + e, v3);
}
