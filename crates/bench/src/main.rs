//! Benchmarks of the engine: times compared with JAX and PyTorch, planning time, memory, and agreement with JAX.

/// Prints a line, or ends quietly once its output is closed, as by `| head`.
macro_rules! say {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        if writeln!(std::io::stdout(), $($part)*).is_err() {
            std::process::exit(0);
        }
    }};
}

mod agree;
mod arguments;
mod cases;
mod differences;
mod error;
mod gpu;
mod long;
mod npy;
mod planning;
mod ranks;
mod timing;
mod truth;

use arguments::{Arguments, Command, among, chosen};
use bilevel_cpu::Cpu;
use bilevel_graph::{DType, Precision};
use cases::timed;
use clap::Parser;
use long::large;
use planning::{memory, passes, vit_b16};
use std::process::ExitCode;
use timing::{compare, peers, profile};

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command; false if results are wrong.
fn run(command: Command) -> error::Result<bool> {
    match command {
        Command::Cpu { cases, threads, reps, rounds, peer, floor } => {
            let rounds = rounds.unwrap_or(if peer.is_some() { 3 } else { 1 }) as usize;
            let peers = peer.map_or(Ok(vec![]), |python| peers::find(&python, peers::CPU))?;
            let threads = threads.count();
            if threads != 2 && !peers.is_empty() {
                eprintln!("we run on {threads} threads and the peers on 2, so the ratios are not comparable");
            }
            let cases = chosen(cases, &timed::NAMES);
            compare::run(&compare::Plan { cases, threads, reps: reps as usize, rounds, floor }, &peers)?;
        }
        Command::Cuda { cases, precision, reps, show, iterations, peer } => {
            // A billion parameters only on request, and a long run of the first case alone.
            let usual = if iterations.is_some() { &gpu::NAMES[..1] } else { &gpu::NAMES[..gpu::USUAL] };
            let cases = chosen(cases, usual);
            let precisions = precision.map_or(vec![Precision::Tf32, Precision::Bf16], |precision| vec![precision]);
            if let Some(python) = peer {
                gpu::time::peers(&peers::find(&python, peers::GPU)?, &cases, &precisions)?;
            }
            let (start, cuda) = (std::time::Instant::now(), gpu::open()?);
            if !show && iterations.is_none() {
                gpu::time::run(&cuda, &cases, &precisions, reps as usize, start)?;
                return Ok(true);
            }
            for (case, precision) in cases.iter().flat_map(|case| precisions.iter().map(move |p| (case, *p))) {
                match iterations {
                    Some(iterations) => gpu::time::long(&cuda, case, precision, iterations)?,
                    None => gpu::time::profile(&cuda, case, precision)?,
                }
            }
        }
        Command::CudaCurves { size, iterations } => gpu::curves::run(&gpu::open()?, size, iterations)?,
        Command::CudaCheck { seeds, only } => return gpu::check::run(&gpu::open()?, seeds, &only),
        Command::Plan { case: Some(case), print_after, without, target, precision, program, .. } => {
            passes::show(&passes::Shown { case, program, target, precision, without, print_after })?;
        }
        Command::Plan { passes: true, .. } => passes::list(),
        Command::Plan { threads, reps, .. } => vit_b16::run(threads.count(), reps as usize)?,
        Command::Memory { cases, device, precision, planned, .. } if device == "cuda" => {
            let cases = chosen(among(cases, &gpu::NAMES), &gpu::NAMES[..gpu::USUAL]);
            if planned { gpu::memory::planned(&cases, precision)? } else { gpu::memory::run(&cases, precision)? }
        }
        Command::Memory { cases, threads, .. } => {
            memory::run(&chosen(among(cases, &timed::NAMES), &timed::NAMES), threads.count())?;
        }
        Command::Agree { cases, dtype, peer, seed, data, threads } => {
            let cases = chosen(cases, &agree::usual(data.is_some()));
            let (cpu, jax) = (Cpu::with_threads(threads.count()), peers::Peer::agreeing(&peer));
            let dtypes = dtype.map_or(vec![DType::F64, DType::F32], |dtype| vec![dtype]);
            return agree::Comparison { cpu, jax, seed, data }.run(&cases, &dtypes);
        }
        Command::Ranks { state: Some(numbers), threads, .. } => ranks::memory(numbers as usize, threads.count())?,
        Command::Ranks { chains: Some(chains), reps, threads, .. } => {
            ranks::chains(chains as usize, threads.count(), reps as usize)?;
        }
        Command::Ranks { cases, reps, threads, .. } => {
            ranks::times(&chosen(cases, &ranks::NAMES), threads.count(), reps as usize)?;
        }
        Command::Truth { peer, threads } => truth::run(&peer, threads.count())?,
        Command::Large { count, iterations, threads, folder } => {
            let own = || std::env::temp_dir().join(format!("bilevel-bench-large-{}", std::process::id()));
            return large::run(count as usize, iterations, threads.count(), &folder.unwrap_or_else(own));
        }
        Command::Profile { case, threads, reps, show } => {
            profile::run(&case, &Cpu::with_threads(threads.count()), reps as usize, show)?;
        }
        wide @ Command::Wide { .. } => {
            if let Some(run) = wide.wide() {
                run.print()?;
            }
        }
    }
    Ok(true)
}
