// Numbers with fewer digits: the last D of 23 are rounded away, to the nearest, the even one of two.

__device__ __forceinline__ bool isfinite_bits(u32 bits) { return (bits >> 23 & 0xff) != 0xff; }

template <int D> __device__ __forceinline__ float rounded(float x) {
    u32 bits = __float_as_uint(x);
    u32 nearest = (bits + ((1u << (D - 1)) - 1) + (bits >> D & 1)) & ~((1u << D) - 1);
    return isfinite_bits(bits) ? __uint_as_float(nearest) : x;
}

typedef unsigned short bf16;
// The same number in the room of a float, for products that take no other.
typedef float wide_bf16;

__device__ __forceinline__ wide_bf16 round_to_wide_bf16(float x) { return rounded<16>(x); }

__device__ __forceinline__ bf16 round_to_bf16(float x) {
    u32 bits = __float_as_uint(rounded<16>(x));
    return (bf16)(x != x ? bits >> 16 | 0x40 : bits >> 16);
}
