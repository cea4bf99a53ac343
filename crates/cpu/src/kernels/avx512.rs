//! The vector types of AVX-512: 512 bits, masks in their own registers, masked loads and stores for tails.

use super::float_vector::{float_vector, on_vectors, promised};
use super::maps::Binary;
use super::rows::Fold;
use super::simd::{Float, Num, Widen, Words};
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// 16 × f32.
#[derive(Clone, Copy)]
pub(crate) struct F32x16(__m512);
/// 8 × f64.
#[derive(Clone, Copy)]
pub(crate) struct F64x8(__m512d);
/// 16 × i32.
#[derive(Clone, Copy)]
pub(crate) struct I32x16(__m512i);
/// 8 × u64 or 16 × u32.
#[derive(Clone, Copy)]
pub(crate) struct U64x8(__m512i);

/// A float vector; masks are of this instruction set.
macro_rules! float {
    ($t:ident, $half:ident, $elem:ident, $mask:ident, $lanes:literal, $double:literal, $rounder:expr, $bias:expr, $int:ident,
     $set1:ident $loadu:ident $maskload:ident $storeu:ident $maskstore:ident
     $add:ident $sub:ident $mul:ident $div:ident $max:ident $min:ident $cmp:ident $blend:ident $maskmov:ident
     $fma:ident $sqrt:ident $round:ident $scalef:ident $abs:ident $and:ident $or:ident $xor:ident
     $iadd:ident $isub:ident $srl:ident $sll:ident $shift:literal $cast:ident $back:ident $each:ident) => {
        float_vector!($t, $elem, $mask, $lanes, $double, $rounder, $bias, $int,
            $set1 $loadu $storeu $add $sub $mul $div $max $min $fma $sqrt $round $and $or $xor
            $iadd $isub $srl $sll $shift $cast $back $each,
            num {
                #[inline(always)]
                unsafe fn load_part(p: *const $elem, n: usize, rest: Self) -> Self {
                    promised!($t($maskload(rest.0, ((1u32 << n) - 1) as $mask, p)))
                }
                #[inline(always)]
                unsafe fn store_part(self, p: *mut $elem, n: usize) {
                    promised!($maskstore(p, ((1u32 << n) - 1) as $mask, self.0))
                }
                // The machine's max(b, a) answers a when they are equal or either is NaN, so only a NaN b is left to mend.
                #[inline(always)]
                fn max(self, b: Self) -> Self {
                    on_vectors!($t($blend($cmp::<_CMP_UNORD_Q>(b.0, b.0), $max(b.0, self.0), b.0)))
                }
                #[inline(always)]
                fn min(self, b: Self) -> Self {
                    on_vectors!($t($blend($cmp::<_CMP_UNORD_Q>(b.0, b.0), $min(b.0, self.0), b.0)))
                }
                #[inline(always)]
                fn abs(self) -> Self {
                    on_vectors!($t($abs(self.0)))
                }
                #[inline(always)]
                fn sign(self) -> Self {
                    let unit = self.all(1.0).copysign(self);
                    // 0 and NaN are not ordered away from 0: they stay.
                    on_vectors!($t($blend($cmp::<_CMP_NEQ_OQ>(self.0, $set1(0.0)), self.0, unit.0)))
                }
                #[inline(always)]
                fn equal(self, b: Self) -> $mask {
                    on_vectors!($cmp::<_CMP_EQ_OQ>(self.0, b.0))
                }
                #[inline(always)]
                fn less(self, b: Self) -> $mask {
                    on_vectors!($cmp::<_CMP_LT_OQ>(self.0, b.0))
                }
                #[inline(always)]
                fn at_most(self, b: Self) -> $mask {
                    on_vectors!($cmp::<_CMP_LE_OQ>(self.0, b.0))
                }
                #[inline(always)]
                fn select(m: $mask, a: Self, b: Self) -> Self {
                    on_vectors!($t($blend(m, b.0, a.0)))
                }
                #[inline(always)]
                fn truth(self, m: $mask) -> Self {
                    on_vectors!($t($maskmov(m, $set1(1.0))))
                }
                #[inline(always)]
                fn mask_bits(m: $mask) -> u32 {
                    m as u32
                }
                #[inline(always)]
                fn fold_sum(self) -> $elem {
                    let (low, high) = super::avx2::$half::halves(self.0);
                    low.plus(high).fold_sum()
                }
                #[inline(always)]
                fn fold_max(self) -> $elem {
                    let (low, high) = super::avx2::$half::halves(self.0);
                    low.max(high).fold_max()
                }
            }
            float {
                #[inline(always)]
                fn scale(self, n: Self) -> Self {
                    on_vectors!($t($scalef(self.0, n.0)))
                }
            });
    };
}

