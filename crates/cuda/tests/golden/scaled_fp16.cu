typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, u32* p1) {
    const U e = (U)blockIdx.x * 256 + threadIdx.x;
    if (e >= n0) return;
    p1[e] = 0;
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, int* p2) {
    int most0 = 0;
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    for (; b < n0; b += (U)gridDim.x * 256) {
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = op_tanh(m0[j]);
#pragma unroll
    for (int j = 0; j < 4; ++j) most0 = max(most0, power_bits(v1[j]));
    }
    most0 = across<Max, 256>(most0);
    if (threadIdx.x == 0) atomic_amax(p2, most0);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, half* p3) {
    const float m2 = p2[0];
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = op_tanh(m0[j]);
    const float by3 = f16_scale(exponent(m2));
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = scaled_to_f16(v1[j], by3);
    store_half<4>(p3 + e, v3);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, int* p2) {
    int most0 = 0;
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    for (; b < n0; b += (U)gridDim.x * 256) {
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
#pragma unroll
    for (int j = 0; j < 4; ++j) most0 = max(most0, power_bits(m0[j]));
    }
    most0 = across<Max, 256>(most0);
    if (threadIdx.x == 0) atomic_amax(p2, most0);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, half* p3) {
    const float m1 = p2[0];
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    const float by2 = f16_scale(exponent(m1));
    float v2[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v2[j] = scaled_to_f16(m0[j], by2);
    store_half<4>(p3 + e, v2);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, float* p3, float* p4) {
    const float m1 = p2[0];
    const float m2 = p3[0];
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    const UnscaleFactors by3 = unscale_factors(exponent(m1), exponent(m2));
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = unscaled(m0[j], by3);
    float v4[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v4[j] = op_exp(v3[j]);
    store<float, 4>(p4 + e, v4);
}
