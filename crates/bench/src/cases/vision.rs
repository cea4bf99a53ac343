//! Two losses only compared with JAX, not timed: a residual block with batch norm, and images warped by exponentials of
//! matrices.

use crate::cases::case::Start::{Constant, Labels, Uniform};
use crate::cases::case::{Case, Inputs};
use crate::error::Result;
use bilevel_graph::{DType, Graph, nn};

/// conv-bn-relu-conv-bn + skip, relu, mean pool, linear, cross entropy: 16 channels, 14×14, 10 classes, batch 32.
pub fn residual(g: &Graph, dtype: DType) -> Result<Case> {
    let (n, c, side) = (32, 16, 14);
    let mut inputs = Inputs::new(g, dtype);
    let mut layer = || {
        let kernel = inputs.parameter(&[c, c, 3, 3], Uniform(0.2));
        (kernel, inputs.parameter(&[c], Constant(1.0)), inputs.parameter(&[c], Uniform(0.1)))
    };
    let (first, second) = (layer(), layer());
    let head = inputs.parameter(&[c, 10], Uniform(0.5));
    let head_bias = inputs.parameter(&[10], Uniform(0.1));
    let x = inputs.data(&[n, c, side, side], Uniform(1.0));
    let y = inputs.data(&[n], Labels(10));
    let geometry = nn::Conv2d { padding: [1, 1], ..nn::Conv2d::default() };
    let normalised =
        |x, (kernel, gain, bias)| nn::batch_norm(nn::conv2d(x, kernel, None, geometry), gain, bias, 1e-5).y;
    let h = nn::relu(normalised(nn::relu(normalised(x, first)), second) + x);
    let logits = nn::linear(h.mean([2, 3]), head, head_bias);
    Ok(inputs.case("residual", nn::cross_entropy(logits, y)))
}

/// Images warped by affine_grid(exp A), scaled by channel, mean squared distance to targets: 3×12×12, batch 8.
///
/// A is a generator `[2, 3]` with a third row of zeros; the warp is the first two rows of its exponential.
pub fn warp(g: &Graph, dtype: DType) -> Result<Case> {
    let (n, c, side) = (8, 3, 12);
    let mut inputs = Inputs::new(g, dtype);
    let generator = inputs.parameter(&[n, 2, 3], Uniform(0.3));
    let gain = inputs.parameter(&[c, 1, 1], Constant(1.0));
    let image = inputs.data(&[n, c, side, side], Uniform(1.0));
    let target = inputs.data(&[n, c, side, side], Uniform(1.0));
    let affine = nn::matrix_exponential(generator.pad(1, 0, 1)).slice(1, 0, 2);
    let warped = nn::grid_sample(image, nn::affine_grid(affine, [side, side], false), false);
    Ok(inputs.case("warp", nn::mse(warped * gain, target)))
}
