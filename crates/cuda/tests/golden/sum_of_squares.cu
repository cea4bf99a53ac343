typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, float* p1, double* p2) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    double s0 = Sum::first<double>();
    for (; b < n0; b += (U)gridDim.x * 256) {
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = op_mul(m0[j], m0[j]);
#pragma unroll
    for (int j = 0; j < 4; ++j) s0 = Sum::join(s0, (double)v1[j]);
    }
    s0 = across<Sum, 256>(s0);
    if (threadIdx.x == 0) p2[blockIdx.x] = s0;
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(128) kernel(double* p0, float* p1, const U n2, const U n3) {
    double s = Sum::first<double>();
    const U k = blockIdx.x;
    for (U p = threadIdx.x; p < n3; p += 128) s = Sum::join(s, p0[p * n2 + k]);
    s = across<Sum, 128>(s);
    if (threadIdx.x == 0) p1[k] = (float)s;
}
