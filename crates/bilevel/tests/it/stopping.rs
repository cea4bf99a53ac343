//! A stop signal is answered within the inner loop of a long hypergradient, and does no harm.

use crate::with::{Usual, With, library};
use bilevel::checkpoints::Checkpoints;
use bilevel::graph::{Bindings, Buffer, Executor, Meta, Program, Result, Runnable};
use bilevel::methods::{AnyMethod, Chains, Storage};
use bilevel::observers::StopSignal;
use bilevel::prelude::*;
use bilevel::programs::Snapshot;
use bilevel::{AnyProblem, State, methods};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the steps that programs take, and sets a signal once there were this many.
#[derive(Clone)]
struct Counting {
    cpu: Cpu,
    steps: Arc<AtomicU64>,
    stop_at: u64,
    signal: StopSignal,
}

impl Counting {
    fn new(stop_at: u64) -> Self {
        Counting { cpu: Cpu::with_threads(1), steps: Arc::default(), stop_at, signal: StopSignal::new() }
    }

    fn taken(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }
}

struct CountingRun(Box<dyn Runnable>, Counting);

impl Executor for Counting {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        Ok(Box::new(CountingRun(self.cpu.compile(program)?, self.clone())))
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
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

    fn allocate(&self, meta: &Meta) -> Result<Buffer> {
        self.0.allocate(meta)
    }

    fn accepts(&self, buffer: &Buffer) -> bool {
        self.0.accepts(buffer)
    }

