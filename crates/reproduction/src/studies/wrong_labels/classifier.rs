//! The classifier that every way is judged by: linear, trained from weights 0 on rows that count alike, and tested.
//!
//!   L = mean cross entropy + decay·‖w‖²

use super::learned::softmax;
use bilevel::graph::nn::cross_entropy;
use bilevel::optimizers::Momentum;
use bilevel::{Array, DType, InnerLoop, Leaf, Problem, Result, Variable};
use bilevel_run::Place;
use bilevel_tasks::digits::{CLASSES, Digits, PIXELS, SHAPE};

/// The step of momentum, and its number.
const STEP: f64 = 0.3;
const STEPS: usize = 400;

/// The weights after training on these digits.
pub fn trained(digits: &Digits, decay: f64, place: &Place) -> Result<Array> {
    let problem = Problem::builder(Leaf(Variable::constant([], decay)), Leaf(Variable::constant(SHAPE, 0.0)))
        .dtype(DType::F32)
        .data("x", digits.x()?)
        .data("y", digits.y()?)
        .inner(|s, l, t| cross_entropy(s.data("x").matmul(t.0), s.data("y")) + l.0 * t.0.square().sum_all())
        .outer(|s, _, t| cross_entropy(s.data("x").matmul(t.0), s.data("y")))
        .build()?;
    let decay = Leaf(Array::full([], decay, DType::F32));
    let inner = InnerLoop { optimizer: Momentum::default().into(), ..InnerLoop::new(STEP, STEPS) };
    let training = problem.train(&decay).inner(inner).executor(place.executor.clone());
    Ok(training.stop_signal(place.signal.clone()).run()?.theta.0)
}

/// The probabilities of the classes, digit by digit.
pub fn probabilities(digits: &Digits, weights: &Array) -> Vec<Vec<f64>> {
    let weights = weights.to_f64();
    let one = |digit: &[f32]| {
        let mut logits = vec![0.0; CLASSES];
        for (&pixel, row) in digit.iter().zip(weights.chunks_exact(CLASSES)) {
            logits.iter_mut().zip(row).for_each(|(logit, weight)| *logit += f64::from(pixel) * weight);
        }
        softmax(&logits)
    };
    digits.pixels.chunks_exact(PIXELS).map(one).collect()
}

/// The most probable class of each digit.
pub fn classes(digits: &Digits, weights: &Array) -> Vec<i32> {
    let largest = |p: Vec<f64>| (0..CLASSES).max_by(|a, b| p[*a].total_cmp(&p[*b])).unwrap_or(0) as i32;
    probabilities(digits, weights).into_iter().map(largest).collect()
}
