//! The vector types of AVX-512: 512 bits, masks in their own registers, masked loads and stores for tails.

use super::avx2::{F32x8, F64x4, I32x8};
use super::x86::*;
use super::{Binary, Float, Fold, GemmVector, MAX_LANES, Num, Vector, Widen, Words};
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

vector!(
    /// 16 × f32.
    F32x16(__m512), f32, 16, _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps);
vector!(
    /// 8 × f64.
    F64x8(__m512d), f64, 8, _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd);
vector!(
    /// 16 × i32.
    I32x16(__m512i), i32, 16, _mm512_set1_epi32 _mm512_loadu_si512 _mm512_storeu_si512);

/// Ones in the lanes from..to.
#[inline(always)]
fn lanes(from: usize, to: usize) -> u32 {
    (1 << to) - (1 << from)
}

/// Masked access to memory and masks in their own registers, for each type of element.
macro_rules! masked {
    ($elem:ident, $mask:ident, $maskload:ident $maskstore:ident $blend:ident $maskmov:ident $set1:ident $one:literal) => {
        #[inline(always)]
        unsafe fn load_part(p: *const $elem, n: usize, rest: Self) -> Self {
            promised!(Self($maskload(rest.0, lanes(0, n) as $mask, p)))
        }
        #[inline(always)]
        unsafe fn store_part(self, p: *mut $elem, n: usize) {
            promised!($maskstore(p, lanes(0, n) as $mask, self.0))
        }
        #[inline(always)]
        fn select(m: $mask, a: Self, b: Self) -> Self {
            on_vectors!(Self($blend(m, b.0, a.0)))
        }
        #[inline(always)]
        fn truth(self, m: $mask) -> Self {
            on_vectors!(Self($maskmov(m, $set1($one))))
        }
        #[inline(always)]
        fn mask_bits(m: $mask) -> u32 {
            m as u32
        }
    };
}

/// Folds of one vector, which continue on its halves, and of many.
macro_rules! folds {
    ($elem:ident, $half:ident, $low:ident $high:ident $fold_each:ident) => {
        #[inline(always)]
        fn fold_sum(self) -> $elem {
            let (low, high) = on_vectors!(($half($low(self.0)), $half($high::<1>(self.0))));
            low.plus(high).fold_sum()
        }
        #[inline(always)]
        fn fold_max(self) -> $elem {
            let (low, high) = on_vectors!(($half($low(self.0)), $half($high::<1>(self.0))));
            low.max(high).fold_max()
        }
        #[inline(always)]
        fn fold_each<F: Fold<Self>>(rows: &[Self; MAX_LANES]) -> Self {
            on_vectors!($fold_each::<F>(rows))
        }
    };
}

/// A float vector; masks are of this instruction set.
macro_rules! float {
    ($t:ident: $elem:ident as $int:ident, $mask:ident, $double:literal, $rounder:literal, $bias:literal,
     $maskload:ident $zeroload:ident $maskstore:ident $cmp:ident $blend:ident $maskmov:ident $scalef:ident $abs:ident
     $set1:ident $add:ident $sub:ident $mul:ident $div:ident $max:ident $min:ident
     $fma:ident $sqrt:ident $round:ident $and:ident $or:ident $xor:ident
     $iadd:ident $isub:ident $srl:ident $sll:ident $shift:literal $cast:ident $back:ident
     $half:ident $low:ident $high:ident $fold_each:ident $transpose:ident) => {
        impl $t {
            #[inline(always)]
            fn compare<const OP: i32>(self, b: Self) -> $mask {
                on_vectors!($cmp::<OP>(self.0, b.0))
            }
        }

        float_vector!($t: $elem as $int, $mask, $double, $rounder, $bias,
            $set1 $add $sub $mul $div $max $min $fma $sqrt $round $and $or $xor
            $iadd $isub $srl $sll $shift $cast $back,
            num {
                lanewise! { abs(a) = $abs(a); }
                masked!($elem, $mask, $maskload $maskstore $blend $maskmov $set1 1.0);
                folds!($elem, $half, $low $high $fold_each);
            }
            float {
                lanewise! { scale(a, n) = $scalef(a, n); }
            }
            block {
                type Lanes = $mask;
                const FREE_MASK: bool = true;

                #[inline(always)]
                unsafe fn lanes(from: usize, to: usize) -> $mask {
                    lanes(from, to) as $mask
                }
                #[inline(always)]
                unsafe fn load_lanes(p: *const $elem, lanes: $mask) -> Self {
                    promised!($t($zeroload(lanes, p)))
                }
                #[inline(always)]
                unsafe fn store_lanes(self, p: *mut $elem, lanes: $mask) {
                    promised!($maskstore(p, lanes, self.0))
                }
                #[inline(always)]
                fn sum(self) -> $elem {
                    self.fold_sum()
                }
                #[inline(always)]
                fn transpose(r: &mut [Self; MAX_LANES]) {
                    on_vectors!($transpose(r))
                }
            });
    };
}

