//! Parts of networks for which executors may have special methods: pools, overlapping pieces of images, reductions over
//! parts of rows and over rows, short rows of tables. Also many arrays of several sizes, and two losses of one network.

use crate::conformance::suite::rows::columns::columns_of_rows;
use crate::conformance::suite::rows::parts::parts_of_rows;
use crate::conformance::suite::rows::short::short_rows;
use crate::conformance::{Case, CaseBuilder, tolerance};
use crate::nn::Pool2d;
use crate::{DType, Result, Tensor, gradient, nn, vjp};

/// Pools and patches with their gradients, and products with their second derivatives. Reductions over parts of rows
/// and over rows, short rows of tables, and many arrays of several sizes. Three steps of training by one loss, while
/// the gradients of another one are summed.
///
/// ```
/// use bilevel_graph::{DType, Reference, conformance};
/// for case in conformance::networks(DType::F64)? {
///     case.check(&Reference)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn networks(dtype: DType) -> Result<Vec<Case>> {
    let overlapping = Pool2d { stride: [2, 2], ..Pool2d::of([3, 3]) };
    let windows = [Pool2d::of([2, 2]), Pool2d::of([3, 2]), overlapping, Pool2d { padding: [1, 1], ..overlapping }];
    let shapes = [[2, 3, 8, 8], [4, 5, 7, 9], [1, 2, 28, 28]];
    let mut cases = vec![];
    for (number, shape) in shapes.into_iter().enumerate() {
        for (kind, windows) in windows.into_iter().enumerate() {
            let name = format!("largest of windows {kind} of {shape:?} in {dtype}");
            let pooled = |x: Tensor, _| nn::max_pool2d(x.sin(), windows);
            cases.push(derived(name, (&shape, &[1]), dtype, number as u64, pooled)?);
        }
        let name = format!("patches of {shape:?} in {dtype}");
        let kernel = [4, shape[1] * 9];
        cases.push(derived(name, (&shape, &kernel), dtype, number as u64, patches)?);
    }
    cases.extend(parts_of_rows(dtype)?);
    cases.extend(short_rows(dtype)?);
    cases.extend(columns_of_rows(dtype)?);
    cases.push(leaves(dtype)?);
    cases.push(two_losses(dtype)?);
    Ok(cases)
}

/// A function of two inputs with its derivatives.
fn derived(
    name: String,
    (first, second): (&[usize], &[usize]),
    dtype: DType,
    seed: u64,
    function: impl Fn(Tensor, Tensor) -> Tensor,
) -> Result<Case> {
    let mut case = CaseBuilder::new(seed);
    let variables = [case.input("x", first, dtype)?, case.input("w", second, dtype)?];
    let result = function(variables[0], variables[1]).check()?;
    let loss = (result * 0.5).sin().sum_all();
    let slopes = gradient(loss, &variables)?;
    let (of, directions): (Vec<_>, Vec<_>) =
        slopes.iter().zip(variables).filter_map(|(s, x)| Some(((*s)?, x.cos()))).unzip();
    let second = vjp(&of, &directions, &variables)?;
    case.outputs([result].into_iter().chain(of).chain(second.into_iter().flatten()), tolerance(dtype));
    case.build(name, 1)
}

/// A 3×3 convolution with zeros around the image, as a product of the kernel with overlapping pieces.
fn patches(x: Tensor, kernel: Tensor) -> Tensor {
    let [n, c, h, w] = [0, 1, 2, 3].map(|axis| x.dim(axis));
    let padded = x.pad(2, 1, 1).pad(3, 1, 1);
    let piece = |place: usize| {
        let (down, right) = (place / 3, place % 3);
        padded.slice(2, down, down + h).slice(3, right, right + w).unsqueeze([2])
    };
    let others: Vec<Tensor> = (1..9).map(piece).collect();
    let pieces = piece(0).concat(&others, 2).reshape([n, c * 9, h * w]);
    kernel.broadcast([1, 2], [&[n], &kernel.shape()[..]].concat()).matmul(pieces) * (1.0 / 9.0)
}

/// Numbers of elements: from one, over rows, to arrays shared by many blocks of threads.
const SIZES: [usize; 12] = [1, 7, 768, 40_000, 64, 768, 90_001, 300_000, 768, 2304, 40_000, 524_288];

/// Two steps of many arrays of several sizes, as of the leaves of a network: an executor may compute them at once. Each
/// has a norm, a largest element and a sum over all to which it is added in turn.
fn leaves(dtype: DType) -> Result<Case> {
    let (mut case, near) = (CaseBuilder::new(50), tolerance(dtype));
    let [mut squares, mut largest] = [case.g.constant(0.0, [], dtype); 2];
    for (number, size) in SIZES.into_iter().enumerate() {
        let (x, slope) =
            (case.input(format!("x.{number}"), [size], dtype)?, case.input(format!("slope.{number}"), [size], dtype)?);
        let next = x - slope * 0.25;
        squares = squares + (next - x).square().sum_all();
        largest = largest.maximum(next.abs().max([0]));
        case.carry(x, next, near);
        case.output(x.square().sum_all(), near);
    }
    case.outputs([squares, largest], near);
    case.build(format!("leaves of several sizes in {dtype}"), 2)
}

/// A small network with the gradients of two losses at the same weights.
fn two_losses(dtype: DType) -> Result<Case> {
    let (mut case, near) = (CaseBuilder::new(5), tolerance(dtype));
    let shapes: [(&str, &[usize]); 4] =
        [("kernel", &[6, 1, 3, 3]), ("hidden", &[54, 16]), ("gain", &[16]), ("head", &[16, 4])];
    let (mut weights, mut sums) = (vec![], vec![]);
    for (name, shape) in shapes {
        weights.push(case.input(name, shape, dtype)?);
        sums.push(case.input(format!("sum of {name}"), shape, dtype)?);
    }
    let mut loss = |set: &str| -> Result<Tensor> {
        let images = case.input(format!("images {set}"), [40, 1, 8, 8], dtype)?;
        let (labels, at) =
            (case.indices(format!("labels {set}"), [40], 4)?, case.indices(format!("at {set}"), [10], 40)?);
        let seen = nn::conv2d(images.take(at), weights[0], None, nn::Conv2d::default());
        let seen = nn::max_pool2d(nn::relu(seen), Pool2d::of([2, 2])).reshape([10, 54]);
        let hidden = nn::layer_norm(seen.matmul(weights[1]), weights[2], weights[2] * 0.1, 1e-3);
        Ok(nn::cross_entropy(nn::gelu(hidden).matmul(weights[3]), labels.take(at)))
    };
    let (training, validation) = (loss("to train on")? * 3.0, loss("to validate on")?);
    let (down, other) = (gradient(training, &weights)?, gradient(validation, &weights)?);
    case.outputs([training, validation], near);
    for (i, (down, other)) in down.into_iter().zip(other).enumerate() {
        let (Some(down), Some(other)) = (down, other) else { continue };
        case.carry(weights[i], weights[i] - down * 0.01, near);
        case.carry(sums[i], sums[i] + other, near);
    }
    case.build(format!("two losses of one network in {dtype}"), 3)
}
