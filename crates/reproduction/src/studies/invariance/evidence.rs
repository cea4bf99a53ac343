//! The curvature of the training loss, as LILA (Immer et al., 2022) learns the ranges with it: by training images alone.
//!
//! A Laplace approximation of the marginal likelihood (`laplace.rs`) needs two factors for every layer, means over images:
//!
//!   A = mean of a·aᵀ,   G = mean of Σₖ gₖ·gₖᵀ
//!
//! a is the layer's input, averaged over views, with a 1 for its bias. In gₖ = Jᵀ·rₖ, J is the derivative of the logits
//! by the layer's output, summed over views. rₖ = √pₖ·(eₖ − p) has Σₖ rₖ·rₖᵀ = diag p − p·pᵀ, the second derivative of
//! the cross entropy. With multipliers C for them the outer loss is
//!
//!   f = cross entropy + Σ over layers of ⟨C_A, A⟩ + ⟨C_G, G⟩
//!
//! so ∂f/∂C are the factors. Once the multipliers are the slopes of its determinants, ∂f/∂λ is the full slope of the
//! marginal likelihood. θ is trained with the precisions of its prior: L_T = cross entropy + Σ δ‖θ‖²/(2N).

use bilevel::graph::nn::{cross_entropy, log_softmax};
use bilevel::splits::Part;
use bilevel::{Array, Problem, Result, Scope, Tensor, Tree, Variable};
use bilevel_models::{Linear, Mlp};
use bilevel_run::Context;
use bilevel_tasks::Invariance;
use bilevel_tasks::invariance::{ACCURACY, Judge, Parts, Views};

/// Layers of the network.
pub(super) const LAYERS: usize = 2;

/// λ, and the multipliers with which its slope is computed.
#[derive(Clone, Debug, Tree)]
#[tree(crate = "bilevel::graph")]
pub(super) struct Evidence<T> {
    /// As in [`Ranges`](bilevel_tasks::invariance::Ranges).
    pub ranges: T,
    /// log δ of each layer.
    pub log_precisions: T,
    /// The multipliers of the factors A and G of each layer.
    pub multipliers: Vec<T>,
}

/// The terms whose sums are the factors.
pub(super) struct Curvature {
    /// `[n, classes]`.
    pub logits: Tensor,
    /// a and g of each layer, in the order of the multipliers: `[n, inputs + 1]` and `[n, classes, outputs]`.
    pub rows: [Tensor; 2 * LAYERS],
}

impl Curvature {
    /// At images that are seen as `[n, views, pixels]` by a network with one hidden layer of tanh.
    pub fn of(seen: Tensor, first: &Linear<Tensor>, last: &Linear<Tensor>) -> Self {
        let hidden = first.forward(seen).tanh();
        let features = hidden.mean([1]);
        let logits = last.forward(features);
        let (count, classes) = (logits.dim(0), logits.dim(1));
        // √p via log p also has a derivative at p = 0.
        let log_p = log_softmax(logits, 1);
        let unit = logits.constant_like(0.0, [1, classes, classes]);
        let unit = unit.iota_like(1).equal(unit.iota_like(2));
        let roots =
            (unit - log_p.exp().reshape([count, 1, classes])) * (log_p * 0.5).exp().reshape([count, classes, 1]);
        let bends = (1.0 - hidden.square()).mean([1]).reshape([count, 1, hidden.dim(2)]);
        let with_one = |x: Tensor| x.concat(&[x.constant_like(1.0, [count, 1])], 1);
        let rows = [with_one(seen.mean([1])), roots.matmul(last.weight.t()) * bends, with_one(features), roots];
        Curvature { logits, rows }
    }

    /// Σ ⟨C, factor⟩.
    fn weighted(&self, multipliers: &[Tensor]) -> Tensor {
        let count = self.logits.dim(0);
        let mut sum = self.logits.constant_like(0.0, []);
        for (rows, multiplier) in self.rows.iter().zip(multipliers) {
            let width = multiplier.dim(0);
            let rows = rows.reshape([rows.len() / width, width]);
            sum = sum + (rows.matmul(*multiplier) * rows).sum_all() * (1.0 / count as f64);
        }
        sum
    }
}

