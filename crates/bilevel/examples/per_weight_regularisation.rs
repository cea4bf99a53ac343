//! Learns how strongly each of 640 weights of a digit classifier is to be regularised: one λ for each, chosen by the loss on
//! validation digits, which no grid could search.
//!
//!     cargo run --release -p bilevel --example per_weight_regularisation

use bilevel::graph::nn::cross_entropy;
use bilevel::{
    Adam, Array, DType, Driver, HpoSgld, IftNeumann, LangevinAdjoint, Method, Problem, Result, Tree, Variable,
};
use bilevel_tasks::digits::{SHAPE, Split};

/// λ: the logarithm of each weight's L2 penalty.
#[derive(Clone, Tree)]
struct Penalty<T> {
    log_strength: T,
}

/// θ: logistic regression.
#[derive(Clone, Tree)]
struct Classifier<T> {
    weights: T,
}

const STEP: f64 = 0.4;

/// Inner loss: training cross entropy + ½·Σ exp(λ)·θ². Outer loss: validation cross entropy.
fn problem(log_strength: Variable, split: &Split) -> Result<Problem> {
    let theta = Classifier { weights: Variable::constant(SHAPE, 0.0) };
    Problem::new(Penalty { log_strength }, theta)
        .dtype(DType::F32)
        .data("train x", split.train.x()?)
        .data("train y", split.train.y()?)
        .data("validation x", split.validation.x()?)
        .data("validation y", split.validation.y()?)
        .inner(|s, l, t| {
            let penalty = (l.log_strength.exp() * t.weights.square()).sum_all() * 0.5;
            cross_entropy(s.data("train x").matmul(t.weights), s.data("train y")) + penalty
        })
        .outer(|s, _, t| cross_entropy(s.data("validation x").matmul(t.weights), s.data("validation y")))
        .build()
}

fn main() -> Result<()> {
    let split = Split::new(1);

    // Training alone: one outer iteration of a method that first trains θ to the end and then does next to nothing more.
    let fit = |log_strength: Variable| -> Result<Array> {
        let only_train = IftNeumann { step: STEP, steps: 8000, terms: 0, ..IftNeumann::default() };
        let outcome = Driver::new(&problem(log_strength, &split)?, only_train).iterations(1).run()?;
        outcome.state.theta.array(0)
    };
    let report = |name: &str, weights: &Array| {
        let [train, valid, test] = [&split.train, &split.validation, &split.test].map(|part| part.score(weights));
        let percent = 100.0 * test.accuracy;
        println!("{name:34} {:9.4} {:9.4} {:9.4} {percent:9.1} %", train.loss, valid.loss, test.loss);
    };
    println!("Logistic regression on 599 digits, trained anew with each choice of penalties.\n");
    println!("{:34} {:>9} {:>9} {:>9} {:>11}", "penalties", "train", "valid.", "test", "test acc.");

    report("none", &fit(Variable::constant(SHAPE, -30.0))?);
    let mut best = (f64::INFINITY, 0.0, Array::zeros(SHAPE, DType::F32));
    for log_strength in [-11.0, -10.0, -9.0, -8.0, -7.0] {
        let weights = fit(Variable::constant(SHAPE, log_strength))?;
        let loss = split.validation.score(&weights).loss;
        if loss < best.0 {
            best = (loss, log_strength, weights);
        }
    }
    report(&format!("one, best of a grid: e^{}", best.1), &best.2);

    let adjoint = LangevinAdjoint { step: STEP, samples: 20, ..LangevinAdjoint::default() };
    let sgld = HpoSgld { step: STEP, burn_in: 10, samples: 10, ..HpoSgld::default() };
    let methods: [Box<dyn Method>; 2] = [Box::new(adjoint), Box::new(sgld)];
    for method in methods {
        let name = format!("640, learned by {}", method.name());
        let start = Variable::constant(SHAPE, -5.0).at_least(-12.0).at_most(0.0);
        let outcome = Driver::new(&problem(start, &split)?, method)
            .optimizer(Adam::default())
            .rate(0.05)
            .iterations(300)
            .seed(1)
            .run()?;
        report(&name, &fit(Variable::fixed(outcome.state.lambda.array(0)?))?);
        if outcome.reason.is_failure() {
            println!("  ({})", outcome.reason);
        }
    }
    println!(
        "\nThe grid and the learned penalties have seen the validation digits, so it is the test loss that compares them."
    );
    Ok(())
}
