//! Convolutions of networks, with both transposes and their derivatives: libraries specialise in these shapes.

use crate::conformance::{Case, CaseBuilder, tolerance};
use crate::{ConvDims, DType, Result, gradient, nn, vjp};

/// `[images, channels, results, height, width, kernel, stride, padding, dilation, groups]`.
type Shape = [usize; 10];

const SHAPES: [Shape; 14] = [
    [4, 3, 16, 12, 12, 3, 1, 1, 1, 1],
    [4, 16, 16, 8, 8, 3, 1, 1, 1, 1],
    [4, 16, 32, 8, 8, 3, 2, 1, 1, 1],
    [4, 16, 32, 9, 7, 3, 2, 1, 1, 1],
    [4, 16, 32, 8, 8, 1, 1, 0, 1, 1],
    [4, 16, 32, 8, 8, 1, 2, 0, 1, 1],
    [3, 5, 7, 10, 11, 5, 1, 2, 1, 1],
    [2, 8, 8, 11, 11, 3, 1, 2, 2, 1],
    [2, 8, 16, 8, 8, 3, 1, 1, 1, 4],
    [2, 16, 16, 8, 8, 3, 1, 1, 1, 16],
    [2, 16, 16, 9, 9, 5, 2, 2, 1, 16],
    [8, 4, 4, 14, 13, 3, 1, 1, 1, 4],
    [8, 4, 4, 27, 25, 3, 2, 1, 1, 4],
    [1, 32, 64, 4, 4, 4, 1, 0, 1, 1],
];

/// Images of which the largest in windows of this side are convolved; the last places of some are in no window.
const POOLED: [(usize, Shape); 4] = [
    (2, [4, 16, 32, 16, 16, 3, 1, 1, 1, 1]),
    (2, [2, 8, 12, 13, 11, 3, 1, 1, 1, 1]),
    (3, [3, 20, 24, 18, 15, 3, 2, 1, 1, 1]),
    (2, [2, 6, 5, 8, 10, 1, 1, 0, 1, 1]),
];

/// Each with its gradients with respect to image and kernel, and products with its second derivatives.
///
/// ```
/// use bilevel_graph::{DType, Reference, conformance};
/// for case in conformance::convolutions(DType::F64)? {
///     case.check(&Reference)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn convolutions(dtype: DType) -> Result<Vec<Case>> {
    let shapes = SHAPES.into_iter().map(|shape| (1, shape)).chain(POOLED);
    shapes.enumerate().map(|(number, (pool, shape))| convolution(number, pool, shape, dtype)).collect()
}

fn convolution(number: usize, pool: usize, shape: Shape, dtype: DType) -> Result<Case> {
    let [n, c, o, h, w, k, stride, padding, dilation, groups] = shape;
    let mut case = CaseBuilder::new(number as u64);
    let image = case.input("image", [n, c, h, w], dtype)?;
    let kernel = case.input("kernel", [o, c / groups, k, k], dtype)?;
    let side = (padding as i64, padding as i64);
    let dims = ConvDims {
        stride: [stride; 2],
        padding: [side; 2],
        image_dilation: [1; 2],
        kernel_dilation: [dilation; 2],
        groups,
    };
    let convolved = if pool > 1 { nn::max_pool2d(image, nn::Pool2d::of([pool; 2])) } else { image };
    let result = convolved.conv(kernel, dims).check()?;
    // Scaled to the size of one term, so that sums of many lose no more digits than sums of few.
    let loss = (result * (1.0 / (c / groups * k * k) as f64)).sin().sum_all();
    let variables = [image, kernel];
    let first: Vec<_> = gradient(loss, &variables)?.into_iter().flatten().collect();
    let directions: Vec<_> = variables.iter().map(|x| x.cos()).collect();
    let second = vjp(&first, &directions, &variables)?;
    case.outputs([result].into_iter().chain(first).chain(second.into_iter().flatten()), tolerance(dtype));
    let name = format!(
        "convolution of {n}x{c}x{h}x{w} with {k}x{k}, stride {stride}, {groups} groups, pool {pool}, in {dtype}"
    );
    case.build(name, 1)
}
