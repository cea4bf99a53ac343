//! The vector types of AVX2 with FMA: 256 bits, masks as vectors of all-ones lanes.

use super::x86::*;
use super::{Binary, Float, Fold, GemmVector, MAX_LANES, Num, Vector, Widen, Words};
use std::arch::x86_64::*;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

/// All ones in the lanes that are true, of 32 or 64 bits.
#[derive(Clone, Copy)]
pub(crate) struct Mask(__m256i);

operators!(Mask: BitAnd bitand _mm256_and_si256, BitOr bitor _mm256_or_si256);

impl Not for Mask {
    type Output = Mask;
    #[inline(always)]
    fn not(self) -> Mask {
        on_vectors!(Mask(_mm256_xor_si256(self.0, _mm256_set1_epi32(-1))))
    }
}

/// Ones in the lanes from..to of 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn lanes32(from: usize, to: usize) -> __m256i {
    let lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    let below = |n: usize| _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lane);
    _mm256_andnot_si256(below(from), below(to))
}

/// Ones in the lanes from..to of 64 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn lanes64(from: usize, to: usize) -> __m256i {
    let lane = _mm256_set_epi64x(3, 2, 1, 0);
    let below = |n: usize| _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), lane);
    _mm256_andnot_si256(below(from), below(to))
}

vector!(
    /// 8 × f32.
    F32x8(__m256), f32, 8, _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps);
vector!(
    /// 4 × f64.
    F64x4(__m256d), f64, 4, _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd);
vector!(
    /// 8 × i32.
    I32x8(__m256i), i32, 8, _mm256_set1_epi32 _mm256_loadu_si256 _mm256_storeu_si256);

/// A float vector; masks are of this instruction set.
macro_rules! float {
    ($t:ident: $elem:ident as $int:ident, $double:literal, $rounder:literal, $bias:literal, $lanes:ident,
     $maskload:ident $maskstore:ident $cmp:ident $blend:ident $bits:ident $andnot:ident
     $set1:ident $add:ident $sub:ident $mul:ident $div:ident $max:ident $min:ident
     $fma:ident $sqrt:ident $round:ident $and:ident $or:ident $xor:ident
     $iadd:ident $isub:ident $srl:ident $sll:ident $shift:literal $cast:ident $back:ident
     $fold_sum:ident $fold_max:ident $fold_each:ident $transpose:ident) => {
        impl $t {
            #[inline(always)]
            fn compare<const OP: i32>(self, b: Self) -> Mask {
                on_vectors!(Mask($cast($cmp::<OP>(self.0, b.0))))
            }
        }

        float_vector!($t: $elem as $int, Mask, $double, $rounder, $bias,
            $set1 $add $sub $mul $div $max $min $fma $sqrt $round $and $or $xor
            $iadd $isub $srl $sll $shift $cast $back,
            num {
                lanewise! { abs(a) = $andnot($set1(-0.0), a); }
                #[inline(always)]
                unsafe fn load_part(p: *const $elem, n: usize, rest: Self) -> Self {
                    promised!({
                        let lanes = $lanes(0, n);
                        $t($blend(rest.0, $maskload(p, lanes), $back(lanes)))
                    })
                }
                #[inline(always)]
                unsafe fn store_part(self, p: *mut $elem, n: usize) {
                    promised!(self.store_lanes(p, $lanes(0, n)))
                }
                #[inline(always)]
                fn select(m: Mask, a: Self, b: Self) -> Self {
                    on_vectors!($t($blend(b.0, a.0, $back(m.0))))
                }
                #[inline(always)]
                fn truth(self, m: Mask) -> Self {
                    on_vectors!($t($and($back(m.0), $set1(1.0))))
                }
                #[inline(always)]
                fn mask_bits(m: Mask) -> u32 {
                    on_vectors!($bits($back(m.0)) as u32)
                }
                #[inline(always)]
                fn fold_sum(self) -> $elem {
                    on_vectors!($fold_sum(self.0))
                }
                #[inline(always)]
                fn fold_max(self) -> $elem {
                    on_vectors!($fold_max(self.0))
                }
                #[inline(always)]
                fn fold_each<F: Fold<Self>>(rows: &[Self; MAX_LANES]) -> Self {
                    on_vectors!($fold_each::<F>(rows))
                }
            }
            float {}
            block {
                type Lanes = __m256i;
                const FREE_MASK: bool = false;

                #[inline(always)]
                unsafe fn lanes(from: usize, to: usize) -> __m256i {
                    promised!($lanes(from, to))
                }
                #[inline(always)]
                unsafe fn load_lanes(p: *const $elem, lanes: __m256i) -> Self {
                    promised!($t($maskload(p, lanes)))
                }
                #[inline(always)]
                unsafe fn store_lanes(self, p: *mut $elem, lanes: __m256i) {
                    promised!($maskstore(p, lanes, self.0))
                }
                // One lane after the other, as for the vectors of any machine.
                #[inline(always)]
                fn sum(self) -> $elem {
                    let mut lanes = [0.0; Self::LANES];
                    // SAFETY: `lanes` has room for a vector.
                    unsafe { self.store(lanes.as_mut_ptr()) };
                    lanes.iter().sum()
                }
                #[inline(always)]
                fn transpose(r: &mut [Self; MAX_LANES]) {
                    on_vectors!($transpose(r))
                }
            });
    };
}

