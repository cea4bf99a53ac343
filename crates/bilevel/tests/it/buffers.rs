//! State stays where it is computed: what is read back between iterations are single numbers, and what is given out is not
//! written again.

use crate::with::{Usual, With, library};
use bilevel::graph::{Bindings, Buffer, Executor, Meta, Program, Result, Runnable, Storage};
use bilevel::methods::{Chains, Saba};
use bilevel::optimizers::Adam;
use bilevel::{AnyProblem, Array, Cpu, Driver, InnerLoop, Key, Leaf, Method, Problem, Session, Variable, methods};
use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const SIZE: usize = 50;

/// Every method applies to one of these; λ and θ have as many numbers each.
fn problems() -> [Problem; 2] {
    let base = || {
        Problem::builder(Leaf(Variable::constant([SIZE], 0.4)), Leaf(Variable::normal([SIZE], 0.3)))
            .inner(|s, l, t| ((t.0 - l.0).square() + s.normal([SIZE]) * t.0 * 0.1).sum_all())
            .outer(|_, l, t| (t.0 - 1.0).square().sum_all() + l.0.square().sum_all() * 0.1)
    };
    [base().build().unwrap().erase(), base().start(|_, l| *l).build().unwrap().erase()]
}

/// Every method that applies, with few steps, and chains of it.
fn each_method(mut visit: impl FnMut(&AnyProblem, &'static str, &dyn Fn() -> Box<dyn Method>)) {
    let mut seen = 0;
    for problem in problems() {
        for info in methods::all() {
            let inner = InnerLoop { burn_in: 4, ..InnerLoop::new(0.01, 8).at_temperature(1e-6) };
            let method = library(info.name, inner, None);
            if method.applies(&problem).is_ok() {
                visit(&problem, info.name, &|| Box::new(method.clone()));
                visit(&problem, info.in_chains, &|| Box::new(Chains::new(method.clone(), 3)));
                seen += 1;
            }
        }
    }
    assert!(seen >= 20, "only {seen} methods apply to the two problems");
}

#[test]
fn two_hypergradients_of_one_estimator_that_are_both_kept_do_not_share_memory() {
    each_method(|problem, name, method| {
        let session = Session::new(problem, &Cpu::with_threads(1)).unwrap();
        let mut estimator = method().prepared(&session).unwrap();
        let mut state = session.state(Key::from_seed(1)).unwrap();
        let kept: Vec<_> = (0..3)
            .map(|call| {
                let h = estimator.estimate(&mut state, Key::from_seed(call)).unwrap();
                let error = h.standard_error.as_ref().map(|error| error.arrays().unwrap());
                ((h.value.arrays().unwrap(), error), h)
            })
            .collect();
        for (seen, h) in &kept {
            let error = h.standard_error.as_ref().map(|error| error.arrays().unwrap());
            assert_eq!(*seen, (h.value.arrays().unwrap(), error), "{name}");
        }
        let buffers: Vec<&Buffer> = kept
            .iter()
            .flat_map(|(_, h)| h.value.iter().chain(h.standard_error.iter().flat_map(|error| error.iter())))
            .chain(state.lambda.iter().chain(state.theta.iter()).chain(state.memory.iter()))
            .collect();
        for (number, buffer) in buffers.iter().enumerate() {
            assert!(buffers[..number].iter().all(|other| !buffer.is_same(other)), "{name}");
        }
    });
}

/// The CPU, with the largest number of bytes that were ever read from one of its buffers at once, how many buffers of more
/// than one number were made, the bytes that were copied from one to another, and what each program does.
#[derive(Clone)]
struct Watched {
    cpu: Cpu,
    largest: Arc<AtomicUsize>,
    made: Arc<AtomicUsize>,
    copied: Arc<AtomicUsize>,
    programs: Arc<Mutex<Vec<String>>>,
}

impl Watched {
    fn new() -> Self {
        let (largest, made, copied, programs) = Default::default();
        Watched { cpu: Cpu::with_threads(1), largest, made, copied, programs }
    }
}

struct WatchedRun(Box<dyn Runnable>, Watched);

/// Passes everything on to the storage of a buffer of the CPU.
struct WatchedStorage(Buffer, Watched);

impl Executor for Watched {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        let run = self.cpu.plan(program)?;
        self.programs.lock().unwrap().push(run.describe());
        Ok(Box::new(WatchedRun(Box::new(run), self.clone())))
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        let storage = WatchedStorage(self.cpu.buffer(meta)?, self.clone());
        self.made.fetch_add((storage.0.len() > 1) as usize, Ordering::SeqCst);
        Ok(Buffer::new(meta.clone(), Box::new(storage)))
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }
}

impl Runnable for WatchedRun {
    fn bindings(&self) -> &Bindings {
        self.0.bindings()
    }

    fn bindings_mut(&mut self) -> &mut Bindings {
        self.0.bindings_mut()
    }

    fn allocate(&self, meta: &Meta) -> Result<Buffer> {
        self.1.buffer(meta)
    }

    fn accepts(&self, buffer: &Buffer) -> bool {
        self.0.accepts(buffer)
    }

