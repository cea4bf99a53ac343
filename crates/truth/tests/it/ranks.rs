//! The truth suite on several ranks: every method on every problem gives the hypergradient that one rank gives.

use bilevel::methods::AnyMethod;
use bilevel::{Cpu, InnerLoop, Key, Method, Session, methods};
use bilevel_graph::Executor;
use bilevel_ranks::{Ranks, Threads};
use bilevel_truth::{self as truth, TruthProblem};
use std::time::Instant;

/// Long enough for every product of an inner loop, short enough that rounding does not grow.
const STEPS: usize = 6;

/// Two hypergradients, one after the other: the second starts from what the first left. The error is its sentence.
fn hypergradients(
    (method, inner): (&AnyMethod, &InnerLoop),
    problem: &TruthProblem,
    executor: &dyn Executor,
) -> Result<Vec<Vec<f64>>, String> {
    let found = || -> bilevel::Result<Vec<Vec<f64>>> {
        let session = Session::new(&problem.problem, executor)?;
        let mut estimator = method.compile(&session, inner)?;
        let mut state = session.state(Key::from_seed(3))?;
        let one =
            |call: u32| estimator.estimate(&mut state, Key::from_seed(5).fold_in(call), inner.step)?.value.numbers();
        (0..2).map(one).collect()
    };
    found().map_err(|error| error.to_string())
}

/// How far two hypergradients are apart, relative to the first.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut a.iter().copied()).max(f64::MIN_POSITIVE)
}

fn check(ranks: usize, of: impl Fn(usize) -> bool) {
    let problems = truth::problems().unwrap();
    let mut compared = 0;
    for (number, info) in methods::all().iter().enumerate() {
        let began = Instant::now();
        let mut worst = (0.0, String::new());
        for (_, problem) in problems.iter().enumerate().filter(|(place, _)| of(number + place)) {
            let Ok((method, inner)) = truth::fitted(&AnyMethod::named(info.name).unwrap(), problem) else { continue };
            let steps = inner.steps.min(STEPS);
            let inner = InnerLoop { steps, burn_in: inner.burn_in.min(steps / 2), ..inner };
            let Ok(alone) = hypergradients((&method, &inner), problem, &Cpu::with_threads(1)) else { continue };
            let found = Threads::run(ranks, |link| {
                hypergradients((&method, &inner), problem, &Ranks::new(&Cpu::with_threads(1), link))
            });
            for other in &found {
                assert_eq!(other, &found[0], "{} on {}: two ranks have other bits", info.name, problem.name);
            }
            let found = found[0].as_ref().unwrap_or_else(|e| panic!("{} on {}: {e}", info.name, problem.name));
            for (a, b) in alone.iter().zip(found) {
                let off = distance(a, b);
                if off > worst.0 {
                    worst = (off, problem.name.clone());
                }
            }
            compared += 1;
        }
        println!("{:17} {:.1e} on {} ({:.1?})", info.name, worst.0, worst.1, began.elapsed());
        assert!(worst.0 < 1e-12, "{} on {}: {:e}", info.name, worst.1, worst.0);
    }
    println!("{compared} pairs");
    assert!(compared > 100);
}

#[test]
fn two_ranks_give_the_hypergradient_of_one_for_every_method() {
    check(2, |_| true);
}

#[test]
fn four_ranks_give_the_hypergradient_of_one_for_every_method() {
    check(4, |_| true);
}
