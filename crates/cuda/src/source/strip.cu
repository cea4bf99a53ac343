// What a block keeps of one product for the next, in two bytes each.

// Sixteen bytes on their way to shared memory, or zeros; and what a thread has sent has arrived.
__device__ __forceinline__ void send(void* to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
    const u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
#else
    u32 words[4] = {};
    if (there) load<u32, 4>((const u32*)from, words);
    store<u32, 4>((u32*)to, words);
#endif
}
__device__ __forceinline__ void arrived() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Columns of B on their way straight into shared memory, all of the sum at once.
template <int ROWS, bool ALONG, int FAR, int THREADS, int DEEP> struct Sent : Rows<bf16, ROWS, ALONG, 8, FAR, THREADS, DEEP> {
    typedef Rows<bf16, ROWS, ALONG, 8, FAR, THREADS, DEEP> All;
    __device__ __forceinline__ Sent(u32* words, const bf16* from, int rows, int deep) : All(nullptr, 0, 0) {
#pragma unroll
        for (int u = 0; u < All::EACH; ++u) {
            int row, k, unit = u * THREADS + threadIdx.x;
            All::place(unit, row, k);
            if (All::COUNT % THREADS != 0 && unit >= All::COUNT) continue;
            bf16* to = (bf16*)words + (ALONG ? row * (All::Lie::APART * 2) + k : k * All::Lie::PITCH + row);
            send(to, from + (ALONG ? row * FAR + k : k * FAR + row), row < rows && k < deep);
        }
    }
    __device__ __forceinline__ void read(int) {}
    __device__ __forceinline__ void keep(u32*) const { arrived(); }
};

// A warp's rows of LENGTH elements, one after the other in memory, on their way to rows APART words from each other; and back.
template <int APART, int LENGTH> __device__ __forceinline__ void bring(u32* words, const bf16* from, int rows) {
    for (int unit = threadIdx.x % 32; unit < rows * (LENGTH / 8); unit += 32)
        send((bf16*)(words + unit / (LENGTH / 8) * APART) + unit % (LENGTH / 8) * 8, from + unit * 8, true);
}

template <int APART, int LENGTH> __device__ __forceinline__ void leave(const u32* words, bf16* to, int rows) {
#pragma unroll 2
    for (int unit = threadIdx.x % 32; unit < rows * (LENGTH / 8); unit += 32)
        store<u32, 4>((u32*)(to + unit * 8), words + unit / (LENGTH / 8) * APART + unit % (LENGTH / 8) * 4);
}

// Keeps what `multiply` left a warp, or a loop has made of it: all of its rows, APART words from each other.
template <int APART, int N> __device__ __forceinline__ void hold(u32* words, const float (&sums)[N][4]) {
    const int lane = threadIdx.x % 32;
    u32* own = words + lane / 4 * APART + lane % 4;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        own[i * 4] = pair_of_bf16(sums[i][0], sums[i][1]);
        own[i * 4 + 8 * APART] = pair_of_bf16(sums[i][2], sums[i][3]);
    }
}

// Eight zeros at the end of each of a warp's rows, behind so many words: tensor cores read sixteen elements at once.
template <int APART, int WORDS> __device__ __forceinline__ void end_with_zeros(u32* words) {
    const int lane = threadIdx.x % 32;
    const u32 zeros[4] = {};
    if (lane < 16) store<u32, 4>(words + lane * APART + WORDS, zeros);
}
