typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, float* p2) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = op_sin(m0[j]);
    store<float, 4>(p2 + e, v1);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, int* p2) {
    const U e = (U)blockIdx.x * 256 + threadIdx.x;
    if (e >= n0) return;
    const int ox = (int)(e % 6), oy = (int)(e / 6 % 6);
    const float* plane = p1 + e / 36 * 144;
    int best = 0; float value = Least<float>::value(); bool any = false;
    for (int ky = 0; ky < 2; ++ky) for (int kx = 0; kx < 2; ++kx) {
        const int y = oy * 2 + ky - 0, x = ox * 2 + kx - 0;
        if (y < 0 || y >= 12 || x < 0 || x >= 12) continue;
        const float v = plane[y * 12 + x];
        if (any && !(v > value || (v != v && value == value))) continue;
        best = y * 12 + x, value = v, any = true;
    }
    p2[e] = best;
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, int* p1, float* p2, const U n3, float* p4) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    int m0[4];
    load<int, 4>(p1 + ((I)e), m0);
    alignas(16) float f1[4][1];
#pragma unroll
    for (int j = 0; j < 4; ++j) gather_row<float, 1, 1>(p2 + ((I)((e + j) / 36) * 144), m0[j], (u64)n3, 1, f1[j]);
    float v2[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v2[j] = f1[j][0];
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = op_mul(v2[j], float(0.5));
    store<float, 4>(p4 + e, v3);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, int* p1, int* p2, float* p3, float* p4, float* p5) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    int m0[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) m0[j] = p1[(I)(((e + j) / 2) % 6) + (I)((e + j) / 24) * 6];
    int m1[4];
    load<int, 4>(p2 + ((I)(e % 144)), m1);
    int v2[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v2[j] = op_eq(m0[j], m1[j]);
    float v3[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v3[j] = To<float>::of(v2[j]);
    float m4[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) m4[j] = p3[(I)(((e + j) / 2) % 6) + (I)((e + j) / 24) * 6];
    float v5[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v5[j] = v3[j] != 0 ? m4[j] : float(0.0);
    float m6[4];
    load<float, 4>(p4 + ((I)e), m6);
    float v7[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v7[j] = op_cos(m6[j]);
    float v8[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v8[j] = op_mul(v5[j], v7[j]);
    store<float, 4>(p5 + e, v8);
}
