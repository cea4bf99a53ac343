// What the device library needs of CUDA.

#define DEVICE __device__ __forceinline__
#define DEVICE_CALL __device__ __noinline__
#define SHARED __shared__
#define BARRIER() __syncthreads()
#define THREAD threadIdx.x
#define SHUFFLE_XOR(x, d) __shfl_xor_sync(0xffffffffu, x, d)
#define ATOMIC_MIN(p, x) atomicMin(p, x)
#define UPPER_PRODUCT(a, b) __umulhi(a, b)

DEVICE unsigned int bits_of(float x) { return __float_as_uint(x); }
DEVICE unsigned long long bits_of(double x) { return (unsigned long long)__double_as_longlong(x); }
DEVICE float float_of_bits(unsigned int x) { return __uint_as_float(x); }
DEVICE double double_of_bits(unsigned long long x) { return __longlong_as_double((long long)x); }
DEVICE float mul_rn(float a, float b) { return __fmul_rn(a, b); }
DEVICE double mul_rn(double a, double b) { return __dmul_rn(a, b); }
DEVICE float add_rn(float a, float b) { return __fadd_rn(a, b); }
DEVICE double add_rn(double a, double b) { return __dadd_rn(a, b); }
DEVICE float div_rn(float a, float b) { return __fdiv_rn(a, b); }
DEVICE double div_rn(double a, double b) { return __ddiv_rn(a, b); }
DEVICE float sqrt_rn(float a) { return __fsqrt_rn(a); }
DEVICE double sqrt_rn(double a) { return __dsqrt_rn(a); }
DEVICE int int_toward_zero(float x) { return __float2int_rz(x); }
DEVICE int int_toward_zero(double x) { return __double2int_rz(x); }

DEVICE float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#if __CUDA_ARCH__ >= 800
#define NATIVE_MAX(a, b) native_max(a, b)
DEVICE float native_max(float a, float b) {
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
}

#define NATIVE_BF16_PAIR(first, second) native_bf16_pair(first, second)
DEVICE unsigned int native_bf16_pair(float first, float second) {
    unsigned int pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
#endif

