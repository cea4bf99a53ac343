// What every kernel stands on: element types, the functions of the graph's primitives, draws, and sums over threads.

typedef unsigned int u32;
typedef unsigned long long u64;

template <typename T, int N> struct alignas(sizeof(T) * N) Vec { T at[N]; };

template <typename T, int N> __device__ __forceinline__ void load(const T* from, T* to) {
    *reinterpret_cast<Vec<T, N>*>(to) = *reinterpret_cast<const Vec<T, N>*>(from);
}

template <typename T, int N> __device__ __forceinline__ void store(T* to, const T* from) {
    *reinterpret_cast<Vec<T, N>*>(to) = *reinterpret_cast<const Vec<T, N>*>(from);
}

// Functions of one number.

template <typename T> __device__ __forceinline__ T op_neg(T x) { return -x; }
template <> __device__ __forceinline__ int op_neg(int x) { return (int)(0u - (u32)x); }
__device__ __forceinline__ float op_abs(float x) { return fabsf(x); }
__device__ __forceinline__ double op_abs(double x) { return fabs(x); }
__device__ __forceinline__ int op_abs(int x) { return x < 0 ? op_neg(x) : x; }
template <typename T> __device__ __forceinline__ T op_sign(T x) { return x != x ? x : (T)((x > T(0)) - (x < T(0))); }
__device__ __forceinline__ float op_floor(float x) { return floorf(x); }
__device__ __forceinline__ double op_floor(double x) { return floor(x); }
__device__ __forceinline__ int op_floor(int x) { return x; }
__device__ __forceinline__ float op_recip(float x) { return 1.0f / x; }
__device__ __forceinline__ double op_recip(double x) { return 1.0 / x; }
__device__ __forceinline__ float op_sqrt(float x) { return sqrtf(x); }
__device__ __forceinline__ double op_sqrt(double x) { return sqrt(x); }
__device__ __forceinline__ float op_exp(float x) { return expf(x); }
__device__ __forceinline__ double op_exp(double x) { return exp(x); }
__device__ __forceinline__ float op_expm1(float x) { return expm1f(x); }
__device__ __forceinline__ double op_expm1(double x) { return expm1(x); }
__device__ __forceinline__ float op_log(float x) { return logf(x); }
__device__ __forceinline__ double op_log(double x) { return log(x); }
__device__ __forceinline__ float op_log1p(float x) { return log1pf(x); }
__device__ __forceinline__ double op_log1p(double x) { return log1p(x); }
__device__ __forceinline__ float op_sin(float x) { return sinf(x); }
__device__ __forceinline__ double op_sin(double x) { return sin(x); }
__device__ __forceinline__ float op_cos(float x) { return cosf(x); }
__device__ __forceinline__ double op_cos(double x) { return cos(x); }
__device__ __forceinline__ float op_tanh(float x) { return tanhf(x); }
__device__ __forceinline__ double op_tanh(double x) { return tanh(x); }
__device__ __forceinline__ float op_erf(float x) { return erff(x); }
__device__ __forceinline__ double op_erf(double x) { return erf(x); }
template <typename T> __device__ __forceinline__ T op_sigmoid(T x) {
    T small = op_exp(-op_abs(x));
    T below = x >= T(0) ? T(1) : small;
    return x != x ? x : below / (T(1) + small);
}

// Functions of two numbers.

template <typename T> __device__ __forceinline__ T op_add(T a, T b) { return a + b; }
template <> __device__ __forceinline__ int op_add(int a, int b) { return (int)((u32)a + (u32)b); }
template <typename T> __device__ __forceinline__ T op_sub(T a, T b) { return a - b; }
template <> __device__ __forceinline__ int op_sub(int a, int b) { return (int)((u32)a - (u32)b); }
template <typename T> __device__ __forceinline__ T op_mul(T a, T b) { return a * b; }
template <> __device__ __forceinline__ int op_mul(int a, int b) { return (int)((u32)a * (u32)b); }
template <typename T> __device__ __forceinline__ T op_div(T a, T b) { return a / b; }
template <typename T> __device__ __forceinline__ T op_max(T a, T b) { return a != a ? a : (b > a || b != b ? b : a); }
template <typename T> __device__ __forceinline__ T op_min(T a, T b) { return a != a ? a : (b < a || b != b ? b : a); }
__device__ __forceinline__ float op_pow(float a, float b) { return powf(a, b); }
__device__ __forceinline__ double op_pow(double a, double b) { return pow(a, b); }
template <typename T> __device__ __forceinline__ T op_eq(T a, T b) { return T(a == b); }
template <typename T> __device__ __forceinline__ T op_ne(T a, T b) { return T(a != b); }
template <typename T> __device__ __forceinline__ T op_lt(T a, T b) { return T(a < b); }
template <typename T> __device__ __forceinline__ T op_le(T a, T b) { return T(a <= b); }

