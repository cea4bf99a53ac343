//! A loss that is learned: eight coefficients λ of a polynomial in the probabilities p of AlexNet and the labels y, one-hot
//! (TaylorGLO), so chosen that training with it lowers the cross entropy on other images.
//!
//!   q = p − λ₁,  o = y − λ₀
//!   L_T = −mean of λ₂q + λ₃q²/2 + λ₄q³/6 + λ₅qo + λ₆q²o/2 + λ₇qo²/2

use super::deep::Outer;
use crate::case::Start::{Labels, Uniform};
use crate::error::Result;
use crate::values::array;
use bilevel::graph::nn;
use bilevel::{DType, HpoSgld, Leaf, Problem, Tensor, Variable};
use bilevel_graph::Precision;
use bilevel_models::AlexNetConfig;

/// Eight steps, then two that are kept, without noise.
pub const METHOD: HpoSgld = HpoSgld { burn_in: 8, samples: 2, step: 0.01, temperature: 0.0, noise_scale: 0.0 };
/// Images of a step.
pub const BATCH: usize = 32;

/// The network of the peer.
pub fn network() -> AlexNetConfig {
    AlexNetConfig::with_small_kernels(10)
}

/// Every step trains on images of its own and is judged on others, all of which come up once in an outer iteration.
pub fn learned_loss(
    config: &AlexNetConfig,
    batch: usize,
    method: HpoSgld,
    (dtype, precision): (DType, Precision),
) -> Result<Outer> {
    let rows = batch * (method.burn_in + method.samples);
    let ([height, width], classes) = (config.image, config.classes);
    let images = |number| array(&[rows, config.channels, height, width], dtype, Uniform(1.7), (number, 0));
    let labels = || array(&[rows], DType::I32, Labels(classes), (0, 0));
    let problem = Problem::new(Leaf(Variable::constant([8], 0.5)), config.build()?)
        .dtype(dtype)
        .precision(precision)
        .data("x", images(0)?)
        .data("y", labels()?)
        .data("xv", images(1)?)
        .data("yv", labels()?)
        .inner(move |s, l, net| {
            let rows = s.epochs(rows, batch);
            let probabilities = nn::softmax(net.forward(s.data("x").take(rows)), 1);
            polynomial(l.0, probabilities, nn::one_hot(s.data("y").take(rows), classes, dtype))
        })
        .outer(move |s, _, net| {
            let rows = s.epochs(rows, batch);
            nn::cross_entropy(net.forward(s.data("xv").take(rows)), s.data("yv").take(rows))
        });
    Ok(Outer { problem: problem.build()?.erase(), method: method.into() })
}

fn polynomial(coefficients: Tensor, probabilities: Tensor, labels: Tensor) -> Tensor {
    let [l0, l1, l2, l3, l4, l5, l6, l7] = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| coefficients.index(0, i));
    let (q, o) = (probabilities - l1, labels - l0);
    let (square, product) = (q * q, q * o);
    let sum = l2 * q + l3 / 2.0 * square + l4 / 6.0 * (square * q) + l5 * product + l6 / 2.0 * (product * q);
    -(sum + l7 / 2.0 * (product * o)).mean_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::deep::tests::assert_derivatives;
    use bilevel_models::alexnet::LayerConfig;

    #[test]
    fn the_loss_is_the_polynomial_of_its_coefficients() {
        let g = bilevel_graph::Graph::new();
        let [l, p, y] = [("l", 8), ("p", 1), ("y", 1)].map(|(name, n)| g.input(name, [n], DType::F64));
        let coefficients = [0.3, -0.2, 1.1, 0.7, -0.4, 0.9, 1.3, -0.6];
        let (q, o) = (0.8f64 - -0.2, 1.0f64 - 0.3);
        let [_, _, l2, l3, l4, l5, l6, l7] = coefficients;
        let sum = l2 * q + l3 / 2.0 * q * q + l4 / 6.0 * q.powi(3) + l5 * q * o;
        let expected = -(sum + l6 / 2.0 * q * q * o + l7 / 2.0 * q * o * o);
        let at = |values: &[f64]| bilevel::Array::from_f64([values.len()], values.to_vec()).unwrap();
        let point = [(l, at(&coefficients)), (p, at(&[0.8])), (y, at(&[1.0]))];
        let found = bilevel_graph::Reference::evaluate(&g, &point, &[polynomial(l, p, y)]).unwrap();
        assert!((found[0].item().unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn one_step_has_the_derivative_of_its_training() {
        let features = vec![LayerConfig::same(3, 3, true), LayerConfig::same(4, 3, false)];
        let config = AlexNetConfig { image: [8, 8], channels: 2, features, hidden: vec![5], classes: 3 };
        let once = HpoSgld { burn_in: 0, samples: 1, ..METHOD };
        assert_derivatives(&learned_loss(&config, 4, once, (DType::F64, Precision::Full)).unwrap(), 1e-8);
    }
}
