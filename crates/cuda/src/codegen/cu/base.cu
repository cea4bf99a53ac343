// The base of every kernel: element types and the functions of the graph's primitives.

typedef unsigned int u32;
typedef unsigned long long u64;

template <typename T, int N> struct alignas(sizeof(T) * N) Vec { T at[N]; };

template <typename T, int N> __device__ __forceinline__ void load(const T* from, T* to) {
    *reinterpret_cast<Vec<T, N>*>(to) = *reinterpret_cast<const Vec<T, N>*>(from);
}

template <typename T, int N> __device__ __forceinline__ void store(T* to, const T* from) {
    *reinterpret_cast<Vec<T, N>*>(to) = *reinterpret_cast<const Vec<T, N>*>(from);
}

// Unary functions.

template <typename T> __device__ __forceinline__ T op_neg(T x) { return -x; }
template <> __device__ __forceinline__ int op_neg(int x) { return (int)(0u - (u32)x); }
__device__ __forceinline__ float op_abs(float x) { return fabsf(x); }
__device__ __forceinline__ double op_abs(double x) { return fabs(x); }
__device__ __forceinline__ int op_abs(int x) { return x < 0 ? op_neg(x) : x; }
template <typename T> __device__ __forceinline__ T op_sign(T x) { return x > T(0) ? T(1) : (x < T(0) ? T(-1) : x); }
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

// Binary functions.

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

// a·b + c, rounded once, for sums of products.

__device__ __forceinline__ float op_fma(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double op_fma(double a, double b, double c) { return fma(a, b, c); }
__device__ __forceinline__ int op_fma(int a, int b, int c) { return op_add(op_mul(a, b), c); }

// Conversions; to integers toward zero, saturating, NaN as 0.

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

// The lowest number of a type, the identity of a maximum.

template <typename T> struct Least;
template <> struct Least<float> { __device__ __forceinline__ static float value() { return __int_as_float(0xff800000); } };
template <> struct Least<double> {
    __device__ __forceinline__ static double value() { return __longlong_as_double(0xfff0000000000000ll); }
};
template <> struct Least<int> { __device__ __forceinline__ static int value() { return (int)0x80000000; } };
