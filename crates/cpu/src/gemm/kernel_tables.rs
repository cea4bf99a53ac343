//! Tables of the innermost loops by instruction set.

use crate::gemm::kernel::{BlockCopy, Dots, GemmTile, Patch, copy, dots, patch, tile, transpose};
use crate::gemm::simd::{Portable, Simd};
#[cfg(target_arch = "x86_64")]
use crate::gemm::x86::{Avx2, Avx512};
use crate::isa::Isa;

type TileFn<T> = unsafe fn(&GemmTile<T>);
type DotsFn<T> = unsafe fn(&Dots<T>);

/// The kernels of one element type on one kind of machine.
pub struct Kernels<T: 'static> {
    /// Elements in a vector.
    pub(crate) lanes: usize,
    /// Most columns of a tile.
    pub(crate) nr: usize,
    /// Most rows of a tile of inner products.
    pub(crate) dr: usize,
    /// Most columns of a tile of inner products.
    pub(crate) dc: usize,
    /// By unit or strided b, vectors − 1, columns − 1.
    tiles: [[&'static [TileFn<T>]; 2]; 2],
    /// By rows − 1, columns − 1.
    dots: &'static [&'static [DotsFn<T>]],
    transpose: unsafe fn(&BlockCopy<T>),
    copy: unsafe fn(&BlockCopy<T>),
    patch: unsafe fn(&Patch<'_, T>),
}

/// Vectors in a full tile.
pub(crate) const MV: usize = 2;

impl<T> Kernels<T> {
    /// Elements along the vector axis of a full tile.
    pub(crate) fn mr(&self) -> usize {
        MV * self.lanes
    }

    /// Runs a tile of `rows` ≤ `mr()` by `cols` ≤ `nr`; `t.last` is set here.
    ///
    /// # Safety
    /// See [`GemmTile`].
    #[inline]
    pub(crate) unsafe fn tile(&self, rows: usize, cols: usize, mut t: GemmTile<T>) {
        // One vector or two, found without a division.
        let vectors = 1 + usize::from(rows > self.lanes);
        t.last = rows - (vectors - 1) * self.lanes;
        // SAFETY: passed on.
        unsafe { self.tiles[usize::from(t.b_col != 1)][vectors - 1][cols - 1](&t) }
    }

    /// Runs a tile of `rows` × `cols` inner products.
    ///
    /// # Safety
    /// See [`Dots`].
    #[inline]
    pub(crate) unsafe fn dots(&self, rows: usize, cols: usize, t: &Dots<T>) {
        // SAFETY: passed on.
        unsafe { self.dots[rows - 1][cols - 1](t) }
    }

    /// Copies a block of at most `lanes` × `lanes` elements transposed.
    ///
    /// # Safety
    /// See [`BlockCopy`].
    #[inline]
    pub(crate) unsafe fn transpose(&self, t: &BlockCopy<T>) {
        // SAFETY: passed on.
        unsafe { (self.transpose)(t) }
    }

    /// Copies patches.
    ///
    /// # Safety
    /// See [`Patch`].
    #[inline]
    pub(crate) unsafe fn patch(&self, p: &Patch<'_, T>) {
        // SAFETY: passed on.
        unsafe { (self.patch)(p) }
    }

    /// Copies rows of any length.
    ///
    /// # Safety
    /// See [`copy`].
    #[inline]
    pub(crate) unsafe fn copy(&self, t: &BlockCopy<T>) {
        // SAFETY: passed on.
        unsafe { (self.copy)(t) }
    }
}

/// Number types the dense kernels work in.
pub trait Real:
    Copy + Send + Sync + Default + PartialEq + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> + 'static
{
    /// The kernels of a kind of machine; `None` if this machine lacks it.
    fn kernels(isa: Isa) -> Option<&'static Kernels<Self>>;
}

/// The innermost loops compiled for one kind of machine. Their callers promise that the machine is of that kind, and
/// the requirements of the loops in `kernel.rs`.
macro_rules! wrappers {
    ($tile:ident, $dots:ident, $transpose:ident, $copy:ident, $patch:ident $(, $feature:literal)?) => {
        $(#[target_feature(enable = $feature)])?
        unsafe fn $tile<S: Simd, const V: usize, const N: usize, const UNIT: bool>(t: &GemmTile<S::T>) {
            // SAFETY: passed on; the features are the wrapper's.
            unsafe { tile::<S, V, N, UNIT>(t) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn $dots<S: Simd, const R: usize, const C: usize>(t: &Dots<S::T>)
        where
            S::T: std::ops::Add<Output = S::T>,
        {
            // SAFETY: passed on.
            unsafe { dots::<S, R, C>(t) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn $transpose<S: Simd>(t: &BlockCopy<S::T>) {
            // SAFETY: passed on.
            unsafe { transpose::<S>(t) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn $copy<S: Simd>(t: &BlockCopy<S::T>) {
            // SAFETY: passed on.
            unsafe { copy::<S>(t) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn $patch<S: Simd>(p: &Patch<'_, S::T>) {
            // SAFETY: passed on.
            unsafe { patch::<S>(p) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
wrappers!(tile_avx512, dots_avx512, transpose_avx512, copy_avx512, patch_avx512, "avx512f,avx2,fma");
#[cfg(target_arch = "x86_64")]
wrappers!(tile_avx2, dots_avx2, transpose_avx2, copy_avx2, patch_avx2, "avx2,fma");
wrappers!(tile_portable, dots_portable, transpose_portable, copy_portable, patch_portable);

macro_rules! table {
    ($s:ty, $tile:ident [$($n:literal)*], $dots:ident [$($r:literal)*] $cols:tt, $transpose:ident, $copy:ident, $patch:ident) => {
        Kernels {
            lanes: <$s>::LANES,
            nr: [$($n),*].len(),
            dr: [$($r),*].len(),
            dc: table!(@len $cols),
            tiles: [
                [&[$($tile::<$s, 1, $n, true>),*], &[$($tile::<$s, 2, $n, true>),*]],
                [&[$($tile::<$s, 1, $n, false>),*], &[$($tile::<$s, 2, $n, false>),*]],
            ],
            dots: &[$(table!(@row $dots $s, $r $cols)),*],
            transpose: $transpose::<$s>,
            copy: $copy::<$s>,
            patch: $patch::<$s>,
        }
    };
    (@len [$($c:literal)*]) => { [$($c),*].len() };
    (@row $dots:ident $s:ty, $r:literal [$($c:literal)*]) => { &[$($dots::<$s, $r, $c>),*] };
}

macro_rules! real {
    ($t:ty, $lanes:literal) => {
        impl Real for $t {
            fn kernels(isa: Isa) -> Option<&'static Kernels<$t>> {
                // Register files: 32 vectors on AVX-512, 16 elsewhere.
                #[cfg(target_arch = "x86_64")]
                static AVX512: Kernels<$t> = table!(
                    Avx512<$t>, tile_avx512 [1 2 3 4 5 6 7 8 9 10 11 12], dots_avx512 [1 2 3 4] [1 2 3 4 5],
                    transpose_avx512, copy_avx512, patch_avx512
                );
                #[cfg(target_arch = "x86_64")]
                static AVX2: Kernels<$t> =
                    table!(Avx2<$t>, tile_avx2 [1 2 3 4 5 6], dots_avx2 [1 2 3] [1 2 3], transpose_avx2, copy_avx2, patch_avx2);
                type P = Portable<$t, $lanes>;
                static PORTABLE: Kernels<$t> =
                    table!(P, tile_portable [1 2 3 4], dots_portable [1 2] [1 2 3], transpose_portable, copy_portable, patch_portable);
                match isa {
                    _ if !isa.is_available() => None,
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => Some(&AVX512),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => Some(&AVX2),
                    _ => Some(&PORTABLE),
                }
            }
        }
    };
}

real!(f32, 4);
real!(f64, 2);
