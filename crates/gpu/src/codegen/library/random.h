// Random draws, bit for bit those of the specification: every operation is rounded separately.

struct Words { u32 at[4]; };

DEVICE Words philox(u64 block, u32 counter, u32 stream, u32 k, u32 l) {
    u32 a = (u32)block, b = (u32)(block >> 32), c = counter, d = stream;
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
        u32 p = UPPER_PRODUCT(MULTIPLIER_0, a), q = UPPER_PRODUCT(MULTIPLIER_1, c);
        u32 low_p = MULTIPLIER_0 * a, low_q = MULTIPLIER_1 * c;
        a = q ^ b ^ k, b = low_q, c = p ^ d ^ l, d = low_p;
        k += KEY_STEP_0, l += KEY_STEP_1;
    }
    return {{a, b, c, d}};
}

DEVICE float mul(float a, float b) { return mul_rn(a, b); }
DEVICE double mul(double a, double b) { return mul_rn(a, b); }
DEVICE float add(float a, float b) { return add_rn(a, b); }
DEVICE double add(double a, double b) { return add_rn(a, b); }
DEVICE float over(float a, float b) { return div_rn(a, b); }
DEVICE double over(double a, double b) { return div_rn(a, b); }
DEVICE float root(float a) { return sqrt_rn(a); }
DEVICE double root(double a) { return sqrt_rn(a); }

template <int N, typename F> DEVICE F poly(F z, const F (&c)[N]) {
    F w = mul(z, z);
    F chains[2] = {c[N - 1], c[N - 2]};
#pragma unroll
    for (int k = N - 3; k >= 0; --k) chains[(N - 1 - k) % 2] = add(mul(chains[(N - 1 - k) % 2], w), c[k]);
    return N % 2 == 1 ? add(chains[0], mul(z, chains[1])) : add(chains[1], mul(z, chains[0]));
}

template <typename F> DEVICE F radius_of(F f, F e, F head, F tail, F r_of_z_by_z, F s, F z) {
    F half = mul(mul(F(0.5), f), f);
    F r = mul(z, r_of_z_by_z);
    F inner = add(mul(s, add(half, r)), mul(e, tail));
    F ln = add(mul(e, head), add(f, -add(half, -inner)));
    return root(mul(F(-2), ln));
}

DEVICE float radius(float u) {
    const float LOG[] = LOG_F;
    u32 bits = bits_of(u), one = 0x3f800000u, border = BORDER_F;
    u32 field = (bits + (one - border)) >> 23;
    float f = add(float_of_bits(bits + one - (field << 23)), -1.0f);
    float e = (float)((int)field - 127);
    float s = over(f, add(2.0f, f)), z = mul(s, s);
    return radius_of<float>(f, e, LN2_HEAD_F, LN2_TAIL_F, poly(z, LOG), s, z);
}

DEVICE double radius(double u) {
    const double LOG[] = LOG_D;
    u64 bits = bits_of(u), one = 0x3ff0000000000000ull, border = BORDER_D;
    u64 field = (bits + (one - border)) >> 52;
    double f = add(double_of_bits(bits + one - (field << 52)), -1.0);
    double e = (double)((int)field - 1023);
    double s = over(f, add(2.0, f)), z = mul(s, s);
    return radius_of<double>(f, e, LN2_HEAD_D, LN2_TAIL_D, poly(z, LOG), s, z);
}

template <typename F> DEVICE void turned(u64 q, F sin, F cos, F& x, F& y) {
    F a = q % 2 == 0 ? cos : sin, b = q % 2 == 0 ? sin : cos;
    x = ((q + 1) & 2) == 0 ? a : -a;
    y = (q & 2) == 0 ? b : -b;
}

DEVICE void turn(u32 k, float& x, float& y) {
    const float SIN[] = SIN_F;
    const float COS[] = COS_F;
    u32 q = (k + (1u << 21)) >> 22;
    float f = mul((float)((int)k - (int)(q << 22)), 1.0f / 16777216.0f), z = mul(f, f);
    turned<float>(q, mul(f, poly(z, SIN)), add(1.0f, mul(z, poly(z, COS))), x, y);
}