float!(F32x16: f32 as u32, u16, false, 12582912.0, 127.0,
    _mm512_mask_loadu_ps _mm512_maskz_loadu_ps _mm512_mask_storeu_ps _mm512_cmp_ps_mask _mm512_mask_blend_ps
    _mm512_maskz_mov_ps _mm512_scalef_ps _mm512_abs_ps
    _mm512_set1_ps _mm512_add_ps _mm512_sub_ps _mm512_mul_ps _mm512_div_ps _mm512_max_ps _mm512_min_ps
    _mm512_fmadd_ps _mm512_sqrt_ps _mm512_roundscale_ps _mm512_and_ps _mm512_or_ps _mm512_xor_ps
    _mm512_add_epi32 _mm512_sub_epi32 _mm512_srli_epi32 _mm512_slli_epi32 23 _mm512_castps_si512 _mm512_castsi512_ps
    F32x8 _mm512_castps512_ps256 _mm512_extractf32x8_ps each_f32 transpose_f32);
float!(F64x8: f64 as u64, u8, true, 6755399441055744.0, 1023.0,
    _mm512_mask_loadu_pd _mm512_maskz_loadu_pd _mm512_mask_storeu_pd _mm512_cmp_pd_mask _mm512_mask_blend_pd
    _mm512_maskz_mov_pd _mm512_scalef_pd _mm512_abs_pd
    _mm512_set1_pd _mm512_add_pd _mm512_sub_pd _mm512_mul_pd _mm512_div_pd _mm512_max_pd _mm512_min_pd
    _mm512_fmadd_pd _mm512_sqrt_pd _mm512_roundscale_pd _mm512_and_pd _mm512_or_pd _mm512_xor_pd
    _mm512_add_epi64 _mm512_sub_epi64 _mm512_srli_epi64 _mm512_slli_epi64 52 _mm512_castpd_si512 _mm512_castsi512_pd
    F64x4 _mm512_castpd512_pd256 _mm512_extractf64x4_pd each_f64 transpose_f64);

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

int_vector!(I32x16: u16,
_mm512_add_epi32 _mm512_sub_epi32 _mm512_mullo_epi32 _mm512_max_epi32 _mm512_min_epi32 _mm512_abs_epi32,
num {
    masks! { u16:
        equal(a, b) = on_vectors!(_mm512_cmpeq_epi32_mask(a.0, b.0));
        less(a, b) = on_vectors!(_mm512_cmplt_epi32_mask(a.0, b.0));
        at_most(a, b) = on_vectors!(_mm512_cmple_epi32_mask(a.0, b.0));
    }
    masked!(i32, u16, _mm512_mask_loadu_epi32 _mm512_mask_storeu_epi32 _mm512_mask_blend_epi32
        _mm512_maskz_mov_epi32 _mm512_set1_epi32 1);
    folds!(i32, I32x8, _mm512_castsi512_si256 _mm512_extracti32x8_epi32 each_i32);
});

word_vector!(
/// 8 × u64 or 16 × u32.
U64x8(__m512i), F64x8, F32x16, 8,
_mm512_set1_epi64 _mm512_add_epi64 _mm512_sub_epi64 _mm512_add_epi32 _mm512_sub_epi32 _mm512_mul_epu32
_mm512_xor_si512 _mm512_and_si512 _mm512_or_si512
_mm512_castsi512_pd _mm512_castpd_si512 _mm512_castsi512_ps _mm512_castps_si512 _mm512_cvtepi32_ps,
words {
    shifts! {
        shr64(a, N) = _mm512_srli_epi64::<N>(a);
        shl64(a, N) = _mm512_slli_epi64::<N>(a);
        shr32(a, N) = _mm512_srli_epi32::<N>(a);
        shl32(a, N) = _mm512_slli_epi32::<N>(a);
    }
    #[inline(always)]
    fn iota(self) -> Self {
        on_vectors!(U64x8(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0)))
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
});

