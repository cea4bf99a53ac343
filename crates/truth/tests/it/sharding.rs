//! Whole runs with sharded λ, θ and optimizer state: their results, their memory, their checkpoints and their refusals.

use bilevel::checkpoints::Checkpoints;
use bilevel::graph::{self, Buffer, Executor, Meta, Program, Runnable};
use bilevel::methods::{AnyMethod, IftCg, Rmd};
use bilevel::prelude::*;
use bilevel::{Error, Method, Outcome};
use bilevel_ranks::{Ranks, Threads};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Rows of λ and θ.
const ROWS: usize = 203;
/// Columns of θ.
const COLUMNS: usize = 3;
/// Leaves of at least so many numbers are sharded: λ and θ's first, but not its second.
const FROM: usize = 100;

/// A regression with a penalty for each row of its weights, bounded, on minibatches.
fn problem(rows: usize) -> Problem<Leaf<Variable>, (Leaf<Variable>, Leaf<Variable>)> {
    let table = |count: usize, rate: f64| (0..count).map(|i| (i as f64 * rate).sin()).collect();
    let x = Array::from_f64([40, rows], table(40 * rows, 0.7)).unwrap();
    let y = Array::from_f64([40, COLUMNS], table(40 * COLUMNS, 1.3)).unwrap();
    let theta = (Leaf(Variable::normal([rows, COLUMNS], 0.1)), Leaf(Variable::constant([COLUMNS], 0.0)));
    Problem::builder(Leaf(Variable::uniform([rows], -3.0, -2.9).at_least(-3.0).at_most(3.0)), theta)
        .data("x", x)
        .data("y", y)
        .inner(move |s, l, t| {
            let batch = s.epochs(40, 10);
            let found = s.data("x").take(batch).matmul(t.0.0 * (1.0 / rows as f64)) + t.1.0;
            let penalty = (l.0.exp().reshape([rows, 1]) * t.0.0.square()).sum_all() * 0.1;
            (found - s.data("y").take(batch)).square().mean_all() + penalty
        })
        .outer(move |s, _, t| {
            let found = s.data("x").matmul(t.0.0 * (1.0 / rows as f64)) + t.1.0;
            (found - s.data("y") * 0.5).square().mean_all()
        })
        .build()
        .unwrap()
}

type Run = Driver<Leaf<Variable>, (Leaf<Variable>, Leaf<Variable>)>;

/// Eight iterations with Adam, of whose moments every rank has a part, too.
fn driver(method: impl Method + 'static, executor: impl Executor + 'static) -> Run {
    let inner = method.loop_use().adapt(InnerLoop { burn_in: 3, ..InnerLoop::new(0.05, 8) });
    let driver = Driver::new(&problem(ROWS), method).inner(inner).executor(executor).shard_from(FROM);
    driver.optimizer(Adam::default()).rate(0.2).clip_norm(0.5).iterations(8)
}

/// A method whose solver takes few iterations: with each, conjugate gradients amplify rounding errors.
fn brief(name: &str) -> AnyMethod {
    let mut settings = serde_json::to_value(AnyMethod::named(name).unwrap()).unwrap();
    if let Some(iterations) = settings.get_mut("iterations") {
        *iterations = 4.into();
    }
    serde_json::from_value(settings).unwrap()
}

fn of_rank(link: graph::Link) -> Ranks {
    Ranks::new(&Cpu::with_threads(1), link)
}

/// λ, θ and the last losses of a run.
fn numbers(outcome: &Outcome<Leaf<Variable>, (Leaf<Variable>, Leaf<Variable>)>) -> Vec<f64> {
    let last = outcome.last.as_ref().unwrap();
    let leaves = [&outcome.lambda.0, &outcome.theta.0.0, &outcome.theta.1.0].map(Array::to_f64).concat();
    leaves.into_iter().chain([last.inner_loss, last.outer_loss, last.hypergradient_norm, last.step_norm]).collect()
}

#[track_caller]
fn assert_near(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off <= tolerance * largest, "{off:e}");
}

#[test]
fn runs_are_those_of_one_rank_and_equal_on_all() {
    for (name, tolerance) in [
        ("hpo-sgld", 1e-12),
        ("langevin-adjoint", 1e-12),
        ("rmd", 1e-12),
        ("soba", 1e-12),
        // Differences of losses, divided by a small width; Adam divides by their size.
        ("es", 1e-8),
        ("ift-cg", 1e-12),
    ] {
        let run = |executor: Box<dyn Executor>| {
            let driver = driver(brief(name), Cpu::with_threads(1)).boxed_executor(executor);
            let inner = InnerLoop { burn_in: 3, ..InnerLoop::new(0.05, 8).at_temperature(1e-6) };
            // The others are refused with noise.
            let driver = if ["hpo-sgld", "langevin-adjoint"].contains(&name) { driver.inner(inner) } else { driver };
            numbers(&driver.run().unwrap())
        };
        let alone = run(Box::new(Cpu::with_threads(1)));
        for ranks in [1, 2, 4] {
            let found = Threads::run(ranks, |link| run(Box::new(of_rank(link))));
            assert!(found.iter().all(|other| *other == found[0]), "{name} on {ranks}");
            assert_near(&found[0], &alone, tolerance);
        }
    }
}

/// A processor that notes the shapes of its buffers.
#[derive(Clone)]
struct Counting(Cpu, Arc<Mutex<Vec<Vec<usize>>>>);

