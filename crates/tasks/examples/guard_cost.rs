//! The guard's cost in time: runs with and without it, taking turns, and the medians of both.
//!
//!     cargo run --release -p bilevel-tasks --example guard_cost [PAIRS]

use bilevel::graph::Executor;
use bilevel::{Cpu, Result};
use bilevel_run::{Config, Registry};
use std::time::Instant;

/// Tasks that divide rows, with the method and the inner loop that suit them.
const TASKS: [&str; 5] = ["digits-l2", "few-rows", "hyper-cleaning", "mlp-l2", "layer-rates"];
const ITERATIONS: u32 = 100;

fn main() -> Result<()> {
    let pairs = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(9);
    let registry = bilevel_tasks::register(Registry::new());
    println!("{ITERATIONS} outer iterations, medians of {pairs} pairs, and the guard's share of the time");
    for name in TASKS {
        let mut config = registry.usual(name)?;
        config.outer.iterations = ITERATIONS;
        (config.metrics.every, config.metrics.diagnose, config.held_out.compare) = (ITERATIONS, 0, false);
        let without = |config: &Config| {
            let mut config = config.clone();
            config.held_out.every = 0;
            config
        };
        let (with, without) = (config.clone(), without(&config));
        // The first compiles kernels and fills caches.
        seconds(&registry, &with)?;
        let mut all = [vec![], vec![]];
        for pair in 0..pairs {
            // Either goes first in turn.
            for turn in [pair % 2, 1 - pair % 2] {
                all[turn].push(seconds(&registry, [&with, &without][turn])?);
            }
        }
        let [with, without] = all.map(median);
        println!("{name:<16} {with:.4} s with, {without:.4} s without: {:+.1} %", 100.0 * (with / without - 1.0));
    }
    Ok(())
}

/// The time of the iterations of a run, without its compilation: that of the whole run less that of one iteration.
fn seconds(registry: &Registry, config: &Config) -> Result<f64> {
    let problem = config.problem(registry)?;
    let cpu = Cpu::with_threads(1);
    let time = |iterations: u32| -> Result<f64> {
        let driver = config.driver(registry, &problem, Box::new(cpu.share()))?.iterations(iterations);
        let began = Instant::now();
        driver.run()?;
        Ok(began.elapsed().as_secs_f64())
    };
    let first = time(1)?;
    Ok(time(config.outer.iterations)? - first)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
