//! The table from which the rates of the digits study were taken: `cargo run --release -p bilevel-tasks --example digits_rates`

use bilevel::{Result, StopSignal};
use bilevel_tasks::digits::study::{METHODS, Plan, Setting, Watch, trial};
use std::sync::Arc;

fn main() -> Result<()> {
    let splits: Vec<u64> = (101..=105).collect();
    let plan = Plan { splits: splits.clone(), ..Plan::full() };
    let watch: Watch = Arc::new(|_| ());
    println!("mean validation loss, trained afresh, on splits 101 to 105\n\nmethod              rate  validation loss");
    for setting in METHODS {
        for rate in [0.01, 0.02, 0.05, 0.1, 0.2, 0.5] {
            let setting = Setting { rate, ..setting };
            let mut sum = 0.0;
            for &split in &splits {
                let found = trial(&plan, split, &setting, &StopSignal::new(), &watch)?;
                sum += found.and_then(|found| found.scores).map_or(f64::NAN, |scores| scores.validation.loss);
            }
            println!("{:<18}  {rate:<4}  {:.4}", setting.name, sum / splits.len() as f64);
        }
    }
    Ok(())
}
