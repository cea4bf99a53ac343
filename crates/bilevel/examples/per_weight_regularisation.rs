//! Learns the regularisation of each of 640 weights of a digit classifier: one λ each, chosen by the loss on validation
//! digits, which is too many for a grid.
//!
//!     cargo run --release -p bilevel --example per_weight_regularisation -- [PICTURE.svg]

use bilevel::Result;
use bilevel::graph::nn::cross_entropy;
use bilevel::prelude::*;
use bilevel_report::{Panel, Pictures};
use bilevel_tasks::digits::{CLASSES, Digits, SHAPE, Split};

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
fn problem(split: &Split) -> Result<Problem<Penalty<Variable>, Classifier<Variable>>> {
    let log_strength = Variable::constant(SHAPE, -5.0).at_least(-12.0).at_most(0.0);
    let theta = Classifier { weights: Variable::constant(SHAPE, 0.0) };
    Problem::builder(Penalty { log_strength }, theta)
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

/// The penalties as an image for each class.
fn picture(learned: &Penalty<Array>) -> Pictures {
    let values = learned.log_strength.to_f64();
    let panel = |class: usize| Panel {
        title: format!("for a {class}"),
        rows: 8,
        columns: 8,
        values: values.iter().skip(class).step_by(CLASSES).copied().collect(),
    };
    let title = "The logarithm of the penalty of each pixel's weight".into();
    Pictures { title, panels: (0..CLASSES).map(panel).collect() }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let split = Split::new(1);
    let problem = problem(&split)?;

    let fit = |penalty: &Penalty<Array>| -> Result<Classifier<Array>> {
        Ok(problem.train(penalty).step(STEP).steps(8000).run()?.theta)
    };
    let everywhere = |log_strength: f64| Penalty { log_strength: Array::full(SHAPE, log_strength, DType::F32) };
    let report = |name: &str, classifier: &Classifier<Array>| {
        let score = |part: &Digits| part.score(&classifier.weights);
        let [train, valid, test] = [&split.train, &split.validation, &split.test].map(score);
        let percent = 100.0 * test.accuracy;
        println!("{name:34} {:9.4} {:9.4} {:9.4} {percent:9.1} %", train.loss, valid.loss, test.loss);
    };
    println!("Logistic regression on 599 digits, trained from scratch with each choice of penalties.\n");
    println!("{:34} {:>9} {:>9} {:>9} {:>11}", "penalties", "train", "valid.", "test", "test acc.");

    let none = fit(&everywhere(-30.0))?;
    report("none", &none);
    let mut best = (f64::INFINITY, f64::NEG_INFINITY, none);
    for log_strength in [-11.0, -10.0, -9.0, -8.0, -7.0] {
        let classifier = fit(&everywhere(log_strength))?;
        let loss = split.validation.score(&classifier.weights).loss;
        if loss < best.0 {
            best = (loss, log_strength, classifier);
        }
    }
    report(&format!("one, best of a grid: e^{}", best.1), &best.2);

    let inner = InnerLoop::new(STEP, 20).at_temperature(1e-6);
    let methods: [(Box<dyn Method>, InnerLoop); 2] = [
        (Box::new(LangevinAdjoint::default()), inner),
        (Box::new(HpoSgld::default()), InnerLoop { burn_in: 10, ..inner }),
    ];
    let mut learned = vec![];
    for (method, inner) in methods {
        let name = format!("640, learned by {}", method.name());
        let driver = Driver::new(&problem, method).inner(inner).optimizer(Adam::default()).rate(0.05);
        let outcome = driver.iterations(300).seed(1).run()?;
        report(&name, &fit(&outcome.lambda)?);
        if outcome.reason.is_failure() {
            println!("  ({})", outcome.reason);
        }
        learned.push(outcome.lambda);
    }
    println!(
        "\nThe grid and the learned penalties were chosen on the validation digits, so compare them by the test loss."
    );
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, picture(&learned[0]).svg())?;
    }
    Ok(())
}
