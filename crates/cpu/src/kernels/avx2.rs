//! The vector types of AVX2 with FMA: 256 bits, masks as vectors of all-ones lanes.

use super::float_vector::{float_vector, on_vectors, promised};
use super::maps::Binary;
use super::rows::Fold;
use super::simd::{Float, Num, Widen, Words};
use std::arch::x86_64::*;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

/// All ones in the lanes that are true, of 32 or 64 bits.
#[derive(Clone, Copy)]
pub(crate) struct Mask(__m256i);

impl BitAnd for Mask {
    type Output = Mask;
    #[inline(always)]
    fn bitand(self, b: Mask) -> Mask {
        on_vectors!(Mask(_mm256_and_si256(self.0, b.0)))
    }
}
impl BitOr for Mask {
    type Output = Mask;
    #[inline(always)]
    fn bitor(self, b: Mask) -> Mask {
        on_vectors!(Mask(_mm256_or_si256(self.0, b.0)))
    }
}
impl Not for Mask {
    type Output = Mask;
    #[inline(always)]
    fn not(self) -> Mask {
        on_vectors!(Mask(_mm256_xor_si256(self.0, _mm256_set1_epi32(-1))))
    }
}

/// Returns true in the first n of 8 lanes of 32 bits.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn first32(n: usize) -> __m256i {
    promised!(_mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0)))
}

/// Returns true in the first n of 4 lanes of 64 bits.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn first64(n: usize) -> __m256i {
    promised!(_mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_set_epi64x(3, 2, 1, 0)))
}

/// 8 × f32.
#[derive(Clone, Copy)]
pub(crate) struct F32x8(__m256);
/// 4 × f64.
#[derive(Clone, Copy)]
pub(crate) struct F64x4(__m256d);
/// 8 × i32.
#[derive(Clone, Copy)]
pub(crate) struct I32x8(__m256i);
/// 4 × u64 or 8 × u32.
#[derive(Clone, Copy)]
pub(crate) struct U64x4(__m256i);

/// A float vector; masks are of this instruction set.
macro_rules! float {
    ($t:ident, $elem:ident, $first:ident, $lanes:literal, $double:literal, $rounder:expr, $bias:expr, $int:ident,
     $set1:ident $loadu:ident $maskload:ident $storeu:ident $maskstore:ident
     $add:ident $sub:ident $mul:ident $div:ident $max:ident $min:ident $cmp:ident $blend:ident $bits:ident
     $fma:ident $sqrt:ident $round:ident $andnot:ident $and:ident $or:ident $xor:ident
     $iadd:ident $isub:ident $srl:ident $sll:ident $shift:literal $cast:ident $back:ident $sum:ident $top:ident $each:ident) => {
        float_vector!($t, $elem, Mask, $lanes, $double, $rounder, $bias, $int,
            $set1 $loadu $storeu $add $sub $mul $div $max $min $fma $sqrt $round $and $or $xor
            $iadd $isub $srl $sll $shift $cast $back $each,
            num {
                #[inline(always)]
                unsafe fn load_part(p: *const $elem, n: usize, rest: Self) -> Self {
                    promised!({
                        let m = $first(n);
                        $t($blend(rest.0, $maskload(p, m), $back(m)))
                    })
                }
                #[inline(always)]
                unsafe fn store_part(self, p: *mut $elem, n: usize) {
                    promised!($maskstore(p, $first(n), self.0))
                }
                // The machine's max(b, a) answers a when they are equal or either is NaN, so only a NaN b is left to mend.
                #[inline(always)]
                fn max(self, b: Self) -> Self {
                    on_vectors!($t($blend($max(b.0, self.0), b.0, $cmp::<_CMP_UNORD_Q>(b.0, b.0))))
                }
                #[inline(always)]
                fn min(self, b: Self) -> Self {
                    on_vectors!($t($blend($min(b.0, self.0), b.0, $cmp::<_CMP_UNORD_Q>(b.0, b.0))))
                }
                #[inline(always)]
                fn abs(self) -> Self {
                    on_vectors!($t($andnot($set1(-0.0), self.0)))
                }
                #[inline(always)]
                fn sign(self) -> Self {
                    let unit = self.all(1.0).copysign(self);
                    // 0 and NaN are not ordered away from 0: they stay.
                    on_vectors!($t($blend(self.0, unit.0, $cmp::<_CMP_NEQ_OQ>(self.0, $set1(0.0)))))
                }
                #[inline(always)]
                fn equal(self, b: Self) -> Mask {
                    on_vectors!(Mask($cast($cmp::<_CMP_EQ_OQ>(self.0, b.0))))
                }
                #[inline(always)]
                fn less(self, b: Self) -> Mask {
                    on_vectors!(Mask($cast($cmp::<_CMP_LT_OQ>(self.0, b.0))))
                }
                #[inline(always)]
                fn at_most(self, b: Self) -> Mask {
                    on_vectors!(Mask($cast($cmp::<_CMP_LE_OQ>(self.0, b.0))))
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
                    $sum(self.0)
                }
                #[inline(always)]
                fn fold_max(self) -> $elem {
                    $top(self.0)
                }
            }
            float {
            });
    };
}

