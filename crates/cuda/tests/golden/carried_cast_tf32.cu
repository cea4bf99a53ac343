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
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, u32* p1) {
    const U e = (U)blockIdx.x * 256 + threadIdx.x;
    if (e >= n0) return;
    p1[e] = 0;
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, int* p2) {
    int most = 0;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
    const U e = (((U)blockIdx.x * 4 + i) * 256 + threadIdx.x) * 4;
    if (e >= n0) break;
    float v[4];
    load<float, 4>(p1 + e, v);
#pragma unroll
    for (int j = 0; j < 4; ++j) most = max(most, power_bits(v[j]));
    }
    most = across<Max, 256>(most);
    if (threadIdx.x == 0) atomic_amax(p2, most);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(float* p0, const U n1, float* p2, half* p3) {
    const U e = ((U)blockIdx.x * 256 + threadIdx.x) * 4;
    if (e >= n1) return;
    float v[4];
    load<float, 4>(p2 + e, v);
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = scaled_to_f16(v[j], f16_scale(exponent(p0[0])));
    store_half<4>(p3 + e, v);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, u32* p1) {
    const U e = (U)blockIdx.x * 256 + threadIdx.x;
    if (e >= n0) return;
    p1[e] = 0;
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, float* p3, float* p4, int* p5) {
    const float m1 = p2[0];
    const float m2 = p3[0];
    int most0 = 0;
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    for (; b < n0; b += (U)gridDim.x * 256) {
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    const UnscaleFactors by3 = unscale_factors(exponent(m1), exponent(m2));
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = unscaled(m0[j], by3);
    float v4[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v4[j] = op_tanh(v3[j]);
#pragma unroll
    for (int j = 0; j < 4; ++j) most0 = max(most0, power_bits(v4[j]));
    store<float, 4>(p4 + e, v4);
    }
    most0 = across<Max, 256>(most0);
    if (threadIdx.x == 0) atomic_amax(p5, most0);
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
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, float* p3, float* p4, const float c5, int* p6) {
    const float m2 = p3[0];
    const float m3 = p4[0];
    int most0 = 0;
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    for (; b < n0; b += (U)gridDim.x * 256) {
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float m1[4];
    load<float, 4>(p2 + ((I)e), m1);
    const UnscaleFactors by4 = unscale_factors(exponent(m2), exponent(m3));
    float v4[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v4[j] = unscaled(m1[j], by4);
    float v5[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v5[j] = op_mul(v4[j], c5);
    float v6[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v6[j] = op_sub(m0[j], v5[j]);
#pragma unroll
    for (int j = 0; j < 4; ++j) most0 = max(most0, power_bits(v6[j]));
    store<float, 4>(p1 + e, v6);
    }
    most0 = across<Max, 256>(most0);
    if (threadIdx.x == 0) atomic_amax(p6, most0);
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
    store<float, 4>(p4 + e, v3);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2) {
    const U e = (U)blockIdx.x * 256 + threadIdx.x;
    if (e >= n0) return;
    p2[e] = p1[0];
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, u32* p1) {
    const U e = (U)blockIdx.x * 256 + threadIdx.x;
    if (e >= n0) return;
    p1[e] = 0;
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, float* p3, float* p4, int* p5) {
    const float m1 = p2[0];
    const float m2 = p3[0];
    int most0 = 0;
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    for (; b < n0; b += (U)gridDim.x * 256) {
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    const UnscaleFactors by3 = unscale_factors(exponent(m1), exponent(m2));
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = unscaled(m0[j], by3);
    float v4[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v4[j] = op_tanh(v3[j]);
#pragma unroll
    for (int j = 0; j < 4; ++j) most0 = max(most0, power_bits(v4[j]));
    store<float, 4>(p4 + e, v4);
    }
    most0 = across<Max, 256>(most0);
    if (threadIdx.x == 0) atomic_amax(p5, most0);
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
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2, float* p3, float* p4, const float c5, int* p6) {
    const float m2 = p3[0];
    const float m3 = p4[0];
    int most0 = 0;
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    for (; b < n0; b += (U)gridDim.x * 256) {
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float m1[4];
    load<float, 4>(p2 + ((I)e), m1);
    const UnscaleFactors by4 = unscale_factors(exponent(m2), exponent(m3));
    float v4[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v4[j] = unscaled(m1[j], by4);
    float v5[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v5[j] = op_mul(v4[j], c5);
    float v6[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v6[j] = op_sub(m0[j], v5[j]);
#pragma unroll
    for (int j = 0; j < 4; ++j) most0 = max(most0, power_bits(v6[j]));
    store<float, 4>(p1 + e, v6);
    }
    most0 = across<Max, 256>(most0);
    if (threadIdx.x == 0) atomic_amax(p6, most0);
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
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2) {
    const U e = (U)blockIdx.x * 256 + threadIdx.x;
    if (e >= n0) return;
    p2[e] = p1[0];
}
