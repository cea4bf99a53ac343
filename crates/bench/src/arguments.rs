//! The command line.

#[cfg(unix)]
use crate::attack::{self, Part};
use crate::gpu::curves::Size;
use crate::wide_run::Run;
use crate::{agree, cases, gpu, wide};
use bilevel_graph::{DType, Precision};
use std::fmt;
use std::path::PathBuf;

/// What `--help` prints.
pub const HELP: &str = "\
Benchmarks of the engine against JAX and PyTorch on this machine's CPU.

usage: bilevel-bench COMMAND

  cpu [CASE ...]      times the cases, one JSON line each
      --threads N       threads of ours (2, as the peers have)
      --reps N          repetitions of each (9)
      --peer PYTHON     also runs the peers with this Python, in turn with ours, and prints ratios and goals
      --peers-dir DIR   where cpu_jax.py and cpu_torch.py lie (../shared/peers, seen from the workspace)
      --rounds N        turns to take (3 with --peer, else 1)
      --floor           prints the arithmetic floor of the heavy cases without --peer too
  cuda [CASE ...]     times the cases of the GPU peers on the first GPU, one JSON line each
      --precision P     full, tf32 or bf16 (tf32, then bf16)
      --reps N          repetitions of each (7)
      --show            prints where the time of an outer loop's step goes instead
      --iterations N    runs so many outer iterations of a case instead (l1reg): memory after ten and after all, and the
                        bytes that crossed to the host and back
  cuda-curves         the losses of l1reg on the CPU and on the first GPU in full f32, one JSON line per outer iteration
      --size S          tiny, small (ViT-S/16) or base (ViT-B/16, as the case has it) (base)
      --iterations N    outer iterations (3)
  cuda-check          the conformance suite on the first GPU, draws bit for bit, estimators beside the CPU
      --seeds N         random programs from so many seeds (130: more than 1000 programs)
  plan                times tracing, deriving and planning a ViT-B/16 gradient step
      --threads N, --reps N (3)
  memory [CASE ...]   memory of each program's plan beside the most that is alive at once
      --threads N
      --device D        cpu, or cuda for the cases of cuda, beside the most that the GPU says was taken (cpu)
      --precision P     full, tf32 or bf16, with --device cuda (tf32)
  agree [CASE ...]    compares loss, gradient and Hessian-vector product with JAX; exit status 1 above the goals
      --peer PYTHON     a Python that has jax
      --dtype f32|f64   one type only
      --seed N          another set of inputs (0)
      --threads N
  profile CASE        where the time of a case goes, step by step
      --threads N, --reps N (3)
      --show            prints the program too
  wide                one run of the case wide in this process: its time, its bits, the most memory it took
      --count N         numbers of λ, and of θ (10000000)
      --iterations N    outer iterations (10)
      --stop N          stops in this iteration, as Ctrl-C does
      --folder DIR      checkpoints go there, and the run goes on from what is there
      --bare            the bare programs, without the library
      --threads N
  large               three of them: left alone, stopped, resumed; exit status 1 where they do not end with the same bits
                      or take more than 16 GiB
      --count N         numbers of λ, and of θ (200000000)
      --iterations N    outer iterations (10)
      --folder DIR      checkpoints go there and are removed in the end (a folder of its own among temporary files)
      --threads N
  attack              attacks the command 'bilevel' and the engine; exit status 1 where anything fails
      --minutes N       for so long (1)
      --seconds N       for so long, in seconds
      --seed N          everything random follows from it (0)
      --only PART       one part only: commands, files, kills or graphs
      --cases N         at most so many cases of each part
      --command PATH    attacks this command instead of building the workspace's
  help

cases of cpu, memory and profile: synth1d scalar mlp conv64 vit_block digits wide
cases of cuda: l1reg vit_adjoint maml invariance alexnet_loss wrn_grad wrn_hvp giant
cases of agree: mlp conv64 vit_block residual warp vit alexnet wide_resnet efficientnet nerf
";