float!(F32x8: f32 as u32, false, 12582912.0, 127.0, lanes32,
    _mm256_maskload_ps _mm256_maskstore_ps _mm256_cmp_ps _mm256_blendv_ps _mm256_movemask_ps _mm256_andnot_ps
    _mm256_set1_ps _mm256_add_ps _mm256_sub_ps _mm256_mul_ps _mm256_div_ps _mm256_max_ps _mm256_min_ps
    _mm256_fmadd_ps _mm256_sqrt_ps _mm256_round_ps _mm256_and_ps _mm256_or_ps _mm256_xor_ps
    _mm256_add_epi32 _mm256_sub_epi32 _mm256_srli_epi32 _mm256_slli_epi32 23 _mm256_castps_si256 _mm256_castsi256_ps
    sum_ps max_ps each_f32 transpose_f32);
float!(F64x4: f64 as u64, true, 6755399441055744.0, 1023.0, lanes64,
    _mm256_maskload_pd _mm256_maskstore_pd _mm256_cmp_pd _mm256_blendv_pd _mm256_movemask_pd _mm256_andnot_pd
    _mm256_set1_pd _mm256_add_pd _mm256_sub_pd _mm256_mul_pd _mm256_div_pd _mm256_max_pd _mm256_min_pd
    _mm256_fmadd_pd _mm256_sqrt_pd _mm256_round_pd _mm256_and_pd _mm256_or_pd _mm256_xor_pd
    _mm256_add_epi64 _mm256_sub_epi64 _mm256_srli_epi64 _mm256_slli_epi64 52 _mm256_castpd_si256 _mm256_castsi256_pd
    sum_pd max_pd each_f64 transpose_f64);

