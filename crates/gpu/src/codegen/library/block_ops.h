// Operations on whole rows or matrices: block_ops.rs of bilevel-graph has the formulas. Sums are kept in double.

// Whether a sorts before b: by value, with NaN last.
template <typename T> DEVICE bool sorts_before(T a, T b) { return a < b || (a == a && b != b); }

// The place that element i of a row takes when the row is sorted; equal elements keep their order.
template <typename T> DEVICE_CALL int sorted_place(const T* row, int i, int n) {
    const T x = row[i];
    int place = 0;
    for (int j = 0; j < n; ++j) place += sorts_before(row[j], x) || (j < i && !sorts_before(x, row[j]));
    return place;
}

// The place of the first largest update with this index, n if there is none; a NaN is the largest.
template <typename T> DEVICE_CALL int first_largest_of(const int* indices, const T* updates, int index, int n) {
    int best = n;
    for (int j = 0; j < n; ++j) {
        if (indices[j] != index) continue;
        if (best == n || updates[j] > updates[best] || (updates[j] != updates[j] && updates[best] == updates[best])) best = j;
    }
    return best;
}

// Column after column of L: a thread for every so many rows. The first row of a column is its diagonal.
template <typename T, int THREADS> DEVICE_CALL void cholesky(const T* a, int n, T* l) {
    for (int j = 0; j < n; ++j) {
        if ((int)THREAD == 0) {
            double rest = a[(size_t)j * n + j];
            for (int k = 0; k < j; ++k) rest -= (double)l[(size_t)j * n + k] * (double)l[(size_t)j * n + k];
            l[(size_t)j * n + j] = (T)(rest > 0.0 ? sqrt(rest) : double_of_bits(0x7ff8000000000000ull));
        }
        BARRIER();
        for (int i = (int)THREAD; i < n; i += THREADS) {
            if (i < j) l[(size_t)i * n + j] = T(0);
            if (i <= j) continue;
            double rest = a[(size_t)i * n + j];
            for (int k = 0; k < j; ++k) rest -= (double)l[(size_t)i * n + k] * (double)l[(size_t)j * n + k];
            l[(size_t)i * n + j] = (T)(rest / (double)l[(size_t)j * n + j]);
        }
        BARRIER();
    }
}

// One column of X, whose elements are m apart as those of B.
template <typename T, bool lower, bool transposed, typename U>
DEVICE_CALL void triangular_solve(const T* a, const T* b, int n, U m, T* x) {
    const bool forward = lower != transposed;
    for (int step = 0; step < n; ++step) {
        const int i = forward ? step : n - 1 - step;
        double rest = b[i * m];
        for (int done = 0; done < step; ++done) {
            const int k = forward ? done : n - 1 - done;
            rest -= (double)(transposed ? a[(size_t)k * n + i] : a[(size_t)i * n + k]) * (double)x[k * m];
        }
        x[i * m] = (T)(rest / (double)a[(size_t)i * n + i]);
    }
}