    unsafe fn execute(&mut self, steps: Range<u32>) -> Result<()> {
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

/// Every method applies to one of these.
fn problems() -> [Problem; 2] {
    let base = || {
        Problem::builder(Leaf(Variable::constant([3], 0.4)), Leaf(Variable::normal([3], 0.3)))
            .inner(|s, l, t| ((t.0 - l.0).square() + s.normal([3]) * t.0 * 0.1).sum_all())
            .outer(|_, l, t| (t.0 - 1.0).square().sum_all() + l.0.square().sum_all() * 0.1)
    };
    [base().build().unwrap().erase(), base().start(|_, l| *l).build().unwrap().erase()]
}

/// A method with inner loops of this many steps, and solves as long.
fn with_steps(name: &str, steps: usize) -> With<AnyMethod> {
    let mut written = library(name, InnerLoop::new(0.001, steps).at_temperature(1e-6), None);
    let mut own = serde_json::to_value(&written.0).unwrap();
    let value = |number: f64| serde_json::Value::from(number);
    let settings =
        [("iterations", steps.into()), ("terms", steps.into()), ("alpha", value(0.01)), ("beta", value(0.01))];
    for (setting, value) in settings {
        if let Some(place) = own.get_mut(setting) {
            *place = value;
        }
    }
    written.0 = serde_json::from_value(own).unwrap();
    written
}

fn driver(problem: &AnyProblem, method: Box<dyn Method>, counting: &Counting) -> Driver {
    Driver::new(&Problem::from(problem.clone()), method)
        .executor(counting.clone())
        .stop_signal(counting.signal.clone())
        .rate(0.05)
        .seed(3)
}

fn all_methods(steps: usize) -> Vec<Box<dyn Method>> {
    let mut all: Vec<Box<dyn Method>> = vec![];
    for info in methods::all() {
        all.push(Box::new(with_steps(info.name, steps)));
    }
    all.push(Box::new(Chains::new(with_steps("langevin-adjoint", steps), 3)));
    all.push(Box::new(Chains::new(with_steps("rmd", steps), 3)));
    let stored = With(Rmd { storage: Storage::Checkpoints }, InnerLoop::new(0.001, steps));
    all.push(Box::new(stored));
    all
}

/// λ, θ, memory and numbers, without times.
fn without_times(outcome: &Outcome) -> (Snapshot, u32, Option<f64>) {
    (outcome.state.snapshot().unwrap(), outcome.iterations, outcome.last.as_ref().map(|last| last.hypergradient_norm))
}

#[test]
fn a_signal_within_a_hypergradient_ends_every_method_at_its_last_whole_iteration_with_its_state_unharmed() {
    let steps = 400;
    let mut seen = 0;
    for problem in problems() {
        for number in 0..all_methods(steps).len() {
            let method = || all_methods(steps).swap_remove(number);
            let name = method().name();
            if method().applies(&problem).is_err() {
                continue;
            }
            // What one iteration takes, and two.
            let [one, two] = [1, 2].map(|iterations| {
                let counting = Counting::new(u64::MAX);
                let outcome = driver(&problem, method(), &counting).iterations(iterations).run().unwrap();
                assert_eq!(outcome.reason, StopReason::Iterations, "{name}");
                (counting.taken(), without_times(&outcome))
            });
            // In the midst of the second iteration, or of the first.
            for (stop_at, iterations) in [((one.0 + two.0) / 2, 1), (one.0 / 2, 0)] {
                let counting = Counting::new(stop_at);
                let outcome = driver(&problem, method(), &counting).iterations(2).run().unwrap();
                assert_eq!((&outcome.reason, outcome.iterations), (&StopReason::Signal, iterations), "{name}");
                let end = if iterations == 1 { one.0 } else { 0 };
                assert!(counting.taken() < end + (two.0 - one.0) * 19 / 20, "{name} went on for {}", counting.taken());
                if iterations == 1 {
                    assert_eq!(without_times(&outcome), one.1, "{name}");
                }
            }
            seen += 1;
        }
    }
    assert!(seen >= 22, "only {seen} methods apply to the two problems");
}

#[test]
fn a_run_stopped_within_a_hypergradient_and_resumed_has_the_bits_of_one_in_one_piece() {
    let problem = &problems()[0];
    for name in ["langevin-adjoint", "rmd", "amigo-cg", "es"] {
        let method = || Box::new(Chains::new(with_steps(name, 300), 2)) as Box<dyn Method>;
        let folder = std::env::temp_dir().join(format!("bilevel-stopped-{name}-{}", std::process::id()));
        let saving = || Checkpoints::new(&folder).resume(true);
        let whole = Counting::new(u64::MAX);
        let want = driver(problem, method(), &whole).iterations(5).run().unwrap();
        let stopped = Counting::new(whole.taken() / 2);
        let first = driver(problem, method(), &stopped).iterations(5).checkpoints(saving()).run().unwrap();
        assert_eq!(first.reason, StopReason::Signal, "{name}");
        assert!((1..5).contains(&first.iterations), "{name}: {}", first.iterations);
        let rest = Counting::new(u64::MAX);
        let second = driver(problem, method(), &rest).iterations(5).checkpoints(saving()).run().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(without_times(&second), without_times(&want), "{name}");
    }
}

#[test]
fn a_loop_in_stretches_has_the_bits_of_one_in_one_go() {
    // The driver runs loops in stretches, an estimator prepared by hand does not.
    let problem = &problems()[0];
    for info in methods::all() {
        let method = with_steps(info.name, 1000);
        if method.applies(problem).is_err() || ["es", "fmd"].contains(&info.name) {
            continue;
        }
        let outcome = Driver::new(problem, method.clone()).executor(Cpu::with_threads(1)).iterations(1).run().unwrap();
        let key = Key::from_seed(0);
        let mut state = State::initial(problem, &Cpu::with_threads(1), key).unwrap();
        let mut alone = method.prepared_on(problem, &Cpu::with_threads(1)).unwrap();
        alone.estimate(&mut state, key.fold_in(1)).unwrap();
        let (driven, alone) = (outcome.state.snapshot().unwrap(), state.snapshot().unwrap());
        assert_eq!((driven.theta, driven.memory), (alone.theta, alone.memory), "{}", info.name);
    }
}
