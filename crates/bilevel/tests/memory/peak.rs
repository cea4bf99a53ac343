//! The most memory that each method holds while it finds a hypergradient, in copies of θ: what the guide's table says.

use crate::counting::{HELD, PEAK};
use bilevel::methods::AnyMethod;
use bilevel::{Cpu, Error, InnerLoop, Key, Leaf, Method, Problem, Session, Variable, methods};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

/// Numbers of θ: 8 MiB, which is four huge pages.
const SIZE: usize = 1 << 20;
/// Inner steps, so that what grows with them can be told from what does not.
const STEPS: usize = 20;

/// What λ is for.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A target, one for all θ.
    Target,
    /// The start of training, one for each θ.
    Start,
    /// A target that the evidence judges.
    Evidence,
}

/// The mean of (θ − λ)² inside and of (θ − 1)² outside.
fn problem(kind: Kind) -> Problem {
    let start = kind == Kind::Start;
    let lambda = if start { Variable::constant([SIZE], 0.5) } else { Variable::constant([], 0.5) };
    let problem = Problem::builder(Leaf(lambda), Leaf(Variable::constant([SIZE], 0.0)))
        .inner(move |_, l, t| if start { t.0.square().mean_all() } else { (t.0 - l.0).square().mean_all() });
    let problem = match kind {
        Kind::Evidence => problem.evidence(),
        _ => problem.outer(|_, _, t| (t.0 - 1.0).square().mean_all()),
    };
    let problem = if start { problem.start(|_, l| *l) } else { problem };
    problem.build().unwrap().erase()
}

/// Copies of θ alive at once, θ itself among them; `None` where the method does not apply.
fn peak(name: &str, problem: &Problem) -> Option<f64> {
    let mut method = AnyMethod::named(name).unwrap();
    let inner = method.tune(InnerLoop::new(0.1, STEPS).at_temperature(1e-6), 2.0 / SIZE as f64);
    let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
    let before = HELD.load(SeqCst);
    PEAK.store(before, SeqCst);
    let mut estimator = match method.compile(&session, &inner) {
        Ok(estimator) => estimator,
        Err(Error::NotApplicable { .. }) => return None,
        Err(error) => panic!("{name}: {error}"),
    };
    let mut state = session.state(Key::from_seed(1)).unwrap();
    match estimator.estimate(&mut state, Key::from_seed(2), inner.step) {
        Ok(_) | Err(Error::Diverged { .. }) => {}
        Err(Error::NotApplicable { .. }) => return None,
        Err(error) => panic!("{name}: {error}"),
    }
    Some((PEAK.load(SeqCst) - before) as f64 / (8 * SIZE) as f64)
}

#[test]
fn every_method_holds_as_many_copies_of_theta_as_are_stored() {
    let _alone = crate::ALONE.lock();
    let problems = [Kind::Target, Kind::Start, Kind::Evidence].map(problem);
    let line = |name: &str| {
        let copies = problems.iter().find_map(|problem| peak(name, problem)).unwrap();
        format!("{name}\t{copies:.0}\n")
    };
    let table: String = methods::all().iter().map(|info| line(info.name)).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../run/data/peak.tsv");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), table, "run the test with UPDATE_GOLDEN=1 if this should be so");
}
