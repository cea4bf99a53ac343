//! The existence of hypergradients: whole trainings of small networks over a range of inner steps. Prints the exact
//! derivative through all steps, the growth of sensitivities, and the result of one forward pass of the Langevin
//! adjoint.
//!
//!     cargo run --release -p bilevel-truth --example whole_trainings

use bilevel::prelude::*;
use bilevel_truth::{Effort, measure, trainings};

const STEPS: usize = 2000;

fn main() -> bilevel::Result<()> {
    println!("| training | exact, norm | growth rate | adjoint: cosine, size | with K = 500 | HPO-SGLD |");
    println!("|---|--:|--:|--:|--:|--:|");
    for training in trainings(STEPS)? {
        let (step, last) = (training.facts.inner.step, STEPS / 10);
        let inner = InnerLoop { burn_in: STEPS - last, ..InnerLoop::new(step, STEPS) };
        let adjoint = LangevinAdjoint::default();
        let forgetful = LangevinAdjoint { horizon: 500, ..adjoint };
        let plain = training.name.contains("MLP, γ") || training.name.contains("convolutional");
        let shown = |method: &dyn Method| -> bilevel::Result<String> {
            if !plain {
                return Ok("–".into());
            }
            let row = measure((method, &inner), &training, Effort::QUICK, &Cpu::with_threads(1))?;
            let number = |x: Option<f64>| {
                x.map_or("–".into(), |x| if x.abs() < 1e-3 { format!("{x:.0e}") } else { format!("{x:.2}") })
            };
            Ok(format!("{}, {}", number(row.cosine), number(row.size)))
        };
        let norm = training.truth.iter().map(|h| h * h).sum::<f64>().sqrt();
        println!(
            "| {} | {norm:.1e} | {:+.1e} | {} | {} | {} |",
            training.name,
            training.growth_rate.unwrap_or(f64::NAN),
            shown(&adjoint)?,
            shown(&forgetful)?,
            shown(&HpoSgld::default())?,
        );
    }
    Ok(())
}
