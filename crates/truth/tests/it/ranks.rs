//! The truth suite on several ranks: every method on every problem gives the hypergradient that one rank gives.

use bilevel::methods::{AnyMethod, Scale};
use bilevel::{Cpu, InnerLoop, Key, Method, Session, methods};
use bilevel_graph::{Buffer, Executor, Link, Meta, Op, Program, ProgramNode, Runnable, Shard};
use bilevel_ranks::{Ranks, Threads};
use bilevel_truth::{self as truth, TruthProblem};
use std::sync::Arc;
use std::time::Instant;

/// Long enough for every product of an inner loop, short enough that rounding does not grow.
const STEPS: usize = 6;

/// An executor that also shares out λ, θ and every third value, along their first axis: problems of the suite have few rows or none.
struct Everywhere(Ranks);

impl Executor for Everywhere {
    fn compile(&self, program: &Program) -> bilevel_graph::Result<Box<dyn Runnable>> {
        let mut program = program.clone();
        let shared = |(number, node): &(usize, &ProgramNode)| {
            !node.meta.shape.is_empty() && (number % 3 == 0 || matches!(node.op, Op::Input(_)))
        };
        let nodes = program.nodes.iter().enumerate().filter(shared);
        program.shards = nodes.map(|(node, _)| Shard { node, axis: 0 }).collect();
        self.0.compile(&program)
    }

    fn buffer(&self, meta: &Meta) -> bilevel_graph::Result<Buffer> {
        self.0.buffer(meta)
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(Everywhere(self.0.clone()))
    }

    fn link(&self) -> Option<&Link> {
        self.0.link()
    }
}

/// The same numbers, to the bit.
fn same(a: &Result<Vec<Vec<f64>>, String>, b: &Result<Vec<Vec<f64>>, String>) -> bool {
    let bits = |all: &Vec<Vec<f64>>| all.iter().flatten().map(|x| x.to_bits()).collect::<Vec<u64>>();
    a.as_ref().map(bits) == b.as_ref().map(bits)
}

/// How far ranks may be from one rank: rounding, and what the method makes of it.
fn tolerance(method: &AnyMethod) -> f64 {
    match method.name() {
        // Differences of losses, divided by a small width.
        "es" | "pes" => 1e-9,
        // Two terms of size 1/ρ cancel, and ρ is this share of the smallest curvature.
        "nystrom" => 1e-14 / Scale::SMALL,
        // One iteration more or less.
        _ if method.loop_use().stops_at_tolerance => Scale::TOLERANCE,
        _ => 1e-12,
    }
}

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

/// An executor of a rank.
type OfRank = fn(Link) -> Arc<dyn Executor>;

/// Everything is shared out by rows, and every rank has all of λ and θ.
fn by_rows(link: Link) -> Arc<dyn Executor> {
    Arc::new(Everywhere(Ranks::new(&Cpu::with_threads(1), link)))
}

/// Every rank has only a part of λ, of θ and of the method's memory.
fn by_state(link: Link) -> Arc<dyn Executor> {
    Ranks::new(&Cpu::with_threads(1), link).sharding(1).expect("there are several ranks")
}

fn check(ranks: usize, executor: OfRank, of: fn(usize) -> bool) {
    let problems = truth::problems().unwrap();
    let (mut compared, mut wrong) = (0, vec![]);
    for (number, info) in methods::all().iter().enumerate() {
        let began = Instant::now();
        let chosen = AnyMethod::named(info.name).unwrap();
        let mut worst = (0.0, String::new());
        for (_, problem) in problems.iter().enumerate().filter(|(place, _)| of(number + place)) {
            let Ok((method, inner)) = truth::fitted(&chosen, problem) else { continue };
            let steps = inner.steps.min(STEPS);
            let inner = InnerLoop { steps, burn_in: inner.burn_in.min(steps / 2), ..inner };
            let Ok(alone) = hypergradients((&method, &inner), problem, &Cpu::with_threads(1)) else { continue };
            let found = Threads::run(ranks, |link| hypergradients((&method, &inner), problem, &executor(link)));
            for other in &found {
                assert!(same(other, &found[0]), "{} on {}: {found:?}", info.name, problem.name);
            }
            let found = found[0].as_ref().unwrap_or_else(|e| panic!("{} on {}: {e}", info.name, problem.name));
            for (a, b) in alone.iter().zip(found) {
                let is_finite = |x: &[f64]| x.iter().all(|x| x.is_finite());
                assert_eq!(is_finite(a), is_finite(b), "{} on {}", info.name, problem.name);
                let off = if is_finite(a) { distance(a, b) } else { 0.0 };
                if off > worst.0 {
                    worst = (off, problem.name.clone());
                }
            }
            compared += 1;
        }
        println!("{:17} {:.1e} on {} ({:.1?})", info.name, worst.0, worst.1, began.elapsed());
        if worst.0 >= tolerance(&chosen) {
            wrong.push((info.name, worst));
        }
    }
    println!("{compared} pairs");
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(compared > 100);
}

#[test]
fn two_ranks_give_the_hypergradient_of_one_for_every_method() {
    check(2, by_rows, |_| true);
}

#[test]
fn four_ranks_give_the_hypergradient_of_one_for_every_method() {
    // A third of all pairs, every problem and every method among them.
    check(4, by_rows, |pair| pair.is_multiple_of(3));
}

#[test]
fn sharded_state_gives_the_hypergradient_of_one_rank_for_every_method() {
    check(2, by_state, |pair| pair.is_multiple_of(2));
    check(4, by_state, |pair| pair.is_multiple_of(5));
}
