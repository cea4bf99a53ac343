// Products of small matrices by tensor cores. A block computes a tile of the result, each warp 16 rows of it, from
// tiles of both operands in shared memory, which keep the orientation they have in memory.

// An operand type in shared memory, and the MMA of 16 rows of A by 8 columns of B over 8 words of each.
template <typename T> struct MmaOperand;

// The layout of a tile in shared memory: along k, K_TILE elements take WORDS words of a row of STRIDE; across k, ROWS
// elements take PITCH elements. Both avoid bank conflicts.
template <typename T, int ROWS, int K_TILE> struct SmemTile {
    static const int WORDS = K_TILE * (int)sizeof(T) / 4, STRIDE = WORDS + 4, PITCH = ROWS / 8 % 2 ? ROWS : ROWS + 8;
    // An MMA operand takes two times eight rows.
    static const int ALONG = (ROWS + ROWS % 16) * STRIDE, ACROSS = PITCH * WORDS, SIZE = ALONG > ACROSS ? ALONG : ACROSS;
};

template <> struct MmaOperand<float> {
    __device__ __forceinline__ static u32 of(u32 x) {
#if __CUDA_ARCH__ >= 800
        u32 kept;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(kept) : "f"(__uint_as_float(x)));
        return kept;
#else
        return __float_as_uint(rounded<13>(__uint_as_float(x)));
#endif
    }
    __device__ __forceinline__ static void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
    }
    __device__ __forceinline__ static float product(u32 a, u32 b) { return __uint_as_float(a) * __uint_as_float(b); }
};

template <> struct MmaOperand<bf16> {
    template <typename Type> __device__ __forceinline__ static Type of(Type x) { return x; }
    __device__ __forceinline__ static void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
    }
    __device__ __forceinline__ static float product(u32 a, u32 b) {
        float upper = __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
        return fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16), upper);
    }
};

// The row, from 0 to 15, and the half of eight words that a lane addresses for ldmatrix: for A all rows with the lower
// words first, for B both halves of the first rows first, as the MMA expects.
template <bool OF_B> struct LdmatrixLane {
    __device__ __forceinline__ static int row(int square) { return (OF_B ? square / 2 : square % 2) * 8; }
    __device__ __forceinline__ static int half(int square) { return OF_B ? square % 2 : square / 2; }
};

// Loads the fragment of sixteen rows of this stride, words k and k + 4: lane l gets rows l / 4 and l / 4 + 8, with l %
// 4 included in k.
template <bool OF_B> __device__ __forceinline__ void ldmatrix_x4(const u32* rows, int stride, int k, u32 (&parts)[4]) {
#if __CUDA_ARCH__ >= 800
    const int lane = threadIdx.x % 32, row = lane % 8 + LdmatrixLane<OF_B>::row(lane / 8);
    const u32 at = (u32)__cvta_generic_to_shared(rows + row * stride + k - lane % 4 + LdmatrixLane<OF_B>::half(lane / 8) * 4);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
                 : "r"(at)
                 : "memory");
#endif
}

// The registers for V contiguous elements: words, or half of one.
template <typename T, int V> struct Unit {
    typedef u32 Type;
    static const int COUNT = V * (int)sizeof(T) / 4;
};
template <> struct Unit<bf16, 1> {
    typedef unsigned short Type;
    static const int COUNT = 1;
};

