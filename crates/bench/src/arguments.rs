//! The command line.

use crate::cases::{timed, wide};
use crate::gpu::curves::Size;
use crate::long::wide_run::Run;
use crate::planning::passes::{self, Machine};
use crate::{agree, gpu, ranks};
use bilevel_graph::{DType, Precision};
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, value_parser};
use std::path::PathBuf;

/// Benchmarks of the engine against JAX and PyTorch.
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "bilevel-bench", max_term_width = 100)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// How many threads we use.
#[derive(Clone, Copy, Debug, PartialEq, Args)]
pub struct Threads {
    /// Number of our threads; the peers use 2.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = count())]
    pub threads: u32,
}

impl Threads {
    /// As executors take it.
    pub fn count(self) -> usize {
        self.threads as usize
    }
}

/// The command.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum Command {
    /// Time the cases, one JSON line each.
    Cpu {
        /// The cases to run; all of them by default.
        #[arg(value_name = "CASE", value_parser = PossibleValuesParser::new(timed::NAMES))]
        cases: Vec<String>,
        #[command(flatten)]
        threads: Threads,
        /// Repetitions of each.
        #[arg(long, value_name = "N", default_value_t = 9, value_parser = count())]
        reps: u32,
        /// Rounds in which we and the peers take turns; by default 3 with --peer, otherwise 1.
        #[arg(long, value_name = "N", value_parser = count())]
        rounds: Option<u32>,
        /// Also run the JAX and PyTorch programs with this Python, in turn with ours, and print ratios and goals.
        #[arg(long, value_name = "PYTHON")]
        peer: Option<PathBuf>,
        /// Also print the arithmetic floor of the heavy cases without --peer.
        #[arg(long)]
        floor: bool,
    },
    /// Time the cases of the GPU peers on the first GPU, one JSON line each.
    Cuda {
        /// The cases to run; by default all but the one with a billion parameters, or l1reg with --iterations.
        #[arg(value_name = "CASE", value_parser = PossibleValuesParser::new(gpu::NAMES))]
        cases: Vec<String>,
        /// full, tf32 or bf16; by default tf32, then bf16.
        #[arg(long, value_name = "P", value_parser = |word: &str| word.parse::<Precision>())]
        precision: Option<Precision>,
        /// Repetitions of each.
        #[arg(long, value_name = "N", default_value_t = 7, value_parser = count())]
        reps: u32,
        /// Instead, print the time of each part of a step.
        #[arg(long, conflicts_with = "reps")]
        show: bool,
        /// Instead, run this many outer iterations of a case and print the memory after ten and after all of them, and
        /// the bytes copied to the host.
        #[arg(long, value_name = "N", value_parser = count())]
        iterations: Option<u32>,
        /// Run the JAX and PyTorch programs with this Python first; they have no full f32.
        #[arg(long, value_name = "PYTHON", conflicts_with_all = ["show", "iterations"])]
        peer: Option<PathBuf>,
    },
    /// Print the losses of l1reg on the CPU and on the first GPU in full f32, one JSON line per outer iteration.
    CudaCurves {
        /// How large the network is: tiny, small (ViT-S/16) or base (ViT-B/16, as in the case).
        #[arg(long, value_name = "S", default_value = "base")]
        size: Size,
        /// Outer iterations.
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = count())]
        iterations: u32,
    },
    /// Run the conformance suite on the first GPU, draws bit for bit, and estimators compared with the CPU.
    CudaCheck {
        /// Number of seeds for random programs; 130 seeds give more than 1000 programs.
        #[arg(long, value_name = "N", default_value_t = 130, value_parser = value_parser!(u64).range(1..=1000))]
        seeds: u64,
        /// Run only the parts whose names have this word in them, for example `products`.
        #[arg(long, value_name = "WORD", default_value = "")]
        only: String,
    },
    /// Show how a program of a case is planned, pass by pass; without a case, time tracing, deriving and planning a ViT-B/16 gradient step.
    Plan {
        /// The case: the gradient step of ViT-B/16 (vit_b16), or any case of cpu and cuda.
        #[arg(value_name = "CASE", value_parser = PossibleValuesParser::new(passes::names()))]
        case: Option<String>,
        /// List the passes: with a case, operations and bytes after each; without one, their contracts.
        #[arg(long)]
        passes: bool,
        /// Print the result of this pass.
        #[arg(long, value_name = "PASS", requires = "case", conflicts_with = "passes",
              value_parser = PossibleValuesParser::new(passes::pass_names()))]
        print_after: Option<String>,
        /// Switch a pass, or a rule of lowering or memory, off; can be given several times.
        #[arg(long, value_name = "NAME", requires = "case")]
        without: Vec<String>,
        /// The machine to plan for.
        #[arg(long, value_name = "cpu|gpu", default_value = "cpu", requires = "case")]
        target: Machine,
        /// full, tf32 or bf16, for vit_b16 and the cases of cuda.
        #[arg(long, value_name = "P", default_value = "tf32", requires = "case", value_parser = |word: &str| word.parse::<Precision>())]
        precision: Precision,
        /// Which program of the case, counted from 0; by default the one with the most products.
        #[arg(long, value_name = "N", requires = "case")]
        program: Option<usize>,
        #[command(flatten)]
        threads: Threads,
        /// Repetitions.
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = count())]
        reps: u32,
    },
    /// Print the planned memory of each program next to its peak of live values.
    Memory {
        /// The cases of cpu, or of cuda with --device cuda; all of them by default.
        #[arg(value_name = "CASE", value_parser = PossibleValuesParser::new(timed::NAMES.into_iter().chain(gpu::NAMES)))]
        cases: Vec<String>,
        #[command(flatten)]
        threads: Threads,
        /// The device; on cuda the peak reported by the GPU is also printed.
        #[arg(long, value_name = "cpu|cuda", default_value = "cpu", value_parser = ["cpu", "cuda"])]
        device: String,
        /// full, tf32 or bf16, with --device cuda.
        #[arg(long, value_name = "P", default_value = "tf32", value_parser = |word: &str| word.parse::<Precision>())]
        precision: Precision,
        /// With --device cuda: only plan the programs of a hypergradient, which needs no GPU.
        #[arg(long)]
        planned: bool,
    },
    /// Compare loss, gradient and Hessian-vector product with JAX; exit status 1 above the goals.
    Agree {
        /// The cases to run; all of them by default.
        #[arg(value_name = "CASE", value_parser = PossibleValuesParser::new(agree::NAMES))]
        cases: Vec<String>,
        /// f32 or f64; both by default. Models of real size and tasks are compared only in f64.
        #[arg(long, value_name = "f32|f64", value_parser = float)]
        dtype: Option<DType>,
        /// A Python that has jax.
        #[arg(long, value_name = "PYTHON")]
        peer: PathBuf,
        /// The seed of the inputs.
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u32,
        /// The folder of the data; with it, tasks that read files are among the cases by default.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        #[command(flatten)]
        threads: Threads,
    },
    /// Compare the hypergradients of other libraries on the truth suite with ours and the truth.
    Truth {
        /// A Python that has any of jaxopt, optimistix, torchopt and betty-ml.
        #[arg(long, value_name = "PYTHON")]
        peer: PathBuf,
        #[command(flatten)]
        threads: Threads,
    },
    /// Show the time of a case, step by step.
    Profile {
        /// The case.
        #[arg(value_name = "CASE", value_parser = PossibleValuesParser::new(timed::NAMES))]
        case: String,
        #[command(flatten)]
        threads: Threads,
        /// Repetitions.
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = count())]
        reps: u32,
        /// Print the program too.
        #[arg(long)]
        show: bool,
    },
    /// Run the case wide once in this process: its time, its bits, its peak memory.
    Wide {
        /// Numbers of λ, and of θ.
        #[arg(long, value_name = "N", default_value_t = wide::COUNT as u32, value_parser = numbers())]
        count: u32,
        /// Outer iterations.
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = count())]
        iterations: u32,
        /// Stop in this iteration, as Ctrl-C would.
        #[arg(long, value_name = "N", value_parser = count())]
        stop: Option<u32>,
        /// Folder for checkpoints, from which the run continues.
        #[arg(long, value_name = "DIR")]
        folder: Option<PathBuf>,
        /// Run the bare programs, without the library.
        #[arg(long)]
        bare: bool,
        #[command(flatten)]
        threads: Threads,
    },
    /// Time derivatives whose batch is shared out over the ranks of a launcher (mpirun, srun, torchrun), or on this process alone.
    Ranks {
        /// The cases to run; all of them by default.
        #[arg(value_name = "CASE", value_parser = PossibleValuesParser::new(ranks::NAMES))]
        cases: Vec<String>,
        /// Repetitions of each.
        #[arg(long, value_name = "N", default_value_t = 9, value_parser = count())]
        reps: u32,
        /// Instead, print the peak memory of every rank with this many numbers of λ, of θ and of each of Adam's moments shared out.
        #[arg(long, value_name = "N", value_parser = numbers())]
        state: Option<u32>,
        /// Instead, time a hypergradient of this many chains, which ranks share out.
        #[arg(long, value_name = "K", value_parser = count(), conflicts_with = "state")]
        chains: Option<u32>,
        #[command(flatten)]
        threads: Threads,
    },
    /// Run wide three times: undisturbed, stopped, and resumed; exit status 1 if the results differ or more than 16 GiB
    /// are used.
    Large {
        /// Numbers of λ, and of θ.
        #[arg(long, value_name = "N", default_value_t = 200_000_000, value_parser = numbers())]
        count: u32,
        /// Outer iterations.
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = count())]
        iterations: u32,
        /// Folder for checkpoints, which are removed at the end; a temporary folder by default.
        #[arg(long, value_name = "DIR")]
        folder: Option<PathBuf>,
        #[command(flatten)]
        threads: Threads,
    },
}

