// Reduced precision: rounds away the last D of 23 mantissa bits, to nearest even. Newer GPUs have an instruction for
// 16.

__device__ __forceinline__ bool isfinite_bits(u32 bits) { return (bits >> 23 & 0xff) != 0xff; }

template <int D> __device__ __forceinline__ float rounded(float x) {
#if __CUDA_ARCH__ >= 800
    if (D == 16) {
        // Converts a pair with a lower element of 0: the conversion of a single number is four times slower.
        u32 upper;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(upper) : "f"(x), "f"(0.0f));
        return __uint_as_float(upper);
    }
#endif
    u32 bits = __float_as_uint(x);
    u32 nearest = (bits + ((1u << (D - 1)) - 1) + (bits >> D & 1)) & ~((1u << D) - 1);
    return isfinite_bits(bits) ? __uint_as_float(nearest) : x;
}

// The upper half of a float.
struct bf16 {
    unsigned short bits;
    bf16() = default;
    __device__ __forceinline__ bf16(float x) {
        u32 all = __float_as_uint(rounded<16>(x));
#if __CUDA_ARCH__ < 800
        // A NaN with a payload only in the lower half stays a NaN.
        if (x != x) all |= 0x400000;
#endif
        bits = (unsigned short)(all >> 16);
    }
    __device__ __forceinline__ operator float() const { return __uint_as_float((u32)bits << 16); }
};

// Packs two of them in a word, the first in its lower half.
__device__ __forceinline__ u32 pair_of_bf16(float first, float second) {
#if __CUDA_ARCH__ >= 800
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
#else
    return bf16(first).bits | (u32)bf16(second).bits << 16;
#endif
}

template <int N> __device__ __forceinline__ void load_bf16(const bf16* from, float* to) {
    static_assert(N % 2 == 0, "pairs, or one alone");
    u32 pairs[N / 2];
    load<u32, N / 2>((const u32*)from, pairs);
    for (int j = 0; j < N; ++j) to[j] = __uint_as_float(j % 2 ? pairs[j / 2] & 0xffff0000u : pairs[j / 2] << 16);
}
template <> __device__ __forceinline__ void load_bf16<1>(const bf16* from, float* to) { to[0] = from[0]; }

template <int N> __device__ __forceinline__ void store_bf16(bf16* to, const float* from) {
    static_assert(N % 2 == 0, "pairs, or one alone");
    u32 pairs[N / 2];
    for (int j = 0; j < N / 2; ++j) pairs[j] = pair_of_bf16(from[2 * j], from[2 * j + 1]);
    store<u32, N / 2>((u32*)to, pairs);
}
template <> __device__ __forceinline__ void store_bf16<1>(bf16* to, const float* from) { to[0] = from[0]; }

// A bf16 value stored as a float, for libraries that take no other type.
typedef float wide_bf16;

__device__ __forceinline__ wide_bf16 round_to_wide_bf16(float x) { return rounded<16>(x); }

__device__ __forceinline__ bf16 round_to_bf16(float x) { return bf16(x); }
