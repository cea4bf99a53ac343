//! What the command can be asked for.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    a check failed, or the run diverged
  2    something given cannot be used: an argument, a file, a folder
  130  stopped by Ctrl-C; 'bilevel resume DIR' goes on

Begin with 'bilevel' alone, then 'bilevel list' and 'bilevel run synth1d'.";

const RUN_EXAMPLES: &str = "\
Examples:
  bilevel run synth1d                                       a second, with the settings that suit it
  bilevel run digits-l2 --method ift-cg --seed 2            another method, another seed
  bilevel run synth1d --set method.step=0.01 --outer 500    other settings
  bilevel run synth1d --dry-run > my.toml                   a file with every key, to be changed
  bilevel run my.toml --out my-run                          and run

The folder then holds:
  config.toml         the configuration, every key
  metrics.jsonl       one line per outer iteration
  checkpoint/         what 'bilevel resume' goes on from
  result.json         what was found; the same for the same configuration and seed
  lambda.safetensors  the hyperparameters that were found
  report.html         all of it to look at, in one page; its plots are in plots/
  tensorboard/        event files, with --tensorboard";

const REPORT_EXAMPLES: &str = "\
Examples:
  bilevel report runs/digits-l2-langevin-adjoint-s0    its report.html and plots/ again
  bilevel report runs/* --out all.html                 all runs in one page, one curve per run";

const COMPARE_EXAMPLES: &str = "\
Examples:
  bilevel compare synth1d                                        three methods, three seeds
  bilevel compare digits-l2 --methods rmd,ift-cg --seeds 5       other methods, more seeds
  bilevel compare digits-l2 --outer 50 --set outer.rate=0.1      other settings, for all methods
  bilevel compare my.toml --out my-comparison                    given again, it goes on where it stopped

The folder then holds:
  study.toml          what was asked for
  METHOD-sSEED/       the folder of every run
  rows.jsonl          one line per number; the same for the same settings
  report.html         curves, table, hyperparameters, settings; its figures are in plots/";

const REPRODUCE_EXAMPLES: &str = "\
Examples:
  bilevel reproduce                                  the studies, one line each
  bilevel reproduce synth1d --quick                  one table, in a second
  bilevel reproduce all --quick --out reproduction   everything, with a page of tables and figures
  bilevel reproduce all --json > rows.jsonl          with enough seeds for the printed digits

The folder then holds:
  study.toml   what was asked for
  ITEM/        a folder for every run and every measurement
  rows.jsonl   one line per number, as --json prints it
  report.html  tables and figures on one page; the figures are in plots/
Of all studies each has such a folder, with the rows and a page of all above them.";

/// Learns hyperparameters by differentiating through training.
///
/// A bi-level problem has an inner loss, which trains parameters, and an outer loss, which judges them; the command moves the
/// hyperparameters of the inner loss so that the outer loss falls. Without a command it does what 'bilevel reproduce digits' does.
#[derive(Debug, Parser)]
#[command(name = "bilevel", version, after_help = EXIT_CODES, disable_help_subcommand = true, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print nothing but what was asked for and errors.
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Name the tasks, studies and methods, one line each.
    List(List),
    /// Say where a run can happen: the CPU, the GPUs, and what is missing to use one.
    Devices(Devices),
    /// Name known datasets, see whether they are intact, or download one.
    Data(Data),
    /// Run a task and keep what it finds in a folder.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Run),
    /// Go on with a run where it stopped, as if it never had.
    ///
    /// The result is that of a run that was not stopped, byte for byte, whether it was ended by Ctrl-C, killed, or simply
    /// done: with --outer a finished run goes on to more iterations.
    Resume(Resume),
    /// Run several methods on several seeds and put them side by side.
    ///
    /// Every run is kept in a folder of its own. Given again with the same --out, a comparison that was stopped goes on, and
    /// runs that are done are not done again.
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(Compare),
    /// See whether derivatives are right and steps are well chosen, before a long run.
    ///
    /// Holds gradients, Hessian and mixed products of both losses against finite differences, names hyperparameters
    /// that cannot have any effect, measures the curvature of the inner loss, which says what inner step is safe, holds
    /// the method's hypergradient against differences of whole trainings and against the derivative at the inner
    /// minimum, and does the first ten iterations of the run. With --precision tf32 or bf16 it also says how far
    /// gradient, Hessian and mixed products and the hypergradient are from those in full precision.
    Check(Check),
    /// Say which method to begin with on a problem, and with which settings.
    ///
    /// Measures the curvature and the noise of the inner loss, the sizes of the problem and how far its inner loop comes, and ranks
    /// the methods that apply by what they cost and by how far they were from the truth on problems like it, whose
    /// hypergradients are known: 'bilevel reproduce truth' measures that.
    Advise(Advise),
    /// Draw the report of a run again, or several runs on one page.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(Report),
    /// Run a study, such as a table of the paper, and hold what comes out against what was printed.
    ///
    /// Each number stands beside the paper's and a reference's, with a verdict. That a number is not reproduced is a finding,
    /// not a failure: the exit code is 0 all the same. A study that was stopped goes on where it was when the same command is
    /// given again. Without a study, names the studies.
    #[command(after_help = REPRODUCE_EXAMPLES)]
    Reproduce(Reproduce),
    /// Print the JSON schema of a configuration file.
    Schema,
    /// Print a script that completes this command in a shell.
    ///
    /// For bash: bilevel completions bash > ~/.local/share/bash-completion/completions/bilevel
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Show the engine at work in three parts; takes a few seconds and writes nothing.
    Tour,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct List {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `devices`.
#[derive(Debug, Args)]
pub struct Devices {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `data`.
#[derive(Debug, Args)]
pub struct Data {
    /// What to do with them.
    #[command(subcommand)]
    pub command: DataCommand,
}

/// What to do with datasets.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Name the datasets with size, source and licence, one line each.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// See whether the files of a dataset, or of all that are there, are whole.
    Check {
        /// The dataset; all that are there if not given.
        name: Option<String>,
        /// Folder of data files.
        #[arg(long, value_name = "DIR", default_value = "data")]
        data: PathBuf,
    },
    /// Download a dataset, verify it, and unpack it; one that was broken off goes on where it stopped.
    Fetch {
        /// The dataset.
        name: String,
        /// Folder of data files.
        #[arg(long, value_name = "DIR", default_value = "data")]
        data: PathBuf,
    },
}

/// Which configuration: a task or a file, and changes to it.
#[derive(Debug, Args)]
pub struct Which {
    /// A task's name ('bilevel list'), or a file with settings.
    #[arg(value_name = "TASK|CONFIG.toml")]
    pub what: String,
    /// The method; settings a file has for another method are left out.
    #[arg(short, long, value_name = "NAME")]
    pub method: Option<String>,
    /// Everything random follows from this number.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Outer iterations.
    #[arg(long, value_name = "N")]
    pub outer: Option<u32>,
    /// Where to run; 'auto' is the first GPU where it can be used, else the CPU. 'bilevel devices' names what is there.
    #[arg(long, value_name = "cpu|cuda|cuda:N|auto")]
    pub device: Option<String>,
    /// Round the operands of matrix products to this; the inner and the outer loss, and all derivatives, do alike.
    #[arg(long, value_name = "full|tf32|bf16")]
    pub precision: Option<String>,
    /// Changes one key of the configuration, such as method.step=0.1; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder of data files, for tasks that need some.
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Which configuration.
    #[command(flatten)]
    pub which: Which,
    /// Where to keep the run; runs/TASK-METHOD-sSEED if not given.
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write event files for TensorBoard; the same as --set metrics.tensorboard=true.
    #[arg(long)]
    pub tensorboard: bool,
    /// Print the configuration, with every key and what it means, and do not run it.
    #[arg(long)]
    pub dry_run: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
pub struct Resume {
    /// The folder of the run.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Go on to this iteration instead of the one the run was to stop at.
    #[arg(long, value_name = "N")]
    pub outer: Option<u32>,
    /// Where to go on, if not where the run was; its numbers will then not be the same to the last bit.
    #[arg(long, value_name = "cpu|cuda|cuda:N|auto")]
    pub device: Option<String>,
    /// The precision the run was begun with; another is refused, for it would be another run.
    #[arg(long, value_name = "full|tf32|bf16")]
    pub precision: Option<String>,
    /// From here on also write event files for TensorBoard.
    #[arg(long)]
    pub tensorboard: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// The folders of the runs.
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    /// Where to write the page; report.html in the folder of one run, in the current folder for several.
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// A task's name ('bilevel list'), or a file with settings.
    #[arg(value_name = "TASK|CONFIG.toml")]
    pub what: String,
    /// The methods, with commas between them.
    #[arg(short, long, value_name = "NAME,NAME", value_delimiter = ',')]
    #[arg(default_value = "hpo-sgld,langevin-adjoint,amigo-cg")]
    pub methods: Vec<String>,
    /// How many seeds: 0, 1, and so on. Where a task splits its data, each is another split.
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: u32,
    /// Outer iterations.
    #[arg(long, value_name = "N")]
    pub outer: Option<u32>,
    /// Where to run; 'auto' is the first GPU where it can be used, else the CPU. 'bilevel devices' names what is there.
    #[arg(long, value_name = "cpu|cuda|cuda:N|auto")]
    pub device: Option<String>,
    /// Round the operands of matrix products to this; the inner and the outer loss, and all derivatives, do alike.
    #[arg(long, value_name = "full|tf32|bf16")]
    pub precision: Option<String>,
    /// Changes one key of the configuration for all methods; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder of data files, for tasks that need some.
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// Runs at a time; as many as pay if not given.
    #[arg(short, long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub jobs: usize,
    /// Where to keep the runs; runs/compare-TASK if not given, with a number where that is taken.
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the rows as JSON, one per line, and nothing else.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Which configuration.
    #[command(flatten)]
    pub which: Which,
    /// The largest relative error of a derivative that is right.
    #[arg(long, value_name = "ERROR", default_value_t = 1e-6)]
    pub tolerance: f64,
    /// Also hold the hypergradients of all other methods that apply, with the settings of the task, against references.
    #[arg(long)]
    pub all_methods: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `advise`.
#[derive(Debug, Args)]
pub struct Advise {
    /// Which configuration.
    #[command(flatten)]
    pub which: Which,
    /// What the hypergradient should be the derivative of; if not given, the end of training where training starts anew or from
    /// λ, the mean at the method's temperature where that is at least 0.001, and else the minimum.
    #[arg(long, value_name = "minimum|temperature|training")]
    pub question: Option<Asked>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// What a hypergradient should be the derivative of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Asked {
    /// The outer loss at the minimum of the inner loss.
    Minimum,
    /// Its mean at the method's temperature.
    Temperature,
    /// The outer loss after the steps of training that are made.
    Training,
}

/// Arguments of `reproduce`.
#[derive(Debug, Default, Args)]
pub struct Reproduce {
    /// A study ('bilevel reproduce' names them), or all of them.
    #[arg(value_name = "STUDY|all")]
    pub study: Option<String>,
    /// Few seeds and low caps: seconds instead of minutes, to see that it works and not to believe its numbers.
    #[arg(long)]
    pub quick: bool,
    /// Where the seeds of all runs begin.
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 40))]
    pub seed: u64,
    /// Where to run; 'auto' is the first GPU where it can be used, else the CPU. 'bilevel devices' names what is there.
    #[arg(long, value_name = "cpu|cuda|cuda:N|auto")]
    pub device: Option<String>,
    /// Folder of data files, for studies that need some.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Items at a time; as many as pay if not given.
    #[arg(short, long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub jobs: usize,
    /// Print the rows as JSON, one per line, and nothing else.
    #[arg(long)]
    pub json: bool,
    /// Where to keep it; runs/STUDY if not given, with a number where that is taken.
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// What clap says of arguments it does not understand, as one sentence.
pub fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut said = String::new();
    let mut tips = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            // That a value could begin with a dash is no help to anybody who mistyped.
            tips = if tip.contains("as a value") { tips } else { format!("; {tip}") };
        } else if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        } else if !line.is_empty() {
            said += if said.is_empty() { "" } else { " " };
            said += line.strip_prefix("error: ").unwrap_or(line);
        }
    }
    format!("{said}{tips}; 'bilevel --help' says what is understood")
}
