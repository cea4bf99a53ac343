//! Twenty steps of Adam are all there is time for: how large should they be in each layer? Three learning rates are
//! learned through the whole training, and compared with the best single one of a grid.
//!
//!   wₖ = wₖ⁰ + e^λₖ·φₖ, and φ starts at 0
//!
//! Adam's direction does not depend on the size of a gradient, so a step γ of φₖ is a step γ·e^λₖ of wₖ: the learning rate of layer k.
//!
//!     cargo run --release -p bilevel --example layer_rates -- [PICTURE.svg]

use bilevel::Result;
use bilevel::graph::nn::{cross_entropy, tanh};
use bilevel::graph::random::fill_normal_f64;
use bilevel::prelude::*;
use bilevel_report::{Axis, Curve, Plot};
use bilevel_tasks::digits::{CLASSES, Digits, PIXELS, Split};

const WIDTHS: [usize; 4] = [PIXELS, 32, 32, CLASSES];
const STEP: f64 = 0.01;
const STEPS: usize = 20;

/// λ: the logarithm of each layer's learning rate, in units of the inner step.
#[derive(Clone, Tree)]
struct Rates<T> {
    log_rate: T,
}

/// θ: how far each layer has come, in its own unit.
type Moved<T> = [Leaf<T>; 3];

/// The scores of the classes.
fn scores(s: &Scope, x: Tensor, rates: Tensor, moved: &Moved<Tensor>) -> Tensor {
    let weight = |k: usize| s.data(&format!("start {k}")) + moved[k].0 * rates.index(0, k).exp();
    tanh(tanh(x.matmul(weight(0))).matmul(weight(1))).matmul(weight(2))
}

fn problem(split: &Split) -> Result<Problem<Rates<Variable>, Moved<Variable>>> {
    let log_rate = Variable::constant([3], 0.0).at_least(-4.0).at_most(4.0);
    let moved = [0, 1, 2].map(|k| Leaf(Variable::constant([WIDTHS[k], WIDTHS[k + 1]], 0.0)));
    let mut builder = Problem::builder(Rates { log_rate }, moved).dtype(DType::F32);
    for k in 0..3 {
        let shape = [WIDTHS[k], WIDTHS[k + 1]];
        let mut start = vec![0.0; shape[0] * shape[1]];
        fill_normal_f64(Key::from_seed(1).words(), 0, k as u32, 0, &mut start);
        start.iter_mut().for_each(|weight| *weight *= 1.0 / (shape[0] as f64).sqrt());
        builder = builder.data(format!("start {k}"), Array::from_f64(shape, start)?);
    }
    let parts: [(&str, &Digits); 3] = [("train", &split.train), ("valid", &split.validation), ("test", &split.test)];
    for (part, digits) in parts {
        builder = builder.data(format!("{part} x"), digits.x()?).data(format!("{part} y"), digits.y()?);
    }
    let loss = |s: &Scope, part: &str, l: &Rates<Tensor>, t: &Moved<Tensor>| {
        cross_entropy(scores(s, s.data(&format!("{part} x")), l.log_rate, t), s.data(&format!("{part} y")))
    };
    builder
        .inner(move |s, l, t| loss(s, "train", l, t))
        .outer(move |s, l, t| loss(s, "valid", l, t))
        .measure("test loss", move |s, l, t| loss(s, "test", l, t))
        .build()
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let problem = problem(&Split::new(1))?;
    let inner = InnerLoop { optimizer: Adam::default().into(), ..InnerLoop::new(STEP, STEPS) };
    let driver = Driver::new(&problem, Rmd::default()).inner(inner).cold(true).optimizer(Adam::default());
    let learned = driver.rate(0.05).iterations(150).run()?.lambda;

    let same = |log_rate: f64| Rates { log_rate: Array::full([3], log_rate, DType::F32) };
    let trained = |rates: &Rates<Array>| problem.train(rates).inner(inner).record_every(1).run();
    let mut best = (f64::INFINITY, same(0.0));
    for i in -4..=12 {
        let rates = same(0.25 * f64::from(i));
        let found = trained(&rates)?.outer_loss;
        if found < best.0 {
            best = (found, rates);
        }
    }
    println!("{:28} {:>20} {:>9} {:>9}", "after 20 steps", "rates", "valid.", "test");
    let mut curves = vec![];
    for (name, rates) in [("one rate, best of a grid", &best.1), ("a rate for each layer", &learned)] {
        let found = trained(rates)?;
        let each: Vec<String> = rates.log_rate.to_f64().iter().map(|l| format!("{:.3}", STEP * l.exp())).collect();
        let test = found.measures.get("test loss").ok_or("it is a measure")?;
        println!("{name:28} {:>20} {:9.3} {test:9.3}", each.join(", "), found.outer_loss);
        curves.push(Curve::new(name, found.losses.iter().map(|(step, loss)| (f64::from(*step), *loss))));
    }
    if let Some(path) = std::env::args().nth(1) {
        let title = "Twenty steps of Adam with learned rates".into();
        let (x, y) = (Axis::linear("step"), Axis::linear("training loss"));
        std::fs::write(path, Plot { title, x, y, curves }.svg())?;
    }
    Ok(())
}
