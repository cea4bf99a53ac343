//! Several ranks: the time of derivatives whose batch is shared out and of chains that are, and the memory of λ, θ and Adam's moments.
//!
//! Started by a launcher, every process is a rank and the first prints; started alone, it is the only rank. Comparing the two is the
//! speed-up.

use crate::cases::timed::{Timed, programs};
use crate::error::Result;
use crate::long::wide_run::peak_bytes;
use crate::timing::line::{gib, rounded};
use crate::timing::statistics::timed;
use bilevel::methods::{Chains, LangevinAdjoint};
use bilevel::{InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
use bilevel_cpu::Cpu;
use bilevel_graph::shape::element_count;
use bilevel_graph::{
    Array, Buffer, CollectiveKind, DType, Executor, Graph, Link, Meta, Op, Program, Shard, even_parts,
    gradient_or_zeros, mixed_vector,
};
use bilevel_ranks::{Launch, Ranks, partition};
use serde_json::json;

/// The cases whose rows can be shared out.
pub const NAMES: [&str; 3] = ["mlp", "conv64", "vit_block"];
/// Outer iterations of the measurement of memory.
const ITERATIONS: u32 = 5;
/// The steps of θ and of λ.
const STEPS: [f64; 2] = [0.1, 0.01];
/// β₁ and β₂.
const DECAYS: [f64; 2] = [0.9, 0.999];
/// The inputs of which every rank has a part, and their start.
const STATE: [(&str, f64); 4] = [("lambda", 0.01), ("theta", 0.5), ("m", 0.0), ("v", 0.0)];
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

    fn executor(&self, shared: &[&str]) -> Box<dyn Executor> {
        match &self.link {
            Some(link) => Box::new(Ranks::new(&self.cpu, link.clone()).with_shared_inputs(shared.iter().copied())),
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
    let executor = together.executor(&[]);
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
    let session = Session::new(&problem, &*together.executor(&[]))?;
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

/// One iteration of an L1 weight for each parameter: a step of θ, and a step of Adam for λ along the mixed product h with ∂f/∂θ.
///
///   L = ½·Σ(θ − 1)² + Σλ·|θ|,   f = Σ(θ − 0.8)²
///   m ← β₁·m + (1 − β₁)·h,   v ← β₂·v + (1 − β₂)·h²,   λ ← λ − η·m/(√v + ε)
fn iteration(count: usize) -> Result<Program> {
    let g = Graph::new();
    let [lambda, theta, m, v] = STATE.map(|(name, _)| g.input(name, [count], DType::F32));
    let inner = (theta - 1.0).square().sum_all() * 0.5 + (lambda * theta.abs()).sum_all();
    let outer = (theta - 0.8).square().sum_all();
    let (slope, f) = (gradient_or_zeros(inner, &[theta])?[0], gradient_or_zeros(outer, &[theta])?[0]);
    let mixed = mixed_vector(inner, &[theta], &[f.stop_gradient()], &[lambda])?;
    let h = mixed[0].unwrap_or_else(|| lambda.zeros_like());
    // The hypergradient is f_λ − h; f_λ is 0.
    let h = h * -STEPS[0];
    let (m1, v1) = (m * DECAYS[0] + h * (1.0 - DECAYS[0]), v * DECAYS[1] + h.square() * (1.0 - DECAYS[1]));
    let step = m1 / (v1.sqrt() + 1e-8) * STEPS[1];
    let builder = Program::builder(&g).output("outer", outer).carry(theta, theta - slope * STEPS[0]);
    Ok(builder.carry(lambda, lambda - step).carry(m, m1).carry(v, v1).build()?)
}

/// Prints the peak memory of every rank, for this many numbers per rank of λ, of θ and of each moment.
pub fn memory(count: usize, threads: usize) -> Result<()> {
    let together = Together::join(threads)?;
    let executor = together.executor(&STATE.map(|(name, _)| name));
    let part = even_parts(count, together.ranks())[together.rank()];
    let before = peak_bytes().unwrap_or(0);
    let program = iteration(count)?;
    let mut run = executor.compile(&program)?;
    for (name, start) in STATE {
        let buffer = executor.buffer(&Meta { dtype: DType::F32, shape: vec![part] })?;
        fill(&buffer, start)?;
        run.bind_input(program.input(name)?, &buffer)?;
    }
    run.run(0..ITERATIONS)?;
    let outer = run.output(0)?.item();
    let peak = peak_bytes().unwrap_or(0).saturating_sub(before);
    let peaks = together.link.as_ref().map_or(Ok(vec![peak]), |link| link.numbers(peak))?;
    if together.rank() == 0 {
        let all: Vec<_> = peaks.into_iter().map(gib).collect();
        say!("{}", json!({ "numbers": count, "ranks": together.ranks(), "gib_by_rank": all, "outer_loss": outer }));
    }
    together.finish();
    Ok(())
}

/// Writes one number to all of a buffer, in pieces: a second copy would be part of the peak.
fn fill(buffer: &Buffer, value: f64) -> Result<()> {
    let piece = Array::full([1 << 16], value, DType::F32);
    for first in (0..buffer.byte_count()).step_by(piece.bytes().len()) {
        let length = piece.bytes().len().min(buffer.byte_count() - first);
        buffer.write_part(first, &piece.bytes()[..length])?;
    }
    Ok(())
}
