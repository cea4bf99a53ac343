//! The large networks of the GPU peers: one L1 weight for every parameter of a ViT, and the gradient of a Wide-ResNet.

use crate::cases::case::Start::{Labels, Uniform};
use crate::cases::case::{Case, Inputs};
use crate::error::Result;
use bilevel::graph::nn;
use bilevel::methods::{AnyMethod, HpoSgld, LangevinAdjoint};
use bilevel::{Array, DType, InnerLoop, Problem, Tree, Variable};
use bilevel_graph::{Graph, Precision};
use bilevel_models::{Statistics, VitConfig, WideResNetConfig};

/// Images of a batch.
const BATCH: usize = 8;
/// The start of every L1 weight.
const WEIGHT: f64 = 1e-4;
/// The step of λ.
pub const RATE: f64 = 0.01;

/// An outer loop: a problem and the method that solves it.
pub struct Outer {
    pub problem: Problem,
    pub method: AnyMethod,
    pub inner: InnerLoop,
}

/// HPO-SGLD with B = M = 5, as the peers run it.
pub fn l1reg(config: &VitConfig, precision: Precision) -> Result<Outer> {
    let method = (
        HpoSgld::default(),
        InnerLoop { burn_in: 5, noise_scale: 1e-6, ..InnerLoop::new(0.01, 10).at_temperature(0.001) },
    );
    Ok(Outer { problem: problem(config, precision)?, method: method.0.into(), inner: method.1 })
}

/// The Langevin adjoint over ten steps.
pub fn adjoint(config: &VitConfig, precision: Precision) -> Result<Outer> {
    let method =
        (LangevinAdjoint::default(), InnerLoop { noise_scale: 1e-6, ..InnerLoop::new(0.01, 10).at_temperature(0.001) });
    Ok(Outer { problem: problem(config, precision)?, method: method.0.into(), inner: method.1 })
}

/// Cross entropy of a ViT on eight images, with an L1 weight of at least 0 for every parameter in training.
fn problem(config: &VitConfig, precision: Precision) -> Result<Problem> {
    let theta = config.build()?;
    let lambda = theta.map(|leaf| Variable::constant(leaf.shape(), WEIGHT).at_least(0.0));
    let [height, width] = config.image;
    let count = BATCH * config.channels * height * width;
    let images = |shift: f32| {
        let values = (0..count).map(|i| ((i as f32 * 0.618).sin() * 1.4) + shift).collect();
        Array::from_f32([BATCH, config.channels, height, width], values)
    };
    let classes = config.classes as i32;
    let labels = Array::from_i32([BATCH], (0..BATCH as i32).map(|i| i % classes).collect())?;
    let problem = Problem::builder(lambda, theta)
        .dtype(DType::F32)
        .precision(precision)
        .data("x", images(0.0)?)
        .data("xv", images(1.0)?)
        .data("y", labels)
        .inner(|s, lambda, theta| {
            let loss = nn::cross_entropy(theta.forward(s.data("x")), s.data("y"));
            let weights = lambda.leaves().into_iter().zip(theta.leaves());
            weights.map(|(l, t)| (*l * t.abs()).sum_all()).fold(loss, |sum, term| sum + term)
        })
        .outer(|s, _, theta| nn::cross_entropy(theta.forward(s.data("xv")), s.data("y")));
    Ok(problem.build()?.erase())
}

/// WRN-28-10 on a batch of 128.
pub fn wide_resnet(g: &Graph, dtype: DType) -> Result<Case> {
    let mut inputs = Inputs::new(g, dtype);
    let net = inputs.model(&WideResNetConfig::new(28, 10, 100).build()?, |_| Uniform(0.05));
    let x = inputs.data(&[128, 3, 32, 32], Uniform(1.0));
    let y = inputs.data(&[128], Labels(100));
    let loss = nn::cross_entropy(net.forward(x, Statistics::Batch), y);
    Ok(inputs.case("wrn", loss))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use bilevel::{Cpu, Key, Method, Session};

    /// The first hypergradient on the CPU, and the outer loss.
    pub fn hypergradient(outer: &Outer) -> (Vec<f64>, f64) {
        let session = Session::new(&outer.problem, &Cpu::with_threads(1)).unwrap();
        let mut state = session.state(Key::from_seed(3)).unwrap();
        let mut estimator = outer.method.prepare_in(&session, &outer.inner).unwrap();
        let found = estimator.estimate(&mut state, Key::from_seed(4)).unwrap();
        (found.value.numbers().unwrap(), found.outer_loss)
    }

    /// Numbers that agree, relative to the largest of them.
    #[track_caller]
    pub fn assert_near(found: &[f64], expected: &[f64], tolerance: f64) {
        assert_eq!(found.len(), expected.len());
        let largest = expected.iter().fold(0f64, |most, number| most.max(number.abs()));
        let apart = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0f64, f64::max);
        assert!(largest > 0.0 && apart <= tolerance * largest, "{apart:e} apart, and the largest is {largest:e}");
    }

    /// The method finds the derivative of the training it makes, by differences of whole trainings.
    #[track_caller]
    pub fn assert_derivatives(outer: &Outer, tolerance: f64) {
        let check = outer.problem.check().executor(Cpu::with_threads(1)).method_with(outer.method.clone(), outer.inner);
        let report = check.seed(3).run().unwrap();
        let error = report.methods[0].training().unwrap().error;
        assert!(error <= tolerance, "{error:e}: {report}");
    }
}
