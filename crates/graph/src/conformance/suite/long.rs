//! Products of long operands in `Tf32`, which executors may compute in scaled fp16. That has as many digits but a
//! smaller range, so every array must be scaled into it, and its product back.

use crate::conformance::suite::precisions::UNITS;
use crate::conformance::{Case, CaseBuilder, tolerance};
use crate::{Array, DType, Precision, Result, Tensor, gradient_or_zeros, nn};

/// Rows begin at multiples of 16 bytes in two bytes for each number, and fill tiles of whatever size or not.
const ROWS: usize = 256;
const NARROW: usize = 264;
const WIDE: usize = 272;

/// Products of operands that lie along the sum and across it, of ordinary numbers and of others, a network of them that learns, and layers of
/// numbers of all magnitudes. They are too large for [`check_all`](crate::conformance::check_all): the reference takes seconds for them.
///
/// ```
/// use bilevel_graph::conformance;
/// for case in conformance::long_products()? {
///     assert!(case.program.nodes.len() > 4 && case.name.ends_with("products in tf32"));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn long_products() -> Result<Vec<Case>> {
    let sizes = [ROWS, NARROW, WIDE];
    let none = [(NARROW + 5, f64::INFINITY), (2 * NARROW + 7, f64::NAN)];
    let cases = vec![
        products(("ordinary numbers", 4), sizes, [1.0, 1.0], &[])?,
        products(("ordinary numbers in rows that begin anywhere", 2), [270, 260, 301], [1.0, 1.0], &[])?,
        // One power of two cancels the other, though neither alone fits the range of a float and of fp16.
        products(("tiny and huge numbers", 2), sizes, [2f64.powi(-120), 2f64.powi(118)], &[])?,
        products(("nothing but zeros", 2), sizes, [0.0, 1.0], &[])?,
        products(("one that is large", 2), sizes, [1.0, 1.0], &[(0, 2f64.powi(24))])?,
        products(("numbers that are none", 2), sizes, [1.0, 1.0], &none)?,
        network()?,
        layer("ordinary numbers", [0, -4, 0, 0], Normed::No)?,
        layer("tiny numbers", [-60, 20, -40, 30], Normed::No)?,
        layer("huge numbers", [60, -64, 0, 50], Normed::No)?,
        layer("a large bias", [0, -10, 5, 0], Normed::No)?,
        layer("normalised numbers", [30, -34, 0, 10], Normed::Yes)?,
        layer("tiny normalised numbers", [-50, -20, -60, 30], Normed::Yes)?,
    ];
    Ok(cases.into_iter().map(|case| case.rounded(Precision::Tf32, UNITS * Precision::Tf32.unit())).collect())
}

/// Products Xᵀ·Y, Z·Xᵀ, Yᵀ·X and X·Zᵀ, for X of this many rows and columns, without the contributions of the first row
/// and column of X alone. Numbers of X and of the others are multiplied by these factors, and some of X are replaced.
fn products(
    (what, count): (&str, usize),
    [rows, narrow, wide]: [usize; 3],
    [of_x, of_others]: [f64; 2],
    replaced: &[(usize, f64)],
) -> Result<Case> {
    let mut case = CaseBuilder::new(7);
    let mut input = |name: &str, shape: [usize; 2], factor: f64, replaced: &[(usize, f64)]| -> Result<Tensor> {
        let mut values: Vec<f64> = case.dice.array(&shape, DType::F32)?.to_f64().iter().map(|x| x * factor).collect();
        replaced.iter().for_each(|&(place, number)| values[place] = number);
        Ok(case.given(name, Array::from_values(shape, &values, DType::F32)?))
    };
    let x = input("x", [rows, narrow], of_x, replaced)?;
    let (y, z) = (input("y", [rows, wide], of_others, &[])?, input("z", [wide, narrow], of_others, &[])?);
    let results: [Tensor; 4] = [
        x.t().matmul(y).slice(0, 1, narrow),
        z.matmul(x.t()).slice(1, 1, rows),
        y.t().matmul(x).slice(1, 1, narrow),
        x.matmul(z.t()).slice(0, 1, rows),
    ];
    case.outputs(results.into_iter().take(count), tolerance(DType::F32));
    case.build(format!("long products of {what}"), 1)
}

