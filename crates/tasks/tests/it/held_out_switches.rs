//! Folds, shrinkage and a last training by switches of a configuration.

use bilevel::observers::StopSignal;
use bilevel::{Cpu, Outcome, Tree};
use bilevel_run::{Config, Registry};
use bilevel_tasks::FewRows;

/// A short run on sixty digits.
fn config(registry: &Registry) -> Config {
    let mut config = registry.config(&FewRows { rows: 60, test: 100, ..FewRows::default() }).unwrap();
    config.outer.iterations = 10;
    config.held_out.compare = false;
    config
}

fn ran(config: &Config, registry: &Registry) -> Outcome {
    let (cpu, signal) = (Cpu::with_threads(1), StopSignal::new());
    let problem = config.problem_on(registry, &cpu, &signal).unwrap();
    config.run_on(registry, &problem, Box::new(cpu), |driver| driver).unwrap().0
}

#[test]
fn folds_and_shrinkage_end_with_lambda_and_theta_of_the_task() {
    let registry = bilevel_tasks::register(Registry::new());
    let mut config = config(&registry);
    let plain = ran(&config, &registry);
    (config.held_out.folds, config.held_out.shrinkage, config.held_out.compare) = (3, 0.5, true);
    let outcome = ran(&config, &registry);
    for (ours, theirs) in [(&outcome.lambda, &plain.lambda), (&outcome.theta, &plain.theta)] {
        assert_eq!(ours.names(), theirs.names());
        assert!(ours.leaves().iter().zip(theirs.leaves()).all(|(ours, theirs)| ours.shape() == theirs.shape()));
    }
    assert!(outcome.notes.iter().any(|note| note.contains("all 60 rows")), "{:?}", outcome.notes);
    assert!(outcome.measures.get("test loss").is_some());
}

#[test]
fn a_retrained_lambda_is_that_of_the_run_with_its_penalties_rescaled() {
    let registry = bilevel_tasks::register(Registry::new());
    let mut config = config(&registry);
    config.held_out.every = 0;
    let plain = ran(&config, &registry);
    config.held_out.retrain = true;
    let retrained = ran(&config, &registry);
    // Thirty rows of sixty.
    let shift = 0.5f64.ln();
    for (ours, theirs) in retrained.lambda.leaves().iter().zip(plain.lambda.leaves()) {
        for (ours, theirs) in ours.to_f64().iter().zip(theirs.to_f64()) {
            assert!((ours - theirs - shift).abs() < 1e-12, "{ours}, not {}", theirs + shift);
        }
    }
    assert_ne!(retrained.theta.leaves()[0], plain.theta.leaves()[0]);
}

#[test]
fn switches_that_do_not_fit_a_start_are_refused_with_what_to_leave_out() {
    let registry = bilevel_tasks::register(Registry::new());
    let config = config(&registry);
    let problem = config.problem(&registry).unwrap();
    let refused = |change: fn(&mut Config)| {
        let mut config = config.clone();
        change(&mut config);
        let ran = config.run_on(&registry, &problem, Box::new(Cpu::with_threads(1)), |driver| driver);
        ran.err().unwrap().to_string()
    };
    let both = refused(|config| (config.held_out.folds, config.start.theta) = (2, "theta.safetensors".into()));
    assert!(both.contains("held_out.folds trains several"), "{both}");
    let both = refused(|config| (config.held_out.shrinkage, config.start.lambda) = (1.0, "l.safetensors".into()));
    assert!(both.contains("means and offsets"), "{both}");
    let many = refused(|config| config.held_out.folds = 61);
    assert_eq!(many, "held_out.folds is 61 but must be at least 2, and at most the number of rows");
}
