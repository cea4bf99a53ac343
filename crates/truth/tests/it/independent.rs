//! Chains and directions on several ranks: the bits of one rank, and the work shared out.

use bilevel::graph::{Bindings, Buffer, Executor, Meta, Program, Runnable};
use bilevel::methods::{AnyMethod, Chains};
use bilevel::observers::StopSignal;
use bilevel::prelude::*;
use bilevel::programs::Snapshot;
use bilevel::{Error, Key, Session};
use bilevel_ranks::{Ranks, Threads};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A processor that counts the steps of its programs, and sets a signal after this many.
#[derive(Clone)]
struct Counting {
    cpu: Cpu,
    steps: Arc<AtomicU64>,
    stop_at: u64,
    signal: StopSignal,
}

struct CountingRun(Box<dyn Runnable>, Counting);

impl Counting {
    fn new(stop_at: u64) -> Self {
        Counting { cpu: Cpu::with_threads(1), steps: Arc::default(), stop_at, signal: StopSignal::new() }
    }
}

impl Executor for Counting {
    fn compile(&self, program: &Program) -> bilevel::graph::Result<Box<dyn Runnable>> {
        Ok(Box::new(CountingRun(self.cpu.compile(program)?, self.clone())))
    }

    fn buffer(&self, meta: &Meta) -> bilevel::graph::Result<Buffer> {
        self.cpu.buffer(meta)
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }
}

impl Runnable for CountingRun {
    fn bindings(&self) -> &Bindings {
        self.0.bindings()
    }

    fn bindings_mut(&mut self) -> &mut Bindings {
        self.0.bindings_mut()
    }

    fn allocate(&self, meta: &Meta) -> bilevel::graph::Result<Buffer> {
        self.0.allocate(meta)
    }

    fn accepts(&self, buffer: &Buffer) -> bool {
        self.0.accepts(buffer)
    }

    unsafe fn execute(&mut self, steps: Range<u32>) -> bilevel::graph::Result<()> {
        let CountingRun(run, counting) = self;
        let more = steps.len() as u64;
        // SAFETY: as the caller promised.
        unsafe { run.execute(steps)? };
        if counting.steps.fetch_add(more, Ordering::SeqCst) + more >= counting.stop_at {
            counting.signal.stop();
        }
        Ok(())
    }
}

/// A loss with minibatches and noise, whose rows would be shared out if a chain were computed by all ranks.
fn problem() -> Problem {
    let y = Array::from_f64([24], (0..24).map(|i| (f64::from(i) * 1.7).sin()).collect()).unwrap();
    Problem::builder(Leaf(Variable::constant([2], 0.4)), Leaf(Variable::normal([3], 0.3)))
        .data("y", y)
        .inner(|s, l, t| {
            let noise = s.normal([3]) * t.0 * 0.1;
            let weights = l.0.sum_all().exp();
            (s.data("y").mean_all() - t.0.sum_all()).square() + (t.0.square() * weights + noise).sum_all()
        })
        .outer(|s, l, t| (s.data("y").square().mean_all() - t.0).square().sum_all() + l.0.square().sum_all() * 0.1)
        .build()
        .unwrap()
        .erase()
}

/// What two hypergradients of one state leave: values, their errors, losses, and the state.
type Found = (Vec<(Vec<f64>, Option<Vec<f64>>, [u64; 2], String)>, Snapshot);

fn found(method: &dyn Method, executor: &dyn Executor) -> bilevel::Result<Found> {
    let inner = InnerLoop { burn_in: 5, ..InnerLoop::new(0.02, 40).at_temperature(1e-3) };
    let session = Session::new(&problem(), executor)?;
    // Without the diagnosis of a method that is prepared, which all ranks compute together, by rows.
    let inner = method.loop_use().adapt(inner);
    let mut estimator = method.compile(&session, &inner)?;
    let mut state = session.state(Key::from_seed(3))?;
    let mut all = vec![];
    for call in 0..3 {
        let h = estimator.estimate(&mut state, Key::from_seed(5).fold_in(call), inner.step)?;
        let error = h.standard_error.as_ref().map(|error| error.numbers()).transpose()?;
        let losses = [h.inner_loss.to_bits(), h.outer_loss.to_bits()];
        all.push((h.value.numbers()?, error, losses, format!("{:?} {:?}", h.oracles, h.diagnostics)));
    }
    Ok((all, state.snapshot()?))
}

