//! The bytes that ranks exchange in a hypergradient are those of the guide's table.

use bilevel::graph::{Communicator, Link};
use bilevel::methods::{AnyMethod, Chains};
use bilevel::prelude::*;
use bilevel::{Key, Session};
use bilevel_ranks::{Ranks, Threads};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const STEPS: usize = 30;
/// Numbers of θ and of λ: their bytes are nearly all there is.
const THETA: usize = 6000;
const LAMBDA: usize = 3000;

/// Ranks whose messages are weighed.
struct Weighed(Link, Arc<AtomicUsize>);

impl Communicator for Weighed {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn gather(&self, own: &[u8], lengths: &[usize], all: &mut [u8]) -> bilevel::graph::Result<()> {
        self.1.fetch_add(own.len() * (self.size() - 1), Ordering::Relaxed);
        self.0.gather(own, lengths, all)
    }

    fn exchange(&self, send: &[u8], lengths: &[usize], receive: &mut [u8]) -> bilevel::graph::Result<()> {
        self.1.fetch_add(send.len() - lengths[self.rank()], Ordering::Relaxed);
        self.0.exchange(send, lengths, receive)
    }

    fn abort(&self, reason: &str) {
        self.0.abort(reason);
    }
}

/// θ scales the columns of shared rows, and λ those of the first half.
fn problem() -> Problem {
    let rows = Array::from_f64([8, THETA], (0..8 * THETA).map(|i| (i as f64 * 0.37).sin()).collect()).unwrap();
    Problem::builder(Leaf(Variable::constant([LAMBDA], 0.1)), Leaf(Variable::constant([THETA], 0.5)))
        .data("x", rows)
        .inner(|s, l, t| {
            let weights = l.0.concat(&[l.0], 0).reshape([1, THETA]).exp();
            let shift = s.data("x") * t.0.reshape([1, THETA]) - 1.0;
            (shift.square() * weights * s.data("x").square()).mean([0]).sum_all()
        })
        .outer(|s, _, t| (s.data("x") * t.0.reshape([1, THETA])).square().mean([0]).sum_all())
        .build()
        .unwrap()
        .erase()
}

/// Bytes out of rank 0 in the second hypergradient.
fn bytes(method: &dyn Method, ranks: usize) -> f64 {
    let out = Threads::run(ranks, |link| {
        let sent = Arc::new(AtomicUsize::new(0));
        let executor = Ranks::new(&Cpu::with_threads(1), Link::new(Weighed(link, sent.clone())));
        let session = Session::new(&problem(), &executor).unwrap();
        let inner = method.loop_use().adapt(InnerLoop::new(0.01, STEPS));
        let mut estimator = method.compile(&session, &inner).unwrap();
        let mut state = session.state(Key::from_seed(1)).unwrap();
        let mut once = || {
            let before = sent.load(Ordering::Relaxed);
            estimator.estimate(&mut state, Key::from_seed(2), 0.01).unwrap();
            sent.load(Ordering::Relaxed) - before
        };
        [once(), once()][1]
    });
    out[0] as f64
}

#[test]
fn a_hypergradient_moves_the_bytes_that_the_guide_says() {
    let (p, l, t) = (8.0 * THETA as f64, 8.0 * LAMBDA as f64, STEPS as f64);
    let terms = 12;
    let named = |name: &str, terms: Option<u64>| {
        let mut own = serde_json::to_value(AnyMethod::named(name).unwrap()).unwrap();
        terms.iter().for_each(|&terms| own["terms"] = terms.into());
        serde_json::from_value::<AnyMethod>(own).unwrap()
    };
    // In numbers of which a sum over ranks is taken: those of every step, and those at the end.
    let cases = [
        (named("rmd", None), t * (2.0 * p + l) + p),
        (named("soba", None), t * (2.0 * p + l)),
        (named("langevin-adjoint", None), t * (4.0 * p + l)),
        (named("ift-neumann", Some(terms)), (t + terms as f64) * p + p + l),
    ];
    for ranks in [2, 4] {
        let others = ranks as f64 - 1.0;
        for (method, summed) in &cases {
            let (moved, expected) = (bytes(method, ranks), 2.0 * summed * others / ranks as f64);
            println!("{ranks} ranks, {}: {moved} bytes, {:.4} of the formula", method.name(), moved / expected);
            // What is left out are sums of a few numbers and checks of agreement.
            assert!((moved / expected - 1.0).abs() < 0.01, "{} on {ranks} ranks: {moved} of {expected}", method.name());
        }
        // Every rank has a chain, and sends its θ, z, radius and hypergradient, with 27 numbers and four checks of agreement.
        let chains = bytes(&Chains::new(named("langevin-adjoint", None), ranks), ranks);
        assert_eq!(chains, others * (2.0 * p + l + 8.0 * (1.0 + 27.0 + 4.0)));
    }
}
