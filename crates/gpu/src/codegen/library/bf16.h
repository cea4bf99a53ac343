// Reduced precision: rounds away the last D of 23 mantissa bits, to nearest even. Newer GPUs have an instruction for
// 16.

DEVICE bool isfinite_bits(u32 bits) { return (bits >> 23 & 0xff) != 0xff; }

template <int D> DEVICE float rounded(float x) {
#ifdef NATIVE_BF16_PAIR
    // Converts a pair with a lower element of 0: the conversion of a single number is four times slower.
    if (D == 16) return float_of_bits(NATIVE_BF16_PAIR(0.0f, x));
#endif
    u32 bits = bits_of(x);
    u32 nearest = (bits + ((1u << (D - 1)) - 1) + (bits >> D & 1)) & ~((1u << D) - 1);
    return isfinite_bits(bits) ? float_of_bits(nearest) : x;
}

// The upper half of a float.
struct bf16 {
    unsigned short bits;
    bf16() = default;
    DEVICE bf16(float x) {
        u32 all = bits_of(rounded<16>(x));
#ifndef NATIVE_BF16_PAIR
        // A NaN with a payload only in the lower half stays a NaN.
        if (x != x) all |= 0x400000;
#endif
        bits = (unsigned short)(all >> 16);
    }
    DEVICE operator float() const { return float_of_bits((u32)bits << 16); }
};

// Packs two of them in a word, the first in its lower half.
DEVICE u32 pair_of_bf16(float first, float second) {
#ifdef NATIVE_BF16_PAIR
    return NATIVE_BF16_PAIR(first, second);
#else
    return bf16(first).bits | (u32)bf16(second).bits << 16;
#endif
}

template <int N> DEVICE void load_bf16(const bf16* from, float* to) {
    static_assert(N % 2 == 0, "pairs, or one alone");
    u32 pairs[N / 2];
    load<u32, N / 2>((const u32*)from, pairs);
    for (int j = 0; j < N; ++j) to[j] = float_of_bits(j % 2 ? pairs[j / 2] & 0xffff0000u : pairs[j / 2] << 16);
}
template <> DEVICE void load_bf16<1>(const bf16* from, float* to) { to[0] = from[0]; }

template <int N> DEVICE void store_bf16(bf16* to, const float* from) {
    static_assert(N % 2 == 0, "pairs, or one alone");
    u32 pairs[N / 2];
    for (int j = 0; j < N / 2; ++j) pairs[j] = pair_of_bf16(from[2 * j], from[2 * j + 1]);
    store<u32, N / 2>((u32*)to, pairs);
}
template <> DEVICE void store_bf16<1>(bf16* to, const float* from) { to[0] = from[0]; }

// A bf16 value stored as a float, for libraries that take no other type.
typedef float wide_bf16;

DEVICE wide_bf16 round_to_wide_bf16(float x) { return rounded<16>(x); }

DEVICE bf16 round_to_bf16(float x) { return bf16(x); }
