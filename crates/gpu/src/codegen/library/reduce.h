// Reductions across the threads of a warp or of a block.

struct Sum {
    template <typename T> DEVICE static T first() { return T(0); }
    template <typename T> DEVICE static T join(T a, T b) { return op_add(a, b); }
};
struct Max {
    template <typename T> DEVICE static T first() { return Least<T>::value(); }
    template <typename T> DEVICE static T join(T a, T b) { return op_max(a, b); }
#ifdef NATIVE_MAX
    // The same in one instruction; of two zeros, either.
    DEVICE static float join(float a, float b) { return NATIVE_MAX(a, b); }
#endif
};

// Reduces one number of each of T adjacent threads; all T get the result. T is a power of two; if it exceeds a warp,
// the T threads are the whole block. Each CALL number has its own slots for partial results of warps, and so needs no
// barrier before it, unless it directly follows itself.
template <typename How, int T, int CALL = -1, typename N> DEVICE N across(N x) {
#pragma unroll
    for (int d = (T < 32 ? T : 32) / 2; d > 0; d /= 2) x = How::join(x, SHUFFLE_XOR(x, d));
    if (T > 32) {
        constexpr int WARPS = T > 32 ? T / 32 : 1;
        alignas(16) SHARED N of_warps[WARPS];
        if (CALL < 0) BARRIER();
        if (THREAD % 32 == 0) of_warps[THREAD / 32] = x;
        BARRIER();
        if (WARPS <= 8) {
            // All threads read the same few words, which is faster than shuffles.
            x = of_warps[0];
#pragma unroll
            for (int i = 1; i < WARPS; ++i) x = How::join(x, of_warps[i]);
        } else {
            x = of_warps[THREAD % WARPS];
#pragma unroll
            for (int d = WARPS / 2; d > 0; d /= 2) x = How::join(x, SHUFFLE_XOR(x, d));
        }
    }
    return x;
}
