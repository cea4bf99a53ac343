//! The tasks, one file each.

mod digits_l2;
mod hyper_cleaning;
mod quadratics;
mod sine_initialisation;
mod synth1d;

use crate::task::Task;
use bilevel::{Error, Result};

static ALL: &[Task] = &[
    synth1d::PLAIN,
    synth1d::NOISY,
    quadratics::TASK,
    digits_l2::TASK,
    hyper_cleaning::TASK,
    sine_initialisation::TASK,
];

/// All tasks, the smallest first.
///
/// ```
/// assert_eq!(bilevel_tasks::tasks()[0].name, "synth1d");
/// ```
pub fn tasks() -> &'static [Task] {
    ALL
}

/// The task of this name; a name that is not known is an error with the nearest one that is.
///
/// ```
/// let error = bilevel_tasks::task("synht1d").unwrap_err();
/// assert_eq!(error.to_string(), "there is no experiment 'synht1d'; did you mean synth1d?");
/// ```
pub fn task(name: &str) -> Result<&'static Task> {
    let known = || ALL.iter().map(|task| task.name);
    ALL.iter().find(|task| task.name == name).ok_or_else(|| Error::Problem {
        reason: match bilevel::nearest(name, known()) {
            Some(near) => format!("there is no experiment '{name}'; did you mean {near}?"),
            None => {
                let all = known().collect::<Vec<_>>().join(", ");
                format!("there is no experiment '{name}'; the experiments are {all}")
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskOptions;
    use bilevel::{AnyMethod, Cpu, Driver, Key, Session};

    #[test]
    fn every_method_that_applies_takes_two_good_steps_on_every_small_task() {
        for task in ALL {
            let setup = task.setup(&TaskOptions::default()).unwrap();
            let large = setup.problem.sizes().0 > 100;
            for info in bilevel::methods() {
                // One inner loop for each of thousands of numbers takes too long for a test.
                if large && ["fmd", "es", "covariance"].contains(&info.name) {
                    continue;
                }
                let method = task.method(info.name).unwrap();
                let driver = Driver::new(&setup.problem, method).executor(Cpu::with_threads(1));
                match driver.rate(task.defaults.rate).iterations(2).run() {
                    Ok(outcome) => assert!(!outcome.reason.is_failure(), "{} {}: {outcome:?}", task.name, info.name),
                    Err(Error::NotApplicable { .. }) => {}
                    Err(error) => panic!("{} {}: {error}", task.name, info.name),
                }
            }
        }
    }

    #[test]
    fn every_task_learns_with_its_own_settings() {
        for task in ALL {
            let setup = task.setup(&TaskOptions { seed: 1, ..TaskOptions::default() }).unwrap();
            let defaults = task.defaults;
            let method: AnyMethod = task.method(defaults.method).unwrap();
            let driver = Driver::new(&setup.problem, method).executor(Cpu::with_threads(1)).rate(defaults.rate).seed(1);
            let driver = match defaults.optimizer {
                crate::OptimizerKind::Sgd => driver,
                crate::OptimizerKind::Momentum => driver.optimizer(bilevel::Momentum::default()),
                crate::OptimizerKind::Adam => driver.optimizer(bilevel::Adam::default()),
            };
            let recorder = bilevel::Recorder::new();
            let outcome = driver.iterations(60).observe(recorder.clone()).run().unwrap();
            assert!(!outcome.reason.is_failure(), "{}: {}", task.name, outcome.reason);
            let losses: Vec<f64> = recorder.iterations().iter().map(|i| i.outer_loss).collect();
            let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
            assert!(mean(&losses[50..]) < mean(&losses[..10]), "{}: {losses:?}", task.name);
        }
    }

    #[test]
    fn measures_are_finite_where_a_run_starts_and_depend_on_nothing_but_the_key() {
        for task in ALL {
            let problem = task.setup(&TaskOptions::default()).unwrap().problem;
            let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
            let (mut evaluator, state) = (session.evaluator().unwrap(), session.state(Key::from([1, 2])).unwrap());
            let numbers = evaluator.at(&state, Key::from([3, 4])).unwrap();
            assert!(numbers.iter().all(|n| n.is_finite()), "{}: {numbers:?}", task.name);
            assert_eq!(evaluator.at(&state, Key::from([3, 4])).unwrap(), numbers, "{}", task.name);
        }
    }
}