/// The commands, for a sentence.
const COMMANDS: &str = "cpu, cuda, cuda-check, cuda-curves, plan, memory, agree, profile, wide, large, attack or help";

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Print the help.
    Help,
    /// Time the cases on a GPU.
    Cuda {
        /// Which.
        cases: Vec<String>,
        /// In which precisions.
        precisions: Vec<Precision>,
        /// Repetitions.
        reps: usize,
        /// Print where the time of a step goes instead.
        show: bool,
        /// Run so many outer iterations instead.
        iterations: Option<u32>,
    },
    /// Hold the losses on a GPU against those on the CPU.
    CudaCurves {
        /// How large the network is.
        size: Size,
        /// Outer iterations.
        iterations: u32,
    },
    /// Print memory sizes of the cases on a GPU.
    CudaMemory {
        /// Which.
        cases: Vec<String>,
        /// In which precision.
        precision: Precision,
    },
    /// Hold the GPU against the reference and the CPU.
    CudaCheck {
        /// Random programs come from so many seeds.
        seeds: u64,
    },
    /// Time the cases.
    Cpu {
        /// Which.
        cases: Vec<String>,
        /// Threads of ours.
        threads: usize,
        /// Repetitions.
        reps: usize,
        /// Turns to take.
        rounds: usize,
        /// Python of the peers.
        peer: Option<PathBuf>,
        /// Folder of the peers' programs.
        peers_dir: Option<PathBuf>,
        /// Report the floor without peers too.
        floor: bool,
    },
    /// Time planning.
    Plan {
        /// Threads planned for.
        threads: usize,
        /// Repetitions.
        reps: usize,
    },
    /// Print memory sizes.
    Memory {
        /// Which cases.
        cases: Vec<String>,
        /// Threads planned for.
        threads: usize,
    },
    /// Compare with JAX.
    Agree {
        /// Which cases.
        cases: Vec<String>,
        /// In which types.
        dtypes: Vec<DType>,
        /// Python of JAX.
        peer: PathBuf,
        /// Which set of inputs.
        seed: u32,
        /// Threads of ours.
        threads: usize,
    },
    /// Run the case wide once.
    Wide(Run),
    /// Compare a large run with one that was stopped and resumed.
    Large {
        /// Numbers of λ, and of θ.
        count: usize,
        /// Outer iterations.
        iterations: u32,
        /// Threads.
        threads: usize,
        /// Where checkpoints go.
        folder: PathBuf,
    },
    /// Attack everything a user can reach.
    #[cfg(unix)]
    Attack(attack::Plan),
    /// Print step times.
    Profile {
        /// Which case.
        case: String,
        /// Threads.
        threads: usize,
        /// Repetitions.
        reps: usize,
        /// Print the program too.
        show: bool,
    },
}

/// Why a command line was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentError {
    /// No command.
    NoCommand,
    /// A command there is not.
    UnknownCommand(String),
    /// A flag this command does not have.
    UnknownFlag {
        /// The command.
        command: String,
        /// The flag.
        flag: String,
    },
    /// A flag at the end of the line that needs a value.
    NoValue(String),
    /// A value the flag cannot take.
    BadValue {
        /// The flag.
        flag: String,
        /// What was given.
        value: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// A case there is not.
    UnknownCase {
        /// What was given.
        case: String,
        /// The cases there are.
        known: &'static [&'static str],
    },
    /// More arguments than the command takes.
    Extra(String),
    /// Something the command cannot do without.
    Missing {
        /// The command.
        command: &'static str,
        /// What it needs.
        what: &'static str,
    },
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentError::NoCommand => {
                write!(f, "give one of the commands {COMMANDS}")
            }
            ArgumentError::UnknownCommand(name) => {
                write!(f, "there is no command '{name}'; it must be {COMMANDS}")
            }
            ArgumentError::UnknownFlag { command, flag } => {
                write!(f, "'{command}' has no flag '{flag}'; see --help for those it has")
            }
            ArgumentError::NoValue(flag) => write!(f, "'{flag}' needs a value after it"),
            ArgumentError::BadValue { flag, value, wanted } => {
                write!(f, "'{flag}' was given '{value}' but needs {wanted}")
            }
            ArgumentError::UnknownCase { case, known } => {
                write!(f, "there is no case '{case}' here; it must be one of {}", known.join(", "))
            }
            ArgumentError::Extra(argument) => write!(f, "'{argument}' is one argument too many"),
            ArgumentError::Missing { command, what } => write!(f, "'{command}' needs {what}"),
        }
    }
}

