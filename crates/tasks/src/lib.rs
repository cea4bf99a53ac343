//! The tasks of the command: bilevel problems with settings, one file or folder each, with their shared data and models.
//!
//! It is for the `bilevel` command and for its users; copy a file as a template for your own task.
//!
//! ```
//! let registry = bilevel_tasks::register(bilevel_run::Registry::new());
//! assert_eq!(registry.usual("synth1d")?.method.name(), "langevin-adjoint");
//! # Ok::<(), bilevel::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod digits;
mod digits_l2;
mod feature_l2;
mod few_rows;
pub mod few_shot;
mod hyper_cleaning;
pub mod implicit_representation;
pub mod invariance;
pub mod l1_regularisation;
mod layer_rates;
pub mod learned_loss;
pub mod logistic;
mod mlp_l2;
mod noisy_labels;
mod photographs;
mod quadratics;
mod sine_initialisation;
mod synth1d;

pub use digits_l2::{DigitsL2, trained};
pub use feature_l2::{FeatureL2, TwoClasses};
pub use few_rows::{FewRows, FewRowsProblem, RowSource, SmallModel, WeightPenalties};
pub use few_shot::FewShot;
pub use hyper_cleaning::{HyperCleaning, Retraining};
pub use implicit_representation::{ImplicitRepresentation, Kind, Signal};
pub use invariance::Invariance;
pub use l1_regularisation::L1Regularisation;
pub use layer_rates::LayerRates;
pub use learned_loss::LearnedLoss;
pub use mlp_l2::MlpL2;
pub use noisy_labels::{NoisyLabels, NoisySource};
pub use photographs::PictureSet;
pub use quadratics::Quadratics;
pub use sine_initialisation::SineInitialisation;
pub use synth1d::{OPTIMUM, Synth1d};

use bilevel_run::Registry;

