typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(float* p0, const U n1, const U n2, const U n3, float* p4) {
    const U k = ((U)blockIdx.x * 8 + threadIdx.x % 8) * 4;
    const U t = threadIdx.x / 8;
    const U first = blockIdx.y * n3, end = first + n3 < n2 ? first + n3 : n2;
    float s0[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) s0[j] = Sum::first<float>();
    if (k < n1) {
    #pragma unroll 4
    for (U r = first + t; r < end; r += 32) {
    const U e = (I)k + (I)r * 96;
    float m0[4];
    const I m0_row = (I)r * 96;
#pragma unroll
    for (int j = 0; j < 4; j += 4) load<float, 4>(p0 + (m0_row + (I)(k + j)), &m0[j]);
#pragma unroll
    for (int j = 0; j < 4; ++j) s0[j] = Sum::join(s0[j], m0[j]);
    }
    }
    __shared__ float shared0[32][32];
#pragma unroll
    for (int j = 0; j < 4; ++j) shared0[t][threadIdx.x % 8 * 4 + j] = s0[j];
    __syncthreads();
    for (int i = 1; t == 0 && i < 32; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) s0[j] = Sum::join(s0[j], shared0[i][threadIdx.x * 4 + j]);
    }
    if (t == 0 && k < n1) {
#pragma unroll
    for (int j = 0; j < 4; ++j) p4[(U)blockIdx.y * n1 + k + j] = s0[j];
    }
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(float* p0, float* p1, const U n2, const U n3) {
    float s = Sum::first<float>();
    const U k = (U)blockIdx.x * 32 + threadIdx.x % 32;
    if (k < n2) {
    #pragma unroll 4
    for (U p = threadIdx.x / 32; p < n3; p += 8) s = Sum::join(s, p0[p * n2 + k]);
    }
    __shared__ float shared[8][33];
    shared[threadIdx.x / 32][threadIdx.x % 32] = s;
    __syncthreads();
    s = across<Sum, 8>(shared[threadIdx.x % 8][threadIdx.x / 8]);
    const U at = (U)blockIdx.x * 32 + threadIdx.x / 8;
    if (threadIdx.x % 8 == 0 && at < n2) p1[at] = (float)s;
}
