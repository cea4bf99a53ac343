// Products of small matrices by tensor cores. A block computes a tile of the result, each warp 16 rows of it; of both operands it keeps
// some columns of A and rows of B at a time in shared memory, along the sum, as the tensor cores take them.

// What an operand is kept as, and how a warp multiplies 16 rows of A by 8 columns of B over 8 words of each.
template <typename T> struct Kept;

// DEEP elements of a row take so many words, and the next row begins so many later: lanes of a warp that read at once never meet in a bank.
template <typename T, int DEEP> struct Kept_row {
    static const int WORDS = DEEP * (int)sizeof(T) / 4, APART = WORDS + 4;
};

template <> struct Kept<float> {
    typedef u32 Type;
    __device__ __forceinline__ static u32 of(float x) {
#if __CUDA_ARCH__ >= 800
        u32 kept;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(kept) : "f"(x));
        return kept;
#else
        return __float_as_uint(rounded<13>(x));
#endif
    }
    __device__ __forceinline__ static void multiply(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
    __device__ __forceinline__ static float product(u32 a, u32 b) { return __uint_as_float(a) * __uint_as_float(b); }
};

template <> struct Kept<bf16> {
    typedef unsigned short Type;
    __device__ __forceinline__ static unsigned short of(bf16 x) { return x.bits; }
    __device__ __forceinline__ static void multiply(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
    __device__ __forceinline__ static float product(u32 a, u32 b) {
        float upper = __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
        return fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16), upper);
    }
};

// Rows of an operand on their way to shared memory: rows of A, or columns of B. Neighbours in memory are along the sum where ALONG, else
// across it; other neighbours are FAR elements apart. A thread takes V neighbours at a time.
template <typename T, int ROWS, bool ALONG, int V, int FAR, int THREADS, int DEEP> struct Rows {
    static const int COUNT = ROWS * DEEP / V, EACH = (COUNT + THREADS - 1) / THREADS;
    // Across the sum, lanes of a warp take both: whole sectors of memory, and few banks twice.
    static const int BESIDE = V == 1 ? 8 : ROWS % (2 * V) == 0 ? 2 : 1, BEHIND = 32 / BESIDE, BLOCKS = ROWS / (BESIDE * V);
    T held[EACH][V];

    __device__ __forceinline__ static void place(int unit, int& row, int& k) {
        if (ALONG) {
            row = unit / (DEEP / V);
            k = unit % (DEEP / V) * V;
        } else {
            row = (unit % BESIDE + unit / 32 % BLOCKS * BESIDE) * V;
            k = unit / BESIDE % BEHIND + unit / 32 / BLOCKS * BEHIND;
        }
    }

    // Reads what begins at `from`, where so many rows and so much of the sum are left; zeros stand for the rest.
    __device__ __forceinline__ void read(const T* from, int rows, int deep) {
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            int row, k, unit = u * THREADS + threadIdx.x;
            place(unit, row, k);
            bool there = (COUNT % THREADS == 0 || unit < COUNT) && row < rows && k < deep;
#pragma unroll
            for (int j = 0; j < V; ++j) held[u][j] = T(0.0f);
            if (there) load<T, V>(from + (ALONG ? row * FAR + k : k * FAR + row), held[u]);
        }
    }

    __device__ __forceinline__ void keep(u32* words) const {
        typename Kept<T>::Type* shared = (typename Kept<T>::Type*)words;
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            int row, k, unit = u * THREADS + threadIdx.x;
            place(unit, row, k);
            if (COUNT % THREADS != 0 && unit >= COUNT) continue;
            typename Kept<T>::Type kept[V];
#pragma unroll
            for (int j = 0; j < V; ++j) kept[j] = Kept<T>::of(held[u][j]);
            const int apart = Kept_row<T, DEEP>::APART * 4 / sizeof(T);
            if (ALONG) {
                store<typename Kept<T>::Type, V>(shared + row * apart + k, kept);
            } else {
#pragma unroll
                for (int j = 0; j < V; ++j) shared[(row + j) * apart + k] = kept[j];
            }
        }
    }
};