// The same number in another type; to integers toward zero, saturating, NaN as 0.

template <typename T> struct To {
    __device__ __forceinline__ static T of(float x) { return (T)x; }
    __device__ __forceinline__ static T of(double x) { return (T)x; }
    __device__ __forceinline__ static T of(int x) { return (T)x; }
};
template <> struct To<int> {
    __device__ __forceinline__ static int of(float x) { return x != x ? 0 : __float2int_rz(x); }
    __device__ __forceinline__ static int of(double x) { return x != x ? 0 : __double2int_rz(x); }
    __device__ __forceinline__ static int of(int x) { return x; }
};

// The least number of a type, with which a maximum begins.

template <typename T> struct Least;
template <> struct Least<float> { __device__ __forceinline__ static float value() { return __int_as_float(0xff800000); } };
template <> struct Least<double> {
    __device__ __forceinline__ static double value() { return __longlong_as_double(0xfff0000000000000ll); }
};
template <> struct Least<int> { __device__ __forceinline__ static int value() { return (int)0x80000000; } };

// Ways to combine the numbers of a row or of an array.

struct Sum {
    template <typename T> __device__ __forceinline__ static T first() { return T(0); }
    template <typename T> __device__ __forceinline__ static T join(T a, T b) { return op_add(a, b); }
};
struct Max {
    template <typename T> __device__ __forceinline__ static T first() { return Least<T>::value(); }
    template <typename T> __device__ __forceinline__ static T join(T a, T b) { return op_max(a, b); }
};

// Combines a number of each of T neighbouring threads; all T get the result. T is a power of two; where it is more than a
// warp, the T threads are the whole block.
template <typename How, int T, typename N> __device__ __forceinline__ N across(N x) {
#pragma unroll
    for (int d = (T < 32 ? T : 32) / 2; d > 0; d /= 2) x = How::join(x, __shfl_xor_sync(0xffffffffu, x, d));
    if (T > 32) {
        __shared__ N of_warps[32];
        __syncthreads();
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
        __syncthreads();
        x = threadIdx.x % 32 < T / 32 ? of_warps[threadIdx.x % 32] : How::template first<N>();
#pragma unroll
        for (int d = 16; d > 0; d /= 2) x = How::join(x, __shfl_xor_sync(0xffffffffu, x, d));
    }
    return x;
}

// The place of the largest number: the first of equals, and a NaN is the largest.

template <typename N> struct Placed { N value; int place; };

template <typename N> __device__ __forceinline__ Placed<N> larger(Placed<N> a, Placed<N> b) {
    bool an = a.value != a.value, bn = b.value != b.value;
    bool equal = (an && bn) || a.value == b.value;
    bool second = equal ? b.place < a.place : (bn || (!an && b.value > a.value));
    return second ? b : a;
}

template <int T, typename N> __device__ __forceinline__ Placed<N> largest_across(Placed<N> x) {
#pragma unroll
    for (int d = (T < 32 ? T : 32) / 2; d > 0; d /= 2) {
        Placed<N> y = {__shfl_xor_sync(0xffffffffu, x.value, d), __shfl_xor_sync(0xffffffffu, x.place, d)};
        x = larger(x, y);
    }
    if (T > 32) {
        __shared__ Placed<N> of_warps[32];
        __syncthreads();
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
        __syncthreads();
        x = of_warps[threadIdx.x % 32 < T / 32 ? threadIdx.x % 32 : 0];
#pragma unroll
        for (int d = 16; d > 0; d /= 2) {
            Placed<N> y = {__shfl_xor_sync(0xffffffffu, x.value, d), __shfl_xor_sync(0xffffffffu, x.place, d)};
            x = larger(x, y);
        }
    }
    return x;
}

