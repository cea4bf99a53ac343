//! The vector operations on x86: AVX-512 and AVX2 with FMA.

use super::simd::Simd;
use core::arch::x86_64::*;

/// AVX-512 vectors of `T`.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<T>(std::marker::PhantomData<T>);

/// AVX2 vectors of `T`, with fused multiply-add.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<T>(std::marker::PhantomData<T>);

/// Intrinsics under the promises that [`Simd`] asks of its callers.
macro_rules! promised {
    ($body:expr) => {
        // SAFETY: the caller promises the instructions of the type, and memory for the elements that are named.
        unsafe { $body }
    };
}

macro_rules! avx512 {
    ($t:ty, $v:ty, $m:ty, $lanes:literal, $zero:ident, $set1:ident, $load:ident, $store:ident, $mload:ident,
     $mstore:ident, $fma:ident, $add:ident, $sum:ident, $transpose:ident) => {
        // SAFETY: each function is one intrinsic under the caller's promises.
        unsafe impl Simd for Avx512<$t> {
            type T = $t;
            type V = $v;
            type M = $m;
            const LANES: usize = $lanes;
            const FREE_MASK: bool = true;

            #[inline(always)]
            unsafe fn zero() -> $v {
                promised!($zero())
            }
            #[inline(always)]
            unsafe fn splat(p: *const $t) -> $v {
                promised!($set1(*p))
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> $v {
                promised!($load(p))
            }
            #[inline(always)]
            unsafe fn store(p: *mut $t, v: $v) {
                promised!($store(p, v))
            }
            #[inline(always)]
            unsafe fn mask(n: usize) -> $m {
                ((1u32 << n) - 1) as $m
            }
            #[inline(always)]
            unsafe fn mask_between(low: usize, high: usize) -> $m {
                ((1u32 << high) - (1u32 << low)) as $m
            }
            #[inline(always)]
            unsafe fn load_mask(p: *const $t, m: $m) -> $v {
                promised!($mload(m, p))
            }
            #[inline(always)]
            unsafe fn store_mask(p: *mut $t, v: $v, m: $m) {
                promised!($mstore(p, m, v))
            }
            #[inline(always)]
            unsafe fn fma(a: $v, b: $v, c: $v) -> $v {
                promised!($fma(a, b, c))
            }
            #[inline(always)]
            unsafe fn add(a: $v, b: $v) -> $v {
                promised!($add(a, b))
            }
            #[inline(always)]
            unsafe fn sum(v: $v) -> $t {
                promised!($sum(v))
            }
            #[inline(always)]
            unsafe fn prefetch(p: *const $t) {
                promised!(_mm_prefetch::<_MM_HINT_T0>(p.cast()))
            }
            #[inline(always)]
            unsafe fn transpose(r: &mut [$v; 16]) {
                promised!($transpose(r))
            }
        }
    };
}

avx512!(
    f32,
    __m512,
    __mmask16,
    16,
    _mm512_setzero_ps,
    _mm512_set1_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_maskz_loadu_ps,
    _mm512_mask_storeu_ps,
    _mm512_fmadd_ps,
    _mm512_add_ps,
    _mm512_reduce_add_ps,
    transpose_16x16
);
avx512!(
    f64,
    __m512d,
    __mmask8,
    8,
    _mm512_setzero_pd,
    _mm512_set1_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_maskz_loadu_pd,
    _mm512_mask_storeu_pd,
    _mm512_fmadd_pd,
    _mm512_add_pd,
    _mm512_reduce_add_pd,
    transpose_8x8
);

/// Eight ones, then eight zeros: the mask of n lanes starts n places before the zeros.
static ONES_THEN_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

macro_rules! avx2 {
    ($t:ty, $v:ty, $lanes:literal, $zero:ident, $set1:ident, $load:ident, $store:ident, $mload:ident, $mstore:ident,
     $fma:ident, $add:ident, $transpose:ident) => {
        // SAFETY: each function is one or two intrinsics under the caller's promises.
        unsafe impl Simd for Avx2<$t> {
            type T = $t;
            type V = $v;
            type M = __m256i;
            const LANES: usize = $lanes;
            const FREE_MASK: bool = false;

            #[inline(always)]
            unsafe fn zero() -> $v {
                promised!($zero())
            }
            #[inline(always)]
            unsafe fn splat(p: *const $t) -> $v {
                promised!($set1(*p))
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> $v {
                promised!($load(p))
            }
            #[inline(always)]
            unsafe fn store(p: *mut $t, v: $v) {
                promised!($store(p, v))
            }
            #[inline(always)]
            unsafe fn mask(n: usize) -> __m256i {
                // SAFETY: n ≤ LANES, so the eight words read lie inside the table.
                unsafe { _mm256_loadu_si256(ONES_THEN_ZEROS.as_ptr().add(8 - n * (8 / $lanes)).cast()) }
            }
            #[inline(always)]
            unsafe fn mask_between(low: usize, high: usize) -> __m256i {
                promised!(_mm256_andnot_si256(Self::mask(low), Self::mask(high)))
            }
            #[inline(always)]
            unsafe fn load_mask(p: *const $t, m: __m256i) -> $v {
                promised!($mload(p, m))
            }
            #[inline(always)]
            unsafe fn store_mask(p: *mut $t, v: $v, m: __m256i) {
                promised!($mstore(p, m, v))
            }
            #[inline(always)]
            unsafe fn fma(a: $v, b: $v, c: $v) -> $v {
                promised!($fma(a, b, c))
            }
            #[inline(always)]
            unsafe fn add(a: $v, b: $v) -> $v {
                promised!($add(a, b))
            }
            #[inline(always)]
            unsafe fn sum(v: $v) -> $t {
                let mut lanes = [0.0; $lanes];
                promised!($store(lanes.as_mut_ptr(), v));
                lanes.iter().sum()
            }
            #[inline(always)]
            unsafe fn prefetch(p: *const $t) {
                promised!(_mm_prefetch::<_MM_HINT_T0>(p.cast()))
            }
            #[inline(always)]
            unsafe fn transpose(r: &mut [$v; 16]) {
                promised!($transpose(r))
            }
        }
    };
}

avx2!(
    f32,
    __m256,
    8,
    _mm256_setzero_ps,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_maskload_ps,
    _mm256_maskstore_ps,
    _mm256_fmadd_ps,
    _mm256_add_ps,
    transpose_avx2_8x8
);
avx2!(
    f64,
    __m256d,
    4,
    _mm256_setzero_pd,
    _mm256_set1_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_maskload_pd,
    _mm256_maskstore_pd,
    _mm256_fmadd_pd,
    _mm256_add_pd,
    transpose_avx2_4x4
);

/// Joins 128-bit lane l of four vectors into out[l], for l = 0..4.
macro_rules! join_lanes {
    ($shuffle:ident, $u:expr) => {{
        let u = $u;
        let (even0, odd0) = ($shuffle::<0x88>(u[0], u[1]), $shuffle::<0xdd>(u[0], u[1]));
        let (even1, odd1) = ($shuffle::<0x88>(u[2], u[3]), $shuffle::<0xdd>(u[2], u[3]));
        [
            $shuffle::<0x88>(even0, even1),
            $shuffle::<0x88>(odd0, odd1),
            $shuffle::<0xdd>(even0, even1),
            $shuffle::<0xdd>(odd0, odd1),
        ]
    }};
}

/// Pairs, then pairs of pairs inside each 128-bit lane, then whole lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_16x16(r: &mut [__m512; 16]) {
    let mut u = *r;
    for g in [0, 4, 8, 12] {
        let lo0 = _mm512_castps_pd(_mm512_unpacklo_ps(r[g], r[g + 1]));
        let hi0 = _mm512_castps_pd(_mm512_unpackhi_ps(r[g], r[g + 1]));
        let lo1 = _mm512_castps_pd(_mm512_unpacklo_ps(r[g + 2], r[g + 3]));
        let hi1 = _mm512_castps_pd(_mm512_unpackhi_ps(r[g + 2], r[g + 3]));
        u[g] = _mm512_castpd_ps(_mm512_unpacklo_pd(lo0, lo1));
        u[g + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(lo0, lo1));
        u[g + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(hi0, hi1));
        u[g + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(hi0, hi1));
    }
    for c in 0..4 {
        let out = join_lanes!(_mm512_shuffle_f32x4, [u[c], u[c + 4], u[c + 8], u[c + 12]]);
        for l in 0..4 {
            r[4 * l + c] = out[l];
        }
    }
}

/// Pairs inside each 128-bit lane, then whole lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_8x8(r: &mut [__m512d; 16]) {
    let mut u = *r;
    for g in [0, 2, 4, 6] {
        u[g] = _mm512_unpacklo_pd(r[g], r[g + 1]);
        u[g + 1] = _mm512_unpackhi_pd(r[g], r[g + 1]);
    }
    for c in 0..2 {
        let out = join_lanes!(_mm512_shuffle_f64x2, [u[c], u[c + 2], u[c + 4], u[c + 6]]);
        for l in 0..4 {
            r[2 * l + c] = out[l];
        }
    }
}