/// A normalisation, two dense layers and a loss, whose weights descend for two steps. Operands are constant inputs,
/// changing weights, and results of loops over elements, rows and columns.
fn network() -> Result<Case> {
    let mut case = CaseBuilder::new(8);
    let mut input = |name: &str, shape: &[usize]| case.input(name, shape, DType::F32);
    let (x, gain) = (input("x", &[ROWS, NARROW])?, input("gain", &[NARROW])?);
    let (first, bias) = (input("first", &[NARROW, WIDE])?, input("bias", &[WIDE])?);
    let second = input("second", &[WIDE, NARROW])?;
    let zeros = case.g.constant(0.0, [NARROW], DType::F32);
    let repeated = |row: Tensor, length: usize| row.broadcast([1], [ROWS, length]);
    let hidden = nn::gelu(nn::layer_norm(x, gain, zeros, 1e-6).matmul(first) * 0.1 + repeated(bias, WIDE));
    let loss = (x.matmul(first).tanh().mean_all()) + (hidden.matmul(second) * 0.1).square().mean_all();
    let weights = [gain, first, bias, second];
    let slopes = gradient_or_zeros(loss, &weights)?;
    let near = tolerance(DType::F32);
    case.output(loss, near);
    for (weight, slope) in weights.into_iter().zip(slopes) {
        case.output(slope * ROWS as f64, near);
        case.carry(weight, weight - slope * ROWS as f64, near);
    }
    case.build("a network of long products", 2)
}

/// Whether rows are normalised first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Normed {
    No,
    Yes,
}

/// A GELU between two products with its derivatives. The numbers of x (or of the gains to which rows of x are
/// normalised), both weights and the bias are multiplied by these powers of two. An executor may bound the numbers
/// between the products beforehand, and scale them by a power of two; the bound should not be far off. Results are
/// scaled back to ordinary numbers.
fn layer(what: &str, [of_x, of_first, of_bias, of_second]: [i32; 4], normed: Normed) -> Result<Case> {
    let mut case = CaseBuilder::new(9);
    let mut input = |name: &str, shape: &[usize], power: i32| -> Result<Tensor> {
        let values = case.dice.array(shape, DType::F32)?.to_f64();
        let values: Vec<f64> = values.iter().map(|value| value * 2f64.powi(power)).collect();
        Ok(case.given(name, Array::from_values(shape, &values, DType::F32)?))
    };
    let x = input("x", &[ROWS, NARROW], of_x)?;
    let (gain, offset) = (input("gain", &[NARROW], of_x)?, input("offset", &[NARROW], of_x)?);
    let (first, bias) = (input("first", &[NARROW, WIDE], of_first)?, input("bias", &[WIDE], of_bias)?);
    let (second, slope) = (input("second", &[WIDE, NARROW], of_second)?, input("slope", &[ROWS, NARROW], 0)?);
    let rows = if normed == Normed::Yes { nn::layer_norm(x, gain, offset, 0.0) } else { x };
    let hidden = nn::gelu(rows.matmul(first) + bias.broadcast([1], [ROWS, WIDE]));
    let result = hidden.matmul(second);
    let slopes = gradient_or_zeros((result * slope).sum_all(), &[rows, first, second])?;
    // The GELU of a tiny number is half of it.
    let between = of_bias.max(of_x + of_first);
    let powers = [between + of_second, of_second + of_first, of_x + of_second, between];
    let scaled = [result].into_iter().chain(slopes).zip(powers).map(|(value, power)| value * 2f64.powi(-power));
    case.outputs(scaled, tolerance(DType::F32));
    case.build(format!("a layer of long products of {what}"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::agree;

    #[test]
    fn an_executor_whose_numbers_have_the_range_of_halves_is_found_out() {
        let in_range = |x: f64| match x.abs() {
            large if large > 65504.0 => x * f64::INFINITY,
            small if small < 2f64.powi(-25) => 0.0,
            _ => x,
        };
        let is_right = |case: &Case| {
            let mut short = case.clone();
            for (_, input) in &mut short.inputs {
                let values: Vec<f64> = input.to_f64().into_iter().map(in_range).collect();
                *input = Array::from_values(input.shape(), &values, DType::F32).unwrap();
            }
            agree(&short.expected().unwrap(), &case.expected().unwrap(), &case.tolerances).is_ok()
        };
        let sizes = [16, 16, 16];
        let tiny = products(("tiny and huge numbers", 2), sizes, [2f64.powi(-120), 2f64.powi(118)], &[]).unwrap();
        let ordinary = products(("ordinary numbers", 2), sizes, [1.0, 1.0], &[]).unwrap();
        let program = tiny.program.with_precision(Precision::Tf32);
        assert!(is_right(&ordinary) && !is_right(&Case { program, ..tiny }));
    }
}
