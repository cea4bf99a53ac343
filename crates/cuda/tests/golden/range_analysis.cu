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
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, float* p3, float* p4, const float c5, float* p6, half* p7) {
    const float m1 = p2[0];
    const float m2 = p3[0];
    const float m10 = p6[0];
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    const UnscaleFactors by3 = unscale_factors(exponent(m1), exponent(m2));
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = unscaled(m0[j], by3);
    float m4[4];
    load<float, 4>(p4 + ((I)(e % 3072)), m4);
    float v5[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v5[j] = op_add(v3[j], m4[j]);
    float v6[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v6[j] = op_mul(v5[j], float(0.5));
    float v7[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v7[j] = op_mul(v5[j], c5);
    float v8[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v8[j] = one_plus_erf(v7[j]);
    float v9[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v9[j] = op_mul(v6[j], v8[j]);
    const float by11 = f16_scale(max(exponent(m1) + exponent(m2) + 12, exponent(m10) + 1));
    float v11[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v11[j] = scaled_to_f16(v9[j], by11);
    store_half<4>(p7 + e, v11);
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
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, float* p3, float* p4, float* p5, float* p6) {
    const float m1 = p2[0];
    const float m2 = p3[0];
    const float m3 = p4[0];
    const float m4 = p5[0];
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    const UnscaleFactors by5 = unscale_factors(max(exponent(m1) + exponent(m2) + 12, exponent(m3) + 1), exponent(m4));
    float v5[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v5[j] = unscaled(m0[j], by5);
    store<float, 4>(p6 + e, v5);
}
