//! Learns the initialisation of a network: every outer iteration is an episode with a new sine wave. A small network
//! takes five gradient steps from λ on ten points of it, and λ moves so that the next wave is learned better.
//!
//!     cargo run --release -p bilevel --example learned_initialisation -- [PICTURE.svg]

use bilevel::graph::nn::{linear, mse, tanh};
use bilevel::methods::{Reptile, RmdFo};
use bilevel::prelude::*;
use bilevel::training::Trainer;
use bilevel::{Result, Session, State};
use bilevel_report::{Axis, Curve, Plot};

/// λ and θ have the same structure: three layers.
#[derive(Clone, Tree)]
struct Layer<T> {
    weight: T,
    bias: T,
}

type Network<T> = [Layer<T>; 3];
type Initialisation = Problem<Network<Variable>, Network<Variable>>;

/// The episode's wave at ten points to learn from and at fifty to be judged by. Draws from an episode are the same in both
/// losses and at every step, so both see the same wave.
fn episode(s: &Scope) -> [(Tensor, Tensor); 2] {
    let s = s.episode();
    let (amplitude, phase) = (s.uniform([], 0.5, 3.0), s.uniform([], 0.0, 3.0));
    let points = [s.uniform([10, 1], -3.0, 3.0), s.uniform([50, 1], -3.0, 3.0)];
    points.map(|x| (x, amplitude * (x + phase).sin()))
}

/// The mean squared error of the network on a wave.
fn error(network: &Network<Tensor>, (x, wave): (Tensor, Tensor)) -> Tensor {
    let [first, second, last] = network;
    let hidden = tanh(linear(x, first.weight, first.bias));
    let hidden = tanh(linear(hidden, second.weight, second.bias));
    mse(linear(hidden, last.weight, last.bias), wave)
}

fn problem() -> Result<Initialisation> {
    let layer = |i: usize, o: usize| Layer {
        weight: Variable::normal([i, o], 1.0 / (i as f64).sqrt()),
        bias: Variable::constant([o], 0.0),
    };
    let network: Network<Variable> = [layer(1, 32), layer(32, 32), layer(32, 1)];
    Problem::builder(network.clone(), network)
        .dtype(DType::F32)
        .start(|_, l| l.clone())
        .inner(|s, _, t| error(t, episode(s)[0]))
        .outer(|s, _, t| error(t, episode(s)[1]))
        .build()
}

const STEP: f64 = 0.03;
const STEPS: usize = 5;
const SEED: u64 = 1;

/// The error after training from λ, averaged over 300 waves that were never met.
fn after_training(problem: &Initialisation, lambda: &Network<Array>) -> Result<f64> {
    let cpu = Cpu::with_threads(1);
    let session = Session::new(problem, &cpu)?;
    let mut trainer = Trainer::new(&session, InnerLoop::new(STEP, STEPS))?;
    let mut evaluator = session.evaluator()?;
    // Training starts θ at λ, wherever it was.
    let state = problem.state_at(lambda, lambda, &cpu)?;
    let mut sum = 0.0;
    for wave in 0..300 {
        let key = Key::from_seed(1000).fold_in(wave);
        trainer.train(&state, key)?;
        sum += evaluator.at(&state, key)?[1]; // the outer loss
    }
    Ok(sum / 300.0)
}

/// The output of a trained network at x.
fn value(network: &Network<Array>, x: f64) -> f64 {
    let layer = |input: &[f64], layer: &Layer<Array>| -> Vec<f64> {
        let (weight, bias) = (layer.weight.to_f64(), layer.bias.to_f64());
        let sum = |j: usize| input.iter().enumerate().map(|(i, value)| value * weight[i * bias.len() + j]).sum::<f64>();
        (0..bias.len()).map(|j| bias[j] + sum(j)).collect()
    };
    let [first, second, last] = network;
    let hidden = |input: &[f64], of: &Layer<Array>| layer(input, of).into_iter().map(f64::tanh).collect::<Vec<_>>();
    layer(&hidden(&hidden(&[x], first), second), last)[0]
}

/// A new wave, and the networks after five steps on ten of its points.
fn picture(random: &Network<Array>, learned: &Network<Array>) -> Result<Plot> {
    let wave = |x: f64| 2.0 * (x + 0.8).sin();
    let points: Vec<f64> = (0..10).map(|i| -2.7 + 0.6 * f64::from(i)).collect();
    let all: Vec<f64> = (0..=120).map(|i| -3.0 + 0.05 * f64::from(i)).collect();
    let column = |values: &[f64]| Array::from_f64([values.len(), 1], values.to_vec());
    let y: Vec<f64> = points.iter().map(|x| wave(*x)).collect();
    let layer =
        |i: usize, o: usize| Layer { weight: Variable::constant([i, o], 0.0), bias: Variable::constant([o], 0.0) };
    let network: Network<Variable> = [layer(1, 32), layer(32, 32), layer(32, 1)];
    let one = Problem::builder(network.clone(), network)
        .dtype(DType::F32)
        .data("x", column(&points)?)
        .data("y", column(&y)?)
        .start(|_, l| l.clone())
        .inner(|s, _, t| error(t, (s.data("x"), s.data("y"))))
        .outer(|s, _, t| error(t, (s.data("x"), s.data("y"))))
        .build()?;
    let mut curves = vec![Curve::new("a new wave", all.iter().map(|x| (*x, wave(*x)))).dashed()];
    for (name, start) in [("from random weights", random), ("from the learned weights", learned)] {
        let trained = one.train(start).step(STEP).steps(STEPS).run()?.theta;
        curves.push(Curve::new(name, all.iter().map(|x| (*x, value(&trained, *x)))));
    }
    Ok(Plot { title: "Five steps on ten points".into(), x: Axis::linear("x"), y: Axis::linear("y"), curves })
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let problem = problem()?;
    println!("Error on new sine waves after {STEPS} steps on ten points of each.\n");
    println!("{:38} {:>9}", "first weights", "error");
    let first = State::initial(&problem, &Cpu::with_threads(1), Key::from_seed(SEED))?;
    let random = after_training(&problem, &problem.lambda_of(&first.lambda)?)?;
    println!("{:38} {random:9.4}", "random, the start of all of these");

    let runs: [(&str, Box<dyn Method>); 3] = [
        ("MAML (rmd)", Box::new(Rmd::default())),
        ("first-order MAML (rmd-fo)", Box::new(RmdFo::default())),
        ("Reptile (reptile)", Box::new(Reptile::default())),
    ];
    let mut learned = vec![problem.lambda_of(&first.lambda)?];
    for (name, method) in runs {
        let outcome = Driver::new(&problem, method)
            .inner(InnerLoop::new(STEP, STEPS))
            .executor(Cpu::with_threads(1))
            .optimizer(Adam::default())
            .schedule(Schedule::cosine(0.003, 4000, 0.0))
            .iterations(4000)
            .seed(SEED)
            .run()?;
        let error = after_training(&problem, &outcome.lambda)?;
        println!("{name:38} {error:9.4}");
        if outcome.reason.is_failure() {
            println!("  ({})", outcome.reason);
        }
        learned.push(outcome.lambda);
    }
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, picture(&learned[0], &learned[1])?.svg())?;
    }
    Ok(())
}