/// The problem of a task whose ranges are learned by the marginal likelihood, and the number of its training images.
pub(super) fn evidence(task: &Invariance, context: &Context) -> Result<(Problem, usize)> {
    let task = Invariance { views: Views::Learned, judge: Judge::Training, held_out: 0.0, ..task.clone() };
    let (Parts { train, test, .. }, network) = task.prepared(context)?;
    let (count, batch) = (train.count(), task.batch);
    let net = task.classifier(&train)?;
    let of_layer = |layer: &Linear<Variable>| {
        let (inputs, outputs) = (layer.weight.shape()[0], layer.weight.shape()[1]);
        [inputs + 1, outputs].map(|width| Variable::constant([width, width], 0.0))
    };
    let lambda = Evidence {
        ranges: Variable::fixed(Array::from_f64([6], task.first_ranges()?.to_vec())?),
        log_precisions: Variable::constant([LAYERS], 0.0),
        multipliers: net.layers.iter().flat_map(of_layer).collect(),
    };
    let (inner, outer) = (network.clone(), network.clone());
    let minibatch = move |s: &Scope| {
        let rows = s.epochs(count, batch);
        (s.data("x").take(rows), s.data("y").take(rows))
    };
    let problem = Problem::builder(lambda, net)
        .dtype(context.dtype)
        .parts("x", [(Part::Train, train.x()?), (Part::Test, test.x()?)])
        .parts("y", [(Part::Train, train.y()?), (Part::Test, test.y()?)])
        .inner(move |s, l, net| {
            let (x, y) = minibatch(s);
            let mut loss = cross_entropy(inner.logits(s, l.ranges, net, x), y);
            for (i, layer) in net.layers.iter().enumerate() {
                let square = layer.bias.map_or(layer.weight.constant_like(0.0, []), |bias| bias.square().sum_all())
                    + layer.weight.square().sum_all();
                loss = loss + l.log_precisions.index(0, i).exp() * square * (0.5 / count as f64);
            }
            loss
        })
        .outer(move |s, l, net: &Mlp<Tensor>| {
            let (x, y) = minibatch(s);
            let curvature = Curvature::of(outer.seen(s, l.ranges, x), &net.layers[0], &net.layers[1]);
            cross_entropy(curvature.logits, y) + curvature.weighted(&l.multipliers)
        })
        .measure(ACCURACY, move |s, l, net| network.accuracy(s, l.ranges, net))
        .build()?;
    Ok((problem.erase(), count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel::graph::random::fill_uniform_f64;
    use bilevel::graph::{Graph, Reference, gradient_or_zeros};
    use bilevel::{DType, Key};

    const PIXELS: usize = 5;
    const HIDDEN: usize = 4;
    const CLASSES: usize = 3;

    /// The [`Curvature`] of a small network, and the same from derivatives of its logits.
    struct Small {
        /// The rows of the factors, in the order of the multipliers, each with its width.
        rows: Vec<(Vec<f64>, usize)>,
        /// Means over views of the layers' inputs, image by image.
        inputs: [Vec<Vec<f64>>; LAYERS],
        /// diag p − p·pᵀ, image by image.
        covariances: Vec<Vec<f64>>,
        /// Derivatives of the logits with respect to weights and biases of each layer, image by image and class by class.
        jacobians: [Vec<Vec<Vec<f64>>>; LAYERS],
    }

    fn small(count: usize, views: usize) -> Small {
        let g = Graph::new();
        let shapes =
            [vec![count, views, PIXELS], vec![PIXELS, HIDDEN], vec![HIDDEN], vec![HIDDEN, CLASSES], vec![CLASSES]];
        let mut given = vec![];
        for (number, shape) in shapes.iter().enumerate() {
            let mut draws = vec![0.0; shape.iter().product()];
            fill_uniform_f64(Key::from_seed(3).words(), number as u32, 0, 0, &mut draws);
            draws.iter_mut().for_each(|draw| *draw = 2.0 * *draw - 1.0);
            given.push((g.input(format!("{number}"), shape, DType::F64), Array::from_f64(shape, draws).unwrap()));
        }
        let tensors: Vec<Tensor> = given.iter().map(|(tensor, _)| *tensor).collect();
        let layer = |i: usize| Linear { weight: tensors[i], bias: Some(tensors[i + 1]) };
        let (seen, first, last) = (tensors[0], layer(1), layer(3));
        let curvature = Curvature::of(seen, &first, &last);
        let features = first.forward(seen).tanh().mean([1]);
        let logits = last.forward(features);
        let mut wanted = curvature.rows.to_vec();
        wanted.extend([seen.mean([1]), features, logits]);
        for image in 0..count {
            for class in 0..CLASSES {
                wanted.extend(gradient_or_zeros(logits.index(0, image).index(0, class), &tensors[1..]).unwrap());
            }
        }
        let found: Vec<Vec<f64>> =
            Reference::evaluate(&g, &given, &wanted).unwrap().into_iter().map(Array::into_f64).collect();
        let by_image = |numbers: &[f64]| numbers.chunks(numbers.len() / count).map(<[f64]>::to_vec).collect();
        let covariance = |logits: &[f64]| {
            let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
            let p: Vec<f64> = logits.iter().map(|logit| logit.exp() / sum).collect();
            let entry = |i: usize, j: usize| if i == j { p[i] - p[i] * p[i] } else { -p[i] * p[j] };
            (0..CLASSES * CLASSES).map(|place| entry(place / CLASSES, place % CLASSES)).collect()
        };
        let jacobian = |layer: usize, image: usize, class: usize| {
            let place = 7 + 4 * (image * CLASSES + class) + 2 * layer;
            [found[place].clone(), found[place + 1].clone()].concat()
        };
        Small {
            rows: found[..4].iter().cloned().zip([PIXELS + 1, HIDDEN, HIDDEN + 1, CLASSES]).collect(),
            inputs: [by_image(&found[4]), by_image(&found[5])],
            covariances: found[6].chunks(CLASSES).map(covariance).collect(),
            jacobians: [0, 1].map(|layer| {
                let of_image = |image| (0..CLASSES).map(|class| jacobian(layer, image, class)).collect();
                (0..count).map(of_image).collect()
            }),
        }
    }

    /// Σ row·rowᵀ.
    fn gram((rows, width): &(Vec<f64>, usize)) -> Vec<f64> {
        let entry = |i: usize, j: usize| rows.chunks(*width).map(|row| row[i] * row[j]).sum();
        (0..width * width).map(|place| entry(place / width, place % width)).collect()
    }

    /// Σ over classes of Jᵀ·(diag p − p·pᵀ)·J, with these parts of the rows of J.
    fn gauss_newton(covariance: &[f64], jacobian: &[Vec<f64>], part: std::ops::Range<usize>) -> Vec<f64> {
        let entry = |i: usize, j: usize| -> f64 {
            let term = |place: usize| {
                let (c, d) = (place / CLASSES, place % CLASSES);
                covariance[place] * jacobian[c][i] * jacobian[d][j]
            };
            (0..CLASSES * CLASSES).map(term).sum()
        };
        part.clone().flat_map(|i| part.clone().map(move |j| (i, j))).map(|(i, j)| entry(i, j)).collect()
    }

    fn near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-13, "{found} {expected}");
        }
    }

    #[test]
    fn factors_are_sums_over_images_of_what_a_layer_sees_and_of_derivatives_of_the_logits() {
        let count = 6;
        let small = small(count, 3);
        for layer in 0..LAYERS {
            let seen = small.inputs[layer].iter().map(|input| [&input[..], &[1.0]].concat());
            let mut sum = vec![0.0; (small.inputs[layer][0].len() + 1).pow(2)];
            for input in seen {
                for (place, sum) in sum.iter_mut().enumerate() {
                    *sum += input[place / input.len()] * input[place % input.len()];
                }
            }
            near(&gram(&small.rows[2 * layer]), &sum);
            // The bias of a layer moves its output in all views.
            let outputs = small.rows[2 * layer + 1].1;
            let mut sum = vec![0.0; outputs * outputs];
            for (covariance, jacobian) in small.covariances.iter().zip(&small.jacobians[layer]) {
                let bias = jacobian[0].len() - outputs..jacobian[0].len();
                let of_image = gauss_newton(covariance, jacobian, bias);
                sum.iter_mut().zip(of_image).for_each(|(sum, term)| *sum += term);
            }
            near(&gram(&small.rows[2 * layer + 1]), &sum);
        }
    }

    #[test]
    fn for_one_image_the_product_is_the_gauss_newton_matrix_of_a_layer_that_sees_it_once() {
        // The last layer sees the mean over views, so that it may have several.
        for (views, layers) in [(1, 0..2), (3, 1..2)] {
            let small = small(1, views);
            for layer in layers {
                let [a, g] = [0, 1].map(|i| gram(&small.rows[2 * layer + i]));
                let (inputs, outputs) = (small.rows[2 * layer].1, small.rows[2 * layer + 1].1);
                let size = inputs * outputs;
                let entry = |i: usize, j: usize| {
                    a[(i / outputs) * inputs + j / outputs] * g[(i % outputs) * outputs + j % outputs]
                };
                let product: Vec<f64> = (0..size * size).map(|place| entry(place / size, place % size)).collect();
                near(&product, &gauss_newton(&small.covariances[0], &small.jacobians[layer][0], 0..size));
            }
        }
    }
}