impl std::error::Error for ArgumentError {}

/// Everything the flags can say; each command takes what it knows.
#[derive(Default)]
struct Given {
    words: Vec<String>,
    seeds: Option<u64>,
    precision: Option<Precision>,
    threads: Option<usize>,
    reps: Option<usize>,
    rounds: Option<usize>,
    peer: Option<PathBuf>,
    peers_dir: Option<PathBuf>,
    dtype: Option<DType>,
    seed: Option<u64>,
    seconds: Option<f64>,
    cases: Option<u64>,
    only: Option<String>,
    command: Option<PathBuf>,
    count: Option<usize>,
    iterations: Option<u32>,
    size: Option<Size>,
    stop: Option<u32>,
    folder: Option<PathBuf>,
    bare: bool,
    on_cuda: bool,
    floor: bool,
    show: bool,
}

/// Reads the command line, the program's own name left out.
pub fn parse(arguments: &[String]) -> Result<Command, ArgumentError> {
    let Some((command, rest)) = arguments.split_first() else {
        return Err(ArgumentError::NoCommand);
    };
    let help = |argument: &String| ["help", "--help", "-h"].contains(&argument.as_str());
    if arguments.iter().any(help) {
        return Ok(Command::Help);
    }
    let flags: &[&str] = match command.as_str() {
        "cpu" => &["--threads", "--reps", "--rounds", "--peer", "--peers-dir", "--floor"],
        "plan" => &["--threads", "--reps"],
        "memory" => &["--threads", "--device", "--precision"],
        "agree" => &["--threads", "--peer", "--dtype", "--seed"],
        "profile" => &["--threads", "--reps", "--show"],
        "wide" => &["--count", "--iterations", "--stop", "--folder", "--bare", "--threads"],
        "large" => &["--count", "--iterations", "--folder", "--threads"],
        "cuda" => &["--reps", "--precision", "--show", "--iterations"],
        "cuda-curves" => &["--size", "--iterations"],
        "cuda-check" => &["--seeds"],
        #[cfg(unix)]
        "attack" => &["--minutes", "--seconds", "--seed", "--only", "--cases", "--command"],
        _ => return Err(ArgumentError::UnknownCommand(command.clone())),
    };
    let mut given = read(command, flags, rest)?;
    let threads = given.threads.unwrap_or(2);
    Ok(match command.as_str() {
        "cpu" => Command::Cpu {
            cases: chosen(given.words, &cases::NAMES)?,
            threads,
            reps: given.reps.unwrap_or(9),
            rounds: given.rounds.unwrap_or(if given.peer.is_some() { 3 } else { 1 }),
            peer: given.peer,
            peers_dir: given.peers_dir,
            floor: given.floor,
        },
        "plan" => {
            if let Some(extra) = given.words.pop() {
                return Err(ArgumentError::Extra(extra));
            }
            Command::Plan { threads, reps: given.reps.unwrap_or(3) }
        }
        "cuda" => Command::Cuda {
            cases: match given.iterations {
                Some(_) if given.words.is_empty() => vec![gpu::NAMES[0].into()],
                _ => on_gpu(given.words)?,
            },
            precisions: given.precision.map_or(vec![Precision::Tf32, Precision::Bf16], |precision| vec![precision]),
            reps: given.reps.unwrap_or(7),
            show: given.show,
            iterations: given.iterations,
        },
        "cuda-curves" => {
            if let Some(extra) = given.words.pop() {
                return Err(ArgumentError::Extra(extra));
            }
            Command::CudaCurves { size: given.size.unwrap_or(Size::Base), iterations: given.iterations.unwrap_or(3) }
        }
        "cuda-check" => {
            if let Some(extra) = given.words.pop() {
                return Err(ArgumentError::Extra(extra));
            }
            Command::CudaCheck { seeds: given.seeds.unwrap_or(130) }
        }
        "memory" if given.on_cuda => {
            Command::CudaMemory { cases: on_gpu(given.words)?, precision: given.precision.unwrap_or(Precision::Tf32) }
        }
        "memory" => Command::Memory { cases: chosen(given.words, &cases::NAMES)?, threads },
        "agree" => Command::Agree {
            cases: chosen(given.words, &agree::NAMES)?,
            dtypes: given.dtype.map_or(vec![DType::F64, DType::F32], |dtype| vec![dtype]),
            peer: given
                .peer
                .ok_or(ArgumentError::Missing { command: "agree", what: "--peer with a Python that has jax" })?,
            seed: given.seed.unwrap_or(0) as u32,
            threads,
        },
        "wide" | "large" => {
            if let Some(extra) = given.words.pop() {
                return Err(ArgumentError::Extra(extra));
            }
            let (iterations, folder) = (given.iterations.unwrap_or(10), given.folder);
            if command == "large" {
                let own = || std::env::temp_dir().join(format!("bilevel-bench-large-{}", std::process::id()));
                let (count, folder) = (given.count.unwrap_or(200_000_000), folder.unwrap_or_else(own));
                Command::Large { count, iterations, threads, folder }
            } else {
                let count = given.count.unwrap_or(wide::COUNT);
                Command::Wide(Run { count, iterations, stop: given.stop, folder, bare: given.bare, threads })
            }
        }
        #[cfg(unix)]
        "attack" => {
            if let Some(extra) = given.words.pop() {
                return Err(ArgumentError::Extra(extra));
            }
            let of_name = |name: &String| Part::ALL.into_iter().filter(|part| part.name() == name).collect();
            Command::Attack(attack::Plan {
                // Where cases are counted, time is not, unless both are.
                seconds: given.seconds.unwrap_or(if given.cases.is_some() { f64::INFINITY } else { 60.0 }),
                cases: given.cases.unwrap_or(u64::MAX),
                seed: given.seed.unwrap_or(0),
                parts: given.only.as_ref().map_or(Part::ALL.to_vec(), of_name),
                command: given.command,
            })
        }
        _ => {
            if given.words.len() > 1 {
                return Err(ArgumentError::Extra(given.words.swap_remove(1)));
            }
            let missing = ArgumentError::Missing { command: "profile", what: "the name of a case" };
            let case = chosen(given.words, &cases::NAMES)?;
            let [case] = <[String; 1]>::try_from(case).map_err(|_| missing)?;
            Command::Profile { case, threads, reps: given.reps.unwrap_or(3), show: given.show }
        }
    })
}

