//! The vector operations on x86: AVX-512 and AVX2 with FMA.

use super::simd::Simd;
use core::arch::x86_64::*;

/// AVX-512 vectors of `T`.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<T>(std::marker::PhantomData<T>);

/// AVX2 vectors of `T`, with fused multiply-add.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<T>(std::marker::PhantomData<T>);

/// Intrinsics under the promises that [`Simd`] requires of its callers.
macro_rules! promised {
    ($body:expr) => {
        // SAFETY: the caller promises the instructions of the type, and memory for the elements that are named.
        unsafe { $body }
    };
}

/// The vectors of one type: its intrinsics by name, and by expression if the instruction sets differ.
macro_rules! simd {
    ($isa:ident<$t:ty>, $v:ty, $lanes:literal, $free:literal, $zero:ident $set1:ident $load:ident $store:ident $fma:ident $add:ident $transpose:ident,
     mask: $m:ty, ($low:ident, $high:ident) => $between:expr,
     load: ($from:ident, $by:ident) => $load_mask:expr, store: ($to:ident, $with:ident, $what:ident) => $store_mask:expr,
     sum: ($all:ident) => $sum:expr) => {
        // SAFETY: each function is one or a few intrinsics under the caller's promises.
        unsafe impl Simd for $isa<$t> {
            type T = $t;
            type V = $v;
            type M = $m;
            const LANES: usize = $lanes;
            const FREE_MASK: bool = $free;

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
                promised!(Self::mask_between(0, n))
            }
            #[inline(always)]
            unsafe fn mask_between($low: usize, $high: usize) -> $m {
                $between
            }
            #[inline(always)]
            unsafe fn load_mask($from: *const $t, $by: $m) -> $v {
                promised!($load_mask)
            }
            #[inline(always)]
            unsafe fn store_mask($to: *mut $t, $what: $v, $with: $m) {
                promised!($store_mask)
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
            unsafe fn sum($all: $v) -> $t {
                promised!($sum)
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

simd!(
    Avx512<f32>, __m512, 16, true,
    _mm512_setzero_ps _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps _mm512_add_ps transpose_16x16,
    mask: __mmask16, (low, high) => ((1u32 << high) - (1u32 << low)) as __mmask16,
    load: (p, m) => _mm512_maskz_loadu_ps(m, p), store: (p, m, v) => _mm512_mask_storeu_ps(p, m, v),
    sum: (v) => _mm512_reduce_add_ps(v)
);
simd!(
    Avx512<f64>, __m512d, 8, true,
    _mm512_setzero_pd _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd _mm512_add_pd transpose_8x8,
    mask: __mmask8, (low, high) => ((1u32 << high) - (1u32 << low)) as __mmask8,
    load: (p, m) => _mm512_maskz_loadu_pd(m, p), store: (p, m, v) => _mm512_mask_storeu_pd(p, m, v),
    sum: (v) => _mm512_reduce_add_pd(v)
);
simd!(
    Avx2<f32>, __m256, 8, false,
    _mm256_setzero_ps _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps _mm256_add_ps transpose_avx2_8x8,
    mask: __m256i, (low, high) => promised!(lanes_of(low, high, 1)),
    load: (p, m) => _mm256_maskload_ps(p, m), store: (p, m, v) => _mm256_maskstore_ps(p, m, v),
    sum: (v) => std::mem::transmute::<__m256, [f32; 8]>(v).iter().sum()
);
simd!(
    Avx2<f64>, __m256d, 4, false,
    _mm256_setzero_pd _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd _mm256_add_pd transpose_avx2_4x4,
    mask: __m256i, (low, high) => promised!(lanes_of(low, high, 2)),
    load: (p, m) => _mm256_maskload_pd(p, m), store: (p, m, v) => _mm256_maskstore_pd(p, m, v),
    sum: (v) => std::mem::transmute::<__m256d, [f64; 4]>(v).iter().sum()
);

/// Eight ones, then eight zeros: the mask of n lanes starts n places before the zeros.
static ONES_THEN_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// The mask of lanes low..high, each of so many words.
///
/// # Safety
/// The machine must have AVX2, and high lanes at most eight words.
#[inline(always)]
unsafe fn lanes_of(low: usize, high: usize, words: usize) -> __m256i {
    // SAFETY: the eight words that are read lie inside the table.
    promised!({
        let [below, all] = [low, high].map(|n| ONES_THEN_ZEROS.as_ptr().add(8 - n * words).cast());
        _mm256_andnot_si256(_mm256_loadu_si256(below), _mm256_loadu_si256(all))
    })
}

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
