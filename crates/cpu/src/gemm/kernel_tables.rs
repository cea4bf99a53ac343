//! Tables of the innermost loops by instruction set.

use crate::gemm::kernel::{BlockCopy, Dots, GemmTile, Patch};
use crate::simd::{Isa, Vector};
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2, avx512};

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
    /// Copies a block of at most `lanes` × `lanes` elements transposed.
    pub(crate) transpose: unsafe fn(&BlockCopy<T>),
    /// Copies rows of any length.
    pub(crate) copy: unsafe fn(&BlockCopy<T>),
    /// Copies patches.
    pub(crate) patch: unsafe fn(&Patch<'_, T>),
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
    ($isa:ident $(, $feature:literal)?) => {
        mod $isa {
            use crate::gemm::kernel::{self, BlockCopy, Dots, GemmTile, Patch};
            use crate::simd::GemmVector;

            $(#[target_feature(enable = $feature)])?
            pub unsafe fn tile<V: GemmVector, const M: usize, const N: usize, const UNIT: bool>(t: &GemmTile<V::Elem>) {
                // SAFETY: passed on; the features are the wrapper's.
                unsafe { kernel::tile::<V, M, N, UNIT>(t) }
            }
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn dots<V: GemmVector, const R: usize, const C: usize>(t: &Dots<V::Elem>) {
                // SAFETY: passed on.
                unsafe { kernel::dots::<V, R, C>(t) }
            }
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn transpose<V: GemmVector>(t: &BlockCopy<V::Elem>) {
                // SAFETY: passed on.
                unsafe { kernel::transpose::<V>(t) }
            }
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn copy<V: GemmVector>(t: &BlockCopy<V::Elem>) {
                // SAFETY: passed on.
                unsafe { kernel::copy::<V>(t) }
            }
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn patch<V: GemmVector>(p: &Patch<'_, V::Elem>) {
                // SAFETY: passed on.
                unsafe { kernel::patch::<V>(p) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
wrappers!(wide, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");
#[cfg(target_arch = "x86_64")]
wrappers!(middle, "avx2,fma");
wrappers!(plain);

/// The table of a vector type: the columns of tiles, and the rows and columns of inner products, up to those that fit the
/// registers.
macro_rules! table {
    ($isa:ident, $v:ty, [$($n:literal)*], [$($r:literal)*] $cols:tt) => {
        Kernels {
            lanes: <$v>::LANES,
            nr: [$($n),*].len(),
            dr: [$($r),*].len(),
            dc: table!(@len $cols),
            tiles: [
                [&[$($isa::tile::<$v, 1, $n, true>),*], &[$($isa::tile::<$v, 2, $n, true>),*]],
                [&[$($isa::tile::<$v, 1, $n, false>),*], &[$($isa::tile::<$v, 2, $n, false>),*]],
            ],
            dots: &[$(table!(@row $isa $v, $r $cols)),*],
            transpose: $isa::transpose::<$v>,
            copy: $isa::copy::<$v>,
            patch: $isa::patch::<$v>,
        }
    };
    (@len [$($c:literal)*]) => { [$($c),*].len() };
    (@row $isa:ident $v:ty, $r:literal [$($c:literal)*]) => { &[$($isa::dots::<$v, $r, $c>),*] };
}

macro_rules! real {
    ($t:ty, $avx512:ident, $avx2:ident, $lanes:literal) => {
        impl Real for $t {
            fn kernels(isa: Isa) -> Option<&'static Kernels<$t>> {
                // Register files: 32 vectors on AVX-512, 16 elsewhere.
                #[cfg(target_arch = "x86_64")]
                static AVX512: Kernels<$t> =
                    table!(wide, avx512::$avx512, [1 2 3 4 5 6 7 8 9 10 11 12], [1 2 3 4] [1 2 3 4 5]);
                #[cfg(target_arch = "x86_64")]
                static AVX2: Kernels<$t> = table!(middle, avx2::$avx2, [1 2 3 4 5 6], [1 2 3] [1 2 3]);
                static PORTABLE: Kernels<$t> = table!(plain, [$t; $lanes], [1 2 3 4], [1 2] [1 2 3]);
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

real!(f32, F32x16, F32x8, 4);
real!(f64, F64x8, F64x4, 2);