/// Sorts the arguments into words and the flags this command has.
fn read(command: &str, flags: &[&str], arguments: &[String]) -> Result<Given, ArgumentError> {
    let mut given = Given::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if !argument.starts_with('-') {
            given.words.push(argument.clone());
            continue;
        }
        if !flags.contains(&argument.as_str()) {
            return Err(ArgumentError::UnknownFlag { command: command.into(), flag: argument.clone() });
        }
        match argument.as_str() {
            "--floor" => given.floor = true,
            "--show" => given.show = true,
            "--bare" => given.bare = true,
            flag => {
                let value = rest.next().ok_or_else(|| ArgumentError::NoValue(flag.into()))?;
                let bad = |wanted| ArgumentError::BadValue { flag: flag.into(), value: value.clone(), wanted };
                let count = || {
                    let number = value.parse().ok().filter(|n| (1..=1000).contains(n));
                    number.ok_or_else(|| bad("a whole number from 1 to 1000"))
                };
                match flag {
                    "--threads" => given.threads = Some(count()?),
                    "--reps" => given.reps = Some(count()?),
                    "--rounds" => given.rounds = Some(count()?),
                    "--count" => {
                        let most = i32::MAX as usize;
                        let count = value.parse().ok().filter(|count| (1..=most).contains(count));
                        given.count = Some(count.ok_or_else(|| bad("a whole number from 1 to 2³¹ − 1"))?);
                    }
                    "--iterations" => given.iterations = Some(count()? as u32),
                    "--stop" => given.stop = Some(count()? as u32),
                    "--folder" => given.folder = Some(value.into()),
                    "--seed" => {
                        let (most, wanted) = match command {
                            "agree" => (u64::from(u32::MAX), "a whole number below 2³²"),
                            _ => (u64::MAX, "a whole number below 2⁶⁴"),
                        };
                        let seed = value.parse().ok().filter(|seed| *seed <= most);
                        given.seed = Some(seed.ok_or_else(|| bad(wanted))?);
                    }
                    "--minutes" | "--seconds" => {
                        let time = value.parse().ok().filter(|time: &f64| *time > 0.0 && time.is_finite());
                        let time = time.ok_or_else(|| bad("a number above 0"))?;
                        given.seconds = Some(if flag == "--minutes" { 60.0 * time } else { time });
                    }
                    "--cases" => {
                        let cases = value.parse().ok().filter(|cases| *cases > 0);
                        given.cases = Some(cases.ok_or_else(|| bad("a whole number, at least 1"))?);
                    }
                    "--seeds" => given.seeds = Some(count()? as u64),
                    "--precision" => {
                        given.precision = Some(value.parse().map_err(|_| bad("full, tf32 or bf16"))?);
                    }
                    "--size" => {
                        given.size = Some(Size::named(value).ok_or_else(|| bad("tiny, small or base"))?);
                    }
                    "--device" => match value.as_str() {
                        "cpu" => given.on_cuda = false,
                        "cuda" => given.on_cuda = true,
                        _ => return Err(bad("cpu or cuda")),
                    },
                    "--only" if ["commands", "files", "kills", "graphs"].contains(&value.as_str()) => {
                        given.only = Some(value.clone());
                    }
                    "--only" => return Err(bad("commands, files, kills or graphs")),
                    "--command" => given.command = Some(value.into()),
                    "--peer" => given.peer = Some(value.into()),
                    "--peers-dir" => given.peers_dir = Some(value.into()),
                    _ => {
                        given.dtype = Some(match value.as_str() {
                            "f32" => DType::F32,
                            "f64" => DType::F64,
                            _ => return Err(bad("f32 or f64")),
                        })
                    }
                }
            }
        }
    }
    Ok(given)
}

