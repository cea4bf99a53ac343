//! Kernels that move or make elements without arithmetic on tiles: fill, copy, strided copy, repeat, iota, convert.
//!
//! Their callers promise that the machine has the instruction set of `V`, and the requirements of `kernels/mod.rs` on
//! the pointers of a kernel.

use crate::simd::Num;
use bilevel_graph::Precision;

/// dst\[i\] = value
///
/// # Safety
/// See the head of this file.
#[inline(always)]
pub(crate) unsafe fn fill<V: Num>(dst: *mut u8, value: *const u8, n: usize) {
    // SAFETY: the caller promises one element at `value` and room for n at `dst`.
    unsafe {
        let dst = dst.cast::<V::Elem>();
        run(dst, V::splat(value.cast::<V::Elem>().read_unaligned()), n);
    }
}

/// Writes one vector n elements long, the last store overlapping the one before it.
///
/// # Safety
/// There is room for n elements at `dst`.
#[inline(always)]
unsafe fn run<V: Num>(dst: *mut V::Elem, v: V, n: usize) {
    // SAFETY: every store ends at or before element n.
    unsafe {
        if n < V::LANES {
            v.store_part(dst, n);
            return;
        }
        let mut i = 0;
        while i + V::LANES <= n {
            v.store(dst.add(i));
            i += V::LANES;
        }
        if i < n {
            v.store(dst.add(n - V::LANES));
        }
    }
}

/// dst\[i, j\] = a\[i\] for the tile `[r, l]`
///
/// A short row is written with one whole store that runs into the next row, which then overwrites it; only rows too
/// near the end are written exactly. The shortest rows use the narrower vector H.
///
/// # Safety
/// See the head of this file.
#[inline(always)]
pub(crate) unsafe fn repeat<V: Num, H: Num<Elem = V::Elem>>(dst: *mut u8, a: *const u8, r: usize, l: usize) {
    // SAFETY: i < r, so that a[i] can be read; every store ends at or before element r·l of `dst`.
    unsafe {
        let (dst, a) = (dst.cast::<V::Elem>(), a.cast::<V::Elem>());
        let mut i = 0;
        if l <= H::LANES {
            while i * l + H::LANES <= r * l {
                H::splat(a.add(i).read_unaligned()).store(dst.add(i * l));
                i += 1;
            }
        } else if l <= V::LANES {
            while i * l + V::LANES <= r * l {
                V::splat(a.add(i).read_unaligned()).store(dst.add(i * l));
                i += 1;
            }
        }
        while i < r {
            run(dst.add(i * l), V::splat(a.add(i).read_unaligned()), l);
            i += 1;
        }
    }
}

/// dst\[i\] = a\[i·stride\]
///
/// # Safety
/// See the head of this file.
#[inline(always)]
pub(crate) unsafe fn copy_strided<T: Copy>(dst: *mut u8, a: *const u8, stride: isize, n: usize) {
    // SAFETY: elements 0..n of `dst` and their multiples of `stride` of `a` are the caller's promise.
    unsafe {
        let (dst, a) = (dst.cast::<T>(), a.cast::<T>());
        let mut i = 0;
        // Eight loads are in flight before the stores; the compiler joins them into one store.
        while i + 8 <= n {
            let p = a.offset(i as isize * stride);
            let eight: [T; 8] = std::array::from_fn(|k| p.offset(k as isize * stride).read_unaligned());
            dst.add(i).cast::<[T; 8]>().write_unaligned(eight);
            i += 8;
        }
        while i < n {
            dst.add(i).write_unaligned(a.offset(i as isize * stride).read_unaligned());
            i += 1;
        }
    }
}

/// A number that iota makes from its exact value in f64.
pub(crate) trait Made: Copy {
    /// The nearest number of this type (whole values for integers).
    fn made(x: f64) -> Self;
}

impl Made for f32 {
    #[inline(always)]
    fn made(x: f64) -> f32 {
        x as f32
    }
}

impl Made for f64 {
    #[inline(always)]
    fn made(x: f64) -> f64 {
        x
    }
}