// Loads a tile of an operand to shared memory: rows of A, or columns of B. Memory is contiguous along k if ALONG,
// otherwise across it; the other stride is LEADING. A thread loads V elements at a time, and THREADS threads load
// K_TILE of k.
template <typename T, int ROWS, bool ALONG, int V, int LEADING, int THREADS, int K_TILE> struct TileLoader {
    typedef T Element;
    typedef SmemTile<T, ROWS, K_TILE> Tile;
    typedef Unit<T, V> Held;
    typedef typename Held::Type Type;
    static const int COUNT = ROWS * K_TILE / V, EACH = (COUNT + THREADS - 1) / THREADS;
    const T* from;
    const int rows;
    Type held[EACH][Held::COUNT];

    // Starts with the first tile of a k of `deep`, of which this many rows exist.
    __device__ __forceinline__ TileLoader(const T* from, int rows, int deep) : from(from), rows(rows) { read(deep); }

    __device__ __forceinline__ static void place(int unit, int& row, int& k) {
        if (ALONG) {
            row = unit / (K_TILE / V);
            k = unit % (K_TILE / V) * V;
        } else {
            row = unit % (ROWS / V) * V;
            k = unit / (ROWS / V);
        }
    }

    // Reads a tile, if this much of k is left; missing elements are zero.
    __device__ __forceinline__ void read(int deep) {
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            int row, k, unit = u * THREADS + threadIdx.x;
            place(unit, row, k);
            bool there = (COUNT % THREADS == 0 || unit < COUNT) && row < rows && k < deep;
#pragma unroll
            for (int j = 0; j < Held::COUNT; ++j) held[u][j] = 0;
            if (there) load<Type, Held::COUNT>((const Type*)(from + (ALONG ? row * LEADING + k : k * LEADING + row)), held[u]);
        }
        from += ALONG ? K_TILE : (long long)K_TILE * LEADING;
    }

    __device__ __forceinline__ void store_smem(u32* words) const {
        T* shared = (T*)words;
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            int row, k, unit = u * THREADS + threadIdx.x;
            place(unit, row, k);
            if (COUNT % THREADS != 0 && unit >= COUNT) continue;
            Type kept[Held::COUNT];
#pragma unroll
            for (int j = 0; j < Held::COUNT; ++j) kept[j] = MmaOperand<T>::of(held[u][j]);
            T* to = shared + (ALONG ? row * (Tile::STRIDE * 4 / (int)sizeof(T)) + k : k * Tile::PITCH + row);
            store<Type, Held::COUNT>((Type*)to, kept);
        }
    }

    // Returns a word of a row along k.
    __device__ __forceinline__ static u32 word(const u32* words, int row, int k) {
        if (ALONG) return words[row * Tile::STRIDE + k];
        if (sizeof(T) == 4) return words[k * Tile::PITCH + row];
        const unsigned short* shared = (const unsigned short*)words + 2 * k * Tile::PITCH + row;
        return shared[0] | (u32)shared[Tile::PITCH] << 16;
    }

    // As `ldmatrix_x4`, from the first row on.
    template <bool OF_B> __device__ __forceinline__ static void fragment(const u32* words, int first, int k, u32 (&parts)[4]) {
        if (ALONG) return ldmatrix_x4<OF_B>(words + first * Tile::STRIDE, Tile::STRIDE, k, parts);
        const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 800
        if (sizeof(T) == 2) {
            // 8 × 8 matrices that are transposed by the load: each lane addresses one line.
            const int line = 2 * (k - lane % 4) + lane % 8 + LdmatrixLane<OF_B>::half(lane / 8) * 8, row = first + LdmatrixLane<OF_B>::row(lane / 8);
            const u32 at = (u32)__cvta_generic_to_shared((const unsigned short*)words + line * Tile::PITCH + row);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
                         : "r"(at)
                         : "memory");
            return;
        }
#endif
#pragma unroll
        for (int i = 0; i < 4; ++i)
            parts[i] = word(words, first + lane / 4 + LdmatrixLane<OF_B>::row(i), k + LdmatrixLane<OF_B>::half(i) * 4);
    }
};

// Shared memory of a block: tiles of A and B, then results on their way out.
template <typename T, int WARPS, int COLUMNS, int K_TILE> struct Shared {
    __align__(16) u32 a[SmemTile<T, 16 * WARPS, K_TILE>::SIZE];
    __align__(16) u32 b[SmemTile<T, COLUMNS, K_TILE>::SIZE];
};