impl Executor for Counting {
    fn compile(&self, program: &Program) -> graph::Result<Box<dyn Runnable>> {
        self.0.compile(program)
    }

    fn buffer(&self, meta: &Meta) -> graph::Result<Buffer> {
        self.1.lock().unwrap().push(meta.shape.clone());
        self.0.buffer(meta)
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }

    fn adopt(&self, value: &Array) -> graph::Result<Buffer> {
        self.0.adopt(value)
    }
}

#[test]
fn a_rank_has_its_share_of_every_buffer() {
    let numbers = |ranks: usize| -> Vec<f64> {
        Threads::run(ranks, |link| {
            let counting = Counting(Cpu::with_threads(1), Arc::default());
            let run = driver(IftCg::default(), Ranks::new(&counting, link)).run().unwrap();
            assert_eq!(run.iterations, 8);
            let of_sharded = counting.1.lock().unwrap();
            let large = of_sharded.iter().filter(|shape| shape.iter().product::<usize>() >= FROM / 4);
            assert!(large.clone().all(|shape| shape[0].abs_diff(ROWS / ranks) <= 1), "{of_sharded:?}");
            large.map(|shape| shape.iter().product::<usize>() as f64).sum()
        })
    };
    let (two, four) = (numbers(2), numbers(4));
    assert!(two[0] > 10.0 * ROWS as f64, "λ, θ, Adam's moments and the copy to fall back on");
    // Rows do not divide evenly.
    assert!((two[0] / four[0] - 2.0).abs() < 0.05, "{two:?} {four:?}");
}

#[test]
fn a_checkpoint_is_resumed_on_any_number_of_ranks() {
    let alone = numbers(&driver(Rmd::default(), Cpu::with_threads(1)).run().unwrap());
    for (first, second) in [(2, 4), (4, 1), (1, 2)] {
        let place = tempfile::tempdir().unwrap();
        let run = |ranks: usize, iterations: u32, resume: bool| {
            Threads::run(ranks, |link| {
                let checkpoints = Checkpoints::new(place.path()).every(2).resume(resume);
                let driver = driver(Rmd::default(), of_rank(link)).checkpoints(checkpoints);
                driver.iterations(iterations).run().unwrap()
            })
        };
        run(first, 4, false);
        for outcome in run(second, 8, true) {
            assert_eq!((outcome.iterations, outcome.notes.len()), (8, 0));
            assert_near(&numbers(&outcome), &alone, 1e-12);
        }
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_ends_all_ranks() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("checkpoints");
    let found = Threads::run(3, |link| {
        let (rank, folder) = (link.rank(), folder.clone());
        let checkpoints = Checkpoints::new(&folder).every(2);
        let remove = move |iteration: &bilevel::observers::Iteration, _: &bilevel::State| {
            if rank == 0 && iteration.number == 3 {
                std::fs::remove_dir_all(&folder).unwrap();
            }
        };
        driver(Rmd::default(), of_rank(link)).checkpoints(checkpoints).on_iteration(remove).run().unwrap()
    });
    assert!(matches!(found[0].reason, StopReason::Unsaved(_)), "{}", found[0].reason);
    for other in &found[1..] {
        assert!(other.reason.to_string().contains("another rank could not write a checkpoint"), "{}", other.reason);
    }
    assert!(found.iter().all(|outcome| outcome.iterations == 4));
}

#[test]
fn leaves_with_too_few_rows_are_refused_by_name() {
    let refused = Threads::run(4, |link| {
        let problem = problem(3);
        Driver::new(&problem, Rmd::default()).executor(of_rank(link)).shard_from(9).run().unwrap_err()
    });
    for error in refused {
        assert!(matches!(error, Error::Variable { .. }), "{error}");
        let expected = "has 9 numbers in 3 rows, which 4 ranks cannot shard; reshape it, take at most 3 ranks, or set shard_from above 9";
        assert!(error.to_string().contains("θ.0") && error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn an_observer_that_reads_a_part_is_told_so_instead_of_waiting_for_the_other_ranks() {
    let found = Threads::run(2, |link| {
        let read = |_: &bilevel::observers::Iteration, state: &bilevel::State| match state.lambda.numbers() {
            Ok(_) => std::ops::ControlFlow::Continue(()),
            Err(error) => std::ops::ControlFlow::Break(error.to_string()),
        };
        let observed = driver(Rmd::default(), of_rank(link)).on_iteration(read).run().unwrap();
        // After the run all ranks can read it together.
        assert_eq!(observed.state.lambda.numbers().unwrap(), observed.lambda.0.to_f64());
        observed.reason.to_string()
    });
    for reason in found {
        assert!(
            reason.contains("an observer runs on one rank alone, which has only a part of this tensor"),
            "{reason}"
        );
    }
}

#[test]
fn the_folder_of_a_run_is_written_by_rank_0_with_whole_tensors() {
    let place = tempfile::tempdir().unwrap();
    let outcome = Threads::run(4, |link| {
        let checkpoints = Checkpoints::new(place.path());
        driver(Rmd::default(), of_rank(link)).checkpoints(checkpoints).run().unwrap()
    });
    let newest = Checkpoints::new(Path::new(place.path())).newest().unwrap().unwrap();
    assert_eq!(newest.checkpoint.state().lambda, [outcome[3].lambda.0.clone()]);
    assert_eq!(newest.checkpoint.state().theta[0], outcome[3].theta.0.0);
}
