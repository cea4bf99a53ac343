// Asynchronous copies and bf16 rows in shared memory, between the two products of a fused attention.

// Copies sixteen bytes to shared memory asynchronously, or zeros; and waits for all copies of this thread.
__device__ __forceinline__ void cp_async(void* to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
    const u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
#else
    u32 words[4] = {};
    if (there) load<u32, 4>((const u32*)from, words);
    store<u32, 4>((u32*)to, words);
#endif
}
__device__ __forceinline__ void cp_async_wait_all() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Commits a thread's copies as one group; and waits for all groups.
__device__ __forceinline__ void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
__device__ __forceinline__ void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
}

// A tile of A or B that is copied asynchronously as one group, all of k at once.
template <int ROWS, bool ALONG, int LEADING, int THREADS, int K_TILE> struct AsyncTile : TileLoader<bf16, ROWS, ALONG, 8, LEADING, THREADS, K_TILE> {
    typedef TileLoader<bf16, ROWS, ALONG, 8, LEADING, THREADS, K_TILE> All;
    __device__ __forceinline__ AsyncTile(u32* words, const bf16* from, int rows, int deep) : All(nullptr, 0, 0) {
#pragma unroll
        for (int u = 0; u < All::EACH; ++u) {
            int row, k, unit = u * THREADS + threadIdx.x;
            All::place(unit, row, k);
            if (All::COUNT % THREADS != 0 && unit >= All::COUNT) continue;
            bf16* to = (bf16*)words + (ALONG ? row * (All::Tile::STRIDE * 2) + k : k * All::Tile::PITCH + row);
            cp_async(to, from + (ALONG ? row * LEADING + k : k * LEADING + row), row < rows && k < deep);
        }
        cp_async_commit();
    }
    __device__ __forceinline__ void read(int) {}
    __device__ __forceinline__ void store_smem(u32*) const { cp_async_wait(); }
};

// Accumulates in `sums` the product of a warp's rows, which are accumulators that a loop has transformed, and columns
// of B. Two times eight columns of them are an operand fragment of sixteen elements. Warps beyond `rows_there` are
// idle.
template <typename B, int M, int N>
__device__ __forceinline__ void multiply_rows(const float (&rows)[M][4], B of_b, u32* b, float (&sums)[N][4], int rows_there) {
    const int lane = threadIdx.x % 32, t = lane % 4, own = threadIdx.x / 32 * 16;
    of_b.store_smem(b);
    __syncthreads();
#if __CUDA_ARCH__ >= 800
#pragma unroll
    for (int k = 0; k < (M + 1) / 2; ++k) {
        if (own >= rows_there) break;
        u32 parts[4] = {};
#pragma unroll
        for (int i = 0; i < 4 && 2 * k + i / 2 < M; ++i) parts[i] = pair_of_bf16(rows[2 * k + i / 2][i % 2 * 2], rows[2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            u32 columns[4];
            B::template fragment<true>(b, i * 8, k * 8 + t, columns);
            MmaOperand<bf16>::multiply(sums[i], parts, columns[0], columns[1]);
            if (i + 1 < N) MmaOperand<bf16>::multiply(sums[i + 1 < N ? i + 1 : i], parts, columns[2], columns[3]);
        }
    }
#endif
    __syncthreads();
}

// Copies a warp's rows of LENGTH contiguous elements to rows of STRIDE words in shared memory, asynchronously; and
// back.
template <int STRIDE, int LENGTH> __device__ __forceinline__ void load_rows(u32* words, const bf16* from, int rows) {
    for (int unit = threadIdx.x % 32; unit < rows * (LENGTH / 8); unit += 32)
        cp_async((bf16*)(words + unit / (LENGTH / 8) * STRIDE) + unit % (LENGTH / 8) * 8, from + unit * 8, true);
}

template <int STRIDE, int LENGTH> __device__ __forceinline__ void store_rows(const u32* words, bf16* to, int rows) {
#pragma unroll 2
    for (int unit = threadIdx.x % 32; unit < rows * (LENGTH / 8); unit += 32)
        store<u32, 4>((u32*)(to + unit * 8), words + unit / (LENGTH / 8) * STRIDE + unit % (LENGTH / 8) * 4);
}

// Stores a warp's accumulators to its rows of STRIDE words in shared memory, as bf16.
template <int STRIDE, int N> __device__ __forceinline__ void store_fragment(u32* words, const float (&sums)[N][4]) {
    const int lane = threadIdx.x % 32;
    u32* own = words + lane / 4 * STRIDE + lane % 4;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        own[i * 4] = pair_of_bf16(sums[i][0], sums[i][1]);
        own[i * 4 + 8 * STRIDE] = pair_of_bf16(sums[i][2], sums[i][3]);
    }
}
