typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, int* p1, const U n2, u64* error3, const U n4) {
    const U e = (U)blockIdx.x * 256 + threadIdx.x;
    if (e >= n0) return;
    const int index = p1[e];
    if (index < 0 || (U)index >= n2) report(error3, n4, e, index);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, int* p1, float* p2, float* p3, const U n4, const U n5, const U n6, u64* error7) {
    if (has_failed(error7)) return;
    const U e = (U)blockIdx.x * 256 + threadIdx.x;
    if (e >= n0) return;
    const U i = e % n6, unit = e / n6, b = unit / n4;
    const int own = p1[unit];
    if (own < 0 || (U)own >= n5) return;
    const U row = b * n5 + (U)own;
    for (U u = b * n4; u < unit; ++u) if (p1[u] == own) return;
    const int* at = p1 + b * n4;
    const float* from = p2 + b * n4 * n6 + i;
    float sum = float(p3[row * n6 + i]);
    for (U u = 0; u < n4; ++u) if (at[u] == own) sum = op_add(sum, from[u * n6]);
    p3[row * n6 + i] = sum;
}
