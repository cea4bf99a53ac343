//! The random draws of `bilevel_graph::random`, many blocks at once and with the same bits.
//!
//! Each 64-bit lane carries one block: its words are in the lower halves of four registers, the operands of the
//! machine's 32 × 32 → 64 multiply; the upper halves are never read. Floats are never fused here, as the specification
//! requires.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use super::RandomFn;
use crate::simd::{Float, Num, Vector, Words};
use bilevel_graph::random::{KEY_STEPS, MULTIPLIERS, ROUNDS, double, single};
use bilevel_graph::{DType, RandomKind};

/// The position of a draw.
#[derive(Clone, Copy)]
pub(crate) struct DrawKey {
    pub key: [u32; 2],
    pub counter: u32,
    pub stream: u32,
}

/// The distribution made from the blocks.
pub(crate) trait Distribution<W: Words> {
    /// The type of an element.
    type Elem: Copy + Default;
    /// Elements a block gives: 4 or 2.
    const EACH: usize;
    /// Writes the elements of `W::LANES` blocks, in order.
    ///
    /// # Safety
    /// There is room for `W::LANES`·`EACH` elements at `dst`.
    unsafe fn write(words: [W; 4], dst: *mut Self::Elem);
    /// The specification, for draws too short to fill a register.
    fn short(from: DrawKey, first: u64, dst: &mut [Self::Elem]);
}

/// The four words of blocks b, b + 1, …, one block a lane, in vectors of the type of `like`.
#[inline(always)]
fn philox<W: Words>(like: W, from: DrawKey, block: u64) -> [W; 4] {
    let index = like.iota().add64(like.all(block));
    let [mut a, mut b] = [index, index.shr64::<32>()];
    let [mut c, mut d] = [like.all(from.counter as u64), like.all(from.stream as u64)];
    let [mut k, mut l] = from.key;
    let [m, n] = MULTIPLIERS.map(|x| like.all(x as u64));
    for _ in 0..ROUNDS {
        let (p, q) = (a.mul_low(m), c.mul_low(n));
        (a, c) = (q.shr64::<32>().xor(b).xor(like.all(k as u64)), p.shr64::<32>().xor(d).xor(like.all(l as u64)));
        (b, d) = (q, p);
        (k, l) = (k.wrapping_add(KEY_STEPS[0]), l.wrapping_add(KEY_STEPS[1]));
    }
    [a, b, c, d]
}

/// By 64-bit lanes: low half of `low`, then low half of `high`.
#[inline(always)]
fn join<W: Words>(low: W, high: W) -> W {
    low.and(low.all(0xffff_ffff)).or(high.shl64::<32>())
}

/// Fills `dst` with elements first, first + 1, …
///
/// # Safety
/// There is room for n elements at `dst`, and the machine has the instruction set of `W`.
#[inline(always)]
pub(crate) unsafe fn fill<W: Words, D: Distribution<W>>(from: DrawKey, first: u64, dst: *mut D::Elem, n: usize) {
    // A chunk is the result of one round of registers, stored directly into dst if it fits.
    let chunk = W::LANES * D::EACH;
    if n <= D::EACH {
        // SAFETY: the caller's promise.
        return D::short(from, first, unsafe { std::slice::from_raw_parts_mut(dst, n) });
    }
    // SAFETY: the caller's promise.
    let like = unsafe { W::splat(0) };
    let mut block = first / D::EACH as u64;
    let mut skip = (first % D::EACH as u64) as usize;
    let mut i = 0;
    while i < n {
        let words = philox(like, from, block);
        // SAFETY: a whole chunk ends at or before element n; a part of one is copied out of a buffer that holds the largest chunk,
        // 32 elements.
        unsafe {
            if skip == 0 && i + chunk <= n {
                D::write(words, dst.add(i));
                i += chunk;
            } else {
                let mut buffer = [D::Elem::default(); 32];
                D::write(words, buffer.as_mut_ptr());
                let take = (chunk - skip).min(n - i);
                std::ptr::copy_nonoverlapping(buffer.as_ptr().add(skip), dst.add(i), take);
                i += take;
                skip = 0;
            }
        }
        block = block.wrapping_add(W::LANES as u64);
    }
}

