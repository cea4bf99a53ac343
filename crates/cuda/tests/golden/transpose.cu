typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(float* p0, float* p1, const U n2, const U n3, const U n4, const U n5, const U n6) {
    __shared__ float square[64][64 + 1];
    const U left = blockIdx.x % n6 * 64, top = blockIdx.x / n6 * 64;
    const U first = threadIdx.x % 16 * 4, own = threadIdx.x / 16;
    float v[4][4];
    #pragma unroll
    for (int t = 0; t < 4; ++t) {
    const U line = top + own + t * 16, column = left + first;
    const float* at = p0 + (line * n4 + column);
    const bool whole = line < n2 && column + 4 <= n3;
    if (whole) load<float, 4>(at, v[t]);
    else
#pragma unroll
    for (int j = 0; j < 4; ++j) v[t][j] = line < n2 && column + j < n3 ? at[j] : 0.0f;
    }
    #pragma unroll
    for (int t = 0; t < 4; ++t) {
#pragma unroll
    for (int j = 0; j < 4; ++j) square[own + t * 16][first + j] = v[t][j];
    }
    __syncthreads();
    #pragma unroll
    for (int t = 0; t < 4; ++t) {
    const U column = left + own + t * 16, line = top + first;
    if (column < n3 && line < n5) {
#pragma unroll
    for (int j = 0; j < 4; ++j) v[t][j] = square[first + j][own + t * 16];
    store<float, 4>(p1 + (column * n5 + line), v[t]);
    }
    }
}