/// Pairs, then pairs of pairs inside each 128-bit lane, then whole lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_avx2_8x8(r: &mut [__m256; 16]) {
    let mut u = *r;
    for g in [0, 4] {
        let lo0 = _mm256_castps_pd(_mm256_unpacklo_ps(r[g], r[g + 1]));
        let hi0 = _mm256_castps_pd(_mm256_unpackhi_ps(r[g], r[g + 1]));
        let lo1 = _mm256_castps_pd(_mm256_unpacklo_ps(r[g + 2], r[g + 3]));
        let hi1 = _mm256_castps_pd(_mm256_unpackhi_ps(r[g + 2], r[g + 3]));
        u[g] = _mm256_castpd_ps(_mm256_unpacklo_pd(lo0, lo1));
        u[g + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(lo0, lo1));
        u[g + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(hi0, hi1));
        u[g + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(hi0, hi1));
    }
    for c in 0..4 {
        r[c] = _mm256_permute2f128_ps::<0x20>(u[c], u[c + 4]);
        r[c + 4] = _mm256_permute2f128_ps::<0x31>(u[c], u[c + 4]);
    }
}

/// Pairs inside each 128-bit lane, then whole lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_avx2_4x4(r: &mut [__m256d; 16]) {
    let mut u = *r;
    for g in [0, 2] {
        u[g] = _mm256_unpacklo_pd(r[g], r[g + 1]);
        u[g + 1] = _mm256_unpackhi_pd(r[g], r[g + 1]);
    }
    for c in 0..2 {
        r[c] = _mm256_permute2f128_pd::<0x20>(u[c], u[c + 2]);
        r[c + 2] = _mm256_permute2f128_pd::<0x31>(u[c], u[c + 2]);
    }
}