float!(F32x16, F32x8, f32, u16, 16, false, 12582912.0, 127.0, u32,
    _mm512_set1_ps _mm512_loadu_ps _mm512_mask_loadu_ps _mm512_storeu_ps _mm512_mask_storeu_ps
    _mm512_add_ps _mm512_sub_ps _mm512_mul_ps _mm512_div_ps _mm512_max_ps _mm512_min_ps _mm512_cmp_ps_mask
    _mm512_mask_blend_ps _mm512_maskz_mov_ps
    _mm512_fmadd_ps _mm512_sqrt_ps _mm512_roundscale_ps _mm512_scalef_ps _mm512_abs_ps _mm512_and_ps _mm512_or_ps
    _mm512_xor_ps _mm512_add_epi32 _mm512_sub_epi32 _mm512_srli_epi32 _mm512_slli_epi32 23
    _mm512_castps_si512 _mm512_castsi512_ps each_f32);
float!(F64x8, F64x4, f64, u8, 8, true, 6755399441055744.0, 1023.0, u64,
    _mm512_set1_pd _mm512_loadu_pd _mm512_mask_loadu_pd _mm512_storeu_pd _mm512_mask_storeu_pd
    _mm512_add_pd _mm512_sub_pd _mm512_mul_pd _mm512_div_pd _mm512_max_pd _mm512_min_pd _mm512_cmp_pd_mask
    _mm512_mask_blend_pd _mm512_maskz_mov_pd
    _mm512_fmadd_pd _mm512_sqrt_pd _mm512_roundscale_pd _mm512_scalef_pd _mm512_abs_pd _mm512_and_pd _mm512_or_pd
    _mm512_xor_pd _mm512_add_epi64 _mm512_sub_epi64 _mm512_srli_epi64 _mm512_slli_epi64 52
    _mm512_castpd_si512 _mm512_castsi512_pd each_f64);

impl Widen for F32x16 {
    type Wide = F64x8;
    #[inline(always)]
    fn widened<O: Binary<F64x8>>(self, b: F32x16) -> F32x16 {
        on_vectors!({
            let (al, ah) = (_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps::<1>(self.0));
            let (bl, bh) = (_mm512_castps512_ps256(b.0), _mm512_extractf32x8_ps::<1>(b.0));
            let low = O::apply(F64x8(_mm512_cvtps_pd(al)), F64x8(_mm512_cvtps_pd(bl)));
            let high = O::apply(F64x8(_mm512_cvtps_pd(ah)), F64x8(_mm512_cvtps_pd(bh)));
            let low = _mm512_castps256_ps512(_mm512_cvtpd_ps(low.0));
            F32x16(_mm512_insertf32x8::<1>(low, _mm512_cvtpd_ps(high.0)))
        })
    }
}

impl Num for I32x16 {
    type Elem = i32;
    type Mask = u16;
    const LANES: usize = 16;
    const LEAST: i32 = i32::MIN;
    const ZERO: i32 = 0;

