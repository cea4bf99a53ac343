//! The arguments of the command.

use bilevel_run::Scale;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    a check failed, or the run diverged
  2    an argument, a file or a folder cannot be used
  130  stopped by Ctrl-C; 'bilevel resume DIR' continues

Start with 'bilevel', then 'bilevel list' and 'bilevel run synth1d'.";

const RUN_EXAMPLES: &str = "\
Examples:
  bilevel run synth1d                                       one second, with default settings
  bilevel run digits-l2 --method ift-cg --seed 2            another method, another seed
  bilevel run synth1d --rate 0.01 --iterations 500          other settings
  bilevel run synth1d --dry-run > my.toml                   a file with every key, for editing
  bilevel run my.toml --out my-run                          a run of that file
  bilevel run synth1d --set outer.rate=0.01,0.03,0.1        one run for each value, in parallel

The folder then holds:
  config.toml         the configuration, with every key
  metrics.jsonl       one line per outer iteration
  checkpoint/         the state that 'bilevel resume' continues from
  result.json         the results; always the same for the same configuration and seed
  lambda.safetensors  the learned hyperparameters
  report.html         the report, as one page; its plots are in plots/
  tensorboard/        event files, with --tensorboard";

const REPORT_EXAMPLES: &str = "\
Examples:
  bilevel report runs/digits-l2-langevin-adjoint-s0    redraws report.html and plots/
  bilevel report runs/* --out all.html                 all runs on one page, one curve per run";

const RUNS_EXAMPLES: &str = "\
Examples:
  bilevel runs                                          all runs below runs/
  bilevel runs --task digits-l2 --sort outer_loss       those of one task, the best first
  bilevel runs --filter status=finished --filter seed=0
  bilevel runs --tag baseline --json                    as JSON, one run per line
  bilevel runs best --by 'test accuracy' --highest      the best of them
  bilevel runs remove runs/old-run                      deletes a run, after a confirmation

Keys for --sort, --filter and --by:
  run, task, method, name, note, tag, seed, iterations, date, duration
  status          finished, diverged, running, unfinished or damaged
  inner_loss, outer_loss, best_outer_loss
  any key of the configuration, such as outer.rate, and any metric of the task";

const EXPORT_EXAMPLES: &str = "\
Examples:
  bilevel export runs/synth1d-rmd-s0 --csv metrics.csv
  bilevel export runs/sweep-synth1d --parquet metrics.parquet    every run below the folder

A table has one row per outer iteration. The columns are run, name, task, method and seed, then \
losses, norms, diagnostics, metrics, counts of derivatives and seconds. A number that is absent or \
not finite is an empty cell.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  bilevel compare synth1d                                        three methods, three seeds
  bilevel compare digits-l2 --methods rmd,ift-cg --seeds 5       other methods, more seeds
  bilevel compare digits-l2 --iterations 50 --rate 0.1           other settings, for all methods
  bilevel compare my.toml --out my-comparison                    the same command again continues it

The folder then holds:
  study.toml          the request
  METHOD-sSEED/       one folder per run
  rows.jsonl          one line per number; the same for the same settings
  report.html         curves, table, hyperparameters, settings; its figures are in plots/";

const REPRODUCE_EXAMPLES: &str = "\
Examples:
  bilevel reproduce                                  the studies, one line each
  bilevel reproduce synth1d --quick                  one table, in a second
  bilevel reproduce all --quick --out reproduction   everything, with a page of tables and figures
  bilevel reproduce all --json > rows.jsonl          with enough seeds for the printed digits
  bilevel reproduce mine.toml                        your own study, or a table with your own row
  bilevel reproduce invariance --scale paper --time-limit 9m --unpack parts --pack parts
                                                     the paper's protocol, in parts, on any machines

The folder then holds:
  study.toml   the request
  ITEM/        one folder per run or measurement
  rows.jsonl   one line per number, as --json prints it
  report.html  tables and figures on one page; the figures are in plots/
With 'all', every study has a folder like this inside one with all rows and one page.";

/// Learns hyperparameters by differentiating through training.
///
/// A bilevel problem has an inner loss, which training minimises over the parameters, and an outer loss of the trained
/// parameters. The program tunes the hyperparameters of the inner loss to lower the outer loss. Without a command it runs 'bilevel reproduce
/// wrong-labels'.
#[derive(Debug, Parser)]
#[command(name = "bilevel", version, after_help = EXIT_CODES, disable_help_subcommand = true, max_term_width = 100)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print only requested results and errors.
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// The command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the tasks, studies and methods.
    List(List),
    /// List the devices to run on: the CPU, the GPUs, and the libraries that a GPU still needs.
    #[cfg(feature = "cuda")]
    Devices(Devices),
    /// List known datasets, check whether they are intact, or download one.
    #[cfg(feature = "download")]
    Data(Data),
    /// Run a task and save the results in a folder.
    ///
    /// If a key is set to several values, as in --set outer.rate=0.01,0.03, there is one run for each combination, and a page that
    /// compares them.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Run),
    /// Continue a stopped run.
    ///
    /// The result is the same, byte for byte, as that of an uninterrupted run, whether the run was interrupted, killed
    /// or finished. With --iterations, a finished run continues with more iterations.
    Resume(Resume),
    /// Run several methods on several seeds and compare them.
    ///
    /// Every run has its own folder. To continue an interrupted comparison, give the same command with the same --out:
    /// finished runs are not repeated.
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(Compare),
    /// Check derivatives and step sizes before a long run.
    ///
    /// Compares gradients, Hessian products and mixed products of both losses with finite differences. Names
    /// hyperparameters without any effect, and measures the curvature of the inner loss, which determines the safe
    /// inner step. Compares the method's hypergradient with differences of whole trainings and with the derivative at
    /// the inner minimum. Ends with the first ten iterations of the run. With --precision tf32 or bf16 it also prints
    /// the rounding errors of gradients, products and the hypergradient.
    Check(Check),
    /// Recommend a method and settings for a problem.
    ///
    /// Measures the curvature and the noise of the inner loss, the size of the problem and how close its inner loop
    /// gets to the minimum. Ranks the applicable methods by their cost and by their error on similar problems with
    /// known hypergradients, which 'bilevel reproduce truth' measures.
    Advise(Advise),
    /// Draw the report of a run again, or put several runs on one page.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(Report),
    /// List runs, find the best, or remove some.
    #[command(after_help = RUNS_EXAMPLES)]
    Runs(Runs),
    /// Write the metrics of runs into one table, for other programs.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(Export),
    /// Show runs in a browser, with live curves.
    ///
    /// The page is served only on this machine (127.0.0.1) until Ctrl-C, and is read-only.
    #[cfg(feature = "serve")]
    Serve(Serve),
    /// Run a study, such as a table of the paper, and compare the results with the printed ones.
    ///
    /// Each number is shown next to the paper's and a reference, with a verdict. A number that is not reproduced is a
    /// finding, not a failure: the exit code is still 0. To continue an interrupted study, give the same command again.
    /// Without a study, lists the studies.
    #[command(after_help = REPRODUCE_EXAMPLES)]
    Reproduce(Reproduce),
    /// Print the JSON schema of a configuration file.
    Schema,
    /// Print a shell completion script.
    ///
    /// For bash: bilevel completions bash > ~/.local/share/bash-completion/completions/bilevel
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Demonstrate the engine in three parts; takes a few seconds and writes no files.
    Tour,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct List {
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `devices`.
#[cfg(feature = "cuda")]
#[derive(Debug, Args)]
pub struct Devices {
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `data`.
#[cfg(feature = "download")]
#[derive(Debug, Args)]
pub struct Data {
    /// The action.
    #[command(subcommand)]
    pub command: DataCommand,
}

/// Actions on datasets.
#[cfg(feature = "download")]
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// List the datasets with size, source and licence.
    List {
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check whether the files of a dataset, or of all datasets in the folder, are complete and intact.
    Check {
        /// The dataset; by default all in the folder.
        name: Option<String>,
        /// Folder with data files.
        #[arg(long, value_name = "DIR", default_value = "data")]
        data: PathBuf,
    },
    /// Download, verify and unpack a dataset; an interrupted download is continued.
    Fetch {
        /// The dataset.
        name: String,
        /// Folder with data files.
        #[arg(long, value_name = "DIR", default_value = "data")]
        data: PathBuf,
    },
}

/// The configuration: a task or a file, and changes to it.
#[derive(Debug, Args)]
pub struct Which {
    /// The name of a task ('bilevel list'), or a configuration file.
    #[arg(value_name = "TASK|CONFIG.toml")]
    pub what: String,
    /// The method; a file's settings for another method are ignored.
    #[arg(short, long, value_name = "NAME")]
    pub method: Option<String>,
    /// The seed of all random numbers.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Outer iterations.
    #[arg(long, visible_alias = "outer", value_name = "N")]
    pub iterations: Option<u32>,
    /// The outer learning rate.
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// Start from these hyperparameters, such as the lambda.safetensors of another run.
    #[arg(long, value_name = "FILE")]
    pub start: Option<String>,
    /// The device; 'auto' is the first usable GPU, otherwise the CPU. 'bilevel devices' lists the devices.
    #[arg(long, value_name = "cpu|cuda|cuda:N|auto")]
    pub device: Option<String>,
    /// Round the operands of matrix products to this precision, in both losses and all derivatives.
    #[arg(long, value_name = "full|tf32|bf16")]
    pub precision: Option<String>,
    /// Change one key of the configuration, such as inner.step=0.1; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder with data files, for tasks that need them.
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The configuration.
    #[command(flatten)]
    pub which: Which,
    /// Folder for the run; by default runs/TASK-METHOD-sSEED, for a sweep runs/sweep-TASK.
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// A name for the run, for lists and reports.
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// A tag for finding the run; may be repeated.
    #[arg(long, value_name = "TEXT")]
    pub tag: Vec<String>,
    /// A note on the run.
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Concurrent runs of a sweep; by default a number that suits this machine.
    #[arg(short, long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub jobs: usize,
    /// On several ranks, give each only a part of every tensor of at least N numbers; the same as --set shard_from=N.
    #[arg(long, value_name = "N")]
    pub shard_from: Option<usize>,
    /// Also write event files for TensorBoard; the same as --set metrics.tensorboard=true.
    #[arg(long)]
    pub tensorboard: bool,
    /// Print the configuration, with every key and its meaning, and do not run it.
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
    /// Continue up to this iteration instead of the one in the configuration.
    #[arg(long, visible_alias = "outer", value_name = "N")]
    pub iterations: Option<u32>,
    /// Continue on another device; the numbers may then differ in the last bits.
    #[arg(long, value_name = "cpu|cuda|cuda:N|auto")]
    pub device: Option<String>,
    /// The precision of the run; any other is an error.
    #[arg(long, value_name = "full|tf32|bf16")]
    pub precision: Option<String>,
    /// Also write event files for TensorBoard from now on.
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
    /// File for the page; by default report.html, in the folder of a single run or in the current folder.
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `runs`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Runs {
    /// The action; without one, the runs are listed.
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
    /// The selected runs.
    #[command(flatten)]
    pub chosen: Chosen,
    /// Sort by this key; by default by folder.
    #[arg(long, value_name = "KEY")]
    pub sort: Option<String>,
    /// Largest, or last, first.
    #[arg(long)]
    pub reverse: bool,
    /// Print as JSON, one run per line.
    #[arg(long)]
    pub json: bool,
}

/// The runs below a folder.
#[derive(Debug, Args)]
pub struct Chosen {
    /// The folder that is searched for runs; by default runs.
    #[arg(value_name = "DIR", default_value = "runs", hide_default_value = true)]
    pub folder: PathBuf,
    /// Only runs of this task.
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Only runs with this tag; may be repeated.
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
    /// Only runs with this property, such as outer.rate=0.1, status!=diverged or outer_loss<0.2; may be repeated.
    #[arg(long, value_name = "CONDITION")]
    pub filter: Vec<String>,
}

/// Actions on runs.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Name the best of the finished runs; with --quiet print only its folder.
    Best {
        /// The selected runs.
        #[command(flatten)]
        chosen: Chosen,
        /// The criterion: the outer loss, or a metric of the task.
        #[arg(long, value_name = "KEY", default_value = "outer_loss")]
        by: String,
        /// The highest value is best, not the lowest.
        #[arg(long)]
        highest: bool,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Delete the folders of runs, except files that no run wrote.
    Remove {
        /// The folders of the runs.
        #[arg(value_name = "RUN", required = true)]
        folders: Vec<PathBuf>,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// The folders of the runs, or folders with runs below them.
    #[arg(value_name = "RUN", required = true)]
    pub folders: Vec<PathBuf>,
    /// Write the table as CSV into this file; '-' is the standard output.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the table as Parquet into this file.
    #[arg(long, value_name = "FILE")]
    pub parquet: Option<PathBuf>,
}

/// Arguments of `serve`.
#[cfg(feature = "serve")]
#[derive(Debug, Args)]
pub struct Serve {
    /// The folder that is searched for runs; by default runs.
    #[arg(value_name = "DIR", default_value = "runs", hide_default_value = true)]
    pub folder: PathBuf,
    /// The port on 127.0.0.1; 0 is any free port.
    #[arg(short, long, value_name = "N", default_value_t = 8421)]
    pub port: u16,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// The name of a task ('bilevel list'), or a configuration file.
    #[arg(value_name = "TASK|CONFIG.toml")]
    pub what: String,
    /// The methods, separated by commas.
    #[arg(short, long, value_name = "NAME,NAME", value_delimiter = ',')]
    #[arg(default_value = "hpo-sgld,langevin-adjoint,amigo-cg")]
    pub methods: Vec<String>,
    /// Number of seeds, counted from 0. If a task splits its data, each seed gives another split.
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: u32,
    /// Outer iterations.
    #[arg(long, visible_alias = "outer", value_name = "N")]
    pub iterations: Option<u32>,
    /// The outer learning rate of all runs.
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// Start all runs from these hyperparameters, such as the lambda.safetensors of another run.
    #[arg(long, value_name = "FILE")]
    pub start: Option<String>,
    /// The device; 'auto' is the first usable GPU, otherwise the CPU. 'bilevel devices' lists the devices.
    #[arg(long, value_name = "cpu|cuda|cuda:N|auto")]
    pub device: Option<String>,
    /// Round the operands of matrix products to this precision, in both losses and all derivatives.
    #[arg(long, value_name = "full|tf32|bf16")]
    pub precision: Option<String>,
    /// Change one key of the configuration for all methods; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder with data files, for tasks that need them.
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// Concurrent runs; by default a number that suits this machine.
    #[arg(short, long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub jobs: usize,
    /// Folder for the runs; by default runs/compare-TASK, with a number if that exists.
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print only the rows, as JSON, one per line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The configuration.
    #[command(flatten)]
    pub which: Which,
    /// The largest relative error that a correct derivative may have.
    #[arg(long, value_name = "ERROR", default_value_t = 1e-6)]
    pub tolerance: f64,
    /// Also compare the hypergradients of all other methods that apply with references, using the settings of the task.
    #[arg(long)]
    pub all_methods: bool,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `advise`.
#[derive(Debug, Args)]
pub struct Advise {
    /// The configuration.
    #[command(flatten)]
    pub which: Which,
    /// The point at which to differentiate. Default: the end of training if it restarts or starts from λ, the mean at
    /// the method's temperature if that is at least 0.001, otherwise the minimum.
    #[arg(long, value_name = "minimum|temperature|training")]
    pub question: Option<Asked>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The point at which a hypergradient differentiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Asked {
    /// The outer loss at the minimum of the inner loss.
    Minimum,
    /// Its mean at the method's temperature.
    Temperature,
    /// The outer loss after the given steps of training.
    Training,
}

/// Arguments of `reproduce`.
#[derive(Debug, Default, Args)]
pub struct Reproduce {
    /// A study ('bilevel reproduce' lists them), all of them, or a file with your own study.
    #[arg(value_name = "STUDY|all|FILE.toml")]
    pub study: Option<String>,
    /// Few seeds and low limits: takes seconds instead of minutes, but the numbers are rough; short for --scale quick.
    #[arg(long, conflicts_with = "scale")]
    pub quick: bool,
    /// The scale: 'quick' in seconds, 'full' in minutes, or 'paper', the paper's stated protocol.
    #[arg(long, value_name = "quick|full|paper")]
    pub scale: Option<Scale>,
    /// Run only items whose label contains this word; may be repeated.
    #[arg(long, value_name = "WORD")]
    pub only: Vec<String>,
    /// End after this time, such as 90s, 9m or 1h30m; the same command then continues with the unfinished items.
    #[arg(long, value_name = "TIME", value_parser = bilevel_run::duration)]
    pub time_limit: Option<Duration>,
    /// Report the finished items, and compute nothing.
    #[arg(long, conflicts_with = "time_limit")]
    pub report: bool,
    /// At the end, write the study to files below 16 MB in this folder, to continue it on another machine.
    #[arg(long, value_name = "DIR")]
    pub pack: Option<PathBuf>,
    /// First unpack the files that --pack has written to this folder.
    #[arg(long, value_name = "DIR")]
    pub unpack: Option<PathBuf>,
    /// The first seed of all runs.
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 40))]
    pub seed: u64,
    /// The device; 'auto' is the first usable GPU, otherwise the CPU. 'bilevel devices' lists the devices.
    #[arg(long, value_name = "cpu|cuda|cuda:N|auto")]
    pub device: Option<String>,
    /// Folder with data files, for studies that need them.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Concurrent items; by default a number that suits this machine.
    #[arg(short, long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub jobs: usize,
    /// Print only the rows, as JSON, one per line.
    #[arg(long)]
    pub json: bool,
    /// Folder for the study; by default runs/STUDY, with a number if that exists.
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Clap's message about invalid arguments, as one sentence.
pub fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut said = String::new();
    let mut tips = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            // The tip that a value may start with a dash does not help after a typing mistake.
            tips = if tip.contains("as a value") { tips } else { format!("; {tip}") };
        } else if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        } else if !line.is_empty() {
            said += if said.is_empty() { "" } else { " " };
            said += line.strip_prefix("error: ").unwrap_or(line);
        }
    }
    format!("{said}{tips}; see 'bilevel --help'")
}
