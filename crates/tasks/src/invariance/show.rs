//! λ as pictures: a digit, at the ends of each range and in views drawn from all of them.

use super::images::{Images, Matrix, Parts, seen};
use super::{GENERATORS, Invariance};
use crate::digits::Digits;
use bilevel::Key;
use bilevel::graph::random::fill_uniform_f64;
use bilevel_report::{Panel, Pictures, Section};
use bilevel_run::Context;
use bilevel_run::LambdaLeaf;

/// Places along each range.
const PLACES: [f64; 5] = [-1.0, -0.5, 0.0, 0.5, 1.0];
/// Views drawn from all ranges.
const VIEWS: usize = 10;

/// The sections of a run's page.
pub(super) fn sections(task: &Invariance, lambda: &[LambdaLeaf], context: &Context) -> Vec<Section> {
    let Some(ranges) = lambda.iter().find(|leaf| leaf.name == "ranges" && leaf.values.len() == 6) else {
        return vec![];
    };
    pictures(task, &ranges.values, context, "").map(Section::Pictures).into()
}

/// A digit along each range, and in views drawn from all of them.
pub fn pictures(task: &Invariance, ranges: &[f64], context: &Context, whose: &str) -> [Pictures; 2] {
    let (digit, side) = digit(task, context);
    transforms(&digit, side, ranges, whose)
}

/// A digit that looks different from each side: the first 4 of the training images, as the run sees them.
fn digit(task: &Invariance, context: &Context) -> (Vec<f32>, usize) {
    let of = |images: &Images| {
        let size = images.side * images.side;
        let number = images.labels.iter().position(|label| *label == 4)?;
        images.pixels.get(number * size..(number + 1) * size).map(|pixels| (pixels.to_vec(), images.side))
    };
    let parts = Parts::of(task.dataset, super::Transformation::None, 0.0, [0, 1], context).ok();
    parts.and_then(|parts| of(&parts.train)).unwrap_or_else(|| {
        let digits = Digits::all();
        (digits.pixels[4 * 64..5 * 64].to_vec(), 8)
    })
}

fn transforms(digit: &[f32], side: usize, ranges: &[f64], whose: &str) -> [Pictures; 2] {
    let panel = |title: String, numbers: [f64; 6]| {
        let values = seen(digit, side, exponential(numbers)).into_iter().map(f64::from).collect();
        Panel { title, rows: side, columns: side, values }
    };
    let mut along = vec![];
    for (i, name) in GENERATORS.iter().enumerate() {
        for place in PLACES {
            let mut numbers = [0.0; 6];
            numbers[i] = place * ranges[i];
            along.push(panel(format!("{name} {:.2}", numbers[i]), numbers));
        }
    }
    let mut draws = vec![0.0; 6 * VIEWS];
    fill_uniform_f64(Key::from_seed(0).words(), 0, 0, 0, &mut draws);
    let drawn = draws.chunks_exact(6).enumerate().map(|(n, draws)| {
        let mut numbers = [0.0; 6];
        numbers.iter_mut().zip(draws).zip(ranges).for_each(|((to, draw), range)| *to = (2.0 * draw - 1.0) * range);
        panel(format!("view {}", n + 1), numbers)
    });
    [
        Pictures { title: format!("{whose}A digit along the range of each generator"), panels: along },
        Pictures { title: format!("{whose}Views drawn from all ranges at once"), panels: drawn.collect() },
    ]
}

/// The exponential of Σ numbersᵢ·Gᵢ, as (1 + A/2ⁿ)^(2ⁿ) with the square of the first term.
pub(super) fn exponential([x, y, turn, wide, high, shear]: [f64; 6]) -> Matrix {
    let times = |a: [[f64; 3]; 3], b: [[f64; 3]; 3]| {
        let entry = |i: usize, j: usize| (0..3).map(|k| a[i][k] * b[k][j]).sum();
        [0, 1, 2].map(|i| [0, 1, 2].map(|j| entry(i, j)))
    };
    const SQUARINGS: i32 = 20;
    let part = [[wide, shear - turn, x], [shear + turn, high, y], [0.0; 3]]
        .map(|row| row.map(|a| a / f64::powi(2.0, SQUARINGS)));
    let square = times(part, part);
    let mut sum =
        [0, 1, 2].map(|i| [0, 1, 2].map(|j| part[i][j] + square[i][j] / 2.0 + if i == j { 1.0 } else { 0.0 }));
    for _ in 0..SQUARINGS {
        sum = times(sum, sum);
    }
    [sum[0], sum[1]]
}