float!(F32x8, f32, first32, 8, false, 12582912.0, 127.0, u32,
    _mm256_set1_ps _mm256_loadu_ps _mm256_maskload_ps _mm256_storeu_ps _mm256_maskstore_ps
    _mm256_add_ps _mm256_sub_ps _mm256_mul_ps _mm256_div_ps _mm256_max_ps _mm256_min_ps _mm256_cmp_ps
    _mm256_blendv_ps _mm256_movemask_ps
    _mm256_fmadd_ps _mm256_sqrt_ps _mm256_round_ps _mm256_andnot_ps _mm256_and_ps _mm256_or_ps
    _mm256_xor_ps _mm256_add_epi32 _mm256_sub_epi32 _mm256_srli_epi32 _mm256_slli_epi32 23
    _mm256_castps_si256 _mm256_castsi256_ps sum_ps max_ps each_f32);
float!(F64x4, f64, first64, 4, true, 6755399441055744.0, 1023.0, u64,
    _mm256_set1_pd _mm256_loadu_pd _mm256_maskload_pd _mm256_storeu_pd _mm256_maskstore_pd
    _mm256_add_pd _mm256_sub_pd _mm256_mul_pd _mm256_div_pd _mm256_max_pd _mm256_min_pd _mm256_cmp_pd
    _mm256_blendv_pd _mm256_movemask_pd
    _mm256_fmadd_pd _mm256_sqrt_pd _mm256_round_pd _mm256_andnot_pd _mm256_and_pd _mm256_or_pd
    _mm256_xor_pd _mm256_add_epi64 _mm256_sub_epi64 _mm256_srli_epi64 _mm256_slli_epi64 52
    _mm256_castpd_si256 _mm256_castsi256_pd sum_pd max_pd each_f64);

/// Splits a vector of AVX-512 in two, for its folds to continue here.
macro_rules! halves {
    ($t:ident, $wide:ty, $low:expr, $high:expr) => {
        impl $t {
            /// Lower and upper half of a vector of AVX-512, which also proves AVX2.
            #[inline(always)]
            pub(crate) fn halves(x: $wide) -> ($t, $t) {
                on_vectors!(($t($low(x)), $t($high(x))))
            }
        }
    };
}
halves!(F32x8, __m512, _mm512_castps512_ps256, _mm512_extractf32x8_ps::<1>);
halves!(F64x4, __m512d, _mm512_castpd512_pd256, _mm512_extractf64x4_pd::<1>);
halves!(I32x8, __m512i, _mm512_castsi512_si256, _mm512_extracti32x8_epi32::<1>);

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

impl Num for I32x8 {
    type Elem = i32;
    type Mask = Mask;
    const LANES: usize = 8;
    const LEAST: i32 = i32::MIN;
    const ZERO: i32 = 0;

