//! A page with the curves of a run that was driven by the library: no command, no folder of a run.
//!
//!     cargo run --release -p bilevel-cli --example report_of_a_run -- report.html

use bilevel::observers::{Aim, Recorder};
use bilevel::prelude::*;
use bilevel_cli::report_of;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Which weight decay for each parameter makes θ, trained towards 2, end at 1? The one that equals the pull: λ = 1.
    let problem =
        Problem::builder(Leaf(Variable::constant([20], 0.1).at_least(0.0)), Leaf(Variable::normal([20], 0.5)))
            .inner(|_, l, t| ((t.0 - 2.0).square() + l.0 * t.0.square()).sum_all())
            .outer(|_, _, t| (t.0 - 1.0).square().sum_all())
            .measure("distance of λ from 1", |_, l, _| (l.0 - 1.0).square().sum_all().sqrt())
            .build()?;
    let recorder = Recorder::new();
    let outcome = Driver::new(&problem, LangevinAdjoint::default())
        .inner(InnerLoop::new(0.1, 100))
        .optimizer(Adam::default())
        .rate(0.05)
        .iterations(300)
        .measure_every(5)
        .patience_on(Aim::lowest("distance of λ from 1"), 5, 1e-4)
        .keep_best(Aim::lowest("distance of λ from 1"))
        .observe(recorder.clone())
        .run()?;
    let page = report_of("Weight decay, parameter by parameter", &problem, &recorder.iterations(), &outcome)?.html();
    match std::env::args().nth(1) {
        Some(path) => std::fs::write(path, page)?,
        None => println!("{} bytes; give a path to keep them", page.len()),
    }
    Ok(())
}
