// Products of halves: powers of two that bring the numbers of an array into the range of halves, and out of it again.

// The power of two of a finite number, as bits; of anything else 0.
__device__ __forceinline__ int power_bits(float x) {
    int bits = __float_as_int(x) & 0x7f800000;
    return bits == 0x7f800000 ? 0 : bits;
}

// Raises what is known of an array's largest power, for a whole block: everybody asks for the same word, and most find
// it high enough.
__device__ __forceinline__ void atomic_amax(int* known, int bits) {
    if (bits > *(volatile int*)known) atomicMax(known, bits);
}

// The exponent of a power of two; of 0, which stands for numbers below 2^-126, -127.
__device__ __forceinline__ int exponent(float power) { return (int)(__float_as_uint(power) >> 23) - 127; }

// By how many powers of two an array is multiplied that has this exponent: to 2^14, or by 2^126, which is as much as a
// float holds. No finite number needs an exponent beyond 127.
__device__ __forceinline__ int shift_of(int exponent) { return 14 - min(max(exponent, -112), 127); }

__device__ __forceinline__ float power(int exponent) { return __uint_as_float((u32)(exponent + 127) << 23); }

// What the numbers of an array are multiplied by to be halved, found once for all of them.
__device__ __forceinline__ float f16_scale(int exponent) { return power(shift_of(exponent)); }

__device__ __forceinline__ float scaled_to_f16(float x, float by) { return x * by; }

// What takes both powers out of a product again, in two steps: the power of both may be more than a float holds where
// the result is not.
struct UnscaleFactors { float first, second; };

__device__ __forceinline__ UnscaleFactors unscale_factors(int a, int b) {
    int shift = -shift_of(a) - shift_of(b), first = shift / 2;
    return {power(first), power(shift - first)};
}

__device__ __forceinline__ float unscaled(float x, UnscaleFactors by) { return x * by.first * by.second; }

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
