//! MAML on Conv4, exact: every task trains a separate network from λ, and λ moves by the derivative through all of it.
//!
//!   θ⁰\[t\] = λ,   θᵐ⁺¹\[t\] = θᵐ\[t\] − γ·∇L_t(θᵐ\[t\]),   f = mean over tasks of the loss of θᵀ\[t\] on the task's queries
//!
//! The tasks are one θ with an axis of tasks in front. The inner loss is the sum of theirs, so that each moves by its own gradient.

use super::deep::Outer;
use crate::cases::case::Start::{Labels, Uniform};
use crate::cases::values::array;
use crate::error::Result;
use bilevel::graph::nn;
use bilevel::methods::Rmd;
use bilevel::{DType, InnerLoop, Problem};
use bilevel_graph::Precision;
use bilevel_models::{Conv4, Conv4Config, for_tasks, same_for_tasks};

/// Sizes of the case.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Tasks of one outer iteration.
    pub tasks: usize,
    /// Height and width of the images, in one colour.
    pub side: usize,
    /// Channels of every convolution.
    pub width: usize,
    /// Classes of a task, with one image each to learn from.
    pub ways: usize,
    /// Images of each class on which a task is judged.
    pub queries: usize,
}

/// The sizes of the peer.
pub const FULL: Sizes = Sizes { tasks: 32, side: 28, width: 64, ways: 5, queries: 15 };
/// Five steps, everything kept.
const METHOD: (Rmd, InnerLoop) = (
    Rmd { storage: bilevel::methods::Storage::All },
    InnerLoop { noise_scale: 0.0, optimizer: bilevel::optimizers::InnerOptimizer::Sgd, ..InnerLoop::new(0.4, 5) },
);

/// All tasks side by side.
pub fn maml(sizes: Sizes, dtype: DType, precision: Precision) -> Result<Outer> {
    let Sizes { tasks, side, ways, queries, .. } = sizes;
    let start = network(sizes)?;
    let images = |each: usize, number| array(&[tasks, each, 1, side, side], dtype, Uniform(1.7), (number, 0));
    let labels = |each: usize| array(&[tasks, each], DType::I32, Labels(ways), (0, 0));
    let theta = for_tasks(&start, tasks);
    let problem = Problem::builder(start, theta)
        .dtype(dtype)
        .precision(precision)
        .data("x", images(ways, 0)?)
        .data("y", labels(ways)?)
        .data("xq", images(ways * queries, 1)?)
        .data("yq", labels(ways * queries)?)
        .start(move |_, start| same_for_tasks(start, tasks))
        .inner(move |s, _, nets| nn::cross_entropy(nets.forward_tasks(s.data("x")), s.data("y")) * tasks as f64)
        .outer(|s, _, nets| nn::cross_entropy(nets.forward_tasks(s.data("xq")), s.data("yq")));
    Ok(Outer { problem: problem.build()?.erase(), method: METHOD.0.into(), inner: METHOD.1 })
}

/// The network that tasks start from.
fn network(sizes: Sizes) -> Result<Conv4<bilevel::Variable>> {
    let Sizes { side, width, ways, .. } = sizes;
    Ok(Conv4Config { image: [side, side], channels: 1, width, classes: ways, normalised: true }.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::deep::tests::{assert_near, hypergradient};
    use bilevel_models::Statistics;

    /// Task `task` by itself, through the network for one.
    fn alone(sizes: Sizes, task: usize) -> Outer {
        let Sizes { tasks, side, ways, queries, .. } = sizes;
        let own = |each: usize, number| {
            let all = array(&[tasks, each, 1, side, side], DType::F64, Uniform(1.7), (number, 0)).unwrap().to_f64();
            let size = each * side * side;
            bilevel::Array::from_f64([each, 1, side, side], all[task * size..(task + 1) * size].to_vec()).unwrap()
        };
        let labels = |each: usize| array(&[each], DType::I32, Labels(ways), (0, 0)).unwrap();
        let start = || network(sizes).unwrap();
        let problem = Problem::builder(start(), start())
            .data("x", own(ways, 0))
            .data("y", labels(ways))
            .data("xq", own(ways * queries, 1))
            .data("yq", labels(ways * queries))
            .start(|_, start| start.clone())
            .inner(|s, _, net| nn::cross_entropy(net.forward(s.data("x"), Statistics::Batch), s.data("y")))
            .outer(|s, _, net| nn::cross_entropy(net.forward(s.data("xq"), Statistics::Batch), s.data("yq")));
        Outer { problem: problem.build().unwrap().erase(), method: METHOD.0.into(), inner: METHOD.1 }
    }

    #[test]
    fn tasks_side_by_side_have_the_mean_of_their_hypergradients() {
        let sizes = Sizes { tasks: 3, side: 16, width: 4, ways: 3, queries: 2 };
        let found = hypergradient(&maml(sizes, DType::F64, Precision::Full).unwrap());
        let each: Vec<(Vec<f64>, f64)> = (0..3).map(|task| hypergradient(&alone(sizes, task))).collect();
        let expected: Vec<f64> =
            (0..found.0.len()).map(|i| each.iter().map(|(h, _)| h[i]).sum::<f64>() / 3.0).collect();
        assert_near(&found.0, &expected, 1e-8);
        assert_near(&[found.1], &[each.iter().map(|(_, loss)| loss).sum::<f64>() / 3.0], 1e-8);
    }
}
