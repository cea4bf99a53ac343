typedef u32 U; typedef int I;
__device__ __forceinline__ void part(const u32 blocks, const U n0, float* p1, bf16* p2) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load<float, 4>(p1 + ((I)e), m0);
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = rounded<16>(m0[j]);
    store_bf16<4>(p2 + e, v1);
}
struct Own { u64 blocks; alignas(8) U n0; alignas(8) float* p1; alignas(8) bf16* p2; };
struct All { Own own[3]; };
extern "C" __global__ void __launch_bounds__(256) kernel(const All all) {
    const Own& own = all.own[blockIdx.z];
    if (blockIdx.x < own.blocks) part((u32)own.blocks, own.n0, own.p1, own.p2);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(128, 3) kernel(bf16* p0, bf16* p1, bf16* p2, const float c3, float* p4, float* p5, bf16* p6) {
    extern __shared__ __align__(16) u32 smem[];
    u32 *const smem_a = smem + 3840, *const smem_b = smem_a + 2880;
    const U item = blockIdx.x / 2;
    const int part = blockIdx.x % 2, i = part * 7 / 2 * 16;
    const int there = min(104, (part + 1) * 7 / 2 * 16) - i, own = threadIdx.x / 32 * 16;
    const int lane = threadIdx.x % 32, left = lane % 4 * 2;
    u32* const rows = smem + own * 60;
    AsyncTile<64, true, 32, 128, 64> a(smem_a, p0 + ((I)(item % 8) * 3328 + (I)(item / 8) * 26624) + (I)i * 32, there, 32);
    AsyncTile<104, true, 32, 128, 64> b(smem_b, p1 + ((I)(item % 8) * 3328 + (I)(item / 8) * 26624), 104, 32);
    float sums[13][4] = {};
    multiply<32, 64, 4>(a, smem_a, b, smem_b, sums, there);
    AsyncTile<32, false, 32, 128, 112> next(smem_b, p2 + ((I)(item % 8) * 3328 + (I)(item / 8) * 26624), 32, 104);
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
    if (own >= there) break;
    __syncwarp();
    const int r = i + own + h * 8 + lane / 4;
    const bool live = r - i < there;
    const U row = item * 104 + min(r, 104 - 1);
    float v0[26];
#pragma unroll
    for (int j = 0; j < 26; ++j) v0[j] = rounded<16>(sums[j / 2][h * 2 + j % 2]);
    float v1[26];
#pragma unroll
    for (int j = 0; j < 26; ++j) v1[j] = op_mul(v0[j], c3);
    float v2 = Max::first<float>();
#pragma unroll
    for (int j = 0; j < 26; ++j) v2 = Max::join(v2, v1[j]);
    v2 = across<Max, 4>(v2);
    float v3[26];
#pragma unroll
    for (int j = 0; j < 26; ++j) v3[j] = op_sub(v1[j], v2);
    float v4[26];
#pragma unroll
    for (int j = 0; j < 26; ++j) v4[j] = op_exp(v3[j]);
    float v5 = Sum::first<float>();
#pragma unroll
    for (int j = 0; j < 26; ++j) v5 = Sum::join(v5, v4[j]);
    v5 = across<Sum, 4>(v5);
    const float v6 = op_recip(v5);
    float v7[26];
#pragma unroll
    for (int j = 0; j < 26; ++j) v7[j] = op_mul(v4[j], v6);
    #pragma unroll
    for (int j = 0; j < 26; j += 2) if (live) store<float, 2>(p4 + (I)(row * 104 + left) + j / 2 * 8, v4 + j);
    if (live && left == 0) p5[row] = v6;
#pragma unroll
    for (int j = 0; j < 26; ++j) sums[j / 2][h * 2 + j % 2] = v7[j];
    }
    float found[4][4] = {};
    multiply_rows(sums, next, smem_b, found, there);
    write<32, 1, 4, 4>(smem_a, p6 + ((I)(item % 8) * 3328 + (I)(item / 8) * 26624) + (I)i * 32, there, 32, found);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(256) kernel(const U n0, bf16* p1, bf16* p2, float* p3) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load_bf16<4>(p1 + ((I)e), m0);
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = op_cos(m0[j]);
    float v2[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v2[j] = rounded<16>(m0[j]);
    store_bf16<4>(p2 + e, v1);
    store<float, 4>(p3 + e, v2);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(128, 3) kernel(bf16* p0, bf16* p1, bf16* p2, float* p3, float* p4, const float c5, bf16* p6, bf16* p7) {
    extern __shared__ __align__(16) u32 smem[];
    u32 *const smem_a = smem + 3840, *const smem_b = smem_a + 2880;
    const U item = blockIdx.x / 2;
    const int part = blockIdx.x % 2, i = part * 7 / 2 * 16;
    const int there = min(104, (part + 1) * 7 / 2 * 16) - i, own = threadIdx.x / 32 * 16;
    const int lane = threadIdx.x % 32, left = lane % 4 * 2;
    u32* const rows = smem + own * 60;
    AsyncTile<64, true, 32, 128, 64> a(smem_a, p0 + ((I)(item % 8) * 3328 + (I)(item / 8) * 26624) + (I)i * 32, there, 32);
    AsyncTile<104, true, 32, 128, 64> b(smem_b, p1 + ((I)(item % 8) * 3328 + (I)(item / 8) * 26624), 104, 32);
    float sums[13][4] = {};
    multiply<32, 64, 4>(a, smem_a, b, smem_b, sums, there);
    AsyncTile<32, false, 32, 128, 112> next(smem_b, p2 + ((I)(item % 8) * 3328 + (I)(item / 8) * 26624), 32, 104);
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
    if (own >= there) break;
    __syncwarp();
    const int r = i + own + h * 8 + lane / 4;
    const bool live = r - i < there;
    const U row = item * 104 + min(r, 104 - 1);
    float v0[26];
#pragma unroll
    for (int j = 0; j < 26; ++j) v0[j] = rounded<16>(sums[j / 2][h * 2 + j % 2]);
    float m1[26];
    const float* const m1_row = p3 + ((I)row * 104);
#pragma unroll
    for (int j = 0; j < 13; ++j) load<float, 2>(m1_row + left + j * 8, m1 + 2 * j);
    float m2[26];
    const I m2_row = (I)row;
#pragma unroll
    for (int j = 0; j < 26; ++j) m2[j] = p4[m2_row + 0];
    float v3[26];
#pragma unroll
    for (int j = 0; j < 26; ++j) v3[j] = op_mul(m2[j], v0[j]);
    const float m4 = p4[(I)row];
    float v5[26];
#pragma unroll
    for (int j = 0; j < 26; ++j) v5[j] = op_mul(m1[j], v0[j]);
    float v6 = Sum::first<float>();
#pragma unroll
    for (int j = 0; j < 26; ++j) v6 = Sum::join(v6, v5[j]);
    v6 = across<Sum, 4>(v6);
    const float v7 = op_mul(m4, v6);
    const float v8 = op_mul(m4, v7);
    const float v9 = op_neg(v8);
    float v10[26];
#pragma unroll
    for (int j = 0; j < 26; ++j) v10[j] = op_add(v3[j], v9);
    float v11[26];
#pragma unroll
    for (int j = 0; j < 26; ++j) v11[j] = op_mul(m1[j], v10[j]);
    float v12[26];
#pragma unroll
    for (int j = 0; j < 26; ++j) v12[j] = op_mul(v11[j], c5);
#pragma unroll
    for (int j = 0; j < 26; ++j) sums[j / 2][h * 2 + j % 2] = v12[j];
    }
    float found[4][4] = {};
    multiply_rows(sums, next, smem_b, found, there);
    store_fragment<60>(rows, sums);
    __syncwarp();
    store_rows<60, 104>(rows, p6 + (I)(item * 104 + i + own) * 104, min(16, there - own));
    write<32, 1, 4, 4>(smem_a, p7 + ((I)(item % 8) * 3328 + (I)(item / 8) * 26624) + (I)i * 32, there, 32, found);
}

typedef u32 U; typedef int I;
extern "C" __global__ void __launch_bounds__(128) kernel(bf16* p0, bf16* p1, bf16* p2) {
    __shared__ Shared<bf16, 4, 32, 64> shared;
    const U item = blockIdx.x / 2, tile = blockIdx.x % 2;
    const int part = tile / 1, j = tile % 1 * 32;
    const int i = part * 7 / 2 * 16, there = min(104, (part + 1) * 7 / 2 * 16) - i;
    float sums[4][4] = {};
    TileLoader<bf16, 64, false, 8, 104, 128, 64> a(p0 + ((I)(item % 8) * 10816 + (I)(item / 8) * 86528) + (I)i * 1, there, 104);
    TileLoader<bf16, 32, false, 8, 32, 128, 64> b(p1 + ((I)(item % 8) * 3328 + (I)(item / 8) * 26624) + (I)j * 1, 32 - j, 104);
    multiply<104, 64, 4>(a, shared.a, b, shared.b, sums, there);
    write<32, 1, 4, 4>(
        &shared, p2 + ((I)(item % 8) * 3328 + (I)(item / 8) * 26624 + (I)i * 32 + (I)j * 1), there, 32 - j, sums);
}

typedef u32 U; typedef int I;
__device__ __forceinline__ void part(const u32 blocks, const U n0, bf16* p1, float* p2) {
    U b = (U)blockIdx.x * 256 + threadIdx.x;
    if (b >= n0) return;
    const U e = b * 4;
    float m0[4];
    load_bf16<4>(p1 + ((I)e), m0);
    float v1[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v1[j] = rounded<16>(m0[j]);
    store<float, 4>(p2 + e, v1);
}
struct Own { u64 blocks; alignas(8) U n0; alignas(8) bf16* p1; alignas(8) float* p2; };
struct All { Own own[2]; };
extern "C" __global__ void __launch_bounds__(256) kernel(const All all) {
    const Own& own = all.own[blockIdx.z];
    if (blockIdx.x < own.blocks) part((u32)own.blocks, own.n0, own.p1, own.p2);
}