// Draws, to the bit those of the specification: every operation is rounded on its own.

struct Words { u32 at[4]; };

__device__ __forceinline__ Words philox(u64 block, u32 counter, u32 stream, u32 k, u32 l) {
    u32 a = (u32)block, b = (u32)(block >> 32), c = counter, d = stream;
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
        u32 p = __umulhi(MULTIPLIER_0, a), q = __umulhi(MULTIPLIER_1, c);
        u32 low_p = MULTIPLIER_0 * a, low_q = MULTIPLIER_1 * c;
        a = q ^ b ^ k, b = low_q, c = p ^ d ^ l, d = low_p;
        k += KEY_STEP_0, l += KEY_STEP_1;
    }
    return {{a, b, c, d}};
}

__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float over(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ double over(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ float root(float a) { return __fsqrt_rn(a); }
__device__ __forceinline__ double root(double a) { return __dsqrt_rn(a); }

template <int N, typename F> __device__ __forceinline__ F poly(F z, const F (&c)[N]) {
    F w = mul(z, z);
    F chains[2] = {c[N - 1], c[N - 2]};
#pragma unroll
    for (int k = N - 3; k >= 0; --k) chains[(N - 1 - k) % 2] = add(mul(chains[(N - 1 - k) % 2], w), c[k]);
    return N % 2 == 1 ? add(chains[0], mul(z, chains[1])) : add(chains[1], mul(z, chains[0]));
}

template <typename F> __device__ __forceinline__ F radius_of(F f, F e, F head, F tail, F r_of_z_by_z, F s, F z) {
    F half = mul(mul(F(0.5), f), f);
    F r = mul(z, r_of_z_by_z);
    F inner = add(mul(s, add(half, r)), mul(e, tail));
    F ln = add(mul(e, head), add(f, -add(half, -inner)));
    return root(mul(F(-2), ln));
}

__device__ __forceinline__ float radius(float u) {
    const float LOG[] = LOG_F;
    u32 bits = __float_as_uint(u), one = 0x3f800000u, border = BORDER_F;
    u32 field = (bits + (one - border)) >> 23;
    float f = add(__uint_as_float(bits + one - (field << 23)), -1.0f);
    float e = (float)((int)field - 127);
    float s = over(f, add(2.0f, f)), z = mul(s, s);
    return radius_of<float>(f, e, LN2_HEAD_F, LN2_TAIL_F, poly(z, LOG), s, z);
}

__device__ __forceinline__ double radius(double u) {
    const double LOG[] = LOG_D;
    u64 bits = (u64)__double_as_longlong(u), one = 0x3ff0000000000000ull, border = BORDER_D;
    u64 field = (bits + (one - border)) >> 52;
    double f = add(__longlong_as_double((long long)(bits + one - (field << 52))), -1.0);
    double e = (double)((int)field - 1023);
    double s = over(f, add(2.0, f)), z = mul(s, s);
    return radius_of<double>(f, e, LN2_HEAD_D, LN2_TAIL_D, poly(z, LOG), s, z);
}

template <typename F> __device__ __forceinline__ void turned(u64 q, F sin, F cos, F& x, F& y) {
    F a = q % 2 == 0 ? cos : sin, b = q % 2 == 0 ? sin : cos;
    x = ((q + 1) & 2) == 0 ? a : -a;
    y = (q & 2) == 0 ? b : -b;
}

__device__ __forceinline__ void turn(u32 k, float& x, float& y) {
    const float SIN[] = SIN_F;
    const float COS[] = COS_F;
    u32 q = (k + (1u << 21)) >> 22;
    float f = mul((float)((int)k - (int)(q << 22)), 1.0f / 16777216.0f), z = mul(f, f);
    turned<float>(q, mul(f, poly(z, SIN)), add(1.0f, mul(z, poly(z, COS))), x, y);
}

__device__ __forceinline__ void turn(u64 k, double& x, double& y) {
    const double SIN[] = SIN_D;
    const double COS[] = COS_D;
    u64 q = (k + (1ull << 50)) >> 51;
    double f = mul((double)((long long)k - (long long)(q << 51)), 1.0 / 9007199254740992.0), z = mul(f, f);
    turned<double>(q, mul(f, poly(z, SIN)), add(1.0, mul(z, poly(z, COS))), x, y);
}

__device__ __forceinline__ void normal_pair(u32 a, u32 b, float& x, float& y) {
    float r = radius(mul(add((float)(int)(a >> 1), 1.0f), 1.0f / 2147483648.0f));
    turn(b >> 8, x, y);
    x = mul(r, x), y = mul(r, y);
}

__device__ __forceinline__ u64 double_word(const Words& w, int i) { return (u64)w.at[2 * i] | (u64)w.at[2 * i + 1] << 32; }

// The numbers of one block: four of 32 bits, two of 64.

struct Normal {
    __device__ __forceinline__ static void all(const Words& w, float* to) {
        normal_pair(w.at[0], w.at[1], to[0], to[1]);
        normal_pair(w.at[2], w.at[3], to[2], to[3]);
    }
    __device__ __forceinline__ static void all(const Words& w, double* to) {
        double r = radius(mul((double)((double_word(w, 0) >> 11) + 1), 1.0 / 9007199254740992.0));
        turn(double_word(w, 1) >> 11, to[0], to[1]);
        to[0] = mul(r, to[0]), to[1] = mul(r, to[1]);
    }
};
struct Uniform {
    __device__ __forceinline__ static void all(const Words& w, float* to) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] = mul((float)(w.at[i] >> 8), 1.0f / 16777216.0f);
    }
    __device__ __forceinline__ static void all(const Words& w, double* to) {
#pragma unroll
        for (int i = 0; i < 2; ++i) to[i] = mul((double)(double_word(w, i) >> 11), 1.0 / 9007199254740992.0);
    }
};
struct Bits {
    __device__ __forceinline__ static void all(const Words& w, int* to) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] = (int)w.at[i];
    }
};