impl Widen for F32x8 {
    type Wide = F64x4;
    #[inline(always)]
    fn widened<O: Binary<F64x4>>(self, b: F32x8) -> F32x8 {
        on_vectors!({
            let (al, ah) = (_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            let (bl, bh) = (_mm256_castps256_ps128(b.0), _mm256_extractf128_ps::<1>(b.0));
            let low = O::apply(F64x4(_mm256_cvtps_pd(al)), F64x4(_mm256_cvtps_pd(bl)));
            let high = O::apply(F64x4(_mm256_cvtps_pd(ah)), F64x4(_mm256_cvtps_pd(bh)));
            F32x8(_mm256_set_m128(_mm256_cvtpd_ps(high.0), _mm256_cvtpd_ps(low.0)))
        })
    }
}

int_vector!(I32x8: Mask,
_mm256_add_epi32 _mm256_sub_epi32 _mm256_mullo_epi32 _mm256_max_epi32 _mm256_min_epi32 _mm256_abs_epi32,
num {
    masks! { Mask:
        equal(a, b) = on_vectors!(Mask(_mm256_cmpeq_epi32(a.0, b.0)));
        less(a, b) = on_vectors!(Mask(_mm256_cmpgt_epi32(b.0, a.0)));
        at_most(a, b) = !b.less(a);
    }
    #[inline(always)]
    unsafe fn load_part(p: *const i32, n: usize, rest: Self) -> Self {
        promised!({
            let lanes = lanes32(0, n);
            I32x8(_mm256_blendv_epi8(rest.0, _mm256_maskload_epi32(p, lanes), lanes))
        })
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut i32, n: usize) {
        promised!(_mm256_maskstore_epi32(p, lanes32(0, n), self.0))
    }
    #[inline(always)]
    fn select(m: Mask, a: Self, b: Self) -> Self {
        on_vectors!(I32x8(_mm256_blendv_epi8(b.0, a.0, m.0)))
    }
    #[inline(always)]
    fn truth(self, m: Mask) -> Self {
        on_vectors!(I32x8(_mm256_and_si256(m.0, _mm256_set1_epi32(1))))
    }
    #[inline(always)]
    fn mask_bits(m: Mask) -> u32 {
        on_vectors!(_mm256_movemask_ps(_mm256_castsi256_ps(m.0)) as u32)
    }
    #[inline(always)]
    fn fold_sum(self) -> i32 {
        on_vectors!(sum_epi32(self.0))
    }
    #[inline(always)]
    fn fold_max(self) -> i32 {
        on_vectors!(max_epi32(self.0))
    }
    #[inline(always)]
    fn fold_each<F: Fold<Self>>(rows: &[Self; MAX_LANES]) -> Self {
        on_vectors!(each_i32::<F>(rows))
    }
});

word_vector!(
/// 4 × u64 or 8 × u32.
U64x4(__m256i), F64x4, F32x8, 4,
_mm256_set1_epi64x _mm256_add_epi64 _mm256_sub_epi64 _mm256_add_epi32 _mm256_sub_epi32 _mm256_mul_epu32
_mm256_xor_si256 _mm256_and_si256 _mm256_or_si256
_mm256_castsi256_pd _mm256_castpd_si256 _mm256_castsi256_ps _mm256_castps_si256 _mm256_cvtepi32_ps,
words {
    shifts! {
        shr64(a, N) = _mm256_srl_epi64(a, _mm_cvtsi32_si128(N as i32));
        shl64(a, N) = _mm256_sll_epi64(a, _mm_cvtsi32_si128(N as i32));
        shr32(a, N) = _mm256_srl_epi32(a, _mm_cvtsi32_si128(N as i32));
        shl32(a, N) = _mm256_sll_epi32(a, _mm_cvtsi32_si128(N as i32));
    }
    #[inline(always)]
    fn iota(self) -> Self {
        on_vectors!(U64x4(_mm256_set_epi64x(3, 2, 1, 0)))
    }
    #[inline(always)]
    fn interleave64(self, b: Self) -> (Self, Self) {
        on_vectors!(in_pairs(_mm256_unpacklo_epi64(self.0, b.0), _mm256_unpackhi_epi64(self.0, b.0)))
    }
    #[inline(always)]
    fn interleave32(self, b: Self) -> (Self, Self) {
        on_vectors!(in_pairs(_mm256_unpacklo_epi32(self.0, b.0), _mm256_unpackhi_epi32(self.0, b.0)))
    }
});

/// The 128-bit blocks of two vectors in turns.
#[inline]
#[target_feature(enable = "avx2")]
fn in_pairs(even: __m256i, odd: __m256i) -> (U64x4, U64x4) {
    (U64x4(_mm256_permute2x128_si256::<0x20>(even, odd)), U64x4(_mm256_permute2x128_si256::<0x31>(even, odd)))
}

/// NaN-keeping larger of two 128-bit vectors, as in `Num::max`.
#[inline]
#[target_feature(enable = "avx2")]
fn top_ps(a: __m128, b: __m128) -> __m128 {
    _mm_blendv_ps(_mm_max_ps(b, a), b, _mm_cmpunord_ps(b, b))
}

/// The same in 64 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn top_pd(a: __m128d, b: __m128d) -> __m128d {
    _mm_blendv_pd(_mm_max_pd(b, a), b, _mm_cmpunord_pd(b, b))
}

/// Folds lanes by halves, the widest first: 8 → 4 → 2 → 1.
macro_rules! fold_lanes {
    ($($name:ident: $v:ty => $elem:ty, $op:ident, $low:ident $high:ident [$($fold:expr),+] $last:ident;)+) => {$(
        #[inline]
        #[target_feature(enable = "avx2")]
        fn $name(x: $v) -> $elem {
            let x = $op($low(x), $high::<1>(x));
            $(let x = $op(x, $fold(x, x));)+
            $last(x)
        }
    )+};
}
fold_lanes! {
    sum_ps: __m256 => f32, _mm_add_ps, _mm256_castps256_ps128 _mm256_extractf128_ps
        [_mm_movehl_ps, _mm_shuffle_ps::<1>] _mm_cvtss_f32;
    max_ps: __m256 => f32, top_ps, _mm256_castps256_ps128 _mm256_extractf128_ps
        [_mm_movehl_ps, _mm_shuffle_ps::<1>] _mm_cvtss_f32;
    sum_pd: __m256d => f64, _mm_add_pd, _mm256_castpd256_pd128 _mm256_extractf128_pd [_mm_unpackhi_pd] _mm_cvtsd_f64;
    max_pd: __m256d => f64, top_pd, _mm256_castpd256_pd128 _mm256_extractf128_pd [_mm_unpackhi_pd] _mm_cvtsd_f64;
    sum_epi32: __m256i => i32, _mm_add_epi32, _mm256_castsi256_si128 _mm256_extracti128_si256
        [_mm_unpackhi_epi64, second_epi32] _mm_cvtsi128_si32;
    max_epi32: __m256i => i32, _mm_max_epi32, _mm256_castsi256_si128 _mm256_extracti128_si256
        [_mm_unpackhi_epi64, second_epi32] _mm_cvtsi128_si32;
}

