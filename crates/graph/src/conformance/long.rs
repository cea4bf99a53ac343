//! Products of long operands in `Tf32`, which executors may compute in ways of their own: in halves, for instance, which have as many digits
//! but a smaller range, so that every array must be brought into it and its product out of it again.

use super::{Case, Dice, tolerance};
use crate::{Array, DType, Graph, Program, Result, Tensor, gradient_or_zeros, nn};

/// Rows begin at multiples of 16 bytes in two bytes for each number, and fill tiles of whatever size or not.
const ROWS: usize = 264;
const NARROW: usize = 272;
const WIDE: usize = 312;

/// Products of operands that lie along the sum and across it, of ordinary numbers and of others, and a network of them that learns.
pub(super) fn long_products() -> Result<Vec<Case>> {
    let scaled = |factors: [f64; 2]| move |_: &mut Vec<f64>, operand: usize| factors[operand];
    let mut cases = vec![
        products("ordinary numbers", [ROWS, NARROW, WIDE], scaled([1.0, 1.0]))?,
        // Rows that begin anywhere.
        products("ordinary numbers in odd rows", [270, 260, 301], scaled([1.0, 1.0]))?,
        // One power of two undoes the other, though neither does alone what a float can hold with what halves want.
        products("tiny and huge numbers", [ROWS, NARROW, WIDE], scaled([2f64.powi(-120), 2f64.powi(118)]))?,
        products("nothing but zeros", [ROWS, NARROW, WIDE], scaled([0.0, 1.0]))?,
    ];
    // What it is multiplied with would cover the rest, and is left out.
    cases.push(products("one that is large", [ROWS, NARROW, WIDE], |values, operand| {
        if operand == 0 {
            values[0] = 2f64.powi(24);
        }
        1.0
    })?);
    cases.push(products("numbers that are none", [ROWS, NARROW, WIDE], |values, operand| {
        if operand == 0 {
            (values[NARROW + 5], values[2 * NARROW + 7]) = (f64::INFINITY, f64::NAN);
        }
        1.0
    })?);
    cases.push(network()?);
    Ok(cases)
}

/// Xᵀ·Y, Yᵀ·X, X·Zᵀ and Z·Xᵀ for X of so many rows and columns, without what the first row and column of X become alone. Numbers of X, and of
/// the others, are changed as is said, and multiplied by what is answered.
fn products(
    what: &str,
    [rows, narrow, wide]: [usize; 3],
    change: impl Fn(&mut Vec<f64>, usize) -> f64,
) -> Result<Case> {
    let (g, mut dice) = (Graph::new(), Dice::new(7));
    let (mut inputs, mut operands) = (vec![], vec![]);
    for (number, (name, shape)) in
        [("x", [rows, narrow]), ("y", [rows, wide]), ("z", [wide, narrow])].into_iter().enumerate()
    {
        let mut values = dice.array(&shape, DType::F32)?.to_f64();
        let factor = change(&mut values, number.min(1));
        values.iter_mut().for_each(|x| *x *= factor);
        operands.push(g.input(name, shape, DType::F32));
        inputs.push((name.to_string(), Array::from_values(shape, &values, DType::F32)?));
    }
    let [x, y, z] = operands[..] else { unreachable!("three operands") };
    let results: [Tensor; 4] = [
        x.t().matmul(y).slice(0, 1, narrow),
        y.t().matmul(x).slice(1, 1, narrow),
        x.matmul(z.t()).slice(0, 1, rows),
        z.matmul(x.t()).slice(1, 1, rows),
    ];
    let mut builder = Program::builder(&g);
    for (number, result) in results.into_iter().enumerate() {
        builder = builder.output(number.to_string(), result);
    }
    Ok(Case {
        name: format!("long products of {what}"),
        program: builder.build()?,
        inputs,
        steps: 1,
        tolerances: vec![tolerance(DType::F32); 4],
    })
}

/// A normalisation, two dense layers and a loss, whose weights follow its slope for two steps: operands are inputs that stay, weights that
/// change, and what loops over elements, rows and columns compute.
fn network() -> Result<Case> {
    let (g, mut dice) = (Graph::new(), Dice::new(8));
    let shapes = [
        ("x", vec![ROWS, NARROW]),
        ("gain", vec![NARROW]),
        ("first", vec![NARROW, WIDE]),
        ("bias", vec![WIDE]),
        ("second", vec![WIDE, NARROW]),
    ];
    let mut inputs = vec![];
    for (name, shape) in &shapes {
        inputs.push((name.to_string(), dice.array(shape, DType::F32)?));
    }
    let [x, gain, first, bias, second] = shapes.map(|(name, shape)| g.input(name, shape, DType::F32));
    let zeros = g.constant(0.0, [NARROW], DType::F32);
    let repeated = |row: Tensor, length: usize| row.broadcast([1], [ROWS, length]);
    let hidden = nn::gelu(nn::layer_norm(x, gain, zeros, 1e-6).matmul(first) * 0.1 + repeated(bias, WIDE));
    let loss = (x.matmul(first).tanh().mean_all()) + (hidden.matmul(second) * 0.1).square().mean_all();
    let weights = [gain, first, bias, second];
    let slopes = gradient_or_zeros(loss, &weights)?;
    let mut builder = Program::builder(&g).output("loss", loss);
    for (number, (weight, slope)) in weights.into_iter().zip(slopes).enumerate() {
        builder = builder.output(number.to_string(), slope * ROWS as f64).carry(weight, weight - slope * ROWS as f64);
    }
    Ok(Case {
        name: "a network of long products".into(),
        program: builder.build()?,
        inputs,
        steps: 2,
        tolerances: vec![tolerance(DType::F32); 9],
    })
}