fn count() -> clap::builder::RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..=1000)
}

/// A buffer has at most this many.
fn numbers() -> clap::builder::RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..=i64::from(i32::MAX))
}

fn float(word: &str) -> Result<DType, String> {
    match word {
        "f32" => Ok(DType::F32),
        "f64" => Ok(DType::F64),
        _ => Err("it must be f32 or f64".into()),
    }
}

/// Refuses cases that are not among these, as clap would.
pub fn among(named: Vec<String>, known: &[&str]) -> Vec<String> {
    if let Some(case) = named.iter().find(|case| !known.contains(&case.as_str())) {
        let sentence = format!("there is no case '{case}' here; it must be one of {}", known.join(", "));
        <Arguments as clap::CommandFactory>::command().error(clap::error::ErrorKind::InvalidValue, sentence).exit();
    }
    named
}

/// The cases that are named, or these.
pub fn chosen(named: Vec<String>, usual: &[&str]) -> Vec<String> {
    if named.is_empty() { usual.iter().map(|name| name.to_string()).collect() } else { named }
}

impl Command {
    /// The run of `wide`.
    pub fn wide(self) -> Option<Run> {
        let Command::Wide { count, iterations, stop, folder, bare, threads } = self else { return None };
        Some(Run { count: count as usize, iterations, stop, folder, bare, threads: threads.count() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Command, String> {
        let words = std::iter::once("bilevel-bench").chain(text.split_whitespace());
        Arguments::try_parse_from(words).map(|arguments| arguments.command).map_err(|error| error.to_string())
    }

    #[test]
    fn every_command_reads() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
        let cpu = line("cpu mlp digits --threads 4 --peer python3 --reps 5").unwrap();
        let Command::Cpu { cases, threads, reps: 5, rounds: None, peer: Some(_), floor: false, .. } = cpu else {
            panic!()
        };
        assert_eq!((cases, threads.count()), (vec!["mlp".to_string(), "digits".into()], 4));
        assert!(matches!(line("plan"), Ok(Command::Plan { case: None, passes: false, reps: 3, .. })));
        assert!(matches!(
            line("plan l1reg --target gpu --print-after fuse"),
            Ok(Command::Plan { target: Machine::Gpu, .. })
        ));
        assert!(matches!(line("plan --passes"), Ok(Command::Plan { passes: true, .. })));
        assert!(matches!(line("memory maml --device cuda"), Ok(Command::Memory { device, .. }) if device == "cuda"));
        assert!(matches!(line("cuda --iterations 1000"), Ok(Command::Cuda { iterations: Some(1000), reps: 7, .. })));
        assert_eq!(line("cuda-curves"), Ok(Command::CudaCurves { size: Size::Base, iterations: 3 }));
        assert!(matches!(line("agree --peer p"), Ok(Command::Agree { dtype: None, seed: 0, .. })));
        assert!(
            matches!(line("agree vit_b16 few_shot --peer p"), Ok(Command::Agree { cases, data: None, .. }) if cases.len() == 2)
        );
        assert!(matches!(line("agree --peer p --data d"), Ok(Command::Agree { data: Some(_), .. })));
        assert!(matches!(line("truth --peer p"), Ok(Command::Truth { .. })));
        assert!(matches!(line("profile --show conv64"), Ok(Command::Profile { show: true, .. })));
        let wide = Run { count: 7, iterations: 10, stop: Some(2), folder: None, bare: true, threads: 2 };
        assert_eq!(line("wide --count 7 --stop 2 --bare").unwrap().wide(), Some(wide));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for text in [
            "",
            "cqu",
            "cpu mlq",
            "cpu --threads 0",
            "cpu --reps",
            "plan mlq",
            "plan --print-after fuse",
            "plan mlp --print-after fusion",
            "plan mlp --target tpu",
            "memory mlp --device gpu",
            "cuda-curves --size huge",
            "cuda-curves l1reg",
            "agree",
            "agree --peer p --dtype f16",
            "agree --peer p no_such_model",
            "agree --peer p --data",
            "profile",
            "profile mlp conv64",
            "wide --count 0",
        ] {
            assert!(line(text).is_err(), "{text}");
        }
    }
}
