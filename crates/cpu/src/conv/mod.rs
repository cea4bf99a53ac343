//! 2-D convolutions of strided operands, for all shapes of a forward pass and its derivatives of any order.
//!
//! [`ConvPlan::new`] removes the image's dilation (see `geometry`) and chooses one of three methods for each part.
//! `im2col` is for many outputs and few taps (a forward convolution, a gradient by the image). `shift` is for many taps
//! and few outputs (a gradient by the kernel). `plane` is for few channels (a depthwise convolution).

mod geometry;
mod im2col;
mod plane;
mod shift;
#[cfg(test)]
mod tests;

use crate::gemm::{Kernels, Real};
use crate::runtime::thread_pool::Team;
use crate::simd::Isa;
use bilevel_graph::ConvDims;
use geometry::{Axis, Core};
use im2col::Im2col;
use plane::Plane;
use shift::Shift;

/// A convolution with its shapes and element strides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvSpec {
    /// Geometry.
    pub dims: ConvDims,
    /// Shape of the image, `[n, c, h, w]`.
    pub image: [usize; 4],
    /// Shape of the kernel, `[o, c/groups, kh, kw]`.
    pub kernel: [usize; 4],
    /// Shape of the output, `[n, o, oh, ow]`.
    pub out: [usize; 4],
    /// Element strides of the image, of any sign; 0 repeats.
    pub image_strides: [isize; 4],
    /// Element strides of the kernel, of any sign; 0 repeats.
    pub kernel_strides: [isize; 4],
    /// Element strides of the output; no two elements may share a place.
    pub out_strides: [isize; 4],
}

/// First elements of the operands, shared by the workers of one call.
pub(crate) struct ConvPointers<T> {
    pub image: *const T,
    pub kernel: *const T,
    pub out: *mut T,
    pub work: *mut T,
}

// SAFETY: only addresses; who follows them promises that tasks write to separate places.
unsafe impl<T> Sync for ConvPointers<T> {}

enum ConvMethod<T: 'static> {
    /// No tap meets these outputs.
    Zero,
    Im2col(Im2col<T>),
    Shift(Shift<T>),
    Plane(Plane<T>),
}

/// A planned convolution.
pub struct ConvPlan<T: Real> {
    parts: Vec<(Core, ConvMethod<T>)>,
}

impl<T: Real> ConvPlan<T> {
    /// Plans a convolution for this machine.
    pub fn new(spec: &ConvSpec) -> ConvPlan<T> {
        Self::with(spec, Isa::detect()).expect("the detected kernels are available")
    }

    /// Plans a convolution for one kind of kernels; `None` if this machine lacks them.
    pub fn with(spec: &ConvSpec, isa: Isa) -> Option<ConvPlan<T>> {
        let kernels = T::kernels(isa)?;
        let mut parts = Vec::new();
        if spec.out.contains(&0) {
            return Some(ConvPlan { parts });
        }
        let d = &spec.dims;
        let axis = |i: usize| {
            let sizes = (spec.out[2 + i], spec.image[2 + i], spec.kernel[2 + i]);
            Axis::phases(sizes, d.stride[i], d.padding[i].0, d.image_dilation[i], d.kernel_dilation[i])
        };
        for &y in &axis(0) {
            for &x in &axis(1) {
                let core = core(spec, y, x);
                let method = choose(kernels, &core);
                parts.push((core, method));
            }
        }
        Some(ConvPlan { parts })
    }

    /// Bytes of workspace [`ConvPlan::run`] needs with a team of `threads`.
    pub fn workspace_bytes(&self, threads: usize) -> usize {
        let elements = |(core, method): &(Core, ConvMethod<T>)| match method {
            ConvMethod::Zero => 0,
            ConvMethod::Im2col(m) => m.workspace(core, threads.max(1)),
            ConvMethod::Shift(m) => m.workspace(core, threads.max(1)),
            ConvMethod::Plane(m) => m.workspace(core, threads.max(1)),
        };
        let most = self.parts.iter().map(elements).max().unwrap_or(0);
        if most == 0 { 0 } else { most * size_of::<T>() + 64 }
    }

    /// Computes the convolution. Never allocates; the result does not depend on the team.
    ///
    /// # Safety
    /// `image`, `kernel` and `out` must be good for every element the plan's shapes and strides name, `out` must not
    /// overlap the inputs, and `workspace` must be good for `workspace_bytes(team.threads())` bytes, of any alignment.
    pub unsafe fn run(&self, team: &Team, image: *const T, kernel: *const T, out: *mut T, workspace: *mut u8) {
        let skip = if workspace.is_null() { 0 } else { workspace.align_offset(64) };
        let x = ConvPointers { image, kernel, out, work: workspace.wrapping_add(skip).cast() };
        for (core, method) in &self.parts {
            // SAFETY: the caller's promise.
            unsafe {
                match method {
                    ConvMethod::Zero => zero(core, team, &x),
                    ConvMethod::Im2col(m) => m.run(core, team, &x),
                    ConvMethod::Shift(m) => m.run(core, team, &x),
                    ConvMethod::Plane(m) => m.run(core, team, &x),
                }
            }
        }
    }
}

/// The dense convolution of one class of rows and columns.
fn core(spec: &ConvSpec, y: Axis, x: Axis) -> Core {
    let scaled = |s: [isize; 4], (y0, dy): (usize, usize), (x0, dx): (usize, usize)| {
        (y0 as isize * s[2] + x0 as isize * s[3], [s[0], s[1], s[2] * dy as isize, s[3] * dx as isize])
    };
    let (kernel_at, kernel) = scaled(spec.kernel_strides, y.tap_at, x.tap_at);
    let (out_at, out) = scaled(spec.out_strides, y.out_at, x.out_at);
    let groups = spec.dims.groups;
    Core {
        groups,
        n: spec.image[0],
        c: spec.kernel[1],
        o: spec.kernel[0] / groups,
        y,
        x,
        image: spec.image_strides,
        kernel_at,
        kernel,
        out_at,
        out,
    }
}

fn choose<T: Real>(kernels: &'static Kernels<T>, core: &Core) -> ConvMethod<T> {
    if core.terms() == 0 || core.y.size * core.x.size == 0 {
        return ConvMethod::Zero;
    }
    let (im2col, shift) = (Im2col::new(kernels, core), Shift::new(kernels, core));
    let plane = Plane::new(kernels, core);
    let (a, b) = (im2col.cost(core), shift.cost(core));
    match plane {
        Some(plane) if plane.cost(core) < a.min(b) => ConvMethod::Plane(plane),
        _ if b < a => ConvMethod::Shift(shift),
        _ => ConvMethod::Im2col(im2col),
    }
}

/// out = 0
///
/// # Safety
/// The output is inside its memory, as for the run it begins.
unsafe fn zero<T: Real>(core: &Core, team: &Team, x: &ConvPointers<T>) {
    team.run(core.n * core.groups, &|t| {
        let out = x.out.wrapping_offset(core.group(t % core.groups).2 + (t / core.groups) as isize * core.out[0]);
        for o in 0..core.o as isize {
            for i in 0..core.y.out as isize {
                for j in 0..core.x.out as isize {
                    // SAFETY: inside the output, by the promise to `run`.
                    unsafe { *out.offset(o * core.out[1] + i * core.out[2] + j * core.out[3]) = T::default() }
                }
            }
        }
    });
}
