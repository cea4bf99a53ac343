//! Every method with the command's own defaults ends near the known optimum and raises no warning.

use bilevel::{Cpu, StopReason};
use bilevel_cli::config::{entries::parse, resolve};
use bilevel_tasks::Registry;

#[test]
fn explore() {
    let registry = Registry::everything();
    for task in ["synth1d", "quadratics"] {
        for known in registry.methods() {
            let name = known.info.name;
            let text = format!("[task]\nname = \"{task}\"\n[method]\nname = \"{name}\"\n");
            let config = resolve(&registry, &parse(text.as_bytes(), "my.toml".as_ref()).unwrap()).unwrap();
            let problem = config.problem(&registry).unwrap();
            let method = config.method(&registry).unwrap();
            if let Err(error) = bilevel::Method::applies(&method, &problem) {
                println!("{task} {name}: {error}");
                continue;
            }
            let began = std::time::Instant::now();
            let driver = config.driver(&registry, &problem, Box::new(Cpu::with_threads(1))).unwrap();
            let outcome = match driver.run() {
                Ok(outcome) => outcome,
                Err(error) => {
                    println!("{task} {name}: ERROR {error}");
                    continue;
                }
            };
            let mut evaluator = bilevel::Evaluator::new(&problem, &Cpu::with_threads(1)).unwrap();
            let distance = evaluator.at(&outcome.state, bilevel::Key::from_seed(0)).unwrap()[2];
            let good = outcome.reason == StopReason::Iterations;
            println!(
                "{task} {name}: {distance:.2e} {good} {:.1} s {:?} {}",
                began.elapsed().as_secs_f64(),
                outcome.notes,
                if good { String::new() } else { outcome.reason.to_string() }
            );
        }
    }
}