    unsafe fn execute(&mut self, steps: Range<u32>) -> Result<()> {
        // SAFETY: as the caller promised.
        unsafe { self.0.execute(steps) }
    }
}

impl Storage for WatchedStorage {
    unsafe fn write(&self, first: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: as the caller promised.
        unsafe { self.0.storage().write(first, bytes) }
    }

    unsafe fn read(&self, first: usize, bytes: &mut [u8]) -> Result<()> {
        self.1.largest.fetch_max(bytes.len(), Ordering::SeqCst);
        // SAFETY: as the caller promised.
        unsafe { self.0.storage().read(first, bytes) }
    }

    unsafe fn copy_from(&self, other: &dyn Storage, stretch: Range<usize>) -> Result<bool> {
        self.1.copied.fetch_add(stretch.len(), Ordering::SeqCst);
        // SAFETY: as the caller promised.
        unsafe { self.0.storage().copy_from(other, stretch) }
    }

    unsafe fn zero(&self) -> Result<()> {
        // SAFETY: as the caller promised.
        unsafe { self.0.storage().zero() }
    }

    fn as_any(&self) -> &dyn Any {
        self.0.storage().as_any()
    }
}

#[test]
fn iterations_read_a_handful_of_numbers_and_lambda_and_theta_are_read_once_when_a_run_is_over() {
    each_method(|problem, name, method| {
        let watched = Watched::new();
        let (largest, iterating) = (watched.largest.clone(), Arc::new(AtomicUsize::new(0)));
        let seen = iterating.clone();
        let driver = Driver::new(&Problem::from(problem.clone()), method()).executor(watched.clone());
        let driver = driver
            .optimizer(Adam::default())
            .on_iteration(move |_, _| seen.store(largest.load(Ordering::SeqCst), Ordering::SeqCst));
        let outcome = driver.clip_norm(5.0).diagnose_every(1).iterations(6).run().unwrap();
        assert_eq!(outcome.iterations, 6, "{name}: {}", outcome.reason);
        // Two numbers for each of seven things that are measured come at once.
        let read = iterating.load(Ordering::SeqCst);
        assert!((8..=7 * 2 * 8).contains(&read), "{name}: {read}");
        // It does count what goes into the outcome.
        assert_eq!(watched.largest.load(Ordering::SeqCst), 8 * SIZE, "{name}");
    });
}

#[test]
fn an_outer_run_makes_its_buffers_in_the_first_iteration_and_none_after_it() {
    each_method(|problem, name, method| {
        let made = |iterations: u32| {
            let watched = Watched::new();
            let driver = Driver::new(&Problem::from(problem.clone()), method());
            let driver = driver.executor(watched.clone()).optimizer(Adam::default());
            let outcome = driver.rate(1e-4).diagnose_every(1).iterations(iterations).run().unwrap();
            assert_eq!(outcome.iterations, iterations, "{name}: {}", outcome.reason);
            watched.made.load(Ordering::SeqCst)
        };
        // Forward mode goes through λ number by number, so a few more for each hypergradient are nothing to it.
        if !name.ends_with("fmd") {
            assert_eq!(made(6), made(1), "{name}");
        }
    });
}

/// Bytes that an iteration of SABA with so many minibatches copies after the first, and programs that go over a whole table.
fn of_saba(minibatches: usize) -> (usize, usize) {
    let problem = Problem::builder(Leaf(Variable::constant([SIZE], 0.4)), Leaf(Variable::normal([SIZE], 0.3)))
        .data("x", Array::from_f64([minibatches], (0..minibatches).map(|i| (i as f64).sin()).collect()).unwrap())
        .inner(move |s, l, t| ((t.0 - l.0).square() * (s.data("x").take(s.epochs(minibatches, 1)) + 2.0)).sum_all())
        .outer(move |s, _, t| (t.0 - s.data("x").take(s.epochs(minibatches, 1))).square().sum_all())
        .build()
        .unwrap();
    let watched = Watched::new();
    let (copied, by_iteration) = (watched.copied.clone(), Arc::new(Mutex::new(vec![])));
    let seen = by_iteration.clone();
    let driver = Driver::new(&problem, With(Saba::default(), InnerLoop::new(0.01, 3)))
        .executor(watched.clone())
        .rate(1e-3)
        .iterations(4);
    let driver = driver.on_iteration(move |_, _| seen.lock().unwrap().push(copied.load(Ordering::SeqCst)));
    assert_eq!(driver.run().unwrap().iterations, 4);
    let by_iteration = by_iteration.lock().unwrap();
    let programs = watched.programs.lock().unwrap();
    let table = |line: &str| {
        let numbers: Vec<usize> = line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        line.contains("loop over") && numbers.contains(&(minibatches * SIZE))
    };
    let over_tables = programs.iter().filter(|program| program.lines().any(table)).count();
    (by_iteration[3] - by_iteration[2], over_tables)
}

#[test]
fn an_iteration_of_saba_copies_a_few_rows_of_its_tables_and_only_the_program_of_their_means_goes_over_them() {
    let (few, many) = (of_saba(40), of_saba(400));
    assert_eq!(few.1, 1, "the means are taken in one program");
    assert_eq!(few, many);
}
