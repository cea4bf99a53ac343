// Loads row `index` of a table with this row stride, N elements at a time; zeros if it is out of range.
template <typename T, int W, int N>
DEVICE void gather_row(const T* first, int index, u64 limit, u64 stride, T* to) {
    const bool is_one = index >= 0 && (u64)index < limit;
#pragma unroll
    for (int i = 0; i < W; i += N) {
        if (is_one) load<T, N>(first + (u64)index * stride + i, to + i);
#pragma unroll
        for (int k = i; k < i + N; ++k) to[k] = is_one ? to[k] : T(0);
    }
}
