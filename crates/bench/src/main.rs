//! Benchmarks of the engine: times beside JAX and PyTorch, planning time, memory, and agreement with JAX; and an attack on
//! everything a user can reach.

/// Prints a line, or ends quietly where nobody reads any more, as `| head` does.
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
#[cfg(unix)]
mod attack;
mod calls;
mod case;
mod cases;
mod choices;
mod compare;
mod derivatives;
mod differences;
mod driven;
mod error;
mod flops;
mod goals;
mod gpu;
mod large;
mod line;
mod losses;
mod memory;
mod npy;
mod peak;
mod peers;
mod plan;
mod profile;
mod sgld;
mod timing;
mod values;
mod vision;
mod vit;
mod whole;
mod wide;
mod wide_run;

use arguments::Command;
use bilevel_cpu::Cpu;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = match arguments::parse(&arguments) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    match run(command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Does what was asked; false where results are not what they must be.
fn run(command: Command) -> error::Result<bool> {
    match command {
        Command::Help => say!("{}", arguments::HELP.trim_end()),
        Command::Cpu { cases, threads, reps, rounds, peer, peers_dir, floor } => {
            let folder = peers_dir.unwrap_or_else(peers::default_folder);
            let peers = peer.map_or(Ok(vec![]), |python| peers::find(&python, &folder))?;
            if threads != 2 && !peers.is_empty() {
                eprintln!("ours runs on {threads} threads, the peers on 2: the ratios compare unlike things");
            }
            compare::run(&compare::Plan { cases, threads, reps, rounds, floor }, &peers)?;
        }
        Command::Cuda { cases, precisions, reps, show: false, iterations: None } => {
            let start = std::time::Instant::now();
            gpu::time::run(&gpu::open()?, &cases, &precisions, reps, start)?;
        }
        Command::Cuda { cases, precisions, reps, iterations, .. } => {
            let cuda = gpu::open()?;
            for (case, precision) in cases.iter().flat_map(|case| precisions.iter().map(move |p| (case, *p))) {
                match iterations {
                    Some(iterations) => gpu::time::long(&cuda, case, precision, iterations)?,
                    None => gpu::time::profile(&cuda, case, precision, reps as u32)?,
                }
            }
        }
        Command::CudaCurves { size, iterations } => gpu::curves::run(&gpu::open()?, size, iterations)?,
        Command::CudaMemory { cases, precision } => gpu::memory::run(&cases, precision)?,
        Command::CudaCheck { seeds } => return gpu::check::run(&gpu::open()?, seeds),
        Command::Plan { threads, reps } => plan::run(threads, reps)?,
        Command::Memory { cases, threads } => memory::run(&cases, threads)?,
        Command::Agree { cases, dtypes, peer, seed, threads } => {
            let comparison = agree::Comparison { cpu: Cpu::with_threads(threads), python: peer, seed };
            return comparison.run(&cases, &dtypes);
        }
        Command::Wide(wide) => wide.print()?,
        Command::Large { count, iterations, threads, folder } => {
            return large::run(count, iterations, threads, &folder);
        }
        #[cfg(unix)]
        Command::Attack(plan) => return attack::run(&plan),
        Command::Profile { case, threads, reps, show } => {
            profile::run(&case, &Cpu::with_threads(threads), reps, show)?;
        }
    }
    Ok(true)
}
