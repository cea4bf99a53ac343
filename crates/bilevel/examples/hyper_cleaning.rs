//! Finds wrong labels: 40 % of the training labels are redrawn at random. Every training digit gets a weight, learned
//! so that a classifier trained with the weights does well on a small clean set.
//!
//!     cargo run --release -p bilevel --example hyper_cleaning -- [PICTURE.svg]

use bilevel::Result;
use bilevel::graph::nn::{cross_entropy, cross_entropy_rows, sigmoid};
use bilevel::graph::random::fill_uniform_f64;
use bilevel::optimizers::Sgd;
use bilevel::prelude::*;
use bilevel_report::{Panel, Pictures};
use bilevel_tasks::digits::{CLASSES, Digits, PIXELS, SHAPE, Split};

/// λ: a number for each training digit, whose sigmoid is the digit's weight.
#[derive(Clone, Tree)]
struct Trust<T> {
    examples: T,
}

/// θ: logistic regression.
#[derive(Clone, Tree)]
struct Classifier<T> {
    weights: T,
}

const CORRUPTED: f64 = 0.4;
const CLEAN: usize = 100;
const STEP: f64 = 0.4;

/// Inner loss: mean of weight·cross entropy over the training digits, and a small weight decay. Without the decay the
/// classifier would fit wrong labels of any weight. Outer loss: cross entropy of the clean digits.
fn problem(train: &Digits, clean: &Digits) -> Result<Problem<Trust<Variable>, Classifier<Variable>>> {
    let lambda = Trust { examples: Variable::constant([train.len()], 0.0) };
    let theta = Classifier { weights: Variable::constant(SHAPE, 0.0) };
    Problem::builder(lambda, theta)
        .dtype(DType::F32)
        .data("train x", train.x()?)
        .data("train y", train.y()?)
        .data("clean x", clean.x()?)
        .data("clean y", clean.y()?)
        .inner(|s, l, t| {
            let rows = cross_entropy_rows(s.data("train x").matmul(t.weights), s.data("train y"));
            (sigmoid(l.examples) * rows).mean_all() + t.weights.square().sum_all() * 5e-4
        })
        .outer(|s, _, t| cross_entropy(s.data("clean x").matmul(t.weights), s.data("clean y")))
        .build()
}

/// Numbers uniform between 0 and 1.
fn uniform(seed: u64, count: usize) -> Vec<f64> {
    let mut numbers = vec![0.0; count];
    fill_uniform_f64(Key::from_seed(seed).words(), 0, 0, 0, &mut numbers);
    numbers
}

/// The ten digits with the least weights, with the label that was given and the one that is right.
fn least_trusted(train: &Digits, honest: &Digits, weights: &[f64]) -> Pictures {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|a, b| weights[*a].total_cmp(&weights[*b]));
    let panel = |&i: &usize| {
        let (given, right) = (train.labels[i], honest.labels[i]);
        let verdict = if given == right { "rightly".to_string() } else { format!("is a {right}") };
        let pixels = train.pixels[i * PIXELS..(i + 1) * PIXELS].iter().map(|pixel| f64::from(*pixel));
        Panel { title: format!("labelled {given}, {verdict}"), rows: 8, columns: 8, values: pixels.collect() }
    };
    let title = "The ten least trusted of 599 training digits".into();
    Pictures { title, panels: order.iter().take(10).map(panel).collect() }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let Split { train: honest, validation, test } = Split::new(1);
    let clean = validation.first(CLEAN);

    // A label drawn again may happen to be the right one; then it is not wrong.
    let mut train = honest.clone();
    for ((label, chance), draw) in train.labels.iter_mut().zip(uniform(2, honest.len())).zip(uniform(3, honest.len())) {
        if chance < CORRUPTED {
            *label = (draw * CLASSES as f64) as i32;
        }
    }
    let wrong: Vec<bool> = train.labels.iter().zip(&honest.labels).map(|(given, right)| given != right).collect();
    let count = wrong.iter().filter(|w| **w).count();
    println!(
        "{} training digits, {count} of them with a wrong label; {CLEAN} clean ones to learn the weights from.\n",
        train.len()
    );

    let fit = |train: &Digits, trust: &Trust<Array>| -> Result<Classifier<Array>> {
        Ok(problem(train, &clean)?.train(trust).step(STEP).steps(3000).run()?.theta)
    };
    let even = |digits: &Digits| Trust { examples: Array::zeros([digits.len()], DType::F32) };
    let (method, inner) = (LangevinAdjoint::default(), InnerLoop::new(STEP, 20).at_temperature(1e-6));
    let outcome = Driver::new(&problem(&train, &clean)?, method)
        .inner(inner)
        // Plain steps move λ by as much as a digit matters, so that digits can be ranked; Adam moves all equally far.
        .optimizer(Sgd)
        .rate(200.0)
        .iterations(200)
        .seed(1)
        .run()?;

    println!("{:34} {:>9} {:>11}", "trained on", "test loss", "test acc.");
    let report = |name: &str, classifier: &Classifier<Array>| {
        let score = test.score(&classifier.weights);
        println!("{name:34} {:9.4} {:9.1} %", score.loss, 100.0 * score.accuracy);
    };
    report("all given labels, equal weights", &fit(&train, &even(&train))?);
    report("given labels, learned weights", &fit(&train, &outcome.lambda)?);
    report("correct labels (usually unknown)", &fit(&honest, &even(&honest))?);
    report("the clean digits alone", &fit(&clean, &even(&clean))?);

    let weights: Vec<f64> = outcome.lambda.examples.to_f64().iter().map(|l| 1.0 / (1.0 + (-l).exp())).collect();
    println!("\n{:34} {:>9} {:>11}", "weights learned for", "mean", "below 0.5");
    for (name, is_wrong) in [("right labels", false), ("wrong labels", true)] {
        let all: Vec<f64> = weights.iter().zip(&wrong).filter(|(_, w)| **w == is_wrong).map(|(v, _)| *v).collect();
        let low = all.iter().filter(|v| **v < 0.5).count();
        let (mean, low) = (all.iter().sum::<f64>() / all.len() as f64, 100.0 * low as f64 / all.len() as f64);
        println!("{name:34} {mean:9.3} {low:9.1} %");
    }
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, least_trusted(&train, &honest, &weights).svg())?;
    }
    Ok(())
}