/// The words as cases; all there are if there is no word.
fn chosen(words: Vec<String>, known: &'static [&'static str]) -> Result<Vec<String>, ArgumentError> {
    if let Some(case) = words.iter().find(|word| !known.contains(&word.as_str())) {
        return Err(ArgumentError::UnknownCase { case: case.clone(), known });
    }
    Ok(if words.is_empty() { known.iter().map(|name| name.to_string()).collect() } else { words })
}

/// The words as cases of a GPU; those of the peers if there is no word.
fn on_gpu(words: Vec<String>) -> Result<Vec<String>, ArgumentError> {
    let usual = || gpu::NAMES[..gpu::USUAL].iter().map(|name| name.to_string()).collect();
    if words.is_empty() { Ok(usual()) } else { chosen(words, &gpu::NAMES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Command, ArgumentError> {
        parse(&text.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn every_command_reads() {
        let cpu = line("cpu mlp digits --threads 4 --peer python3 --reps 5").unwrap();
        let expected = Command::Cpu {
            cases: vec!["mlp".into(), "digits".into()],
            threads: 4,
            reps: 5,
            rounds: 3,
            peer: Some("python3".into()),
            peers_dir: None,
            floor: false,
        };
        assert_eq!(cpu, expected);
        assert!(matches!(line("cpu"), Ok(Command::Cpu { cases, threads: 2, rounds: 1, .. }) if cases == cases::NAMES));
        assert_eq!(line("plan"), Ok(Command::Plan { threads: 2, reps: 3 }));
        assert_eq!(line("memory mlp"), Ok(Command::Memory { cases: vec!["mlp".into()], threads: 2 }));
        let precision = Precision::Tf32;
        let on_cuda = Command::CudaMemory { cases: vec!["maml".into()], precision };
        assert_eq!(line("memory maml --device cuda"), Ok(on_cuda));
        assert!(matches!(line("cuda"), Ok(Command::Cuda { cases, .. }) if cases == gpu::NAMES[..gpu::USUAL]));
        let long = line("cuda --iterations 1000 --precision tf32").unwrap();
        let cases = vec!["l1reg".into()];
        let precisions = vec![precision];
        assert_eq!(long, Command::Cuda { cases, precisions, reps: 7, show: false, iterations: Some(1000) });
        assert_eq!(line("cuda-curves"), Ok(Command::CudaCurves { size: Size::Base, iterations: 3 }));
        assert!(matches!(line("agree --peer p"), Ok(Command::Agree { dtypes, .. }) if dtypes.len() == 2));
        let profile = Command::Profile { case: "conv64".into(), threads: 2, reps: 3, show: true };
        assert_eq!(line("profile --show conv64"), Ok(profile));
        let again = attack::Plan { seconds: f64::INFINITY, cases: 1, seed: 5, parts: vec![Part::Kills], command: None };
        assert_eq!(line("attack --only kills --seed 5 --cases 1"), Ok(Command::Attack(again)));
        assert!(matches!(line("attack --minutes 2"), Ok(Command::Attack(plan)) if plan.seconds == 120.0));
        let wide = Run { count: 7, iterations: 10, stop: Some(2), folder: None, bare: true, threads: 2 };
        assert_eq!(line("wide --count 7 --stop 2 --bare"), Ok(Command::Wide(wide)));
        let large = Command::Large { count: 200_000_000, iterations: 3, threads: 2, folder: "f".into() };
        assert_eq!(line("large --folder f --iterations 3"), Ok(large));
        assert_eq!(line("cpu --help"), Ok(Command::Help));
        assert_eq!(line("help"), Ok(Command::Help));
    }

    #[test]
    fn what_cannot_be_read_is_answered_with_one_sentence() {
        for (text, said) in [
            (
                "",
                "give one of the commands cpu, cuda, cuda-check, cuda-curves, plan, memory, agree, profile, wide, large, \
                 attack or help",
            ),
            (
                "gpu",
                "there is no command 'gpu'; it must be cpu, cuda, cuda-check, cuda-curves, plan, memory, agree, profile, \
                 wide, large, attack or help",
            ),
            ("memory mlp --device gpu", "'--device' was given 'gpu' but needs cpu or cuda"),
            (
                "memory mlp --device cuda",
                "there is no case 'mlp' here; it must be one of l1reg, vit_adjoint, maml, invariance, alexnet_loss, wrn_grad, \
                 wrn_hvp, giant",
            ),
            ("cuda-curves --size huge", "'--size' was given 'huge' but needs tiny, small or base"),
            ("cuda-curves l1reg", "'l1reg' is one argument too many"),
            ("cpu --fast", "'cpu' has no flag '--fast'; see --help for those it has"),
            ("plan --dtype f32", "'plan' has no flag '--dtype'; see --help for those it has"),
            ("cpu --reps", "'--reps' needs a value after it"),
            ("cpu --reps 0", "'--reps' was given '0' but needs a whole number from 1 to 1000"),
            ("cpu --threads two", "'--threads' was given 'two' but needs a whole number from 1 to 1000"),
            (
                "cpu mlq",
                "there is no case 'mlq' here; it must be one of synth1d, scalar, mlp, conv64, vit_block, digits, wide",
            ),
            (
                "agree digits --peer p",
                "there is no case 'digits' here; it must be one of mlp, conv64, vit_block, residual, warp, vit, alexnet, \
                 wide_resnet, efficientnet, nerf",
            ),
            ("agree --peer p --dtype f16", "'--dtype' was given 'f16' but needs f32 or f64"),
            ("agree --seed -1", "'--seed' was given '-1' but needs a whole number below 2³²"),
            ("agree", "'agree' needs --peer with a Python that has jax"),
            ("profile", "'profile' needs the name of a case"),
            ("profile mlp conv64", "'conv64' is one argument too many"),
            ("plan mlp", "'mlp' is one argument too many"),
            ("attack --only me", "'--only' was given 'me' but needs commands, files, kills or graphs"),
            ("attack --minutes 0", "'--minutes' was given '0' but needs a number above 0"),
            ("attack --cases 0", "'--cases' was given '0' but needs a whole number, at least 1"),
        ] {
            assert_eq!(line(text).map_err(|error| error.to_string()), Err(said.to_string()), "{text}");
        }
    }
}
