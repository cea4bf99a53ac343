// Ways to combine the numbers of a row or of an array.

struct Sum {
    template <typename T> __device__ __forceinline__ static T first() { return T(0); }
    template <typename T> __device__ __forceinline__ static T join(T a, T b) { return op_add(a, b); }
};
struct Max {
    template <typename T> __device__ __forceinline__ static T first() { return Least<T>::value(); }
    template <typename T> __device__ __forceinline__ static T join(T a, T b) { return op_max(a, b); }
#if __CUDA_ARCH__ >= 800
    // The same in one instruction; of two zeros, whichever.
    __device__ __forceinline__ static float join(float a, float b) {
        float most;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
        return most;
    }
#endif
};

// Combines a number of each of T neighbouring threads; all T get the result. T is a power of two; where it is more than
// a warp, the T threads are the whole block. A call that has a number of its own has a place of its own for what warps
// leave each other, and need not wait until nobody reads what another has left there; nor need it if it comes again
// after another call.
template <typename How, int T, int CALL = -1, typename N> __device__ __forceinline__ N across(N x) {
#pragma unroll
    for (int d = (T < 32 ? T : 32) / 2; d > 0; d /= 2) x = How::join(x, __shfl_xor_sync(0xffffffffu, x, d));
    if (T > 32) {
        constexpr int WARPS = T > 32 ? T / 32 : 1;
        __shared__ alignas(16) N of_warps[WARPS];
        if (CALL < 0) __syncthreads();
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
        __syncthreads();
        if (WARPS <= 8) {
            // All read the same few words, which takes less time than to pass them on.
            x = of_warps[0];
#pragma unroll
            for (int i = 1; i < WARPS; ++i) x = How::join(x, of_warps[i]);
        } else {
            x = of_warps[threadIdx.x % WARPS];
#pragma unroll
            for (int d = WARPS / 2; d > 0; d /= 2) x = How::join(x, __shfl_xor_sync(0xffffffffu, x, d));
        }
    }
    return x;
}