    #[inline(always)]
    unsafe fn splat(x: i32) -> Self {
        promised!(I32x8(_mm256_set1_epi32(x)))
    }
    #[inline(always)]
    unsafe fn load(p: *const i32) -> Self {
        promised!(I32x8(_mm256_loadu_si256(p.cast())))
    }
    #[inline(always)]
    unsafe fn load_part(p: *const i32, n: usize, rest: Self) -> Self {
        promised!({
            let m = first32(n);
            I32x8(_mm256_blendv_epi8(rest.0, _mm256_maskload_epi32(p, m), m))
        })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut i32) {
        promised!(_mm256_storeu_si256(p.cast(), self.0))
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut i32, n: usize) {
        promised!(_mm256_maskstore_epi32(p, first32(n), self.0))
    }
    #[inline(always)]
    fn plus(self, b: Self) -> Self {
        on_vectors!(I32x8(_mm256_add_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn minus(self, b: Self) -> Self {
        on_vectors!(I32x8(_mm256_sub_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn times(self, b: Self) -> Self {
        on_vectors!(I32x8(_mm256_mullo_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        on_vectors!(I32x8(_mm256_max_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        on_vectors!(I32x8(_mm256_min_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn negated(self) -> Self {
        self.all(0).minus(self)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        on_vectors!(I32x8(_mm256_abs_epi32(self.0)))
    }
    #[inline(always)]
    fn sign(self) -> Self {
        self.min(self.all(1)).max(self.all(-1))
    }
    #[inline(always)]
    fn equal(self, b: Self) -> Mask {
        on_vectors!(Mask(_mm256_cmpeq_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn less(self, b: Self) -> Mask {
        on_vectors!(Mask(_mm256_cmpgt_epi32(b.0, self.0)))
    }
    #[inline(always)]
    fn at_most(self, b: Self) -> Mask {
        !b.less(self)
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
        sum_epi32(self.0)
    }
    #[inline(always)]
    fn fold_max(self) -> i32 {
        max_epi32(self.0)
    }
    #[inline(always)]
    unsafe fn fold_each<F: Fold<Self>>(rows: *const Self) -> Self {
        promised!(each_i32::<F>(rows))
    }
}

impl Words for U64x4 {
    type F64 = F64x4;
    type F32 = F32x8;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: u64) -> Self {
        promised!(U64x4(_mm256_set1_epi64x(x as i64)))
    }
    #[inline(always)]
    fn iota(self) -> Self {
        on_vectors!(U64x4(_mm256_set_epi64x(3, 2, 1, 0)))
    }
    #[inline(always)]
    fn add64(self, b: Self) -> Self {
        on_vectors!(U64x4(_mm256_add_epi64(self.0, b.0)))
    }
    #[inline(always)]
    fn sub64(self, b: Self) -> Self {
        on_vectors!(U64x4(_mm256_sub_epi64(self.0, b.0)))
    }
    #[inline(always)]
    fn add32(self, b: Self) -> Self {
        on_vectors!(U64x4(_mm256_add_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn sub32(self, b: Self) -> Self {
        on_vectors!(U64x4(_mm256_sub_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn mul_low(self, b: Self) -> Self {
        on_vectors!(U64x4(_mm256_mul_epu32(self.0, b.0)))
    }
    #[inline(always)]
    fn xor(self, b: Self) -> Self {
        on_vectors!(U64x4(_mm256_xor_si256(self.0, b.0)))
    }
    #[inline(always)]
    fn and(self, b: Self) -> Self {
        on_vectors!(U64x4(_mm256_and_si256(self.0, b.0)))
    }
    #[inline(always)]
    fn or(self, b: Self) -> Self {
        on_vectors!(U64x4(_mm256_or_si256(self.0, b.0)))
    }
    #[inline(always)]
    fn shr64<const N: u32>(self) -> Self {
        on_vectors!(U64x4(_mm256_srl_epi64(self.0, _mm_cvtsi32_si128(N as i32))))
    }
    #[inline(always)]
    fn shl64<const N: u32>(self) -> Self {
        on_vectors!(U64x4(_mm256_sll_epi64(self.0, _mm_cvtsi32_si128(N as i32))))
    }
    #[inline(always)]
    fn shr32<const N: u32>(self) -> Self {
        on_vectors!(U64x4(_mm256_srl_epi32(self.0, _mm_cvtsi32_si128(N as i32))))
    }
    #[inline(always)]
    fn shl32<const N: u32>(self) -> Self {
        on_vectors!(U64x4(_mm256_sll_epi32(self.0, _mm_cvtsi32_si128(N as i32))))
    }
    #[inline(always)]
    fn as_f64(self) -> F64x4 {
        on_vectors!(F64x4(_mm256_castsi256_pd(self.0)))
    }
    #[inline(always)]
    fn from_f64(x: F64x4) -> Self {
        on_vectors!(U64x4(_mm256_castpd_si256(x.0)))
    }
    #[inline(always)]
    fn as_f32(self) -> F32x8 {
        on_vectors!(F32x8(_mm256_castsi256_ps(self.0)))
    }
    #[inline(always)]
    fn from_f32(x: F32x8) -> Self {
        on_vectors!(U64x4(_mm256_castps_si256(x.0)))
    }
    #[inline(always)]
    fn to_f32(self) -> F32x8 {
        on_vectors!(F32x8(_mm256_cvtepi32_ps(self.0)))
    }
    #[inline(always)]
    fn interleave64(self, b: Self) -> (Self, Self) {
        on_vectors!({
            let (even, odd) = (_mm256_unpacklo_epi64(self.0, b.0), _mm256_unpackhi_epi64(self.0, b.0));
            (U64x4(_mm256_permute2x128_si256::<0x20>(even, odd)), U64x4(_mm256_permute2x128_si256::<0x31>(even, odd)))
        })
    }
    #[inline(always)]
    fn interleave32(self, b: Self) -> (Self, Self) {
        on_vectors!({
            let (even, odd) = (_mm256_unpacklo_epi32(self.0, b.0), _mm256_unpackhi_epi32(self.0, b.0));
            (U64x4(_mm256_permute2x128_si256::<0x20>(even, odd)), U64x4(_mm256_permute2x128_si256::<0x31>(even, odd)))
        })
    }
}

/// NaN-keeping larger of two 128-bit vectors, as in `Num::max`.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn top_ps(a: __m128, b: __m128) -> __m128 {
    promised!(_mm_blendv_ps(_mm_max_ps(b, a), b, _mm_cmpunord_ps(b, b)))
}
/// The same in 64 bits.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn top_pd(a: __m128d, b: __m128d) -> __m128d {
    promised!(_mm_blendv_pd(_mm_max_pd(b, a), b, _mm_cmpunord_pd(b, b)))
}

/// Folds lanes by halves, the widest first: 8 → 4 → 2 → 1.
macro_rules! fold_lanes {
    ($name:ident, $op:ident, $v:ty, $elem:ty, $low:expr, $high:expr, $last:expr, $($fold:expr),+) => {
        #[inline(always)]
        fn $name(x: $v) -> $elem {
            on_vectors!({
                let x = $op($low(x), $high(x));
                $(let x = $op(x, $fold(x, x));)+
                $last(x)
            })
        }
    };
}
fold_lanes!(
    sum_ps,
    _mm_add_ps,
    __m256,
    f32,
    _mm256_castps256_ps128,
    _mm256_extractf128_ps::<1>,
    _mm_cvtss_f32,
    _mm_movehl_ps,
    _mm_shuffle_ps::<1>
);
fold_lanes!(
    max_ps,
    top_ps,
    __m256,
    f32,
    _mm256_castps256_ps128,
    _mm256_extractf128_ps::<1>,
    _mm_cvtss_f32,
    _mm_movehl_ps,
    _mm_shuffle_ps::<1>
);
fold_lanes!(
    sum_pd,
    _mm_add_pd,
    __m256d,
    f64,
    _mm256_castpd256_pd128,
    _mm256_extractf128_pd::<1>,
    _mm_cvtsd_f64,
    _mm_unpackhi_pd
);
fold_lanes!(
    max_pd,
    top_pd,
    __m256d,
    f64,
    _mm256_castpd256_pd128,
    _mm256_extractf128_pd::<1>,
    _mm_cvtsd_f64,
    _mm_unpackhi_pd
);
fold_lanes!(
    sum_epi32,
    _mm_add_epi32,
    __m256i,
    i32,
    _mm256_castsi256_si128,
    _mm256_extracti128_si256::<1>,
    _mm_cvtsi128_si32,
    _mm_unpackhi_epi64,
    second_epi32
);
fold_lanes!(
    max_epi32,
    _mm_max_epi32,
    __m256i,
    i32,
    _mm256_castsi256_si128,
    _mm256_extracti128_si256::<1>,
    _mm_cvtsi128_si32,
    _mm_unpackhi_epi64,
    second_epi32
);

/// Lane 1 moved to lane 0.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn second_epi32(x: __m128i, _: __m128i) -> __m128i {
    promised!(_mm_shuffle_epi32::<1>(x))
}

/// Folds 8 rows of 8 lanes as a tree: each step puts the remainders of two vectors side by side and combines the
/// halves. The rows of a 128-bit block are taken four apart so that the answers come out in order. Its caller's promise
/// is that of `Num::fold_each`.
macro_rules! each8 {
    ($name:ident, $t:ident, $to:expr, $from:expr) => {
        #[inline(always)]
        unsafe fn $name<F: Fold<$t>>(rows: *const $t) -> $t {
            promised!({
                let at = |i: usize| $to((*rows.add(i)).0);
                let two = |a, b| $to(F::two($t($from(a)), $t($from(b))).0);
                let four = |a, b| two(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
                let pair = |a, b| two(_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xEE>(a, b));
                let last = |a, b| two(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xDD>(a, b));
                let duo = |k: usize| four(at(k), at(k + 4));
                $t($from(last(pair(duo(0), duo(1)), pair(duo(2), duo(3)))))
            })
        }
    };
}
each8!(each_f32, F32x8, std::convert::identity, std::convert::identity);
each8!(each_i32, I32x8, _mm256_castsi256_ps, _mm256_castps_si256);

/// The same tree for 4 rows of 4 lanes.
///
/// # Safety
/// As for `Num::fold_each`.
#[inline(always)]
unsafe fn each_f64<F: Fold<F64x4>>(rows: *const F64x4) -> F64x4 {
    promised!({
        let at = |i: usize| (*rows.add(i)).0;
        let two = |a, b| F::two(F64x4(a), F64x4(b)).0;
        let pair = |a, b| two(_mm256_permute2f128_pd::<0x20>(a, b), _mm256_permute2f128_pd::<0x31>(a, b));
        let last = |a, b| two(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
        F64x4(last(pair(at(0), at(2)), pair(at(1), at(3))))
    })
}