    #[inline(always)]
    unsafe fn splat(x: i32) -> Self {
        promised!(I32x16(_mm512_set1_epi32(x)))
    }
    #[inline(always)]
    unsafe fn load(p: *const i32) -> Self {
        promised!(I32x16(_mm512_loadu_epi32(p)))
    }
    #[inline(always)]
    unsafe fn load_part(p: *const i32, n: usize, rest: Self) -> Self {
        promised!(I32x16(_mm512_mask_loadu_epi32(rest.0, ((1u32 << n) - 1) as u16, p)))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut i32) {
        promised!(_mm512_storeu_epi32(p, self.0))
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut i32, n: usize) {
        promised!(_mm512_mask_storeu_epi32(p, ((1u32 << n) - 1) as u16, self.0))
    }
    #[inline(always)]
    fn plus(self, b: Self) -> Self {
        on_vectors!(I32x16(_mm512_add_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn minus(self, b: Self) -> Self {
        on_vectors!(I32x16(_mm512_sub_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn times(self, b: Self) -> Self {
        on_vectors!(I32x16(_mm512_mullo_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        on_vectors!(I32x16(_mm512_max_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        on_vectors!(I32x16(_mm512_min_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn negated(self) -> Self {
        self.all(0).minus(self)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        on_vectors!(I32x16(_mm512_abs_epi32(self.0)))
    }
    #[inline(always)]
    fn sign(self) -> Self {
        self.min(self.all(1)).max(self.all(-1))
    }
    #[inline(always)]
    fn equal(self, b: Self) -> u16 {
        on_vectors!(_mm512_cmpeq_epi32_mask(self.0, b.0))
    }
    #[inline(always)]
    fn less(self, b: Self) -> u16 {
        on_vectors!(_mm512_cmplt_epi32_mask(self.0, b.0))
    }
    #[inline(always)]
    fn at_most(self, b: Self) -> u16 {
        on_vectors!(_mm512_cmple_epi32_mask(self.0, b.0))
    }
    #[inline(always)]
    fn select(m: u16, a: Self, b: Self) -> Self {
        on_vectors!(I32x16(_mm512_mask_blend_epi32(m, b.0, a.0)))
    }
    #[inline(always)]
    fn truth(self, m: u16) -> Self {
        on_vectors!(I32x16(_mm512_maskz_mov_epi32(m, _mm512_set1_epi32(1))))
    }
    #[inline(always)]
    fn mask_bits(m: u16) -> u32 {
        m as u32
    }
    #[inline(always)]
    fn fold_sum(self) -> i32 {
        let (low, high) = super::avx2::I32x8::halves(self.0);
        low.plus(high).fold_sum()
    }
    #[inline(always)]
    fn fold_max(self) -> i32 {
        let (low, high) = super::avx2::I32x8::halves(self.0);
        low.max(high).fold_max()
    }
    #[inline(always)]
    unsafe fn fold_each<F: Fold<Self>>(rows: *const Self) -> Self {
        promised!(each_i32::<F>(rows))
    }
}

/// Combines two shuffles of a pair of vectors. A macro, since a closure here would not carry the features.
macro_rules! step {
    ($two:expr, $shuffle:ident, $low:literal, $high:literal, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        $two($shuffle::<$low>(a, b), $shuffle::<$high>(a, b))
    }};
}

/// Folds 16 rows of 16 lanes as a tree: each step puts the remainders of two vectors side by side and combines the
/// halves. The rows of a 128-bit block are taken four apart so that the answers come out in order. Its caller's promise
/// is that of `Num::fold_each`.
macro_rules! each16 {
    ($name:ident, $t:ident, $to:ident, $from:ident) => {
        #[inline(always)]
        unsafe fn $name<F: Fold<$t>>(rows: *const $t) -> $t {
            #[inline(always)]
            fn two<F: Fold<$t>>(a: __m512, b: __m512) -> __m512 {
                on_vectors!($to(F::two($t($from(a)), $t($from(b))).0))
            }
            #[inline(always)]
            unsafe fn quad<F: Fold<$t>>(rows: *const $t) -> __m512 {
                promised!({
                    let (a, b) = ($to((*rows).0), $to((*rows.add(4)).0));
                    let (c, d) = ($to((*rows.add(8)).0), $to((*rows.add(12)).0));
                    let ab = step!(two::<F>, _mm512_shuffle_f32x4, 0x44, 0xEE, a, b);
                    let cd = step!(two::<F>, _mm512_shuffle_f32x4, 0x44, 0xEE, c, d);
                    step!(two::<F>, _mm512_shuffle_f32x4, 0x88, 0xDD, ab, cd)
                })
            }
            promised!({
                let ab = step!(two::<F>, _mm512_shuffle_ps, 0x44, 0xEE, quad::<F>(rows), quad::<F>(rows.add(1)));
                let cd = step!(two::<F>, _mm512_shuffle_ps, 0x44, 0xEE, quad::<F>(rows.add(2)), quad::<F>(rows.add(3)));
                $t($from(step!(two::<F>, _mm512_shuffle_ps, 0x88, 0xDD, ab, cd)))
            })
        }
    };
}

/// The unchanged vector, if no cast is needed; unsafe because it replaces the casts.
///
/// # Safety
/// Nothing is asked of the caller.
#[inline(always)]
unsafe fn as_is(x: __m512) -> __m512 {
    x
}

each16!(each_f32, F32x16, as_is, as_is);
each16!(each_i32, I32x16, _mm512_castsi512_ps, _mm512_castps_si512);

/// The same tree for 8 rows of 8 lanes.
///
/// # Safety
/// As for `Num::fold_each`.
#[inline(always)]
unsafe fn each_f64<F: Fold<F64x8>>(rows: *const F64x8) -> F64x8 {
    #[inline(always)]
    fn two<F: Fold<F64x8>>(a: __m512d, b: __m512d) -> __m512d {
        F::two(F64x8(a), F64x8(b)).0
    }
    #[inline(always)]
    unsafe fn quad<F: Fold<F64x8>>(rows: *const F64x8) -> __m512d {
        promised!({
            let ab = step!(two::<F>, _mm512_shuffle_f64x2, 0x44, 0xEE, (*rows).0, (*rows.add(2)).0);
            let cd = step!(two::<F>, _mm512_shuffle_f64x2, 0x44, 0xEE, (*rows.add(4)).0, (*rows.add(6)).0);
            step!(two::<F>, _mm512_shuffle_f64x2, 0x88, 0xDD, ab, cd)
        })
    }
    promised!({
        let (a, b) = (quad::<F>(rows), quad::<F>(rows.add(1)));
        F64x8(two::<F>(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b)))
    })
}

impl Words for U64x8 {
    type F64 = F64x8;
    type F32 = F32x16;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: u64) -> Self {
        promised!(U64x8(_mm512_set1_epi64(x as i64)))
    }
    #[inline(always)]
    fn iota(self) -> Self {
        on_vectors!(U64x8(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0)))
    }
    #[inline(always)]
    fn add64(self, b: Self) -> Self {
        on_vectors!(U64x8(_mm512_add_epi64(self.0, b.0)))
    }
    #[inline(always)]
    fn sub64(self, b: Self) -> Self {
        on_vectors!(U64x8(_mm512_sub_epi64(self.0, b.0)))
    }
    #[inline(always)]
    fn add32(self, b: Self) -> Self {
        on_vectors!(U64x8(_mm512_add_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn sub32(self, b: Self) -> Self {
        on_vectors!(U64x8(_mm512_sub_epi32(self.0, b.0)))
    }
    #[inline(always)]
    fn mul_low(self, b: Self) -> Self {
        on_vectors!(U64x8(_mm512_mul_epu32(self.0, b.0)))
    }
    #[inline(always)]
    fn xor(self, b: Self) -> Self {
        on_vectors!(U64x8(_mm512_xor_si512(self.0, b.0)))
    }
    #[inline(always)]
    fn and(self, b: Self) -> Self {
        on_vectors!(U64x8(_mm512_and_si512(self.0, b.0)))
    }
    #[inline(always)]
    fn or(self, b: Self) -> Self {
        on_vectors!(U64x8(_mm512_or_si512(self.0, b.0)))
    }
    #[inline(always)]
    fn shr64<const N: u32>(self) -> Self {
        on_vectors!(U64x8(_mm512_srli_epi64::<N>(self.0)))
    }
    #[inline(always)]
    fn shl64<const N: u32>(self) -> Self {
        on_vectors!(U64x8(_mm512_slli_epi64::<N>(self.0)))
    }
    #[inline(always)]
    fn shr32<const N: u32>(self) -> Self {
        on_vectors!(U64x8(_mm512_srli_epi32::<N>(self.0)))
    }
    #[inline(always)]
    fn shl32<const N: u32>(self) -> Self {
        on_vectors!(U64x8(_mm512_slli_epi32::<N>(self.0)))
    }
    #[inline(always)]
    fn as_f64(self) -> F64x8 {
        on_vectors!(F64x8(_mm512_castsi512_pd(self.0)))
    }
    #[inline(always)]
    fn from_f64(x: F64x8) -> Self {
        on_vectors!(U64x8(_mm512_castpd_si512(x.0)))
    }
    #[inline(always)]
    fn as_f32(self) -> F32x16 {
        on_vectors!(F32x16(_mm512_castsi512_ps(self.0)))
    }
    #[inline(always)]
    fn from_f32(x: F32x16) -> Self {
        on_vectors!(U64x8(_mm512_castps_si512(x.0)))
    }
    #[inline(always)]
    fn to_f32(self) -> F32x16 {
        on_vectors!(F32x16(_mm512_cvtepi32_ps(self.0)))
    }
    #[inline(always)]
    fn interleave64(self, b: Self) -> (Self, Self) {
        on_vectors!({
            let low = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
            let high = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
            (U64x8(_mm512_permutex2var_epi64(self.0, low, b.0)), U64x8(_mm512_permutex2var_epi64(self.0, high, b.0)))
        })
    }
    #[inline(always)]
    fn interleave32(self, b: Self) -> (Self, Self) {
        on_vectors!({
            let low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
            let high = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
            (U64x8(_mm512_permutex2var_epi32(self.0, low, b.0)), U64x8(_mm512_permutex2var_epi32(self.0, high, b.0)))
        })
    }
}
