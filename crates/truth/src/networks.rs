//! Whole trainings of small networks with minibatches, over a range of inner steps up to and beyond the one at which
//! derivatives through training cease to exist. The truth is exact reverse mode through every step.

use super::{KEY, TruthProblem, normals};
use bilevel::methods::Rmd;
use bilevel::methods::claims::{Facts, Target};
use bilevel::optimizers::{Adam, InnerOptimizer, Momentum};
use bilevel::{Array, Cpu, InnerLoop, Key, Method, Problem, Result, Scope, Session, Tensor, Variable};
use bilevel_graph::{Tree, nn};

const ROWS: usize = 120;
const CLASSES: usize = 3;
const BATCH: usize = 8;
/// The side of a picture; a picture is also a row of side² numbers.
const SIDE: usize = 4;
const FEATURES: usize = SIDE * SIDE;
/// The logarithm of every penalty.
const LOG_PENALTY: f64 = -7.0;

/// Two layers. The first is a matrix of an MLP, or kernels of a convolution.
#[derive(Clone, Tree)]
struct Net<T> {
    first: T,
    first_bias: T,
    second: T,
    second_bias: T,
}

type Forward = fn(Tensor, &Net<Tensor>) -> Tensor;

fn mlp(x: Tensor, net: &Net<Tensor>) -> Tensor {
    nn::linear(nn::linear(x, net.first, net.first_bias).tanh(), net.second, net.second_bias)
}

fn convolutional(x: Tensor, net: &Net<Tensor>) -> Tensor {
    let rows = x.shape()[0];
    let geometry = nn::Conv2d { padding: [1, 1], ..nn::Conv2d::default() };
    let maps = nn::conv2d(x.reshape([rows, 1, SIDE, SIDE]), net.first, net.first_bias, geometry).tanh();
    nn::linear(nn::global_avg_pool2d(maps).reshape([rows, net.second.shape()[0]]), net.second, net.second_bias)
}

/// Rows around one centre per class, and their classes.
fn data(stream: u32) -> Result<(Array, Array)> {
    let (centres, noise) = (normals(90, CLASSES * FEATURES), normals(stream, ROWS * FEATURES));
    let class = |row: usize| row % CLASSES;
    let x = (0..ROWS * FEATURES).map(|i| 0.7 * centres[class(i / FEATURES) * FEATURES + i % FEATURES] + noise[i]);
    let y: Vec<f64> = (0..ROWS).map(|row| class(row) as f64).collect();
    Ok((Array::from_f64([ROWS, FEATURES], x.collect())?, Array::labels(&y, CLASSES)?))
}

/// Cross entropy on minibatches with a penalty per weight, λ its logarithm; f is the cross entropy on other rows.
fn problem(forward: Forward, first: &[usize], hidden: usize) -> Result<Problem> {
    let ((x, y), (x_outside, y_outside)) = (data(91)?, data(92)?);
    let net = |weights: fn(&[usize]) -> Variable, biases: f64| Net {
        first: weights(first),
        first_bias: Variable::constant([hidden], biases),
        second: weights(&[hidden, CLASSES]),
        second_bias: Variable::constant([CLASSES], biases),
    };
    let penalties = net(|shape| Variable::constant(shape, LOG_PENALTY), LOG_PENALTY);
    Ok(Problem::builder(penalties, net(|shape| Variable::normal(shape, 0.3), 0.0))
        .data("x", x)
        .data("y", y)
        .data("x outside", x_outside)
        .data("y outside", y_outside)
        .inner(move |s: &Scope, l, t| {
            let drawn = s.minibatch(ROWS, BATCH);
            let loss = nn::cross_entropy(forward(s.data("x").gather(drawn, 0), t), s.data("y").gather(drawn, 0));
            let leaves = [
                (l.first, t.first),
                (l.first_bias, t.first_bias),
                (l.second, t.second),
                (l.second_bias, t.second_bias),
            ];
            leaves.iter().fold(loss, |sum, (l, t)| sum + (l.exp() * t.square()).sum_all() * 0.5)
        })
        .outer(move |s, _, t| nn::cross_entropy(forward(s.data("x outside"), t), s.data("y outside")))
        .build()?
        .erase())
}

/// A training with these settings, and the exact derivative of its end.
fn training(
    (name, about): (&str, &'static str),
    problem: &Problem,
    optimizer: InnerOptimizer,
    (step, steps): (f64, usize),
) -> Result<TruthProblem> {
    let session = Session::new(problem, &Cpu::with_threads(1))?;
    let key = Key::from_seed(KEY);
    let inner = InnerLoop { optimizer, ..InnerLoop::new(step, steps) };
    // Without the diagnosis, which would refuse an answer beyond the range of numbers.
    let found = Rmd::default().compile(&session, &inner)?.estimate(&mut session.state(key)?, key, step)?;
    let facts = Facts { target: Target::Training { optimizer }, minibatches: true, inner, ..Facts::minimum(1.0, 1.0) };
    Ok(TruthProblem {
        growth_rate: found.diagnostics.growth_rate,
        ..TruthProblem::new(&format!("{name}, γ = {step}"), about, problem.clone(), found.value.numbers()?, facts)
    })
}

/// Trainings of an MLP and a convolutional network with minibatches, by plain descent, momentum and Adam.
///
/// ```
/// let trainings = bilevel_truth::trainings(100)?;
/// let rates: Vec<f64> = trainings.iter().filter_map(|training| training.growth_rate).collect();
/// // Small steps let sensitivities hardly grow; the largest multiply them by more than e^0.1 in every step.
/// assert!(rates.iter().any(|rate| *rate < 0.01) && rates.iter().any(|rate| *rate > 0.1));
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn trainings(steps: usize) -> Result<Vec<TruthProblem>> {
    let mlp = problem(mlp, &[FEATURES, 8], 8)?;
    let convolutional = problem(convolutional, &[6, 1, 3, 3], 6)?;
    let momentum = InnerOptimizer::Momentum(Momentum::default());
    let adam = InnerOptimizer::Adam(Adam::default());
    let cases = [
        (("MLP", "minibatches of 8, plain descent"), &mlp, InnerOptimizer::Sgd, &[0.03, 0.1, 0.3, 0.6, 1.0, 2.0][..]),
        (
            ("convolutional", "minibatches of 8, plain descent"),
            &convolutional,
            InnerOptimizer::Sgd,
            &[0.1, 0.3, 1.0, 3.0, 10.0][..],
        ),
        (("MLP, momentum", "minibatches of 8, momentum 0.9"), &mlp, momentum, &[0.01, 0.05, 0.2][..]),
        (("MLP, Adam", "minibatches of 8, Adam"), &mlp, adam, &[0.003, 0.01, 0.1][..]),
    ];
    let mut all = vec![];
    for (said, problem, optimizer, sizes) in cases {
        for &step in sizes {
            all.push(training(said, problem, optimizer, (step, steps))?);
        }
    }
    Ok(all)
}
