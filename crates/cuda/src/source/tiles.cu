// Products of small matrices by tensor cores. A block computes a tile of the result, each warp 16 rows of it; of both operands it keeps
// some columns of A and rows of B at a time in shared memory, in the order in which they lie in memory.

// What an operand is kept as, and how a warp multiplies 16 rows of A by 8 columns of B over 8 words of each.
template <typename T> struct Kept;

// DEEP elements of a row along the sum take so many words, and the next row begins so many later; across it, ROWS elements side by side are
// so many elements from the next: lanes of a warp that read at once never meet in a bank.
template <typename T, int ROWS, int DEEP> struct Kept_rows {
    static const int WORDS = DEEP * (int)sizeof(T) / 4, APART = WORDS + 4, PITCH = ROWS / 8 % 2 ? ROWS : ROWS + 8;
    static const int ALONG = ROWS * APART, ACROSS = PITCH * WORDS, MOST = ALONG > ACROSS ? ALONG : ACROSS;
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
    typedef Kept_rows<T, ROWS, DEEP> Lie;
    typedef typename Kept<T>::Type Type;
    static const int COUNT = ROWS * DEEP / V, EACH = (COUNT + THREADS - 1) / THREADS;
    T held[EACH][V];

    __device__ __forceinline__ static void place(int unit, int& row, int& k) {
        if (ALONG) {
            row = unit / (DEEP / V);
            k = unit % (DEEP / V) * V;
        } else {
            row = unit % (ROWS / V) * V;
            k = unit / (ROWS / V);
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
        Type* shared = (Type*)words;
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            int row, k, unit = u * THREADS + threadIdx.x;
            place(unit, row, k);
            if (COUNT % THREADS != 0 && unit >= COUNT) continue;
            Type kept[V];
#pragma unroll
            for (int j = 0; j < V; ++j) kept[j] = Kept<T>::of(held[u][j]);
            store<Type, V>(shared + (ALONG ? row * (Lie::APART * 4 / (int)sizeof(T)) + k : k * Lie::PITCH + row), kept);
        }
    }

    // A word of a row along the sum.
    __device__ __forceinline__ static u32 word(const u32* words, int row, int k) {
        if (ALONG) return words[row * Lie::APART + k];
        if (sizeof(T) == 4) return words[k * Lie::PITCH + row];
        const unsigned short* shared = (const unsigned short*)words + 2 * k * Lie::PITCH + row;
        return shared[0] | (u32)shared[Lie::PITCH] << 16;
    }

    // N / 2 times eight rows from the first, words k and k + 4 of each, as lane l has them for tensor cores: those of row l / 4, where k has
    // l % 4 in it. First those of all rows with the lower words.
    template <int N> __device__ __forceinline__ static void fragment(const u32* words, int first, int k, u32 (&parts)[N]) {
        const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 800
        if (!ALONG && sizeof(T) == 2) {
            // Squares of 8 × 8 that are turned on the way: each lane names one of their lines.
            const int line = 2 * (k - lane % 4) + lane % 8 + (N == 4 ? lane / 16 : lane / 8 % 2) * 8;
            const int row = first + (N == 4 ? lane / 8 % 2 * 8 : 0);
            const u32 at = (u32)__cvta_generic_to_shared((const unsigned short*)words + line * Lie::PITCH + row);
            if (N == 4)
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[N - 2]), "=r"(parts[N - 1])
                             : "r"(at)
                             : "memory");
            else
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                             : "=r"(parts[0]), "=r"(parts[1])
                             : "r"(at)
                             : "memory");
            return;
        }
#endif
#pragma unroll
        for (int i = 0; i < N; ++i) parts[i] = word(words, first + lane / 4 + i % (N / 2) * 8, k + i / (N / 2) * 4);
    }
};

// Shared memory of a block: rows of A and columns of B while they are multiplied, then results on their way out.
template <typename T, int WARPS, int COLUMNS, int DEEP> struct Shared {
    __align__(16) u32 a[Kept_rows<T, 16 * WARPS, DEEP>::MOST];
    __align__(16) u32 b[Kept_rows<T, COLUMNS, DEEP>::MOST];
};

// Adds to `sums` what a warp has of a tile of 16·WARPS rows and COLUMNS columns, over K elements of each row. In lane l, sums[i] has
// columns 8·i + 2·(l % 4) and the next, of rows l / 4 and l / 4 + 8 of the warp's. Of the tile there are so many rows and columns.
template <int K, typename A, typename B, typename T, int WARPS, int COLUMNS, int DEEP>
__device__ __forceinline__ void multiply(Shared<T, WARPS, COLUMNS, DEEP>& shared, const T* a, int rows, long long next_a, const T* b,
                                         int columns, long long next_b, float (&sums)[COLUMNS / 8][4]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int WORDS = A::Lie::WORDS, own = threadIdx.x / 32 * 16;
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
            u32 rows_of_a[4];
            A::fragment(shared.a, own, k, rows_of_a);
#pragma unroll
            for (int i = 0; i < COLUMNS / 8; ++i) {
                u32 columns_of_b[2];
                B::fragment(shared.b, i * 8, k, columns_of_b);
                Kept<T>::multiply(sums[i], rows_of_a, columns_of_b);
            }
        }
#else
        for (int k = 0; k < WORDS; ++k)
#pragma unroll
            for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    sums[i][j] +=
                        Kept<T>::product(A::word(shared.a, own + g + j / 2 * 8, k), B::word(shared.b, i * 8 + 2 * t + j % 2, k));
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
