//! The few vector operations the kernels are written in, and their portable form.

/// Vectors of one element type on one kind of machine.
///
/// # Safety
/// Every function may be called only if the machine has the instructions of the implementing type, and pointers must
/// be good for the elements the function names. Functions are inlined into a `#[target_feature]` wrapper.
pub(crate) unsafe trait Simd: Copy + 'static {
    /// Element type.
    type T: Copy + 'static;
    /// One vector.
    type V: Copy;
    /// Which leading lanes are meant.
    type M: Copy;
    /// Elements in a vector.
    const LANES: usize;
    /// A masked load costs no more than a plain one.
    const FREE_MASK: bool;

    /// All lanes 0.
    unsafe fn zero() -> Self::V;
    /// All lanes `*p`.
    unsafe fn splat(p: *const Self::T) -> Self::V;
    /// `LANES` elements from `p`, of any alignment.
    unsafe fn load(p: *const Self::T) -> Self::V;
    /// `LANES` elements to `p`, of any alignment.
    unsafe fn store(p: *mut Self::T, v: Self::V);
    /// The mask of the first `n` lanes, n ≤ `LANES`.
    unsafe fn mask(n: usize) -> Self::M;
    /// The mask of lanes low..high, low ≤ high ≤ `LANES`.
    unsafe fn mask_between(low: usize, high: usize) -> Self::M;
    /// The masked elements from `p`, 0 in the other lanes, whose memory is not touched.
    unsafe fn load_mask(p: *const Self::T, m: Self::M) -> Self::V;
    /// The masked elements to `p`; the memory of the other lanes is not touched.
    unsafe fn store_mask(p: *mut Self::T, v: Self::V, m: Self::M);
    /// a·b + c
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// a + b
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// The sum of all lanes, in an order fixed by the type.
    unsafe fn sum(v: Self::V) -> Self::T;
    /// Prefetches the cache line of `p`, which may be any address.
    #[inline(always)]
    unsafe fn prefetch(_p: *const Self::T) {}
    /// Transposes the first `LANES` × `LANES` elements in place: lane j of vector i ↔ lane i of vector j.
    unsafe fn transpose(r: &mut [Self::V; 16]);
}

/// Arrays that the compiler turns into the vectors of the target's baseline.
#[derive(Clone, Copy)]
pub(crate) struct Portable<T, const L: usize>(std::marker::PhantomData<T>);

macro_rules! portable {
    ($t:ty) => {
        // SAFETY: plain Rust, no instruction beyond the target's own.
        unsafe impl<const L: usize> Simd for Portable<$t, L> {
            type T = $t;
            type V = [$t; L];
            type M = (usize, usize);
            const LANES: usize = L;
            const FREE_MASK: bool = false;

            #[inline(always)]
            unsafe fn zero() -> [$t; L] {
                [0.0; L]
            }
            #[inline(always)]
            unsafe fn splat(p: *const $t) -> [$t; L] {
                // SAFETY: the caller's promise about `p`.
                unsafe { [*p; L] }
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> [$t; L] {
                // SAFETY: the caller's promise about `p`.
                unsafe { p.cast::<[$t; L]>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn store(p: *mut $t, v: [$t; L]) {
                // SAFETY: the caller's promise about `p`.
                unsafe { p.cast::<[$t; L]>().write_unaligned(v) }
            }
            #[inline(always)]
            unsafe fn mask(n: usize) -> (usize, usize) {
                (0, n)
            }
            #[inline(always)]
            unsafe fn mask_between(low: usize, high: usize) -> (usize, usize) {
                (low, high)
            }
            #[inline(always)]
            unsafe fn load_mask(p: *const $t, m: (usize, usize)) -> [$t; L] {
                // SAFETY: only the masked lanes are read.
                std::array::from_fn(|i| if i >= m.0 && i < m.1 { unsafe { *p.add(i) } } else { 0.0 })
            }
            #[inline(always)]
            unsafe fn store_mask(p: *mut $t, v: [$t; L], m: (usize, usize)) {
                for (i, x) in v.iter().enumerate().take(m.1).skip(m.0) {
                    // SAFETY: only the masked lanes are written.
                    unsafe { *p.add(i) = *x }
                }
            }
            #[inline(always)]
            unsafe fn fma(a: [$t; L], b: [$t; L], c: [$t; L]) -> [$t; L] {
                // Two roundings: `mul_add` would be a library call without the instruction.
                std::array::from_fn(|i| a[i] * b[i] + c[i])
            }
            #[inline(always)]
            unsafe fn add(a: [$t; L], b: [$t; L]) -> [$t; L] {
                std::array::from_fn(|i| a[i] + b[i])
            }
            #[inline(always)]
            unsafe fn sum(v: [$t; L]) -> $t {
                v.iter().sum()
            }
            #[inline(always)]
            unsafe fn transpose(r: &mut [[$t; L]; 16]) {
                for i in 1..L {
                    for j in 0..i {
                        let x = r[i][j];
                        r[i][j] = r[j][i];
                        r[j][i] = x;
                    }
                }
            }
        }
    };
}

portable!(f32);
portable!(f64);
