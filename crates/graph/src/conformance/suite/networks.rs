//! Parts of networks for which executors may have special methods: pools, overlapping pieces of images, reductions over
//! parts of rows and over rows, short rows of tables, and two losses of one network.

use crate::conformance::suite::leaves::leaves;
use crate::conformance::suite::rows::columns::columns_of_rows;
use crate::conformance::suite::rows::parts::parts_of_rows;
use crate::conformance::suite::rows::short::short_rows;
use crate::conformance::{Case, Dice, tolerance};
use crate::nn::Pool2d;
use crate::shape::element_count;
use crate::{Array, DType, Graph, Program, Result, Tensor, gradient, nn, vjp};

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
    let g = Graph::new();
    let variables = [g.input("x", first, dtype), g.input("w", second, dtype)];
    let result = function(variables[0], variables[1]).check()?;
    let loss = (result * 0.5).sin().sum_all();
    let slopes = gradient(loss, &variables)?;
    let (of, directions): (Vec<_>, Vec<_>) =
        slopes.iter().zip(variables).filter_map(|(s, x)| Some(((*s)?, x.cos()))).unzip();
    let second = vjp(&of, &directions, &variables)?;
    let mut builder = Program::builder(&g).keep_input(variables[1]).output("result", result);
    for (number, &made) in of.iter().chain(second.iter().flatten()).enumerate() {
        builder = builder.output(format!("derivative {number}"), made);
    }
    let program = builder.build()?;
    let mut dice = Dice::new(seed);
    let tolerances = vec![tolerance(dtype); program.outputs.len()];
    let inputs = variables.iter().zip(["x", "w"]).map(|(x, name)| Ok((name.into(), dice.array(&x.shape(), dtype)?)));
    Ok(Case { name, tolerances, inputs: inputs.collect::<Result<_>>()?, program, steps: 1 })
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

/// A small network with the gradients of two losses at the same weights.
fn two_losses(dtype: DType) -> Result<Case> {
    let g = Graph::new();
    let shapes: [&[usize]; 4] = [&[6, 1, 3, 3], &[54, 16], &[16], &[16, 4]];
    let names = ["kernel", "hidden", "gain", "head"];
    let weights: Vec<Tensor> = names.iter().zip(shapes).map(|(name, shape)| g.input(*name, shape, dtype)).collect();
    let sums: Vec<Tensor> =
        names.iter().zip(shapes).map(|(name, shape)| g.input(format!("sum of {name}"), shape, dtype)).collect();
    let loss = |set: &str| {
        let (images, labels) = (g.input(format!("images {set}"), [40, 1, 8, 8], dtype), format!("labels {set}"));
        let at = g.input(format!("at {set}"), [10], DType::I32);
        let seen = nn::conv2d(images.take(at), weights[0], None, nn::Conv2d::default());
        let seen = nn::max_pool2d(nn::relu(seen), Pool2d::of([2, 2])).reshape([10, 54]);
        let hidden = nn::layer_norm(seen.matmul(weights[1]), weights[2], weights[2] * 0.1, 1e-3);
        nn::cross_entropy(nn::gelu(hidden).matmul(weights[3]), g.input(labels, [40], DType::I32).take(at))
    };
    let (training, validation) = (loss("to train on") * 3.0, loss("to validate on"));
    let (down, other) = (gradient(training, &weights)?, gradient(validation, &weights)?);
    let mut builder = Program::builder(&g).output("training", training).output("validation", validation);
    for (i, (down, other)) in down.into_iter().zip(other).enumerate() {
        let (Some(down), Some(other)) = (down, other) else { continue };
        builder = builder.carry(weights[i], weights[i] - down * 0.01).carry(sums[i], sums[i] + other);
    }
    let program = builder.build()?;
    let mut dice = Dice::new(5);
    let value = |port: &crate::Port| {
        let made = match port.meta.dtype {
            DType::I32 => {
                let below = if port.name.starts_with("at") { 40 } else { 4 };
                let numbers = (0..element_count(&port.meta.shape)).map(|_| dice.below(below) as i32).collect();
                Array::from_i32(&port.meta.shape, numbers)?
            }
            dtype => dice.array(&port.meta.shape, dtype)?,
        };
        Ok((port.name.clone(), made))
    };
    let inputs = program.inputs.iter().map(value).collect::<Result<_>>()?;
    let tolerances = vec![tolerance(dtype); program.outputs.len() + program.carries.len()];
    Ok(Case { name: format!("two losses of one network in {dtype}"), tolerances, inputs, program, steps: 3 })
}
