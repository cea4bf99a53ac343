//! A learned loss: eight coefficients λ of a polynomial in the probabilities p of AlexNet and the one-hot labels y
//! (TaylorGLO). Training with it should lower the cross entropy on other images.

use super::deep::Outer;
use crate::cases::case::Start::{Labels, Uniform};
use crate::cases::values::array;
use crate::error::Result;
use bilevel::graph::nn;
use bilevel::methods::HpoSgld;
use bilevel::{DType, InnerLoop, Leaf, Problem, Variable};
use bilevel_graph::Precision;
use bilevel_models::AlexNetConfig;
use bilevel_tasks::learned_loss::polynomial;

/// Eight steps, then two that are kept, without noise.
pub const METHOD: (HpoSgld, InnerLoop) =
    (HpoSgld {}, InnerLoop { burn_in: 8, noise_scale: 0.0, ..InnerLoop::new(0.01, 10) });
/// Images of a step.
pub const BATCH: usize = 32;

/// The network of the peer.
pub fn network() -> AlexNetConfig {
    AlexNetConfig::with_small_kernels(10)
}

/// Every step trains on different images and is judged on others; each image is used once in an outer iteration.
pub fn learned_loss(
    config: &AlexNetConfig,
    batch: usize,
    method: (HpoSgld, InnerLoop),
    (dtype, precision): (DType, Precision),
) -> Result<Outer> {
    let rows = batch * method.1.steps;
    let ([height, width], classes) = (config.image, config.classes);
    let images = |number| array(&[rows, config.channels, height, width], dtype, Uniform(1.7), (number, 0));
    let labels = || array(&[rows], DType::I32, Labels(classes), (0, 0));
    let problem = Problem::builder(Leaf(Variable::constant([8], 0.5)), config.build()?)
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
    Ok(Outer { problem: problem.build()?.erase(), method: method.0.into(), inner: method.1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::deep::tests::assert_derivatives;
    use bilevel_models::alexnet::LayerConfig;

    #[test]
    fn one_step_has_the_derivative_of_its_training() {
        let features = vec![LayerConfig::same(3, 3, true), LayerConfig::same(4, 3, false)];
        let config = AlexNetConfig { image: [8, 8], channels: 2, features, hidden: vec![5], classes: 3 };
        let once = (METHOD.0, InnerLoop { burn_in: 0, steps: 1, ..METHOD.1 });
        assert_derivatives(&learned_loss(&config, 4, once, (DType::F64, Precision::Full)).unwrap(), 1e-8);
    }
}
