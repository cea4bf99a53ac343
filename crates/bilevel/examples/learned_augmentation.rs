//! How much augmentation? The training digits stand upright, and the digits that the classifier is for are shifted and turned. So training
//! digits are shifted and turned at random in every step, and by how much is learned: two numbers, through training and augmentation.
//!
//!     cargo run --release -p bilevel --example learned_augmentation -- [PICTURE.svg]

use bilevel::graph::nn::{accuracy, cross_entropy, relu, sample_at};
use bilevel::graph::random::fill_normal_f64;
use bilevel::prelude::*;
use bilevel_report::{Panel, Pictures};
use bilevel_tasks::digits::{CLASSES, Digits, PIXELS, Split};

const SIDE: usize = 8;
const TRAIN: usize = 300;
const BATCH: usize = 100;
const HIDDEN: usize = 32;

/// λ: the logarithms of the deviations of shifts, in pixels, and of turns, in radians.
#[derive(Clone, Tree)]
struct Amount<T> {
    pixels: T,
    radians: T,
}

/// θ: one hidden layer.
#[derive(Clone, Tree)]
struct Network<T> {
    first: T,
    bias: T,
    last: T,
}

/// How the digits are met.
const MET: Amount<f64> = Amount { pixels: 0.8, radians: 0.35 };

/// Images `[n, 64]`, each shifted by two of the draws and turned by the third, interpolated between pixels.
fn moved(images: Tensor, [across, down, turn]: [Tensor; 3]) -> Tensor {
    let n = images.dim(0);
    let centred = |axis| images.constant_like(0.0, [1, SIDE, SIDE]).iota_like(axis) - 3.5;
    let (row, column) = (centred(1), centred(2));
    let draw = |draw: Tensor| draw.reshape([n, 1, 1]);
    let (cos, sin) = (draw(turn).cos(), draw(turn).sin());
    // `sample_at` counts from −1 to 1, here from the first pixel's centre to the last.
    let place = |at: Tensor, shift: Tensor| (at + draw(shift)) * (1.0 / 3.5);
    let at = [place(sin * row + cos * column, across), place(cos * row - sin * column, down)];
    sample_at(images.reshape([n, 1, SIDE, SIDE]), at, true).reshape([n, PIXELS])
}

fn scores(x: Tensor, t: &Network<Tensor>) -> Tensor {
    relu(x.matmul(t.first) + t.bias).matmul(t.last)
}

/// Digits shifted and turned once, by these amounts.
fn met(digits: &Digits, amount: &Amount<f64>, seed: u64) -> bilevel::Result<Array> {
    let n = digits.len();
    let mut draws = vec![0.0; 3 * n];
    fill_normal_f64(Key::from_seed(seed).words(), 0, 0, 0, &mut draws);
    draws[..2 * n].iter_mut().for_each(|draw| *draw *= amount.pixels);
    draws[2 * n..].iter_mut().for_each(|draw| *draw *= amount.radians);
    let graph = bilevel::graph::Graph::new();
    let (images, inputs) = (graph.input("images", [n, PIXELS], DType::F32), graph.input("draws", [3, n], DType::F32));
    let made = moved(images, [0, 1, 2].map(|k| inputs.index(0, k)));
    let given =
        [(images, digits.x()?), (inputs, Array::from_f32([3, n], draws.iter().map(|draw| *draw as f32).collect())?)];
    Ok(bilevel::graph::Reference::evaluate(&graph, &given, &[made])?.remove(0))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let Split { train, validation, test } = Split::new(1);
    let train = train.first(TRAIN);
    let number = |value: f64| Variable::constant([], value.ln()).at_least(-5.0).at_most(1.0);
    let weight = |i: usize, o: usize| Variable::normal([i, o], 1.0 / (i as f64).sqrt());
    let network = Network {
        first: weight(PIXELS, HIDDEN),
        bias: Variable::constant([HIDDEN], 0.0),
        last: weight(HIDDEN, CLASSES),
    };
    let problem = Problem::builder(Amount { pixels: number(0.1), radians: number(0.05) }, network)
        .dtype(DType::F32)
        .data("train x", train.x()?)
        .data("train y", train.y()?)
        .data("valid x", met(&validation, &MET, 2)?)
        .data("valid y", validation.y()?)
        .data("test x", met(&test, &MET, 3)?)
        .data("test y", test.y()?)
        .inner(|s, l, t| {
            let rows = s.epochs(TRAIN, BATCH);
            let [pixels, radians] = [l.pixels.exp(), l.radians.exp()];
            let draws = [s.normal([BATCH]) * pixels, s.normal([BATCH]) * pixels, s.normal([BATCH]) * radians];
            let decay = (t.first.square().sum_all() + t.last.square().sum_all()) * 1e-3;
            cross_entropy(scores(moved(s.data("train x").take(rows), draws), t), s.data("train y").take(rows)) + decay
        })
        .outer(|s, _, t| cross_entropy(scores(s.data("valid x"), t), s.data("valid y")))
        .measure("test accuracy", |s, _, t| accuracy(scores(s.data("test x"), t), s.data("test y")))
        .build()?;

    let inner = InnerLoop::new(0.3, 60);
    let driver = Driver::new(&problem, Rmd::default()).inner(inner).optimizer(Adam::default());
    let learned = driver.rate(0.08).iterations(60).seed(1).run()?.lambda;
    let value = |leaf: &Array| leaf.item().unwrap_or(f64::NAN).exp();
    let found = Amount { pixels: value(&learned.pixels), radians: value(&learned.radians) };
    println!("{:28} {:>8} {:>8} {:>14}", "augmentation", "pixels", "radians", "test accuracy");
    let logarithms = |amount: &Amount<f64>| -> bilevel::Result<Amount<Array>> {
        let leaf = |value: f64| Array::full([], value.ln(), DType::F32);
        Ok(Amount { pixels: leaf(amount.pixels), radians: leaf(amount.radians) })
    };
    let least = Amount { pixels: 0.01, radians: 0.01 };
    for (name, amount) in [("almost none", &least), ("learned", &found), ("true amounts", &MET)] {
        let trained = problem.train(&logarithms(amount)?).step(0.3).steps(3000).seed(2).run()?;
        let right = 100.0 * trained.measures.get("test accuracy").ok_or("it is a measure")?;
        println!("{name:28} {:8.2} {:8.2} {right:12.1} %", amount.pixels, amount.radians);
    }

    if let Some(path) = std::env::args().nth(1) {
        let panels = |digits: &Digits, amount: &Amount<f64>, name: &str, seed| -> bilevel::Result<Vec<Panel>> {
            let pixels = met(&digits.clone().first(5), amount, seed)?.to_f64();
            let panel = |(image, label): (&[f64], &i32)| Panel {
                title: format!("{label}, {name}"),
                rows: SIDE,
                columns: SIDE,
                values: image.to_vec(),
            };
            Ok(pixels.chunks(PIXELS).zip(&digits.labels).map(panel).collect())
        };
        let panels = [panels(&test, &MET, "as met", 3)?, panels(&train, &found, "augmented", 4)?].concat();
        std::fs::write(
            path,
            Pictures { title: "Digits as met, and training digits as augmented".into(), panels }.svg(),
        )?;
    }
    Ok(())
}