// Accumulates a warp's part of A·B in `sums`, over K elements, K_TILE at a time. DOWN warps are below each other, 16
// rows each, and the next ones beside them, 8·N columns each; warps beyond `rows_there` are idle. In lane l, sums[i]
// has columns 8·i + 2·(l % 4) and the next, of rows l / 4 and l / 4 + 8.
template <int K, int K_TILE, int DOWN, typename A, typename B, int N>
__device__ __forceinline__ void multiply(A of_a, u32* a, B of_b, u32* b, float (&sums)[N][4], int rows_there) {
    typedef typename B::Element T;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int WORDS = K_TILE * (int)sizeof(T) / 4, own = warp % DOWN * 16, first = warp / DOWN * N * 8;
#pragma unroll 1
    for (int left = K; left > 0; left -= K_TILE) {
        of_a.store_smem(a);
        of_b.store_smem(b);
        __syncthreads();
        // In flight while the current tiles are multiplied.
        if (left > K_TILE) {
            of_a.read(left - K_TILE);
            of_b.read(left - K_TILE);
        }
#if __CUDA_ARCH__ >= 800
#pragma unroll
        for (int k = t; k < WORDS; k += 8) {
            // Beyond the end of k there are zeros.
            if ((k - t) * 4 >= left * (int)sizeof(T) || own >= rows_there) break;
            u32 rows[4];
            A::template fragment<false>(a, own, k, rows);
#pragma unroll
            for (int i = 0; i < N; i += 2) {
                u32 columns[4];
                B::template fragment<true>(b, first + i * 8, k, columns);
                MmaOperand<T>::multiply(sums[i], rows, columns[0], columns[1]);
                if (i + 1 < N) MmaOperand<T>::multiply(sums[i + 1 < N ? i + 1 : i], rows, columns[2], columns[3]);
            }
        }
#else
        for (int k = 0; k < WORDS; ++k)
#pragma unroll
            for (int i = 0; i < N; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    sums[i][j] += MmaOperand<T>::product(A::word(a, own + g + j / 2 * 8, k), B::word(b, first + i * 8 + 2 * t + j % 2, k));
#endif
        __syncthreads();
    }
}

// Stores four numbers by one instruction; the compiler would use several.
__device__ __forceinline__ void write_four(float* to, const float* from) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]) : "memory");
}
__device__ __forceinline__ void write_four(bf16* to, const float* from) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(pair_of_bf16(from[0], from[1])), "r"(pair_of_bf16(from[2], from[3])) : "memory");
}

// Writes the accumulators, with the block's first result at `c` and these strides, eight rows of each warp at a time:
// through shared memory, so that stores are coalesced, in vectors of four if possible. The block has this many rows and
// columns.
template <long long NEXT_ROW, long long NEXT, int DOWN, int VECTOR, int N, typename C>
__device__ __forceinline__ void write(void* shared, C* c, int rows, int columns, const float (&sums)[N][4]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    const int COLUMNS = N * 8, STRIDE = COLUMNS + 8 - COLUMNS % 16, left = warp / DOWN * COLUMNS;
    float* own = (float*)shared + warp * 8 * STRIDE;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int first = warp % DOWN * 16 + half * 8;
#pragma unroll
        for (int i = 0; i < N; ++i) store<float, 2>(own + g * STRIDE + i * 8 + t * 2, sums[i] + half * 2);
        __syncwarp();
        if (VECTOR == 4) {
            // Lanes per row, a power of two.
            constexpr int ROW_LANES = COLUMNS > 64 ? 32 : COLUMNS > 32 ? 16 : 8;
            const int line = lane / ROW_LANES, column = lane % ROW_LANES * 4;
            C* to = c + (first + line) * NEXT_ROW + left + column;
            // Keeps one base address; otherwise the compiler recomputes each.
            asm volatile("" : "+l"(to));
            const int below = column < COLUMNS && left + column < columns ? rows - first - line : 0;
            // A lane beyond the end of a row reads the row's last four.
            const float* const from = own + line * STRIDE + min(column, COLUMNS - 4);
            // A few rows at a time, to save registers: the compiler does not hoist loads across a barrier.
            constexpr int STEP = 32 / ROW_LANES, UNROLL = ROW_LANES == 16 ? 4 : 2;
#pragma unroll
            for (int row = 0; row < 8; row += UNROLL * STEP) {
                float fours[UNROLL][4];
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) load<float, 4>(from + (row + u * STEP) * STRIDE, fours[u]);
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
                    if (row + u * STEP < below) write_four(to + (row + u * STEP) * NEXT_ROW, fours[u]);
                if (row + UNROLL * STEP < 8) __syncwarp();
            }
        } else if (NEXT == 1) {
#pragma unroll
            for (int row = 0; row < 8; ++row)
#pragma unroll
                for (int x = 0; x < COLUMNS; x += 32) {
                    const int column = x + lane;
                    if (first + row < rows && column < COLUMNS && left + column < columns)
                        c[(first + row) * NEXT_ROW + left + column] = own[row * STRIDE + column];
                }
        } else {
            for (int e = lane; e < 8 * COLUMNS; e += 32) {
                const int row = e % 8, column = e / 8;
                if (first + row < rows && left + column < columns)
                    c[(first + row) * NEXT_ROW + (left + column) * NEXT] = own[row * STRIDE + column];
            }
        }
        __syncwarp();
    }
}