// Shared memory of a block: rows of A and columns of B while they are multiplied, then results on their way out.
template <typename T, int WARPS, int COLUMNS, int DEEP> struct Shared {
    __align__(16) u32 a[16 * WARPS * Kept_row<T, DEEP>::APART];
    u32 b[COLUMNS * Kept_row<T, DEEP>::APART];
};

// Adds to `sums` what a warp has of a tile of 16·WARPS rows and COLUMNS columns, over K elements of each row. In lane l, sums[i] has
// columns 8·i + 2·(l % 4) and the next, of rows l / 4 and l / 4 + 8 of the warp's. Of the tile there are so many rows and columns.
template <int K, typename A, typename B, typename T, int WARPS, int COLUMNS, int DEEP>
__device__ __forceinline__ void multiply(Shared<T, WARPS, COLUMNS, DEEP>& shared, const T* a, int rows, long long next_a, const T* b,
                                         int columns, long long next_b, float (&sums)[COLUMNS / 8][4]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int WORDS = Kept_row<T, DEEP>::WORDS, APART = Kept_row<T, DEEP>::APART;
    const u32* own = shared.a + threadIdx.x / 32 * 16 * APART;
    A of_a;
    B of_b;
    of_a.read(a, rows, K);
    of_b.read(b, columns, K);
#pragma unroll 1
    for (int left = K; left > 0; left -= DEEP) {
        of_a.keep(shared.a);
        of_b.keep(shared.b);
        __syncthreads();
        // On their way while what is kept is multiplied.
        if (left > DEEP) {
            of_a.read(a += next_a, rows, left - DEEP);
            of_b.read(b += next_b, columns, left - DEEP);
        }
#if __CUDA_ARCH__ >= 800
#pragma unroll
        for (int k = t; k < WORDS; k += 8) {
            // Beyond the end of the sum there are zeros.
            if ((k - t) * 4 >= left * (int)sizeof(T)) break;
            const u32* upper = own + g * APART + k;
            const u32* lower = upper + 8 * APART;
            const u32 rows_of_a[4] = {upper[0], lower[0], upper[4], lower[4]};
#pragma unroll
            for (int i = 0; i < COLUMNS / 8; ++i) {
                const u32* column = shared.b + (i * 8 + g) * APART + k;
                const u32 columns_of_b[2] = {column[0], column[4]};
                Kept<T>::multiply(sums[i], rows_of_a, columns_of_b);
            }
        }
#else
        for (int k = 0; k < WORDS; ++k)
#pragma unroll
            for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    sums[i][j] += Kept<T>::product(own[(g + j / 2 * 8) * APART + k], shared.b[(i * 8 + 2 * t + j % 2) * APART + k]);
#endif
        __syncthreads();
    }
}

// Writes what `multiply` left, with the first of the tile's results at `c` and others so far apart, eight rows of each warp at a time:
// through shared memory, so that neighbours are written by neighbours.
template <long long DOWN, long long ALONG, typename T, int WARPS, int COLUMNS, int DEEP, typename C>
__device__ __forceinline__ void write(Shared<T, WARPS, COLUMNS, DEEP>& shared, C* c, int rows, int columns,
                                      const float (&sums)[COLUMNS / 8][4]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    const int APART = COLUMNS + 8 - COLUMNS % 16;
    static_assert(8 * APART * WARPS * 4 <= sizeof(shared), "a warp has no room for eight rows");
    float* own = reinterpret_cast<float*>(&shared) + warp * 8 * APART;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int first = warp * 16 + half * 8;
#pragma unroll
        for (int i = 0; i < COLUMNS / 8; ++i) store<float, 2>(own + g * APART + i * 8 + t * 2, sums[i] + half * 2);
        __syncwarp();
        if (ALONG == 1) {
#pragma unroll
            for (int row = 0; row < 8; ++row)
#pragma unroll
                for (int x = 0; x < COLUMNS; x += 32) {
                    const int column = x + lane;
                    if (first + row < rows && column < COLUMNS && column < columns)
                        c[(first + row) * DOWN + column] = own[row * APART + column];
                }
        } else {
            for (int e = lane; e < 8 * COLUMNS; e += 32) {
                const int row = e % 8, column = e / 8;
                if (first + row < rows && column < columns) c[(first + row) * DOWN + column * ALONG] = own[row * APART + column];
            }
        }
        __syncwarp();
    }
}