/// Methods whose parts are independent: several chains of one, and directions.
fn methods() -> Vec<(&'static str, Box<dyn Method>)> {
    let named = |name: &str, settings: &[(&str, u64)]| {
        let mut own = serde_json::to_value(AnyMethod::named(name).unwrap()).unwrap();
        settings.iter().for_each(|&(key, value)| own[key] = value.into());
        serde_json::from_value::<AnyMethod>(own).unwrap()
    };
    let mut all: Vec<(&str, Box<dyn Method>)> = vec![];
    for name in ["langevin-adjoint", "hpo-sgld", "rmd", "soba", "ift-cg"] {
        all.push((name, Box::new(Chains::new(named(name, &[]), 5))));
    }
    for name in ["es", "pes", "fg2u"] {
        all.push((name, Box::new(named(name, &[("directions", 7)]))));
    }
    all
}

#[test]
fn chains_and_directions_on_several_ranks_have_the_bits_of_one() {
    for (name, method) in methods() {
        let alone = found(&*method, &Cpu::with_threads(1)).unwrap();
        assert_ne!(alone.0[0].0, alone.0[1].0, "{name}");
        for ranks in [2, 3, 4] {
            let all = Threads::run(ranks, |link| found(&*method, &Ranks::new(&Cpu::with_threads(1), link)));
            for (rank, other) in all.into_iter().enumerate() {
                assert_eq!(other.unwrap(), alone, "{name} on rank {rank} of {ranks}");
            }
        }
    }
}

#[test]
fn every_rank_does_its_share_of_the_steps() {
    for (name, method) in methods() {
        let steps = |executor: &Counting, all: &dyn Executor| {
            found(&*method, all).unwrap();
            executor.steps.load(Ordering::SeqCst) as f64
        };
        let counting = Counting::new(u64::MAX);
        let alone = steps(&counting, &counting);
        let shared = Threads::run(2, |link| {
            let counting = Counting::new(u64::MAX);
            steps(&counting, &Ranks::new(&counting, link))
        });
        // Three of five chains and four of seven directions, and what every rank does: gathering, probes, the last inner loop.
        assert!(shared.iter().all(|&steps| steps < 0.75 * alone), "{name}: {shared:?} of {alone}");
    }
}

#[test]
fn with_fewer_parts_than_ranks_all_compute_every_part_together() {
    let method = Chains::new(AnyMethod::named("langevin-adjoint").unwrap(), 2);
    let alone = found(&method, &Cpu::with_threads(1)).unwrap();
    for other in Threads::run(3, |link| found(&method, &Ranks::new(&Cpu::with_threads(1), link))) {
        let other = other.unwrap();
        let far = alone.0[2].0.iter().zip(&other.0[2].0).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(far < 1e-12, "{far}");
    }
}

#[test]
fn a_signal_on_one_rank_stops_all_within_the_hypergradient() {
    for (name, method) in methods() {
        let ended = Threads::run(2, |link| {
            let stop_at = if link.rank() == 1 { 60 } else { u64::MAX };
            let counting = Counting::new(stop_at);
            let session = Session::new(&problem(), &Ranks::new(&counting, link))?.stopped_by(counting.signal.clone());
            let inner = method.loop_use().adapt(InnerLoop { burn_in: 5, ..InnerLoop::new(0.001, 400) });
            let mut estimator = method.prepare_in(&session, &inner)?;
            estimator.estimate(&mut session.state(Key::from_seed(3))?, Key::from_seed(5)).map(|_| ())
        });
        for end in ended {
            let stopped = matches!(&end, Err(Error::Graph(error)) if error.kind == bilevel::graph::ErrorKind::Stopped);
            assert!(stopped, "{name}: {end:?}");
        }
    }
}
