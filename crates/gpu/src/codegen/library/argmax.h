// The index of the largest number: the first of equals, and a NaN is the largest.

template <typename N> struct Placed { N value; int place; };

template <typename N> DEVICE Placed<N> argmax_join(Placed<N> a, Placed<N> b) {
    bool an = a.value != a.value, bn = b.value != b.value;
    bool equal = (an && bn) || a.value == b.value;
    bool second = equal ? b.place < a.place : (bn || (!an && b.value > a.value));
    return second ? b : a;
}

template <int T, typename N> DEVICE Placed<N> argmax_across(Placed<N> x) {
#pragma unroll
    for (int d = (T < 32 ? T : 32) / 2; d > 0; d /= 2) {
        Placed<N> y = {SHUFFLE_XOR(x.value, d), SHUFFLE_XOR(x.place, d)};
        x = argmax_join(x, y);
    }
    if (T > 32) {
        SHARED Placed<N> of_warps[32];
        BARRIER();
        if (THREAD % 32 == 0) of_warps[THREAD / 32] = x;
        BARRIER();
        x = of_warps[THREAD % 32 < T / 32 ? THREAD % 32 : 0];
#pragma unroll
        for (int d = 16; d > 0; d /= 2) {
            Placed<N> y = {SHUFFLE_XOR(x.value, d), SHUFFLE_XOR(x.place, d)};
            x = argmax_join(x, y);
        }
    }
    return x;
}