/// The specification's polynomial: even and odd powers apart, never fused.
#[inline(always)]
fn poly<V: Float, const N: usize>(z: V, c: &[V::Elem; N]) -> V {
    let w = z * z;
    let mut chains = [z.all(c[N - 1]), z.all(c[N - 2])];
    for k in (0..N - 2).rev() {
        let chain = &mut chains[(N - 1 - k) % 2];
        *chain = *chain * w + z.all(c[k]);
    }
    let [even, odd] = if N % 2 == 1 { chains } else { [chains[1], chains[0]] };
    even + z * odd
}

/// √(−2 ln u): the specification's formula.
#[inline(always)]
fn radius<V: Float, const N: usize>(u: V, log: &[V::Elem; N], ln2: [V::Elem; 2]) -> V {
    let (e, m) = u.split();
    let f = m - u.of(1.0);
    let half = u.of(0.5) * f * f;
    let s = f / (u.of(2.0) + f);
    let z = s * s;
    let r = z * poly(z, log);
    let [head, tail] = ln2.map(|x| u.all(x));
    let ln = e * head + (f - (half - (s * (half + r) + e * tail)));
    (u.of(-2.0) * ln).sqrt()
}

/// (cos 2πf, sin 2πf) turned by the quadrant: `odd` swaps them, the sign bits of `x` and `y` are taken off.
#[inline(always)]
fn turn<V: Float, const N: usize>(f: V, odd: V::Mask, signs: [V; 2], sin: &[V::Elem; N], cos: &[V::Elem; N]) -> (V, V) {
    let z = f * f;
    let s = f * poly(z, sin);
    let c = f.of(1.0) + z * poly(z, cos);
    let (x, y) = (V::select(odd, s, c), V::select(odd, c, s));
    // A sign bit added to a sign bit flips it.
    (x.bit_add(signs[0]), y.bit_add(signs[1]))
}

/// Standard normal f32: lanes hold words 0 and 2 of each block in one register, 1 and 3 in the other.
pub(crate) struct NormalF32;
impl<W: Words> Distribution<W> for NormalF32 {
    type Elem = f32;
    const EACH: usize = 4;

    #[inline(always)]
    unsafe fn write([w0, w1, w2, w3]: [W; 4], dst: *mut f32) {
        let like = w0.as_f32();
        let word = |x: u32| w0.all(x as u64 | (x as u64) << 32);
        let u = join(w0, w2).shr32::<1>().to_f32() + like.of(1.0);
        let r = radius(u * like.of(1.0 / 2147483648.0), &single::LOG, single::LN2);
        let k = join(w1, w3).shr32::<8>();
        let q = k.add32(word(1 << 21)).shr32::<22>();
        let f = k.sub32(q.shl32::<22>()).to_f32() * like.of(1.0 / 16777216.0);
        let bit = |x: W| x.and(word(2)).shl32::<30>().as_f32();
        // Bit 0 of q moved into the exponent: a normal float if set.
        let odd = !q.and(word(1)).shl32::<24>().as_f32().equal(like.of(0.0));
        let (x, y) = turn(f, odd, [bit(q.add32(word(1))), bit(q)], &single::SIN, &single::COS);
        let (low, high) = W::from_f32(r * x).interleave32(W::from_f32(r * y));
        // SAFETY: `LANES` blocks give two vectors.
        unsafe {
            low.as_f32().store(dst);
            high.as_f32().store(dst.add(W::F32::LANES));
        }
    }

    #[inline(always)]
    fn short(s: DrawKey, first: u64, dst: &mut [f32]) {
        bilevel_graph::random::fill_normal_f32(s.key, s.counter, s.stream, first, dst);
    }
}