/// Adds all tasks, the smallest first.
pub fn register(registry: Registry) -> Registry {
    registry
        .task::<Synth1d>()
        .task::<Quadratics>()
        .task::<DigitsL2>()
        .task::<FeatureL2>()
        .task::<MlpL2>()
        .task::<FewRows>()
        .task::<HyperCleaning>()
        .task::<NoisyLabels>()
        .task::<Invariance>()
        .task::<FewShot>()
        .task::<L1Regularisation>()
        .task::<LearnedLoss>()
        .task::<ImplicitRepresentation>()
        .task::<LayerRates>()
        .task::<SineInitialisation>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel::observers::Recorder;
    use bilevel::{Cpu, Error, Key, Session};
    use bilevel_run::{Config, Context};

    /// Every task as it usually runs.
    fn usual() -> Vec<(Registry, Config)> {
        let registry = crate::register(Registry::new());
        let config = |task: &bilevel_run::KnownTask| (registry.clone(), registry.usual(task.name).unwrap());
        registry.tasks().iter().map(config).collect()
    }

    fn cpu() -> Box<Cpu> {
        Box::new(Cpu::with_threads(1))
    }

    #[test]
    fn every_method_that_applies_takes_two_good_steps_on_every_small_task() {
        for (registry, config) in usual() {
            let name = config.task.name();
            let problem = config.problem(&registry).unwrap();
            let task = registry.read_task(&config.task).unwrap();
            let large = problem.sizes().0 > 100;
            for method in registry.methods() {
                // One inner loop for each of thousands of numbers takes too long for a test.
                if large && ["fmd", "es", "covariance"].contains(&method.info.name) {
                    continue;
                }
                let config = config.clone().by(registry.suited(&*task, method.info.name).unwrap());
                match config.driver(&registry, &problem, cpu()).unwrap().iterations(2).run() {
                    Ok(outcome) => {
                        assert!(!outcome.reason.is_failure(), "{name} {}: {outcome:?}", config.method.name());
                    }
                    Err(Error::NotApplicable { .. }) => {}
                    Err(error) => panic!("{name} {}: {error}", config.method.name()),
                }
            }
        }
    }

    #[test]
    fn every_task_learns_with_its_own_settings() {
        for (registry, config) in usual() {
            let config = config.seeded(1);
            let name = config.task.name();
            let problem = config.problem(&registry).unwrap();
            let recorder = Recorder::new();
            let driver = config.driver(&registry, &problem, cpu()).unwrap().iterations(60);
            let outcome = driver.observe(recorder.clone()).run().unwrap();
            assert!(!outcome.reason.is_failure(), "{name}: {}", outcome.reason);
            let losses: Vec<f64> = recorder.iterations().iter().map(|i| i.outer_loss).collect();
            let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
            assert!(mean(&losses[50..]) < mean(&losses[..10]), "{name}: {losses:?}");
        }
    }

    #[test]
    fn measures_are_finite_where_a_run_starts_and_depend_on_nothing_but_the_key() {
        for (registry, config) in usual() {
            let problem = config.problem(&registry).unwrap();
            let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
            let (mut evaluator, state) = (session.evaluator().unwrap(), session.state(Key::from([1, 2])).unwrap());
            let numbers = evaluator.at(&state, Key::from([3, 4])).unwrap();
            assert!(numbers.iter().all(|n| n.is_finite()), "{}: {numbers:?}", config.task.name());
            assert_eq!(evaluator.at(&state, Key::from([3, 4])).unwrap(), numbers, "{}", config.task.name());
        }
    }

    #[test]
    fn every_setting_of_every_task_has_a_meaning_and_is_read_back_as_it_was_written() {
        for known in crate::register(Registry::new()).tasks() {
            let meanings = bilevel_run::meanings(&known.schema());
            let settings = known.usual().settings();
            for key in settings.table().keys().filter(|key| *key != "name") {
                assert!(
                    meanings.iter().any(|(name, meaning)| name == key && !meaning.is_empty()),
                    "{} {key}",
                    known.name
                );
            }
            let again = crate::register(Registry::new()).read_task(&settings).unwrap();
            assert_eq!(again.settings(), settings);
        }
    }

    #[test]
    fn settings_that_make_no_problem_are_refused_with_their_name() {
        let refused = |name: &str, key: &str, value: f64| {
            let registry = crate::register(Registry::new());
            let mut settings = registry.known_task(name).unwrap().usual().settings();
            let whole = settings.get(key).unwrap().is_u64();
            settings.set(key, if whole { serde_json::json!(value as u64) } else { serde_json::json!(value) });
            let task = registry.read_task(&settings).unwrap();
            match task.build(&Context::default()) {
                Err(Error::Setting { name, .. }) => assert_eq!(name, key),
                Err(other) => panic!("{name} {key}: {other}"),
                Ok(_) => panic!("{name} {key} = {value} is taken"),
            }
        };
        refused("synth1d", "noise", -1.0);
        refused("quadratics", "size", 1.0);
        refused("quadratics", "condition", 0.5);
        refused("quadratics", "direct", -1.0);
        refused("digits-l2", "train", 0.0);
        refused("digits-l2", "start", 3.0);
        refused("feature-l2", "batch", 600.0);
        refused("feature-l2", "start", 6.0);
        refused("hyper-cleaning", "corrupted", 1.5);
        refused("hyper-cleaning", "clean", 600.0);
        refused("hyper-cleaning", "batch", 101.0);
        refused("few-rows", "train", 1.0);
        refused("few-rows", "rows", 4.0);
        refused("noisy-labels", "corrupted", 1.5);
        refused("noisy-labels", "trusted", 2.0);
        refused("mlp-l2", "hidden", 0.0);
        refused("mlp-l2", "batch", 600.0);
        refused("layer-rates", "hidden", 0.0);
        refused("layer-rates", "batch", 600.0);
        refused("sine-initialisation", "hidden", 0.0);
        refused("few-shot", "ways", 1.0);
        refused("few-shot", "tasks", 0.0);
        refused("few-shot", "prior", -1.0);
        refused("l1-regularisation", "train", 0.0);
        refused("l1-regularisation", "start", -1.0);
        refused("learned-loss", "batch", 0.0);
        refused("learned-loss", "decay", -1.0);
        refused("learned-loss", "validation", 1.0);
        refused("implicit-representation", "width", 0.0);
        refused("implicit-representation", "side", 9.0);
        refused("implicit-representation", "tasks", 300.0);
        refused("implicit-representation", "views", 1.0);
        refused("implicit-representation", "frequency", 0.0);
        refused("implicit-representation", "extra", -1.0);
        refused("implicit-representation", "far", 1.0);
    }
}