/// Folds 16 rows of 16 lanes as a tree: each step puts the remainders of two vectors side by side and combines the
/// halves. The rows of a 128-bit block are taken four apart so that the answers come out in order.
macro_rules! each16 {
    ($name:ident, $t:ident, $to:path, $from:path) => {
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn $name<F: Fold<$t>>(rows: &[$t; MAX_LANES]) -> $t {
            let at = |i: usize| $to(rows[i].0);
            let two = |a, b| $to(F::two($t($from(a)), $t($from(b))).0);
            let near = |a, b| two(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xEE>(a, b));
            let far = |a, b| two(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xDD>(a, b));
            let quad = |k: usize| far(near(at(k), at(k + 4)), near(at(k + 8), at(k + 12)));
            let pair = |a, b| two(_mm512_shuffle_ps::<0x44>(a, b), _mm512_shuffle_ps::<0xEE>(a, b));
            let last = |a, b| two(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xDD>(a, b));
            $t($from(last(pair(quad(0), quad(1)), pair(quad(2), quad(3)))))
        }
    };
}
each16!(each_f32, F32x16, std::convert::identity, std::convert::identity);
each16!(each_i32, I32x16, _mm512_castsi512_ps, _mm512_castps_si512);

/// The same tree for 8 rows of 8 lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn each_f64<F: Fold<F64x8>>(rows: &[F64x8; MAX_LANES]) -> F64x8 {
    let at = |i: usize| rows[i].0;
    let two = |a, b| F::two(F64x8(a), F64x8(b)).0;
    let near = |a, b| two(_mm512_shuffle_f64x2::<0x44>(a, b), _mm512_shuffle_f64x2::<0xEE>(a, b));
    let far = |a, b| two(_mm512_shuffle_f64x2::<0x88>(a, b), _mm512_shuffle_f64x2::<0xDD>(a, b));
    let quad = |k: usize| far(near(at(k), at(k + 2)), near(at(k + 4), at(k + 6)));
    let (a, b) = (quad(0), quad(1));
    F64x8(two(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b)))
}

/// Joins 128-bit lane l of four vectors into out[l], for l = 0..4.
macro_rules! join_lanes {
    ($shuffle:ident, $u:expr) => {{
        let u = $u;
        let (even0, odd0) = ($shuffle::<0x88>(u[0].0, u[1].0), $shuffle::<0xdd>(u[0].0, u[1].0));
        let (even1, odd1) = ($shuffle::<0x88>(u[2].0, u[3].0), $shuffle::<0xdd>(u[2].0, u[3].0));
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
fn transpose_f32(r: &mut [F32x16; MAX_LANES]) {
    let mut u = *r;
    for g in [0, 4, 8, 12] {
        let lo0 = _mm512_castps_pd(_mm512_unpacklo_ps(r[g].0, r[g + 1].0));
        let hi0 = _mm512_castps_pd(_mm512_unpackhi_ps(r[g].0, r[g + 1].0));
        let lo1 = _mm512_castps_pd(_mm512_unpacklo_ps(r[g + 2].0, r[g + 3].0));
        let hi1 = _mm512_castps_pd(_mm512_unpackhi_ps(r[g + 2].0, r[g + 3].0));
        u[g].0 = _mm512_castpd_ps(_mm512_unpacklo_pd(lo0, lo1));
        u[g + 1].0 = _mm512_castpd_ps(_mm512_unpackhi_pd(lo0, lo1));
        u[g + 2].0 = _mm512_castpd_ps(_mm512_unpacklo_pd(hi0, hi1));
        u[g + 3].0 = _mm512_castpd_ps(_mm512_unpackhi_pd(hi0, hi1));
    }
    for c in 0..4 {
        let out = join_lanes!(_mm512_shuffle_f32x4, [u[c], u[c + 4], u[c + 8], u[c + 12]]);
        for l in 0..4 {
            r[4 * l + c].0 = out[l];
        }
    }
}

/// Pairs inside each 128-bit lane, then whole lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_f64(r: &mut [F64x8; MAX_LANES]) {
    let mut u = *r;
    for g in [0, 2, 4, 6] {
        u[g].0 = _mm512_unpacklo_pd(r[g].0, r[g + 1].0);
        u[g + 1].0 = _mm512_unpackhi_pd(r[g].0, r[g + 1].0);
    }
    for c in 0..2 {
        let out = join_lanes!(_mm512_shuffle_f64x2, [u[c], u[c + 2], u[c + 4], u[c + 6]]);
        for l in 0..4 {
            r[2 * l + c].0 = out[l];
        }
    }
}