// Element number e of a draw, and the whole block that begins with it.

template <typename Kind, typename T> __device__ __forceinline__ T draw(u64 e, const int* key, const int* counter, u32 stream) {
    constexpr int N = 16 / sizeof(T);
    T values[N];
    Kind::all(philox(e / N, (u32)counter[0], stream, (u32)key[0], (u32)key[1]), values);
    T value = values[0];
#pragma unroll
    for (int i = 1; i < N; ++i) value = e % N == i ? values[i] : value;
    return value;
}

template <typename Kind, typename T>
__device__ __forceinline__ void draw_block(u64 e, const int* key, const int* counter, u32 stream, T* to) {
    constexpr int N = 16 / sizeof(T);
    Kind::all(philox(e / N, (u32)counter[0], stream, (u32)key[0], (u32)key[1]), to);
}

// Remembers an index out of range: the smallest of (operation, place, index) that was met.
__device__ __forceinline__ void report(u64* error, u32 operation, u64 place, int index) {
    u64 near = place < 0x3fffffu ? place : 0x3fffffu;
    atomicMin(error, (u64)operation << 54 | near << 32 | (u64)(u32)index);
}

__device__ __forceinline__ bool has_failed(const u64* error) { return *(const volatile u64*)error != ~0ull; }

// Numbers with fewer digits: the last D of 23 are rounded away, to the nearest, the even one of two.

__device__ __forceinline__ bool isfinite_bits(u32 bits) { return (bits >> 23 & 0xff) != 0xff; }

template <int D> __device__ __forceinline__ float rounded(float x) {
    u32 bits = __float_as_uint(x);
    u32 nearest = (bits + ((1u << (D - 1)) - 1) + (bits >> D & 1)) & ~((1u << D) - 1);
    return isfinite_bits(bits) ? __uint_as_float(nearest) : x;
}

typedef unsigned short bf16;

__device__ __forceinline__ bf16 round_to_bf16(float x) {
    u32 bits = __float_as_uint(rounded<16>(x));
    return (bf16)(x != x ? bits >> 16 | 0x40 : bits >> 16);
}
