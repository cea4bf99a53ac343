// 1 + erf(x) = erfc(-x), as in GELU: with t = |x|,
//
//   erfc(t) = 2^(-t·p(t)),   1 + erf(x) = erfc(t) if x is negative, else 2 - erfc(t).
//
// Its error is about that of rounding the sum of 1 and erf(x). The polynomial is increasing, so that the limits are 0
// and 2. A separate erf must also be accurate for small numbers, and takes twice the instructions.
DEVICE float one_plus_erf(float x) {
    const float P[8] = {1.62790859f, 0.918416381f, 0.148481622f, -0.0282537099f, 0.000774656888f, 0.00148942857f, -0.000445504877f, 4.53584362e-05f};
    const float t = fabsf(x);
    float p = P[7];
#pragma unroll
    for (int i = 6; i >= 0; --i) p = fmaf(p, t, P[i]);
    const float tail = exp2_approx(-t * p);
    return x < 0.0f ? tail : 2.0f - tail;
}
