// Digamma and polygamma, computed in double: scalar_gamma.rs states the formulas.

DEVICE_CALL double op_digamma(double x) {
    const double C[7] = {-1.0 / 12.0, 1.0 / 120.0, -1.0 / 252.0, 1.0 / 240.0, -1.0 / 132.0, 691.0 / 32760.0, -1.0 / 12.0};
    const double X0 = 1.4616321449683622, X0_REST = 9.549995429965697e-17, PI = 3.141592653589793;
    if (x == 0.0) return -1.0 / x;
    double taken = 0.0;
    if (x < 0.0) {
        const double fraction = x - round(x);
        if (fraction == 0.0) return double_of_bits(0x7ff8000000000000ull);
        taken = PI / tan(PI * fraction);
        x = 1.0 - x;
    } else if (x < 0.5) {
        taken = 1.0 / x;
        x += 1.0;
    }
    if (!(x < 10.0)) {
        const double square = 1.0 / (x * x);
        double tail = 0.0;
        for (int j = 6; j >= 0; --j) tail = tail * square + C[j];
        return log(x) - 0.5 / x + square * tail - taken;
    }
    const double d = (x - X0) - X0_REST;
    double sum = 0.0;
    for (int k = 0; k < 10; ++k) sum += 1.0 / ((x + k) * (X0 + k));
    const double w = x + 10.0, w0 = X0 + 10.0, p = 1.0 / (w * w), q = 1.0 / (w0 * w0), step = -d * (w + w0) * p * q;
    double difference = 0.0, power = 1.0, tail = 0.0;
    for (int j = 0; j < 7; ++j) {
        difference = p * difference + step * power;
        power *= q;
        tail += C[j] * difference;
    }
    return d * (sum + 0.5 / (w * w0)) + log1p(d / w0) + tail - taken;
}

DEVICE_CALL double hurwitz_zeta(double s, double a) {
    const double C[10] = {8.333333333333333e-2, -1.388888888888889e-3, 3.306878306878307e-5, -8.267195767195768e-7, 2.08767569878681e-8,
        -5.284190138687493e-10, 1.3382536530684679e-11, -3.3896802963225827e-13, 8.586062056277845e-15, -2.174868698558062e-16};
    double sum = 0.0;
    for (; a < s + 10.0; a += 1.0) sum += pow(a, -s);
    const double first = pow(a, -s);
    double rest = pow(a, 1.0 - s) / (s - 1.0) + 0.5 * first, factor = first * s / a;
    for (int j = 0; j < 10; ++j) {
        rest += C[j] * factor;
        const double k = s + 2 * j;
        factor *= (k + 1.0) * (k + 2.0) / (a * a);
    }
    return sum + rest;
}

DEVICE_CALL double op_polygamma(double n, double x) {
    if (n == 0.0) return op_digamma(x);
    if (!(n >= 1.0 && n <= 170.0) || floor(n) != n || x != x) return double_of_bits(0x7ff8000000000000ull);
    double signed_factorial = 1.0;
    for (int k = 2; k <= (int)n; ++k) signed_factorial *= k;
    const bool odd = (int)n % 2 == 1;
    if (!odd) signed_factorial = -signed_factorial;
    const double s = n + 1.0, infinity = double_of_bits(0x7ff0000000000000ull);
    if (x > 0.0) return signed_factorial * hurwitz_zeta(s, x);
    if (x == 0.0) return odd ? infinity : signed_factorial / x;
    const double above = x - floor(x), below = ceil(x) - x;
    if (!(above > 0.0)) return odd && x > -infinity ? infinity : double_of_bits(0x7ff8000000000000ull);
    const double negative = hurwitz_zeta(s, below) - hurwitz_zeta(s, 1.0 - x);
    return signed_factorial * (hurwitz_zeta(s, above) + (odd ? negative : -negative));
}

DEVICE float op_digamma(float x) { return (float)op_digamma((double)x); }
DEVICE float op_polygamma(float n, float x) { return (float)op_polygamma((double)n, (double)x); }
