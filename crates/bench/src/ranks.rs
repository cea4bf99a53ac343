//! Several ranks: the time of derivatives whose batch is shared out and of chains that are, and the memory of a run with sharded λ and θ.
//!
//! Started by a launcher, every process is a rank and the first prints; started alone, it is the only rank. Comparing the two is the
//! speed-up.

use crate::cases::timed::{Timed, programs};
use crate::error::Result;
use crate::long::wide_run::peak_bytes;
use crate::timing::line::{gib, rounded};
use crate::timing::statistics::timed;
use bilevel::methods::{Chains, HpoSgld, LangevinAdjoint};
use bilevel::optimizers::Adam;
use bilevel::{Driver, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
use bilevel_cpu::Cpu;
use bilevel_graph::shape::element_count;
use bilevel_graph::{Array, CollectiveKind, DType, Executor, Link, Op, Program, Shard};
use bilevel_ranks::{Launch, Ranks, partition};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// The cases whose rows can be shared out.
pub const NAMES: [&str; 3] = ["mlp", "conv64", "vit_block"];
/// Outer iterations of the measurement of memory.
const ITERATIONS: u32 = 5;
/// The steps of θ and of λ.
const STEPS: [f64; 2] = [0.1, 0.01];
/// Tensors of at least so many numbers are sharded.
const SHARD_FROM: usize = 1024;
/// The data of a chain, and its steps.
const ROWS: usize = 512;
const FEATURES: usize = 128;
const STEPS_OF_CHAIN: usize = 200;

/// The ranks of a launch, or this process alone.
struct Together {
    link: Option<Link>,
    cpu: Cpu,
}

impl Together {
    fn join(threads: usize) -> Result<Self> {
        let link = Launch::detect()?.map(|launch| launch.join()).transpose()?;
        Ok(Together { link, cpu: Cpu::with_threads(threads) })
    }

    fn ranks(&self) -> usize {
        self.link.as_ref().map_or(1, |link| link.size())
    }

    fn rank(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.rank())
    }

    fn executor(&self) -> Box<dyn Executor> {
        match &self.link {
            Some(link) => Box::new(Ranks::new(&self.cpu, link.clone())),
            None => Box::new(self.cpu.clone()),
        }
    }

    /// The bytes that a program sums over ranks, and the median seconds of such a sum alone.
    fn sums(&self, program: &Program, reps: usize) -> Result<(usize, f64)> {
        let Some(link) = &self.link else { return Ok((0, 0.0)) };
        let local = partition(program, link)?;
        let sums = local.nodes.iter().filter(
            |node| matches!(&node.op, Op::Collective(collective) if collective.kind == CollectiveKind::SumRanks),
        );
        let bytes = sums.map(|node| element_count(&node.meta.shape) * node.meta.dtype.size()).sum();
        let mut all = vec![0; bytes];
        Ok((bytes, timed(reps, 1, || Ok(link.sum(&mut all, DType::F32)?))?.median))
    }

    fn finish(&self) {
        if let Some(link) = &self.link {
            link.finish();
        }
    }
}

/// Times the derivatives of these cases, one JSON line each, with the batch shared out over the ranks there are.
pub fn times(cases: &[String], threads: usize, reps: usize) -> Result<()> {
    let together = Together::join(threads)?;
    let executor = together.executor();
    for Timed { name, mut program, inputs, .. } in
        cases.iter().map(|case| programs(case)).collect::<Result<Vec<_>>>()?.into_iter().flatten()
    {
        // Data are x0, x1, …
        let data = program.inputs.iter().filter(|port| port.name.starts_with('x'));
        program.shards = data.filter_map(|port| Some(Shard { node: port.node?, axis: 0 })).collect();
        let mut run = executor.compile(&program)?;
        for (input, value) in &inputs {
            run.set(program.input(input)?, value)?;
        }
        let seconds = timed(reps, 1, || Ok(run.run(0..1)?))?;
        let (bytes, sum) = together.sums(&program, reps)?;
        if together.rank() == 0 {
            let (ms, best) = (rounded(1e3 * seconds.median, 3), rounded(1e3 * seconds.best, 3));
            say!(
                "{}",
                json!({
                    "case": name, "ranks": together.ranks(), "threads": threads, "ms": ms, "best_ms": best, "bytes": bytes,
                    "sum_ms": rounded(1e3 * sum, 3),
                })
            );
        }
    }
    together.finish();
    Ok(())
}

