//! Several ranks: the time of derivatives whose batch is shared out, and the memory of λ and θ that are.
//!
//! Started by a launcher, every process is a rank and the first prints; started alone, it is the only rank. Comparing the two is the
//! speed-up.

use crate::cases::timed::{Timed, programs};
use crate::error::Result;
use crate::long::wide_run::peak_bytes;
use crate::timing::line::{gib, rounded};
use crate::timing::statistics::timed;
use bilevel_cpu::Cpu;
use bilevel_graph::{
    Array, Buffer, DType, Executor, Graph, Link, Meta, Program, Shard, even_parts, gradient_or_zeros, mixed_vector,
};
use bilevel_ranks::{Launch, Ranks};
use serde_json::json;

/// The cases whose rows can be shared out.
pub const NAMES: [&str; 3] = ["mlp", "conv64", "vit_block"];
/// Outer iterations of the measurement of memory.
const ITERATIONS: u32 = 5;
/// The steps of θ and of λ.
const STEPS: [f64; 2] = [0.1, 0.01];

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
        if together.rank() == 0 {
            let (ms, best) = (rounded(1e3 * seconds.median, 3), rounded(1e3 * seconds.best, 3));
            say!(
                "{}",
                json!({ "case": name, "ranks": together.ranks(), "threads": threads, "ms": ms, "best_ms": best })
            );
        }
    }
    together.finish();
    Ok(())
}

/// One iteration of an L1 weight for each parameter: a step of θ, and a step of λ along the mixed product with ∂f/∂θ.
///
///   L = ½·Σ(θ − 1)² + Σλ·|θ|,   f = Σ(θ − 0.8)²
fn iteration(count: usize) -> Result<Program> {
    let g = Graph::new();
    let [lambda, theta] = ["lambda", "theta"].map(|name| g.input(name, [count], DType::F32));
    let inner = (theta - 1.0).square().sum_all() * 0.5 + (lambda * theta.abs()).sum_all();
    let outer = (theta - 0.8).square().sum_all();
    let (slope, f) = (gradient_or_zeros(inner, &[theta])?[0], gradient_or_zeros(outer, &[theta])?[0]);
    let mixed = mixed_vector(inner, &[theta], &[f.stop_gradient()], &[lambda])?;
    let h = mixed[0].unwrap_or_else(|| lambda.zeros_like());
    let builder = Program::builder(&g).output("outer", outer).carry(theta, theta - slope * STEPS[0]);
    Ok(builder.carry(lambda, lambda + h * (STEPS[0] * STEPS[1])).build()?)
}

/// Prints the peak memory of every rank, if each has a part of so many numbers of λ and of θ.
pub fn memory(count: usize, threads: usize) -> Result<()> {
    let together = Together::join(threads)?;
    let executor = together.executor(&["lambda", "theta"]);
    let part = even_parts(count, together.ranks())[together.rank()];
    let before = peak_bytes().unwrap_or(0);
    let program = iteration(count)?;
    let mut run = executor.compile(&program)?;
    for (name, start) in [("lambda", 0.01), ("theta", 0.5)] {
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
