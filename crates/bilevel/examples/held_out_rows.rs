//! 640 penalties overfit the validation rows that choose them. Rows that no method sees show when this begins, and the
//! run returns the λ from before. The comparison at the end shows whether learning helped.
//!
//!     cargo run --release -p bilevel --example held_out_rows -- [PICTURE.svg]

use bilevel::graph::nn::cross_entropy_rows;
use bilevel::observers::Recorder;
use bilevel::prelude::*;
use bilevel::splits::{Part, Split};
use bilevel_report::{Axis, Curve, Plot};
use bilevel_tasks::digits::{CLASSES, Digits, PIXELS};

/// λ: the logarithm of each weight's penalty.
#[derive(Clone, Tree)]
struct Penalty<T> {
    log_strength: T,
}

/// θ: logistic regression.
#[derive(Clone, Tree)]
struct Classifier<T> {
    weights: T,
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let digits = Digits::all();
    let split = Split { train: 100.into(), validation: 60.into(), held_out: 60.into(), test: 1000.into(), seed: 1 };
    let rows = split.stratified(&digits.labels)?;
    let losses = |s: &Scope, t: &Classifier<Tensor>| cross_entropy_rows(s.data("x").matmul(t.weights), s.data("y"));
    let shape = [PIXELS, CLASSES];
    let log_strength = Variable::constant(shape, -5.0).at_least(-12.0).at_most(1.0).log_penalty();
    let problem = Problem::builder(Penalty { log_strength }, Classifier { weights: Variable::constant(shape, 0.0) })
        .dtype(DType::F32)
        .table("x", digits.x()?, &rows)
        .table("y", digits.y()?, &rows)
        .inner(move |s, l, t| losses(s, t).mean_all() + (l.log_strength.exp() * t.weights.square()).sum_all())
        .outer_rows(move |s, _, t| losses(s, t))
        .measure("held-out rows", move |s, _, t| losses(&s.part(Part::HeldOut), t).mean_all())
        .measure("test rows", move |s, _, t| losses(&s.part(Part::Test), t).mean_all())
        .build()?;

    let (recorder, inner) = (Recorder::new(), InnerLoop::new(0.4, 100));
    let outcome = Driver::new(&problem, LangevinAdjoint::default())
        .inner(inner)
        .optimizer(Adam::default())
        .rate(0.1)
        .iterations(200)
        .measure_every(5)
        .seed(1)
        .observe(recorder.clone())
        .run()?;
    let guard = outcome.guard.as_ref().ok_or("there are held-out rows, so the run is guarded")?;
    println!("The guard: {guard}.\n");
    let found = problem.compare(&outcome.lambda).inner(InnerLoop::new(0.4, 3000)).run()?;
    println!("{found}");

    if let Some(path) = std::env::args().nth(1) {
        let iterations = recorder.iterations();
        let measured = |name: &'static str| {
            iterations.iter().filter_map(move |i| Some((f64::from(i.number), i.measures.get(name)?)))
        };
        let best = f64::from(guard.iteration);
        let curves = vec![
            Curve::new(
                "60 validation rows, which choose λ",
                iterations.iter().map(|i| (f64::from(i.number), i.outer_loss)),
            ),
            Curve::new("60 held-out rows", measured("held-out rows")),
            Curve::new("1000 test rows", measured("test rows")),
            Curve::new(
                format!("iteration {best}, which the guard returns"),
                [(best, 0.0), (best, guard.held_out_loss)],
            )
            .dashed(),
        ];
        let title = "640 penalties overfit 60 validation rows".into();
        let (x, y) = (Axis::linear("outer iteration"), Axis::linear("cross entropy"));
        std::fs::write(path, Plot { title, x, y, curves }.svg())?;
    }
    Ok(())
}