/// Times a hypergradient of this many chains, in one JSON line. Chains are shared out over the ranks there are.
pub fn chains(count: usize, threads: usize, reps: usize) -> Result<()> {
    let together = Together::join(threads)?;
    let x: Vec<f64> = (0..ROWS * FEATURES).map(|i| (i as f64 * 0.7).sin()).collect();
    let y: Vec<f64> = (0..ROWS).map(|i| (i as f64 * 1.3).cos()).collect();
    let lambda = Leaf(Variable::constant([FEATURES], -2.0));
    let problem = Problem::builder(lambda, Leaf(Variable::constant([FEATURES], 0.0)))
        .data("x", Array::from_f64([ROWS, FEATURES], x)?)
        .data("y", Array::from_f64([ROWS], y)?)
        .inner(|s, l, t| {
            let found = s.data("x").matmul(t.0.reshape([FEATURES, 1])).reshape([ROWS]);
            (found - s.data("y")).square().mean_all() + (l.0.exp() * t.0.square()).sum_all()
        })
        .outer(|_, _, t| (t.0 - 0.1).square().sum_all())
        .build()?;
    let inner = InnerLoop { burn_in: STEPS_OF_CHAIN / 2, ..InnerLoop::new(0.05, STEPS_OF_CHAIN).at_temperature(1e-4) };
    let session = Session::new(&problem, &*together.executor())?;
    let mut estimator = Chains::new(LangevinAdjoint::default(), count).prepare_in(&session, &inner)?;
    let mut state = session.state(Key::from_seed(0))?;
    let seconds = timed(reps, 1, || Ok(estimator.estimate(&mut state, Key::from_seed(1)).map(|_| ())?))?;
    if together.rank() == 0 {
        let (ms, best) = (rounded(1e3 * seconds.median, 3), rounded(1e3 * seconds.best, 3));
        say!(
            "{}",
            json!({ "chains": count, "ranks": together.ranks(), "threads": threads, "ms": ms, "best_ms": best })
        );
    }
    together.finish();
    Ok(())
}

/// A run with an L1 weight for each parameter, f32, with Adam for λ:
///
///   L = ½·Σ(θ − 1)² + Σλ·|θ|,   f = Σ(θ − 0.8)²
fn weighted(count: usize) -> bilevel::Result<Problem<Leaf<Variable>, Leaf<Variable>>> {
    Problem::builder(Leaf(Variable::constant([count], 0.01)), Leaf(Variable::constant([count], 0.5)))
        .inner(|_, l, t| (t.0 - 1.0).square().sum_all() * 0.5 + (l.0 * t.0.abs()).sum_all())
        .outer(|_, _, t| (t.0 - 0.8).square().sum_all())
        .build()
}

/// Prints the peak memory of every rank in a run with this many numbers in λ and in θ, of which every rank has a part.
pub fn memory(count: usize, threads: usize) -> Result<()> {
    let together = Together::join(threads)?;
    let problem = weighted(count)?;
    let before = peak_bytes().unwrap_or(0);
    let iterations = Arc::new(Mutex::new((before, f64::NAN)));
    let seen = iterations.clone();
    let driver = Driver::new(&problem, HpoSgld::default())
        .inner(InnerLoop::new(STEPS[0], 1))
        .boxed_executor(together.executor())
        .shard_from(SHARD_FROM)
        .optimizer(Adam::default())
        .rate(STEPS[1])
        .fall_back(false)
        .diagnose_every(0)
        .iterations(ITERATIONS)
        .on_iteration(move |iteration, _| {
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = (peak_bytes().unwrap_or(0), iteration.outer_loss);
        });
    driver.run()?;
    let end = peak_bytes().unwrap_or(0);
    let (during, outer) = *iterations.lock().unwrap_or_else(PoisonError::into_inner);
    let of_all = |peak: u64| -> Result<Vec<Value>> {
        let peak = peak.saturating_sub(before);
        let all = together.link.as_ref().map_or(Ok(vec![peak]), |link| link.numbers(peak))?;
        Ok(all.into_iter().map(gib).collect())
    };
    let (during, end) = (of_all(during)?, of_all(end)?);
    if together.rank() == 0 {
        let ranks = together.ranks();
        say!(
            "{}",
            json!({
                "numbers": count, "ranks": ranks, "gib_by_rank": during, "gib_by_rank_with_result": end, "outer_loss": outer,
            })
        );
    }
    together.finish();
    Ok(())
}