/// Lane 1 moved to lane 0.
#[inline]
#[target_feature(enable = "avx2")]
fn second_epi32(x: __m128i, _: __m128i) -> __m128i {
    _mm_shuffle_epi32::<1>(x)
}

/// Folds 8 rows of 8 lanes as a tree: each step puts the remainders of two vectors side by side and combines the
/// halves. The rows of a 128-bit block are taken four apart so that the answers come out in order.
macro_rules! each8 {
    ($name:ident, $t:ident, $to:path, $from:path) => {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn $name<F: Fold<$t>>(rows: &[$t; MAX_LANES]) -> $t {
            let at = |i: usize| $to(rows[i].0);
            let two = |a, b| $to(F::two($t($from(a)), $t($from(b))).0);
            let four = |a, b| two(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
            let pair = |a, b| two(_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xEE>(a, b));
            let last = |a, b| two(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xDD>(a, b));
            let duo = |k: usize| four(at(k), at(k + 4));
            $t($from(last(pair(duo(0), duo(1)), pair(duo(2), duo(3)))))
        }
    };
}
each8!(each_f32, F32x8, std::convert::identity, std::convert::identity);
each8!(each_i32, I32x8, _mm256_castsi256_ps, _mm256_castps_si256);

/// The same tree for 4 rows of 4 lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn each_f64<F: Fold<F64x4>>(rows: &[F64x4; MAX_LANES]) -> F64x4 {
    let two = |a, b| F::two(F64x4(a), F64x4(b)).0;
    let pair = |a, b| two(_mm256_permute2f128_pd::<0x20>(a, b), _mm256_permute2f128_pd::<0x31>(a, b));
    let (a, b) = (pair(rows[0].0, rows[2].0), pair(rows[1].0, rows[3].0));
    F64x4(two(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b)))
}

/// Pairs, then pairs of pairs inside each 128-bit lane, then whole lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_f32(r: &mut [F32x8; MAX_LANES]) {
    let mut u = *r;
    for g in [0, 4] {
        let lo0 = _mm256_castps_pd(_mm256_unpacklo_ps(r[g].0, r[g + 1].0));
        let hi0 = _mm256_castps_pd(_mm256_unpackhi_ps(r[g].0, r[g + 1].0));
        let lo1 = _mm256_castps_pd(_mm256_unpacklo_ps(r[g + 2].0, r[g + 3].0));
        let hi1 = _mm256_castps_pd(_mm256_unpackhi_ps(r[g + 2].0, r[g + 3].0));
        u[g].0 = _mm256_castpd_ps(_mm256_unpacklo_pd(lo0, lo1));
        u[g + 1].0 = _mm256_castpd_ps(_mm256_unpackhi_pd(lo0, lo1));
        u[g + 2].0 = _mm256_castpd_ps(_mm256_unpacklo_pd(hi0, hi1));
        u[g + 3].0 = _mm256_castpd_ps(_mm256_unpackhi_pd(hi0, hi1));
    }
    for c in 0..4 {
        r[c].0 = _mm256_permute2f128_ps::<0x20>(u[c].0, u[c + 4].0);
        r[c + 4].0 = _mm256_permute2f128_ps::<0x31>(u[c].0, u[c + 4].0);
    }
}

/// Pairs inside each 128-bit lane, then whole lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_f64(r: &mut [F64x4; MAX_LANES]) {
    let mut u = *r;
    for g in [0, 2] {
        u[g].0 = _mm256_unpacklo_pd(r[g].0, r[g + 1].0);
        u[g + 1].0 = _mm256_unpackhi_pd(r[g].0, r[g + 1].0);
    }
    for c in 0..2 {
        r[c].0 = _mm256_permute2f128_pd::<0x20>(u[c].0, u[c + 2].0);
        r[c + 2].0 = _mm256_permute2f128_pd::<0x31>(u[c].0, u[c + 2].0);
    }
}
