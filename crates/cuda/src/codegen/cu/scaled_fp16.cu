// Scaled fp16: power-of-two scales that bring arrays into the range of fp16, and out of it again.

// Returns the bits of the power of two of a finite number; 0 for any other.
__device__ __forceinline__ int power_bits(float x) {
    int bits = __float_as_int(x) & 0x7f800000;
    return bits == 0x7f800000 ? 0 : bits;
}

// Updates the amax exponent of an array, once per block: all blocks read the same word, and most find it large enough.
__device__ __forceinline__ void atomic_amax(int* known, int bits) {
    if (bits > *(volatile int*)known) atomicMax(known, bits);
}

// Returns the exponent of a power of two; -127 for 0, which stands for numbers below 2^-126.
__device__ __forceinline__ int exponent(float power) { return (int)(__float_as_uint(power) >> 23) - 127; }

// Returns the exponent of the scale for an array with this amax exponent: to 2^14, or by at most 2^126, the limit of a
// float. No finite number has an exponent above 127.
__device__ __forceinline__ int shift_of(int exponent) { return 14 - min(max(exponent, -112), 127); }

__device__ __forceinline__ float power(int exponent) { return __uint_as_float((u32)(exponent + 127) << 23); }

// Returns the scale of an array.
__device__ __forceinline__ float f16_scale(int exponent) { return power(shift_of(exponent)); }

__device__ __forceinline__ float scaled_to_f16(float x, float by) { return x * by; }

// The factors that remove both scales from a product, in two steps: their product may overflow although the result does
// not.
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
