//! The losses that a hypergradient reports are those at the θ it returns, whatever the method.

use crate::large::*;
use crate::with::Usual;
use bilevel::methods::{AnyMethod, Chains};
use bilevel::{Cpu, Driver, Error, Key, Method, State, methods};

/// The problem a method applies to: as it is, with a start that depends on λ, or with λ for the start.
fn problem_for(method: &dyn Method) -> Large {
    let one = Large::default;
    let kinds =
        [one(), Large { start: true, ..one() }, Large { copy: true, ..one() }, Large { evidence: true, ..one() }];
    let applies = |large: &&Large| match method.prepared_on(&large.problem(), &Cpu::with_threads(1)) {
        Ok(_) => true,
        Err(Error::NotApplicable { .. }) => false,
        Err(error) => panic!("{}: {error}", method.name()),
    };
    *kinds.iter().find(applies).unwrap_or_else(|| panic!("{} applies to none", method.name()))
}

/// Rounding of sums over 60 numbers of about 1, in another order.
const ROUNDING: f64 = 1e-12;

fn assert_reported(name: &str, large: Large, (inner, outer): (f64, f64), lambda: &[f64], theta: &[f64]) {
    let expected = large.losses(lambda, theta);
    let size = 1.0 + expected.0.abs() + expected.1.abs();
    assert!((inner - expected.0).abs() < ROUNDING * size, "{name}: inner loss {inner}, at θ {}", expected.0);
    assert!((outer - expected.1).abs() < ROUNDING * size, "{name}: outer loss {outer}, at θ {}", expected.1);
}

#[test]
fn every_method_reports_the_losses_at_the_theta_it_returns() {
    for info in methods::all() {
        let method = AnyMethod::named(info.name).unwrap();
        let large = problem_for(&method);
        for calls in [1, 3] {
            let found = large.hypergradients(&method, calls);
            let (lambda, theta) = (found.state.lambda.numbers().unwrap(), found.state.theta.numbers().unwrap());
            assert_reported(info.name, large, (found.inner_loss, found.outer_loss), &lambda, &theta);
        }
    }
}

#[test]
fn a_run_without_a_diagnosis_reports_the_losses_at_its_last_theta_too() {
    for info in methods::all() {
        let method = AnyMethod::named(info.name).unwrap();
        let large = problem_for(&method);
        let problem = large.problem();
        let lambda = State::initial(&problem, &Cpu::with_threads(1), Key::from_seed(0)).unwrap().lambda;
        let outcome = Driver::new(&problem, method).diagnose_every(0).iterations(1).run().unwrap();
        let last = outcome.last.unwrap();
        let theta = outcome.state.theta.numbers().unwrap();
        assert_reported(info.name, large, (last.inner_loss, last.outer_loss), &lambda.numbers().unwrap(), &theta);
    }
}

#[test]
fn chains_report_the_mean_over_their_thetas() {
    let method = AnyMethod::named("langevin-adjoint").unwrap();
    let large = Large::default();
    let found = large.hypergradients(&Chains::new(method, 3), 2);
    let memory = found.state.memory.arrays().unwrap();
    let theta = found.state.theta.numbers().unwrap();
    // The label, the first chain's memory, and θ and memory of the others.
    let each = (memory.len() - 1 - 2) / 3;
    let others = [1 + each, 1 + each + 1 + each].map(|leaf| memory[leaf].to_f64());
    let all: Vec<(f64, f64)> = [theta].iter().chain(&others).map(|theta| large.losses(&LAMBDA, theta)).collect();
    let mean = |f: fn(&(f64, f64)) -> f64| all.iter().map(f).sum::<f64>() / 3.0;
    assert!((found.inner_loss - mean(|l| l.0)).abs() < ROUNDING, "{} {}", found.inner_loss, mean(|l| l.0));
    assert!((found.outer_loss - mean(|l| l.1)).abs() < ROUNDING, "{} {}", found.outer_loss, mean(|l| l.1));
}
