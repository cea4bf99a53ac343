// Products of halves: powers of two that bring the numbers of an array into the range of halves, and out of it again.

// The power of two of a finite number, as bits; of anything else 0.
__device__ __forceinline__ u32 power_bits(float x) {
    u32 bits = __float_as_uint(x) & 0x7f800000u;
    return bits == 0x7f800000u ? 0 : bits;
}

__device__ __forceinline__ u32 largest_of_warp(u32 bits) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, d));
    return bits;
}

// Raises what is known of an array's largest power. All threads of a block must come by; one of them asks for all, as everybody asks for the
// same word, and most find it high enough.
__device__ __forceinline__ void raise(u32* known, u32 bits) {
    __shared__ u32 of_warps[32];
    bits = largest_of_warp(bits);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = bits;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    bits = largest_of_warp(threadIdx.x < blockDim.x / 32 ? of_warps[threadIdx.x] : 0);
    if (threadIdx.x == 0 && bits > *(volatile u32*)known) atomicMax(known, bits);
}

// By how many powers of two an array is multiplied whose largest is this: to 2^14, or by 2^126, which is as much as a float holds.
__device__ __forceinline__ int shift_of(float largest) { return 141 - max((int)(__float_as_uint(largest) >> 23), 15); }

__device__ __forceinline__ float power(int exponent) { return __uint_as_float((u32)(exponent + 127) << 23); }

__device__ __forceinline__ float halved(float x, float largest) { return x * power(shift_of(largest)); }

// In two steps: the power of both may be more than a float holds where the result is not.
__device__ __forceinline__ float restored(float x, float a, float b) {
    int shift = -shift_of(a) - shift_of(b), first = shift / 2;
    return x * power(first) * power(shift - first);
}

struct half {
    unsigned short bits;
    half() = default;
    __device__ __forceinline__ half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
};

template <int N> __device__ __forceinline__ void store_half(half* to, const float* from) {
    half halves[N];
    for (int j = 0; j < N; ++j) halves[j] = from[j];
    store<half, N>(to, halves);
}