/// A whole number |j| < 2⁵¹ as f64: added to the pattern of 1.5·2⁵² it stands in the fraction.
#[inline(always)]
fn small_to_f64<W: Words>(j: W) -> W::F64 {
    let base = 6755399441055744.0f64;
    let raised = j.add64(j.all(base.to_bits())).as_f64();
    raised - raised.of(base)
}

/// A whole number below 2⁵⁴ as f64, in two halves that add up exactly (up to 2⁵³).
#[inline(always)]
fn large_to_f64<W: Words>(k: W) -> W::F64 {
    let (low, high) = (4503599627370496.0f64, 19342813113834066795298816.0f64);
    let l = k.and(k.all(0xffff_ffff)).or(k.all(low.to_bits())).as_f64() - k.as_f64().of(low);
    let h = k.shr64::<32>().or(k.all(high.to_bits())).as_f64() - k.as_f64().of(high);
    h + l
}

/// Standard normal f64: one double word gives the radius, the other the angle.
pub(crate) struct NormalF64;
impl<W: Words> Distribution<W> for NormalF64 {
    type Elem = f64;
    const EACH: usize = 2;

    #[inline(always)]
    unsafe fn write([w0, w1, w2, w3]: [W; 4], dst: *mut f64) {
        let like = w0.as_f64();
        let u = large_to_f64(join(w0, w1).shr64::<11>().add64(w0.all(1)));
        let r = radius(u * like.of(1.0 / 9007199254740992.0), &double::LOG, double::LN2);
        let k = join(w2, w3).shr64::<11>();
        let q = k.add64(w0.all(1 << 50)).shr64::<51>();
        let f = small_to_f64(k.sub64(q.shl64::<51>())) * like.of(1.0 / 9007199254740992.0);
        let bit = |x: W| x.and(w0.all(2)).shl64::<62>().as_f64();
        let odd = !q.and(w0.all(1)).shl64::<53>().as_f64().equal(like.of(0.0));
        let (x, y) = turn(f, odd, [bit(q.add64(w0.all(1))), bit(q)], &double::SIN, &double::COS);
        let (low, high) = W::from_f64(r * x).interleave64(W::from_f64(r * y));
        // SAFETY: `LANES` blocks give two vectors.
        unsafe {
            low.as_f64().store(dst);
            high.as_f64().store(dst.add(W::LANES));
        }
    }

    #[inline(always)]
    fn short(s: DrawKey, first: u64, dst: &mut [f64]) {
        bilevel_graph::random::fill_normal_f64(s.key, s.counter, s.stream, first, dst);
    }
}

/// The words of each block in memory order: two registers of word pairs, interleaved.
#[inline(always)]
fn in_order<W: Words>([w0, w1, w2, w3]: [W; 4]) -> (W, W) {
    join(w0, w1).interleave64(join(w2, w3))
}

/// Uniform f32.
pub(crate) struct UniformF32;
impl<W: Words> Distribution<W> for UniformF32 {
    type Elem = f32;
    const EACH: usize = 4;

    #[inline(always)]
    unsafe fn write(words: [W; 4], dst: *mut f32) {
        let (low, high) = in_order(words);
        let unit = low.as_f32().of(1.0 / 16777216.0);
        // SAFETY: `LANES` blocks give two vectors.
        unsafe {
            (low.shr32::<8>().to_f32() * unit).store(dst);
            (high.shr32::<8>().to_f32() * unit).store(dst.add(W::F32::LANES));
        }
    }

    #[inline(always)]
    fn short(s: DrawKey, first: u64, dst: &mut [f32]) {
        bilevel_graph::random::fill_uniform_f32(s.key, s.counter, s.stream, first, dst);
    }
}

/// Uniform f64.
pub(crate) struct UniformF64;
impl<W: Words> Distribution<W> for UniformF64 {
    type Elem = f64;
    const EACH: usize = 2;