DEVICE void turn(u64 k, double& x, double& y) {
    const double SIN[] = SIN_D;
    const double COS[] = COS_D;
    u64 q = (k + (1ull << 50)) >> 51;
    double f = mul((double)((long long)k - (long long)(q << 51)), 1.0 / 9007199254740992.0), z = mul(f, f);
    turned<double>(q, mul(f, poly(z, SIN)), add(1.0, mul(z, poly(z, COS))), x, y);
}

DEVICE void normal_pair(u32 a, u32 b, float& x, float& y) {
    float r = radius(mul(add((float)(int)(a >> 1), 1.0f), 1.0f / 2147483648.0f));
    turn(b >> 8, x, y);
    x = mul(r, x), y = mul(r, y);
}

DEVICE u64 double_word(const Words& w, int i) { return (u64)w.at[2 * i] | (u64)w.at[2 * i + 1] << 32; }

template <int N, typename T> DEVICE T chosen(const T* values, int i) {
    T value = values[0];
#pragma unroll
    for (int k = 1; k < N; ++k) value = i == k ? values[k] : value;
    return value;
}

// The numbers of one block, four of 32 bits or two of 64, and one of them.

struct Normal {
    DEVICE static void all(const Words& w, float* to) {
        normal_pair(w.at[0], w.at[1], to[0], to[1]);
        normal_pair(w.at[2], w.at[3], to[2], to[3]);
    }
    DEVICE static float one(const Words& w, int i, float) {
        float x, y;
        normal_pair(i < 2 ? w.at[0] : w.at[2], i < 2 ? w.at[1] : w.at[3], x, y);
        return i % 2 == 0 ? x : y;
    }
    DEVICE static void all(const Words& w, double* to) {
        double r = radius(mul((double)((double_word(w, 0) >> 11) + 1), 1.0 / 9007199254740992.0));
        turn(double_word(w, 1) >> 11, to[0], to[1]);
        to[0] = mul(r, to[0]), to[1] = mul(r, to[1]);
    }
    DEVICE static double one(const Words& w, int i, double) {
        double both[2];
        all(w, both);
        return i == 0 ? both[0] : both[1];
    }
};
struct Uniform {
    DEVICE static void all(const Words& w, float* to) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] = mul((float)(w.at[i] >> 8), 1.0f / 16777216.0f);
    }
    DEVICE static void all(const Words& w, double* to) {
#pragma unroll
        for (int i = 0; i < 2; ++i) to[i] = mul((double)(double_word(w, i) >> 11), 1.0 / 9007199254740992.0);
    }
    template <typename T> DEVICE static T one(const Words& w, int i, T) {
        constexpr int N = 16 / sizeof(T);
        T values[N];
        all(w, values);
        return chosen<N>(values, i);
    }
};
struct Bits {
    DEVICE static void all(const Words& w, int* to) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] = (int)w.at[i];
    }
    DEVICE static int one(const Words& w, int i, int) {
        int values[4];
        all(w, values);
        return chosen<4>(values, i);
    }
};

// Element e of a draw, and the whole block that begins with it. The first is not inlined: kernels whose lanes are not
// whole blocks have a draw per lane, and with all of them inlined one kernel took a second to compile.

template <typename Kind, typename T> DEVICE_CALL T draw(u64 e, const int* key, const int* counter, u32 stream) {
    constexpr int N = 16 / sizeof(T);
    return Kind::one(philox(e / N, (u32)counter[0], stream, (u32)key[0], (u32)key[1]), (int)(e % N), T());
}

template <typename Kind, typename T>
DEVICE void draw_block(u64 e, const int* key, const int* counter, u32 stream, T* to) {
    constexpr int N = 16 / sizeof(T);
    Kind::all(philox(e / N, (u32)counter[0], stream, (u32)key[0], (u32)key[1]), to);
}
