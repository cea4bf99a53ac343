//! The table from which the rates of the digits study were taken: `cargo run --release -p bilevel-tasks --example digits_rates`

use bilevel::{Cpu, Result};
use bilevel_reproduction::studies::digits::{DigitsStudy, METHODS, Setting};
use bilevel_run::{Place, Plan, Registry, in_memory};

fn main() -> Result<()> {
    let registry = bilevel_reproduction::register(bilevel_tasks::register(Registry::new()));
    // Splits 101 to 105, which are not among those the study shows.
    let (plan, place) = (Plan { seed: 100, ..Plan::new(&registry) }, Place::new(&registry, Cpu::with_threads(1)));
    println!(
        "mean validation loss, trained from scratch, on splits 101 to 105\n\nmethod              rate  validation \
         loss"
    );
    for rate in [0.01, 0.02, 0.05, 0.1, 0.2, 0.5] {
        let study = DigitsStudy { methods: METHODS.map(|method| Setting { rate, ..method }) };
        let found = in_memory(&study, &plan, &place)?;
        for method in METHODS {
            let is_its = |row: &&bilevel_run::Row| row.method == method.name && row.metric == "validation loss";
            let loss = found.rows.iter().find(is_its).and_then(|row| row.ours);
            println!("{:<18}  {rate:<4}  {:.4}", method.name, loss.unwrap_or(f64::NAN));
        }
    }
    Ok(())
}
