//! Convolution and transposed convolution of images.

use crate::ir::op::ConvDims;
use crate::nn::call::{Call, require};
use crate::tensor::Tensor;

/// Geometry of [`conv2d`], each pair by height and width.
///
/// ```
/// use bilevel_graph::nn::Conv2d;
/// let halving = Conv2d { stride: [2, 2], padding: [1, 1], ..Conv2d::default() };
/// assert_eq!((halving.dilation, halving.groups), ([1, 1], 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv2d {
    /// Step between output positions.
    pub stride: [usize; 2],
    /// Zeros on both sides.
    pub padding: [usize; 2],
    /// Spacing of kernel elements.
    pub dilation: [usize; 2],
    /// Number of channel groups, each convolved by its own kernels.
    pub groups: usize,
}

impl Default for Conv2d {
    fn default() -> Self {
        Conv2d { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

/// Σ x\[n, c, y·stride + ky·dilation − padding, …\]·w\[o, c, ky, kx\] + b\[o\] for x `[n, c, h, w]`, w `[o, c/groups, kh, kw]`
/// and b `[o]` or `None`.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let (x, w) = (g.constant(1.0, [1, 2, 3, 3], DType::F64), g.constant(1.0, [1, 2, 3, 3], DType::F64));
/// let y = nn::conv2d(x, w, None, nn::Conv2d { stride: [2, 2], padding: [1, 1], ..Default::default() });
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64(), [8.0; 4]);
/// ```
#[track_caller]
pub fn conv2d(x: Tensor, w: Tensor, b: impl Into<Option<Tensor>>, geometry: Conv2d) -> Tensor {
    let b = b.into();
    let operands: Vec<Tensor> = [x, w].into_iter().chain(b).collect();
    let call = Call::new("conv2d", &operands);
    let padding = geometry.padding.map(both_sides);
    let dims = ConvDims {
        stride: geometry.stride,
        padding,
        image_dilation: [1, 1],
        kernel_dilation: geometry.dilation,
        groups: geometry.groups,
    };
    let y = call.done(x.conv(w, dims));
    call.done(with_bias(&call, y, b))
}

/// Geometry of [`conv_transpose2d`], each pair by height and width.
///
/// ```
/// use bilevel_graph::nn::ConvTranspose2d;
/// let doubling = ConvTranspose2d { stride: [2, 2], ..ConvTranspose2d::default() };
/// assert_eq!(doubling.output_padding, [0, 0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvTranspose2d {
    /// Step between the kernels of neighbouring elements of the image.
    pub stride: [usize; 2],
    /// Elements taken off both sides of the result.
    pub padding: [usize; 2],
    /// Length added to the far side of the result; less than the stride or the dilation.
    pub output_padding: [usize; 2],
    /// Spacing of kernel elements.
    pub dilation: [usize; 2],
    /// Number of channel groups.
    pub groups: usize,
}

impl Default for ConvTranspose2d {
    fn default() -> Self {
        ConvTranspose2d { stride: [1, 1], padding: [0, 0], output_padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

/// The transpose of [`conv2d`]: every element x\[n, c, y, …\] adds x·w\[c, o, ky, kx\] to the result at
/// y·stride + ky·dilation − padding. For x `[n, c, h, w]`, w `[c, o/groups, kh, kw]` and b `[o]` or `None` the result is
/// `[n, o, h', w']` with h' = (h − 1)·stride − 2·padding + (kh − 1)·dilation + 1 + output_padding, as in PyTorch.
///
/// ```
/// use bilevel_graph::{DType, Graph, Reference, nn};
/// let g = Graph::new();
/// let (x, w) = (g.constant(1.0, [1, 1, 1, 2], DType::F64), g.constant(1.0, [1, 1, 1, 3], DType::F64));
/// let y = nn::conv_transpose2d(x, w, None, nn::ConvTranspose2d { stride: [1, 2], ..Default::default() });
/// assert_eq!(Reference::evaluate(&g, &[], &[y]).unwrap()[0].to_f64(), [1.0, 1.0, 2.0, 1.0, 1.0]);
/// ```
#[track_caller]
pub fn conv_transpose2d(x: Tensor, w: Tensor, b: impl Into<Option<Tensor>>, geometry: ConvTranspose2d) -> Tensor {
    let b = b.into();
    let operands: Vec<Tensor> = [x, w].into_iter().chain(b).collect();
    let call = Call::new("conv_transpose2d", &operands);
    let ConvTranspose2d { stride, padding, output_padding, dilation, groups } = geometry;
    require!(call, x.rank() == 4 && w.rank() == 4, "image [n, c, h, w] and kernel [c, o, kh, kw] need 4 axes");
    let (channels, out) = (w.dim(0), w.dim(1));
    let fits = (1..=channels.max(1)).contains(&groups) && x.dim(1) == channels && channels.is_multiple_of(groups);
    require!(call, fits, "{} channels and a kernel for {channels} do not fit {groups} groups", x.dim(1));
    let mut borders = [(0, 0); 2];
    for i in 0..2 {
        require!(call, stride[i] > 0 && dilation[i] > 0, "strides and dilations must be at least 1");
        let lengths = [stride[i], padding[i], output_padding[i], dilation[i], w.dim(2 + i)];
        require!(call, lengths.iter().all(|&n| n < 1 << 30), "strides, dilations or padding are too large");
        let small = output_padding[i] == 0 || output_padding[i] < stride[i].max(dilation[i]);
        require!(call, small, "output_padding must be smaller than the stride or the dilation");
        let reach = (dilation[i] * w.dim(2 + i).saturating_sub(1)) as i64 - padding[i] as i64;
        borders[i] = (reach, reach + output_padding[i] as i64);
    }
    // [c, o/groups, ..] to [o, c/groups, ..] group by group, and the kernel turned around.
    let (height, width) = (w.dim(2), w.dim(3));
    let swapped = if groups == 1 {
        w.transpose([1, 0, 2, 3])
    } else {
        let by_group = w.reshape([groups, channels / groups, out, height, width]);
        by_group.transpose([0, 2, 1, 3, 4]).reshape([groups * out, channels / groups, height, width])
    };
    let dims = ConvDims { stride: [1, 1], padding: borders, image_dilation: stride, kernel_dilation: dilation, groups };
    let y = call.done(x.conv(swapped.reverse([2, 3]), dims));
    call.done(with_bias(&call, y, b))
}

/// The same padding before and after; one beyond any image stays so.
pub(super) fn both_sides(padding: usize) -> (i64, i64) {
    let padding = i64::try_from(padding).unwrap_or(i64::MAX);
    (padding, padding)
}

/// y + b along the channels.
#[track_caller]
fn with_bias(call: &Call, y: Tensor, b: Option<Tensor>) -> Tensor {
    let Some(b) = b else { return y };
    require!(call, y.check().is_err() || b.shape() == [y.dim(1)], "the bias must have shape {:?}", [y.dim(1)]);
    y + b.reshape([b.len(), 1, 1])
}
