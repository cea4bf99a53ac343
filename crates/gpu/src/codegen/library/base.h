// The base of every kernel: element types and the functions of the graph's primitives.

typedef unsigned int u32;
typedef unsigned long long u64;

template <typename T, int N> struct alignas(sizeof(T) * N) Vec { T at[N]; };

template <typename T, int N> DEVICE void load(const T* from, T* to) {
    *reinterpret_cast<Vec<T, N>*>(to) = *reinterpret_cast<const Vec<T, N>*>(from);
}

template <typename T, int N> DEVICE void store(T* to, const T* from) {
    *reinterpret_cast<Vec<T, N>*>(to) = *reinterpret_cast<const Vec<T, N>*>(from);
}

// Unary functions.

template <typename T> DEVICE T op_neg(T x) { return -x; }
template <> DEVICE int op_neg(int x) { return (int)(0u - (u32)x); }
DEVICE float op_abs(float x) { return fabsf(x); }
DEVICE double op_abs(double x) { return fabs(x); }
DEVICE int op_abs(int x) { return x < 0 ? op_neg(x) : x; }
template <typename T> DEVICE T op_sign(T x) { return x > T(0) ? T(1) : (x < T(0) ? T(-1) : x); }
DEVICE float op_floor(float x) { return floorf(x); }
DEVICE double op_floor(double x) { return floor(x); }
DEVICE int op_floor(int x) { return x; }
DEVICE float op_recip(float x) { return 1.0f / x; }
DEVICE double op_recip(double x) { return 1.0 / x; }
DEVICE float op_sqrt(float x) { return sqrtf(x); }
DEVICE double op_sqrt(double x) { return sqrt(x); }
DEVICE float op_exp(float x) { return expf(x); }
DEVICE double op_exp(double x) { return exp(x); }
DEVICE float op_expm1(float x) { return expm1f(x); }
DEVICE double op_expm1(double x) { return expm1(x); }
DEVICE float op_log(float x) { return logf(x); }
DEVICE double op_log(double x) { return log(x); }
DEVICE float op_log1p(float x) { return log1pf(x); }
DEVICE double op_log1p(double x) { return log1p(x); }
DEVICE float op_sin(float x) { return sinf(x); }
DEVICE double op_sin(double x) { return sin(x); }
DEVICE float op_cos(float x) { return cosf(x); }
DEVICE double op_cos(double x) { return cos(x); }
DEVICE float op_tanh(float x) { return tanhf(x); }
DEVICE double op_tanh(double x) { return tanh(x); }
DEVICE float op_erf(float x) { return erff(x); }
DEVICE double op_erf(double x) { return erf(x); }
DEVICE float op_erfc(float x) { return erfcf(x); }
DEVICE double op_erfc(double x) { return erfc(x); }
DEVICE float op_atan(float x) { return atanf(x); }
DEVICE double op_atan(double x) { return atan(x); }
DEVICE double op_ln_gamma(double x) { return lgamma(x); }
DEVICE float op_ln_gamma(float x) { return (float)lgamma((double)x); }
template <typename T> DEVICE T op_sigmoid(T x) {
    T small = op_exp(-op_abs(x));
    T below = x >= T(0) ? T(1) : small;
    return x != x ? x : below / (T(1) + small);
}

// Binary functions.

template <typename T> DEVICE T op_add(T a, T b) { return a + b; }
template <> DEVICE int op_add(int a, int b) { return (int)((u32)a + (u32)b); }
template <typename T> DEVICE T op_sub(T a, T b) { return a - b; }
template <> DEVICE int op_sub(int a, int b) { return (int)((u32)a - (u32)b); }
template <typename T> DEVICE T op_mul(T a, T b) { return a * b; }
template <> DEVICE int op_mul(int a, int b) { return (int)((u32)a * (u32)b); }
template <typename T> DEVICE T op_div(T a, T b) { return a / b; }
template <typename T> DEVICE T op_max(T a, T b) { return a != a ? a : (b > a || b != b ? b : a); }
template <typename T> DEVICE T op_min(T a, T b) { return a != a ? a : (b < a || b != b ? b : a); }
DEVICE float op_pow(float a, float b) { return powf(a, b); }
DEVICE double op_pow(double a, double b) { return pow(a, b); }
template <typename T> DEVICE T op_eq(T a, T b) { return T(a == b); }
template <typename T> DEVICE T op_ne(T a, T b) { return T(a != b); }
template <typename T> DEVICE T op_lt(T a, T b) { return T(a < b); }
template <typename T> DEVICE T op_le(T a, T b) { return T(a <= b); }

// a·b + c, rounded once, for sums of products.

DEVICE float op_fma(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double op_fma(double a, double b, double c) { return fma(a, b, c); }
DEVICE int op_fma(int a, int b, int c) { return op_add(op_mul(a, b), c); }

// Conversions; to integers toward zero, saturating, NaN as 0.

template <typename T> struct To {
    DEVICE static T of(float x) { return (T)x; }
    DEVICE static T of(double x) { return (T)x; }
    DEVICE static T of(int x) { return (T)x; }
};
template <> struct To<int> {
    DEVICE static int of(float x) { return x != x ? 0 : int_toward_zero(x); }
    DEVICE static int of(double x) { return x != x ? 0 : int_toward_zero(x); }
    DEVICE static int of(int x) { return x; }
};

// The lowest number of a type, the identity of a maximum.

template <typename T> struct Least;
template <> struct Least<float> { DEVICE static float value() { return float_of_bits(0xff800000); } };
template <> struct Least<double> {
    DEVICE static double value() { return double_of_bits(0xfff0000000000000ull); }
};
template <> struct Least<int> { DEVICE static int value() { return (int)0x80000000; } };