    #[inline(always)]
    unsafe fn write(words: [W; 4], dst: *mut f64) {
        let (low, high) = in_order(words);
        let unit = low.as_f64().of(1.0 / 9007199254740992.0);
        // SAFETY: `LANES` blocks give two vectors.
        unsafe {
            (large_to_f64(low.shr64::<11>()) * unit).store(dst);
            (large_to_f64(high.shr64::<11>()) * unit).store(dst.add(W::LANES));
        }
    }

    #[inline(always)]
    fn short(s: DrawKey, first: u64, dst: &mut [f64]) {
        bilevel_graph::random::fill_uniform_f64(s.key, s.counter, s.stream, first, dst);
    }
}

/// Random bits.
pub(crate) struct RandomBits;
impl<W: Words> Distribution<W> for RandomBits {
    type Elem = i32;
    const EACH: usize = 4;

    #[inline(always)]
    unsafe fn write(words: [W; 4], dst: *mut i32) {
        let (low, high) = in_order(words);
        // SAFETY: `LANES` blocks give two vectors.
        unsafe {
            low.as_f64().store(dst.cast());
            high.as_f64().store(dst.cast::<f64>().add(W::LANES));
        }
    }

    #[inline(always)]
    fn short(s: DrawKey, first: u64, dst: &mut [i32]) {
        bilevel_graph::random::fill_bits(s.key, s.counter, s.stream, first, dst);
    }
}

/// Makes the lookup of one instruction set's draws, compiled for it.
macro_rules! draws {
    ($name:ident, $words:ty, $feature:meta) => {
        pub(crate) fn $name(kind: RandomKind, dtype: DType) -> Option<RandomFn> {
            #[$feature]
            unsafe fn of<D: Distribution<$words>>(
                dst: *mut u8,
                key: [u32; 2],
                counter: u32,
                stream: u32,
                first: u64,
                n: usize,
            ) {
                // SAFETY: this function is called only where its features are, with room for n elements at `dst`.
                unsafe { fill::<$words, D>(DrawKey { key, counter, stream }, first, dst.cast(), n) }
            }
            Some(match (kind, dtype) {
                (RandomKind::Normal, DType::F32) => of::<NormalF32>,
                (RandomKind::Normal, DType::F64) => of::<NormalF64>,
                (RandomKind::Uniform, DType::F32) => of::<UniformF32>,
                (RandomKind::Uniform, DType::F64) => of::<UniformF64>,
                (RandomKind::Bits, DType::I32) => of::<RandomBits>,
                _ => return None,
            })
        }
    };
}
#[cfg(target_arch = "x86_64")]
draws!(wide, crate::simd::avx512::U64x8, target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"));
#[cfg(target_arch = "x86_64")]
draws!(middle, crate::simd::avx2::U64x4, target_feature(enable = "avx2,fma"));

/// The specification itself, for any machine.
pub(crate) fn plain(kind: RandomKind, dtype: DType) -> Option<RandomFn> {
    /// Makes a kernel of one of the specification's functions.
    macro_rules! of {
        ($f:ident) => {{
            unsafe fn kernel(dst: *mut u8, key: [u32; 2], counter: u32, stream: u32, first: u64, n: usize) {
                // SAFETY: the caller promises room for n elements, aligned to the element.
                let dst = unsafe { std::slice::from_raw_parts_mut(dst.cast(), n) };
                bilevel_graph::random::$f(key, counter, stream, first, dst);
            }
            kernel
        }};
    }
    Some(match (kind, dtype) {
        (RandomKind::Normal, DType::F32) => of!(fill_normal_f32),
        (RandomKind::Normal, DType::F64) => of!(fill_normal_f64),
        (RandomKind::Uniform, DType::F32) => of!(fill_uniform_f32),
        (RandomKind::Uniform, DType::F64) => of!(fill_uniform_f64),
        (RandomKind::Bits, DType::I32) => of!(fill_bits),
        _ => return None,
    })
}