impl Made for i32 {
    #[inline(always)]
    fn made(x: f64) -> i32 {
        Cast::<i32>::cast(x)
    }
}

/// dst\[i\] = start + step·i, computed in f64
///
/// # Safety
/// See the head of this file.
#[inline(always)]
pub(crate) unsafe fn iota<T: Made>(dst: *mut u8, start: f64, step: f64, n: usize) {
    // SAFETY: the caller promises room for n elements that nothing else uses meanwhile, aligned to the element.
    let dst = unsafe { std::slice::from_raw_parts_mut(dst.cast::<T>(), n) };
    for (i, d) in dst.iter_mut().enumerate() {
        *d = T::made(start + step * (i as i32 as f64));
    }
}

/// Conversion of one number, as Rust's `as` but in a form the compiler vectorises.
pub(crate) trait Cast<To>: Copy {
    /// The number in the other type.
    fn cast(self) -> To;
}

macro_rules! cast {
    ($($from:ident => $to:ident),+) => {
        $(impl Cast<$to> for $from {
            #[inline(always)]
            fn cast(self) -> $to {
                self as $to
            }
        })+
    };
}
cast!(f32 => f64, f64 => f32, i32 => f32, i32 => f64);

impl Cast<i32> for f64 {
    // Both bounds are exact in f64, so clamping then truncating saturates.
    #[inline(always)]
    fn cast(self) -> i32 {
        let x = if self < 2147483647.0 { self } else { 2147483647.0 };
        let x = if x > -2147483648.0 { x } else { -2147483648.0 };
        let x = if self.is_nan() { 0.0 } else { x };
        // SAFETY: x is neither NaN nor outside the range of an i32.
        unsafe { x.to_int_unchecked() }
    }
}

impl Cast<i32> for f32 {
    // 2³¹ − 1 is not a float: numbers not below 2³¹ are handled separately.
    #[inline(always)]
    fn cast(self) -> i32 {
        let x = if self < 2147483520.0 { self } else { 2147483520.0 };
        let x = if x > -2147483648.0 { x } else { -2147483648.0 };
        let x = if self.is_nan() { 0.0 } else { x };
        // SAFETY: x is neither NaN nor outside the range of an i32.
        let whole: i32 = unsafe { x.to_int_unchecked() };
        if self >= 2147483648.0 { i32::MAX } else { whole }
    }
}

macro_rules! rounded {
    ($($name:ident),+) => {
        $(#[doc = "A 32-bit float as a product of this precision multiplies it."]
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(crate) struct $name(#[allow(dead_code, reason = "read as the float it is in memory")] f32);

        impl Cast<$name> for f32 {
            #[inline(always)]
            fn cast(self) -> $name {
                $name(Precision::$name.round(self))
            }
        })+
    };
}
rounded!(Tf32, Bf16);

/// dst\[i\] = a\[i\] in another type
///
/// In place and apart are two loops, so that each is seen by the compiler to be free of overlap.
///
/// # Safety
/// See the head of this file.
#[inline(always)]
pub(crate) unsafe fn convert<T: Cast<U>, U: Copy>(dst: *mut u8, a: *const u8, n: usize) {
    // SAFETY: n elements at each are the caller's promise. In place both types have one size, so that an element is read before it
    // is written; otherwise nothing overlaps, and both slices are aligned to their elements.
    unsafe {
        if dst.cast_const() == a {
            for i in 0..n {
                let x = dst.cast::<T>().add(i).read_unaligned();
                dst.cast::<U>().add(i).write_unaligned(x.cast());
            }
        } else {
            apart(std::slice::from_raw_parts_mut(dst.cast::<U>(), n), std::slice::from_raw_parts(a.cast::<T>(), n));
        }
    }
}

#[inline(always)]
fn apart<T: Cast<U>, U: Copy>(dst: &mut [U], a: &[T]) {
    for (d, &x) in dst.iter_mut().zip(a) {
        *d = x.cast();
    }
}
