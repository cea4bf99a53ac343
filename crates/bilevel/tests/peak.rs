//! The most memory that each method holds while it finds a hypergradient, in copies of θ: what the README's table says.

#[path = "../../cpu/tests/common/counting.rs"]
#[allow(dead_code)] // What a test of the executor needs besides.
mod counting;

use bilevel::{AnyMethod, Cpu, Error, Key, Leaf, Method, Problem, Session, Suited, Variable, methods};
use counting::{Counting, HELD, PEAK};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Numbers of θ: 8 MiB, which is four huge pages.
const SIZE: usize = 1 << 20;
/// Inner steps, so that what grows with them can be told from what does not.
const STEPS: usize = 20;

/// The mean of (θ − λ)² inside and of (θ − 1)² outside, with one λ; for methods that learn the start of training, one for each θ.
fn problem(start: bool) -> Problem {
    let lambda = if start { Variable::constant([SIZE], 0.5) } else { Variable::constant([], 0.5) };
    let problem = Problem::new(Leaf(lambda), Leaf(Variable::constant([SIZE], 0.0)))
        .inner(move |_, l, t| if start { t.0.square().mean_all() } else { (t.0 - l.0).square().mean_all() })
        .outer(|_, _, t| (t.0 - 1.0).square().mean_all());
    let problem = if start { problem.start(|_, l| *l) } else { problem };
    problem.build().unwrap().erase()
}

/// Copies of θ alive at once, θ itself among them; `None` where the method does not apply.
fn peak(name: &str, problem: &Problem) -> Option<f64> {
    let mut method = AnyMethod::named(name).unwrap();
    method.suit(&Suited { step: 0.1, steps: STEPS, temperature: 1e-6, curvature: 2.0 / SIZE as f64 });
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    let before = HELD.load(SeqCst);
    PEAK.store(before, SeqCst);
    let mut estimator = match method.compile(&session) {
        Ok(estimator) => estimator,
        Err(Error::NotApplicable { .. }) => return None,
        Err(error) => panic!("{name}: {error}"),
    };
    let mut state = session.state(Key::from_seed(1)).unwrap();
    match estimator.estimate(&mut state, Key::from_seed(2)) {
        Ok(_) | Err(Error::Diverged { .. }) => {}
        Err(Error::NotApplicable { .. }) => return None,
        Err(error) => panic!("{name}: {error}"),
    }
    Some((PEAK.load(SeqCst) - before) as f64 / (8 * SIZE) as f64)
}

// One test alone: every thread of the process counts.
#[test]
fn every_method_holds_as_many_copies_of_theta_as_are_stored() {
    let (plain, start) = (problem(false), problem(true));
    let line = |name: &str| {
        let copies = peak(name, &plain).or_else(|| peak(name, &start)).unwrap();
        format!("{name}\t{copies:.0}\n")
    };
    let table: String = methods().iter().map(|info| line(info.name)).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tasks/data/peak.tsv");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), table, "run the test with UPDATE_GOLDEN=1 if this should be so");
}
