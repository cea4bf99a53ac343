//! The two transposes of a convolution, written as convolutions.
//!
//! Along one spatial axis, with image length I spread to Iₛ = (I−1)·image_dilation + 1, kernel K spread to
//! Kₛ = (K−1)·kernel_dilation + 1, and output O spread to Oₛ = (O−1)·stride + 1:
//!
//!   y\[o\] = Σₖ x\[o·stride + k·kernel_dilation − low\]·w\[k\]      (indices of the spread image)
//!
//! so for the image, x̄\[i·image_dilation\] = Σ over o·stride = i·image_dilation + low − k·kernel_dilation of ȳ\[o\]·w\[k\]:
//! a convolution of ȳ (image dilation = stride) with the reversed kernel, stride = image_dilation, low' = Kₛ − 1 − low.
//! And for the kernel, w̄\[k\] = Σₒ x\[k·kernel_dilation + o·stride − low\]·ȳ\[o\]: a convolution of x with ȳ as the kernel
//! (kernel dilation = stride), stride = kernel_dilation, the same low. The high padding makes the length come out right.

use crate::ir::conv_role::ConvRole;
use crate::ir::op::ConvDims;
use crate::tensor::Tensor;

/// Length of n elements spread by a dilation.
fn spread(n: usize, by: usize) -> i64 {
    (n as i64 - 1) * by as i64 + 1
}

/// Cotangent of the image.
pub(crate) fn conv_image(dims: &ConvDims, role: ConvRole, [x, w]: [Tensor; 2], g: Tensor) -> Tensor {
    let (groups, shape) = (dims.groups, w.shape());
    let (out, inner) = (shape[0], shape[1]);
    let swapped = if groups == 1 {
        w.transpose([1, 0, 2, 3])
    } else {
        w.reshape([groups, out / groups, inner, shape[2], shape[3]]).transpose([0, 2, 1, 3, 4]).reshape([
            groups * inner,
            out / groups,
            shape[2],
            shape[3],
        ])
    };
    let padding = |i: usize| {
        let image = spread(x.dim(2 + i), dims.image_dilation[i]);
        let kernel = spread(shape[2 + i], dims.kernel_dilation[i]);
        let output = spread(g.dim(2 + i), dims.stride[i]);
        let low = dims.padding[i].0;
        (kernel - 1 - low, image - output + low)
    };
    let transposed = ConvDims {
        stride: dims.image_dilation,
        padding: [padding(0), padding(1)],
        image_dilation: dims.stride,
        kernel_dilation: dims.kernel_dilation,
        groups,
    };
    correlate(g, swapped.reverse([2, 3]), transposed, role.of_image())
}

/// Cotangent of the kernel.
pub(crate) fn conv_kernel(dims: &ConvDims, role: ConvRole, [x, w]: [Tensor; 2], g: Tensor) -> Tensor {
    let (groups, shape) = (dims.groups, x.shape());
    let (batch, channels) = (shape[0], shape[1] / groups);
    // Channels become the batch and the batch becomes the contracted channels, group by group.
    let image = if groups == 1 {
        x.transpose([1, 0, 2, 3])
    } else {
        x.reshape([batch, groups, channels, shape[2], shape[3]]).transpose([2, 1, 0, 3, 4]).reshape([
            channels,
            groups * batch,
            shape[2],
            shape[3],
        ])
    };
    let padding = |i: usize| {
        let image = spread(shape[2 + i], dims.image_dilation[i]);
        let kernel = spread(w.dim(2 + i), dims.kernel_dilation[i]);
        let output = spread(g.dim(2 + i), dims.stride[i]);
        let low = dims.padding[i].0;
        (low, kernel - 1 - image - low + output)
    };
    let transposed = ConvDims {
        stride: dims.kernel_dilation,
        padding: [padding(0), padding(1)],
        image_dilation: dims.image_dilation,
        kernel_dilation: dims.stride,
        groups,
    };
    correlate(image, g.transpose([1, 0, 2, 3]), transposed, role.of_kernel()).transpose([1, 0, 2, 3])
}

/// A convolution with the larger of its operands as the image. The transposes of a transpose meet a small image under a
/// large kernel and a padding larger still; but a convolution does not care which of the two is moved:
///
///   o·stride = i·image_dilation − k·kernel_dilation + low, and with both reversed the roles of i and k change places,
///   low becoming low + (I−1)·image_dilation − (K−1)·kernel_dilation, and high likewise.
fn correlate(image: Tensor, kernel: Tensor, dims: ConvDims, role: ConvRole) -> Tensor {
    let larger = |i: usize| {
        let image = spread(image.dim(2 + i), dims.image_dilation[i]);
        spread(kernel.dim(2 + i), dims.kernel_dilation[i]) - image
    };
    let (down, across) = (larger(0), larger(1));
    if dims.groups != 1 || down + across <= 0 {
        return image.conv_in_role(kernel, dims, role);
    }
    let padding = |i: usize, larger: i64| (dims.padding[i].0 - larger, dims.padding[i].1 - larger);
    let exchanged = ConvDims {
        stride: dims.stride,
        padding: [padding(0, down), padding(1, across)],
        image_dilation: dims.kernel_dilation,
        kernel_dilation: dims.image_dilation,
        groups: 1,
    };
    kernel.reverse([2, 3]).conv_in_role(image.reverse([2, 3]), exchanged, role.exchanged()).transpose([1, 0, 2, 3])
}
