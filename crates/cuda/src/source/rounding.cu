// Numbers with fewer digits: the last D of 23 are rounded away, to the nearest, the even one of two.

__device__ __forceinline__ bool isfinite_bits(u32 bits) { return (bits >> 23 & 0xff) != 0xff; }

template <int D> __device__ __forceinline__ float rounded(float x) {
    u32 bits = __float_as_uint(x);
    u32 nearest = (bits + ((1u << (D - 1)) - 1) + (bits >> D & 1)) & ~((1u << D) - 1);
    return isfinite_bits(bits) ? __uint_as_float(nearest) : x;
}

// The upper half of a float.
struct bf16 {
    unsigned short bits;
    bf16() = default;
    __device__ __forceinline__ bf16(float x) {
#if __CUDA_ARCH__ >= 800
        // To the nearest, the even one of two, in one instruction.
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
        u32 all = __float_as_uint(rounded<16>(x));
        bits = (unsigned short)(x != x ? all >> 16 | 0x40 : all >> 16);
#endif
    }
    __device__ __forceinline__ operator float() const { return __uint_as_float((u32)bits << 16); }
};

template <int N> __device__ __forceinline__ void load_bf16(const bf16* from, float* to) {
    bf16 halves[N];
    load<bf16, N>(from, halves);
    for (int j = 0; j < N; ++j) to[j] = halves[j];
}

template <int N> __device__ __forceinline__ void store_bf16(bf16* to, const float* from) {
    bf16 halves[N];
    for (int j = 0; j < N; ++j) halves[j] = from[j];
    store<bf16, N>(to, halves);
}

// The same number stored as a float, for libraries that take no other type.
typedef float wide_bf16;

__device__ __forceinline__ wide_bf16 round_to_wide_bf16(float x) { return rounded<16>(x); }

__device__ __forceinline__ bf16 round_to_bf16(float x) { return bf16(x); }
